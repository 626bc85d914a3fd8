"""Which of the records a worker holds runs next, and what becomes of it when its run has ended.

Theory of operation. No asyncio, no clock, no threads: the shell (`runner.py`) tells what happened and when, and does
what it is told. A worker holds every record it has fetched until it is settled; the lock is renewed meanwhile. A held
record is READY, then RUNNING, then either WAITING out its back-off (and READY again), GIVING_UP while the copy for
the dead-letter topic is being written, or gone.

Three bounds, all of them by not asking for more records than `room()` says:
- at most `concurrency` runs at a time; a thread that cannot be stopped keeps its slot until it ends;
- no record is fetched that could not start at once, so that idle workers find work (peers hoard locks);
- at most `concurrency + waiting_max` records are held. When so many wait for another try, nothing new is fetched until
  one of them is settled. They are not released: a released record comes back at once, and a broken service would burn
  the deliveries of every record in the queue within seconds.

Lanes. Every record belongs to a lane, and of a lane one record runs at a time, in the order of offsets; a record that
waits for its back-off, or whose dead letter is being written, holds its lane. With `key_order` the lane is the
record's key, else the record itself. So a record that was lost and delivered again while a thread still works on it
does not run twice at once either. A thread that goes on after its timeout is given up: with `key_order` it holds its
lane until it ends, else its record is tried again beside it.
"""

import heapq
from bisect import insort
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import Enum

from headrace.worker.backoff import Backoff
from headrace.worker.outcomes import TaskOutcome, TaskResult


class Stage(Enum):
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    GIVING_UP = "giving up"
    GONE = "gone"


class GiveUpCause(Enum):
    """Why a record is given up; the value is the header `headrace.dlq.cause`."""

    REJECTED = "rejected"
    UNREADABLE = "unreadable"
    EXHAUSTED = "exhausted"
    LAST_DELIVERY = "last-delivery"


class Verdict(Enum):
    ACCEPT = "accept"
    RETRY = "retry"
    GIVE_UP = "give up"
    RELEASE = "release"
    NOTHING = "nothing"
    """The record is not ours any more."""


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Verdict
    cause: GiveUpCause | None = None
    delay_ms: int = 0


