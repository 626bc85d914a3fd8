"""From an arrival's bytes to its records: only acquired ones, batch by batch, and what to say of the rest.

A batch that holds nothing of ours is not opened. Acquired offsets without a record (control records, and what
compaction took away) become gaps, which the broker is told about. A batch whose checksum or content is wrong is
damaged for every reader, so its acquired offsets are to be rejected; bytes that cannot even be cut into batches may be
whole elsewhere, so what lies in them is to be released.

With record_limit a broker sends a large batch again and again, whenever a few more of its records are acquired.
`Opened` remembers the last such batches, so that each is opened once.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from headrace.client.core.acquired import GAP, OPEN, REJECT, RELEASE, Acquired
from headrace.client.core.holdings import Arrival
from headrace.client.delivery import Delivery
from headrace.client.errors import error_for
from headrace.wire.batches import BatchHeader, is_intact, split
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import Record, read_records

OPENED_MAX = 4


class Readable(NamedTuple):
    """Records of one acquisition, in order, with the bytes of their keys and values."""

    acquired: Acquired
    records: list[Delivery]


class Damaged(NamedTuple):
    """Acquired offsets whose records cannot be had; `mark` is what to tell the broker."""

    acquired: Acquired
    first: int
    last: int
    mark: int
    error: KafkaError


class Opened:
    """The records of a few batches of which more may be acquired. One belongs to one consumer."""

    def __init__(self) -> None:
        self._batches: dict[tuple[bytes, int, int, int], list[Record]] = {}

    def find(self, arrival: Arrival, header: BatchHeader) -> list[Record] | None:
        return self._batches.get(_name(arrival, header))

    def keep(
        self, arrival: Arrival, header: BatchHeader, ours: Sequence[Acquired], records: list[Record]
    ) -> None:
        name = _name(arrival, header)
        self._batches.pop(name, None)
        if ours[-1].last >= header.last_offset:
            return  # that was its end, most likely
        self._batches[name] = records
        if len(self._batches) > OPENED_MAX:
            del self._batches[next(iter(self._batches))]


def _name(arrival: Arrival, header: BatchHeader) -> tuple[bytes, int, int, int]:
    return arrival.topic_id, arrival.partition, header.base_offset, header.crc


def decode(arrival: Arrival, *, check_crcs: bool, opened: Opened | None = None) -> list[Readable | Damaged]:
    """What the arrival holds for us, in the order of its offsets. Gaps are marked on the way."""
    opened = opened or Opened()
    pieces: list[Readable | Damaged] = []
    ranges = arrival.acquired
    following = 0
    try:
        for position, header in split(arrival.records):
            while following < len(ranges) and ranges[following].last < header.base_offset:
                following += 1
            ours = list(_overlapping(ranges, following, header))
            if ours and not header.is_control:
                _open_batch(arrival, position, header, ours, pieces, check_crcs, opened)
    except KafkaError as error:
        _cut_short(arrival, ranges, pieces, error)
    for acquired in ranges:
        _mark_gaps(acquired, pieces)
    return pieces


def _overlapping(ranges: Sequence[Acquired], start: int, header: BatchHeader) -> Iterator[Acquired]:
    last = header.last_offset
    for index in range(start, len(ranges)):
        if ranges[index].first > last:
            return
        yield ranges[index]


def _open_batch(
    arrival: Arrival,
    position: int,
    header: BatchHeader,
    ours: list[Acquired],
    pieces: list[Readable | Damaged],
    check_crcs: bool,
    opened: Opened,
) -> None:
    base, last = header.base_offset, header.last_offset
    try:
        records = opened.find(arrival, header)
        if records is None:
            if check_crcs and not is_intact(arrival.records, position, header):
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "The record batch does not match its checksum")
            with memoryview(arrival.records) as view, view[position : position + header.size] as batch:
                records = read_records(batch)
        opened.keep(arrival, header, ours, records)
    except Exception as error:  # whatever a codec makes of damaged bytes
        text = error.message if isinstance(error, KafkaError) else str(error)
        where = f"{arrival.topic}-{arrival.partition}, offsets {base} to {last}"
        found = error_for(ErrorCode.CORRUPT_MESSAGE, text, about=where)
        for acquired in ours:
            low, high = max(acquired.first, base), min(acquired.last, last)
            pieces.append(Damaged(acquired, low, high, REJECT, found))
        return
    for acquired in ours:
        wanted = records
        if acquired.first > base or acquired.last < last:
            wanted = _part(records, base, last, acquired)
        if acquired.marks is not None:
            wanted = [record for record in wanted if acquired.mark_of(record.offset) == OPEN]
        if wanted:
            # The compiled reader's objects go at once: the collector of cycles need not walk over them.
            kind = int(header.is_log_append_time)
            deliveries = [
                Delivery(one.key, one.value, one.offset, one.timestamp, one.headers or (), kind, acquired)
                for one in wanted
            ]
            _add(pieces, acquired, deliveries)


def _part(records: list[Record], base: int, last: int, acquired: Acquired) -> list[Record]:
    if len(records) == last - base + 1:  # no holes: the place of a record says its offset
        return records[max(0, acquired.first - base) : acquired.last - base + 1]
    return [record for record in records if record.offset in acquired]


def _add(pieces: list[Readable | Damaged], acquired: Acquired, records: list[Delivery]) -> None:
    if pieces:
        last = pieces[-1]
        if isinstance(last, Readable) and last.acquired is acquired:
            last.records.extend(records)
            return
    pieces.append(Readable(acquired, records))


def _cut_short(
    arrival: Arrival, ranges: Sequence[Acquired], pieces: list[Readable | Damaged], error: KafkaError
) -> None:
    """Everything behind the last readable offset is released."""
    seen = -1
    for piece in pieces:
        seen = piece.records[-1].offset if isinstance(piece, Readable) else piece.last
    found = error_for(
        error.code, error.message, about=f"{arrival.topic}-{arrival.partition} behind offset {seen}"
    )
    for acquired in ranges:
        first = max(acquired.first, seen + 1)
        if first <= acquired.last:
            pieces.append(Damaged(acquired, first, acquired.last, RELEASE, found))


def _mark_gaps(acquired: Acquired, pieces: Sequence[Readable | Damaged]) -> None:
    count = 0
    for piece in pieces:
        if piece.acquired is acquired:
            count += len(piece.records) if isinstance(piece, Readable) else piece.last - piece.first + 1
    if count >= acquired.open_count:
        return
    present = bytearray(acquired.count)
    for piece in pieces:
        if piece.acquired is not acquired:
            continue
        if isinstance(piece, Readable):
            for record in piece.records:
                present[record.offset - acquired.first] = 1
        else:
            low, high = piece.first - acquired.first, piece.last - acquired.first + 1
            present[low:high] = b"\1" * (high - low)
    for index, is_there in enumerate(present):
        if not is_there and acquired.mark_of(acquired.first + index) == OPEN:
            acquired.choose(acquired.first + index, GAP)
