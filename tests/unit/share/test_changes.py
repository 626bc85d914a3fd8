"""What of a decision is persisted."""

from headrace.share.changes import (
    AcquiredRecords,
    Acquisition,
    Change,
    StartMoved,
    StateBatch,
    ended_holds,
    state_batches,
)
from headrace.share.holds import Hold, HoldEnd
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
        Change(0, 4, S.ACQUIRED, 1, Cause.ACQUIRE, Hold("m1", 0), 5, (0, 4)),
        Change(5, 9, S.ACQUIRED, 1, Cause.RENEW, Hold("m1", 0, 1), 5, (5, 9)),
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


def test_the_holds_that_a_decision_ends_are_named_with_their_ends() -> None:
    ann, bob = Hold("ann", 5), Hold("bob", 5)

    def ends(first: int, last: int, cause: Cause, hold: Hold | None) -> Change:
        return Change(first, last, S.ARCHIVED, 1, cause, hold, None, (0, 99))

    changes = [
        ends(0, 4, Cause.ACCEPT, ann),
        ends(5, 9, Cause.ACCEPT, ann),
        ends(10, 10, Cause.ACCEPT, bob),
        ends(12, 12, Cause.ACCEPT, bob),
        ends(13, 13, Cause.EXHAUST, bob),
        ends(14, 14, Cause.RELEASE, bob),
        ends(15, 15, Cause.REJECT_TO_DEAD_LETTERS, bob._replace(renewals=2)),
        ends(16, 16, Cause.GAP, bob),
        ends(20, 29, Cause.TRIM, ann),
        ends(30, 39, Cause.RENEW, ann),
        ends(40, 49, Cause.DEAD_LETTER, None),
        StartMoved(50),
    ]
    assert ended_holds(changes, HoldEnd.RELEASED) == [
        (0, 9, ann, HoldEnd.ACCEPTED),
        (10, 10, bob, HoldEnd.ACCEPTED),
        (12, 12, bob, HoldEnd.ACCEPTED),
        (13, 14, bob, HoldEnd.RELEASED),
        (15, 15, ("bob", 5, 2), HoldEnd.REJECTED),
        (16, 16, bob, HoldEnd.GAP),
    ]
    assert ended_holds(changes[4:5], HoldEnd.EXPIRED) == [(13, 13, bob, HoldEnd.EXPIRED)]
