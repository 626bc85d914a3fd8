"""Runs one task: a consumer that fetches what there is room for, a scheduler that decides, a pool that runs.

Everything here happens on one event loop, the worker's own (`threads.py`); coroutines of the user run on theirs. The
scheduler (`scheduler.py`) says what to do; this file does it: starts functions, watches their time, writes dead
letters, settles deliveries, and drains at the end. The consumer renews the lock of every record it has handed out
(`auto.renew`) as long as this process lives; the hard end is the task's timeout.
A record is settled exactly once here, by `_settle`; a result that comes after its lock was lost settles nothing.

The consumer is a share consumer, or with `key_order="strict"` a member of a consumer group (`strict.py`). Then whole
partitions may be taken away (`_revoke`), and a worker whose functions cannot be stopped does not leave the group.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.errors import AuthorizationError, CorruptRecordError, IllegalStateError, WakeupError
from headrace.client.identity import process_name
from headrace.wire.errors import KafkaError
from headrace.worker.batch import spread
from headrace.worker.dead_letter_writer import DeadLetterWriter
from headrace.worker.dead_letters import describe
from headrace.worker.group_facts import GroupFacts
from headrace.worker.hooks import TaskRun
from headrace.worker.limits import GroupLimits
from headrace.worker.metrics import TaskMetrics
from headrace.worker.outbox import Outbox
from headrace.worker.outcomes import BodyError, TaskOutcome, TaskResult, outcome_of, timed_out
from headrace.worker.pools import CallPool, LoopPool, ProcessPool, TaskCall, ThreadPool, run
from headrace.worker.rate import RateBucket
from headrace.worker.requeue import carried_attempts, headers_of_copy, requeue
from headrace.worker.run_logs import log_circuit, log_retry
from headrace.worker.schedule import Schedule
from headrace.worker.scheduler import CallSlot, Decision, GiveUpCause, Job, Rules, Scheduler, Stage, Verdict
from headrace.worker.strict import StrictConsumer
from headrace.worker.task import Pool, Task, TaskOptions
from headrace.worker.threads import OtherLoopPool
from headrace.worker.transactions.copies import CopyResult, OnceCopies
from headrace.worker.typed import TypedPool, TypedTasks

logger = logging.getLogger("headrace.worker")

POLL_S = 30.0
STOP_S = 5.0
"""How long a coroutine or a process may take to end once it was told to."""
CLOSE_S = 30.0
DENIED_WAIT_S = 1.0
RUNS_MAX = 100
"""How many runs of a task a worker tells of."""
STOPPED = TaskOutcome(TaskResult.REJECTED, "it was stopped")
"""Of a run that was not waited for: no failure of what it does."""
STRICT_FACTS = GroupFacts(delivery_limit=2**31 - 1)
"""A consumer group counts no deliveries, and its broker writes no dead letters."""
DENIED_LOG_MS = 60_000
"""How often a worker whose access was taken away says so."""


@dataclass(frozen=True, slots=True)
class DeliveryFacts:
    """What a function in another process gets in place of the Delivery: its fields without its methods."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    timestamp: int
    delivery_count: int


@dataclass(frozen=True, slots=True)
class RunningRecord:
    """A record that a function is working on."""

    topic: str
    partition: int
    offset: int
    attempt: int
    seconds: float
    """For so long."""


@dataclass(slots=True, eq=False)
class _Run:
    """One call of the function, for a held record or for a batch of them."""

    helds: "Sequence[_HeldJob]"
    slot: CallSlot
    call: TaskCall
    began_s: float
    timer: asyncio.TimerHandle | None = None
    is_timed_out: bool = False
    is_cut: bool = False
    """The worker stops, and does not wait for it."""
    is_abandoned: bool = False
    """It could not be stopped; nobody waits for it any more, but its slot is taken."""

    @property
    def partitions(self) -> set[int]:
        return {held.job.partition for held in self.helds}

    @property
    def is_lost(self) -> bool:
        return all(held.job.stage is Stage.GONE for held in self.helds)

    def __str__(self) -> str:
        more = len(self.helds) - 1
        return f"{self.helds[0]}" + (f" and {more} more" if more else "")


