"""What a produced batch must be: each rule of the produce path, and the error code that a client gets."""

import pytest

from headrace.log.config import LogConfig
from headrace.log.producers import AppendOrigin
from headrace.log.validation import InvalidRecords, check_batches
from headrace.wire.batches import CONTROL, LOG_APPEND_TIME, BatchHeader, read_header, with_header
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import build_marker
from tests.unit.log.logs import NOW, batch

GOOD = batch("a", "b")


def changed(**fields: int) -> bytes:
    """A good batch with another header, and the checksum to go with it."""
    header: BatchHeader = read_header(GOOD)
    return with_header(header._replace(**fields), GOOD[61:])


def code(data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT, **config: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        check_batches(data, LogConfig(**config), now_ms=NOW, origin=origin)  # type: ignore[arg-type]
    return caught.value.code


def test_a_good_batch_passes() -> None:
    ((position, header),) = check_batches(GOOD, LogConfig(), now_ms=NOW, origin=AppendOrigin.CLIENT)
    assert (position, header.record_count) == (0, 2)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (GOOD[:-1], ErrorCode.CORRUPT_MESSAGE),
        (GOOD + b"\0", ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:11] + b"\0" + GOOD[12:], ErrorCode.CORRUPT_MESSAGE),
        (GOOD[:16] + b"\1" + GOOD[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (changed(record_count=0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        (changed(record_count=-1), ErrorCode.INVALID_RECORD),
        (changed(record_count=3), ErrorCode.INVALID_RECORD),
        (changed(last_offset_delta=7), ErrorCode.INVALID_RECORD),
        (changed(base_offset=5), ErrorCode.INVALID_RECORD),
        (changed(attributes=CONTROL), ErrorCode.INVALID_RECORD),
        (changed(producer_id=7, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (changed(producer_id=7, base_sequence=0), ErrorCode.INVALID_RECORD),
        (batch("a", transactional=True), ErrorCode.INVALID_RECORD),
        (changed(attributes=6), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (changed(attributes=LOG_APPEND_TIME), ErrorCode.INVALID_TIMESTAMP),
        (batch("a", at=NOW + 3600_001), ErrorCode.INVALID_TIMESTAMP),
        (
            build_marker(producer_id=1, producer_epoch=0, commit=True, coordinator_epoch=0, timestamp=NOW),
            ErrorCode.INVALID_RECORD,
        ),
    ],
)
def test_a_bad_batch_is_refused(data: bytes, expected: ErrorCode) -> None:
    assert code(data) is expected


def test_a_batch_may_be_as_large_as_the_topic_allows() -> None:
    check_batches(GOOD, LogConfig(max_message_bytes=len(GOOD)), now_ms=NOW, origin=AppendOrigin.CLIENT)
    assert code(GOOD, max_message_bytes=len(GOOD) - 1) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_compacted_topic_wants_keys_from_clients() -> None:
    compacted = {"cleanup_policy": frozenset({"compact"})}
    mixed = batch("a", "b", "c", keys=["k", None, None])
    with pytest.raises(InvalidRecords) as caught:
        check_batches(mixed, LogConfig(**compacted), now_ms=NOW, origin=AppendOrigin.CLIENT)  # type: ignore[arg-type]
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1, 2]
    check_batches(mixed, LogConfig(**compacted), now_ms=NOW, origin=AppendOrigin.COORDINATOR)  # type: ignore[arg-type]


def test_records_that_are_too_old_are_named() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000)
    check_batches(batch("a", at=NOW - 1000), config, now_ms=NOW, origin=AppendOrigin.CLIENT)
    check_batches(batch("a", at=-1), config, now_ms=NOW, origin=AppendOrigin.CLIENT)
    with pytest.raises(InvalidRecords) as caught:
        check_batches(batch("a", at=NOW - 1001), config, now_ms=NOW, origin=AppendOrigin.CLIENT)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_with_log_append_time_the_producers_timestamps_do_not_matter() -> None:
    config = LogConfig(message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=1000)
    for at in (0, NOW + 10**9):
        check_batches(batch("a", at=at), config, now_ms=NOW, origin=AppendOrigin.CLIENT)


def test_records_that_cannot_be_unpacked_are_corrupt_where_they_must_be_opened() -> None:
    assert code(changed(attributes=4), cleanup_policy=frozenset({"compact"})) is ErrorCode.CORRUPT_MESSAGE
