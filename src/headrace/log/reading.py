"""Reading a log: whole batches, as the slices of the segments' files that they are.

Theory of operation. `read` finds a position (by a remembered hint, else by the sparse index), works out from batch
headers how many whole batches fit, and returns that slice of the file. What a reader may see is the log's to say: its
start and end, the last stable offset, and where it is damaged.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from headrace.log.errors import deleted, out_of_range, storage_error
from headrace.log.segment import Segment
from headrace.wire.batches import HEADER_SIZE, read_header, split
from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

HINTS_MAX = 32
REPLAY_BYTES = 1024 * 1024


class Read(NamedTuple):
    data: bytes
    """Whole batches; the first may begin before the offset that was asked for."""
    aborted: list[tuple[int, int]]
    """Producer id and first offset of aborted transactions in the data; for committed reads."""
    next_offset: int


class LogReader:
    __slots__ = ("_hints", "_log", "_stop")

    def __init__(self, log: "PartitionLog") -> None:
        self._log = log
        self._hints: dict[int, tuple[Segment, int]] = {}
        """Where the reads that ended before an offset stopped: the next one most likely starts there."""
        self._stop: tuple[int, Segment, int] | None = None

    def read(
        self, offset: int, *, max_bytes: int, committed: bool = False, at_least_one: bool = True
    ) -> Read:
        """Whole batches from the one that holds `offset`, of one segment, up to `max_bytes` of them.

        The first batch comes whole even if it is larger, unless `at_least_one` is false. Committed reads end before
        the first undecided transaction.
        """
        log = self._log
        if log.is_deleted:
            raise deleted(log)
        end_offset = log.end_offset
        if offset < log.start_offset or offset > end_offset:
            raise out_of_range(log, offset)
        limit_offset = log.stable_offset if committed else end_offset
        damage = log.damage
        if damage is not None:
            limit_offset = min(limit_offset, damage.offset)
            if offset >= limit_offset == damage.offset:
                raise damage.error(log, ErrorCode.CORRUPT_MESSAGE)
        if offset >= limit_offset:
            if offset == end_offset and log.files.segments:
                active = log.files.segments[-1]
                self.remember(offset, active, active.size)
            return Read(b"", [], offset)
        try:
            found = self.locate(offset)
            if found is None:
                return Read(b"", [], offset)
            segment, position = found
            end, next_offset = self._extent(segment, position, max_bytes, limit_offset)
            if end - position > max_bytes and not at_least_one:
                return Read(b"", [], offset)
            data = segment.read(position, end - position) if end > position else b""
        except OSError as error:
            raise storage_error(log, "cannot be read", error) from error
        if not data:
            return Read(b"", [], offset)
        self.remember(next_offset, segment, end)
        return Read(data, log.transactions.between(offset, next_offset) if committed else [], next_offset)

    def _extent(self, segment: Segment, position: int, max_bytes: int, limit_offset: int) -> tuple[int, int]:
        """Where the whole batches to return end, and the offset after them. The first batch always counts."""
        stop, stop_offset = segment.size, self._log.end_after(segment)
        if limit_offset < stop_offset:
            stop, stop_offset = self._stop_before(limit_offset, segment), limit_offset
        if stop - position <= max_bytes:
            return max(stop, position), stop_offset
        return segment.extent(position, position + max_bytes)

    def _stop_before(self, offset: int, segment: Segment) -> int:
        """The position of the batch that starts at `offset`. Asked over and over while a transaction is open."""
        damage, known = self._log.damage, self._stop
        if damage is not None and damage.offset == offset and damage.path == segment.path:
            return damage.position
        if known is not None and known[0] == offset and known[1] is segment:
            return known[2]
        found = segment.find(offset)
        position = found[0] if found is not None else segment.size
        self._stop = (offset, segment, position)
        return position

    def locate(self, offset: int) -> tuple[Segment, int] | None:
        """The segment and position of the first batch that ends at or after `offset`; None past the last one."""
        hint = self._hints.get(offset)
        if hint is not None and hint[1] < hint[0].size:
            return hint
        files = self._log.files
        for segment in files.segments[files.index_at(offset) :]:
            found = segment.find(offset)
            if found is not None:
                return segment, found[0]
        return None

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        if len(self._hints) >= HINTS_MAX and offset not in self._hints:
            self._hints.clear()
        self._hints[offset] = (segment, position)

    def forget(self) -> None:
        """After segments went or changed."""
        self._hints.clear()
        self._stop = None

    def bytes_from(self, offset: int, *, limit: int, committed: bool = False) -> int:
        """About how many bytes a read would find, up to `limit`; 0 for offsets outside the log."""
        log = self._log
        if log.damage is not None:
            return limit  # a reader that waits must wake up to hear of it
        limit_offset = log.stable_offset if committed else log.end_offset
        if not log.start_offset <= offset < limit_offset:
            return 0
        try:
            found = self.locate(offset)
            if found is None:
                return 0
            segment, position = found
            self.remember(offset, segment, position)
            if limit_offset < log.end_after(segment):
                stop = self._stop_before(limit_offset, segment)
                return max(0, min(limit, stop - position))
        except OSError as error:
            raise storage_error(log, "cannot be read", error) from error
        return self._available(segment, position, before=limit_offset, limit=limit)

    def _available(self, segment: Segment, position: int, *, before: int, limit: int) -> int:
        """How many bytes there are from a position on, up to an offset; not counted beyond `limit`."""
        available = segment.size - position
        following = self._log.files.after(segment)
        while available < limit and following is not None and following.base_offset < before:
            available += following.size
            following = self._log.files.after(following)
        return min(limit, available)

    def batch_timestamp(self, offset: int) -> int | None:
        """The timestamp of the batch that holds `offset`, or of the next one; reads nothing but its header.

        None where the log has no such batch, or where it cannot be read now.
        """
        log = self._log
        if log.is_deleted or not log.start_offset <= offset < log.end_offset:
            return None
        try:
            found = self.locate(offset)
            if found is None:
                return None
            segment, position = found
            return read_header(segment.read(position, HEADER_SIZE)).record_timestamp
        except (KafkaError, OSError):
            return None

    def batches(self, from_offset: int | None = None) -> Iterator[bytes]:
        """Every batch in order, for whoever rebuilds its state from this log."""
        offset = self._log.start_offset if from_offset is None else from_offset
        while offset < self._log.end_offset:
            read = self.read(offset, max_bytes=REPLAY_BYTES)
            if not read.data:
                return
            for position, header in split(read.data):
                yield read.data[position : position + header.size]
            offset = read.next_offset
