"""The circuit breaker: it opens when record after record fails, probes, and closes with the first success."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.worker.circuit import Breaker, Circuit
from headrace.worker.outcomes import DONE, Reject, Retry, TaskOutcome, outcome_of

FAILED, REJECTED = outcome_of(OSError("away")), outcome_of(Reject("no"))
RETRY, RETRY_LATER = outcome_of(Retry()), outcome_of(Retry(after=60))


def opened(failures=3) -> Circuit:
    circuit = Circuit(Breaker(failures=failures, first=1, most=4))
    for number in range(failures):
        circuit.ended(object(), number, FAILED, 0)
    assert circuit.is_open
    return circuit


def probe(circuit: Circuit, outcome: TaskOutcome, now_ms: int) -> None:
    circuit.tick(now_ms)
    assert circuit.may_start
    run = object()
    circuit.started(run)
    assert not circuit.may_start
    circuit.ended(run, "probe", outcome, now_ms)


def test_different_records_that_fail_in_a_row_open_it():
    circuit = opened()
    assert (circuit.may_start, circuit.probe_ms) == (False, 1_000)
    assert circuit.opened == 1


def test_one_record_that_fails_again_and_again_does_not():
    circuit = Circuit(Breaker(failures=3))
    for _ in range(100):
        circuit.ended(object(), 7, FAILED, 0)
    assert not circuit.is_open


def test_a_success_in_between_starts_the_count_anew():
    circuit = Circuit(Breaker(failures=2))
    for number in range(10):
        circuit.ended(object(), number, FAILED, 0)
        circuit.ended(object(), number, DONE, 0)
    assert not circuit.is_open


def test_what_the_function_rejects_is_no_failure():
    circuit = Circuit(Breaker(failures=1))
    circuit.ended(object(), 0, REJECTED, 0)
    assert not circuit.is_open


def test_what_the_function_wants_to_try_at_its_own_time_is_no_failure():
    circuit = Circuit(Breaker(failures=2))
    for number in range(100):
        circuit.ended(object(), number, RETRY_LATER, 0)
    assert not circuit.is_open


def test_what_the_function_wants_to_try_again_without_a_time_is_a_failure():
    circuit = Circuit(Breaker(failures=2))
    for number in range(2):
        circuit.ended(object(), number, RETRY, 0)
    assert circuit.is_open


def test_a_probe_that_is_to_be_tried_at_its_own_time_leaves_the_interval():
    circuit = opened()
    probe(circuit, FAILED, 1_000)
    probe(circuit, RETRY_LATER, 3_000)
    assert (circuit.is_open, circuit.probe_ms) == (True, 5_000)


def test_probes_come_more_and_more_rarely():
    circuit = opened()
    moments = []
    for _ in range(4):
        now_ms = circuit.probe_ms
        moments.append(now_ms)
        probe(circuit, FAILED, now_ms)
    assert moments == [1_000, 3_000, 7_000, 11_000]


def test_the_first_success_closes_it_whichever_run_it_is_of():
    circuit = opened()
    probe(circuit, DONE, 1_000)
    assert (circuit.is_open, circuit.may_start, circuit.probe_ms) == (False, True, None)

    again = opened()
    again.ended(object(), "began before it opened", DONE, 10)
    assert not again.is_open


def test_without_a_breaker_it_never_opens():
    circuit = Circuit(None)
    for number in range(1_000):
        circuit.ended(object(), number, FAILED, 0)
    assert circuit.may_start


@pytest.mark.parametrize("wrong", [{"failures": 0}, {"first": 0}, {"first": 2, "most": 1}])
def test_a_breaker_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(ValueError, match=r"Breaker: \w+ must be .*, got"):
        Breaker(**wrong)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 5),
            st.sampled_from([FAILED, DONE, REJECTED, RETRY, RETRY_LATER]),
            st.integers(0, 5_000),
        )
    )
)
def test_open_it_always_has_a_next_probe_or_one_under_way(steps):
    circuit = Circuit(Breaker(failures=2, first=0.5, most=2))
    running: list[object] = []
    now_ms = 0
    for record, outcome, wait_ms in steps:
        now_ms += wait_ms
        circuit.tick(now_ms)
        if circuit.may_start:
            running.append(object())
            circuit.started(running[-1])
        if running:
            circuit.ended(running.pop(0), record, outcome, now_ms)
        if circuit.is_open:
            assert circuit.probe_ms is not None or circuit.may_start or running
            assert circuit.probe_ms is None or circuit.probe_ms <= now_ms + 2_000
