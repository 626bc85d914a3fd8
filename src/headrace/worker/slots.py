"""How many runs may start now. Pure.

At most `concurrency` runs go on at a time; a thread that cannot be stopped keeps its slot until it ends. `set_capacity`
lowers that, for a limit that a group of workers shares. Buckets (`rate.py`) say how many may start by now.
"""

from collections.abc import Iterable, Sequence

from headrace.worker.jobs import CallSlot, Job
from headrace.worker.rate import RateBucket


class RunSlots:
    def __init__(self, concurrency: int, buckets: Iterable[RateBucket]) -> None:
        self._concurrency = self._max = concurrency
        self._buckets = list(buckets)
        self.taken = 0
        """How many calls go on, including those whose records have all lost their locks."""

    def set_capacity(self, runs: int) -> None:
        """How many runs at a time are left to this worker, of those of its group."""
        self._max = min(self._concurrency, runs)

    def add(self, bucket: RateBucket) -> None:
        self._buckets.append(bucket)

    @property
    def is_closed(self) -> bool:
        """No run may start until others give this worker a part."""
        return not self._max or any(bucket.is_closed for bucket in self._buckets)

    @property
    def startable(self) -> int:
        """How many runs may start now."""
        free = max(0, self._max - self.taken)
        return min(free, *(bucket.runs for bucket in self._buckets)) if self._buckets else free

    def fill(self, now_ms: int) -> None:
        for bucket in self._buckets:
            bucket.fill(now_ms)

    def take(self, jobs: Sequence[Job]) -> CallSlot:
        self.taken += 1
        for bucket in self._buckets:
            bucket.take()
        return CallSlot(jobs[0].place, len(jobs))

    def free(self, slot: CallSlot) -> None:
        """One of its records has ended."""
        assert slot.left > 0
        slot.left -= 1
        if not slot.left:
            self.taken -= 1

    def next_ms(self) -> int | None:
        """When a bucket lets a run start; None if that is now, or never."""
        if self.taken >= self._max:
            return None
        return min(
            (at_ms for bucket in self._buckets if (at_ms := bucket.next_ms()) is not None), default=None
        )
