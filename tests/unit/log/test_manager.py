"""LogManager: the lock, clean and unclean starts, group commit, deleted topics, bounded open files."""

import contextlib
import errno
import logging
import threading
from pathlib import Path

import pytest

from headrace.log.config import LogConfig
from headrace.log.disk import DirectoryLocked, OsDisk, write_file
from headrace.log.manager import LogManager, UnknownFormat
from headrace.log.memory_disk import CREATE, REMOVE, MemoryDisk
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.logs import NOW, TOPIC_ID, batch, delete_records, open_log, values_of


def test_a_second_start_on_the_same_directory_is_refused_by_name(tmp_path: Path) -> None:
    manager, _ = open_log(OsDisk(tmp_path))
    with pytest.raises(DirectoryLocked, match=str(tmp_path)):
        LogManager(OsDisk(tmp_path), now_ms=NOW)
    manager.close()
    LogManager(OsDisk(tmp_path), now_ms=NOW).close()


def test_the_leader_epoch_goes_up_with_every_unclean_start_only(tmp_path: Path) -> None:
    epochs = []
    for clean in (True, True, False, True, False, False, True):
        manager, log = open_log(OsDisk(tmp_path))
        epochs.append(log.leader_epoch)
        manager.close(clean=clean)
    assert epochs == [0, 0, 0, 1, 1, 2, 3]


def test_a_directory_of_a_newer_format_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nheadrace.format=99\n")
    with pytest.raises(UnknownFormat, match="format 99"):
        LogManager(OsDisk(tmp_path), now_ms=NOW)
    OsDisk(tmp_path).lock()


@pytest.mark.parametrize(
    "content", [b"", b"\xb5", b"headrace.format=1\n", b"headrace.format=1\nleader.epoch=x\n"]
)
def test_damaged_meta_properties_are_a_clear_error(content: bytes) -> None:
    disk = MemoryDisk()
    write_file(disk, "meta.properties", content)
    with pytest.raises(UnknownFormat, match=r"meta\.properties in memory cannot be read"):
        LogManager(disk, now_ms=NOW)


def test_meta_properties_are_read_as_java_reads_them() -> None:
    disk = MemoryDisk()
    write_file(
        disk, "meta.properties", b"! edited by hand\r\nheadrace.format: 1\r\nleader.epoch \\\n  = 7\r\n"
    )
    assert open_log(disk)[1].leader_epoch == 8


def test_epochs_do_not_go_back_when_meta_properties_are_lost() -> None:
    disk = MemoryDisk(is_simulated=True)
    for _ in range(5):
        manager, log = open_log(disk)
        log.append(batch("a"), now_ms=NOW)
        manager.sync([log])
        disk.restart()
    assert log.leader_epoch == 4
    disk.remove("meta.properties")
    assert open_log(disk)[1].leader_epoch == 5
    disk.restart()
    assert open_log(disk)[1].leader_epoch == 6


def test_a_log_that_cannot_be_closed_cleanly_does_not_keep_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    manager, log = open_log(disk, index_interval_bytes=1)
    other = manager.open_log("other", 0, LogConfig(), bytes(16))
    for one in (log, other):
        for value in "ab":
            one.append(batch(value), now_ms=NOW)
    disk.remove_directory("orders-0")
    with caplog.at_level(logging.WARNING, "headrace.log"):
        manager.close()
    assert "orders-0 cannot be closed cleanly" in caplog.text
    manager, log = open_log(disk)
    assert manager.was_clean
    assert manager.open_log("other", 0, LogConfig(), bytes(16)).end_offset == 2


def test_what_was_synced_survives_a_power_cut_and_the_rest_need_not() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk)
    other = manager.open_log("other", 3, LogConfig(), bytes(16))
    log.append(batch("a"), now_ms=NOW)
    other.append(batch("x"), now_ms=NOW)
    manager.sync([log])
    log.append(batch("b"), now_ms=NOW)
    disk.power_cycle()
    manager, log = open_log(disk)
    assert values_of(log) == ["a"]
    assert manager.open_log("other", 3, LogConfig(), bytes(16)).end_offset == 0


