"""The reserve: what frees space works on a full disk, and producers do not get the room that was meant for it."""

import errno
import os

import pytest

from headrace.log.config import LogConfig
from headrace.log.disk import Buffer, Disk
from headrace.log.errors import cure_of
from headrace.log.manager import LogManager
from headrace.log.memory_disk import MemoryDisk, MemoryFile
from headrace.log.reserve import RESERVE
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.logs import NOW, TOPIC_ID, batch, delete_records, values_of

SIZE = 3_000_000
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class SmallDisk(MemoryDisk):
    """Has room for so many bytes."""

    def __init__(self, room: int) -> None:
        super().__init__(is_simulated=True)
        self.room = room

    def used(self) -> int:
        return sum(self.size(path) for path in self.files())


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SmallDisk:
    small = SmallDisk(5_000_000)
    write = MemoryFile.write

    def write_if_there_is_room(file: MemoryFile, position: int, data: Buffer) -> None:
        if small.used() + max(0, position + len(data) - file.size()) > small.room:
            raise FULL
        write(file, position, data)

    monkeypatch.setattr(MemoryFile, "write", write_if_there_is_room)
    return small


def open_manager(disk: Disk) -> LogManager:
    return LogManager(disk, now_ms=NOW, reserve_bytes=SIZE)


def fill_up(disk: SmallDisk) -> None:
    """To the last byte, by somebody else."""
    file = disk.open("somebody else's", create=True)
    file.write(0, bytes(disk.room - disk.used()))


def test_the_reserve_is_there_from_the_start(disk: SmallDisk) -> None:
    manager = open_manager(disk)
    assert disk.size(RESERVE) == SIZE
    assert not manager.store.reserve.is_out
    manager.close()
    assert not open_manager(disk).store.reserve.is_out


def test_without_a_reserve_there_is_no_file(disk: SmallDisk) -> None:
    open_manager(disk).close()
    LogManager(disk, now_ms=NOW).close()
    assert not disk.exists(RESERVE)


def test_records_can_be_deleted_on_a_full_disk_and_producers_wait_until_there_is_room(
    disk: SmallDisk,
) -> None:
    manager = open_manager(disk)
    log = manager.open_log("t", 0, LogConfig(segment_bytes=1000, file_delete_delay_ms=0), TOPIC_ID)
    for _ in range(10):
        log.append(batch("x" * 300), now_ms=NOW)
    manager.sync([log])
    fill_up(disk)
    with pytest.raises(KafkaError):
        log.append(batch("y" * 300), now_ms=NOW)
    delete_records(log, 9)
    assert manager.store.reserve.is_out
    with pytest.raises(KafkaError, match="No space left") as refusal:
        log.append(batch("y" * 300), now_ms=NOW)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    manager.run_background_work(NOW)
    assert len(log.segments) < 4
    disk.room += 100_000
    manager.run_background_work(NOW)
    assert not manager.store.reserve.is_out
    assert disk.size(RESERVE) == SIZE
    log.append(batch("y" * 300), now_ms=NOW)


def test_retention_frees_a_full_disk_although_it_needs_a_new_segment(disk: SmallDisk) -> None:
    manager = open_manager(disk)
    log = manager.open_log(
        "t", 0, LogConfig(retention_ms=1000, file_delete_delay_ms=0, index_interval_bytes=1), TOPIC_ID
    )
    for _ in range(10):
        log.append(batch("x" * 3000), now_ms=NOW)
    manager.sync([log])
    fill_up(disk)
    used = disk.used()
    manager.run_background_work(NOW + 2000)
    manager.run_background_work(NOW + 2000)
    assert log.start_offset == 10
    assert disk.used() < used


