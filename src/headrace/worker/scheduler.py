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

Limits. `set_capacity` lowers the number of runs at a time below `concurrency`, for a limit that a group of workers
shares; `buckets` (`rate.py`) say how many may start by now. A worker that may start nothing for an unknown time gives
back what it has not begun (`unrunnable`).

Batches. With `batch`, one run gets several records, and all bounds above count runs: at most `concurrency` calls at a
time, each with up to `batch.max` records, so `concurrency * batch.max` records can start at once. A call that is not
full starts when its first record has waited for `batch.wait`. A record whose batch failed as a whole runs alone the
next time, and so does one on its third delivery: otherwise one bad record would use up the attempts of its neighbors.

When record after record fails, the circuit opens (`circuit.py`): one record at a time is tried, in growing intervals,
until one succeeds. The others stay where they are.

Lanes. Every record belongs to a lane, and of a lane one record runs at a time, in the order of offsets; a record that
waits for its back-off, or whose dead letter is being written, holds its lane. With `key_order` the lane is the
record's key, else the record itself. So a record that was lost and delivered again while a thread still works on it
does not run twice at once either. A thread that goes on after its timeout is given up: with `key_order` it holds its
lane until it ends, else its record is tried again beside it.

With strict order (`strict.py`), a partition may be taken away from this worker: `close_partition`. Nothing of it starts
any more, and what would be tried again is released.
"""

import heapq
from bisect import insort
from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from headrace.worker.backoff import Backoff
from headrace.worker.batch import Batch
from headrace.worker.circuit import Breaker, Circuit
from headrace.worker.outcomes import TaskOutcome, TaskResult
from headrace.worker.rate import RateBucket

HOLD_ATTEMPTS = 1_000
"""So many attempts have the longest delay of every back-off."""
ALONE_DELIVERIES = 3
"""From this delivery on, a record is not run in a batch with others: it may be what ended the workers before."""


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
    DEFER = "defer"
    """Another try after so long that the record does not keep its lock: it is scheduled."""
    GIVE_UP = "give up"
    RELEASE = "release"
    NOTHING = "nothing"
    """The record is not ours any more."""


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Verdict
    cause: GiveUpCause | None = None
    """Of a RETRY: the record would be given up if there were a dead-letter topic."""
    delay_ms: int = 0


@dataclass(slots=True, eq=False)
class CallSlot:
    """One of the `concurrency` runs, with the records that it has."""

    first: tuple[int, int]
    """Partition and offset of its first record."""
    left: int
    """Records whose end has not been told."""
    has_success: bool = False


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
    carried: int = 0
    """Attempts of earlier copies of the record."""
    is_stuck: bool = False
    """It has used up its attempts, or cannot be read, and is held because there is no dead-letter topic."""
    is_alone: bool = False
    """It is not run in a batch with others."""
    ready_ms: int | None = None
    """Of a task with batches: since when it has waited for a run."""
    slot: CallSlot | None = None
    """Of its run, or of its last one."""

    @property
    def attempts(self) -> int:
        """Runs so far as far as anyone can know: earlier deliveries count as one each."""
        return self.carried + self.tries + self.delivery_count - 1


J = TypeVar("J", bound=Job)
"""A job with what the shell knows of it."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What decides about another try."""

    retries: Backoff | None
    delivery_limit: int
    saves_last_delivery: bool = False
    """The worker itself writes dead letters. A record on its last delivery is then given up without a run: should it
    bring down this worker as well, the broker would archive it and no copy would ever be written."""
    holds: bool = False
    """There are no dead letters. A record that would be one is held and tried again, as rarely as the back-off goes."""
    hold_ms_max: int | None = None
    """Longer waits than this are scheduled."""

    @property
    def attempts_max(self) -> int | None:
        return self.retries.tries if self.retries is not None else 1

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
                return self._hopeless(GiveUpCause.UNREADABLE, chance)
        retries = self.retries
        if retries is None and outcome.result is TaskResult.RETRY_ASKED:
            retries = Backoff()
        if retries is None:
            return Decision(Verdict.GIVE_UP, GiveUpCause.EXHAUSTED)
        if retries.tries is not None and job.attempts >= retries.tries:
            return self._hopeless(GiveUpCause.EXHAUSTED, chance)
        if outcome.retry_after_s is not None:
            delay_ms = round(outcome.retry_after_s * 1000)
        else:
            delay_ms = retries.delay_ms(job.attempts, chance)
        is_long = self.hold_ms_max is not None and delay_ms > self.hold_ms_max
        return Decision(Verdict.DEFER if is_long else Verdict.RETRY, delay_ms=delay_ms)

    def _hopeless(self, cause: GiveUpCause, chance: float) -> Decision:
        if not self.holds:
            return Decision(Verdict.GIVE_UP, cause)
        retries = self.retries or Backoff()
        return Decision(Verdict.RETRY, cause, retries.delay_ms(HOLD_ATTEMPTS, chance))