def test_data_appended_during_a_sync_belongs_to_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    segment = log.segments[0]
    sync_segment = type(segment).sync

    def sync_while_the_loop_appends(self: object) -> None:
        sync_segment(segment)
        if log.end_offset == 1:
            log.append(batch("b"), now_ms=NOW)

    monkeypatch.setattr(type(segment), "sync", sync_while_the_loop_appends)
    manager.sync([log])
    assert log.recovery_point == 1
    assert segment.is_dirty
    manager.sync([log])
    disk.power_cycle()
    assert values_of(open_log(disk)[1]) == ["a", "b"]


def test_a_failed_sync_is_raised() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    disk.fail_at(1, OSError(errno.EIO, "broken"))
    with pytest.raises(OSError, match="broken"):
        manager.sync([log])
    assert log.recovery_point == 0


def test_a_worker_syncs_while_the_loop_appends(tmp_path: Path) -> None:
    manager, log = open_log(OsDisk(tmp_path), segment_bytes=2000)
    is_over = threading.Event()
    failures: list[BaseException] = []

    def worker() -> None:
        try:
            while not is_over.is_set():
                manager.sync([log])
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=worker)
    thread.start()
    for number in range(500):
        log.append(batch(f"{number}"), now_ms=NOW)
    is_over.set()
    thread.join()
    assert failures == []
    manager.sync([log])
    assert log.recovery_point == 500
    manager.close(clean=False)
    manager, log = open_log(OsDisk(tmp_path), segment_bytes=2000)
    assert values_of(log) == [f"{number}" for number in range(500)]
    manager.close()


def test_an_unwritten_log_that_is_closed_cleanly_needs_no_file(tmp_path: Path) -> None:
    manager, _ = open_log(OsDisk(tmp_path))
    manager.close()
    assert not (tmp_path / "orders-0").exists()


def test_open_files_are_bounded() -> None:
    manager, _ = open_log()
    manager.store.open_files._limit = 10
    logs = [manager.open_log("many", index, LogConfig(segment_bytes=200), bytes(16)) for index in range(30)]
    for round_ in range(4):
        for log in logs:
            log.append(batch(f"{round_}"), now_ms=NOW)
    assert len(manager.store.open_files) == 10
    for log in logs:
        assert values_of(log) == ["0", "1", "2", "3"]
    assert len(manager.store.open_files) == 10
    manager.sync(logs)
    manager.close()
    assert len(manager.store.open_files) == 0


def test_where_no_descriptor_is_left_most_files_are_closed_and_what_needs_one_is_tried_again() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, _ = open_log(disk)
    logs = [manager.open_log("many", index, LogConfig(), bytes(16)) for index in range(8)]
    for log in logs:
        log.append(batch("a"), now_ms=NOW)
    another = manager.open_log("another", 0, LogConfig(), bytes(16))
    disk.fail_at(1, OSError(errno.EMFILE, "Too many open files"), kinds={CREATE})
    another.append(batch("b"), now_ms=NOW)
    assert len(manager.store.open_files) == 3
    assert values_of(another) == ["b"]
    for log in logs:
        log.append(batch("c"), now_ms=NOW)
        assert values_of(log) == ["a", "c"]


