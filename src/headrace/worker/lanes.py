"""The jobs that a worker holds: the stage of each, and which of them run one after another. Pure.

Every record belongs to a lane, and of a lane one record runs at a time, in the order of offsets; a record that waits
for its back-off, or whose dead letter is being written, holds its lane. With `key_order` the lane is the record's key,
else the record itself. So a record that was lost and delivered again while a thread still works on it does not run
twice at once either. A thread that goes on after its timeout is given up: with `key_order` it holds its lane until it
ends, else its record is tried again beside it.
"""

import heapq
from bisect import insort
from collections.abc import Collection, Hashable
from dataclasses import dataclass, field
from typing import Generic

from headrace.worker.jobs import J, Job, Stage
from headrace.worker.ready import ReadyJobs


@dataclass(slots=True)
class _JobLane(Generic[J]):
    jobs: list[J] = field(default_factory=list)
    busy: J | None = None


class Lanes(Generic[J]):
    """The first job of a lane is in the queue of `ready` jobs while it is READY and nothing else of the lane runs."""

    def __init__(self, ready: ReadyJobs[J], *, key_order: bool) -> None:
        self._ready = ready
        self._key_order = key_order
        self._lanes: dict[Hashable, _JobLane[J]] = {}
        self._due: list[tuple[int, int, J]] = []
        self._entered = 0
        self.counts: dict[Stage, int] = dict.fromkeys(Stage, 0)

    @property
    def held(self) -> int:
        counts = self.counts
        return counts[Stage.READY] + counts[Stage.RUNNING] + counts[Stage.WAITING] + counts[Stage.GIVING_UP]

    def add(self, job: J) -> None:
        """It is not offered to run yet."""
        self.counts[Stage.READY] += 1
        lane = self._lanes.setdefault(self._name(job), _JobLane())
        insort(lane.jobs, job, key=_place)

    def offer(self, job: J) -> None:
        self._offer(self._lanes[self._name(job)])

    def run(self, job: J) -> None:
        self._lanes[self._name(job)].busy = job
        self._move(job, Stage.RUNNING)

    def wait(self, job: J, due_ms: int) -> None:
        self._move(job, Stage.WAITING)
        job.due_ms = due_ms
        self._entered += 1
        heapq.heappush(self._due, (due_ms, self._entered, job))
        self.free(job)

    def give_up(self, job: J) -> None:
        self._move(job, Stage.GIVING_UP)

    def leave(self, job: J) -> None:
        """It is not held any more. If it runs, its lane stays busy until `free`."""
        is_running = job.stage is Stage.RUNNING
        self._ready.drop(job)
        self._move(job, Stage.GONE)
        name = self._name(job)
        lane = self._lanes[name]
        lane.jobs.remove(job)
        if lane.busy is not job:
            self._tidy(name, lane)
        elif not is_running:
            self.free(job)

    def free(self, job: J) -> None:
        """Its run has ended."""
        name = self._name(job)
        lane = self._lanes.get(name)
        if lane is not None and lane.busy is job and not job.keeps_lane:
            lane.busy = None
            self._tidy(name, lane)

    def keep(self, job: J) -> None:
        """Its run was given up, and goes on."""
        job.keeps_lane = self._key_order

    def let_go(self, job: J) -> None:
        """The run of `keep` has ended after all."""
        if job.keeps_lane:
            job.keeps_lane = False
            self.free(job)

    def wake(self, now_ms: int) -> None:
        """Those whose wait is over may run."""
        while self._due and (self._due[0][0] <= now_ms or self._due[0][2].stage is not Stage.WAITING):
            job = heapq.heappop(self._due)[2]
            if job.stage is Stage.WAITING:
                self._move(job, Stage.READY)
                self.offer(job)

    def next_ms(self) -> int | None:
        """When the first wait is over."""
        while self._due and self._due[0][2].stage is not Stage.WAITING:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def give_back(self, stages: Collection[Stage], partition: int | None = None) -> list[J]:
        """Those in these stages leave, all or those of a partition."""
        idle = [
            job
            for lane in self._lanes.values()
            for job in lane.jobs
            if job.stage in stages and partition in (None, job.partition)
        ]
        for job in idle:
            self.leave(job)
        return idle

    def _name(self, job: J) -> Hashable:
        return job.key if self._key_order and job.key is not None else job.place

    def _offer(self, lane: _JobLane[J]) -> None:
        """Puts the lane's first record in the queue if it may run, and takes one out that it comes before."""
        for job in lane.jobs[1:2]:
            self._ready.drop(job)
        first = lane.jobs[0] if lane.jobs else None
        if first is not None and lane.busy is None and first.stage is Stage.READY and not first.is_queued:
            self._ready.put(first)

    def _move(self, job: J, stage: Stage) -> None:
        self.counts[job.stage] -= 1
        self.counts[stage] += 1
        job.stage = stage

    def _tidy(self, name: Hashable, lane: _JobLane[J]) -> None:
        if lane.jobs:
            self._offer(lane)
        elif lane.busy is None:
            del self._lanes[name]


def _place(job: Job) -> tuple[int, int]:
    return job.place
