"""Renewals are counted for the same hold, and begin anew with another."""

from headrace.broker.share.holds import LOOK_FROM, NOTES_MAX, Holds
from headrace.share.changes import Change
from headrace.share.states import Cause, RecordState


def renewed(first: int, holder: str = "ann", count: int = 1) -> Change:
    return Change(first, first, RecordState.ACQUIRED, count, Cause.RENEW, holder, 99, (first, first))


def test_renewals_of_one_hold_are_counted_from_its_beginning() -> None:
    holds = Holds()
    holds.note_renewals([renewed(5)], lambda offset: 100, start_offset=0)
    holds.note_renewals([renewed(5)], lambda offset: 900, start_offset=0)
    assert holds.renewed[5] == ("ann", 1, 100, 2)
    holds.note_renewals([renewed(5, "bob", 2)], lambda offset: 1_000, start_offset=0)
    assert holds.renewed[5] == ("bob", 2, 1_000, 1)


def test_the_notes_are_bounded_and_the_oldest_go() -> None:
    holds = Holds()
    changes = [renewed(offset) for offset in range(NOTES_MAX + 2)]
    holds.note_renewals(changes, lambda offset: 0, start_offset=0)
    assert (len(holds.renewed), 0 in holds.renewed, 2 in holds.renewed) == (NOTES_MAX, False, True)


def test_notes_of_settled_records_go() -> None:
    holds = Holds()
    for offset in range(1_000):
        holds.note_renewals([renewed(offset)], lambda offset: 0, start_offset=offset - 10)
        assert len(holds.renewed) <= LOOK_FROM
        assert offset in holds.renewed


def test_a_window_is_full_since_it_became_so() -> None:
    holds = Holds()
    for size, wall_ms, since in ((10, 5, 5), (10, 9, 5), (9, 10, None), (10, 11, 11)):
        holds.note_size(size, 10, lambda now_ms=wall_ms: now_ms)
        assert holds.full_since_ms == since
