"""OffsetRange and RangeMap: offset -> what is known about the record, run-length encoded.

Theory of operation. Neighboring offsets of one in-flight batch that are alike in everything form one
`OffsetRange`, and always the longest one: setting a part of a range splits it, setting parts alike joins them
again. So what the map holds depends only on what is true of each offset, not on the order in which it was set.
Ranges of different in-flight batches are never joined: redelivery hands them out as separate entries. Offsets that
no range covers are not in flight.

The map keeps what others ask of it often: AVAILABLE ranges in an index of their own (so that looking for work costs
the same among a million held records as among a thousand), how many records are in each state, and how many each
lock holds.
"""

from collections.abc import Iterator

from headrace.share.blocks import BlockMap
from headrace.share.changes import Span
from headrace.share.locks import Lock
from headrace.share.states import RecordState

AVAILABLE = RecordState.AVAILABLE


class OffsetRange:
    """Records first..last, alike in everything. Owned by the map: read it, do not keep it."""

    __slots__ = ("batch", "delivery_count", "first", "last", "lock", "state")

    def __init__(
        self, first: int, last: int, state: RecordState, delivery_count: int, lock: Lock | None, batch: Span
    ) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.delivery_count = delivery_count
        self.lock = lock
        self.batch = batch

    @property
    def is_whole_batch(self) -> bool:
        return self.first == self.batch[0] and self.last == self.batch[1]


class RangeMap:
    __slots__ = ("_available", "_ranges", "available_counts", "records", "unheld")

    def __init__(self) -> None:
        self._ranges: BlockMap[OffsetRange] = BlockMap()
        self._available: BlockMap[OffsetRange] = BlockMap()
        self.available_counts: dict[int, int] = {}
        """How many AVAILABLE ranges there are of each delivery count."""
        self.records = [0] * len(RecordState)
        """How many records are in each state."""
        self.unheld: list[Lock] = []
        """Locks that came to hold nothing: whoever looks after the locks takes them from here."""

    def __iter__(self) -> Iterator[OffsetRange]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return self._ranges.size

    def last(self) -> OffsetRange | None:
        return self._ranges.last()

    def floor(self, offset: int) -> OffsetRange | None:
        """The range that holds the offset, or else the nearest before it."""
        return self._ranges.floor(offset)

    def at_or_after(self, offset: int) -> OffsetRange | None:
        """The range that holds the offset, or else the nearest behind it."""
        before = self._ranges.floor(offset)
        return before if before is not None and before.last >= offset else self._ranges.ceiling(offset)

    def over(self, first: int, last: int) -> Iterator[OffsetRange]:
        """The ranges that have offsets in first..last, in order."""
        return _over(self._ranges, first, last)

    def available_over(self, first: int, last: int) -> Iterator[OffsetRange]:
        """The same, AVAILABLE ones only: passes over the others without looking at them."""
        return _over(self._available, first, last)

    def first_available(self) -> OffsetRange | None:
        return self._available.first()

    def available_records(self, count_min: int) -> int:
        """How many AVAILABLE records were delivered at least so often. Costs nothing while there is none."""
        if all(count < count_min for count in self.available_counts):
            return 0
        return sum(
            entry.last - entry.first + 1 for entry in self._available if entry.delivery_count >= count_min
        )

    def put(
        self, first: int, last: int, state: RecordState, delivery_count: int, lock: Lock | None, batch: Span
    ) -> None:
        """Sets first..last, whatever was there before."""
        entry = self._ranges.floor(first)
        if entry is not None and entry.first == first and entry.last == last:
            self._forget(entry)
            entry.state, entry.delivery_count, entry.lock, entry.batch = state, delivery_count, lock, batch
        else:
            newest = self._ranges.last()
            if newest is not None and newest.last >= first:
                self.remove(first, last)
            entry = OffsetRange(first, last, state, delivery_count, lock, batch)
            self._ranges.insert(first, entry)
        self._note(entry)
        if first != batch[0] or last != batch[1]:
            self._join(entry)

    def remove(self, first: int, last: int) -> None:
        """Takes first..last out of the map."""
        entry = self._ranges.floor(first)
        if entry is not None and entry.first == first and entry.last == last:
            self._forget(entry)
            self._ranges.delete(first)
            return
        overlapping = list(self.over(first, last))
        if not overlapping:
            return
        head, tail = overlapping[0], overlapping[-1]
        if tail.last > last:
            self._split(tail, last + 1)
        if head.first < first:
            self._split(head, first)
        for entry in self.over(first, last):
            self._forget(entry)
        self._ranges.delete_between(first, last)

    def _split(self, entry: OffsetRange, at: int) -> None:
        """Cuts a range in two; nothing else changes."""
        right = OffsetRange(at, entry.last, entry.state, entry.delivery_count, entry.lock, entry.batch)
        entry.last = at - 1
        self._ranges.insert(at, right)
        if entry.state is AVAILABLE:
            self._available.insert(at, right)
            self.available_counts[entry.delivery_count] += 1

    def _join(self, entry: OffsetRange) -> None:
        before = self._ranges.floor(entry.first - 1)
        if before is not None and _are_alike(before, entry):
            self._absorb(before, entry)
            entry = before
        after = self._ranges.ceiling(entry.last + 1)
        if after is not None and _are_alike(entry, after):
            self._absorb(entry, after)

    def _absorb(self, left: OffsetRange, right: OffsetRange) -> None:
        self._ranges.delete(right.first)
        if right.state is AVAILABLE:
            self._available.delete(right.first)
            self.available_counts[right.delivery_count] -= 1
        left.last = right.last

    def _note(self, entry: OffsetRange) -> None:
        size = entry.last - entry.first + 1
        self.records[entry.state] += size
        if entry.lock is not None:
            entry.lock.held += size
        elif entry.state is AVAILABLE:
            self._available.insert(entry.first, entry)
            self.available_counts[entry.delivery_count] = (
                self.available_counts.get(entry.delivery_count, 0) + 1
            )

    def _forget(self, entry: OffsetRange) -> None:
        size = entry.last - entry.first + 1
        self.records[entry.state] -= size
        lock = entry.lock
        if lock is not None:
            lock.held -= size
            if not lock.held:
                self.unheld.append(lock)
        elif entry.state is AVAILABLE:
            self._available.delete(entry.first)
            left = self.available_counts[entry.delivery_count] - 1
            if left:
                self.available_counts[entry.delivery_count] = left
            else:
                del self.available_counts[entry.delivery_count]


def _over(ranges: BlockMap[OffsetRange], first: int, last: int) -> Iterator[OffsetRange]:
    before = ranges.floor(first)
    if before is not None and before.last >= first:
        first = before.first
    for entry in ranges.from_key(first):
        if entry.first > last:
            return
        yield entry


def _are_alike(left: OffsetRange, right: OffsetRange) -> bool:
    return (
        left.last + 1 == right.first
        and left.state is right.state
        and left.delivery_count == right.delivery_count
        and left.lock is right.lock
        and left.batch == right.batch
    )
