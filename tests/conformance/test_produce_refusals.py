"""Produce (0): records that are refused, with the error that Kafka has for each. Nothing of them is kept."""

from typing import Any

import pytest

from headrace.wire.batches import CONTROL, HEADER_SIZE, Compression, read_header, with_header
from headrace.wire.errors import ErrorCode
from headrace.wire.records import NewRecord, build_batch
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.steps import batch, end_offset, new_topic, now_ms, produce, produced
from tests.conformance.wire_client import WireClient


def changed(records: bytes, **fields: Any) -> bytes:
    """The batch with other values in its header and a checksum that fits them."""
    return with_header(read_header(records)._replace(**fields), records[HEADER_SIZE:])


def with_byte(records: bytes, position: int, value: int) -> bytes:
    """The batch with one byte overwritten, and the checksum left as it was."""
    return records[:position] + bytes([value]) + records[position + 1 :]


PLAIN = build_batch([NewRecord(b"key", b"value", (), 1_700_000_000_000)])
TWO = build_batch([NewRecord(b"key", value, (), 1_700_000_000_000) for value in (b"one", b"two")])
GARBAGE = b"\x00" * 20

REFUSED: dict[str, tuple[bytes, ErrorCode]] = {
    "no bytes": (b"", ErrorCode.INVALID_RECORD),
    "fewer bytes than a header": (PLAIN[:40], ErrorCode.INVALID_RECORD),
    "a batch cut short": (PLAIN[:-1], ErrorCode.INVALID_RECORD),
    "a wrong checksum": (with_byte(PLAIN, HEADER_SIZE + 4, 0xFF), ErrorCode.CORRUPT_MESSAGE),
    "magic 0": (with_byte(PLAIN, 16, 0), ErrorCode.INVALID_RECORD),
    "magic 1": (with_byte(PLAIN, 16, 1), ErrorCode.INVALID_RECORD),
    "magic 3": (with_byte(PLAIN, 16, 3), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (PLAIN + PLAIN, ErrorCode.INVALID_RECORD),
    "bytes after the batch": (PLAIN + GARBAGE, ErrorCode.CORRUPT_MESSAGE),
    "no records": (
        changed(PLAIN[:HEADER_SIZE], record_count=0, last_offset_delta=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "a last offset that does not fit": (changed(TWO, last_offset_delta=5), ErrorCode.INVALID_RECORD),
    "a control batch": (changed(PLAIN, attributes=CONTROL), ErrorCode.INVALID_RECORD),
    "a base offset other than 0": (changed(PLAIN, base_offset=1234), ErrorCode.INVALID_RECORD),
    "a producer without a sequence": (
        changed(PLAIN, producer_id=4711, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_records_that_are_no_good_are_refused_and_not_kept(wire: WireClient, unique: str, what: str) -> None:
    records, code = REFUSED[what]
    new_topic(wire, unique)
    answer = produce(wire, unique, records)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (code, -1)
    assert end_offset(wire, unique) == 0
    assert produced(wire, unique, batch("good")) == 0


@pytest.mark.parametrize(
    "codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD, 5]
)
def test_records_that_cannot_be_unpacked_are_refused(wire: WireClient, unique: str, codec: int) -> None:
    new_topic(wire, unique)
    garbage = with_header(read_header(PLAIN)._replace(attributes=codec), GARBAGE)
    answer = produce(wire, unique, garbage)
    assert (ErrorCode(answer.error_code), answer.base_offset) == (ErrorCode.UNKNOWN_SERVER_ERROR, -1)
    assert end_offset(wire, unique) == 0


@pytest.mark.parametrize("count", [1, 3])
def test_a_header_that_counts_its_records_wrongly_is_refused(
    wire: WireClient, unique: str, count: int
) -> None:
    new_topic(wire, unique)
    answer = produce(wire, unique, changed(TWO, record_count=count, last_offset_delta=count - 1))
    assert (ErrorCode(answer.error_code), answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert end_offset(wire, unique) == 0


def test_a_sequence_number_without_a_producer_means_nothing(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    assert [produced(wire, unique, changed(PLAIN, base_sequence=3)) for _ in range(2)] == [0, 1]


def test_a_batch_larger_than_the_topic_takes_is_refused(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, configs={"max.message.bytes": "1000"})
    overhead = len(batch(b"x" * 900)) - 900
    assert produced(wire, unique, batch(b"x" * (1000 - overhead))) == 0
    answer = produce(wire, unique, batch(b"x" * (1001 - overhead)))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.MESSAGE_TOO_LARGE, -1)
    assert end_offset(wire, unique) == 1


def test_the_size_that_counts_is_that_after_compression(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, configs={"max.message.bytes": "1000"})
    assert produced(wire, unique, batch(b"x" * 50_000, compression=Compression.GZIP)) == 0


def test_a_record_without_a_key_does_not_belong_in_a_compacted_topic(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, configs={"cleanup.policy": "compact"})
    assert produced(wire, unique, batch("value", key=b"key")) == 0
    mixed = build_batch([NewRecord(key, b"value", (), now_ms()) for key in (b"a", None, b"b", None)])
    answer = produce(wire, unique, mixed)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_RECORD, -1)
    assert [error.batch_index for error in answer.record_errors] == [1, 3]
    assert all(error.batch_index_error_message for error in answer.record_errors)
    assert answer.error_message
    assert end_offset(wire, unique) == 1


@pytest.mark.parametrize(
    ("setting", "shift_ms"),
    [("message.timestamp.before.max.ms", -60_000), ("message.timestamp.after.max.ms", 60_000)],
    ids=["too old", "too far ahead"],
)
def test_a_time_out_of_range_is_refused(
    broker: BrokerUnderTest, wire: WireClient, unique: str, setting: str, shift_ms: int
) -> None:
    new_topic(wire, unique, configs={setting: "30000"})
    assert produced(wire, unique, batch("value", timestamp=broker.now_ms() + shift_ms // 3)) == 0
    now = broker.now_ms()
    mixed = build_batch([NewRecord(None, b"value", (), when) for when in (now, now + shift_ms)])
    answer = produce(wire, unique, mixed)
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_TIMESTAMP, -1)
    assert [error.batch_index for error in answer.record_errors] == [1]
    assert answer.error_message
    assert end_offset(wire, unique) == 1


def test_the_future_is_limited_to_an_hour_by_default(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    answer = produce(wire, unique, batch("value", timestamp=now_ms() + 2 * 3_600_000))
    assert answer.error_code == ErrorCode.INVALID_TIMESTAMP
    assert produced(wire, unique, batch("value", timestamp=0)) == 0
