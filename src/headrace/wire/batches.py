"""Record batches (format v2) as opaque bytes with a view of their header.

The broker passes batches on as they came: it reads the 61 bytes of header, checks the checksum, and patches
the few fields that are its own to set (base offset, leader epoch, append time). Only `records.py` opens them.

Layout of a batch: base offset (8 bytes), length of what follows (4), leader epoch (4), magic (1), CRC-32C (4)
of all that follows it, attributes (2), last offset delta (4), base and max timestamp (8 + 8), producer id (8)
and epoch (2), base sequence (4), count (4), records. Base offset, length and leader epoch are outside the
checksum, so that a broker can place a batch without touching the rest.
"""

import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import NamedTuple

from crc32c import crc32c

from headrace.wire.errors import ErrorCode, KafkaError

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_SIZE = HEADER.size
FRAME = struct.Struct(">qi")
FRAME_SIZE = FRAME.size
"""Base offset and length: what comes before the bytes that `length` counts."""
LENGTH_MIN = HEADER_SIZE - FRAME_SIZE
MAGIC = 2
MAGIC_AT = 16
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35

NO_PRODUCER_ID = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
SEQUENCE_MAX = 0x7FFFFFFF

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40
"""The base timestamp holds the time from which tombstones of this batch may go (KIP-534)."""

Buffer = bytes | bytearray | memoryview

_PLACED, _CHECKED = struct.Struct(">qiibI"), struct.Struct(">hiqqqhii")
"""The header up to its checksum, and what of it the checksum is about."""
_PLACE = struct.Struct(">qii")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_new_tuple = tuple.__new__
"""Twice as fast as `BatchHeader._make`, which also counts the fields: HEADER has as many."""


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return self.length + FRAME_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        return add_to_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> int:
        """As in `Compression`; 5, 6 and 7 name no codec."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        return self.base_timestamp if self.attributes & DELETE_HORIZON else None

    @property
    def record_timestamp(self) -> int:
        """About when its records came: of the first one, or of the newest where the first's is not kept."""
        is_other = self.attributes & (DELETE_HORIZON | LOG_APPEND_TIME)
        return self.max_timestamp if is_other else self.base_timestamp


def add_to_sequence(sequence: int, count: int) -> int:
    """Sequence numbers run from 0 to 2^31 - 1 and start again; "none" stays "none"."""
    if sequence < 0:
        return NO_SEQUENCE
    return (sequence + count) & SEQUENCE_MAX


def read_header(data: Buffer, position: int = 0) -> BatchHeader:
    """The header of the batch that starts at `position`; `struct.error` if the bytes end before it does."""
    return _new_tuple(BatchHeader, HEADER.unpack_from(data, position))


def split(data: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch, one after the other.

    KafkaError(CORRUPT_MESSAGE) when the bytes end within a batch, UNSUPPORTED_FOR_MESSAGE_FORMAT for the
    formats of before Kafka 0.11.
    """
    position, end = 0, len(data)
    while position < end:
        if end - position > MAGIC_AT and data[position + MAGIC_AT] != MAGIC:
            magic = data[position + MAGIC_AT]
            raise KafkaError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"Record batch format {magic} is not supported, only format {MAGIC} is.",
            )
        if end - position < HEADER_SIZE:
            raise _corrupt(f"{end - position} bytes cannot hold a record batch.")
        header = read_header(data, position)
        size = header.length + FRAME_SIZE
        if size < HEADER_SIZE or position + size > end:
            raise _corrupt(f"A record batch of {size} bytes in {end - position}.")
        yield position, header
        position += size


def crc32c_of(data: Buffer) -> int:
    return crc32c(data)  # type: ignore[no-any-return]


def checksum(data: Buffer, position: int, header: BatchHeader) -> int:
    """CRC-32C of what the batch at `position` holds now."""
    end = position + header.length + FRAME_SIZE
    return crc32c(memoryview(data)[position + ATTRIBUTES_AT : end])  # type: ignore[no-any-return]


def is_intact(data: Buffer, position: int, header: BatchHeader) -> bool:
    return checksum(data, position, header) == header.crc


def require_intact(data: Buffer, position: int, header: BatchHeader) -> None:
    found = checksum(data, position, header)
    if found != header.crc:
        raise _corrupt(f"Record batch is corrupt (stored crc = {header.crc}, computed crc = {found}).")


def place(buffer: bytearray, position: int, *, base_offset: int, length: int, leader_epoch: int) -> None:
    """Gives the batch its place in the log. Outside the checksum."""
    _PLACE.pack_into(buffer, position, base_offset, length, leader_epoch)


def stamp_append_time(buffer: bytearray, position: int, now_ms: int) -> None:
    """Makes `now_ms` the time of every record of the batch (LogAppendTime)."""
    header = read_header(buffer, position)
    _ATTRIBUTES.pack_into(buffer, position + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    _TIMESTAMP.pack_into(buffer, position + MAX_TIMESTAMP_AT, now_ms)
    seal(buffer, position)


def seal(buffer: bytearray, position: int = 0) -> None:
    """Writes the checksum of the batch as it is now."""
    _CRC.pack_into(buffer, position + CRC_AT, checksum(buffer, position, read_header(buffer, position)))


def with_header(header: BatchHeader, payload: Buffer) -> bytes:
    """A batch of this header around other records: length and checksum are set to fit."""
    return _sealed(header[0], header[2], header[3], header[5:], payload)


def new_batch(
    count: int,
    base_timestamp: int,
    max_timestamp: int,
    payload: Buffer,
    *,
    attributes: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch around `count` records, packed as `attributes` say."""
    checked = (
        attributes, count - 1, base_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count
    )  # fmt: skip
    return _sealed(base_offset, leader_epoch, MAGIC, checked, payload)


def _sealed(
    base_offset: int, leader_epoch: int, magic: int, checked_fields: Sequence[int], payload: Buffer
) -> bytes:
    checked = _CHECKED.pack(*checked_fields)
    crc = crc32c(payload, crc32c(checked))
    placed = _PLACED.pack(base_offset, LENGTH_MIN + len(payload), leader_epoch, magic, crc)
    return b"".join((placed, checked, payload))


def _corrupt(message: str) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, message)
