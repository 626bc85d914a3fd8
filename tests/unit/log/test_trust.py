"""What recovery takes without checking was synced with all that belongs to it, whatever happens while a sync runs."""

import errno
import random
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.log.checking import check
from headrace.log.checkpoint import RecoveryPoints
from headrace.log.config import LogConfig
from headrace.log.disk import OsDisk, PowerLost
from headrace.log.layout import RECOVERY_POINTS, TRANSACTION_INDEX
from headrace.log.manager import LogManager
from headrace.log.memory_disk import CHANGES, CREATE, READS, MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment
from headrace.log.times import at_once, offset_for_time, search_max_timestamp
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.logs import NOW, TOPIC_ID, batch, delete_records, values_of

SMALL = LogConfig(segment_bytes=500, file_delete_delay_ms=0, producer_expiration_ms=10**15)
COMPACTED = LogConfig(
    segment_bytes=500,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=0,
)
FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(is_simulated=True)


def start(disk: MemoryDisk, config: LogConfig = SMALL) -> tuple[LogManager, PartitionLog]:
    manager = LogManager(disk, now_ms=NOW)
    return manager, manager.open_log("t", 0, config, TOPIC_ID)


def fill(log: PartitionLog, count: int = 1) -> None:
    for _ in range(count):
        log.append(batch("x" * 100, keys=["key"]), now_ms=NOW)


def in_transaction(log: PartitionLog, value: str, key: str = "other", sequence: int = 0) -> None:
    data = batch(value, keys=[key], producer=(7, 0, sequence), transactional=True)
    log.append(data, now_ms=NOW)


def end_transaction(log: PartitionLog, *, commit: bool) -> None:
    log.append_marker(producer_id=7, producer_epoch=0, commit=commit, coordinator_epoch=0, now_ms=NOW)


def aborted(log: PartitionLog) -> list[tuple[int, int]]:
    return log.reader.read(log.start_offset, max_bytes=10_000, committed=True).aborted


