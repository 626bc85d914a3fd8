"""Retention: old or surplus segments go, the end of the log never does, and files go late."""

import errno
from itertools import pairwise

from headrace.log.background import STEP_COST
from headrace.log.config import LogConfig
from headrace.log.manager import BYTES_PER_COST, DROP_COST, DROPPED_MAX, LogManager
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.log.times import offset_for_time
from tests.unit.log.logs import DAY, NOW, TOPIC_ID, batch, delete_records, open_log, values_of


def fill(log: PartitionLog, *ages_in_days: float) -> None:
    """One segment for each record."""
    for age in ages_in_days:
        log.append(batch("x" * 100, at=int(NOW - age * DAY)), now_ms=NOW)


def test_segments_go_when_their_newest_record_is_too_old() -> None:
    manager, log = open_log(segment_bytes=200, retention_ms=2 * DAY)
    fill(log, 5, 3, 1, 0)
    manager.run_background_work(NOW)
    assert (log.start_offset, log.end_offset) == (2, 4)
    manager.run_background_work(NOW + DAY + 1)
    assert log.start_offset == 3


def test_a_young_segment_protects_those_behind_it() -> None:
    manager, log = open_log(segment_bytes=200, retention_ms=2 * DAY)
    fill(log, 1, 5, 5)
    manager.run_background_work(NOW)
    assert log.start_offset == 0


def test_the_active_segment_may_go_and_the_end_stays() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk, segment_bytes=200, retention_ms=DAY, file_delete_delay_ms=0)
    fill(log, 5, 5, 5)
    manager.run_background_work(NOW)
    assert (log.start_offset, log.end_offset, log.size) == (3, 3, 0)
    assert [name for name in disk.list("orders-0") if name.endswith(".log")] == ["00000000000000000003.log"]
    manager.run_background_work(NOW)
    assert len(log.segments) == 1
    disk.power_cycle()
    manager, log = open_log(disk)
    assert (log.start_offset, log.end_offset) == (3, 3)
    assert log.append(batch("next"), now_ms=NOW).base_offset == 3


def test_segments_go_until_the_rest_fits() -> None:
    manager, log = open_log(segment_bytes=200, retention_bytes=500)
    fill(log, 0, 0, 0, 0, 0)
    one = log.size // 5
    manager.run_background_work(NOW)
    assert log.size >= 500 > log.size - one
    assert log.start_offset == 5 - log.size // one


def test_minus_one_means_for_ever() -> None:
    manager, log = open_log(segment_bytes=200, retention_ms=-1, retention_bytes=-1)
    fill(log, 5000, 4000)
    manager.run_background_work(NOW)
    assert log.start_offset == 0


def test_a_compacted_topic_keeps_old_records_unless_its_policy_says_delete_too() -> None:
    for policy, start in (({"compact"}, 0), ({"compact", "delete"}, 1)):
        manager, log = open_log(segment_bytes=200, cleanup_policy=frozenset(policy), retention_ms=DAY)
        log.append(batch("x" * 100, keys=["a"], at=NOW - 2 * DAY), now_ms=NOW)
        log.append(batch("x" * 100, keys=["b"]), now_ms=NOW)
        manager.run_background_work(NOW)
        assert log.start_offset == start


def test_segments_before_the_start_offset_go_whatever_the_policy() -> None:
    manager, log = open_log(segment_bytes=200, retention_ms=-1, file_delete_delay_ms=0)
    fill(log, 0, 0, 0, 0)
    delete_records(log, 3)
    manager.run_background_work(NOW)
    assert log.files.bases == [3]
    assert not manager.disk.exists("orders-0/00000000000000000000.log")


def test_files_are_removed_only_after_the_delay() -> None:
    manager, log = open_log(segment_bytes=200, retention_ms=DAY, file_delete_delay_ms=60_000)
    fill(log, 5, 0)
    manager.run_background_work(NOW)
    assert log.start_offset == 1
    manager.run_background_work(NOW + 59_999)
    assert manager.disk.exists("orders-0/00000000000000000000.log")
    manager.run_background_work(NOW + 60_000)
    assert not manager.disk.exists("orders-0/00000000000000000000.log")


def test_a_crash_before_the_files_are_removed_brings_no_records_back() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk, segment_bytes=200, retention_ms=DAY)
    fill(log, 5, 0)
    manager.run_background_work(NOW)
    disk.restart()
    manager, log = open_log(disk, segment_bytes=200, retention_ms=DAY, file_delete_delay_ms=0)
    assert log.start_offset == 1
    manager.run_background_work(NOW)
    assert log.files.bases == [1]


def test_records_without_timestamps_age_from_when_the_segment_was_known() -> None:
    manager, log = open_log(segment_bytes=200, retention_ms=DAY)
    log.append(batch("x" * 100, at=-1), now_ms=NOW)
    log.append(batch("x" * 100, at=-1), now_ms=NOW)
    manager.run_background_work(NOW + DAY)
    assert log.start_offset == 0
    manager.run_background_work(NOW + DAY + 1)
    assert log.start_offset == 2


def test_producers_are_remembered_when_their_records_are_gone() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk, retention_ms=DAY, file_delete_delay_ms=0)
    log.append(batch("x", at=NOW - 2 * DAY, producer=(7, 0, 0)), now_ms=NOW)
    manager.run_background_work(NOW)
    assert log.start_offset == 1
    disk.power_cycle()
    _, log = open_log(disk)
    assert log.append(batch("x", producer=(7, 0, 0)), now_ms=NOW).is_duplicate
    assert values_of(log) == []


