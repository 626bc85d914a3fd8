"""The queue of jobs that may run now, and how many of them one call gets. Pure.

With `batch`, one call gets several records. A call that is not full starts when its first record has waited for
`batch.wait`. A record that is to run alone does not wait for others. While the circuit is open (`is_probing`), one
record at a time is tried.
"""

from collections import deque
from typing import Generic

from headrace.worker.batch import Batch
from headrace.worker.jobs import J


class ReadyJobs(Generic[J]):
    def __init__(self, batch: Batch | None) -> None:
        self._batch = batch
        self.call_max = batch.max if batch is not None else 1
        """How many records one call may get."""
        self._queue: deque[J] = deque()
        """Also jobs that were taken out and are passed over: they are not `is_queued`."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, job: J) -> None:
        job.is_queued = True
        job.ready_ms = None
        self._count += 1
        self._queue.append(job)

    def drop(self, job: J) -> None:
        if job.is_queued:
            job.is_queued = False
            self._count -= 1

    def stamp(self, now_ms: int) -> None:
        """Notes when records began to wait for a run: those that came since the last time are the last in the queue."""
        if self._batch is not None:
            for job in reversed(self._queue):
                if job.ready_ms is not None:
                    break
                job.ready_ms = now_ms

    def gathered_ms(self, *, is_probing: bool) -> int | None:
        """When the records at hand have waited long enough for more; None if they need not wait, or there are none."""
        if self._batch is None or is_probing or self._count >= self._batch.max:
            return None
        first = next((job for job in self._queue if job.is_queued), None)
        if first is None or self._first_alone() is not None:
            return None
        return (first.ready_ms or 0) + round(self._batch.wait * 1000)

    def first_new(self) -> J | None:
        """The first that has not been run in this delivery."""
        return next((job for job in self._queue if job.is_queued and not job.tries), None)

    def take(self, now_ms: int, *, is_probing: bool) -> list[J]:
        """The records of the next call; none while those that are here may wait for more."""
        if is_probing:  # those that have failed may do so for ever
            return self._take_only(self.first_new()) or self._take_first(1)
        if self._batch is None:
            return self._take_first(1)
        if (alone := self._first_alone()) is not None:
            return self._take_only(alone)
        gathered_ms = self.gathered_ms(is_probing=False)
        if gathered_ms is not None and now_ms < gathered_ms:
            return []
        return self._take_first(self._batch.max)

    def _first_alone(self) -> J | None:
        return next((job for job in self._queue if job.is_queued and job.is_alone), None)

    def _take_only(self, job: J | None) -> list[J]:
        if job is None:
            return []
        self._queue.remove(job)
        self.drop(job)
        return [job]

    def _take_first(self, count: int) -> list[J]:
        jobs: list[J] = []
        while self._queue and len(jobs) < count:
            job = self._queue.popleft()
            if job.is_queued:  # else it has left, or another of its lane came before it
                self.drop(job)
                jobs.append(job)
        return jobs