def test_a_start_without_room_for_the_reserve_says_once_that_records_are_refused(
    disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    disk.room = SIZE // 2
    manager = open_manager(disk)
    manager.store.reserve.make()
    (message,) = [record.getMessage() for record in caplog.records]
    assert "no room for the reserve of 3000000 bytes" in message
    assert "headrace.disk.reserve.bytes lower" in message
    manager.close()


def test_a_reserve_that_has_no_room_is_not_made_in_part(disk: SmallDisk) -> None:
    disk.room = SIZE // 2
    manager = open_manager(disk)
    assert manager.store.reserve.is_out
    assert disk.size(RESERVE) == 0


def test_the_cure_of_too_many_open_files_is_not_a_larger_disk() -> None:
    assert "Free space" in cure_of(FULL)
    for number in (errno.EMFILE, errno.ENFILE):
        assert "open files" in cure_of(OSError(number, os.strerror(number)))


def test_a_reserve_that_cannot_be_opened_leaves_the_error_of_the_full_disk(disk: SmallDisk) -> None:
    reserve = open_manager(disk).store.reserve
    disk.remove(RESERVE)

    def attempt() -> None:
        raise FULL

    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        reserve.with_room(attempt)
    assert not reserve.is_out


def test_a_smaller_reserve_stays_where_there_is_no_room_for_a_larger_one(
    disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    open_manager(disk).close()
    manager = LogManager(disk, now_ms=NOW, reserve_bytes=2 * SIZE)
    assert disk.size(RESERVE) == SIZE
    assert not manager.store.reserve.is_out
    assert "3000000 bytes instead of 6000000" in caplog.text
    fill_up(disk)
    assert manager.store.reserve.give_up()
    assert disk.size(RESERVE) == 0
    manager.close()


def test_a_compacted_segment_takes_the_place_of_its_source_on_a_full_disk(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = disk.rename

    def rename_if_there_is_room(source: str, target: str) -> None:
        if disk.used() + 1_000 > disk.room and target.endswith(".log"):
            raise FULL
        rename(source, target)

    monkeypatch.setattr(disk, "rename", rename_if_there_is_room)
    manager = open_manager(disk)
    config = LogConfig(cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0)
    log = manager.open_log("orders", 0, config, TOPIC_ID)
    for number in range(3):
        log.append(batch(f"{number}", keys=["a"]), now_ms=NOW)
    log.roll(NOW)
    manager.run_background_work(NOW)  # the closed segment is synced
    [compaction] = manager.background_work(NOW)
    compaction.run()
    fill_up(disk)
    compaction.finish()
    assert values_of(log) == ["2"]
    assert manager.store.reserve.is_out
    manager.close()


@pytest.mark.parametrize("granted", [0, 1])
def test_a_log_stays_as_it_is_while_the_disk_refuses_to_rename(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, granted: int
) -> None:
    """Even without the reserve, and whichever rename it is: one is enough for a segment.

    It is compacted as soon as there is room; nothing of it is lost meanwhile.
    """
    rename, is_full, left = disk.rename, False, [granted]

    def rename_if_there_is_room(source: str, target: str) -> None:
        if is_full and source.startswith("orders-0/0"):
            left[0] -= 1
            if left[0] < 0:
                raise FULL
        rename(source, target)

    monkeypatch.setattr(disk, "rename", rename_if_there_is_room)
    manager = open_manager(disk)
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, segment_bytes=200
    )
    log = manager.open_log("orders", 0, config, TOPIC_ID)
    values = [f"{number}" * 60 for number in range(5)]
    for number, value in enumerate(values):
        log.append(batch(value, keys=[f"{number % 3}"]), now_ms=NOW)
    log.roll(NOW)
    manager.run_background_work(NOW)
    [compaction] = manager.background_work(NOW)
    compaction.run()
    is_full = True
    compaction.finish()
    assert values_of(log) == (values[2:] if granted else values)
    assert len(log.segments) == (4 if granted else 6)
    assert manager.store.reserve.is_out
    assert not [name for name in disk.list("orders-0") if name.endswith((".swap", ".merged", ".deleted"))]
    is_full = False
    for work in manager.background_work(NOW):
        work.run()
        work.finish()
    assert values_of(log) == values[2:]
    manager.close()
    again = open_manager(disk)
    assert values_of(again.open_log("orders", 0, config, TOPIC_ID)) == values[2:]
    again.close()


def test_a_marker_that_is_compacted_away_is_forgotten_though_the_disk_refuses_the_rest(
    disk: SmallDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader who is told of an aborted transaction passes over its producer's records up to the marker."""
    rename, granted = disk.rename, [1_000]

    def rename_if_there_is_room(source: str, target: str) -> None:
        if source.startswith("orders-0/0"):
            granted[0] -= 1
            if granted[0] < 0:
                raise FULL
        rename(source, target)

    monkeypatch.setattr(disk, "rename", rename_if_there_is_room)
    manager = open_manager(disk)
    config = LogConfig(
        cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0, segment_bytes=300,
        delete_retention_ms=1_000,
    )  # fmt: skip
    log = manager.open_log("orders", 0, config, TOPIC_ID)
    for number, commit in enumerate((False, False, True)):
        log.append(
            batch(f"{number}" * 80, keys=[f"{number}"], producer=(7, 0, number), transactional=True),
            now_ms=NOW,
        )
        log.append_marker(producer_id=7, producer_epoch=0, commit=commit, coordinator_epoch=0, now_ms=NOW)
        log.append(batch("k" * 80, keys=[f"k{number}"]), now_ms=NOW)
        log.roll(NOW)
    for _ in range(2):
        manager.run_background_work(NOW)
    assert log.transactions.between(0, log.end_offset) == [(7, 0), (7, 3)]
    works = list(manager.background_work(NOW + 1_000))
    for work in works:
        work.run()
    granted[0] = 1  # that of the first segment
    for work in works:
        work.finish()
    assert log.transactions.between(0, log.end_offset) == [(7, 3)]
    granted[0] = 1_000
    manager.run_background_work(NOW + 1_000)
    assert log.transactions.between(0, log.end_offset) == []
    assert values_of(log, committed=True) == ["k" * 80, "k" * 80, "2" * 80, "k" * 80]
    manager.close()
