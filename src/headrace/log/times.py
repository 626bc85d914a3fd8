"""Looking for records by their timestamps: the time index narrows it down, then batches are opened.

A search is a generator that does a bounded amount of work between two yields. It yields None where it may pause: the
log may change meanwhile, and the search goes on with what is there then. It yields a `Batch` that has to be opened:
whoever drives the search has it looked through (`look`, on any thread), and then goes on. A batch that holds more bytes
than that is allowed to open is answered with where it begins, so that a reader gets some records too many and never
one too few.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from headrace.log.background import Pace
from headrace.log.errors import deleted, storage_error
from headrace.log.segment import Segment
from headrace.wire.batches import BatchHeader
from headrace.wire.compression import TooLarge
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import Record, read_chunks, unpack

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

AT_ONCE_BYTES_MAX = 1 << 20
"""Of a batch that is opened on the event loop."""
AT_LEISURE_BYTES_MAX = 32 << 20
"""Of one that is opened by a worker."""
SMALL_BYTES = 4096
HEADER_COST = 2
READING_COST = 50
BYTES_PER_COST = 1 << 20
"""What a step costs (see `Pace`): for a header, and for reading the indexes of a segment, which grow with it."""

Found = tuple[int, int]
"""Timestamp and offset."""


class UnopenedBatch:
    """One that has to be opened to find a record in it."""

    __slots__ = ("_data", "_error", "_found", "_header", "_is_wanted")

    def __init__(self, data: bytes, header: BatchHeader, is_wanted: Callable[[Record], bool]) -> None:
        self._data = data
        self._header = header
        self._is_wanted = is_wanted
        self._found: Record | None = None
        self._error: KafkaError | None = None

    @property
    def is_small(self) -> bool:
        """Opening it takes no longer than finding it."""
        return self._header.size <= SMALL_BYTES and not self._header.compression

    def look(self, limit: int) -> None:
        """On any thread."""
        try:
            self._found = self._first(limit)
        except KafkaError as error:
            self._error = error

    def _first(self, limit: int) -> Record | None:
        if not self._header.record_count:
            return None
        if self._header.size > limit and not self._header.compression:
            raise TooLarge(
                ErrorCode.MESSAGE_TOO_LARGE, f"{self._header.size} bytes where {limit} are allowed"
            )
        for chunk in read_chunks(unpack(self._data, limit=limit)):
            for record in chunk:
                if self._is_wanted(record):
                    return record
        return None

    def found(self) -> Record | None:
        """The first record that is wanted. KafkaError if that cannot be said, TooLarge among them."""
        if self._error is not None:
            raise self._error
        return self._found


Search = Generator[UnopenedBatch | None, None, Found | None]


def at_once(search: Search) -> Found | None:
    """The whole search, on this thread: with the limit of the event loop for what is opened."""
    try:
        while True:
            batch = next(search)
            if batch is not None:
                batch.look(AT_ONCE_BYTES_MAX)
    except StopIteration as end:
        found: Found | None = end.value
        return found


def offset_for_time(log: "PartitionLog", timestamp_ms: int, *, committed: bool = False) -> Found | None:
    """The first record that is not older than `timestamp_ms`.

    On the spot: where a batch is too large to be opened on the loop's thread, that is its first offset.
    """
    return at_once(search_time(log, timestamp_ms, committed=committed))


def search_time(log: "PartitionLog", timestamp_ms: int, *, committed: bool = False) -> Search:
    """`offset_for_time` in steps."""
    try:
        limit_offset = log.stable_offset if committed else log.end_offset
        return (yield from _find_time(log, timestamp_ms, limit_offset))
    except OSError as error:
        raise storage_error(log, "cannot be read", error) from error


def search_max_timestamp(log: "PartitionLog") -> Search:
    """The record with the largest timestamp, the first of several. In steps."""
    try:
        return (yield from _find_max_timestamp(log))
    except OSError as error:
        raise storage_error(log, "cannot be read", error) from error


def _find_time(log: "PartitionLog", timestamp_ms: int, end_offset: int) -> Search:
    """The first record before `end_offset` that is not older than `timestamp_ms`."""
    pace = Pace()
    next_offset = log.start_offset
    while next_offset < end_offset and (segment := _segment_at(log, next_offset)) is not None:
        is_older = segment.is_dated and segment.max_timestamp < timestamp_ms
        if pace.spend(1 if is_older else _cost_of(segment)):
            yield None
            if not _is_there(log, segment):
                continue
        segment.newest_ms()  # a closed segment learns its largest timestamp there
        end = log.end_after(segment)
        if segment.max_timestamp >= timestamp_ms:
            for position, header in segment.headers(segment.position_before_time(timestamp_ms)):
                if pace.spend(HEADER_COST):
                    yield None
                    if not _is_there(log, segment):
                        break
                next_offset = max(next_offset, header.next_offset)
                if header.base_offset >= end_offset:
                    return None
                if header.max_timestamp < timestamp_ms or header.last_offset < log.start_offset:
                    continue
                is_wanted = _not_older(timestamp_ms, log.start_offset)
                batch = UnopenedBatch(segment.read(position, header.size), header, is_wanted)
                yield batch
                try:
                    record = batch.found()
                except TooLarge:
                    return header.max_timestamp, max(header.base_offset, log.start_offset)
                if record is not None:
                    return (record.timestamp, record.offset) if record.offset < end_offset else None
                if not _is_there(log, segment):
                    break
            else:
                next_offset = max(next_offset, end)
        else:
            next_offset = max(next_offset, end)
    return None


def _not_older(timestamp_ms: int, start_offset: int) -> Callable[[Record], bool]:
    return lambda record: record.timestamp >= timestamp_ms and record.offset >= start_offset


def _segment_at(log: "PartitionLog", offset: int) -> Segment | None:
    """The one that holds the offset, or the first of those after it; None at the log's end."""
    if not log.segments or offset >= log.end_offset:
        return None
    return log.segments[log.files.index_at(offset)]


def _is_there(log: "PartitionLog", segment: Segment) -> bool:
    """It was not dropped or rewritten meanwhile. KafkaError if the topic was deleted."""
    if log.is_deleted:
        raise deleted(log)
    return bool(log.segments) and log.segments[log.files.index_at(segment.base_offset)] is segment


def _cost_of(segment: Segment) -> int:
    return 1 if segment.is_indexed else READING_COST + segment.size // BYTES_PER_COST


def _find_max_timestamp(log: "PartitionLog") -> Search:
    pace = Pace()
    while True:
        for segment in list(log.segments):
            if not segment.is_dated and _is_there(log, segment):
                if pace.spend(_cost_of(segment)):
                    yield None
                if _is_there(log, segment):
                    segment.newest_ms()
        newest = max(log.segments, key=lambda segment: segment.max_timestamp, default=None)
        if newest is None or newest.max_timestamp < 0:
            return None
        if pace.spend(_cost_of(newest)):
            yield None
            if not _is_there(log, newest):
                continue
        found = newest.find(newest.max_timestamp_offset)
        if found is None:
            return None
        position, header = next(newest.headers(found[0]))
        batch = UnopenedBatch(newest.read(position, header.size), header, _of_time(header.max_timestamp))
        yield batch
        try:
            record = batch.found()
        except TooLarge:
            return header.max_timestamp, max(header.last_offset, log.start_offset)
        return (record.timestamp, max(record.offset, log.start_offset)) if record is not None else None


def _of_time(timestamp_ms: int) -> Callable[[Record], bool]:
    return lambda record: record.timestamp == timestamp_ms
