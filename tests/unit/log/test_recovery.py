"""Recovery: what a start finds after a clean stop, after kill -9, and after bytes were torn, changed or lost."""

import logging

import pytest

from headrace.log import recovery
from headrace.log.config import LogConfig
from headrace.log.disk import write_file
from headrace.log.manager import LogManager
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.log.times import offset_for_time
from headrace.wire.batches import read_header
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.logs import NOW, TOPIC_ID, batch, delete_records, open_log, values_of

FIRST = "orders-0/00000000000000000000.log"


def killed(disk: MemoryDisk, **config: object) -> PartitionLog:
    """The log as the next process finds it after kill -9."""
    disk.restart()
    return open_log(disk, **config)[1]  # type: ignore[arg-type]


def overwrite(disk: MemoryDisk, path: str, position: int, data: bytes) -> None:
    file = disk.open(path)
    file.write(position, data)
    file.close()


def three_batches(disk: MemoryDisk) -> int:
    """Writes a, b, c and returns the size of one batch."""
    _, log = open_log(disk)
    for value in "abc":
        log.append(batch(value), now_ms=NOW)
    return log.size // 3


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk(is_simulated=True)


def test_a_clean_stop_is_followed_by_a_start_that_reads_no_segment(disk: MemoryDisk) -> None:
    manager, log = open_log(disk, segment_bytes=200)
    for number in range(20):
        log.append(batch(f"{number}", producer=(7, 0, number)), now_ms=NOW)
    manager.close()
    segments = [name for name in disk.list("orders-0") if name.endswith(".log")]
    hidden = {name: disk.read(f"orders-0/{name}") for name in segments}
    for name in segments:
        write_file(disk, f"orders-0/{name}", b"")
    manager, log = open_log(disk, segment_bytes=200)
    assert (log.start_offset, log.end_offset, len(log.segments)) == (0, 20, len(segments))
    assert log.leader_epoch == 0
    for name, data in hidden.items():
        write_file(disk, f"orders-0/{name}", data)
    assert values_of(log) == [f"{number}" for number in range(20)]
    assert log.append(batch("17", producer=(7, 0, 17)), now_ms=NOW).is_duplicate


def test_a_segment_that_others_cut_while_the_broker_was_down_is_not_served(disk: MemoryDisk) -> None:
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    manager.close()
    write_file(disk, FIRST, b"")
    _, log = open_log(disk)
    with pytest.raises(KafkaError) as caught:
        log.reader.read(0, max_bytes=10)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "another process changed it" in str(caught.value)


def test_everything_is_there_after_kill_nine(disk: MemoryDisk) -> None:
    _, log = open_log(disk, segment_bytes=300)
    for number in range(30):
        log.append(batch(f"{number}", producer=(7, 0, number)), now_ms=NOW)
    log = killed(disk, segment_bytes=300)
    assert values_of(log) == [f"{number}" for number in range(30)]
    assert log.append(batch("26", producer=(7, 0, 26)), now_ms=NOW).base_offset == 26
    assert log.append(batch("30", producer=(7, 0, 30)), now_ms=NOW).base_offset == 30
    assert log.leader_epoch == 1


def test_open_and_aborted_transactions_are_there_after_kill_nine(disk: MemoryDisk) -> None:
    _, log = open_log(disk, segment_bytes=200)
    for producer_id in (7, 8, 9):
        log.append(batch("x" * 30, producer=(producer_id, 0, 0), transactional=True), now_ms=NOW)
    log.append_marker(producer_id=8, producer_epoch=0, commit=False, coordinator_epoch=5, now_ms=NOW)
    log.append_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=5, now_ms=NOW)
    before = (log.stable_offset, log.transactions.aborted, log.producer_states.views())
    log = killed(disk, segment_bytes=200)
    assert (log.stable_offset, log.transactions.aborted, log.producer_states.views()) == before
    assert log.stable_offset == 2


