"""What the share coordinator keeps: persisted state batches, merged so that a snapshot can replace its updates.

Where batches overlap the one with more deliveries is the newer, and at equal deliveries the one with the higher
state: a record's state only moves up between two deliveries. So the result does not depend on the order in which
they came. `merge` does it for any heap of batches; `PersistedState` does the same one write at a time, at a cost
that depends on what is written and not on what is there.
"""

from collections.abc import Iterable
from heapq import heappop, heappush

from headrace.share.blocks import BlockMap
from headrace.share.changes import StateBatch


def merge(batches: Iterable[StateBatch], *, start_offset: int = -1) -> list[StateBatch]:
    """Disjoint and sorted, nothing below the start, neighbours that are alike joined."""
    waiting = sorted(batch for batch in batches if batch.last >= start_offset)
    merged: list[StateBatch] = []
    open_batches: list[tuple[int, int, StateBatch]] = []
    offset = start_offset
    index = 0
    while True:
        while open_batches and open_batches[0][2].last < offset:
            heappop(open_batches)
        if not open_batches:
            if index == len(waiting):
                return merged
            offset = max(offset, waiting[index].first)
        while index < len(waiting) and waiting[index].first <= offset:
            batch = waiting[index]
            heappush(open_batches, (-batch.delivery_count, -batch.state, batch))
            index += 1
        winner = open_batches[0][2]
        last = winner.last if index == len(waiting) else min(winner.last, waiting[index].first - 1)
        _append(merged, StateBatch(offset, last, winner.state, winner.delivery_count))
        offset = last + 1


def _append(merged: list[StateBatch], batch: StateBatch) -> None:
    if merged:
        before = merged[-1]
        if before.last + 1 == batch.first and before[2:] == batch[2:]:
            merged[-1] = before._replace(last=batch.last)
            return
    merged.append(batch)


class PersistedState:
    """The merged state batches of one share-partition, and its start offset (-1: not decided yet)."""

    __slots__ = ("_batches", "start_offset")

    def __init__(self, start_offset: int = -1, batches: Iterable[StateBatch] = ()) -> None:
        self.start_offset = start_offset
        self._batches: BlockMap[StateBatch] = BlockMap()
        for batch in merge(batches, start_offset=start_offset):
            self._batches.insert(batch.first, batch)

    def __len__(self) -> int:
        return self._batches.size

    def batches(self) -> list[StateBatch]:
        return list(self._batches)

    def update(self, start_offset: int, batches: Iterable[StateBatch]) -> None:
        """Adds one write; a start offset of -1 leaves it as it is, and so does one that is behind."""
        if start_offset > self.start_offset:
            self.start_offset = start_offset
            self._drop_below(start_offset)
        for batch in merge(batches, start_offset=self.start_offset):
            near = [batch, *self._near(batch)]
            for old in near[1:]:
                self._batches.delete(old.first)
            for new in merge(near):
                self._batches.insert(new.first, new)

    def _near(self, batch: StateBatch) -> list[StateBatch]:
        """What overlaps the batch or lies right beside it."""
        before = self._batches.floor(batch.first - 1)
        first = before.first if before is not None and before.last >= batch.first - 1 else batch.first
        near = []
        for old in self._batches.from_key(first):
            if old.first > batch.last + 1:
                break
            near.append(old)
        return near

    def _drop_below(self, start_offset: int) -> None:
        across = self._batches.floor(start_offset - 1)
        self._batches.delete_between(-1, start_offset - 1)
        if across is not None and across.last >= start_offset:
            self._batches.insert(start_offset, across._replace(first=start_offset))
