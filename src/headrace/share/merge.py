"""What is kept of a share-partition: persisted state batches, merged so that a snapshot can replace its updates.

Where batches overlap the one with more deliveries is the newer, and at equal deliveries the one with the higher
state: a record's state only moves up between two deliveries. So the result does not depend on the order in which
they came.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from headrace.base.ranges import joined
from headrace.share.changes import StateBatch


def merge(batches: Iterable[StateBatch], *, start_offset: int = -1) -> list[StateBatch]:
    """Disjoint and sorted, nothing below the start, neighbors that are alike joined."""
    return list(joined(_newest(batches, start_offset)))


def _newest(batches: Iterable[StateBatch], start_offset: int) -> Iterator[StateBatch]:
    waiting = sorted(batch for batch in batches if batch.last >= start_offset)
    open_batches: list[tuple[int, int, StateBatch]] = []
    offset = start_offset
    index = 0
    while True:
        while open_batches and open_batches[0][2].last < offset:
            heappop(open_batches)
        if not open_batches:
            if index == len(waiting):
                return
            offset = max(offset, waiting[index].first)
        while index < len(waiting) and waiting[index].first <= offset:
            batch = waiting[index]
            heappush(open_batches, (-batch.delivery_count, -batch.state, batch))
            index += 1
        winner = open_batches[0][2]
        last = winner.last if index == len(waiting) else min(winner.last, waiting[index].first - 1)
        yield StateBatch(offset, last, winner.state, winner.delivery_count)
        offset = last + 1