@dataclass(slots=True, eq=False)
class _HeldJob:
    """A held record with what is known of it here."""

    job: Job
    delivery: Delivery
    task: str
    """The name of its task."""
    run: _Run | None = None
    """The one that goes on now."""

    def __str__(self) -> str:
        return f"{self.delivery.topic}-{self.delivery.partition}@{self.delivery.offset}"


class TaskRunner:
    def __init__(
        self,
        task: "Task[Any, Any, Any]",
        *,
        settings: Mapping[str, Any],
        group_id: str,
        facts: GroupFacts,
        outbox: Outbox,
        worker: str,
        drain_timeout: float,
        user_loop: asyncio.AbstractEventLoop | None = None,
        schedule: Schedule | None = None,
        hold_max: float = 60.0,
        copies: OnceCopies | None = None,
        start_from: str | None = "earliest",
    ) -> None:
        """Coroutines run on `user_loop`, or on the loop of the runner itself. Without a `schedule`, records that wait
        for a retry keep their locks, however long."""
        options = task.options
        facts = STRICT_FACTS if options.is_strict else facts
        holds_ms = round(hold_max * 1000) if schedule is not None and not options.key_order else None
        self._schedule = schedule
        self.scheduler = _build_scheduler(options, facts, holds_ms)
        self.task = task
        self._settings = dict(settings)
        self._group_id = group_id
        self._facts = facts
        self._outbox = outbox
        self._letters = (
            DeadLetterWriter(outbox, options.dead_letter, group_id=group_id, worker=worker)
            if options.dead_letter is not None
            else None
        )
        self._copies = copies
        self._drain_timeout = drain_timeout
        self._metrics = TaskMetrics()
        self._held: dict[Job, _HeldJob] = {}
        self._places: dict[tuple[int, int], _HeldJob] = {}
        self._copying: dict[asyncio.Task[None], _HeldJob] = {}
        self._unconfirmed: dict[tuple[int, int], str] = {}
        """Records whose acknowledgement was sent, and the counter that grows when the broker has confirmed it."""
        self._loop = asyncio.get_running_loop()
        self._pool = _build_pool(task, user_loop)
        self._stopping = asyncio.Event()
        self._denied_ms: int | None = None
        """When the log last said that access is denied."""
        self._cutting = asyncio.Event()
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._pumps_soon = False
        self._commits_soon = False
        self._is_closed = False
        self._going: set[_Run] = set()
        """The calls that have not ended, also those that nobody waits for any more."""
        self._strict = self._build_strict(start_from) if options.is_strict else None
        self._consumer = self._strict or self._build_consumer()
        self._limits = GroupLimits(
            task,
            self._settings,
            group_id,
            self.scheduler,
            changed=self._pump_soon,
            lost=self._stop_runs,
            now_ms=self._now_ms,
        )

    def metrics(self) -> TaskMetrics:
        counts = self.scheduler.counts
        return replace(
            self._metrics,
            paused=int(self.scheduler.circuit.is_open),
            pauses=self.scheduler.circuit.opened,
            stuck=sum(job.is_stuck for job in self._held.copy()),
            running=counts[Stage.RUNNING],
            waiting=counts[Stage.WAITING],
            held=self.scheduler.held,
            run_seconds_counts=list(self._metrics.run_seconds_counts),
        )

    def runs(self) -> list[RunningRecord]:
        """What the function is working on now, the longest run first, at most RUNS_MAX. From any thread."""
        now_s = self._loop.time()
        found = [
            RunningRecord(
                held.delivery.topic,
                held.delivery.partition,
                held.delivery.offset,
                attempt=held.job.attempts,
                seconds=max(0.0, now_s - run.began_s),
            )
            for held in self._held.copy().values()
            if (run := held.run) is not None
        ]
        return sorted(found, key=lambda one: -one.seconds)[:RUNS_MAX]

    @property
    def unconfirmed(self) -> int:
        """Records whose acknowledgement the broker has still to confirm."""
        return len(self._unconfirmed)

    @property
    def partitions(self) -> list[int]:
        """Of a task with strict order: the partitions that this worker has."""
        return self._strict.partitions if self._strict is not None else []

    def open_records(self, bounds: Sequence[tuple[int, int]]) -> int:
        """Of a task with strict order: records of logs with these starts and ends that are not completed."""
        return self._strict.open_records(bounds) if self._strict is not None else 0

    @property
    def completed(self) -> Mapping[str, Mapping[int, int]]:
        """Of a task with strict order: by topic id and partition, the offset below which all is completed."""
        return self._strict.completed if self._strict is not None else {}

    def lock_deadlines(self) -> list[float]:
        """When the locks of the held records end, as `time.time()` counts."""
        return [held.delivery.lock_deadline for held in self._held.values()]

    def stop(self, *, now: bool = False) -> None:
        """Drains; `now` does not wait for functions that run. May be called again to hurry."""
        if now:
            self._cutting.set()
        self._stopping.set()
        self._changed.set()
        self._consumer.wakeup()

    def _build_consumer(self) -> AsyncShareConsumer:
        consumer = AsyncShareConsumer(self._consumer_settings(), on_lost=self._lost, tells_at_once=True)
        consumer.set_acknowledgement_commit_callback(self._committed)
        return consumer

    def _build_strict(self, start_from: str | None) -> StrictConsumer:
        return StrictConsumer(
            self._consumer_settings(),
            self._group_id,
            self.task.topic,
            start_from=start_from,
            on_lost=self._lost,
            on_committed=self._committed,
            opened=self.scheduler.open_partition,
            revoked=self._revoke,
            quiet=lambda: self._until(lambda: not self._going),
        )

    async def start(self) -> None:
        """Connects; raises when no broker can be reached or the settings are refused."""
        await self._limits.start()
        if isinstance(self._consumer, AsyncShareConsumer):
            await self._consumer.__aenter__()
            self._consumer.subscribe([self.task.topic])
        else:
            await self._consumer.start()

    async def run(self) -> None:
        """Works until `stop`, then drains and leaves the group. Raises what makes it impossible to go on."""
        try:
            await self._fetch()
            await self._drain()
        finally:
            await self.close()

    async def close(self) -> None:
        """Ends at once what still goes on; leaving the group gives back what is held."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for copying in list(self._copying):
            copying.cancel()
        for each in self._runs():
            each.call.stop()
        if isinstance(self._pool, ProcessPool | TypedPool):
            await asyncio.to_thread(self._pool.close)  # it waits for processes to end
        else:
            self._pool.close()
        if isinstance(self._consumer, StrictConsumer):
            await self._close_strict(self._consumer)
        else:
            await self._consumer.close(timeout=CLOSE_S)
        await self._limits.close()

    async def _close_strict(self, consumer: StrictConsumer) -> None:
        """Leaves the group if nothing runs any more: else others would run the same keys beside it."""
        for each in self._going:
            each.call.stop()
        with contextlib.suppress(TimeoutError):
            await self._until(
                lambda: not self._going, STOP_S if self.task.options.pool is not Pool.THREAD else 0.0
            )
        if self._going:
            logger.warning(
                "%s: %d runs continue, because they cannot be stopped; others get its partitions when the group's "
                "session has timed out%s",
                self.task.name, len(self._going), _cure(self.task),
            )  # fmt: skip
        await consumer.close(leaves=not self._going)

    async def _revoke(self, partition: int) -> None:
        """Starts nothing of a partition any more. Returns when nothing of it runs: others are to have it."""
        for job in self.scheduler.close_partition(partition):
            self._release(self._held[job])
        with contextlib.suppress(TimeoutError):
            await self._until(lambda: not self._works_on(partition), self._drain_timeout)
        for each in self._going:
            if partition in each.partitions:
                each.is_cut = True
                if not each.call.stop():
                    logger.warning(
                        "%s: another worker waits for the run of %s, which cannot be stopped%s",
                        self.task.name, each, _cure(self.task),
                    )  # fmt: skip
        for copying, held in list(self._copying.items()):
            if held.job.partition == partition:
                copying.cancel()
                if held.job in self._held:
                    self._release_cut(held)
        await self._until(lambda: not self._works_on(partition))

    def _works_on(self, partition: int) -> bool:
        return any(held.job.partition == partition for held in self._held.values()) or any(
            partition in run.partitions for run in self._going
        )

    async def _until(self, is_so: Callable[[], bool], seconds: float | None = None) -> None:
        """Waits for something that changes when a run ends. TimeoutError."""
        async with asyncio.timeout(seconds):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def _stop_runs(self) -> None:
        """Others may have this worker's part of a limit by now."""
        for each in self._runs():
            each.is_cut = True
            each.call.stop()

    async def _fetch(self) -> None:
        while not self._stopping.is_set():
            self._changed.clear()
            room = self.scheduler.room()
            if room == 0:
                await self._changed.wait()
                continue
            try:
                deliveries = await self._consumer.poll(timeout=POLL_S, max_records=room)
            except WakeupError:
                continue
            except CorruptRecordError as error:
                logger.error("%s: %s", self.task.name, error)
                continue
            except AuthorizationError as error:
                if not self._has_worked():
                    raise  # it has never worked: a mistake in the setup
                await self._wait_for_access(error)
                continue
            for delivery in deliveries:
                self._admit(delivery)
            self._pump()

    def _has_worked(self) -> bool:
        if isinstance(self._consumer, StrictConsumer):
            return self._consumer.has_worked
        return self._consumer.acquisition_lock_timeout_ms() is not None

    async def _wait_for_access(self, error: AuthorizationError) -> None:
        """Access was taken away from a worker that had it. Somebody may give it back; to end would not help."""
        now_ms = self._now_ms()
        if self._denied_ms is None or now_ms - self._denied_ms >= DENIED_LOG_MS:
            self._denied_ms = now_ms
            logger.error("%s: %s The worker gets no records now and keeps trying.", self.task.name, error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), DENIED_WAIT_S)

    def _admit(self, delivery: Delivery) -> None:
        self._metrics.received += 1
        job = Job(
            delivery.partition,
            delivery.offset,
            delivery.key,
            delivery.delivery_count,
            carried=carried_attempts(delivery.headers),
        )
        held = _HeldJob(job, delivery, self.task.name_for(delivery.headers))
        self._held[job] = held
        self._places[(delivery.partition, delivery.offset)] = held
        self._carry_out(held, self.scheduler.admit(job), None)

    def _pump(self) -> None:
        """Starts what may start, and sets the alarm for the next record whose delay is over."""
        self._pumps_soon = False
        if self._is_closed:
            return
        if self._strict is not None:
            self._strict.check()
        started = self.scheduler.start(self._now_ms())
        for slot, jobs in groupby(started, key=lambda job: job.slot):
            assert slot is not None
            self._start(slot, [self._held[job] for job in jobs])
        for job in self.scheduler.unrunnable():
            self._release(self._held[job])
        self._limits.note_end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (deadline_ms := self.scheduler.deadline_ms()) is not None:
            self._timer = self._loop.call_at(deadline_ms / 1000, self._pump)
        self._changed.set()

    def _pump_soon(self) -> None:
        if not self._pumps_soon:
            self._pumps_soon = True
            self._loop.call_soon(self._pump)

    def _start(self, slot: CallSlot, helds: Sequence[_HeldJob]) -> None:
        readable: list[_HeldJob] = []
        bodies: list[Any] = []
        for held in helds:
            try:
                bodies.append(self.task.codec.read(held.delivery.value, held.delivery.headers))
                readable.append(held)
            except BodyError as error:
                self._finished(held, outcome_of(error))
        if not readable:
            return
        try:
            call = self._pool.start(self._arguments(readable, bodies))
        except Exception as error:  # no more threads or processes to be had
            for held, outcome in zip(readable, spread(outcome_of(error), len(readable)), strict=True):
                self._finished(held, outcome)
            return
        run = _Run(readable, slot, call, self._loop.time())
        self._going.add(run)
        for held in readable:
            held.run = run
        timeout = self.task.options.timeout
        if timeout is not None:
            run.timer = self._loop.call_later(timeout, self._time_is_up, run)
        call.future.add_done_callback(partial(self._ended, run))

    def _arguments(self, helds: Sequence[_HeldJob], bodies: list[Any]) -> tuple[Any, ...]:
        """What the pool is given: the run, the body, and the delivery; of a batch, lists of them."""
        given: list[Any] = []
        if self.task.takes_delivery:
            is_process = self.task.options.pool is Pool.PROCESS
            given = [_facts_of(held.delivery) if is_process else held.delivery for held in helds]
        runs = [self._run_of(held) for held in helds]
        if self.task.options.batch is None:
            return (runs[0], bodies[0], *given)
        run = replace(runs[0], batch=tuple(runs))
        return (run, bodies, given) if self.task.takes_delivery else (run, bodies)

    def _run_of(self, held: _HeldJob) -> TaskRun:
        delivery = held.delivery
        return TaskRun(
            task=held.task,
            group_id=self._group_id,
            topic=delivery.topic,
            partition=delivery.partition,
            offset=delivery.offset,
            key=delivery.key,
            headers=delivery.headers,
            delivery_count=delivery.delivery_count,
            attempt=held.job.attempts,
            topic_id=delivery.topic_id if self.task.options.once is not None else "",
        )

    def _ended(self, run: _Run, future: "asyncio.Future[TaskOutcome]") -> None:
        self._going.discard(run)
        self._changed.set()
        if run.timer is not None:
            run.timer.cancel()
        if self._is_closed:
            return
        if run.is_abandoned:
            for held in run.helds:
                self.scheduler.free_slot(held.job, run.slot)
            self._pump_soon()
            return
        self._metrics.note_run(self._loop.time() - run.began_s)
        outcome = _outcome_of(future)
        if run.is_timed_out and not run.is_cut:
            assert self.task.options.timeout is not None
            outcome = timed_out(self.task.options.timeout)
        ends = list(zip(run.helds, spread(outcome, len(run.helds)), strict=True))
        for held, each in sorted(ends, key=lambda end: end[1].result is not TaskResult.DONE):
            held.run = None
            if run.is_cut and each.result is not TaskResult.DONE and held.job.stage is Stage.RUNNING:
                self._release_cut(held)
                self.scheduler.finished(held.job, STOPPED, now_ms=self._now_ms(), chance=0.0)
            elif self._strict is not None and run.is_lost and each.result is not TaskResult.DONE:
                self._finished(held, STOPPED)
            else:
                self._finished(held, each)

    def _time_is_up(self, run: _Run) -> None:
        run.is_timed_out = True
        self._metrics.timed_out += 1
        if run.call.stop():
            run.timer = self._loop.call_later(STOP_S, self._abandon, run)
        else:
            self._abandon(run)

    def _abandon(self, run: _Run) -> None:
        assert self.task.options.timeout is not None
        run.is_abandoned = True
        self._metrics.abandoned += 1
        self._metrics.note_run(self._loop.time() - run.began_s)
        logger.warning(
            "%s: the run of %s continues after its timeout, because it cannot be stopped; it keeps its slot until it "
            "ends%s",
            self.task.name, run, _cure(self.task),
        )  # fmt: skip
        outcome = timed_out(self.task.options.timeout)
        for held, each in zip(run.helds, spread(outcome, len(run.helds)), strict=True):
            held.run = None
            self._finished(held, each, frees_slot=False)

    def _runs(self) -> "set[_Run]":
        """The calls that go on now."""
        return {held.run for held in self._held.values() if held.run is not None}

    def _finished(self, held: _HeldJob, outcome: TaskOutcome, *, frees_slot: bool = True) -> None:
        was_open = self.scheduler.circuit.is_open
        decision = self.scheduler.finished(
            held.job, outcome, now_ms=self._now_ms(), chance=random.random(), frees_slot=frees_slot
        )
        if self.scheduler.circuit.is_open is not was_open:
            log_circuit(self.task, self.scheduler.circuit, outcome)
        if (
            outcome.result in (TaskResult.FAILED, TaskResult.RETRY_ASKED)
            and decision.verdict is not Verdict.NOTHING
        ):
            self._metrics.failed += 1
        if outcome.exception and decision.verdict is Verdict.ACCEPT:
            self._metrics.duplicates += 1
        self._carry_out(held, decision, outcome)
        self._pump_soon()

    def _carry_out(self, held: _HeldJob, decision: Decision, outcome: TaskOutcome | None) -> None:
        match decision.verdict:
            case Verdict.ACCEPT:
                self._settle(held, AcknowledgeType.ACCEPT, "succeeded")
            case Verdict.RETRY:
                assert outcome is not None
                self._metrics.retried += 1
                log_retry(held.task, held, held.job.attempts, self.scheduler.rules, decision, outcome)
            case Verdict.DEFER:
                assert outcome is not None
                self._metrics.retried += 1
                log_retry(held.task, held, held.job.attempts, self.scheduler.rules, decision, outcome)
                self._spawn(held, self._defer(held, decision.delay_ms))
            case Verdict.RELEASE:
                self._release(held)
            case Verdict.GIVE_UP:
                assert decision.cause is not None
                self._give_up(held, decision.cause, outcome)
            case Verdict.NOTHING:
                if held.job.stage is Stage.GONE:
                    self._forget(held)

    def _settle(
        self, held: _HeldJob, answer: AcknowledgeType, counter: str = "", reason: str | None = None
    ) -> None:
        """`counter` is the one of the metrics that grows when the broker has confirmed it."""
        self._forget(held)
        place = (held.job.partition, held.job.offset)
        try:
            self._consumer.acknowledge(held.delivery, answer)
            if answer is AcknowledgeType.REJECT:
                held.delivery.reason = reason
            self._unconfirmed[place] = counter
        except IllegalStateError as error:
            # The function has settled it itself, or its lock has just ended.
            logger.warning("%s: %s could not be settled: %s", held.task, held, error)
        if not self._commits_soon:
            self._commits_soon = True
            self._loop.call_soon(self._commit)

    def _commit(self) -> None:
        """Once for all that was settled in one turn of the loop."""
        self._commits_soon = False
        with contextlib.suppress(IllegalStateError):  # closed in between; closing has sent it
            self._consumer.commit_async()

    def _release(self, held: _HeldJob) -> None:
        if held.job.delivery_count >= self._facts.delivery_limit and not self._facts.broker_dead_letters:
            logger.error(
                "%s: %s is released with its last delivery (%d of %d): the broker archives it, without a dead letter",
                held.task, held, held.job.delivery_count, self._facts.delivery_limit,
            )  # fmt: skip
        self._settle(held, AcknowledgeType.RELEASE, "released")

    def _forget(self, held: _HeldJob) -> None:
        self._held.pop(held.job, None)
        place = (held.job.partition, held.job.offset)
        if self._places.get(place) is held:
            del self._places[place]

    def _give_up(self, held: _HeldJob, cause: GiveUpCause, outcome: TaskOutcome | None) -> None:
        if cause is GiveUpCause.REJECTED:
            self._metrics.rejected += 1
        elif cause is GiveUpCause.UNREADABLE:
            self._metrics.unreadable += 1
        why = describe(cause, outcome)
        trace = f"\n{outcome.trace.rstrip()}" if outcome is not None and outcome.trace else ""
        attempts = held.job.attempts
        times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
        logger.error("%s: giving up on %s after %s. %s%s", held.task, held, times, why, trace)
        if self._letters is not None:
            self._spawn(held, self._dead_letter(held, self._letters, cause, outcome))
            return
        if self.scheduler.rules.holds and cause is GiveUpCause.LAST_DELIVERY:
            self._spawn(held, self._requeue(held))
            return
        self.scheduler.settled(held.job)
        counter = "dead_lettered" if self._facts.broker_dead_letters else "discarded"
        self._settle(held, AcknowledgeType.REJECT, counter, why)

    def _spawn(self, held: _HeldJob, coroutine: Coroutine[Any, Any, None]) -> None:
        copying = self._loop.create_task(coroutine)
        self._copying[copying] = held
        copying.add_done_callback(self._copied)

    def _copied(self, copying: "asyncio.Task[None]") -> None:
        held = self._copying.pop(copying)
        if not copying.cancelled() and (error := copying.exception()) is not None:
            logger.error("%s: the dead letter of %s failed: %r", held.task, held, error, exc_info=error)
        self._pump_soon()

    async def _dead_letter(
        self, held: _HeldJob, letters: DeadLetterWriter, cause: GiveUpCause, outcome: TaskOutcome | None
    ) -> None:
        if self._copies is not None:
            copied = await self._copies.write_dead_letter(
                letters, held.job, held.delivery, held.task, cause, outcome
            )
            if not self._is_copied(held, copied):
                return
        elif not await letters.write(held.job, held.delivery, held.task, cause, outcome):
            return  # its lock was lost: whoever has it now gives it up anew
        self._metrics.dead_lettered += 1
        if held.job.stage is Stage.GIVING_UP:
            self.scheduler.settled(held.job)
            self._settle(held, AcknowledgeType.REJECT, reason=describe(cause, outcome))

    async def _defer(self, held: _HeldJob, delay_ms: int) -> None:
        """A copy is scheduled, with the attempts so far; then the record is accepted. It waits here if that fails."""
        due_ms = self._now_ms() + delay_ms
        try:
            if self._copies is not None:
                copied = await self._copies.defer(held.job, held.delivery, delay_ms)
                if not self._is_copied(held, copied):
                    return
            else:
                await self._schedule_copy(held, delay_ms)
        except Exception as error:  # whatever it is: the record stays
            logger.warning("%s: %s cannot be scheduled and keeps its lock: %s", held.task, held, error)
            self.scheduler.hold(held.job, due_ms)
            return
        self._metrics.scheduled += 1
        if held.job.stage is Stage.GIVING_UP:
            self.scheduler.settled(held.job)
            self._settle(held, AcknowledgeType.ACCEPT)

    async def _schedule_copy(self, held: _HeldJob, delay_ms: int) -> None:
        assert self._schedule is not None
        delivery = held.delivery
        headers = headers_of_copy(delivery.headers, held.job.attempts)
        await self._schedule.prepare_async()
        placement = self._schedule.place(delivery.topic, headers, delay_ms / 1000)
        await self._outbox.send_async(
            placement.topic, delivery.value, key=delivery.key, headers=placement.headers,
            partition=placement.partition,
        )  # fmt: skip

    def _is_copied(self, held: _HeldJob, copied: CopyResult) -> bool:
        """Of a task with `once=`. A record that turns out to be finished is accepted."""
        if copied is CopyResult.DONE_BEFORE and held.job.stage is Stage.GIVING_UP:
            self._metrics.duplicates += 1
            self.scheduler.settled(held.job)
            self._settle(held, AcknowledgeType.ACCEPT, "succeeded")
        return copied is CopyResult.WRITTEN

    async def _requeue(self, held: _HeldJob) -> None:
        """With its last delivery the broker would archive it, and there is no dead-letter topic: a copy takes over."""
        if self._copies is not None:
            if not self._is_copied(held, await self._copies.requeue(held.job, held.delivery)):
                return
        elif not await requeue(self._outbox, held.job, held.delivery, held.task):
            return
        self._metrics.requeued += 1
        if held.job.stage is Stage.GIVING_UP:
            self.scheduler.settled(held.job)
            self._settle(held, AcknowledgeType.REJECT, reason="A copy was sent to its topic.")

    def _lost(self, deliveries: Sequence[Delivery], error: Exception) -> None:
        for delivery in deliveries:
            held = self._places.get((delivery.partition, delivery.offset))
            if held is None or held.delivery is not delivery:
                continue
            self._metrics.lost += 1
            is_running = self.scheduler.lost(held.job)
            stopped = held.run if is_running and held.run is not None and held.run.is_lost else None
            note = "; its run is stopped, its result will not count" if stopped is not None else ""
            if is_running and stopped is None:
                note = "; its result will not count"  # its batch goes on for the others
            logger.warning("%s: the lock of %s was lost%s: %s", held.task, held, note, error)
            self._forget(held)
            if stopped is not None and not stopped.call.stop():
                logger.warning(
                    "%s: the run of %s continues, because it cannot be stopped%s",
                    self.task.name, stopped, _cure(self.task),
                )  # fmt: skip
        self._pump_soon()

    def _committed(self, offsets: Mapping[TopicPartition, set[int]], error: Exception | None) -> None:
        self._changed.set()
        for where, each in offsets.items():
            for offset in each:
                counter = self._unconfirmed.pop((where.partition, offset), "")
                if counter and error is None:
                    setattr(self._metrics, counter, getattr(self._metrics, counter) + 1)
        if error is None:
            return
        count = sum(len(each) for each in offsets.values())
        self._metrics.lost += count
        places = ", ".join(
            f"{where.topic}-{where.partition}@{min(each)}-{max(each)}" for where, each in offsets.items()
        )
        logger.warning(
            "%s: the acknowledgements of %d records failed, so they may run again (%s): %s",
            self.task.name, count, places, error,
        )  # fmt: skip

    async def _drain(self) -> None:
        for job in self.scheduler.drain():
            self._release(self._held[job])
        await self._quiet(self._drain_timeout, unless_cut=True)
        for each in self._runs():
            each.is_cut = True
            each.call.stop()
        for copying, held in list(self._copying.items()):
            copying.cancel()
            if held.job in self._held:  # else it has just been rejected, or lost
                self._release_cut(held)
        if self._held:
            await self._quiet(STOP_S if self.task.options.pool is not Pool.THREAD else 0.0)
        for held in list(self._held.values()):
            self._release_cut(held)
        while True:
            try:
                await self._consumer.commit_sync(timeout=CLOSE_S)  # refusals are told to `_committed`
            except WakeupError:
                continue  # of a `stop` that found no poll to end: one for each
            except (KafkaError, TimeoutError) as error:
                logger.warning("%s: the last acknowledgements may be lost: %s", self.task.name, error)
            break
        with contextlib.suppress(TimeoutError):  # so that the last numbers are right
            async with asyncio.timeout(STOP_S):
                while self._unconfirmed:
                    self._changed.clear()
                    await self._changed.wait()

    async def _quiet(self, seconds: float, *, unless_cut: bool = False) -> None:
        """Waits until nothing is held, for so long at most, and no longer than until the worker is told to hurry."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._held and not (unless_cut and self._cutting.is_set()):
                    self._changed.clear()
                    await self._changed.wait()

    def _release_cut(self, held: _HeldJob) -> None:
        """A record whose function was not waited for: it never failed, so it goes to another worker."""
        if held.run is not None:
            held.run.is_abandoned = True
            logger.warning("%s: %s is released while its function still runs", held.task, held)
        self.scheduler.lost(held.job)
        self._release(held)
        self._pump_soon()

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def _consumer_settings(self) -> dict[str, Any]:
        held_max = self.scheduler.held_max
        is_named = {"client.id", "client_id"} & self._settings.keys()
        return {
            **({} if is_named else {"client.id": process_name(self.task.name)}),
            **self._settings,
            "group.id": self._group_id,
            "share.acknowledgement.mode": "explicit",
            "share.acquire.mode": "record_limit",
            "max.poll.records": self.task.options.records_max,
            "max.unacknowledged": held_max,
            "auto.renew": True,
            "auto.renew.max.ms": 2**31 - 1,
            # With every slot taken there is nothing to poll for, however long the tasks are.
            "max.poll.interval.ms": 2**31 - 1,
        }


def _outcome_of(future: "asyncio.Future[TaskOutcome]") -> TaskOutcome:
    if future.cancelled():
        return TaskOutcome(TaskResult.FAILED, "it was canceled", "CancelledError")
    return future.result()


def _build_scheduler(options: TaskOptions, facts: GroupFacts, hold_ms_max: int | None) -> Scheduler:
    holds = options.dead_letter is None and facts.broker_dead_letters is None
    rules = Rules(
        options.retries,
        facts.delivery_limit,
        saves_last_delivery=options.dead_letter is not None or holds,
        holds=holds,
        hold_ms_max=hold_ms_max,
    )
    return Scheduler(
        rules,
        concurrency=options.concurrency,
        waiting_max=options.waiting_max,
        key_order=options.key_order,
        breaker=options.breaker,
        batch=options.batch,
        buckets=[RateBucket(options.rate)] if options.rate is not None else [],
    )


def _build_pool(task: "Task[Any, Any, Any]", user_loop: asyncio.AbstractEventLoop | None) -> CallPool:
    if isinstance(task, TypedTasks):
        return TypedPool({each.name: _build_pool(each, user_loop) for each in task.members}, _facts_of)
    match task.options.pool:
        case Pool.LOOP if user_loop is not None:
            return OtherLoopPool(task.invoke_async, user_loop)
        case Pool.LOOP:
            return LoopPool(task.invoke_async)
        case Pool.THREAD:
            return ThreadPool(partial(run, task.invoke))
        case Pool.PROCESS:
            return ProcessPool(task.function.__module__, task.function.__qualname__)


def _facts_of(delivery: Delivery) -> DeliveryFacts:
    return DeliveryFacts(
        topic=delivery.topic,
        partition=delivery.partition,
        offset=delivery.offset,
        key=delivery.key,
        value=delivery.value,
        headers=delivery.headers,
        timestamp=delivery.timestamp,
        delivery_count=delivery.delivery_count,
    )


def _cure(task: "Task[Any, Any, Any]") -> str:
    return "; pool='process' can end such runs" if task.options.pool is Pool.THREAD else ""