def test_a_deleted_topic_is_out_of_use_at_once_and_off_the_disk_later(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    manager, log = open_log(disk, file_delete_delay_ms=1000)
    log.append(batch("a"), now_ms=NOW)
    delete_records(log, 1)
    manager.delete_topic("orders", now_ms=NOW)
    assert not disk.exists("orders-0")
    assert [name for name in disk.list() if name.endswith("-delete")]
    for attempt in (lambda: log.reader.read(1, max_bytes=1), lambda: log.append(batch("b"), now_ms=NOW)):
        with pytest.raises(KafkaError) as caught:
            attempt()
        assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    again = manager.open_log("orders", 0, LogConfig(), bytes(16))
    assert (again.start_offset, again.end_offset) == (0, 0)
    manager.run_background_work(NOW + 999)
    assert [name for name in disk.list() if name.endswith("-delete")]
    manager.run_background_work(NOW + 1000)
    assert not [name for name in disk.list() if name.endswith("-delete")]
    manager.close()


def test_what_is_left_of_a_deleted_topic_goes_at_the_next_start(tmp_path: Path) -> None:
    disk = OsDisk(tmp_path)
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    manager.delete_topic("orders", now_ms=NOW)
    manager.close(clean=False)
    manager = LogManager(disk, now_ms=NOW)
    manager.run_background_work(NOW)
    assert not [name for name in disk.list() if name.endswith("-delete")]
    manager.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_topic_that_was_made_anew_does_not_get_the_old_ones_records(clean: bool) -> None:
    disk = MemoryDisk()
    manager, log = open_log(disk)
    log.append(batch("old"), now_ms=NOW)
    manager.close(clean=clean)
    disk.restart()
    manager = LogManager(disk, now_ms=NOW)
    log = manager.open_log("orders", 0, LogConfig(), b"another topic id")
    assert log.end_offset == 0
    log.append(batch("new"), now_ms=NOW)
    assert values_of(log) == ["new"]


def test_a_deleted_topic_may_be_synced_by_a_worker_that_has_not_heard_of_it(tmp_path: Path) -> None:
    manager, log = open_log(OsDisk(tmp_path))
    log.append(batch("a"), now_ms=NOW)
    manager.delete_topic("orders", now_ms=NOW)
    manager.sync([log])
    manager.close()


def test_the_longest_topic_name_can_be_deleted(tmp_path: Path) -> None:
    manager, log = open_log(OsDisk(tmp_path), topic="t" * 249)
    log.append(batch("a"), now_ms=NOW)
    manager.delete_topic("t" * 249, now_ms=NOW)
    manager.close()


def test_a_directory_that_a_deletion_has_left_over_is_moved_without_being_read() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    delete_records(log, 1)
    manager.close()
    disk.restart()
    manager = LogManager(disk, now_ms=NOW)
    reads = disk.reads
    manager.claim("orders", 0, LogConfig(), TOPIC_ID)
    manager.delete_topic("orders", now_ms=NOW, partitions=1)
    assert disk.reads == reads
    assert disk.exists(f"orders-0.{TOPIC_ID.hex()}-delete/00000000000000000000.log")
    other = manager.open_log("orders", 0, LogConfig(), bytes(16))
    other.append(batch("new"), now_ms=NOW)
    manager.close()
    disk.restart()
    assert values_of(LogManager(disk, now_ms=NOW).open_log("orders", 0, LogConfig(), bytes(16))) == ["new"]


def test_directories_of_unknown_topics_are_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    with caplog.at_level(logging.WARNING, "headrace.log"):
        assert manager.set_aside_strays({TOPIC_ID}) == []
        assert manager.set_aside_strays(set()) == ["orders-0"]
    assert "orders-0" in caplog.text
    assert disk.exists(f"orders-0.{TOPIC_ID.hex()}-stray/00000000000000000000.log")


def test_a_partition_that_its_topic_does_not_have_is_set_aside_and_the_next_one_begins_anew() -> None:
    """A power cut may undo that a topic has grown, and not what was written to the new partition."""
    disk = MemoryDisk()
    for index in (0, 1):
        manager = LogManager(disk, now_ms=NOW)
        log = manager.open_log("orders", index, LogConfig(), TOPIC_ID)
        log.append(batch("old", "older"), now_ms=NOW)
        delete_records(log, 1)
        log.roll(NOW)
        manager.sync([log])
        manager.close(clean=False)
        disk.restart()
    manager = LogManager(disk, now_ms=NOW)
    assert manager.set_aside_strays({TOPIC_ID}, {TOPIC_ID: 1}) == ["orders-1"]
    assert disk.exists(f"orders-1.{TOPIC_ID.hex()}-stray/00000000000000000000.log")
    log = manager.open_log("orders", 1, LogConfig(), TOPIC_ID)
    assert (log.start_offset, log.end_offset) == (0, 0)
    log.append(batch("new"), now_ms=NOW)
    disk.restart()
    log = LogManager(disk, now_ms=NOW).open_log("orders", 1, LogConfig(), TOPIC_ID)
    assert values_of(log) == ["new"]


def test_a_directory_is_set_aside_again_and_again() -> None:
    disk = MemoryDisk()
    for _ in range(3):
        manager, log = open_log(disk)
        log.append(batch("a"), now_ms=NOW)
        manager.close(clean=False)
        disk.restart()
        manager = LogManager(disk, now_ms=NOW)
        manager.set_aside_strays(set())
        manager.close(clean=False)
        disk.restart()
    assert len([name for name in disk.list() if name.endswith("-stray")]) == 3


def test_start_offsets_of_logs_that_were_not_opened_are_kept() -> None:
    disk = MemoryDisk()
    manager, log = open_log(disk)
    log.append(batch("a", "b"), now_ms=NOW)
    delete_records(log, 1)
    manager.close(clean=False)
    disk.restart()
    manager, other = open_log(disk, topic="other")
    other.append(batch("x"), now_ms=NOW)
    delete_records(other, 1)
    manager.close(clean=False)
    disk.restart()
    assert open_log(disk)[1].start_offset == 1


def test_logs_that_were_not_opened_stay_clean() -> None:
    disk = MemoryDisk()
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    manager.close()
    manager, _ = open_log(disk, topic="other")
    manager.close()
    write_file(disk, "orders-0/00000000000000000000.log", b"never read")
    assert open_log(disk)[1].end_offset == 1


def test_a_full_disk_at_the_end_is_no_clean_stop() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    manager.sync([log])
    disk.fail_at(1, OSError(errno.ENOSPC, "full"))
    with pytest.raises(OSError, match="full"):
        manager.close()
    manager, log = open_log(disk)
    assert values_of(log) == ["a"]
    assert log.leader_epoch == 1


def test_background_work_never_stops_for_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk, retention_ms=1000)
    log.append(batch("a", at=NOW - 5000), now_ms=NOW)
    disk.fail_at(1, OSError(errno.ENOSPC, "full"))
    with caplog.at_level(logging.WARNING, "headrace.log"):
        manager.run_background_work(NOW)
    assert "old segments stay" in caplog.text
    assert values_of(log) == ["a"]
    manager.run_background_work(NOW)
    assert log.start_offset == 1


def test_a_clean_stop_that_a_full_disk_refuses_is_an_os_error_whatever_is_refused() -> None:
    for operation in range(1, 40):
        disk = MemoryDisk(is_simulated=True)
        manager, log = open_log(disk)
        for value in ("a", "b", "c"):
            log.append(batch(value), now_ms=NOW)
        log.trim(2)
        disk.fail_at(operation, OSError(errno.ENOSPC, "No space left on device"))
        with contextlib.suppress(OSError):
            manager.close()
        disk.restart()
        log = open_log(disk)[1]
        assert (log.end_offset, values_of(log)[-1]) == (3, "c")


def test_the_directory_of_a_deleted_topic_is_removed_later_if_the_system_refuses_it_now() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk, file_delete_delay_ms=0)
    log.append(batch("a"), now_ms=NOW)
    manager.delete_topic("orders", now_ms=NOW)
    disk.fail_at(1, OSError(errno.EMFILE, "Too many open files"), kinds={REMOVE})
    manager.run_background_work(NOW)
    assert any(name.endswith("-delete") for name in disk.list())
    manager.run_background_work(NOW)
    assert not any(name.endswith("-delete") for name in disk.list())
