"""Runs one task: a share consumer that fetches what there is room for, a scheduler that decides, a pool that runs.

Everything here happens on one event loop. The scheduler (`scheduler.py`) says what to do; this file does it: starts
functions, watches their time, writes dead letters, settles deliveries, and drains at the end. The consumer renews the
lock of every record it has handed out (`auto.renew`) as long as this process lives; the hard end is the task's timeout.
A record is settled exactly once here, by `_settle`; a result that comes after its lock was lost settles nothing.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.errors import AuthorizationError, CorruptRecordError, IllegalStateError, WakeupError
from headrace.wire.errors import KafkaError
from headrace.worker.dead_letter_writer import DeadLetterWriter
from headrace.worker.dead_letters import describe
from headrace.worker.group_facts import GroupFacts
from headrace.worker.metrics import TaskMetrics
from headrace.worker.outbox import Outbox
from headrace.worker.outcomes import BodyError, TaskOutcome, TaskResult, outcome_of, timed_out
from headrace.worker.pools import CallPool, LoopPool, ProcessPool, TaskCall, ThreadPool, run
from headrace.worker.scheduler import Decision, GiveUpCause, Job, Rules, Scheduler, Stage, Verdict
from headrace.worker.task import Pool, Task

logger = logging.getLogger("headrace.worker")

POLL_S = 30.0
STOP_S = 5.0
"""How long a coroutine or a process may take to end once it was told to."""
CLOSE_S = 30.0
DENIED_WAIT_S = 1.0
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


@dataclass(slots=True, eq=False)
class _Run:
    """One call of the function for a held record."""

    call: TaskCall
    began_s: float
    timer: asyncio.TimerHandle | None = None
    is_timed_out: bool = False
    is_cut: bool = False
    """The worker stops, and does not wait for it."""
    is_abandoned: bool = False
    """It could not be stopped; nobody waits for it any more, but its slot is taken."""


@dataclass(slots=True, eq=False)
class _HeldJob:
    """A held record with what is known of it here."""

    job: Job
    delivery: Delivery
    run: _Run | None = None
    """The one that goes on now."""

    def __str__(self) -> str:
        return f"{self.delivery.topic}-{self.delivery.partition}@{self.delivery.offset}"


class TaskRunner:
    def __init__(
        self,
        task: "Task[Any, Any]",
        *,
        settings: Mapping[str, Any],
        group_id: str,
        facts: GroupFacts,
        outbox: Outbox,
        worker: str,
        drain_timeout: float,
    ) -> None:
        options = task.options
        rules = Rules(
            options.retries, facts.delivery_limit, saves_last_delivery=options.dead_letter is not None
        )
        self.scheduler = Scheduler(
            rules,
            concurrency=options.concurrency,
            waiting_max=options.waiting_max,
            key_order=options.key_order,
        )
        self.task = task
        self._settings = dict(settings)
        self._group_id = group_id
        self._facts = facts
        self._letters = (
            DeadLetterWriter(outbox, options.dead_letter, group_id=group_id, task=task.name, worker=worker)
            if options.dead_letter is not None
            else None
        )
        self._drain_timeout = drain_timeout
        self._metrics = TaskMetrics()
        self._held: dict[Job, _HeldJob] = {}
        self._places: dict[tuple[int, int], _HeldJob] = {}
        self._copying: dict[asyncio.Task[None], _HeldJob] = {}
        self._loop = asyncio.get_running_loop()
        self._pool = _build_pool(task)
        self._stopping = asyncio.Event()
        self._denied_ms: int | None = None
        """When the log last said that access is denied."""
        self._cutting = asyncio.Event()
        self._changed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._pumps_soon = False
        self._commits_soon = False
        self._is_closed = False
        self._consumer = AsyncShareConsumer(self._consumer_settings(), on_lost=self._lost)
        self._consumer.set_acknowledgement_commit_callback(self._committed)

    def metrics(self) -> TaskMetrics:
        counts = self.scheduler.counts
        return replace(
            self._metrics,
            running=counts[Stage.RUNNING],
            waiting=counts[Stage.WAITING],
            held=self.scheduler.held,
            run_seconds_counts=list(self._metrics.run_seconds_counts),
        )

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

    async def start(self) -> None:
        """Connects; raises when no broker can be reached or the settings are refused."""
        await self._consumer.__aenter__()
        self._consumer.subscribe([self.task.topic])

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
        for held in list(self._held.values()):
            if held.run is not None:
                held.run.call.stop()
        self._pool.close()
        await self._consumer.close(timeout=CLOSE_S)

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
                if self._consumer.acquisition_lock_timeout_ms() is None:
                    raise  # it has never worked: a mistake in the setup
                await self._wait_for_access(error)
                continue
            for delivery in deliveries:
                self._admit(delivery)
            self._pump()

    async def _wait_for_access(self, error: AuthorizationError) -> None:
        """Access was taken away from a worker that had it. Somebody may give it back; to end would not help."""
        now_ms = self._now_ms()
        if self._denied_ms is None or now_ms - self._denied_ms >= DENIED_LOG_MS:
            self._denied_ms = now_ms
            logger.error("%s: %s The worker gets no records now, and goes on trying.", self.task.name, error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), DENIED_WAIT_S)

    def _admit(self, delivery: Delivery) -> None:
        self._metrics.received += 1
        job = Job(delivery.partition, delivery.offset, delivery.key, delivery.delivery_count)
        held = _HeldJob(job, delivery)
        self._held[job] = held
        self._places[(delivery.partition, delivery.offset)] = held
        self._carry_out(held, self.scheduler.admit(job), None)

    def _pump(self) -> None:
        """Starts what may start, and sets the alarm for the next record whose delay is over."""
        self._pumps_soon = False
        if self._is_closed:
            return
        for job in self.scheduler.start(self._now_ms()):
            self._start(self._held[job])
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

    def _start(self, held: _HeldJob) -> None:
        delivery, options = held.delivery, self.task.options
        try:
            body = self.task.codec.read(delivery.value, delivery.headers)
        except BodyError as error:
            self._finished(held, outcome_of(error))
            return
        given = delivery if options.pool is not Pool.PROCESS else _facts_of(delivery)
        try:
            call = self._pool.start((body, given) if self.task.takes_delivery else (body,))
        except Exception as error:  # no more threads or processes to be had
            self._finished(held, outcome_of(error))
            return
        held.run = run = _Run(call, self._loop.time())
        if options.timeout is not None:
            run.timer = self._loop.call_later(options.timeout, self._time_is_up, held, run)
        call.future.add_done_callback(partial(self._ended, held, run))

    def _ended(self, held: _HeldJob, run: _Run, future: "asyncio.Future[TaskOutcome]") -> None:
        if run.timer is not None:
            run.timer.cancel()
        if self._is_closed:
            return
        if run.is_abandoned:
            self.scheduler.free_slot(held.job)
            self._pump_soon()
            return
        held.run = None
        self._metrics.note_run(self._loop.time() - run.began_s)
        outcome = _outcome_of(future)
        if run.is_cut and outcome.result is not TaskResult.DONE:
            self._release_cut(held)
            self.scheduler.finished(held.job, outcome, now_ms=self._now_ms(), chance=0.0)
            return
        if run.is_timed_out:
            assert self.task.options.timeout is not None
            outcome = timed_out(self.task.options.timeout)
        self._finished(held, outcome)

    def _time_is_up(self, held: _HeldJob, run: _Run) -> None:
        run.is_timed_out = True
        self._metrics.timed_out += 1
        if run.call.stop():
            run.timer = self._loop.call_later(STOP_S, self._abandon, held, run)
        else:
            self._abandon(held, run)

    def _abandon(self, held: _HeldJob, run: _Run) -> None:
        assert self.task.options.timeout is not None
        run.is_abandoned = True
        held.run = None
        self._metrics.abandoned += 1
        self._metrics.note_run(self._loop.time() - run.began_s)
        logger.warning(
            "%s: the run of %s goes on after its timeout, because it cannot be stopped; it keeps its slot until it "
            "ends%s",
            self.task.name, held, _cure(self.task),
        )  # fmt: skip
        self._finished(held, timed_out(self.task.options.timeout), frees_slot=False)

    def _finished(self, held: _HeldJob, outcome: TaskOutcome, *, frees_slot: bool = True) -> None:
        decision = self.scheduler.finished(
            held.job, outcome, now_ms=self._now_ms(), chance=random.random(), frees_slot=frees_slot
        )
        if (
            outcome.result in (TaskResult.FAILED, TaskResult.RETRY_ASKED)
            and decision.verdict is not Verdict.NOTHING
        ):
            self._metrics.failed += 1
        self._carry_out(held, decision, outcome)
        self._pump_soon()

    def _carry_out(self, held: _HeldJob, decision: Decision, outcome: TaskOutcome | None) -> None:
        match decision.verdict:
            case Verdict.ACCEPT:
                self._metrics.succeeded += 1
                self._settle(held, AcknowledgeType.ACCEPT)
            case Verdict.RETRY:
                assert outcome is not None
                self._metrics.retried += 1
                self._log_retry(held, decision, outcome)
            case Verdict.RELEASE:
                self._release(held)
            case Verdict.GIVE_UP:
                assert decision.cause is not None
                self._give_up(held, decision.cause, outcome)
            case Verdict.NOTHING:
                if held.job.stage is Stage.GONE:
                    self._forget(held)

    def _settle(self, held: _HeldJob, answer: AcknowledgeType, reason: str | None = None) -> None:
        self._forget(held)
        try:
            if answer is AcknowledgeType.REJECT:
                held.delivery.reject(reason)
            else:
                self._consumer.acknowledge(held.delivery, answer)
        except IllegalStateError as error:
            # The function has settled it itself, or its lock has just ended.
            logger.warning("%s: %s could not be settled: %s", self.task.name, held, error)
        if not self._commits_soon:
            self._commits_soon = True
            self._loop.call_soon(self._commit)

    def _commit(self) -> None:
        """Once for all that was settled in one turn of the loop."""
        self._commits_soon = False
        with contextlib.suppress(IllegalStateError):  # closed in between; closing has sent it
            self._consumer.commit_async()

    def _release(self, held: _HeldJob) -> None:
        self._metrics.released += 1
        if held.job.delivery_count >= self._facts.delivery_limit and not self._facts.broker_dead_letters:
            logger.error(
                "%s: %s is released with its last delivery (%d of %d): the broker archives it, without a dead letter",
                self.task.name, held, held.job.delivery_count, self._facts.delivery_limit,
            )  # fmt: skip
        self._settle(held, AcknowledgeType.RELEASE)

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
        logger.error("%s: %s is given up after %d attempts. %s%s", self.task.name, held, attempts, why, trace)
        if self._letters is not None:
            self._spawn(held, self._dead_letter(held, self._letters, cause, outcome))
            return
        if self._facts.broker_dead_letters:
            self._metrics.dead_lettered += 1
        else:
            self._metrics.discarded += 1
        self.scheduler.settled(held.job)
        self._settle(held, AcknowledgeType.REJECT, why)

    def _spawn(self, held: _HeldJob, coroutine: Coroutine[Any, Any, None]) -> None:
        copying = self._loop.create_task(coroutine)
        self._copying[copying] = held
        copying.add_done_callback(self._copied)

    def _copied(self, copying: "asyncio.Task[None]") -> None:
        held = self._copying.pop(copying)
        if not copying.cancelled() and (error := copying.exception()) is not None:
            logger.error("%s: the dead letter of %s failed: %r", self.task.name, held, error, exc_info=error)
        self._pump_soon()

    async def _dead_letter(
        self, held: _HeldJob, letters: DeadLetterWriter, cause: GiveUpCause, outcome: TaskOutcome | None
    ) -> None:
        if not await letters.write(held.job, held.delivery, cause, outcome):
            return  # its lock was lost: whoever has it now gives it up anew
        self._metrics.dead_lettered += 1
        if held.job.stage is Stage.GIVING_UP:
            self.scheduler.settled(held.job)
            self._settle(held, AcknowledgeType.REJECT, describe(cause, outcome))

    def _lost(self, deliveries: Sequence[Delivery], error: Exception) -> None:
        for delivery in deliveries:
            held = self._places.get((delivery.partition, delivery.offset))
            if held is None or held.delivery is not delivery:
                continue
            self._metrics.lost += 1
            is_running = self.scheduler.lost(held.job)
            logger.warning(
                "%s: the lock of %s was lost%s: %s",
                self.task.name, held, "; its run is stopped, its result will not count" if is_running else "", error,
            )  # fmt: skip
            self._forget(held)
            if is_running and held.run is not None and not held.run.call.stop():
                logger.warning(
                    "%s: the run of %s goes on, because a thread cannot be stopped%s",
                    self.task.name, held, _cure(self.task),
                )  # fmt: skip
        self._pump_soon()

    def _committed(self, offsets: Mapping[TopicPartition, set[int]], error: Exception | None) -> None:
        if error is None:
            return
        count = sum(len(each) for each in offsets.values())
        self._metrics.lost += count
        places = ", ".join(
            f"{where.topic}-{where.partition}@{min(each)}-{max(each)}" for where, each in offsets.items()
        )
        logger.warning(
            "%s: the answers for %d records were not taken, they may be run again (%s): %s",
            self.task.name, count, places, error,
        )  # fmt: skip

    async def _drain(self) -> None:
        for job in self.scheduler.drain():
            self._release(self._held[job])
        await self._quiet(self._drain_timeout, unless_cut=True)
        for held in list(self._held.values()):
            if held.run is not None:
                held.run.is_cut = True
                held.run.call.stop()
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
            except KafkaError as error:
                logger.warning("%s: the last answers may be lost: %s", self.task.name, error)
            return

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
            logger.warning("%s: %s is released while its function still runs", self.task.name, held)
        self.scheduler.lost(held.job)
        self._release(held)
        self._pump_soon()

    def _log_retry(self, held: _HeldJob, decision: Decision, outcome: TaskOutcome) -> None:
        logger.warning(
            "%s: %s failed (attempt %d of %d), again in %.1f s: %s: %s",
            self.task.name, held, held.job.attempts, self.scheduler.rules.attempts_max, decision.delay_ms / 1000,
            outcome.exception, outcome.message,
        )  # fmt: skip
        if outcome.trace:
            logger.debug("%s: %s\n%s", self.task.name, held, outcome.trace)

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1000)

    def _consumer_settings(self) -> dict[str, Any]:
        held_max = self.scheduler.held_max
        return {
            **self._settings,
            "group.id": self._group_id,
            "share.acknowledgement.mode": "explicit",
            "share.acquire.mode": "record_limit",
            "max.poll.records": self.task.options.concurrency,
            "max.unacknowledged": held_max,
            "auto.renew": True,
            "auto.renew.max.ms": 2**31 - 1,
            # With every slot taken there is nothing to poll for, however long the tasks are.
            "max.poll.interval.ms": 2**31 - 1,
        }


def _outcome_of(future: "asyncio.Future[TaskOutcome]") -> TaskOutcome:
    if future.cancelled():
        return TaskOutcome(TaskResult.FAILED, "it was cancelled", "CancelledError")
    return future.result()


def _build_pool(task: "Task[Any, Any]") -> CallPool:
    match task.options.pool:
        case Pool.LOOP:
            return LoopPool(task.function)
        case Pool.THREAD:
            return ThreadPool(partial(run, task.function))
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


def _cure(task: "Task[Any, Any]") -> str:
    return "; pool='process' can end such runs" if task.options.pool is Pool.THREAD else ""
