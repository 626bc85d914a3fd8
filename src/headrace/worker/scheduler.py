"""Which of the records a worker holds runs next, and what becomes of it when its run has ended.

Theory of operation. No asyncio, no clock, no threads: the shell (`runner.py`) tells what happened and when, and does
what it is told. A worker holds every record it has fetched until it is settled; the lock is renewed meanwhile. A held
record is READY, then RUNNING, then either WAITING out its back-off (and READY again), GIVING_UP while the copy for
the dead-letter topic is being written, or gone.

Three bounds, all of them by not asking for more records than `room()` says:
- at most `concurrency` runs at a time (`slots.py`);
- no record is fetched that could not start at once, so that idle workers find work (peers hoard locks);
- at most `concurrency + waiting_max` records are held. When so many wait for another try, nothing new is fetched until
  one of them is settled. They are not released: a released record comes back at once, and a broken service would burn
  the deliveries of every record in the queue within seconds.

Of a batch (`ready.py`), all bounds count runs: at most `concurrency` calls at a time, each with up to `batch.max`
records, so `concurrency * batch.max` records can start at once. A record whose batch failed as a whole runs alone the
next time, and so does one on its third delivery: otherwise one bad record would use up the attempts of its neighbors.

A worker that may start nothing for an unknown time gives back what it has not begun (`unrunnable`). When record after
record fails, the circuit opens (`circuit.py`): one record at a time is tried, in growing intervals, until one succeeds.
The others stay where they are. Records of one key run one after another (`lanes.py`).

With strict order (`strict.py`), a partition may be taken away from this worker: `close_partition`. Nothing of it starts
any more, and what would be tried again is released.
"""

from collections.abc import Sequence
from typing import Generic

from headrace.worker.batch import Batch
from headrace.worker.circuit import Breaker, Circuit
from headrace.worker.jobs import CallSlot, J, Stage
from headrace.worker.lanes import Lanes
from headrace.worker.outcomes import TaskOutcome, TaskResult
from headrace.worker.rate import RateBucket
from headrace.worker.ready import ReadyJobs
from headrace.worker.rules import Decision, Rules, Verdict
from headrace.worker.slots import RunSlots

