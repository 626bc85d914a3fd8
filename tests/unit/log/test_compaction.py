"""Compaction: the last record of each key stays where it is; tombstones and markers go in time."""

import random
from contextlib import suppress
from itertools import pairwise

import pytest

from headrace.log.background import Work
from headrace.log.compaction import SOURCES_MAX, Compaction, plan
from headrace.log.disk import PowerLost
from headrace.log.manager import LogManager
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.wire.batches import read_header
from tests.unit.log.logs import NOW, batch, delete_records, open_log, records_of, values_of

HORIZON = 1000
COMPACT = frozenset({"compact"})
LEFT_OVERS = (".swap", ".merged", ".cleaned")


def compacted_log(
    disk: MemoryDisk | None = None, *, segment_bytes: int = 250, **config: object
) -> tuple[LogManager, PartitionLog]:
    settings = {"cleanup_policy": COMPACT, "delete_retention_ms": HORIZON, "min_cleanable_dirty_ratio": 0.0}
    return open_log(disk, segment_bytes=segment_bytes, **settings | config)  # type: ignore[arg-type]


def put(log: PartitionLog, *pairs: tuple[str, str | None], **more: object) -> None:
    keys, values = zip(*pairs, strict=True)
    log.append(batch(*values, keys=keys, **more), now_ms=NOW)  # type: ignore[arg-type]


def close_segment(log: PartitionLog) -> None:
    """So that everything so far may be compacted."""
    log.roll(NOW)


def compact(manager: LogManager, now_ms: int = NOW) -> None:
    """The first pass syncs what has closed, the second compacts it."""
    manager.run_background_work(now_ms)
    manager.run_background_work(now_ms)


def write_twelve(log: PartitionLog, *, keys: int = 3) -> None:
    """A record each for so many keys in turn, in closed segments."""
    for number in range(12):
        put(log, (f"key {number % keys}", f"value {number}"))
    close_segment(log)


def begun(manager: LogManager) -> Work:
    """The compaction that is to be run next; the first pass syncs what has closed."""
    manager.run_background_work(NOW)
    return next(work for work in manager.background_work(NOW) if work.what.startswith("compact"))


def content(log: PartitionLog) -> list[tuple[int, str, str | None]]:
    return [
        (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
        for record in records_of(log)
    ]


def test_the_last_record_of_each_key_stays_at_its_offset() -> None:
    manager, log = compacted_log()
    write_twelve(log)
    compact(manager)
    assert content(log) == [(9, "key 0", "value 9"), (10, "key 1", "value 10"), (11, "key 2", "value 11")]
    assert log.end_offset == 12
    assert log.start_offset == 0


def test_a_batch_keeps_some_of_its_records_and_its_own_range() -> None:
    manager, log = compacted_log()
    put(log, ("a", "1"), ("b", "1"), ("c", "1"), producer=(7, 0, 0))
    put(log, ("b", "2"))
    close_segment(log)
    compact(manager)
    assert content(log) == [(0, "a", "1"), (2, "c", "1"), (3, "b", "2")]
    header = read_header(log.reader.read(0, max_bytes=1).data)
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 2)
    assert (header.producer_id, header.base_sequence) == (7, 0)


@pytest.mark.parametrize("compression", range(5))
def test_compressed_batches_are_compacted_in_their_own_codec(compression: int) -> None:
    manager, log = compacted_log(segment_bytes=100_000)
    put(log, ("a", "1" * 1000), ("b", "1" * 1000), compression=compression)
    put(log, ("a", "2"))
    close_segment(log)
    compact(manager)
    assert content(log) == [(1, "b", "1" * 1000), (2, "a", "2")]
    assert read_header(log.reader.read(0, max_bytes=1).data).compression == compression


