"""Acquisition locks: who holds records until when, found by deadline and by holder.

Theory of operation. Everything that one member acquires at one instant, and everything of that which it renews at one
instant, shares one `Lock`, so there is no timer per record: a lock counts the offsets it still holds and remembers the
spans it was given. When a range is split its parts keep the lock, and so the remaining time. A lock that holds nothing
is dropped at once from both indexes; the heap of deadlines forgets it later, when its entry comes up or when the dead
ones outnumber the live ones.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from headrace.share.changes import Span
from headrace.share.holds import Hold


class Lock:
    __slots__ = ("deadline_ms", "held", "hold", "holder", "spans")

    def __init__(self, hold: Hold, deadline_ms: int) -> None:
        self.hold = hold
        self.holder = hold.member
        self.deadline_ms = deadline_ms
        self.held = 0
        """How many offsets are held: kept by the range map."""
        self.spans: list[Span] = []
        """Where they are, and where others were that have been let go of since."""

    def cover(self, first: int, last: int) -> None:
        if self.spans and self.spans[-1][1] + 1 == first:
            self.spans[-1] = (self.spans[-1][0], last)
        else:
            self.spans.append((first, last))


class Locks:
    __slots__ = ("_by_deadline", "_by_holder", "_heap")

    def __init__(self) -> None:
        self._by_deadline: dict[int, dict[Lock, None]] = {}
        self._by_holder: dict[str, dict[tuple[int, Hold], Lock]] = {}
        self._heap: list[int] = []

    def take(self, hold: Hold, deadline_ms: int, first: int, last: int) -> Lock:
        """The lock of this hold with this deadline, covering first..last from now on."""
        locks = self._by_holder.get(hold.member)
        if locks is None:
            locks = self._by_holder[hold.member] = {}
        lock = locks.get((deadline_ms, hold))
        if lock is None:
            lock = locks[deadline_ms, hold] = Lock(hold, deadline_ms)
            due = self._by_deadline.get(deadline_ms)
            if due is None:
                due = self._by_deadline[deadline_ms] = {}
                self._push(deadline_ms)
            due[lock] = None
        lock.cover(first, last)
        return lock

    def drop(self, lock: Lock) -> None:
        """Forgets a lock that holds nothing any more; again, if need be."""
        key = lock.deadline_ms, lock.hold
        locks = self._by_holder.get(lock.holder, {})
        if locks.get(key) is not lock:
            return
        due = self._by_deadline[lock.deadline_ms]
        del locks[key], due[lock]
        if not locks:
            del self._by_holder[lock.holder]
        if not due:
            del self._by_deadline[lock.deadline_ms]

    def deadline_ms(self) -> int | None:
        while self._heap and self._heap[0] not in self._by_deadline:
            heappop(self._heap)
        return self._heap[0] if self._heap else None

    def due(self, now_ms: int) -> Iterator[Lock]:
        """Locks whose deadline has come. Walks down the heap only as far as it is due."""
        seen: set[int] = set()
        places = [0]
        while places:
            place = places.pop()
            if place < len(self._heap) and self._heap[place] <= now_ms:
                places += (2 * place + 1, 2 * place + 2)
                seen.add(self._heap[place])
        for deadline_ms in seen:
            yield from self._by_deadline.get(deadline_ms, {})

    def of(self, holder: str) -> Iterator[Lock]:
        yield from self._by_holder.get(holder, {}).values()

    def holders(self) -> list[str]:
        return list(self._by_holder)

    def _push(self, deadline_ms: int) -> None:
        if len(self._heap) > 64 + 2 * len(self._by_deadline):
            self._heap = list(self._by_deadline)
            heapify(self._heap)
        else:
            heappush(self._heap, deadline_ms)
