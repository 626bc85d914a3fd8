"""PartitionLog: what goes in comes out, refused appends leave nothing behind, offsets follow the rules."""

import errno

import pytest

from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.wire.batches import read_header, split
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import read_records
from tests.unit.log.logs import DAY, NOW, a_log, batch, delete_records, open_log, values_of


def state(log: PartitionLog) -> tuple[object, ...]:
    return (
        log.start_offset,
        log.end_offset,
        log.stable_offset,
        log.size,
        log.producer_states.views(),
        values_of(log),
    )


def test_batches_get_consecutive_offsets_and_come_back_as_they_were() -> None:
    log = a_log()
    assert log.append(batch("a", "b"), now_ms=NOW)[:2] == (0, 1)
    assert log.append(batch("c"), now_ms=NOW)[:2] == (2, 2)
    read = log.reader.read(0, max_bytes=1_000_000)
    assert [header.base_offset for _, header in split(read.data)] == [0, 2]
    assert read.next_offset == 3
    assert [record.value for record in read_records(read.data)] == [b"a", b"b"]


def test_several_batches_may_come_in_one_append() -> None:
    log = a_log()
    appended = log.append(batch("a", "b") + batch("c"), now_ms=NOW)
    assert (appended.base_offset, appended.last_offset) == (0, 2)
    assert values_of(log) == ["a", "b", "c"]


def test_a_partition_that_was_never_written_has_no_directory() -> None:
    manager, log = open_log()
    assert (log.start_offset, log.end_offset, log.size) == (0, 0, 0)
    assert log.reader.read(0, max_bytes=100).data == b""
    manager.close()
    assert not manager.disk.exists("orders-0")


def test_a_read_returns_whole_batches_within_its_bytes() -> None:
    log = a_log()
    one = batch("x" * 100)
    for _ in range(10):
        log.append(one, now_ms=NOW)
    read = log.reader.read(2, max_bytes=3 * len(one) + 5)
    assert len(read.data) == 3 * len(one)
    assert read.next_offset == 5


def test_a_first_batch_larger_than_the_read_comes_whole_unless_the_caller_says_no() -> None:
    log = a_log()
    log.append(batch("x" * 1000), now_ms=NOW)
    assert len(log.reader.read(0, max_bytes=1).data) > 1000
    assert log.reader.read(0, max_bytes=1, at_least_one=False).data == b""


def test_an_offset_within_a_batch_gets_that_batch() -> None:
    log = a_log()
    log.append(batch("a", "b", "c"), now_ms=NOW)
    assert read_header(log.reader.read(2, max_bytes=10).data).base_offset == 0


def test_offsets_outside_the_log_are_refused() -> None:
    log = a_log()
    log.append(batch("a"), now_ms=NOW)
    assert log.reader.read(1, max_bytes=10).data == b""
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as caught:
            log.reader.read(offset, max_bytes=10)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_reads_go_on_from_segment_to_segment() -> None:
    log = a_log(segment_bytes=300)
    for number in range(50):
        log.append(batch(f"value {number}"), now_ms=NOW)
    assert len(log.segments) > 10
    assert values_of(log) == [f"value {number}" for number in range(50)]
    assert values_of(log, 33) == [f"value {number}" for number in range(33, 50)]
    assert log.size == sum(segment.size for segment in log.segments)


def test_a_segment_is_named_by_its_first_offset() -> None:
    manager, log = open_log(segment_bytes=200)
    for _ in range(4):
        log.append(batch("x" * 60), now_ms=NOW)
    names = [name for name in manager.disk.list("orders-0") if name.endswith(".log")]
    assert names == [f"{offset:020d}.log" for offset in range(4)]


def test_a_segment_closes_when_its_first_record_is_old() -> None:
    log = a_log(segment_ms=1000)
    log.append(batch("a", at=NOW), now_ms=NOW)
    log.append(batch("b", at=NOW + 1000), now_ms=NOW)
    assert len(log.segments) == 1
    log.append(batch("c", at=NOW + 1001), now_ms=NOW)
    assert len(log.segments) == 2


def test_without_timestamps_a_segment_closes_by_the_brokers_clock() -> None:
    log = a_log(segment_ms=1000)
    log.append(batch("a", at=-1), now_ms=NOW)
    log.append(batch("b", at=-1), now_ms=NOW + 1000)
    assert len(log.segments) == 1
    log.append(batch("c", at=-1), now_ms=NOW + 1001)
    assert len(log.segments) == 2