ALONE_DELIVERIES = 3
"""From this delivery on, a record is not run in a batch with others: it may be what ended the workers before."""


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
        self.circuit = Circuit(breaker)
        self.slots = RunSlots(concurrency, buckets)
        self._ready: ReadyJobs[J] = ReadyJobs(batch)
        self.lanes: Lanes[J] = Lanes(self._ready, key_order=key_order)
        self.held_max = concurrency * self._ready.call_max + waiting_max
        self._draining = False
        self._closed: set[int] = set()
        """Partitions of which nothing starts."""

    @property
    def has_ready(self) -> bool:
        """Something waits for nothing but a slot."""
        is_held_back = self._gathered_ms() is not None or not self.slots.startable
        return len(self._ready) > 0 and self.circuit.may_start and not is_held_back

    def unrunnable(self) -> list[J]:
        """The records that wait for a run, if no run may start until others give this worker a part: release them."""
        return self.lanes.give_back((Stage.READY,)) if self.slots.is_closed else []

    def room(self) -> int:
        """How many records to ask for now: they can all start at once. While the circuit is open, one for a probe."""
        if self._draining:
            return 0
        room = self.held_max - self.lanes.held
        if self.circuit.is_open:
            return int(room > 0 and self.slots.startable > 0 and self._ready.first_new() is None)
        startable = self.slots.startable * self._ready.call_max - len(self._ready)
        return max(0, min(startable, room))

    def admit(self, job: J) -> Decision:
        """Takes a record in. Anything but NOTHING is to be done with it before it ever runs."""
        job.is_alone = job.delivery_count >= ALONE_DELIVERIES
        self.lanes.add(job)
        if self._is_ending(job):
            self.lanes.leave(job)
            return Decision(Verdict.RELEASE)
        if (cause := self.rules.arrival(job)) is not None:
            self.lanes.give_up(job)
            return Decision(Verdict.GIVE_UP, cause)
        self.lanes.offer(job)
        return Decision(Verdict.NOTHING)

    def start(self, now_ms: int) -> list[J]:
        """The records to run now; those of one batch have the same `slot`. The end of each is told by `finished`."""
        self.lanes.wake(now_ms)
        self.circuit.tick(now_ms)
        self.slots.fill(now_ms)
        self._ready.stamp(now_ms)
        started: list[J] = []
        while self.slots.startable and self.circuit.may_start:
            jobs = self._ready.take(now_ms, is_probing=self.circuit.is_open)
            if not jobs:
                break
            slot = self.slots.take(jobs)
            for job in jobs:
                job.slot = slot
                job.tries += 1
                self.lanes.run(job)
                self.circuit.started(job)
            started += jobs
        return started

    def deadline_ms(self) -> int | None:
        """When `start` will have something to do that it has not now."""
        gathered_ms = self._gathered_ms() if self.slots.startable else None
        moments = (self.lanes.next_ms(), self.circuit.probe_ms, gathered_ms, self.slots.next_ms())
        return min((at_ms for at_ms in moments if at_ms is not None), default=None)

    def _gathered_ms(self) -> int | None:
        return self._ready.gathered_ms(is_probing=self.circuit.is_open)

    def finished(
        self, job: J, outcome: TaskOutcome, *, now_ms: int, chance: float, frees_slot: bool = True
    ) -> Decision:
        """A run has ended: what to do with its record. Records to retry and to give up stay held.

        Of a batch, those that succeeded are told first.
        """
        slot = job.slot
        assert slot is not None
        if frees_slot:
            self.slots.free(slot)
        else:
            self.lanes.keep(job)
        self._tell_circuit(job, slot, outcome, now_ms)
        job.is_alone = job.is_alone or outcome.is_shared
        if job.stage is not Stage.RUNNING:
            self.lanes.free(job)
            return Decision(Verdict.NOTHING)
        decision = self.rules.decide(job, outcome, chance)
        if decision.verdict is Verdict.RETRY and self._is_ending(job):
            decision = Decision(Verdict.RELEASE)
        if decision.verdict is Verdict.RETRY:
            job.is_stuck = decision.cause is not None
            self.lanes.wait(job, now_ms + decision.delay_ms)
        elif decision.verdict in (Verdict.GIVE_UP, Verdict.DEFER):
            self.lanes.give_up(job)
        else:
            self.lanes.leave(job)
            self.lanes.free(job)
        return decision

    def _tell_circuit(self, job: J, slot: CallSlot, outcome: TaskOutcome, now_ms: int) -> None:
        """A batch that failed as a whole is one failure. Failures beside a success of the same batch do not count."""
        if outcome.result is TaskResult.DONE:
            slot.has_success = True
        elif slot.has_success:
            return
        record = slot.first if outcome.is_shared else job.place
        self.circuit.ended(job, record, outcome, now_ms)

    def hold(self, job: J, due_ms: int) -> None:
        """A record that was to be scheduled could not be: it waits here."""
        if job.stage is Stage.GIVING_UP:
            self.lanes.wait(job, due_ms)

    def free_slot(self, job: J, slot: CallSlot) -> None:
        """A run that was given up before it ended (`frees_slot=False`) has ended after all."""
        self.slots.free(slot)
        self.lanes.let_go(job)

    def leave(self, job: J) -> None:
        """The shell has settled a record, or its lock has ended. While its function runs, its lane stays busy."""
        if job.stage is not Stage.GONE:
            self.lanes.leave(job)

    def drain(self) -> list[J]:
        """From now on nothing starts. Returns the records that no function has in hand: release them."""
        self._draining = True
        return self.lanes.give_back((Stage.READY, Stage.WAITING))

    def close_partition(self, partition: int) -> list[J]:
        """The same for one partition, until `open_partition`."""
        self._closed.add(partition)
        return self.lanes.give_back((Stage.READY, Stage.WAITING), partition)

    def open_partition(self, partition: int) -> None:
        self._closed.discard(partition)

    def _is_ending(self, job: J) -> bool:
        return self._draining or job.partition in self._closed