@pytest.mark.parametrize("byte", [7, 90])
def test_a_damaged_batch_is_not_written_anew_with_a_good_checksum(
    byte: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Byte 7 is in the base offset, which no checksum covers; byte 90 in the value of a record that stays."""
    disk = MemoryDisk()
    manager, log = compacted_log(disk)
    put(log, ("a", "replaced"), ("b", "stays " * 5))
    put(log, ("a", "last"))
    close_segment(log)
    manager.run_background_work(NOW)
    disk.flip_bit("orders-0/00000000000000000000.log", 8 * byte + 1)
    before = disk.read("orders-0/00000000000000000000.log")
    compact(manager)
    assert disk.read("orders-0/00000000000000000000.log") == before
    assert "orders-0 could not be compacted" in caplog.text


def test_the_active_segment_is_left_alone() -> None:
    manager, log = compacted_log(segment_bytes=10_000)
    for number in range(5):
        put(log, ("same", f"{number}"))
    compact(manager)
    assert len(content(log)) == 5
    close_segment(log)
    put(log, ("same", "5"))
    compact(manager)
    assert content(log) == [(4, "same", "4"), (5, "same", "5")]


def test_small_segments_grow_together() -> None:
    manager, log = compacted_log(segment_bytes=1000)
    for number in range(100):
        put(log, ("same", f"{number}"))
    put(log, ("other", "x"))
    count = len(log.segments)
    compact(manager)
    assert count > 5
    assert len(log.segments) < count
    close_segment(log)
    compact(manager)
    compact(manager)
    assert len(log.segments) == 2
    assert content(log) == [(99, "same", "99"), (100, "other", "x")]


def test_a_tombstone_stays_for_its_time_and_then_goes() -> None:
    manager, log = compacted_log()
    put(log, ("a", "1"), ("b", "1"))
    put(log, ("a", None))
    close_segment(log)
    compact(manager, NOW)
    assert content(log) == [(1, "b", "1"), (2, "a", None)]
    compact(manager, NOW + HORIZON - 1)
    assert content(log) == [(1, "b", "1"), (2, "a", None)]
    compact(manager, NOW + HORIZON)
    assert content(log) == [(1, "b", "1")]
    assert log.end_offset == 3


def test_a_tombstones_batch_keeps_its_timestamps() -> None:
    manager, log = compacted_log()
    put(log, ("a", None), ("b", "1"), at=NOW - 12345)
    close_segment(log)
    compact(manager)
    assert [record.timestamp for record in records_of(log)] == [NOW - 12345] * 2
    assert read_header(log.reader.read(0, max_bytes=1).data).delete_horizon_ms == NOW + HORIZON


def test_records_of_an_aborted_transaction_go_and_do_not_replace_others() -> None:
    manager, log = compacted_log()
    put(log, ("a", "good"))
    put(log, ("a", "bad"), producer=(7, 0, 0), transactional=True)
    log.append_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=NOW)
    put(log, ("b", "good"), producer=(7, 0, 1), transactional=True)
    log.append_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW)
    close_segment(log)
    compact(manager, NOW)
    assert values_of(log) == ["good", "good"]
    assert values_of(log, committed=True) == ["good", "good"]
    assert log.reader.read(0, max_bytes=10_000, committed=True).aborted == [(7, 1)]
    compact(manager, NOW + HORIZON)
    assert values_of(log, committed=True) == ["good", "good"]
    # The marker is gone, so nobody may be told to wait for it.
    assert log.reader.read(0, max_bytes=10_000, committed=True).aborted == []
    assert not [name for name in manager.disk.list("orders-0") if name.endswith("txnindex")]


def test_a_commit_marker_stays_while_records_of_its_transaction_do() -> None:
    manager, log = compacted_log()
    put(log, ("a", "1"), producer=(7, 0, 0), transactional=True)
    log.append_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW)
    close_segment(log)
    compact(manager, NOW)
    compact(manager, NOW + 10 * HORIZON)
    controls = [read_header(one).is_control for one in log.reader.batches()]
    assert controls == [False, True]


def test_an_open_transaction_holds_compaction_back() -> None:
    manager, log = compacted_log(segment_bytes=200)
    put(log, ("a", "1"))
    put(log, ("a", "2"), producer=(7, 0, 0), transactional=True)
    put(log, ("a", "3"))
    close_segment(log)
    compact(manager)
    assert len(content(log)) == 3


def test_a_producers_last_batch_stays_as_a_header_so_that_its_sequence_is_known() -> None:
    disk = MemoryDisk(is_simulated=True)
    manager, log = compacted_log(disk)
    put(log, ("a", "1"), producer=(7, 0, 0), transactional=True)
    log.append_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW)
    for number in range(4):
        put(log, ("a", f"{number}"))
    close_segment(log)
    compact(manager)
    compact(manager, NOW + HORIZON)
    assert content(log) == [(5, "a", "3")]
    for name in disk.list("orders-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"orders-0/{name}")
    disk.restart()
    _, log = compacted_log(disk)
    assert log.stable_offset == log.end_offset
    assert log.append(batch("1", keys=["a"], producer=(7, 0, 0), transactional=True), now_ms=NOW).is_duplicate


def test_a_reader_at_the_end_of_a_log_that_lost_its_last_records_is_not_stuck() -> None:
    manager, log = compacted_log()
    put(log, ("a", "1"))
    put(log, ("b", None))
    close_segment(log)
    compact(manager, NOW)
    compact(manager, NOW + HORIZON)
    assert values_of(log) == ["1"]
    assert log.reader.read(1, max_bytes=100).next_offset == 2


def test_young_records_are_left_alone() -> None:
    manager, log = compacted_log(min_compaction_lag_ms=1000)
    put(log, ("a", "1"))
    put(log, ("a", "2"))
    close_segment(log)
    compact(manager, NOW + 999)
    assert len(content(log)) == 2
    compact(manager, NOW + 1000)
    assert len(content(log)) == 1


def test_compaction_waits_until_enough_is_dirty() -> None:
    manager, log = compacted_log(min_cleanable_dirty_ratio=0.5)
    for number in range(10):
        put(log, (f"key {number}", "x" * 50))
    close_segment(log)
    compact(manager)
    put(log, ("key 0", "y"))
    close_segment(log)
    compact(manager)
    assert len(content(log)) == 11
    for number in range(12):
        put(log, ("key 0", f"{number}" + "y" * 50))
    close_segment(log)
    compact(manager)
    assert len(content(log)) == 10


def test_what_waited_too_long_is_compacted_however_little_it_is() -> None:
    manager, log = compacted_log(min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=5000)
    for number in range(10):
        put(log, (f"key {number}", "x" * 50))
    close_segment(log)
    compact(manager)
    put(log, ("key 0", "y"))
    close_segment(log)
    compact(manager, NOW + 5000)
    assert len(content(log)) == 11
    compact(manager, NOW + 5001)
    assert len(content(log)) == 10


def test_more_keys_than_fit_in_memory_are_compacted_in_several_passes() -> None:
    manager, log = compacted_log()
    for round_ in range(2):
        for number in range(20):
            put(log, (f"a long key, longer than its digest {number}", f"{round_}"))
    close_segment(log)
    manager.sync([log])
    cleaned_to = 0
    for _ in range(10):
        chosen = plan(log, cleaned_to=cleaned_to, now_ms=NOW)
        if not chosen.is_due:
            break
        compaction = Compaction(log, chosen, now_ms=NOW, keys_max=7)
        compaction.run()
        compaction.finish()
        cleaned_to = compaction.cleaned_to
    assert [value for _, _, value in content(log)] == ["1"] * 20


def test_a_topic_that_becomes_compacted_loses_its_records_without_keys() -> None:
    manager, log = compacted_log(cleanup_policy=frozenset({"delete"}))
    log.append(batch("no key"), now_ms=NOW)
    put(log, ("a", "1"))
    close_segment(log)
    _, with_policy = compacted_log()
    log.config = with_policy.config
    compact(manager)
    assert content(log) == [(1, "a", "1")]


def test_appends_and_reads_go_on_while_a_worker_compacts_and_retention_of_the_log_waits() -> None:
    manager, log = compacted_log(cleanup_policy=frozenset({"compact", "delete"}), file_delete_delay_ms=0)
    write_twelve(log)
    compaction = begun(manager)
    assert manager.background_work(NOW) == []
    compaction.run()
    put(log, ("key 0", "meanwhile"))
    assert values_of(log)[-1] == "meanwhile"
    delete_records(log, 10)
    bases = list(log.files.bases)
    manager.run_background_work(NOW)
    assert log.files.bases == bases
    compaction.finish()
    assert not [name for name in manager.disk.list("orders-0") if name.endswith(LEFT_OVERS)]
    compact(manager)
    assert [value for _, _, value in content(log)] == ["value 10", "value 11", "meanwhile"]


def test_segments_that_go_during_a_compaction_leave_its_result_unused() -> None:
    manager, log = compacted_log(file_delete_delay_ms=0)
    write_twelve(log)
    compaction = begun(manager)
    compaction.run()
    log.drop_oldest(1, now_ms=NOW)
    before = content(log)
    compaction.finish()
    assert content(log) == before
    assert not [name for name in manager.disk.list("orders-0") if name.endswith(LEFT_OVERS)]


def compaction_of_many_segments(disk: MemoryDisk) -> tuple[LogManager, PartitionLog, Work]:
    """Its results take the places of five times as many segments as one step does."""
    manager, log = compacted_log(disk, segment_bytes=100_000)
    for number in range(5 * SOURCES_MAX):
        put(log, (f"key {number % 70}", f"value {number}"))
        log.roll(NOW)
    manager.run_background_work(NOW)
    work = next(work for work in manager.background_work(NOW) if work.what.startswith("compact"))
    work.run()
    return manager, log, work


def test_a_step_of_a_compactions_end_replaces_a_bounded_number_of_segments() -> None:
    _, log, work = compaction_of_many_segments(MemoryDisk())
    assert work.finishing is not None
    before = {key: value for _, key, value in content(log)}
    counts = [len(log.segments)]
    for _ in work.finishing():
        counts.append(len(log.segments))
        assert {key: value for _, key, value in content(log)} == before
    counts.append(len(log.segments))
    assert len(counts) > 3
    assert max(more - fewer for more, fewer in pairwise(counts)) < SOURCES_MAX
    assert len(content(log)) == 70


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_stop_between_two_steps_of_a_compactions_end_loses_nothing(is_clean: bool) -> None:
    disk = MemoryDisk()
    manager, log, work = compaction_of_many_segments(disk)
    assert work.finishing is not None
    before = {key: value for _, key, value in content(log)}
    steps = work.finishing()
    next(steps)
    manager.close(clean=is_clean)
    if is_clean:
        assert list(steps) == []
        assert not [name for name in disk.list("orders-0") if name.endswith(LEFT_OVERS)]
    manager, log = compacted_log(disk)
    assert {key: value for _, key, value in content(log)} == before
    compact(manager)
    assert len(content(log)) == 70


def test_a_topic_deleted_between_two_steps_of_a_compactions_end_ends_it() -> None:
    disk = MemoryDisk()
    manager, _, work = compaction_of_many_segments(disk)
    assert work.finishing is not None
    steps = work.finishing()
    next(steps)
    manager.delete_topic("orders", now_ms=NOW)
    assert list(steps) == []
    assert manager.background_work(NOW) == []
    assert not disk.exists("orders-0")


def test_a_stop_in_the_middle_of_a_compaction_leaves_nothing_behind() -> None:
    disk = MemoryDisk()
    manager, log = compacted_log(disk)
    write_twelve(log)
    compaction = begun(manager)
    compaction.run()
    manager.close()
    assert not [name for name in disk.list("orders-0") if name.endswith(LEFT_OVERS)]
    compaction.run()
    manager, log = compacted_log(disk)
    assert len(content(log)) == 12


def test_a_deleted_topic_ends_its_compaction() -> None:
    manager, log = compacted_log()
    write_twelve(log)
    compaction = begun(manager)
    manager.delete_topic("orders", now_ms=NOW)
    compaction.run()
    compaction.finish()
    assert not manager.disk.exists("orders-0")


def test_what_is_compacted_is_remembered_across_restarts() -> None:
    disk = MemoryDisk()
    manager, log = compacted_log(disk)
    write_twelve(log)
    compact(manager)
    manager.close()
    manager, log = compacted_log(disk)
    assert not [work for work in manager.background_work(NOW) if work.what.startswith("compact")]
    assert len(content(log)) == 3


def test_a_swap_that_an_older_version_had_begun_is_finished() -> None:
    """It set the first source aside, and removed the others before the new segment got its name."""
    disk = MemoryDisk()
    manager, log = compacted_log(disk)
    write_twelve(log, keys=5)
    compaction = begun(manager)
    compaction.run()
    assert [name for name in disk.list("orders-0") if name.endswith(".swap")]
    for name in disk.list("orders-0"):
        if name.endswith(".merged"):
            disk.remove(f"orders-0/{name}")
    first, second = log.segments[:2]
    disk.rename(first.path, f"{first.path}.deleted")
    disk.remove(second.path)
    disk.restart()
    assert {key: value for _, key, value in content(compacted_log(disk)[1])} == {
        f"key {number % 5}": f"value {number}" for number in range(12)
    }
    assert not [name for name in disk.list("orders-0") if name.endswith((*LEFT_OVERS, ".deleted"))]


@pytest.mark.parametrize("operation", range(1, 9))
def test_power_that_is_lost_while_a_compaction_is_given_up_takes_nothing(operation: int) -> None:
    """Whatever the power cut has undone, what is left on the disk is no compaction that was carried out."""
    newest = {f"key {number % 5}": f"value {number}" for number in range(12)}
    for survivor in range(6):
        disk = MemoryDisk(is_simulated=True)
        manager, log = compacted_log(disk)
        write_twelve(log, keys=5)
        compaction = begun(manager)
        compaction.run()
        manager.sync([log])
        manager.cancel_compaction()
        disk.fail_at(operation)
        with suppress(PowerLost):
            compaction.finish()
        disk.power_cycle(random.Random(survivor))
        assert {key: value for _, key, value in content(compacted_log(disk)[1])} == newest
