"""Merging persisted state batches ("Stored state" in docs/concepts/share-semantics.md)."""

from headrace.share.changes import StateBatch
from headrace.share.merge import merge
from headrace.share.states import RecordState as S


def batch(first: int, last: int, state: int, count: int) -> StateBatch:
    return StateBatch(first, last, S(state), count)


def test_more_deliveries_win_and_then_the_higher_state() -> None:
    assert merge([batch(0, 9, 2, 1), batch(3, 5, 0, 2)]) == [
        batch(0, 2, 2, 1),
        batch(3, 5, 0, 2),
        batch(6, 9, 2, 1),
    ]
    assert merge([batch(0, 9, 3, 1), batch(0, 9, 4, 1), batch(0, 9, 0, 1)]) == [batch(0, 9, 4, 1)]


def test_neighbors_that_are_alike_are_joined_and_others_are_not() -> None:
    assert merge([batch(5, 9, 2, 1), batch(0, 4, 2, 1), batch(10, 12, 2, 2), batch(14, 15, 2, 2)]) == [
        batch(0, 9, 2, 1),
        batch(10, 12, 2, 2),
        batch(14, 15, 2, 2),
    ]


def test_everything_below_the_start_is_cut() -> None:
    assert merge([batch(0, 4, 2, 1), batch(5, 9, 0, 1)], start_offset=7) == [batch(7, 9, 0, 1)]
    assert merge([batch(0, 4, 2, 1)], start_offset=5) == []


def test_a_winner_that_is_longer_hides_all_that_begins_under_it() -> None:
    batches = [batch(0, 20, 0, 5), batch(2, 3, 2, 1), batch(4, 8, 2, 2), batch(15, 30, 4, 3)]
    assert merge(batches) == merge(batches[::-1]) == [batch(0, 20, 0, 5), batch(21, 30, 4, 3)]


def test_nothing_merges_to_nothing() -> None:
    assert merge([]) == []