def test_a_segment_closes_when_its_index_is_full() -> None:
    log = a_log(index_interval_bytes=0, segment_index_bytes=16)
    for _ in range(5):
        log.append(batch("a"), now_ms=NOW)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_log_append_time_replaces_the_producers_timestamps() -> None:
    log = a_log(message_timestamp_type="LogAppendTime")
    appended = log.append(batch("a", at=5), now_ms=NOW)
    assert appended.append_time_ms == NOW
    data = log.reader.read(0, max_bytes=1000).data
    assert read_header(data).is_log_append_time
    assert [record.timestamp for record in read_records(data)] == [NOW]


@pytest.mark.parametrize("compression_type", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_the_topics_codec_replaces_the_producers(compression_type: str) -> None:
    log = a_log(compression_type=compression_type)
    log.append(batch("a" * 500, "b", compression=1), now_ms=NOW)
    codec = ["uncompressed", "gzip", "snappy", "lz4", "zstd"].index(compression_type)
    assert read_header(log.reader.read(0, max_bytes=1000).data).compression == codec
    assert values_of(log) == ["a" * 500, "b"]


def test_records_larger_than_a_segment_are_refused() -> None:
    log = a_log(segment_bytes=200)
    with pytest.raises(KafkaError) as caught:
        log.append(batch("x" * 300), now_ms=NOW)
    assert caught.value.code is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_full_disk_refuses_the_append_and_changes_nothing() -> None:
    disk = MemoryDisk(is_simulated=True)
    _, log = open_log(disk)
    log.append(batch("a", producer=(7, 0, 0)), now_ms=NOW)
    before = state(log)
    disk.fail_at(1, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(KafkaError) as caught:
        log.append(batch("b" * 100, producer=(7, 0, 1)), now_ms=NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert "No space left" in str(caught.value)
    assert state(log) == before
    assert disk.size("orders-0/00000000000000000000.log") == log.size
    log.append(batch("b" * 100, producer=(7, 0, 1)), now_ms=NOW)
    assert values_of(log) == ["a", "b" * 100]


@pytest.mark.parametrize("operation", range(1, 12))
def test_a_full_disk_while_a_segment_closes_changes_nothing(operation: int) -> None:
    disk = MemoryDisk(is_simulated=True)
    _, log = open_log(disk, segment_bytes=200)
    log.append(batch("a" * 100), now_ms=NOW)
    before = state(log)
    disk.fail_at(operation, OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(KafkaError) as caught:
        log.append(batch("b" * 100), now_ms=NOW)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert state(log) == before
    log.append(batch("b" * 100), now_ms=NOW)
    assert values_of(log) == ["a" * 100, "b" * 100]


def test_delete_records_moves_the_start_and_keeps_the_rest() -> None:
    log = a_log()
    log.append(batch("a", "b", "c"), now_ms=NOW)
    assert delete_records(log, 2) == 2
    assert log.start_offset == 2
    assert values_of(log) == ["c"]
    assert delete_records(log, 1) == 2
    assert delete_records(log, -1) == 3
    with pytest.raises(KafkaError) as caught:
        delete_records(log, 4)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_records_of_a_compacted_topic_cannot_be_deleted() -> None:
    log = a_log(cleanup_policy=frozenset({"compact"}))
    with pytest.raises(KafkaError) as caught:
        delete_records(log, 0)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


def test_a_retried_batch_is_answered_with_its_old_offset() -> None:
    log = a_log()
    for number in range(5):
        log.append(batch(f"{number}", producer=(7, 0, number)), now_ms=NOW)
    for number in range(5):
        again = log.append(batch(f"{number}", producer=(7, 0, number)), now_ms=NOW)
        assert (again.base_offset, again.is_duplicate) == (number, True)
    assert log.end_offset == 5


def test_committed_reads_stop_before_an_open_transaction() -> None:
    log = a_log()
    log.append(batch("plain"), now_ms=NOW)
    log.append(batch("pending", producer=(7, 0, 0), transactional=True), now_ms=NOW)
    log.append(batch("behind it"), now_ms=NOW)
    assert log.stable_offset == 1
    assert values_of(log, committed=True) == ["plain"]
    assert log.reader.read(1, max_bytes=100, committed=True).data == b""
    assert log.reader.bytes_from(1, limit=100, committed=True) == 0
    log.append_marker(producer_id=7, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW)
    assert log.stable_offset == 4
    assert values_of(log, committed=True) == ["plain", "pending", "behind it"]


def test_aborted_transactions_are_named_to_committed_readers_only() -> None:
    log = a_log()
    log.append(batch("gone", producer=(7, 0, 0), transactional=True), now_ms=NOW)
    log.append(batch("kept", producer=(8, 0, 0), transactional=True), now_ms=NOW)
    log.append_marker(producer_id=7, producer_epoch=0, commit=False, coordinator_epoch=0, now_ms=NOW)
    log.append_marker(producer_id=8, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW)
    assert log.reader.read(0, max_bytes=10_000, committed=True).aborted == [(7, 0)]
    assert log.reader.read(0, max_bytes=10_000).aborted == []
    assert log.reader.read(3, max_bytes=10_000, committed=True).aborted == []
    assert values_of(log, committed=True) == ["kept"]
    assert log.transactions.aborted[0].last_stable_offset == 1


def test_a_committed_read_follows_the_stable_offset_and_names_all_that_was_aborted() -> None:
    log = a_log()
    for producer_id in (7, 8, 9):
        log.append(batch(f"{producer_id}", producer=(producer_id, 0, 0), transactional=True), now_ms=NOW)
    for producer_id, commit, seen in ((8, False, []), (7, False, []), (9, True, ["9"])):
        assert values_of(log, committed=True, max_bytes=10_000) == []
        log.append_marker(
            producer_id=producer_id, producer_epoch=0, commit=commit, coordinator_epoch=0, now_ms=NOW
        )
        assert values_of(log, committed=True, max_bytes=10_000) == seen
    assert log.reader.read(0, max_bytes=10_000, committed=True).aborted == [(8, 1), (7, 0)]


def test_a_committed_reader_goes_on_from_one_open_transaction_to_the_next() -> None:
    log = a_log()
    for number in range(3):
        log.append(batch(f"plain {number}"), now_ms=NOW)
        log.append(batch(f"{number}", producer=(number, 0, 0), transactional=True), now_ms=NOW)
    for number, stable_offset in ((0, 3), (1, 5), (2, 9)):
        assert len(values_of(log, committed=True, max_bytes=10_000)) == 2 * number + 1
        log.append_marker(producer_id=number, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=NOW)
        assert log.stable_offset == stable_offset
    assert len(values_of(log, committed=True, max_bytes=10_000)) == 6


def test_a_marker_without_a_transaction_aborts_nothing() -> None:
    log = a_log()
    log.append_marker(producer_id=7, producer_epoch=3, commit=False, coordinator_epoch=0, now_ms=NOW)
    assert log.transactions.aborted == []
    assert log.stable_offset == log.end_offset == 1


def test_bytes_from_counts_what_a_read_would_find() -> None:
    log = a_log(segment_bytes=400)
    for number in range(10):
        log.append(batch(f"{number:0100d}"), now_ms=NOW)
    assert log.reader.bytes_from(0, limit=10**9) == log.size
    assert log.reader.bytes_from(5, limit=10**9) == log.size // 2
    assert log.reader.bytes_from(0, limit=7) == 7
    assert log.reader.bytes_from(10, limit=7) == 0
    assert log.reader.bytes_from(11, limit=7) == 0


def test_batches_yields_every_batch_for_replay() -> None:
    log = a_log(segment_bytes=400)
    for number in range(10):
        log.append(batch(f"{number}", "x"), now_ms=NOW)
    assert [read_header(one).base_offset for one in log.reader.batches()] == list(range(0, 20, 2))
    assert [read_header(one).base_offset for one in log.reader.batches(9)] == list(range(8, 20, 2))


def test_a_hint_never_survives_the_segment_it_points_to() -> None:
    manager, log = open_log(segment_bytes=200, retention_ms=DAY, file_delete_delay_ms=0)
    for _ in range(4):
        log.append(batch("x" * 60, at=NOW - 2 * DAY), now_ms=NOW)
        log.reader.read(log.end_offset - 1, max_bytes=10)
    log.append(batch("fresh"), now_ms=NOW)
    manager.run_background_work(NOW)
    assert log.start_offset == 4
    assert values_of(log) == ["fresh"]


def test_more_readers_than_hints_are_served_all_the_same() -> None:
    log = a_log()
    for number in range(100):
        log.append(batch(f"{number}"), now_ms=NOW)
    for offset in [*range(100), *range(100)]:
        assert read_header(log.reader.read(offset, max_bytes=1).data).base_offset == offset


def test_epochs_end_where_the_next_begins() -> None:
    disk = MemoryDisk(is_simulated=True)
    _, log = open_log(disk)
    log.append(batch("a", "b"), now_ms=NOW)
    assert log.leader_epoch == 0
    disk.restart()
    _, log = open_log(disk)
    assert log.leader_epoch == 1
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(1) == (1, 2)
    assert log.end_offset_for_epoch(2) == (-1, -1)
    log.append(batch("c"), now_ms=NOW)
    assert read_header(log.reader.read(2, max_bytes=10).data).leader_epoch == 1
    assert log.end_offset_for_epoch(0) == (0, 2)
    assert log.end_offset_for_epoch(1) == (1, 3)
