"""A topic that takes the name of a deleted one has nothing to do with it, nor with what was planned for its files."""

import pytest

from headrace.base.properties import parse_properties
from headrace.log.config import LogConfig
from headrace.log.disk import write_file
from headrace.log.layout import (
    CLEANER_OFFSETS,
    META,
    RECOVERY_POINTS,
    START_OFFSETS,
    encode_properties,
    is_by_name,
)
from headrace.log.manager import LogManager
from headrace.log.memory_disk import MemoryDisk, MemoryFolder
from headrace.log.partition_log import PartitionLog
from tests.unit.log.logs import NOW, batch, delete_records, values_of

MINUTE = 60_000
OLD, NEW = b"1" * 16, b"2" * 16
SMALL = LogConfig(segment_bytes=200, file_delete_delay_ms=MINUTE)
COMPACTED = LogConfig(
    segment_bytes=200,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(is_simulated=True)


def fill(log: PartitionLog, count: int, text: str = "old") -> None:
    for number in range(count):
        log.append(batch(f"{text} {number}", keys=["key"]), now_ms=NOW)


def make_again(manager: LogManager, config: LogConfig = SMALL) -> PartitionLog:
    manager.delete_topic("t", now_ms=NOW)
    log = manager.open_log("t", 0, config, NEW)
    fill(log, 3, "new")
    return log


def after_kill(disk: MemoryDisk, config: LogConfig = SMALL) -> PartitionLog:
    disk.restart()
    return LogManager(disk, now_ms=NOW).open_log("t", 0, config, NEW)


NEW_VALUES = ["new 0", "new 1", "new 2"]


@pytest.mark.parametrize("end", ["stop", "minute"])
def test_the_delayed_removal_of_old_segments_leaves_the_new_ones_alone(disk: MemoryDisk, end: str) -> None:
    manager = LogManager(disk, now_ms=NOW)
    old = manager.open_log("t", 0, SMALL, OLD)
    fill(old, 10)
    delete_records(old, -1)
    manager.run_background_work(NOW)
    new = make_again(manager)
    manager.sync([new])
    if end == "stop":
        manager.close()
    else:
        manager.run_background_work(NOW + 2 * MINUTE)
    assert values_of(after_kill(disk)) == NEW_VALUES


def test_a_removal_under_way_leaves_the_new_segments_alone(disk: MemoryDisk) -> None:
    """The topic is deleted and made again between two of the files that a worker removes."""
    manager = LogManager(disk, now_ms=NOW)
    old = manager.open_log("t", 0, SMALL, OLD)
    fill(old, 10)
    delete_records(old, -1)
    manager.run_background_work(NOW)
    (work,) = [work for work in manager.background_work(NOW + 2 * MINUTE) if work.what == "remove old files"]
    remove, made = MemoryFolder.remove, []

    def remove_later(folder: MemoryFolder, name: str) -> None:
        if not made:
            made.append(make_again(manager))
        remove(folder, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFolder, "remove", remove_later)
        work.run()
    work.finish()
    assert made
    manager.sync(made)
    assert values_of(after_kill(disk)) == NEW_VALUES


def test_a_compaction_under_way_leaves_nothing_in_the_new_topics_directory(disk: MemoryDisk) -> None:
    manager = LogManager(disk, now_ms=NOW)
    old = manager.open_log("t", 0, COMPACTED, OLD)
    fill(old, 10)
    manager.sync([old])
    (work,) = [work for work in manager.background_work(NOW) if work.what.startswith("compact")]
    new = make_again(manager, COMPACTED)
    work.run()
    work.finish()
    manager.sync([new])
    assert not [name for name in disk.list("t-0") if name.endswith((".swap", ".merged", ".cleaned"))]
    assert values_of(after_kill(disk, COMPACTED)) == NEW_VALUES


@pytest.mark.parametrize("records", [3, 12])
def test_the_start_offset_of_a_deleted_topic_is_not_its_successors(disk: MemoryDisk, records: int) -> None:
    manager = LogManager(disk, now_ms=NOW)
    old = manager.open_log("t", 0, SMALL, OLD)
    fill(old, 10)
    manager.sync([old])
    delete_records(old, -1)
    manager.delete_topic("t", now_ms=NOW)
    new = manager.open_log("t", 0, SMALL, NEW)
    fill(new, records, "new")
    manager.sync([new])
    found = after_kill(disk)
    assert (found.start_offset, found.end_offset) == (0, records)
    assert found.damage is None


def test_records_in_a_directory_without_an_owner_are_nobodys(disk: MemoryDisk) -> None:
    """A power cut may keep the records of a topic and lose whose they were; nothing of them had been synced."""
    disk.make_directory("t-0")
    manager = LogManager(disk, now_ms=NOW)
    old = manager.open_log("t", 0, SMALL, OLD)
    fill(old, 2)
    disk.remove("t-0/partition.metadata")
    found = after_kill(disk)
    assert (found.start_offset, found.end_offset) == (0, 0)
    assert [name for name in disk.list() if name.endswith("-stray")]


class TestMigration:
    """Format 1 had checkpoints by topic name."""

    def left_by_format_1(self, disk: MemoryDisk, *, start: int, point: int) -> None:
        manager = LogManager(disk, now_ms=NOW)
        log = manager.open_log("t", 0, SMALL, NEW)
        fill(log, 10, "new")
        manager.sync([log])
        disk.restart()
        properties = parse_properties(disk.read(META).decode()) | {"headrace.format": "1"}
        write_file(disk, META, encode_properties(properties))
        write_file(disk, START_OFFSETS, f"0\n2\ngone 0 7\nt 0 {start}\n".encode())
        write_file(disk, RECOVERY_POINTS, f"0\n2\ngone 0 7\nt 0 {point}\n".encode())
        write_file(disk, CLEANER_OFFSETS, b"0\n0\n")

    def test_offsets_by_name_become_offsets_by_id(self, disk: MemoryDisk) -> None:
        self.left_by_format_1(disk, start=3, point=9)
        for _ in range(2):
            log = after_kill(disk)
            assert (log.start_offset, log.end_offset) == (3, 10)
            assert 0 < log.trust.saved < 9
            assert log.trust.saved in log.files.bases
        assert not is_by_name(disk.read(START_OFFSETS))
        assert not is_by_name(disk.read(RECOVERY_POINTS))
        assert parse_properties(disk.read(META).decode())["headrace.format"] == "2"

    def test_a_segment_that_starts_at_an_old_recovery_point_does_not_vouch_for_the_one_before(
        self, disk: MemoryDisk
    ) -> None:
        self.left_by_format_1(disk, start=0, point=8)
        log = after_kill(disk)
        assert 8 in log.files.bases
        assert log.trust.saved < 8

    def test_an_old_start_offset_beyond_the_end_is_another_topics(self, disk: MemoryDisk) -> None:
        self.left_by_format_1(disk, start=30, point=30)
        log = after_kill(disk)
        assert values_of(log) == [f"new {number}" for number in range(10)]