def test_a_full_disk_keeps_old_files_until_there_is_room_and_is_no_failure() -> None:
    """The start offsets are to be written down before files go, and that needs a little room."""
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk, segment_bytes=200, retention_ms=2 * DAY, file_delete_delay_ms=0)
    fill(log, 5, 3, 0)

    def files() -> int:
        return len([name for name in disk.list("orders-0") if ".log" in name])

    (removal,) = manager.background_work(NOW)
    assert removal.what == "remove old files"
    disk.fail_at(1, OSError(errno.ENOSPC, "full"))
    removal.run()
    removal.finish()
    assert files() == 3
    manager.run_background_work(NOW)
    assert files() == 1
    disk.power_cycle()
    assert open_log(disk)[1].start_offset == 2


def test_an_index_saved_before_the_last_records_makes_their_segment_no_older() -> None:
    """It was saved by a clean stop; after a crash the index was not worth a file, and the old one stayed."""
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk, index_interval_bytes=1, retention_ms=2 * DAY)
    fill(log, 5, 5)
    manager.close()
    manager, log = open_log(disk, retention_ms=2 * DAY)
    fill(log, 0)
    manager.sync([log])
    disk.restart()
    for _ in range(2):
        manager, log = open_log(disk, retention_ms=2 * DAY)
        assert offset_for_time(log, NOW) is not None  # it loads the indexes
        manager.run_background_work(NOW)
        assert (log.start_offset, log.end_offset) == (0, 3)
        manager.close()


def many_old_logs(count: int) -> tuple[LogManager, list[PartitionLog]]:
    manager = LogManager(MemoryDisk(), now_ms=NOW)
    config = LogConfig(retention_ms=DAY)
    logs = [manager.open_log("orders", index, config, TOPIC_ID) for index in range(count)]
    for log in logs:
        log.append(batch("x", at=NOW - 2 * DAY), now_ms=NOW)
    return manager, logs


def test_a_step_of_retention_empties_a_bounded_number_of_logs() -> None:
    manager, logs = many_old_logs(100)
    steps = manager.expire(NOW, is_compacted=False)
    emptied = [0]
    for _ in steps:
        emptied.append(sum(log.start_offset for log in logs))
    assert all(log.start_offset == 1 for log in logs)
    assert len(emptied) > 4
    assert max(after - before for before, after in pairwise([*emptied, 100])) <= STEP_COST // DROP_COST


def test_a_step_of_retention_drops_a_bounded_number_of_segments_of_one_log() -> None:
    manager, log = open_log(segment_bytes=200, retention_ms=DAY)
    fill(log, *[5.0] * 500)
    left = [len(log.segments)]
    for _ in manager.expire(NOW, is_compacted=False):
        left.append(len(log.segments))
    assert max(before - after for before, after in pairwise(left)) <= STEP_COST // DROP_COST * DROPPED_MAX
    assert len(left) > 1
    assert (log.start_offset, log.end_offset, len(log.segments)) == (500, 500, 1)


def test_a_step_of_retention_reads_a_bounded_number_of_indexes() -> None:
    disk = MemoryDisk()
    manager, log = open_log(disk, segment_bytes=200, retention_ms=5 * DAY)
    fill(log, *[1.0] * 3)
    manager.close(clean=False)
    manager, log = open_log(disk, segment_bytes=200, retention_ms=5 * DAY)
    closed = log.segments[0]
    closed.max_timestamp = -1
    closed.put_away()
    assert not closed.is_dated
    closed.size += STEP_COST * BYTES_PER_COST  # as large as a segment may be: its indexes are large, too
    steps = manager.expire(NOW, is_compacted=False)
    assert next(steps, None) is None
    assert not closed.is_dated  # it has a step of its own
    closed.size -= STEP_COST * BYTES_PER_COST
    assert list(steps) == []
    assert closed.is_dated


def test_retention_ends_when_a_backup_begins_between_two_steps() -> None:
    manager, logs = many_old_logs(100)
    steps = manager.expire(NOW, is_compacted=False)
    next(steps)
    emptied = sum(log.start_offset for log in logs)
    manager.store.is_held = True
    assert list(steps) == []
    assert sum(log.start_offset for log in logs) == emptied > 0
    manager.store.is_held = False
    manager.run_background_work(NOW)
    assert all(log.start_offset == 1 for log in logs)


def test_retention_leaves_a_topic_alone_that_is_deleted_between_two_steps() -> None:
    manager, logs = many_old_logs(100)
    steps = manager.expire(NOW, is_compacted=False)
    next(steps)
    emptied = sum(log.start_offset for log in logs)
    manager.delete_topic("orders", now_ms=NOW)
    manager.open_log("orders", 99, LogConfig(), bytes(16)).append(batch("x"), now_ms=NOW)
    names = manager.disk.list("orders-99")
    assert list(steps) == []
    assert sum(log.start_offset for log in logs) == emptied
    assert manager.disk.list("orders-99") == names


def test_compacted_logs_and_others_have_rounds_of_their_own() -> None:
    manager = LogManager(MemoryDisk(), now_ms=NOW)
    for index, policy in enumerate(({"delete"}, {"compact", "delete"})):
        config = LogConfig(retention_ms=DAY, cleanup_policy=frozenset(policy))
        log = manager.open_log("orders", index, config, TOPIC_ID)
        log.append(batch("x", keys=["k"], at=NOW - 2 * DAY), now_ms=NOW)
    starts = []
    for is_compacted in (True, False):
        assert list(manager.expire(NOW, is_compacted=is_compacted)) == []
        starts.append([log.start_offset for log in manager.logs.values()])
    assert starts == [[0, 1], [1, 1]]