def test_a_segment_that_closes_while_a_sync_runs_is_trusted_by_the_next_sync(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager, log = start(disk)
    in_transaction(log, "x" * 100)
    end_transaction(log, commit=False)
    fill(log)
    sync = Segment.sync

    def sync_and_roll(segment: Segment) -> None:
        sync(segment)
        if len(log.segments) == 1:
            fill(log, 2)

    monkeypatch.setattr(Segment, "sync", sync_and_roll)
    manager.sync([log])
    assert len(log.segments) == 2
    assert log.trust.saved == 0
    disk.power_cycle()
    assert aborted(start(disk)[1]) == [(7, 0)]
    manager.sync([log])
    assert log.trust.saved == log.files.bases[-1]


def test_the_roll_of_another_log_does_not_make_a_segment_trusted(disk: MemoryDisk) -> None:
    manager, log = start(disk)
    other = manager.open_log("other", 0, SMALL, b"o" * 16)
    in_transaction(log, "x" * 100)
    end_transaction(log, commit=False)
    fill(log)
    manager.sync([log])
    fill(other, 4)
    manager.sync([other])
    assert other.trust.saved > 0
    fill(log, 2)
    assert len(log.segments) == 2
    disk.sync_directory("t-0")  # as file systems do by themselves
    disk.power_cycle()
    assert aborted(start(disk)[1]) == [(7, 0)]


def test_the_snapshot_that_recovery_needs_is_kept_until_a_newer_one_is_trusted(disk: MemoryDisk) -> None:
    config = LogConfig(
        segment_bytes=500, retention_bytes=700, file_delete_delay_ms=0, producer_expiration_ms=10**15
    )
    manager, log = start(disk, config)
    once = batch("pay", producer=(5, 0, 0))
    log.append(once, now_ms=NOW)
    in_transaction(log, "stays open")
    for _ in range(12):
        fill(log)
        manager.sync([log])
    manager.run_background_work(NOW)
    assert log.start_offset > 0
    count = len(log.segments)
    while len(log.segments) == count:
        fill(log)
    stable = log.stable_offset
    disk.restart()
    log = start(disk, config)[1]
    assert log.stable_offset == stable
    assert log.append(once, now_ms=NOW).is_duplicate


def test_a_torn_snapshot_does_not_let_a_good_one_go(disk: MemoryDisk) -> None:
    manager, log = start(disk)
    once = batch("pay", producer=(5, 0, 0))
    log.append(once, now_ms=NOW)
    fill(log, 10)
    manager.sync([log])
    newest = log.files.snapshots[-1]
    fill(log, 10)
    for offset in log.files.snapshots:
        if offset > newest:
            disk.open(log.files.snapshot_path(offset)).truncate(3)
    disk.restart()
    manager, log = start(disk)
    assert newest in log.files.snapshots
    fill(log, 10)
    disk.restart()
    assert start(disk)[1].append(once, now_ms=NOW).is_duplicate


@pytest.mark.parametrize("operation", range(1, 12))
def test_a_first_write_that_is_refused_anywhere_leaves_nothing_half_made(
    disk: MemoryDisk, operation: int
) -> None:
    manager, log = start(disk)
    disk.fail_at(operation, FULL)
    try:
        fill(log)
    except KafkaError:
        assert log.end_offset == 0
    disk.stop_failing()
    fill(log)
    manager.sync([log])
    end_offset = log.end_offset
    disk.power_cycle()
    assert start(disk)[1].end_offset == end_offset


def test_compaction_waits_for_the_markers_to_be_synced(disk: MemoryDisk) -> None:
    """A power cut would take the commit back; the record that the transaction replaces must still be there."""
    manager, log = start(disk, COMPACTED)
    log.append(batch("kept", keys=["k"]), now_ms=NOW)
    in_transaction(log, "replaces it", "k")
    fill(log, 4)
    manager.sync([log])
    end_transaction(log, commit=True)
    manager.run_background_work(NOW)
    disk.power_cycle()
    manager, log = start(disk, COMPACTED)
    assert "kept" in values_of(log)
    end_transaction(log, commit=False)
    manager.sync([log])
    manager.run_background_work(NOW)
    assert "kept" in values_of(log, committed=True)
    assert "replaces it" not in values_of(log, committed=True)


def test_aborted_transactions_stay_known_until_the_start_behind_them_is_saved(disk: MemoryDisk) -> None:
    manager, log = start(disk)
    in_transaction(log, "aborted")
    end_transaction(log, commit=False)
    manager.sync([log])
    log.trim(2)
    fill(log, 8)
    manager.sync([log])
    disk.power_cycle()
    log = start(disk)[1]
    assert log.start_offset == 0
    assert aborted(log) == [(7, 0)]


def test_an_index_left_from_a_lost_tail_says_nothing_of_what_took_its_place(disk: MemoryDisk) -> None:
    manager, log = start(disk)
    in_transaction(log, "comes back")
    manager.sync([log])
    end_transaction(log, commit=False)
    log.roll(NOW)
    disk.power_cycle()
    disk.open(f"t-0/{0:020d}{TRANSACTION_INDEX}", create=True).write(
        0, b"".join(number.to_bytes(size) for number, size in [(0, 2), (7, 8), (0, 8), (1, 8), (2, 8)])
    )
    manager, log = start(disk)
    end_transaction(log, commit=True)
    fill(log, 8)
    manager.sync([log])
    disk.restart()
    log = start(disk)[1]
    assert aborted(log) == []
    assert values_of(log, committed=True)[0] == "comes back"


def test_a_saved_start_is_kept_when_the_log_itself_is_lost(disk: MemoryDisk) -> None:
    manager, log = start(disk)
    fill(log, 5)
    delete_records(log, 5)
    disk.power_cycle()
    for _ in range(2):
        manager, log = start(disk)
        assert (log.start_offset, log.end_offset) == (5, 5)
        disk.restart()
    manager, log = start(disk)
    fill(log)
    manager.sync([log])
    disk.power_cycle()
    log = start(disk)[1]
    assert (log.start_offset, log.end_offset) == (5, 6)


def test_a_trimmed_start_is_safe_when_the_start_offsets_were_synced(disk: MemoryDisk) -> None:
    manager, log = start(disk)
    fill(log, 5)
    manager.sync([log])
    assert log.trim(3) == 3
    disk.power_cycle()
    manager, log = start(disk)
    assert log.start_offset == 0
    log.trim(3)
    manager.start_offsets.sync()
    disk.power_cycle()
    assert start(disk)[1].start_offset == 3


def test_deleting_again_saves_what_was_only_trimmed(disk: MemoryDisk) -> None:
    manager, log = start(disk)
    fill(log, 5)
    manager.sync([log])
    log.trim(3)
    delete_records(log, 2)
    disk.power_cycle()
    assert start(disk)[1].start_offset == 3


def test_segments_are_not_removed_before_their_start_is_saved(disk: MemoryDisk) -> None:
    manager, log = start(disk)
    fill(log, 10)
    manager.sync([log])
    log.trim(9)
    works = manager.background_work(NOW)
    disk.fail_at(1, FULL, kinds=CHANGES)
    (removal,) = [work for work in works if work.what == "remove old files"]
    removal.run()
    removal.finish()
    disk.power_cycle()
    log = start(disk)[1]
    assert log.start_offset == 0
    assert len(values_of(log)) == 10


def test_segments_before_the_start_are_removed_in_any_order(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk has no room for the recovery points, and the delay of the files was set shorter in between."""
    manager, log = start(disk, replace(SMALL, file_delete_delay_ms=60_000))
    fill(log, 2)
    log.roll(NOW)
    delete_records(log, 2)
    manager.run_background_work(NOW)
    log.config = SMALL
    log.append(batch("once", producer=(7, 0, 0)), now_ms=NOW)
    log.roll(NOW)
    log.append(batch("kept"), now_ms=NOW)
    delete_records(log, 3)
    monkeypatch.setattr(RecoveryPoints, "sync", lambda _: None)  # refused, and logged
    manager.run_background_work(NOW)
    manager.run_background_work(NOW)
    assert [name for name in disk.list("t-0") if name.endswith(".log")] == [
        "00000000000000000000.log",
        "00000000000000000003.log",
    ]
    disk.restart()
    monkeypatch.undo()
    _, log = start(disk)
    assert values_of(log) == ["kept"]
    assert log.append(batch("once", producer=(7, 0, 0)), now_ms=NOW).is_duplicate


def test_a_segment_that_is_missing_before_the_start_is_no_damage(tmp_path: Path) -> None:
    manager = LogManager(OsDisk(tmp_path), now_ms=NOW)
    log = manager.open_log("t", 0, SMALL, TOPIC_ID)
    for _ in range(3):
        log.append(batch("x"), now_ms=NOW)
        log.roll(NOW)
    delete_records(log, 2)
    manager.close(clean=False)
    (tmp_path / "t-0" / "00000000000000000001.log").unlink()
    assert [damage for damage in check(OsDisk(tmp_path)).damages if damage.partition == "t-0"] == []


def test_a_log_that_cannot_be_read_does_not_keep_others_from_retention(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    config = LogConfig(segment_bytes=500, retention_ms=1000)
    manager, log = start(disk, config)
    other = manager.open_log("other", 0, config, b"o" * 16)
    for one in (log, other):
        fill(one, 10)
    manager.sync([log, other])
    disk.restart()
    manager, log = start(disk, config)
    other = manager.open_log("other", 0, config, b"o" * 16)
    disk.fail_at(1, OSError(errno.EIO, "bad sector"), kinds=READS)
    manager.run_background_work(NOW + 10_000)
    assert other.start_offset == 10
    assert log.start_offset == 0
    assert "bad sector" in caplog.text
    manager.run_background_work(NOW + 10_000)
    assert log.start_offset == 10


def test_recovery_points_that_were_lost_stay_unknown_for_logs_that_were_not_opened_since(
    disk: MemoryDisk,
) -> None:
    manager, log = start(disk, COMPACTED)
    other = manager.open_log("other", 0, SMALL, b"o" * 16)
    fill(other)
    fill(log, 12)
    manager.sync([log, other])
    manager.run_background_work(NOW)  # which leaves gaps between the offsets
    manager.sync([log, other])
    expected = values_of(log)
    assert len(expected) < 12
    disk.power_cycle()
    disk.flip_bit(RECOVERY_POINTS, 100)
    manager = LogManager(disk, now_ms=NOW)
    other = manager.open_log("other", 0, SMALL, b"o" * 16)
    fill(other, 12)
    manager.sync([other])  # and the points of this one are saved
    disk.power_cycle()
    log = start(disk, COMPACTED)[1]
    assert log.damage is None
    assert log.end_offset == 12
    assert values_of(log) == expected


def test_a_sync_that_a_deletion_overtakes_is_complete_because_the_deletion_may_be_lost(
    disk: MemoryDisk,
) -> None:
    manager, log = start(disk)
    fill(log, 8)
    log.is_deleted = True  # the metadata says so, not yet durably
    manager.sync([log])
    disk.power_cycle()
    log = start(disk)[1]
    assert (log.start_offset, log.end_offset) == (0, 8)
    assert log.trust.saved > 0


def test_a_log_is_not_compacted_while_dropped_segments_could_come_back(disk: MemoryDisk) -> None:
    config = LogConfig(
        segment_bytes=500,
        cleanup_policy=frozenset({"compact", "delete"}),
        retention_ms=-1,
        min_cleanable_dirty_ratio=0.0,
    )
    manager, log = start(disk, config)
    in_transaction(log, "x" * 100)
    log.roll(NOW)
    end_transaction(log, commit=False)
    fill(log, 2)
    log.roll(NOW)
    manager.sync([log])
    log.drop_oldest(1, now_ms=NOW)  # and nothing is saved yet
    work = manager.compaction_of(log, NOW)
    if work is not None:
        work.run()
        disk.fail_at(1, kinds={CREATE})  # killed before the new segment's indexes are written
        with pytest.raises(PowerLost):
            work.finish()
    disk.restart()
    manager, log = start(disk, config)
    assert log.start_offset == 0
    assert aborted(log) == [(7, 0)]
    log.drop_oldest(1, now_ms=NOW)
    manager.start_offsets.sync()
    assert manager.compaction_of(log, NOW) is not None


@pytest.mark.parametrize("seed", range(20))
def test_a_log_that_starts_over_twice_knows_its_producers(disk: MemoryDisk, seed: int) -> None:
    manager, log = start(disk)
    fill(log)
    log.roll(NOW)
    sent = batch("once", producer=(1, 0, 0))
    log.append(sent, now_ms=NOW)
    manager.sync([log])
    log.roll(NOW)
    disk.sync_directory(log.name)  # as by a sync that goes on when the power is cut
    fill(log, 4)
    delete_records(log, -1)
    disk.power_cycle()  # which takes what was not synced, and the saved start is beyond the end
    log = start(disk)[1]
    assert (log.start_offset, log.end_offset) == (6, 6)
    disk.power_cycle(random.Random(seed))  # which undoes a part of what that start did to the directory
    log = start(disk)[1]
    assert (log.start_offset, log.end_offset) == (6, 6)
    assert log.append(sent, now_ms=NOW).is_duplicate


def test_a_disk_that_cannot_be_read_is_said_to_whoever_looks_for_a_time(disk: MemoryDisk) -> None:
    _, log = start(disk)
    fill(log, 2)
    for look in (lambda: offset_for_time(log, NOW), lambda: at_once(search_max_timestamp(log))):
        disk.fail_at(1, OSError(errno.EIO, "bad sector"), kinds=READS)
        with pytest.raises(KafkaError, match="cannot be read") as raised:
            look()
        assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
