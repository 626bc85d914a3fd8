"""Every error code that a client meets has a class of its own and says what to do."""

import pickle

import pytest

from headrace.client import errors
from headrace.client.errors import (
    TABLE,
    BrokerError,
    BrokerNotAvailableError,
    ConnectionLost,
    NonEmptyGroupError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    TlsError,
    UnknownServerError,
    error_for,
    is_retriable,
)
from headrace.wire.errors import ErrorCode, KafkaError

IN_PLAY = {
    *(-1, 2, 3, 6, 14, 15, 16, 23, 24, 25, 29, 30, 31, 35, 40, 42, 56, 68, 69, 74, 78, 81, 100, 110),
    *(121, 122, 123, 124, 133),
    *(1, 5, 7, 8, 13, 17, 33, 34, 36, 37, 38, 41, 44, 58, 75, 86, 103, 113, 129),
}
"""The codes that share groups use, and what metadata, plain fetches, logins and topic administration add to them."""


@pytest.mark.parametrize("code", sorted(IN_PLAY))
def test_a_code_in_play_has_a_class_and_a_cure(code: int) -> None:
    kind, cure = TABLE[ErrorCode(code)]
    assert kind is not BrokerError
    assert cure.endswith(".")


def test_a_class_stands_for_one_code_or_a_family_of_them() -> None:
    kinds = [kind for kind, _ in TABLE.values()]
    assert {kind for kind in kinds if kinds.count(kind) > 1} == {
        errors.FetchSessionError,
        errors.InvalidProducerEpochError,
        errors.InvalidRecordError,
        errors.NotEnoughReplicasError,
        errors.OutOfOrderSequenceError,
        errors.ProducerFencedError,
        errors.RecordTooLargeError,
    }


def test_every_exception_of_the_table_is_reachable_by_its_name() -> None:
    for kind, _ in TABLE.values():
        assert getattr(errors, kind.__name__) is kind


def test_the_text_names_the_subject_the_sentence_the_code_and_the_cure() -> None:
    error = error_for(68, "The group is not empty.", about="group 'mailers'")
    assert isinstance(error, NonEmptyGroupError)
    assert str(error) == (
        "group 'mailers': The group is not empty (NON_EMPTY_GROUP). "
        "Stop the group's members first, or wait for their sessions to end."
    )
    assert (error.code, error.message) == (ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")


def test_an_answer_without_a_sentence_gets_kafkas() -> None:
    assert str(error_for(69)).startswith(
        "The group id does not exist (GROUP_ID_NOT_FOUND). Check the group's name"
    )
    assert str(error_for(ErrorCode.INVALID_RECORD_STATE)).startswith(
        "The record is not held by this member (INV"
    )


def test_a_code_without_a_row_is_still_named() -> None:
    error = error_for(ErrorCode.DUPLICATE_RESOURCE, about="user")
    assert type(error) is BrokerError
    assert str(error) == "user: DUPLICATE_RESOURCE."


def test_a_code_of_a_newer_broker_is_shown_by_its_number() -> None:
    error = error_for(999, "Something new.", about="topic 't'")
    assert isinstance(error, UnknownServerError)
    assert str(error).startswith("topic 't': error code 999: Something new (UNKNOWN_SERVER_ERROR).")


def test_network_errors_are_also_pythons_own() -> None:
    assert issubclass(RequestTimeoutError, TimeoutError)
    for kind in (BrokerNotAvailableError, ConnectionLost, TlsError):
        assert issubclass(kind, ConnectionError)
        assert issubclass(kind, KafkaError)


@pytest.mark.parametrize("code", sorted(TABLE))
def test_an_error_survives_pickling(code: ErrorCode) -> None:
    error = error_for(code, "a sentence", about="a subject")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.code, copy.about) == (
        type(error),
        str(error),
        error.code,
        error.about,
    )


def test_the_start_of_the_log_survives_pickling() -> None:
    error = error_for(ErrorCode.OFFSET_OUT_OF_RANGE)
    assert isinstance(error, OffsetOutOfRangeError)
    error.log_start_offset = 42
    assert pickle.loads(pickle.dumps(error)).log_start_offset == 42


@pytest.mark.parametrize("code", [3, 5, 6, 7, 13, 14, 15, 16, 41, 56, 74, 75, 78, 100, 103, 122, 123, 133])
def test_what_passes_may_be_tried_again(code: int) -> None:
    assert is_retriable(code)


@pytest.mark.parametrize("code", [-1, 0, 1, 24, 25, 29, 30, 35, 40, 42, 58, 68, 69, 81, 110, 121, 999])
def test_what_does_not_pass_is_not_tried_again(code: int) -> None:
    assert not is_retriable(code)
