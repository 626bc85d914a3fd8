"""Window: the in-flight records of one share-partition, and `apply`, the only thing that changes them.

Theory of operation. The window reaches from `start_offset` (SPSO) to just before `next_offset`, the first offset
that was never acquired. Its size is the distance between them: settled records in the middle count, and so do
holes. It is empty when the two are equal. Everything below the start is settled, deleted or never existed, with one
exception: records held when the log's start passed them stay in the map until they are answered for or their lock
ends.

The start moves over settled records, always and at once, when changes are applied; behind a settled batch it jumps
a hole in the log. It stops at an *unread* offset: after a restart, offsets between persisted batches were perhaps
acquired but never answered for. They are read again before anything new (the gap window of KIP-932), up to
`_gap_end`.

Invariants, held by tests/property/test_share_partition.py: ranges at or above the start lie inside the window;
nothing settled lies below or right at the start; an ACQUIRED range has a lock and no other range has; nothing
AVAILABLE lies below the start.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.share.changes import AnyChange, Change, Span, StartMoved, StateBatch
from headrace.share.errors import CorruptState
from headrace.share.holds import Hold
from headrace.share.locks import Locks
from headrace.share.offsets import OffsetRange, RangeMap
from headrace.share.states import FINAL, RecordState

ACQUIRED = RecordState.ACQUIRED
AVAILABLE = RecordState.AVAILABLE
PERSISTED = frozenset(RecordState) - {ACQUIRED}


class RangeView(NamedTuple):
    """One range of a snapshot."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    hold: Hold | None
    deadline_ms: int | None
    batch: Span

    @property
    def holder(self) -> str | None:
        return None if self.hold is None else self.hold.member


