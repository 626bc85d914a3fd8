"""The tables of states: complete where they must be, and nothing legal beyond them. By looking at every pair."""

import itertools

import pytest

from headrace.broker.transactions.states import (
    AT_REST,
    BY_TITLE,
    END_V1,
    END_V2,
    PREPARED,
    TRANSITIONS,
    Cause,
    State,
    Verdict,
)


def test_states_have_the_names_that_kafkas_tools_print() -> None:
    assert list(BY_TITLE) == [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ]


def test_a_dead_id_has_no_way_back() -> None:
    assert not [pair for pair in TRANSITIONS if pair[0] in (State.DEAD, State.PREPARE_EPOCH_FENCE)]


@pytest.mark.parametrize("state", sorted(PREPARED))
def test_a_decision_can_only_be_completed(state: State) -> None:
    assert [cause for prepared, cause in TRANSITIONS if prepared is state] == [Cause.COMPLETE]


def test_a_commit_never_becomes_an_abort_nor_the_other_way_round() -> None:
    assert TRANSITIONS[State.PREPARE_COMMIT, Cause.COMPLETE] is State.COMPLETE_COMMIT
    assert TRANSITIONS[State.PREPARE_ABORT, Cause.COMPLETE] is State.COMPLETE_ABORT


def test_only_an_id_at_rest_may_expire_or_be_initialised() -> None:
    for cause in (Cause.EXPIRE, Cause.INITIALISE):
        assert {state for state, each in TRANSITIONS if each is cause} == AT_REST


def test_every_end_that_the_tables_prepare_is_a_legal_transition() -> None:
    first = [pair for pair, verdict in END_V1.items() if verdict is Verdict.PREPARE]
    second = [key[:2] for key, verdict in END_V2.items() if verdict is Verdict.PREPARE]
    assert set(first + second) <= set(TRANSITIONS)


def test_a_retry_never_prepares_anything() -> None:
    for state, cause in itertools.product(State, (Cause.COMMIT, Cause.ABORT)):
        assert END_V2.get((state, cause, True)) is not Verdict.PREPARE