def test_aborted_transactions_are_there_after_a_clean_stop(disk: MemoryDisk) -> None:
    manager, log = open_log(disk)
    log.append(batch("x", producer=(7, 0, 0), transactional=True), now_ms=NOW)
    log.append_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=NOW)
    manager.close()
    _, again = open_log(disk)
    assert again.transactions.aborted == log.transactions.aborted
    assert again.reader.read(0, max_bytes=1000, committed=True).aborted == [(7, 0)]


@pytest.mark.parametrize("torn", [1, 11, 60, 61, 68])
def test_a_torn_tail_is_cut_at_the_last_whole_batch(
    disk: MemoryDisk, torn: int, caplog: pytest.LogCaptureFixture
) -> None:
    size = three_batches(disk)
    file = disk.open(FIRST)
    file.truncate(2 * size + torn)
    with caplog.at_level(logging.WARNING, "headrace.log"):
        log = killed(disk)
    assert values_of(log) == ["a", "b"]
    assert disk.size(FIRST) == log.size == 2 * size
    assert f"{torn} bytes cut after offset 1" in caplog.text
    log.append(batch("again"), now_ms=NOW)
    assert values_of(log) == ["a", "b", "again"]


def test_rubbish_after_the_last_batch_is_cut(disk: MemoryDisk) -> None:
    size = three_batches(disk)
    for rubbish in (bytes(5000), b"\x02" * 500, bytes(range(256)) * 10):
        overwrite(disk, FIRST, 3 * size, rubbish)
        assert values_of(killed(disk)) == ["a", "b", "c"]


def test_a_last_batch_with_a_wrong_checksum_is_cut(disk: MemoryDisk) -> None:
    size = three_batches(disk)
    overwrite(disk, FIRST, 3 * size - 2, b"\xff")
    assert values_of(killed(disk)) == ["a", "b"]