@dataclass(slots=True)
class _JobLane(Generic[J]):
    jobs: list[J] = field(default_factory=list)
    busy: J | None = None


class Scheduler(Generic[J]):
    def __init__(
        self,
        rules: Rules,
        *,
        concurrency: int,
        waiting_max: int,
        key_order: bool = False,
        breaker: Breaker | None = None,
        batch: Batch | None = None,
        buckets: Sequence[RateBucket] = (),
    ) -> None:
        self.rules = rules
        self.buckets = buckets
        self.circuit = Circuit(breaker)
        self._slots_max = self._concurrency = concurrency
        self._batch = batch
        self._batch_max = batch.max if batch is not None else 1
        self._held_max = concurrency * self._batch_max + waiting_max
        self._key_order = key_order
        self._lanes: dict[Hashable, _JobLane[J]] = {}
        self._ready: deque[J] = deque()
        self._due: list[tuple[int, int, J]] = []
        self._entered = 0
        self._slots_taken = 0
        self._queued = 0
        self._draining = False
        self._closed: set[int] = set()
        """Partitions of which nothing starts."""
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
        is_held_back = self._gathered_ms() is not None or not self._startable()
        return self._queued > 0 and self.circuit.may_start and not is_held_back

    def set_capacity(self, runs: int) -> None:
        """How many runs at a time are left to this worker, of those of its group."""
        self._slots_max = min(self._concurrency, runs)

    def unrunnable(self) -> list[J]:
        """The records that wait for a run, if no run may start until others give this worker a part: release them."""
        if self._slots_max and not any(bucket.is_closed for bucket in self.buckets):
            return []
        return self._give_back((Stage.READY,))

    @property
    def calls(self) -> int:
        """How many calls go on, including those whose records have all lost their locks."""
        return self._slots_taken

    def room(self) -> int:
        """How many records to ask for now: they can all start at once. While the circuit is open, one for a probe."""
        if self._draining:
            return 0
        if self.circuit.is_open:
            may_hold = self.held < self._held_max and self._startable() > 0
            return int(may_hold and self._new_record() is None)
        startable = self._startable() * self._batch_max - self._queued
        return max(0, min(startable, self._held_max - self.held))

    def admit(self, job: J) -> Decision:
        """Takes a record in. Anything but NOTHING is to be done with it before it ever runs."""
        job.is_alone = job.delivery_count >= ALONE_DELIVERIES
        self.counts[Stage.READY] += 1
        lane = self._lanes.setdefault(self._lane_of(job), _JobLane())
        insort(lane.jobs, job, key=_place)
        if self._is_ending(job):
            self._leave(job)
            return Decision(Verdict.RELEASE)
        if (cause := self.rules.arrival(job)) is not None:
            self._move(job, Stage.GIVING_UP)
            return Decision(Verdict.GIVE_UP, cause)
        self._offer(lane)
        return Decision(Verdict.NOTHING)

    def start(self, now_ms: int) -> list[J]:
        """The records to run now; those of one batch have the same `slot`. The end of each is told by `finished`."""
        self._wake(now_ms)
        self.circuit.tick(now_ms)
        for bucket in self.buckets:
            bucket.fill(now_ms)
        if self._batch is not None:
            self._stamp(now_ms)
        started: list[J] = []
        while self._startable() and self.circuit.may_start:
            jobs = self._take_batch(self._batch, now_ms) if self._batch is not None else self._take_one()
            if not jobs:
                break
            self._slots_taken += 1
            for bucket in self.buckets:
                bucket.take()
            slot = CallSlot(_place(jobs[0]), len(jobs))
            for job in jobs:
                self._run(job, slot)
            started += jobs
        return started

    def _startable(self) -> int:
        """How many runs may start now."""
        free = max(0, self._slots_max - self._slots_taken)
        return min(free, *(bucket.runs for bucket in self.buckets)) if self.buckets else free

    def _run(self, job: J, slot: CallSlot) -> None:
        self._unqueue(job)
        self._lanes[self._lane_of(job)].busy = job
        job.slot = slot
        job.tries += 1
        self._move(job, Stage.RUNNING)
        self.circuit.started(job)

    def _take_one(self) -> list[J]:
        while self._ready:
            job = self._take_ready()
            if job.is_queued:
                return [job]  # else it has left, or another of its lane came before it
        return []

    def _take_batch(self, batch: Batch, now_ms: int) -> list[J]:
        """The records of the next call; none while those that are here may wait for more."""
        if self.circuit.is_open:
            return self._take_one()
        alone = next((job for job in self._ready if job.is_queued and job.is_alone), None)
        if alone is not None:
            self._ready.remove(alone)
            return [alone]
        gathered_ms = self._gathered_ms()
        if not self._queued or (gathered_ms is not None and now_ms < gathered_ms):
            return []
        jobs: list[J] = []
        while self._ready and len(jobs) < batch.max:
            job = self._ready.popleft()
            if job.is_queued and job not in jobs:
                jobs.append(job)
        return jobs

    def _stamp(self, now_ms: int) -> None:
        """Notes when records began to wait for a run: those that came since the last time are the last in the queue."""
        for job in reversed(self._ready):
            if job.ready_ms is not None:
                break
            job.ready_ms = now_ms

    def _gathered_ms(self) -> int | None:
        """When the records at hand have waited long enough for more; None if they need not wait, or there are none."""
        if self._batch is None or self.circuit.is_open or self._queued >= self._batch.max:
            return None
        first = next((job for job in self._ready if job.is_queued), None)
        if first is None or any(job.is_queued and job.is_alone for job in self._ready):
            return None
        return (first.ready_ms or 0) + round(self._batch.wait * 1000)

    def _take_ready(self) -> J:
        """The next one; for a probe a new one, because those that have failed may do so for ever."""
        new = self._new_record() if self.circuit.is_open else None
        if new is None:
            return self._ready.popleft()
        self._ready.remove(new)
        return new

    def _new_record(self) -> J | None:
        """The first in the queue that has not been run in this delivery."""
        return next((job for job in self._ready if job.is_queued and not job.tries), None)

    def deadline_ms(self) -> int | None:
        """When `start` will have something to do that it has not now."""
        while self._due and self._due[0][2].stage is not Stage.WAITING:
            heapq.heappop(self._due)
        moments = [self._due[0][0]] if self._due else []
        if (probe_ms := self.circuit.probe_ms) is not None:
            moments.append(probe_ms)
        if self._startable() and (gathered_ms := self._gathered_ms()) is not None:
            moments.append(gathered_ms)
        if self._slots_taken < self._slots_max:
            moments += [at_ms for bucket in self.buckets if (at_ms := bucket.next_ms()) is not None]
        return min(moments, default=None)

    def finished(
        self, job: J, outcome: TaskOutcome, *, now_ms: int, chance: float, frees_slot: bool = True
    ) -> Decision:
        """A run has ended: what to do with its record. Records to retry and to give up stay held.

        Of a batch, those that succeeded are told first.
        """
        slot = job.slot
        assert slot is not None
        if frees_slot:
            self._free(slot)
        else:
            job.keeps_lane = self._key_order
        self._tell_circuit(job, slot, outcome, now_ms)
        job.is_alone = job.is_alone or outcome.is_shared
        if job.stage is not Stage.RUNNING:
            self._free_lane(job)
            return Decision(Verdict.NOTHING)
        decision = self.rules.decide(job, outcome, chance)
        if decision.verdict is Verdict.RETRY and self._is_ending(job):
            decision = Decision(Verdict.RELEASE)
        if decision.verdict is Verdict.RETRY:
            job.is_stuck = decision.cause is not None
            self._wait(job, now_ms + decision.delay_ms)
        elif decision.verdict in (Verdict.GIVE_UP, Verdict.DEFER):
            self._move(job, Stage.GIVING_UP)
        else:
            self._leave(job)
            self._free_lane(job)
        return decision

    def _tell_circuit(self, job: J, slot: CallSlot, outcome: TaskOutcome, now_ms: int) -> None:
        """A batch that failed as a whole is one failure. Failures beside a success of the same batch do not count."""
        if outcome.result is TaskResult.DONE:
            slot.has_success = True
        elif slot.has_success:
            return
        record = slot.first if outcome.is_shared else _place(job)
        self.circuit.ended(job, record, outcome, now_ms)

    def hold(self, job: J, due_ms: int) -> None:
        """A record that was to be scheduled could not be: it waits here."""
        if job.stage is Stage.GIVING_UP:
            self._wait(job, due_ms)

    def _wait(self, job: J, due_ms: int) -> None:
        self._move(job, Stage.WAITING)
        job.due_ms = due_ms
        self._entered += 1
        heapq.heappush(self._due, (due_ms, self._entered, job))
        self._free_lane(job)

    def free_slot(self, job: J, slot: CallSlot) -> None:
        """A run that was given up before it ended (`frees_slot=False`) has ended after all."""
        self._free(slot)
        if job.keeps_lane:
            job.keeps_lane = False
            self._free_lane(job)

    def _free(self, slot: CallSlot) -> None:
        assert slot.left > 0
        slot.left -= 1
        if not slot.left:
            self._slots_taken -= 1

    def settled(self, job: J) -> None:
        """A record that was given up, or is released by the shell, has been dealt with."""
        if job.stage is not Stage.GONE:
            self._leave(job)
        self._free_lane(job)

    def lost(self, job: J) -> bool:
        """The lock has ended. True when its function is still running; its lane stays busy until that has ended."""
        if job.stage is Stage.GONE:
            return False
        was_running = job.stage is Stage.RUNNING
        self._leave(job)
        if not was_running:
            self._free_lane(job)
        return was_running

    def drain(self) -> list[J]:
        """From now on nothing starts. Returns the records that no function has in hand: release them."""
        self._draining = True
        return self._give_back((Stage.READY, Stage.WAITING))

    def close_partition(self, partition: int) -> list[J]:
        """The same for one partition, until `open_partition`."""
        self._closed.add(partition)
        return self._give_back((Stage.READY, Stage.WAITING), partition)

    def open_partition(self, partition: int) -> None:
        self._closed.discard(partition)

    def _is_ending(self, job: J) -> bool:
        return self._draining or job.partition in self._closed

    def _give_back(self, stages: Sequence[Stage], partition: int | None = None) -> list[J]:
        idle = [
            job
            for lane in self._lanes.values()
            for job in lane.jobs
            if job.stage in stages and partition in (None, job.partition)
        ]
        for job in idle:
            self._leave(job)
        return idle

    def _lane_of(self, job: J) -> Hashable:
        return job.key if self._key_order and job.key is not None else (job.partition, job.offset)

    def _offer(self, lane: _JobLane[J]) -> None:
        """Puts the lane's first record in the queue if it may run, and takes one out that it comes before."""
        for job in lane.jobs[:2]:
            if job.is_queued and job is not lane.jobs[0]:
                self._unqueue(job)
        first = lane.jobs[0] if lane.jobs else None
        if first is not None and lane.busy is None and first.stage is Stage.READY and not first.is_queued:
            first.is_queued = True
            first.ready_ms = None
            self._queued += 1
            self._ready.append(first)

    def _unqueue(self, job: J) -> None:
        job.is_queued = False
        self._queued -= 1

    def _wake(self, now_ms: int) -> None:
        while self._due and (self._due[0][0] <= now_ms or self._due[0][2].stage is not Stage.WAITING):
            job = heapq.heappop(self._due)[2]
            if job.stage is Stage.WAITING:
                self._move(job, Stage.READY)
                self._offer(self._lanes[self._lane_of(job)])

    def _move(self, job: J, stage: Stage) -> None:
        self.counts[job.stage] -= 1
        self.counts[stage] += 1
        job.stage = stage

    def _leave(self, job: J) -> None:
        if job.is_queued:
            self._unqueue(job)
        self._move(job, Stage.GONE)
        name = self._lane_of(job)
        lane = self._lanes[name]
        lane.jobs.remove(job)
        if lane.busy is not job:
            self._tidy(name, lane)

    def _free_lane(self, job: J) -> None:
        name = self._lane_of(job)
        lane = self._lanes.get(name)
        if lane is not None and lane.busy is job and not job.keeps_lane:
            lane.busy = None
            self._tidy(name, lane)

    def _tidy(self, name: Hashable, lane: _JobLane[J]) -> None:
        if lane.jobs:
            self._offer(lane)
        elif lane.busy is None:
            del self._lanes[name]


def _place(job: Job) -> tuple[int, int]:
    return (job.partition, job.offset)