class Window:
    __slots__ = ("_gap_end", "gap_offset", "locks", "next_offset", "ranges", "start_offset")

    def __init__(self, start_offset: int) -> None:
        self.start_offset = start_offset
        self.next_offset = start_offset
        self.ranges = RangeMap()
        self.locks = Locks()
        self.gap_offset: int | None = None
        """The first offset inside the window that is still to be read after a restart."""
        self._gap_end = start_offset

    @property
    def size(self) -> int:
        return self.next_offset - self.start_offset

    @property
    def final_count(self) -> int:
        """How many records of the window are settled."""
        records = self.ranges.records
        return records[RecordState.ACKNOWLEDGED] + records[RecordState.ARCHIVED]

    def next_fetch_offset(self) -> int:
        """Where to read: the first record that can be acquired again, else the first unread one, else new ones."""
        available = self.ranges.first_available()
        offset = self.next_offset if self.gap_offset is None else self.gap_offset
        return offset if available is None else min(offset, available.first)

    def unread(self, first: int, last: int) -> Iterator[Span]:
        """The parts of first..last that are still to be read after a restart, in order."""
        if self.gap_offset is None:
            return
        first, last = max(first, self.gap_offset), min(last, self._gap_end)
        for entry in self.ranges.over(first, last):
            if entry.first > first:
                yield first, entry.first - 1
            first = entry.last + 1
        if first <= last:
            yield first, last

    def apply(self, changes: Iterable[AnyChange]) -> bool:
        """Makes the changes so. True if that may serve somebody who waits: records came back, or room is free."""
        ranges, is_news = self.ranges, False
        start_before = self.start_offset
        for change in changes:
            if isinstance(change, StartMoved):
                self._move_start(change.start_offset)
                continue
            first, last, state, count, _, hold, deadline_ms, batch = change
            lock = None
            if state is ACQUIRED:
                assert hold is not None
                assert deadline_ms is not None
                lock = self.locks.take(hold, deadline_ms, first, last)
            elif state is AVAILABLE:
                is_news = True
            if last >= self.next_offset:
                if self.next_offset == self.start_offset:
                    self.start_offset = (
                        first  # a hole before the first record in flight never enters the window
                    )
                self.next_offset = last + 1
            if last < self.start_offset and state in FINAL:
                ranges.remove(first, last)
            else:
                ranges.put(first, last, state, count, lock, batch)
        self._advance()
        self._drop_locks()
        return is_news or self.start_offset != start_before

    def recover(self, batches: Sequence[StateBatch]) -> None:
        """Fills a fresh window with persisted state."""
        offset = self.start_offset
        for first, last, state, count in batches:
            if first > last or state not in PERSISTED:
                raise CorruptState(
                    f"Persisted records {first}-{last} in state {int(state)} are inconsistent."
                )
            if first < offset:
                raise CorruptState(f"Persisted records {first}-{last} begin below offset {offset}.")
            if first > offset and self.gap_offset is None:
                self.gap_offset = offset
            self.ranges.put(first, last, RecordState(state), count, None, (first, last))
            offset = last + 1
        self.next_offset = offset
        self._gap_end = offset - 1
        self._advance()

    def final_count_after(self, changes: Iterable[AnyChange]) -> int:
        """How many records at or above today's start will be settled once these are applied."""
        start, count = self.start_offset, self.final_count
        for change in changes:
            if isinstance(change, Change) and change.state in FINAL and change.last >= start:
                count += change.last - max(change.first, start) + 1
        return count

    def start_after(self, changes: Sequence[AnyChange]) -> tuple[int, int]:
        """Where the start will be once these are applied, and how many settled records will lie above it.

        For decisions on records of the window: it does not foresee acquisitions of new ones or moves of the log's
        start.
        """
        settled = {
            change.first: change for change in changes if isinstance(change, Change) and change.state in FINAL
        }
        start, final_count = self.start_offset, self.final_count_after(changes)
        for entry in self.ranges.over(start, self.next_offset):
            if entry.first > start:
                if self.gap_offset is not None and start >= self.gap_offset:
                    return start, final_count
                start = entry.first
            if entry.state in FINAL:
                final_count -= entry.last - start + 1
                start = entry.last + 1
                continue
            while start <= entry.last and (change := settled.get(start)) is not None:
                final_count -= change.last - start + 1
                start = change.last + 1
            if start <= entry.last:
                return start, final_count
        return self.next_offset, final_count

    def views(self) -> tuple[RangeView, ...]:
        return tuple(_view(entry) for entry in self.ranges)

    def _move_start(self, start_offset: int) -> None:
        """The log begins here now. What was AVAILABLE below has been archived by changes of the same decision."""
        gone = [
            (entry.first, min(entry.last, start_offset - 1))
            for entry in self.ranges.over(self.start_offset, start_offset - 1)
            if entry.state in FINAL
        ]
        for first, last in gone:
            self.ranges.remove(first, last)
        self.start_offset = start_offset
        self.next_offset = max(self.next_offset, start_offset)

    def _advance(self) -> None:
        """Takes the start over settled records, and takes these out of the map."""
        if self.gap_offset is not None:
            self._close_gaps()
        start = self.start_offset
        entry = self.ranges.at_or_after(start)
        if entry is None:
            self.start_offset = self.next_offset
            return
        if entry.first <= start and entry.state not in FINAL:
            return
        for entry in self.ranges.over(start, self.next_offset):
            if entry.first > start:
                if self.gap_offset is not None and start >= self.gap_offset:
                    break
                start = entry.first
            if entry.state not in FINAL:
                break
            start = entry.last + 1
        else:
            start = self.next_offset
        self.ranges.remove(self.start_offset, start - 1)
        self.start_offset = start

    def _close_gaps(self) -> None:
        """Finds the first offset that is still unread; gaps are closed for good when there is none."""
        assert self.gap_offset is not None
        offset = max(self.gap_offset, self.start_offset)
        for entry in self.ranges.over(offset, self._gap_end):
            if entry.first > offset:
                break
            offset = entry.last + 1
        self.gap_offset = offset if offset <= self._gap_end else None

    def _drop_locks(self) -> None:
        if self.ranges.unheld:
            for lock in self.ranges.unheld:
                if not lock.held:
                    self.locks.drop(lock)
            self.ranges.unheld.clear()


def _view(entry: OffsetRange) -> RangeView:
    lock = entry.lock
    hold, deadline_ms = (None, None) if lock is None else (lock.hold, lock.deadline_ms)
    return RangeView(
        entry.first, entry.last, entry.state, entry.delivery_count, hold, deadline_ms, entry.batch
    )