def test_damage_in_the_middle_is_neither_skipped_nor_cut(
    disk: MemoryDisk, caplog: pytest.LogCaptureFixture
) -> None:
    size = three_batches(disk)
    overwrite(disk, FIRST, 2 * size - 2, b"\xff")
    with caplog.at_level(logging.ERROR, "headrace.log"):
        log = killed(disk)
    assert f"damaged at offset 1 ({FIRST}, byte {size}" in caplog.text
    assert len(log.reader.read(0, max_bytes=10**6).data) == size
    assert log.end_offset == 3
    for offset in (1, 2, 3):
        with pytest.raises(KafkaError) as caught:
            log.reader.read(offset, max_bytes=100)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
        assert f"byte {size}" in str(caught.value)
    with pytest.raises(KafkaError) as caught:
        log.append(batch("d"), now_ms=NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert disk.size(FIRST) == 3 * size
    assert log.reader.bytes_from(1, limit=7) == 7  # a parked fetch must wake up to hear of it


def test_damage_of_a_batchs_length_is_found_by_the_batches_behind_it(disk: MemoryDisk) -> None:
    size = three_batches(disk)
    overwrite(disk, FIRST, size + 8, b"\x7f\xff\xff\xff")
    log = killed(disk)
    assert log.damage is not None
    assert log.damage.offset == 1
    assert log.end_offset == 3


def test_a_damaged_log_is_still_damaged_after_a_clean_stop(disk: MemoryDisk) -> None:
    size = three_batches(disk)
    overwrite(disk, FIRST, 2 * size - 2, b"\xff")
    disk.restart()
    manager, _ = open_log(disk)
    manager.close()
    _, log = open_log(disk)
    assert log.damage is not None


def test_a_lost_tail_of_a_closed_segment_sets_the_unsynced_segments_after_it_aside(disk: MemoryDisk) -> None:
    _, log = open_log(disk, segment_bytes=200)
    for number in range(5):
        log.append(batch(f"{number}"), now_ms=NOW)
    assert log.files.bases == [0, 2, 4]
    disk.open("orders-0/00000000000000000002.log").truncate(30)
    log = killed(disk, segment_bytes=200)
    assert values_of(log) == ["0", "1"]
    assert "00000000000000000004.log.unsynced" in disk.list("orders-0")
    assert [segment.is_closed for segment in log.segments] == [True, False]
    log.append(batch("again"), now_ms=NOW)
    assert values_of(log) == ["0", "1", "again"]


def test_a_closed_segment_that_lost_whole_batches_ends_the_log_too(disk: MemoryDisk) -> None:
    _, log = open_log(disk, segment_bytes=200)
    for number in range(5):
        log.append(batch(f"{number}"), now_ms=NOW)
    disk.open(FIRST).truncate(0)
    assert values_of(killed(disk, segment_bytes=200)) == []


def test_synced_segments_are_not_scanned_again(disk: MemoryDisk) -> None:
    manager, log = open_log(disk, segment_bytes=200)
    for number in range(5):
        log.append(batch(f"{number}"), now_ms=NOW)
    manager.sync([log])
    overwrite(disk, FIRST, 100, b"\xff\xff")
    log = killed(disk, segment_bytes=200)
    assert log.end_offset == 5
    assert log.damage is None


def test_lost_recovery_points_make_recovery_scan_all_and_accept_gaps(disk: MemoryDisk) -> None:
    manager, log = open_log(disk, segment_bytes=200, cleanup_policy=frozenset({"compact"}))
    for _ in range(9):
        log.append(batch("v" * 40, keys=["same"]), now_ms=NOW)
    manager.run_background_work(NOW)
    manager.run_background_work(NOW)
    kept = values_of(log)
    assert len(kept) < 9
    disk.remove("recovery-point-offset-checkpoint")
    log = killed(disk, segment_bytes=200)
    assert log.end_offset == 9
    assert values_of(log) == kept


@pytest.mark.parametrize(
    "content",
    [None, b"", b"abc", bytes(96), "of another segment"],
    ids=["missing", "empty", "torn", "zeros", "of another segment"],
)
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_indexes_are_made_again_when_missing_or_stale(
    disk: MemoryDisk, suffix: str, content: bytes | str | None
) -> None:
    manager, log = open_log(disk, segment_bytes=4000, index_interval_bytes=100)
    for number in range(90):
        log.append(batch("." * number, at=NOW + number), now_ms=NOW)
    manager.close()
    assert len(log.files.bases) == 3
    paths = [f"orders-0/{base:020d}{suffix}" for base in log.files.bases]
    others = [disk.read(path) for path in paths[1:] + paths[:1]]
    for path, other in zip(paths, others, strict=True):
        if content is None:
            disk.remove(path)
        else:
            write_file(disk, path, content if isinstance(content, bytes) else other)
    _, log = open_log(disk, segment_bytes=4000, index_interval_bytes=100)
    for offset in range(90):
        assert read_header(log.reader.read(offset, max_bytes=1).data).base_offset == offset
        assert offset_for_time(log, NOW + offset) == (NOW + offset, offset)


def test_a_torn_snapshot_is_replaced_by_an_older_one_and_the_batches_after_it(disk: MemoryDisk) -> None:
    _, log = open_log(disk, segment_bytes=300)
    for number in range(12):
        log.append(batch(f"{number}", producer=(7, 0, number)), now_ms=NOW)
    before = log.producer_states.views()
    for offset in log.files.snapshots:
        write_file(disk, f"orders-0/{offset:020d}.snapshot", b"torn")
    assert killed(disk, segment_bytes=300).producer_states.views() == before


def test_a_start_offset_beyond_a_lost_end_starts_the_log_over_there(disk: MemoryDisk) -> None:
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    manager.sync([log])
    log.append(batch("b", "c"), now_ms=NOW)
    delete_records(log, 3)
    disk.power_cycle()
    _, log = open_log(disk)
    assert (log.start_offset, log.end_offset) == (3, 3)
    log.append(batch("d"), now_ms=NOW)
    assert values_of(log) == ["d"]
    assert values_of(killed(disk)) == ["d"]


def test_a_transaction_whose_deleted_records_a_power_cut_took_begins_where_they_are_sent_again(
    disk: MemoryDisk,
) -> None:
    """Nothing of it is in the log before that: readers are shown all that was written in between."""
    manager, log = open_log(disk)
    log.append(batch("a"), now_ms=NOW)
    manager.sync([log])
    sent = batch("b", producer=(7, 0, 0), transactional=True)
    log.append(sent, now_ms=NOW)
    delete_records(log, 2)
    assert log.stable_offset == 2
    disk.power_cycle()
    manager, log = open_log(disk)
    assert (log.start_offset, log.end_offset, log.stable_offset) == (2, 2, 2)
    log.append(batch("c"), now_ms=NOW)
    assert not log.append(sent, now_ms=NOW).is_duplicate
    manager.sync([log])
    log.append(batch("d"), now_ms=NOW)
    disk.power_cycle()
    manager, log = open_log(disk)
    assert (log.start_offset, log.end_offset, log.stable_offset) == (2, 4, 3)
    assert values_of(log, committed=True) == ["c"]
    log.append_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW)
    assert values_of(log, committed=True) == ["c", "b"]


