"""What is inside record batches: build one from records, open one, keep some records, change the codec.

Records are read by aiokafka's compiled code, which is imported when the first batch is opened (or by `load_reader`):
the import takes longer than a broker's whole start, and many brokers never open one. Batches are built here (the
broker builds few and small ones). Where a batch keeps only some of its records (compaction), their bytes are copied.
"""

import struct
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from functools import cache
from itertools import accumulate, islice
from typing import Any, NamedTuple, Protocol

from headrace.wire.batches import (
    COMPRESSION_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    Compression,
    new_batch,
    read_header,
    with_header,
)
from headrace.wire.compression import compress, decompress
from headrace.wire.errors import ErrorCode, KafkaError

Headers = Sequence[tuple[str, bytes | None]]

_CONTROL_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class NewRecord(NamedTuple):
    """A record that has no offset yet. `timestamp` in milliseconds since 1970."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: int = NO_TIMESTAMP


class Record(Protocol):
    @property
    def offset(self) -> int: ...
    @property
    def timestamp(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> list[tuple[str, bytes | None]]: ...


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1


class Marker(NamedTuple):
    """What a control batch says about its producer's transaction."""

    control_type: int
    coordinator_epoch: int

    @property
    def is_commit(self) -> bool:
        return self.control_type == ControlType.COMMIT


