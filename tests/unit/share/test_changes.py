"""What of a decision is persisted."""

from headrace.share.changes import AcquiredRecords, Acquisition, Change, StartMoved, StateBatch, state_batches
from headrace.share.states import Cause
from headrace.share.states import RecordState as S


def change(first: int, last: int, state: S, cause: Cause, count: int = 1) -> Change:
    return Change(first, last, state, count, cause, None, None, (first, last))


def test_neighbors_that_are_alike_are_joined() -> None:
    changes = [
        change(0, 4, S.ACKNOWLEDGED, Cause.ACCEPT),
        change(5, 9, S.ACKNOWLEDGED, Cause.ACCEPT),
        change(10, 11, S.ACKNOWLEDGED, Cause.ACCEPT, 2),
        change(13, 14, S.ACKNOWLEDGED, Cause.ACCEPT, 2),
        change(15, 15, S.AVAILABLE, Cause.RELEASE, 2),
    ]
    assert state_batches(changes) == [
        StateBatch(0, 9, S.ACKNOWLEDGED, 1),
        StateBatch(10, 11, S.ACKNOWLEDGED, 2),
        StateBatch(13, 14, S.ACKNOWLEDGED, 2),
        StateBatch(15, 15, S.AVAILABLE, 2),
    ]


def test_acquisitions_renewals_and_what_the_log_shows_again_are_not_written() -> None:
    changes = [
        Change(0, 4, S.ACQUIRED, 1, Cause.ACQUIRE, "m1", 5, (0, 4)),
        Change(5, 9, S.ACQUIRED, 1, Cause.RENEW, "m1", 5, (5, 9)),
        change(10, 11, S.ARCHIVED, Cause.ABORT),
        change(12, 12, S.ARCHIVED, Cause.COMPACT),
        change(13, 13, S.ARCHIVED, Cause.TRIM),
        change(14, 14, S.AVAILABLE, Cause.READ),
        StartMoved(14),
    ]
    assert state_batches(changes) == []


def test_nothing_below_the_start_is_written() -> None:
    changes = [change(0, 4, S.ARCHIVED, Cause.GAP), change(5, 9, S.ARCHIVED, Cause.GAP)]
    assert state_batches(changes, start_offset=7) == [StateBatch(7, 9, S.ARCHIVED, 1)]


def test_an_acquisition_counts_offsets() -> None:
    assert Acquisition([], [AcquiredRecords(0, 4, 1), AcquiredRecords(10, 10, 2)]).record_count == 6