@dataclass(slots=True, eq=False)
class Job:
    """One held record. Only the scheduler changes it."""

    partition: int
    offset: int
    key: bytes | None
    delivery_count: int
    tries: int = 0
    """Runs begun in this delivery."""
    stage: Stage = Stage.READY
    due_ms: int = 0
    is_queued: bool = False
    keeps_lane: bool = False
    """Its run was given up and goes on all the same; with `key_order` nothing else of its key runs beside it."""

    @property
    def attempts(self) -> int:
        """Runs so far as far as anyone can know: earlier deliveries count as one each."""
        return self.tries + self.delivery_count - 1


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about another try."""

    retries: Backoff | None
    delivery_limit: int
    saves_last_delivery: bool = False
    """The worker itself writes dead letters. A record on its last delivery is then given up without a run: should it
    bring down this worker as well, the broker would archive it and no copy would ever be written."""

    @property
    def attempts_max(self) -> int:
        tries = self.retries.tries if self.retries is not None else None
        return tries or self.delivery_limit

    def arrival(self, job: Job) -> GiveUpCause | None:
        is_last = self.saves_last_delivery and job.delivery_count >= self.delivery_limit
        return GiveUpCause.LAST_DELIVERY if is_last else None

    def decide(self, job: Job, outcome: TaskOutcome, chance: float) -> Decision:
        match outcome.result:
            case TaskResult.DONE:
                return Decision(Verdict.ACCEPT)
            case TaskResult.REJECTED:
                return Decision(Verdict.GIVE_UP, GiveUpCause.REJECTED)
            case TaskResult.UNREADABLE:
                return Decision(Verdict.GIVE_UP, GiveUpCause.UNREADABLE)
        may_retry = self.retries is not None or outcome.result is TaskResult.RETRY_ASKED
        if not may_retry or job.attempts >= self.attempts_max:
            return Decision(Verdict.GIVE_UP, GiveUpCause.EXHAUSTED)
        if outcome.retry_after_s is not None:
            return Decision(Verdict.RETRY, delay_ms=round(outcome.retry_after_s * 1000))
        return Decision(Verdict.RETRY, delay_ms=(self.retries or Backoff()).delay_ms(job.attempts, chance))


@dataclass(slots=True)
class _JobLane:
    jobs: list[Job] = field(default_factory=list)
    busy: Job | None = None


class Scheduler:
    def __init__(self, rules: Rules, *, concurrency: int, waiting_max: int, key_order: bool = False) -> None:
        self.rules = rules
        self._concurrency = concurrency
        self._held_max = concurrency + waiting_max
        self._key_order = key_order
        self._lanes: dict[Hashable, _JobLane] = {}
        self._ready: deque[Job] = deque()
        self._due: list[tuple[int, int, Job]] = []
        self._entered = 0
        self._slots_taken = 0
        self._queued = 0
        self._draining = False
        self.counts: dict[Stage, int] = dict.fromkeys(Stage, 0)

    @property
    def held(self) -> int:
        counts = self.counts
        return counts[Stage.READY] + counts[Stage.RUNNING] + counts[Stage.WAITING] + counts[Stage.GIVING_UP]

    @property
    def held_max(self) -> int:
        return self._held_max

    @property
    def has_ready(self) -> bool:
        """Something waits for nothing but a slot."""
        return self._queued > 0

    def room(self) -> int:
        """How many records to ask for now: they can all start at once."""
        if self._draining:
            return 0
        return max(0, min(self._concurrency - self._slots_taken - self._queued, self._held_max - self.held))

    def admit(self, job: Job) -> Decision:
        """Takes a record in. Anything but NOTHING is to be done with it before it ever runs."""
        self.counts[Stage.READY] += 1
        lane = self._lanes.setdefault(self._lane_of(job), _JobLane())
        insort(lane.jobs, job, key=_place)
        if self._draining:
            self._leave(job)
            return Decision(Verdict.RELEASE)
        if (cause := self.rules.arrival(job)) is not None:
            self._move(job, Stage.GIVING_UP)
            return Decision(Verdict.GIVE_UP, cause)
        self._offer(lane)
        return Decision(Verdict.NOTHING)

    def start(self, now_ms: int) -> list[Job]:
        """The records to run now. Each has taken a slot; its end is told by `finished`."""
        self._wake(now_ms)
        started: list[Job] = []
        while self._ready and self._slots_taken < self._concurrency:
            job = self._ready.popleft()
            if not job.is_queued:
                continue  # it has left, or another of its lane came before it
            self._unqueue(job)
            lane = self._lanes[self._lane_of(job)]
            lane.busy = job
            self._slots_taken += 1
            job.tries += 1
            self._move(job, Stage.RUNNING)
            started.append(job)
        return started

    def deadline_ms(self) -> int | None:
        """When `start` will have something to do that it has not now."""
        while self._due and self._due[0][2].stage is not Stage.WAITING:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def finished(
        self, job: Job, outcome: TaskOutcome, *, now_ms: int, chance: float, frees_slot: bool = True
    ) -> Decision:
        """A run has ended: what to do with its record. Records to retry and to give up stay held."""
        if frees_slot:
            self._slots_taken -= 1
        else:
            job.keeps_lane = self._key_order
        if job.stage is not Stage.RUNNING:
            self._free_lane(job)
            return Decision(Verdict.NOTHING)
        decision = self.rules.decide(job, outcome, chance)
        if decision.verdict is Verdict.RETRY and self._draining:
            decision = Decision(Verdict.RELEASE)
        if decision.verdict is Verdict.RETRY:
            self._move(job, Stage.WAITING)
            job.due_ms = now_ms + decision.delay_ms
            self._entered += 1
            heapq.heappush(self._due, (job.due_ms, self._entered, job))
            self._free_lane(job)
        elif decision.verdict is Verdict.GIVE_UP:
            self._move(job, Stage.GIVING_UP)
        else:
            self._leave(job)
            self._free_lane(job)
        return decision

    def free_slot(self, job: Job) -> None:
        """A run that was given up before it ended (`frees_slot=False`) has ended after all."""
        assert self._slots_taken > 0
        self._slots_taken -= 1
        if job.keeps_lane:
            job.keeps_lane = False
            self._free_lane(job)

    def settled(self, job: Job) -> None:
        """A record that was given up, or is released by the shell, has been dealt with."""
        if job.stage is not Stage.GONE:
            self._leave(job)
        self._free_lane(job)

    def lost(self, job: Job) -> bool:
        """The lock has ended. True when its function is still running; its lane stays busy until that has ended."""
        was_running = job.stage is Stage.RUNNING
        if job.stage is not Stage.GONE:
            self._leave(job)
        if not was_running:
            self._free_lane(job)
        return was_running

    def drain(self) -> list[Job]:
        """From now on nothing starts. Returns the records that no function has in hand: release them."""
        self._draining = True
        idle = [
            job
            for lane in self._lanes.values()
            for job in lane.jobs
            if job.stage in (Stage.READY, Stage.WAITING)
        ]
        for job in idle:
            self._leave(job)
        return idle

    def _lane_of(self, job: Job) -> Hashable:
        return job.key if self._key_order and job.key is not None else (job.partition, job.offset)

    def _offer(self, lane: _JobLane) -> None:
        """Puts the lane's first record in the queue if it may run, and takes one out that it comes before."""
        for job in lane.jobs[:2]:
            if job.is_queued and job is not lane.jobs[0]:
                self._unqueue(job)
        first = lane.jobs[0] if lane.jobs else None
        if first is not None and lane.busy is None and first.stage is Stage.READY and not first.is_queued:
            first.is_queued = True
            self._queued += 1
            self._ready.append(first)

    def _unqueue(self, job: Job) -> None:
        job.is_queued = False
        self._queued -= 1

    def _wake(self, now_ms: int) -> None:
        while self._due and (self._due[0][0] <= now_ms or self._due[0][2].stage is not Stage.WAITING):
            job = heapq.heappop(self._due)[2]
            if job.stage is Stage.WAITING:
                self._move(job, Stage.READY)
                self._offer(self._lanes[self._lane_of(job)])

    def _move(self, job: Job, stage: Stage) -> None:
        self.counts[job.stage] -= 1
        self.counts[stage] += 1
        job.stage = stage

    def _leave(self, job: Job) -> None:
        if job.is_queued:
            self._unqueue(job)
        self._move(job, Stage.GONE)
        name = self._lane_of(job)
        lane = self._lanes[name]
        lane.jobs.remove(job)
        if lane.busy is not job:
            self._tidy(name, lane)

    def _free_lane(self, job: Job) -> None:
        name = self._lane_of(job)
        lane = self._lanes.get(name)
        if lane is not None and lane.busy is job and not job.keeps_lane:
            lane.busy = None
            self._tidy(name, lane)

    def _tidy(self, name: Hashable, lane: _JobLane) -> None:
        if lane.jobs:
            self._offer(lane)
        elif lane.busy is None:
            del self._lanes[name]


def _place(job: Job) -> tuple[int, int]:
    return (job.partition, job.offset)
