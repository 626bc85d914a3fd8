"""Looking for records by time."""

from headrace.log.partition_log import PartitionLog
from tests.unit.log.logs import NOW, a_log, batch, open_log


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
            assert log.offset_for_time(NOW + time) == (NOW + offset * 10, offset)
    assert log.offset_for_time(NOW + 391) is None
    assert log.offset_for_time(0) == (NOW, 0)


def test_times_need_not_rise() -> None:
    log = log_of(50, 10, 70, 20, 30, 90, 60, 40)
    found = {time: (log.offset_for_time(NOW + time) or (0, -1))[1] for time in (0, 51, 71, 91)}
    assert found == {0: 0, 51: 2, 71: 5, 91: -1}


def test_a_record_within_a_batch_is_found() -> None:
    log = a_log()
    log.append(batch("a", "b", at=NOW), now_ms=NOW)
    log.append(batch("c", "d", at=NOW + 5), now_ms=NOW)
    assert log.offset_for_time(NOW + 1) == (NOW + 5, 2)


def test_deleted_records_are_not_found() -> None:
    log = log_of(10, 20, 30)
    log.delete_records(2)
    assert log.offset_for_time(NOW) == (NOW + 30, 2)


def test_committed_readers_do_not_find_undecided_records() -> None:
    log = log_of(10)
    log.append(batch("x", at=NOW + 20, producer=(7, 0, 0), transactional=True), now_ms=NOW)
    assert log.offset_for_time(NOW + 15) == (NOW + 20, 1)
    assert log.offset_for_time(NOW + 15, committed=True) is None
    assert log.offset_for_time(NOW + 5, committed=True) == (NOW + 10, 0)


def test_the_newest_record_is_the_first_with_the_largest_time() -> None:
    log = log_of(50, 10, 70, 20, 70, 30)
    assert log.max_timestamp() == (NOW + 70, 2)
    assert a_log().max_timestamp() is None


def test_records_without_a_timestamp_are_never_newest() -> None:
    log = a_log()
    log.append(batch("x", at=-1), now_ms=NOW)
    assert log.max_timestamp() is None
    assert log.offset_for_time(0) is None


def test_times_are_known_after_a_clean_restart() -> None:
    manager, log = open_log(segment_bytes=400)
    for time in (50, 10, 70, 20, 30, 90, 60, 40):
        log.append(batch("x" * 100, at=NOW + time), now_ms=NOW)
    manager.close()
    _, log = open_log(manager.disk)
    assert log.offset_for_time(NOW + 71) == (NOW + 90, 5)
    assert log.max_timestamp() == (NOW + 90, 5)