def test_a_transaction_whose_deleted_records_are_safe_is_still_open_where_a_log_starts_over(
    disk: MemoryDisk,
) -> None:
    manager, log = open_log(disk)
    log.append(batch("a", producer=(7, 0, 0), transactional=True), now_ms=NOW)
    manager.sync([log])
    log.append(batch("b"), now_ms=NOW)
    delete_records(log, 2)
    for _ in range(2):
        disk.power_cycle()
        manager, log = open_log(disk)
        assert (log.start_offset, log.end_offset) == (2, 2)
        assert log.producer_states.open_transactions == {7: 0}
    log.append(batch("c"), now_ms=NOW)
    log.append(batch("d", producer=(7, 0, 1), transactional=True), now_ms=NOW)
    assert log.stable_offset == 2
    manager.sync([log])
    disk.power_cycle()
    _, log = open_log(disk)
    assert (log.start_offset, log.end_offset, log.stable_offset) == (2, 4, 2)


def test_lost_synced_records_are_reported(disk: MemoryDisk, caplog: pytest.LogCaptureFixture) -> None:
    manager, log = open_log(disk, segment_bytes=200)
    for number in range(5):
        log.append(batch(f"{number}"), now_ms=NOW)
    manager.sync([log])
    disk.remove("orders-0/00000000000000000000.log")
    disk.remove("orders-0/00000000000000000004.log")
    with caplog.at_level(logging.ERROR, "headrace.log"):
        log = killed(disk, segment_bytes=200)
    assert "offsets 0 to 1 are gone" in caplog.text
    assert "offsets from 4 on had been synced and are gone" in caplog.text
    assert values_of(log) == ["2", "3"]


@pytest.mark.parametrize("lost", ["the directory", "its files"])
def test_a_trusted_log_that_lost_its_files_uses_no_offset_again(disk: MemoryDisk, lost: str) -> None:
    """What is written below the recovery point would be trusted, though it was never synced."""
    manager, log = open_log(disk, segment_bytes=200)
    for number in range(5):
        log.append(batch(f"{number}"), now_ms=NOW)
    manager.sync([log])
    disk.restart()
    for name in disk.list("orders-0"):
        disk.remove(f"orders-0/{name}")
    if lost == "the directory":
        disk.remove_directory("orders-0")
    _, log = open_log(disk, segment_bytes=200)
    assert (log.start_offset, log.end_offset) == (4, 4)
    log.append(batch("a"), now_ms=NOW)
    log.append(batch("b"), now_ms=NOW)
    assert values_of(killed(disk, segment_bytes=200)) == ["a", "b"]


@pytest.mark.parametrize("content", [b"", b"{", b"00000000\n{}", "flipped"])
def test_an_unreadable_summary_means_recovery(disk: MemoryDisk, content: bytes | str) -> None:
    manager, log = open_log(disk)
    log.append(batch("a", "b"), now_ms=NOW)
    manager.close()
    kept = disk.read("clean-shutdown").replace(b'"end_offset":2', b'"end_offset":1')
    write_file(disk, "clean-shutdown", content if isinstance(content, bytes) else kept)
    manager, log = open_log(disk)
    assert not manager.was_clean
    assert values_of(log) == ["a", "b"]


