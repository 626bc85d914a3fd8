"""From an arrival's bytes to its records: only acquired ones, batch by batch, and what to say of the rest.

What becomes of the records is a `Sink`'s business: `Deliveries` here, columns in `batches.py`.

A batch that holds nothing of ours is not opened. Acquired offsets without a record (control records, and what
compaction took away) are gaps, which the broker is told about. A batch that does not match its checksum is damaged for
every reader, so its acquired offsets are to be rejected. What cannot be read for another reason is to be released: a
batch of an unknown codec, or bytes that cannot be cut into batches. Any other exception, such as MemoryError or one
from a signal handler, says nothing about the records: it passes to the caller, and `decode` has changed nothing.

With record_limit a broker sends a large batch again and again, whenever a few more of its records are acquired.
`Opened` remembers the last such batches, so that each is opened once.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from headrace.client.core.holdings import Arrival
from headrace.client.core.ranges import AcquiredRange, RangeState
from headrace.client.delivery import AcknowledgeType, Delivery, Grant, Keeper
from headrace.client.errors import error_for
from headrace.wire.batches import (
    COMPRESSION_MASK,
    CONTROL,
    FRAME_SIZE,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    is_intact,
    read_header,
    split,
)
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import Record, read_records

OPENED_MAX = 4
SMALL_MAX = 16
"""Records of a batch that is read in one go. A larger one goes into `Opened` first: see there."""
ALL_TAKEN = RangeState.TAKEN
TAKEN = bytes([ALL_TAKEN])


class Readable(NamedTuple):
    """Records of one acquisition, in order, with the bytes of their keys and values."""

    acquired: AcquiredRange
    records: list[Delivery]

    @property
    def offsets(self) -> list[int]:
        return [record.offset for record in self.records]

    @property
    def size(self) -> int:
        return len(self.records)


class Rows(NamedTuple):
    """Records of one acquisition that have become rows: their offsets, in order."""

    acquired: AcquiredRange
    offsets: Sequence[int]

    @property
    def size(self) -> int:
        return len(self.offsets)


class Damaged(NamedTuple):
    """Acquired offsets whose records cannot be had; `type` is what to tell the broker."""

    acquired: AcquiredRange
    first: int
    last: int
    type: AcknowledgeType
    error: Exception

    @property
    def offsets(self) -> range:
        return range(self.first, self.last + 1)

    @property
    def size(self) -> int:
        return self.last - self.first + 1


Piece = Readable | Rows | Damaged


class Gap(NamedTuple):
    """Acquired offsets without a record."""

    acquired: AcquiredRange
    first: int
    last: int


class Decoded(NamedTuple):
    pieces: list[Piece]
    gaps: list[Gap]


class Sink(Protocol):
    """What the acquired records of intact batches go into."""

    def knows(self, arrival: Arrival, header: BatchHeader) -> bool:
        """It has read this batch before, so that its checksum need not be looked at again."""

    def read(
        self,
        arrival: Arrival,
        position: int,
        header: BatchHeader,
        ours: list[AcquiredRange],
        pieces: list[Piece],
    ) -> None:
        """Adds what is ours in a batch to the pieces. KafkaError when it cannot be read: then it has added nothing."""


class Opened:
    """The records of a few batches of which more may be acquired. One belongs to one consumer."""

    def __init__(self) -> None:
        self._batches: dict[tuple[bytes, int, int, int], list[Record]] = {}
        self._reading: tuple[tuple[bytes, int, int, int] | None, list[Record]] = None, []
        """The batch that was read last. It is there again for a poll after one that was interrupted meanwhile."""

    @property
    def is_empty(self) -> bool:
        return not self._batches and self._reading[0] is None

    def find(self, arrival: Arrival, header: BatchHeader) -> list[Record] | None:
        if self.is_empty:
            return None
        name = _name(arrival, header)
        reading, records = self._reading
        if reading == name and len(records) == header.record_count:
            return records
        return self._batches.get(name)

    def begin(self, arrival: Arrival, header: BatchHeader) -> list[Record]:
        """Where the records of a batch are to be put."""
        records: list[Record] = []
        self._reading = _name(arrival, header), records
        return records

    def done(self) -> None:
        """All of what was read has become deliveries."""
        self._reading = None, []

    def keep(
        self, arrival: Arrival, header: BatchHeader, ours: Sequence[AcquiredRange], records: list[Record]
    ) -> None:
        is_end = ours[-1].last >= header.base_offset + header.last_offset_delta  # most likely
        if is_end and not self._batches:
            return
        name = _name(arrival, header)
        self._batches.pop(name, None)
        if is_end:
            return
        self._batches[name] = records
        if len(self._batches) > OPENED_MAX:
            del self._batches[next(iter(self._batches))]


def _name(arrival: Arrival, header: BatchHeader) -> tuple[bytes, int, int, int]:
    return arrival.topic_id, arrival.partition, header.base_offset, header.crc


def decode(arrival: Arrival, keeper: Keeper, *, check_crcs: bool, opened: Opened | None = None) -> Decoded:
    """What the arrival holds for us, in the order of its offsets, as deliveries."""
    if len(arrival.acquired) == 1 and (opened is None or opened.is_empty):
        usual = _decode_usual(arrival, keeper, check_crcs)
        if usual is not None:
            return usual
    return decode_into(Deliveries(arrival, keeper, opened or Opened()), arrival, check_crcs=check_crcs)


def _decode_usual(arrival: Arrival, keeper: Keeper, check_crcs: bool) -> Decoded | None:
    """The same for one small batch of which all was acquired, intact and not compressed; None for all else."""
    records = arrival.records
    if len(records) < HEADER_SIZE:
        return None
    header = read_header(records)
    (acquired,) = arrival.acquired
    count = header.record_count
    if (
        header.magic != MAGIC
        or header.attributes & (COMPRESSION_MASK | CONTROL)
        or header.length + FRAME_SIZE != len(records)
        or not 0 < count <= SMALL_MAX
        or header.last_offset_delta + 1 != count
        or acquired.first != header.base_offset
        or acquired.count != count
        or not acquired.is_all(ALL_TAKEN)
        or (check_crcs and not is_intact(records, 0, header))
    ):
        return None
    kind = 1 if header.attributes & LOG_APPEND_TIME else 0
    grant = Grant(acquired, keeper)
    try:
        deliveries = [
            Delivery(one.key, one.value, one.offset, one.timestamp, one.headers or (), kind, grant)
            for one in read_records(records)
        ]
    except KafkaError:
        return None
    return Decoded([Readable(acquired, deliveries)], [])


def decode_into(sink: Sink, arrival: Arrival, *, check_crcs: bool) -> Decoded:
    """What the arrival holds for us, in the order of its offsets."""
    pieces: list[Piece] = []
    ranges = arrival.acquired
    following = 0
    try:
        for position, header in split(arrival.records):
            while following < len(ranges) and ranges[following].last < header.base_offset:
                following += 1
            ours = _overlapping(ranges, following, header)
            if ours and not header.attributes & CONTROL:
                _open_batch(arrival, position, header, ours, pieces, check_crcs, sink)
    except KafkaError as error:
        _cut_short(arrival, ranges, pieces, error)
    gaps: list[Gap] = []
    if len(pieces) == len(ranges) == 1 and _is_complete(pieces[0]):
        return Decoded(pieces, gaps)
    for acquired in ranges:
        gaps += _gaps(acquired, pieces)
    return Decoded(pieces, gaps)


def _overlapping(ranges: Sequence[AcquiredRange], start: int, header: BatchHeader) -> list[AcquiredRange]:
    last = header.base_offset + header.last_offset_delta
    found = []
    for index in range(start, len(ranges)):
        if ranges[index].first > last:
            break
        found.append(ranges[index])
    return found


def _open_batch(
    arrival: Arrival,
    position: int,
    header: BatchHeader,
    ours: list[AcquiredRange],
    pieces: list[Piece],
    check_crcs: bool,
    sink: Sink,
) -> None:
    if check_crcs and not sink.knows(arrival, header) and not is_intact(arrival.records, position, header):
        text = "The record batch does not match its checksum; its records are rejected"
        _damaged(arrival, header, ours, pieces, AcknowledgeType.REJECT, text)
        return
    try:
        sink.read(arrival, position, header, ours, pieces)
    except KafkaError as error:
        text = f"{(error.message or 'They cannot be read').rstrip('.')}; the records are released"
        _damaged(arrival, header, ours, pieces, AcknowledgeType.RELEASE, text)


class Deliveries:
    """A sink that makes a `Delivery` of each record."""

    def __init__(self, arrival: Arrival, keeper: Keeper, opened: Opened) -> None:
        self._grants = {acquired: Grant(acquired, keeper) for acquired in arrival.acquired}
        self._opened = opened

    def knows(self, arrival: Arrival, header: BatchHeader) -> bool:
        return self._opened.find(arrival, header) is not None

    def read(
        self,
        arrival: Arrival,
        position: int,
        header: BatchHeader,
        ours: list[AcquiredRange],
        pieces: list[Piece],
    ) -> None:
        base = header.base_offset
        last = base + header.last_offset_delta
        opened = self._opened
        records = opened.find(arrival, header)
        if records is None:
            batch = arrival.records[position : position + header.length + FRAME_SIZE]
            records = read_records(batch, opened.begin(arrival, header))
        opened.keep(arrival, header, ours, records)
        for acquired in ours:
            wanted = records
            if acquired.first > base or acquired.last < last:
                wanted = _part(records, base, last, acquired)
            if not acquired.is_all(ALL_TAKEN):
                wanted = [record for record in wanted if acquired.state_of(record.offset) is ALL_TAKEN]
            if wanted:
                # The compiled reader's objects go at once: the collector of cycles need not walk over them.
                kind = 1 if header.attributes & LOG_APPEND_TIME else 0
                grant = self._grants[acquired]
                deliveries = [
                    Delivery(one.key, one.value, one.offset, one.timestamp, one.headers or (), kind, grant)
                    for one in wanted
                ]
                _add(pieces, acquired, deliveries)


def _damaged(
    arrival: Arrival,
    header: BatchHeader,
    ours: Sequence[AcquiredRange],
    pieces: list[Piece],
    type: AcknowledgeType,
    text: str,
) -> None:
    base, last = header.base_offset, header.last_offset
    where = f"{arrival.topic}-{arrival.partition}, offsets {base} to {last}"
    found = error_for(ErrorCode.CORRUPT_MESSAGE, text, about=where)
    for acquired in ours:
        low, high = max(acquired.first, base), min(acquired.last, last)
        pieces.append(Damaged(acquired, low, high, type, found))


def _part(records: list[Record], base: int, last: int, acquired: AcquiredRange) -> list[Record]:
    if len(records) == last - base + 1:  # no holes: the place of a record says its offset
        return records[max(0, acquired.first - base) : acquired.last - base + 1]
    return [record for record in records if record.offset in acquired]


def _add(pieces: list[Piece], acquired: AcquiredRange, records: list[Delivery]) -> None:
    if pieces:
        last = pieces[-1]
        if isinstance(last, Readable) and last.acquired is acquired:
            last.records.extend(records)
            return
    pieces.append(Readable(acquired, records))


def _cut_short(
    arrival: Arrival, ranges: Sequence[AcquiredRange], pieces: list[Piece], error: KafkaError
) -> None:
    """Everything behind the last readable offset is released."""
    seen = -1
    for piece in pieces:
        seen = piece.offsets[-1]
    found = error_for(
        error.code, error.message, about=f"{arrival.topic}-{arrival.partition} behind offset {seen}"
    )
    for acquired in ranges:
        first = max(acquired.first, seen + 1)
        if first <= acquired.last:
            pieces.append(Damaged(acquired, first, acquired.last, AcknowledgeType.RELEASE, found))


def _is_complete(piece: Piece) -> bool:
    return not isinstance(piece, Damaged) and piece.size == piece.acquired.count


def _gaps(acquired: AcquiredRange, pieces: Sequence[Piece]) -> Iterator[Gap]:
    ours = [piece for piece in pieces if piece.acquired is acquired]
    if sum(piece.size for piece in ours) >= acquired.count_of(TAKEN):
        return
    present: set[int] = set()
    for piece in ours:
        present.update(piece.offsets)
    for span in list(acquired.spans(of=TAKEN)):
        first: int | None = None
        for offset in range(span.first, span.last + 2):
            is_gap = offset <= span.last and offset not in present
            if is_gap and first is None:
                first = offset
            elif not is_gap and first is not None:
                yield Gap(acquired, first, offset - 1)
                first = None