def build_batch(
    records: Iterable[tuple[bytes | None, bytes | None, Headers, int]],
    *,
    compression: int = Compression.NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """One batch of records (key, value, headers, timestamp), such as `NewRecord`s."""
    encoded: list[bytes] = []
    base_timestamp = max_timestamp = NO_TIMESTAMP
    for key, value, headers, timestamp in records:
        if not encoded:
            base_timestamp = max_timestamp = timestamp
        max_timestamp = max(max_timestamp, timestamp)
        encoded.append(encode_record(len(encoded), timestamp - base_timestamp, key, value, headers))
    payload = b"".join(encoded)
    if not encoded:
        compression = Compression.NONE
    return new_batch(
        len(encoded),
        base_timestamp,
        max_timestamp,
        compress(compression, payload) if compression else payload,
        attributes=compression | TRANSACTIONAL if is_transactional else compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def build_marker(
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """The control batch that ends a transaction (Kafka's EndTxnMarker, version 0)."""
    key = _CONTROL_KEY.pack(0, ControlType.COMMIT if commit else ControlType.ABORT)
    plain = build_batch(
        [NewRecord(key, _MARKER_VALUE.pack(0, coordinator_epoch), (), timestamp)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )
    header = read_header(plain)
    return with_header(header._replace(attributes=header.attributes | CONTROL), plain[HEADER_SIZE:])


def read_marker(batch: Buffer) -> Marker | None:
    """None for a control batch that ends no transaction: of another kind, or one that compaction has emptied."""
    data = bytes(batch)
    try:
        if not read_header(data).record_count:
            return None
        _, position = _read_varint(data, HEADER_SIZE)  # length; then one byte of attributes
        _, position = _read_varint(data, position + 1)  # timestamp delta
        _, position = _read_varint(data, position)  # offset delta
        key_length, key = _read_varint(data, position)
        _, control_type = _CONTROL_KEY.unpack_from(data, key)
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        _, value = _read_varint(data, key + key_length)
        _, coordinator_epoch = _MARKER_VALUE.unpack_from(data, value)
    except (struct.error, IndexError):
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, "A control batch without a complete control record."
        ) from None
    return Marker(control_type, coordinator_epoch)


def read_records(batch: Buffer, into: list[Record] | None = None) -> list[Record]:
    """The records of the (first) batch. KafkaError(CORRUPT_MESSAGE) when they are not what its header says.

    They are put into the list `into` in one step, so that a caller who is interrupted by a signal has them there.
    """
    records = [] if into is None else into
    try:
        records.extend(_open(batch))
    except (_corrupt_record(), ValueError, IndexError) as error:
        raise _unreadable(error) from None
    return records


def read_chunks(batch: Buffer, size: int = 256) -> Iterator[list[Record]]:
    """The same in lists of at most `size`.

    For readers that let go of each list: Python's collector of cycles then never walks over thousands of live records,
    which makes large batches more than twice as fast.
    """
    try:
        # The compiled batch is its own iterator and refuses a second iter(), which islice would ask for.
        records = iter(iter(_open(batch)).__next__, None)
        while chunk := list(islice(records, size)):
            yield chunk
    except (_corrupt_record(), ValueError, IndexError) as error:
        raise _unreadable(error) from None


def unpack(batch: Buffer, *, limit: int | None = None) -> bytes:
    """The same batch without compression. `compression.TooLarge` if its records are more than `limit` bytes then."""
    header = read_header(batch)
    if not header.compression:
        return bytes(batch[: header.size])
    return _plain(header, _payload(header, batch, limit=limit))


def unpacked(header: BatchHeader, batch: Buffer) -> Buffer:
    """The bytes of the batch's records, without compression."""
    if header.compression:
        return _payload(header, batch)
    return memoryview(batch)[HEADER_SIZE : header.size]


def _open(batch: Buffer) -> Any:
    header = read_header(batch)
    if header.compression:
        batch = _plain(header, _payload(header, batch))
    elif len(batch) > header.size:
        batch = batch[: header.size]
    return _reader()(bytes(batch))


def _unreadable(error: Exception) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Records cannot be read: {error}")


def recompress(batch: Buffer, compression: int, *, limit: int | None = None) -> bytes:
    """The same batch packed by another codec; not one record is touched. `limit` as for `unpack`."""
    header = read_header(batch)
    if header.compression == compression:
        return bytes(batch)
    return _repack(header, _payload(header, batch, limit=limit), compression)


def keep_records(
    batch: Buffer, wanted: Callable[[Record], bool], *, delete_horizon_ms: int | None = None
) -> bytes:
    """The batch with only the wanted records. Offsets, sequences and the batch's own range of offsets stay.

    With `delete_horizon_ms` that time goes into the header (KIP-534), in the place of the base timestamp.
    """
    header = read_header(batch)
    payload = _payload(header, batch)
    records = read_records(_plain(header, payload))
    kept = bytearray()
    count = position = 0
    max_timestamp = NO_TIMESTAMP
    shift = 0 if delete_horizon_ms is None else header.base_timestamp - delete_horizon_ms
    for record in records:
        length, body = _read_varint(payload, position)
        end = body + length
        if wanted(record):
            count += 1
            max_timestamp = max(max_timestamp, record.timestamp)
            kept += _shift_timestamp(payload, body, end, shift) if shift else payload[position:end]
        position = end
    header = header._replace(record_count=count)
    if not header.is_log_append_time:
        header = header._replace(max_timestamp=max_timestamp)
    if delete_horizon_ms is not None:
        header = header._replace(
            attributes=header.attributes | DELETE_HORIZON, base_timestamp=delete_horizon_ms
        )
    return _repack(header, bytes(kept), header.compression)


def empty_batch(header: BatchHeader) -> bytes:
    """The header alone: keeps a producer's last sequence in a log whose records are compacted away."""
    return with_header(header._replace(attributes=header.attributes & ~COMPRESSION_MASK, record_count=0), b"")


def _payload(header: BatchHeader, batch: Buffer, *, limit: int | None = None) -> bytes:
    with memoryview(batch) as view:
        return decompress(header.compression, view[HEADER_SIZE : header.size], limit=limit)


def _plain(header: BatchHeader, payload: bytes) -> bytes:
    return with_header(header._replace(attributes=header.attributes & ~COMPRESSION_MASK), payload)


def _repack(header: BatchHeader, payload: bytes, compression: int) -> bytes:
    attributes = header.attributes & ~COMPRESSION_MASK
    if not header.record_count:
        return with_header(header._replace(attributes=attributes), payload)
    return with_header(header._replace(attributes=attributes | compression), compress(compression, payload))


def encode_record(
    index: int, timestamp_delta: int, key: bytes | None, value: bytes | None, headers: Headers
) -> bytes:
    """One record as it stands in a batch, before compression."""
    if key is None and value is not None and not headers:
        size = len(value)
        if size < _USUAL_SIZE_MAX and 0 <= timestamp_delta < _SMALL and index < _SMALL:
            # The usual record: every number in it is in the table.
            small = _SMALL_VARINTS
            time, place, length = small[timestamp_delta], small[index], small[size]
            body_size = len(time) + len(place) + len(length) + size + 3  # attributes, no key, no headers
            return b"".join(
                (small[body_size], _NO_ATTRIBUTES, time, place, _NULL, length, value, _NO_HEADERS)
            )
    key_length = _NULL if key is None else _varint(len(key))
    value_length = _NULL if value is None else _varint(len(value))
    body = b"".join(
        (
            _NO_ATTRIBUTES,
            _varint(timestamp_delta),
            _varint(index),
            key_length,
            key or b"",
            value_length,
            value or b"",
            _encode_headers(headers) if headers else _NO_HEADERS,
        )
    )
    return _varint(len(body)) + body


def encode_values(
    index: int, timestamp_delta: int, values: Sequence[bytes], room: int
) -> tuple[list[bytes], int]:
    """Records of values alone, all at one time: the parts of the first ones that fit into `room` bytes, and how many.

    The parts make the same bytes as `encode_record` for each.
    """
    sizes = [*map(len, values)]
    if sizes.count(sizes[0]) == len(sizes):
        return _encode_alike(index, timestamp_delta, values, sizes[0], room)
    time = _varint(timestamp_delta)
    places = _places(index, index + len(sizes))
    if max(sizes) < _USUAL_SIZE_MAX and len(time) + len(places[-1]) < 8:
        small, rest = _SMALL_VARINTS, len(time) + 3
        before = _NO_ATTRIBUTES + time
        records = [
            b"".join(
                (small[rest + len(place) + len(length := small[size]) + size], before, place, _NULL, length, value,
                 _NO_HEADERS)
            )
            for place, size, value in zip(places, sizes, values, strict=True)
        ]  # fmt: skip
    else:
        records = [
            encode_record(index + place, timestamp_delta, None, value, ())
            for place, value in enumerate(values)
        ]
    count = bisect_right([*accumulate(map(len, records))], room)
    return records[:count], count


def _encode_alike(
    index: int, timestamp_delta: int, values: Sequence[bytes], size: int, room: int
) -> tuple[list[bytes], int]:
    """`encode_values` of values that have one size: their records differ in index and value alone."""
    parts: list[bytes] = []
    time, length = _varint(timestamp_delta), _varint(size)
    done = 0
    while done < len(values):
        place = _varint(index)
        body_size = len(time) + len(place) + len(length) + size + 3  # attributes, no key, no headers
        before = _varint(body_size) + _NO_ATTRIBUTES + time
        record_size = len(before) + len(place) + 1 + len(length) + size + 1
        more = 1 << (7 * len(place) - 1)  # the first index that takes more bytes
        fitting = min(len(values) - done, more - index, room // record_size)
        if fitting <= 0:
            break
        places = _places(index, index + fitting)
        after = _NULL + length
        parts += [
            part
            for place, value in zip(places, values[done : done + fitting], strict=True)
            for part in (before, place, after, value, _NO_HEADERS)
        ]
        room -= fitting * record_size
        index += fitting
        done += fitting
    return parts, done


def _places(first: int, end: int) -> Sequence[bytes]:
    """The indexes of some records of a batch, as they stand in it."""
    known = _many_varints()
    return known[first:end] if end <= len(known) else [_varint(index) for index in range(first, end)]


@cache
def _many_varints() -> tuple[bytes, ...]:
    """For producers, whose batches are large."""
    return _SMALL_VARINTS + tuple(_long_varint(number) for number in range(_SMALL, 4 * _SMALL))


def _encode_headers(headers: Headers) -> bytes:
    parts = [_varint(len(headers))]
    for name, content in headers:
        encoded = name.encode()
        parts += _varint(len(encoded)), encoded
        parts += (_NULL, b"") if content is None else (_varint(len(content)), content)
    return b"".join(parts)


def _shift_timestamp(payload: bytes, body: int, end: int, shift: int) -> bytes:
    """The record with `shift` added to its timestamp delta, which comes after one byte of attributes."""
    delta, rest = _read_varint(payload, body + 1)
    moved = payload[body : body + 1] + _varint(delta + shift) + payload[rest:end]
    return _varint(len(moved)) + moved


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position
        shift += 7


def _varint(number: int) -> bytes:
    if 0 <= number < len(_SMALL_VARINTS):
        return _SMALL_VARINTS[number]
    return _long_varint(number)


def _long_varint(number: int) -> bytes:
    number = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SMALL = 2048
_USUAL_SIZE_MAX = _SMALL - 16
_SMALL_VARINTS = tuple(_long_varint(number) for number in range(_SMALL))
"""Most lengths, indexes and times of a batch are small."""
_NULL = _long_varint(-1)
_NO_ATTRIBUTES = b"\0"
_NO_HEADERS = _long_varint(0)


_importing = threading.Lock()
"""aiokafka's modules import each other in circles, so two threads that import them at once may see half a module."""


def load_reader() -> None:
    """Does the slow import beforehand, for whoever has to wait for something else anyway. On any thread.

    Whoever imports from aiokafka directly, beside other threads, calls this first.
    """
    _reader()


@cache
def _reader() -> Any:
    with _importing:
        from aiokafka.record.default_records import DefaultRecordBatch

    return DefaultRecordBatch


@cache
def _corrupt_record() -> Any:
    with _importing:
        from aiokafka.errors import CorruptRecordException

    return CorruptRecordException