def test_a_summary_without_its_files_means_recovery(disk: MemoryDisk) -> None:
    manager, log = open_log(disk)
    log.append(batch("a", "b"), now_ms=NOW)
    manager.close()
    disk.remove("orders-0/00000000000000000002.snapshot")
    assert values_of(open_log(disk)[1]) == ["a", "b"]


def test_lost_leader_epochs_are_found_in_the_batches(disk: MemoryDisk) -> None:
    _, log = open_log(disk, segment_bytes=200)
    log.append(batch("a", "b"), now_ms=NOW)
    log = killed(disk, segment_bytes=200)
    log.append(batch("c"), now_ms=NOW)
    disk.remove("orders-0/leader-epoch-checkpoint")
    log = killed(disk, segment_bytes=200)
    assert log.end_offset_for_epoch(0) == (0, 2)


def test_a_batch_is_found_again_after_rubbish(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    size = three_batches(disk)
    overwrite(disk, FIRST, 0, bytes(range(100)))
    log = killed(disk)
    assert size < 100 < 2 * size
    for window in (1, 30, 70, 10_000):
        monkeypatch.setattr(recovery, "SCAN_BYTES", window)
        assert recovery.next_valid(log.segments[0], 0, 0) == 2 * size
        assert recovery.next_valid(log.segments[0], 2 * size, 0) is None


def test_an_aborted_transaction_counts_once_when_snapshots_are_lost(disk: MemoryDisk) -> None:
    manager, log = open_log(disk, segment_bytes=200)
    log.append(batch("x", producer=(7, 0, 0), transactional=True), now_ms=NOW)
    log.append_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=NOW)
    for _ in range(5):
        log.append(batch("plain"), now_ms=NOW)
    manager.sync([log])
    for offset in log.files.snapshots:
        disk.remove(f"orders-0/{offset:020d}.snapshot")
    again = killed(disk, segment_bytes=200)
    assert again.transactions.aborted == log.transactions.aborted
    assert again.producer_states.views() == log.producer_states.views()


def test_damage_that_recovery_meets_in_synced_segments_is_refused_not_raised(disk: MemoryDisk) -> None:
    manager, log = open_log(disk, segment_bytes=200)
    for number in range(6):
        log.append(batch(f"{number}"), now_ms=NOW)
    manager.sync([log])
    for offset in log.files.snapshots:
        disk.remove(f"orders-0/{offset:020d}.snapshot")
    overwrite(disk, FIRST, 8, bytes(4))
    log = killed(disk, segment_bytes=200)
    assert log.damage is not None
    assert (log.damage.offset, log.end_offset) == (0, 6)


def test_snapshots_do_not_pile_up(disk: MemoryDisk) -> None:
    for number in range(10):
        manager, log = open_log(disk, segment_bytes=200)
        log.append(batch(f"{number}"), now_ms=NOW)
        manager.close()
    names = [name for name in disk.list("orders-0") if name.endswith(".snapshot")]
    assert len(names) <= 2
    assert values_of(log) == [f"{number}" for number in range(10)]


def test_without_recovery_points_damage_before_other_segments_is_refused(disk: MemoryDisk) -> None:
    manager, log = open_log(disk, segment_bytes=200)
    for number in range(6):
        log.append(batch(f"{number}"), now_ms=NOW)
    manager.sync([log])
    disk.remove("recovery-point-offset-checkpoint")
    overwrite(disk, FIRST, disk.size(FIRST) - 1, b"\xff")
    log = killed(disk, segment_bytes=200)
    assert log.damage is not None
    assert (log.damage.offset, log.end_offset) == (1, 6)
    assert not [name for name in disk.list("orders-0") if name.endswith("unsynced")]


