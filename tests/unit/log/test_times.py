"""Looking for records by time."""

from itertools import pairwise

import pytest

from headrace.log import times
from headrace.log.background import STEP_COST
from headrace.log.partition_log import PartitionLog
from headrace.log.times import at_once, offset_for_time, search_max_timestamp, search_time
from headrace.wire.compression import Compression
from headrace.wire.errors import ErrorCode, KafkaError
from tests.unit.log.logs import NOW, a_log, batch, delete_records, open_log


def log_of(*times: int, **config: object) -> PartitionLog:
    log = a_log(segment_bytes=400, index_interval_bytes=100, **config)
    for time in times:
        log.append(batch(f"{time}", at=NOW + time), now_ms=NOW)
    return log


def test_the_first_record_that_is_not_older_is_found() -> None:
    log = log_of(*range(0, 400, 10))
    for time in range(0, 400, 7):
        if time <= 390:
            offset = -(-time // 10)
            assert offset_for_time(log, NOW + time) == (NOW + offset * 10, offset)
    assert offset_for_time(log, NOW + 391) is None
    assert offset_for_time(log, 0) == (NOW, 0)


def test_times_need_not_rise() -> None:
    log = log_of(50, 10, 70, 20, 30, 90, 60, 40)
    found = {time: (offset_for_time(log, NOW + time) or (0, -1))[1] for time in (0, 51, 71, 91)}
    assert found == {0: 0, 51: 2, 71: 5, 91: -1}


def test_a_record_within_a_batch_is_found() -> None:
    log = a_log()
    log.append(batch("a", "b", at=NOW), now_ms=NOW)
    log.append(batch("c", "d", at=NOW + 5), now_ms=NOW)
    assert offset_for_time(log, NOW + 1) == (NOW + 5, 2)


def test_deleted_records_are_not_found() -> None:
    log = log_of(10, 20, 30)
    delete_records(log, 2)
    assert offset_for_time(log, NOW) == (NOW + 30, 2)


def test_committed_readers_do_not_find_undecided_records() -> None:
    log = log_of(10)
    log.append(batch("x", at=NOW + 20, producer=(7, 0, 0), transactional=True), now_ms=NOW)
    assert offset_for_time(log, NOW + 15) == (NOW + 20, 1)
    assert offset_for_time(log, NOW + 15, committed=True) is None
    assert offset_for_time(log, NOW + 5, committed=True) == (NOW + 10, 0)


def test_the_newest_record_is_the_first_with_the_largest_time() -> None:
    log = log_of(50, 10, 70, 20, 70, 30)
    assert at_once(search_max_timestamp(log)) == (NOW + 70, 2)
    assert at_once(search_max_timestamp(a_log())) is None


def test_records_without_a_timestamp_are_never_newest() -> None:
    log = a_log()
    log.append(batch("x", at=-1), now_ms=NOW)
    assert at_once(search_max_timestamp(log)) is None
    assert offset_for_time(log, 0) is None


def test_times_are_known_after_a_clean_restart() -> None:
    manager, log = open_log(segment_bytes=400)
    for time in (50, 10, 70, 20, 30, 90, 60, 40):
        log.append(batch("x" * 100, at=NOW + time), now_ms=NOW)
    manager.close()
    _, log = open_log(manager.disk)
    assert offset_for_time(log, NOW + 71) == (NOW + 90, 5)
    assert at_once(search_max_timestamp(log)) == (NOW + 90, 5)


def many_batches(count: int) -> PartitionLog:
    """Only the first and the last are young; between them the index of times says nothing."""
    log = a_log()
    for time in (50, *[0] * (count - 2), 90):
        log.append(batch("x", at=NOW + time), now_ms=NOW)
    return log


def test_a_step_of_a_search_reads_a_bounded_number_of_headers() -> None:
    count = 3 * STEP_COST // times.HEADER_COST
    log = many_batches(count)
    steps = [*search_time(log, NOW + 60)]
    assert len([step for step in steps if step is None]) == 3
    assert offset_for_time(log, NOW + 60) == (NOW + 90, count - 1)


def test_a_step_of_a_search_learns_the_times_of_a_bounded_number_of_segments() -> None:
    for search_of in (lambda log: search_time(log, NOW + 395), lambda log: search_max_timestamp(log)):
        log = log_of(*range(400))
        assert len(log.segments) > 3 * STEP_COST // times.READING_COST
        for segment in log.segments[:-1]:
            segment.put_away()
            segment.max_timestamp = -1
        counts = [0]
        for step in search_of(log):
            if step is not None:
                step.look(1 << 20)
            counts.append(sum(segment.is_dated for segment in log.segments))
        assert (
            max(after - before for before, after in pairwise(counts)) <= 1 + STEP_COST // times.READING_COST
        )
        assert all(segment.is_dated for segment in log.segments)


def test_segments_that_go_while_a_search_pauses_are_not_read_any_more() -> None:
    count = 2 * STEP_COST
    log = a_log()
    for number in range(count):
        log.append(batch("x", at=NOW + {0: 50, count - 1: 60}.get(number, 0)), now_ms=NOW)
    log.roll(NOW)
    last = log.append(batch("x", at=NOW + 90), now_ms=NOW).base_offset
    search = search_time(log, NOW + 60)
    assert next(search) is None
    (dropped,) = log.drop_oldest(1, now_ms=NOW)
    dropped.remove_files()
    found = [step for step in search if step is not None and step.look(1 << 20) is None]
    assert len(found) == 1
    assert offset_for_time(log, NOW + 60) == (NOW + 90, last)


def test_a_search_ends_when_the_topic_is_deleted_meanwhile() -> None:
    manager, log = open_log()
    for time in (50, *[0] * STEP_COST, 90):
        log.append(batch("x", at=NOW + time), now_ms=NOW)
    search = search_time(log, NOW + 60)
    assert next(search) is None
    manager.delete_topic("orders", now_ms=NOW)
    with pytest.raises(KafkaError) as refused:
        next(search)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_what_is_too_large_to_be_opened_is_answered_with_where_it_begins(compression: Compression) -> None:
    log = a_log(max_message_bytes=4 << 20)
    log.append(batch("a", at=NOW), now_ms=NOW)
    log.append(batch("x" * times.AT_ONCE_BYTES_MAX, "b", at=NOW + 5, compression=compression), now_ms=NOW)
    log.start_offset = 2
    assert offset_for_time(log, NOW + 5) == (NOW + 5, 2)
    log.start_offset = 0
    assert offset_for_time(log, NOW + 5) == (NOW + 5, 1)
    assert at_once(search_max_timestamp(log)) == (NOW + 5, 2)
