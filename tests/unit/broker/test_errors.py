"""Every error of the share engine has a Kafka error code, and clients get it with the engine's text."""

import pytest

from headrace.broker.errors import ENGINE_CODES, engine_error, journal_error, share_state_error
from headrace.share import errors
from headrace.wire.errors import ErrorCode, KafkaError


def test_every_error_of_the_engine_has_a_code() -> None:
    assert set(ENGINE_CODES) == set(errors.ShareError.__subclasses__())


@pytest.mark.parametrize(("kind", "code"), ENGINE_CODES.items())
def test_an_error_of_the_engine_keeps_its_text(kind: type[errors.ShareError], code: ErrorCode) -> None:
    error = engine_error(kind("why"))
    assert (error.code, error.message) == (code, "why")


def test_a_code_that_the_journal_does_not_translate_stays() -> None:
    assert journal_error(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")).code is ErrorCode.NOT_COORDINATOR
    assert journal_error(KafkaError(ErrorCode.INVALID_REQUEST)).code is ErrorCode.INVALID_REQUEST


def test_a_code_that_the_share_coordinator_should_not_give_is_unknown_to_members() -> None:
    error = share_state_error(KafkaError(ErrorCode.INVALID_REQUEST))
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
    assert error.message == "Error in write state RPC. INVALID_REQUEST"
