"""A share-partition at a time in the past: small histories whose holders are known.

`tests/property/test_share_partition.py` holds any history against what the engine knew at each time.
"""

from headrace.share.changes import StateBatch
from headrace.share.holds import EndedHold, Hold, HoldEnd, PastHold
from headrace.share.states import RecordState
from headrace.share.view import StateRun
from headrace.wire.share_history import LATEST_MAX, PastPartition
from headrace.wire.share_holds import encode_holds, encode_member
from headrace.wire.share_state import Snapshot, Update

AVAILABLE, ACQUIRED, ACKNOWLEDGED = RecordState.AVAILABLE, RecordState.ACQUIRED, RecordState.ACKNOWLEDGED
Entry = tuple[int, Snapshot | Update | None]
BEGIN: Entry = (0, Snapshot(0, 1, 0, 0, 0, 0, 0, ()))


def let_go(
    at: int, member: str, since: int, first: int, last: int, state: RecordState, end: HoldEnd, count: int = 1
) -> Entry:
    names = {member: encode_member(member, "", "")}
    holds = encode_holds([EndedHold(first, last, Hold(member, since), end)], names.__getitem__, 0)
    return at, Update(0, 0, 0, 0, [StateBatch(first, last, state, count)], holds)


def past(at: int, *entries: Entry, current: tuple[PastHold, ...] = ()) -> PastPartition:
    found = PastPartition(at)
    found.add_held(current)
    for timestamp, body in entries:
        found.add(timestamp, body)
    return found


def shown(runs: tuple[StateRun, ...]) -> list[tuple[int, int, RecordState, str | None, str | None]]:
    return [
        (run.first, run.last, run.state, run.holder, run.past.member_id if run.past else None) for run in runs
    ]


STORY = (
    BEGIN,
    let_go(30, "ann", 10, 0, 4, AVAILABLE, HoldEnd.EXPIRED),
    let_go(50, "bob", 40, 0, 4, ACKNOWLEDGED, HoldEnd.ACCEPTED, count=2),
)


def test_records_are_held_from_when_they_were_acquired_until_the_hold_ended() -> None:
    assert shown(past(9, *STORY).runs()) == []
    assert shown(past(10, *STORY).runs()) == [(0, 4, ACQUIRED, "ann", "ann")]
    assert shown(past(29, *STORY).runs()) == [(0, 4, ACQUIRED, "ann", "ann")]
    assert shown(past(30, *STORY).runs()) == [(0, 4, AVAILABLE, None, "ann")]
    assert shown(past(39, *STORY).runs()) == [(0, 4, AVAILABLE, None, "ann")]
    assert shown(past(49, *STORY).runs()) == [(0, 4, ACQUIRED, "bob", "bob")]
    assert shown(past(50, *STORY).runs()) == [(0, 4, ACKNOWLEDGED, None, "bob")]
    (held,) = past(45, *STORY).runs()
    assert (held.delivery_count, held.held_ms) == (2, 5)


def test_what_is_still_held_comes_from_who_serves_it() -> None:
    current = (PastHold(5, 9, 1, "cay", "", "", 45),)
    assert shown(past(44, *STORY, current=current).runs()) == [(0, 4, ACQUIRED, "bob", "bob")]
    assert shown(past(45, *STORY, current=current).runs()) == [
        (0, 4, ACQUIRED, "bob", "bob"),
        (5, 9, ACQUIRED, "cay", "cay"),
    ]
    assert shown(past(60, *STORY, current=current).runs())[1:] == [(5, 9, ACQUIRED, "cay", "cay")]


def test_state_that_names_no_member_takes_the_place_of_an_older_hold() -> None:
    unnamed: Entry = (60, Update(0, 0, 0, 0, [StateBatch(2, 2, AVAILABLE, 3)]))
    assert shown(past(60, *STORY, unnamed).runs()) == [
        (0, 1, ACKNOWLEDGED, None, "bob"),
        (2, 2, AVAILABLE, None, None),
        (3, 4, ACKNOWLEDGED, None, "bob"),
    ]


def test_an_archived_record_keeps_the_holder_that_rejected_it() -> None:
    archiving = let_go(30, "ann", 10, 0, 0, RecordState.ARCHIVING, HoldEnd.REJECTED)
    copied: Entry = (40, Update(0, 0, 0, 0, [StateBatch(0, 0, RecordState.ARCHIVED, 1)]))
    assert shown(past(40, BEGIN, archiving, copied).runs()) == [(0, 0, RecordState.ARCHIVED, None, "ann")]


def test_a_snapshot_keeps_the_holders_of_what_it_still_says() -> None:
    kept: Entry = (60, Snapshot(1, 1, 0, 3, 0, 0, 60, [StateBatch(3, 4, ACKNOWLEDGED, 2)]))
    assert shown(past(60, *STORY, kept).runs()) == [(3, 4, ACKNOWLEDGED, None, "bob")]
    anew: Entry = (70, Snapshot(2, 2, 0, 0, 0, 0, 70, ()))
    again: Entry = (80, Update(2, 0, 0, 0, [StateBatch(0, 4, ACKNOWLEDGED, 2)]))
    assert shown(past(80, *STORY, kept, anew, again).runs()) == [(0, 4, ACKNOWLEDGED, None, None)]


def test_a_tombstone_ends_it() -> None:
    found = past(60, *STORY, (60, None))
    assert (found.state, found.runs()) == (None, ())


def test_the_holds_that_ended_last_are_told_the_newest_first() -> None:
    assert [(hold.member_id, hold.held_ms) for hold in past(50, *STORY).latest()] == [
        ("bob", 10),
        ("ann", 20),
    ]
    many = [let_go(at, "ann", 0, at, at, ACKNOWLEDGED, HoldEnd.ACCEPTED) for at in range(1, 300)]
    assert [hold.first for hold in past(299, BEGIN, *many).latest()] == list(range(299, 299 - LATEST_MAX, -1))


def test_whether_members_are_named_is_known_once_there_is_an_update() -> None:
    unnamed: Entry = (60, Update(0, 0, 0, 0, [StateBatch(2, 2, AVAILABLE, 3)]))
    assert past(99, BEGIN).names_holders is None
    assert past(99, BEGIN, unnamed).names_holders is False
    assert past(99, BEGIN, unnamed, *STORY[1:], unnamed).names_holders is True
