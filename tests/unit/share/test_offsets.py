"""RangeMap: splits and joins, so that what it holds depends only on what is true of each offset."""

from headrace.share.holds import Hold
from headrace.share.locks import Lock
from headrace.share.offsets import RangeMap
from headrace.share.states import RecordState as S

BATCH = (0, 9)


def shown(ranges: RangeMap) -> list[tuple[int, int, str, int]]:
    return [(entry.first, entry.last, entry.state.name, entry.delivery_count) for entry in ranges]


def filled() -> tuple[RangeMap, Lock]:
    ranges, lock = RangeMap(), Lock(Hold("m1", 0), 100)
    ranges.put(0, 9, S.ACQUIRED, 1, lock, BATCH)
    return ranges, lock


def test_setting_a_part_splits_and_setting_it_back_joins() -> None:
    ranges, lock = filled()
    ranges.put(3, 5, S.AVAILABLE, 1, None, BATCH)
    assert shown(ranges) == [(0, 2, "ACQUIRED", 1), (3, 5, "AVAILABLE", 1), (6, 9, "ACQUIRED", 1)]
    assert lock.held == 7
    ranges.put(3, 5, S.ACQUIRED, 1, lock, BATCH)
    assert shown(ranges) == [(0, 9, "ACQUIRED", 1)]
    assert lock.held == 10
    assert ranges.first_available() is None
    assert ranges.available_counts == {}


def test_available_ranges_are_split_and_joined_in_their_index_too() -> None:
    ranges = RangeMap()
    ranges.put(0, 9, S.AVAILABLE, 2, None, BATCH)
    ranges.put(4, 4, S.ACKNOWLEDGED, 3, None, BATCH)
    assert [(entry.first, entry.last) for entry in ranges.available_over(2, 7)] == [(0, 3), (5, 9)]
    assert ranges.available_counts == {2: 2}
    ranges.put(4, 4, S.AVAILABLE, 2, None, BATCH)
    assert [(entry.first, entry.last) for entry in ranges.available_over(7, 7)] == [(0, 9)]
    assert ranges.available_counts == {2: 1}


def test_ranges_of_different_batches_are_never_joined() -> None:
    ranges = RangeMap()
    ranges.put(0, 9, S.AVAILABLE, 1, None, (0, 9))
    ranges.put(10, 19, S.AVAILABLE, 1, None, (10, 19))
    ranges.put(10, 12, S.ACQUIRED, 2, Lock(Hold("m1", 0), 1), (10, 19))
    ranges.put(10, 12, S.AVAILABLE, 1, None, (10, 19))
    assert [(entry.first, entry.last) for entry in ranges] == [(0, 9), (10, 19)]
    assert all(entry.is_whole_batch for entry in ranges)


def test_ranges_with_different_locks_or_counts_stay_apart() -> None:
    ranges, _ = filled()
    ranges.put(5, 9, S.ACQUIRED, 1, Lock(Hold("m2", 0), 100), BATCH)
    ranges.put(8, 9, S.AVAILABLE, 1, None, BATCH)
    ranges.put(9, 9, S.AVAILABLE, 2, None, BATCH)
    assert [entry.first for entry in ranges] == [0, 5, 8, 9]


def test_one_put_replaces_whatever_it_covers_and_holes_as_well() -> None:
    ranges, lock = filled()
    ranges.put(20, 24, S.AVAILABLE, 1, None, (20, 24))
    ranges.put(5, 22, S.ARCHIVED, 1, None, (5, 22))
    assert shown(ranges) == [(0, 4, "ACQUIRED", 1), (5, 22, "ARCHIVED", 1), (23, 24, "AVAILABLE", 1)]
    assert (lock.held, ranges.records) == (5, [2, 5, 0, 0, 18])
    ranges.put(0, 3, S.ARCHIVED, 1, None, BATCH)
    ranges.put(0, 30, S.ACKNOWLEDGED, 1, None, (0, 30))
    assert shown(ranges) == [(0, 30, "ACKNOWLEDGED", 1)]


def test_a_put_before_everything_finds_what_lies_behind() -> None:
    ranges = RangeMap()
    ranges.put(10, 19, S.AVAILABLE, 1, None, (10, 19))
    ranges.put(5, 12, S.ARCHIVED, 0, None, (5, 12))
    assert shown(ranges) == [(5, 12, "ARCHIVED", 0), (13, 19, "AVAILABLE", 1)]


def test_removing_cuts_both_ends_and_notes_locks_that_hold_nothing() -> None:
    ranges, lock = filled()
    ranges.remove(3, 6)
    assert shown(ranges) == [(0, 2, "ACQUIRED", 1), (7, 9, "ACQUIRED", 1)]
    assert ranges.unheld == []
    ranges.remove(0, 100)
    assert (len(ranges), lock.held, ranges.unheld) == (0, 0, [lock])
    ranges.remove(0, 100)
    assert ranges.last() is None


def test_looking_up_offsets() -> None:
    ranges, _ = filled()
    ranges.put(20, 29, S.AVAILABLE, 1, None, (20, 29))
    first, second = list(ranges)
    assert ranges.floor(-1) is None
    assert ranges.floor(15) is ranges.at_or_after(9) is first
    assert ranges.at_or_after(15) is ranges.last() is second
    assert ranges.at_or_after(30) is None
    assert list(ranges.over(9, 20)) == [first, second]
    assert list(ranges.over(10, 19)) == []
