"""Exceptions become outcomes: what they ask for, what they say, and by which way they came."""

import pickle
import re
from datetime import timedelta

import pytest

from headrace.worker.outcomes import (
    TEXT_MAX,
    BodyError,
    Reject,
    Retry,
    TaskOutcome,
    TaskResult,
    outcome_of,
    timed_out,
)


def _raise(error: Exception) -> TaskOutcome:
    try:
        raise error
    except Exception as caught:
        return outcome_of(caught)


def _fails_in_the_first_way() -> None:
    raise ValueError("first")


def _fails_in_the_second_way() -> None:
    raise ValueError("second")


def _caught(function) -> TaskOutcome:
    try:
        function()
    except Exception as error:
        return outcome_of(error)
    raise AssertionError("it did not fail")


@pytest.mark.parametrize(
    ("error", "result"),
    [
        (ValueError("x"), TaskResult.FAILED),
        (Retry(after=3), TaskResult.RETRY_ASKED),
        (Reject("no"), TaskResult.REJECTED),
        (BodyError("no"), TaskResult.UNREADABLE),
    ],
)
def test_an_exception_says_what_shall_become_of_the_record(error, result):
    assert _raise(error).result is result


def test_retry_carries_its_delay_and_reason():
    outcome = _raise(Retry(after=2.5, reason="the server is away"))

    assert outcome.retry_after_s == 2.5
    assert outcome.message == "the server is away"
    assert _raise(Retry(after=timedelta(days=2))).retry_after_s == 172_800


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), 10.0**12, timedelta(days=-1), "30", True])
def test_retry_refuses_a_delay_that_cannot_be(after):
    with pytest.raises(ValueError, match=re.escape(f"or None, got {after!r}")):
        Retry(after=after)


def test_an_exceptions_class_is_named_with_its_module():
    assert _raise(KeyError("x")).exception == "KeyError"
    assert _raise(pickle.PicklingError("x")).exception == "_pickle.PicklingError"


def test_failures_by_the_same_way_have_the_same_hash_whatever_they_say():
    assert _raise(ValueError("one")).traceback_hash == _raise(ValueError("two")).traceback_hash


def test_failures_by_different_ways_or_of_different_classes_have_different_hashes():
    hashes = {
        _caught(_fails_in_the_first_way).traceback_hash,
        _caught(_fails_in_the_second_way).traceback_hash,
        _raise(ValueError("x")).traceback_hash,
        _raise(KeyError("x")).traceback_hash,
    }

    assert len(hashes) == 4


def test_a_long_text_is_cut():
    assert len(_raise(ValueError("x" * 100_000)).message) == TEXT_MAX


def test_an_exception_whose_text_cannot_be_read_still_has_an_outcome():
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert _raise(Broken()).message == "(its text could not be read)"


def test_an_outcome_crosses_a_process_border():
    outcome = _raise(ValueError("x"))

    assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_running_out_of_time_is_a_failure_that_names_the_time():
    assert timed_out(1.5).result is TaskResult.FAILED
    assert "1.5 s" in timed_out(1.5).message
