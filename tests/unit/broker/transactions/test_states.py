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
    TransactionCause,
    TransactionState,
    TransactionVerdict,
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
    assert not [
        pair
        for pair in TRANSITIONS
        if pair[0] in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
    ]


@pytest.mark.parametrize("state", sorted(PREPARED))
def test_a_decision_can_only_be_completed(state: TransactionState) -> None:
    assert [cause for prepared, cause in TRANSITIONS if prepared is state] == [TransactionCause.COMPLETE]


def test_a_commit_never_becomes_an_abort_nor_the_other_way_round() -> None:
    assert (
        TRANSITIONS[TransactionState.PREPARE_COMMIT, TransactionCause.COMPLETE]
        is TransactionState.COMPLETE_COMMIT
    )
    assert (
        TRANSITIONS[TransactionState.PREPARE_ABORT, TransactionCause.COMPLETE]
        is TransactionState.COMPLETE_ABORT
    )


def test_only_an_id_at_rest_may_expire_or_be_initialized() -> None:
    for cause in (TransactionCause.EXPIRE, TransactionCause.INITIALIZE):
        assert {state for state, each in TRANSITIONS if each is cause} == AT_REST


def test_every_end_that_the_tables_prepare_is_a_legal_transition() -> None:
    first = [pair for pair, verdict in END_V1.items() if verdict is TransactionVerdict.PREPARE]
    second = [key[:2] for key, verdict in END_V2.items() if verdict is TransactionVerdict.PREPARE]
    assert set(first + second) <= set(TRANSITIONS)


def test_a_retry_never_prepares_anything() -> None:
    for state, cause in itertools.product(
        TransactionState, (TransactionCause.COMMIT, TransactionCause.ABORT)
    ):
        assert END_V2.get((state, cause, True)) is not TransactionVerdict.PREPARE