def test_without_recovery_points_an_empty_active_segment_still_says_where_the_log_ends(
    disk: MemoryDisk,
) -> None:
    policy = {"cleanup_policy": frozenset({"compact"}), "delete_retention_ms": 0}
    manager, log = open_log(disk, **policy)
    log.append(batch(None, keys=["a"]), now_ms=NOW)
    log.roll(NOW)
    for _ in range(3):
        manager.run_background_work(NOW + 10)
    disk.remove("recovery-point-offset-checkpoint")
    assert killed(disk).end_offset == 1


def test_a_base_offset_that_was_changed_is_damage_although_the_checksum_does_not_cover_it(
    disk: MemoryDisk,
) -> None:
    size = three_batches(disk)
    overwrite(disk, FIRST, size, b"\x40")
    log = killed(disk)
    assert log.damage is not None
    assert log.damage.offset == 1


def test_an_epoch_of_the_future_in_a_batch_is_not_believed(disk: MemoryDisk) -> None:
    size = three_batches(disk)
    overwrite(disk, FIRST, size + 12, b"\x40")
    log = killed(disk)
    assert log.epochs.entries == [(0, 0)]
    assert log.leader_epoch == 1


@pytest.mark.parametrize("hole", [1, 2, 3])
def test_a_tail_that_was_written_back_out_of_order_is_cut_at_its_hole(hole: int) -> None:
    """A power cut may lose a sector and keep a later one; nothing from there on had been synced."""
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk)
    for number in range(8):
        log.append(batch("x" * 300 + str(number)), now_ms=NOW)
    manager.sync([log])
    path = log.segments[0].path
    file = disk.open(path)
    file.write(hole * 512, bytes(512))
    disk.restart()
    _, log = open_log(disk)
    assert log.damage is None
    kept = [value for value in values_of(log) if value is not None]
    assert 0 < len(kept) < 8
    assert kept == ["x" * 300 + str(number) for number in range(len(kept))]
    assert [name for name in disk.list("orders-0") if name.endswith(".unsynced")]
    log.append(batch("goes on"), now_ms=NOW)
    assert values_of(log)[-1] == "goes on"


def test_a_flipped_bit_is_damage_and_not_a_hole() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = open_log(disk)
    for number in range(8):
        log.append(batch("x" * 300 + str(number)), now_ms=NOW)
    manager.sync([log])
    disk.flip_bit(log.segments[0].path, 8 * 900)
    disk.restart()
    _, log = open_log(disk)
    assert log.damage is not None
    assert log.damage.offset == 2


def test_a_tail_that_was_cut_does_not_come_back_after_another_power_cut() -> None:
    disk = MemoryDisk(is_simulated=True)
    _, log = open_log(disk, segment_bytes=300)
    for number in range(4):
        log.append(batch("x" * 100 + str(number)), now_ms=NOW)
    disk.sync_directory()
    disk.sync_directory("orders-0")
    for segment in log.segments:
        segment.sync()
    kept = log.segments[0]
    disk.open(kept.path).truncate(kept.size - 10)  # as a power cut leaves a tail that was never synced
    kept.sync()
    disk.restart()
    _, log = open_log(disk, segment_bytes=300)
    end_offset = log.end_offset
    assert end_offset < 4
    disk.power_cycle()
    assert [name for name in disk.list("orders-0") if name.endswith(".log")] == ["00000000000000000000.log"]
    assert open_log(disk, segment_bytes=300)[1].end_offset == end_offset


def test_checking_a_large_log_says_how_far_it_has_come() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager = LogManager(disk, now_ms=NOW)
    log = manager.open_log("t", 0, LogConfig(), TOPIC_ID)
    for _ in range(25):
        log.append(batch("x" * 1_000_000), now_ms=NOW)
    manager.sync([log])
    disk.restart()
    manager = LogManager(disk, now_ms=NOW)
    told: list[tuple[str, int, str, int]] = []
    manager.store.note_progress = lambda what, done, unit, *, of: told.append((what, done, unit, of))
    manager.open_log("t", 0, LogConfig(), TOPIC_ID)
    path = f"t-0/{0:020d}.log"
    assert told == [(f"checking {path}", 10, "MB", 25), (f"checking {path}", 20, "MB", 25)]
