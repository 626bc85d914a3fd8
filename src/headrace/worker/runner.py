"""Runs one task: fetches the records that there is room for, and carries out what the scheduler decides about them.

Everything here happens on one event loop, the worker's own (`threads.py`); coroutines of the user run on theirs. A
runner puts these parts together, each with facts of its own:
- the source of records (`sources.py`), which renews the lock of every record that it has handed out;
- the scheduler (`scheduler.py`, pure): what runs, waits or is given up, and when;
- the running calls (`calls.py`): functions, their time, and what they returned;
- the held records (`held.py`): acknowledgements, and whether the broker has confirmed them;
- the copier (`copier.py`): dead letters, and copies that are tried later.

At the end it drains: nothing starts any more, what runs may end in `drain_timeout`, and the rest goes back to the
group. With strict order a partition may be taken away meanwhile (`_revoke`), and a worker whose functions cannot be
stopped does not leave the group.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from headrace.client.delivery import AcknowledgeType, Delivery
from headrace.client.errors import AuthorizationError, CorruptRecordError, WakeupError
from headrace.worker.calls import STOPPED, RunningCall, RunningCalls
from headrace.worker.copier import Copier
from headrace.worker.copying import PlainCopies
from headrace.worker.dead_letters import DeadLetterBuilder, describe
from headrace.worker.group_facts import GroupFacts
from headrace.worker.held import HeldRecords
from headrace.worker.held_job import HeldJob
from headrace.worker.jobs import Stage
from headrace.worker.limits import GroupLimits
from headrace.worker.metrics import TaskMetrics
from headrace.worker.outbox import Outbox
from headrace.worker.outcomes import TaskOutcome, TaskResult
from headrace.worker.progress import TaskProgress
from headrace.worker.rate import RateBucket
from headrace.worker.rules import Decision, GiveUpCause, Rules, Verdict
from headrace.worker.run_logs import log_circuit, log_given_up, log_retry
from headrace.worker.schedule import Schedule
from headrace.worker.scheduler import Scheduler
from headrace.worker.sources import RecordSource, ShareSource, source_settings
from headrace.worker.strict import StrictConsumer
from headrace.worker.task import Task, TaskOptions
from headrace.worker.transactions.copies import OnceCopies

logger = logging.getLogger("headrace.worker")

POLL_S = 30.0
DENIED_WAIT_S = 1.0
STRICT_FACTS = GroupFacts(delivery_limit=2**31 - 1)
"""A consumer group counts no deliveries, and its broker writes no dead letters."""
DENIED_LOG_MS = 60_000
"""How often a worker whose access was taken away says so."""


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
        """Without a `schedule`, records that wait for a retry keep their locks, however long."""
        options = task.options
        facts = STRICT_FACTS if options.is_strict else facts
        holds_ms = round(hold_max * 1000) if schedule is not None and not options.key_order else None
        self.task = task
        self.scheduler = _build_scheduler(options, facts, holds_ms)
        self._facts = facts
        self._drain_timeout = drain_timeout
        self._loop = asyncio.get_running_loop()
        self._metrics = TaskMetrics()
        self._changes = changes = TaskProgress()
        self._stopping = asyncio.Event()
        self._cutting = asyncio.Event()
        self._denied_ms: int | None = None
        """When the log last said that access is denied."""
        self._timer: asyncio.TimerHandle | None = None
        self._pumps_soon = False
        self._is_closed = False
        self.calls = RunningCalls(
            task, group_id, self._metrics, changes, user_loop, ended=self._finished, freed=self._freed
        )
        own_settings = source_settings(task, settings, group_id, self.scheduler.held_max)
        self.strict = self._build_strict(own_settings, group_id, start_from) if options.is_strict else None
        self._source: RecordSource = self.strict or ShareSource(
            own_settings,
            task.topic,
            on_lost=self._lost,
            on_committed=lambda *told: self.records.committed(*told),
        )
        self.records = HeldRecords(self._source, task.name, facts, self._metrics, changes)
        self._copier = Copier(
            copies or PlainCopies(outbox, schedule),
            DeadLetterBuilder(options.dead_letter, group_id, worker) if options.dead_letter is not None else None,
            self.scheduler, self.records, self._metrics, ended=self._pump_soon,
        )  # fmt: skip
        self._limits = GroupLimits(
            task, settings, group_id, self.scheduler.slots,
            changed=self._pump_soon, lost=self.calls.cut, now_ms=self._now_ms,
        )  # fmt: skip

    def _build_strict(
        self, settings: Mapping[str, Any], group_id: str, start_from: str | None
    ) -> StrictConsumer:
        return StrictConsumer(
            settings,
            group_id,
            self.task.topic,
            start_from=start_from,
            on_lost=self._lost,
            on_committed=lambda *told: self.records.committed(*told),
            opened=self.scheduler.open_partition,
            revoked=self._revoke,
            quiet=self.calls.quiet,
        )

    def metrics(self) -> TaskMetrics:
        lanes, circuit = self.scheduler.lanes, self.scheduler.circuit
        return replace(
            self._metrics,
            paused=int(circuit.is_open),
            pauses=circuit.opened,
            stuck=sum(held.is_stuck for held in self.records.held),
            running=lanes.counts[Stage.RUNNING],
            waiting=lanes.counts[Stage.WAITING],
            held=lanes.held,
            run_seconds_counts=list(self._metrics.run_seconds_counts),
        )

    def stop(self, *, now: bool = False) -> None:
        """Drains; `now` does not wait for functions that run. May be called again to hurry."""
        if now:
            self._cutting.set()
        self._stopping.set()
        self._changes.note()
        self._source.wakeup()

    async def start(self) -> None:
        """Connects; raises when no broker can be reached or the settings are refused."""
        await self._limits.start()
        await self._source.open()

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
        self._copier.cancel()
        await self.calls.close()
        if self.strict is not None:
            await self.strict.close(leaves=await self.calls.end())
        else:
            await self._source.close()
        await self._limits.close()

    async def _fetch(self) -> None:
        while not self._stopping.is_set():
            room = self.scheduler.room()
            if room == 0:
                await self._changes.until(lambda: self._stopping.is_set() or self.scheduler.room())
                continue
            try:
                deliveries = await self._source.poll(timeout=POLL_S, max_records=room)
            except WakeupError:
                continue
            except CorruptRecordError as error:
                logger.error("%s: %s", self.task.name, error)
                continue
            except AuthorizationError as error:
                if not self._source.has_worked:
                    raise  # it has never worked: a mistake in the setup
                await self._wait_for_access(error)
                continue
            for delivery in deliveries:
                held = HeldJob.of(delivery, self.task.name_for(delivery.headers))
                self.records.add(held)
                self._carry_out(held, self.scheduler.admit(held), None)
            self._pump()

    async def _wait_for_access(self, error: AuthorizationError) -> None:
        """Access was taken away from a worker that had it. Somebody may give it back; to end would not help."""
        now_ms = self._now_ms()
        if self._denied_ms is None or now_ms - self._denied_ms >= DENIED_LOG_MS:
            self._denied_ms = now_ms
            logger.error("%s: %s The worker gets no records now and keeps trying.", self.task.name, error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), DENIED_WAIT_S)

    def _pump(self) -> None:
        """Starts what may start, and sets the alarm for the next record whose delay is over."""
        self._pumps_soon = False
        if self._is_closed:
            return
        if self.strict is not None:
            self.strict.check()
        for slot, records in groupby(self.scheduler.start(self._now_ms()), key=lambda held: held.slot):
            assert slot is not None
            self.calls.start(slot, list(records))
        self._release(self.scheduler.unrunnable())
        self._limits.note_end()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (deadline_ms := self.scheduler.deadline_ms()) is not None:
            self._timer = self._loop.call_at(deadline_ms / 1000, self._pump)
        self._changes.note()

    def _pump_soon(self) -> None:
        if not self._pumps_soon:
            self._pumps_soon = True
            self._loop.call_soon(self._pump)

    def _finished(self, held: HeldJob, outcome: TaskOutcome, frees_slot: bool) -> None:
        if outcome is STOPPED and held.stage is Stage.RUNNING:
            self._take_back(held)
        was_open = self.scheduler.circuit.is_open
        decision = self.scheduler.finished(
            held, outcome, now_ms=self._now_ms(), chance=random.random(), frees_slot=frees_slot
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

    def _freed(self, call: RunningCall) -> None:
        for held in call.records:
            self.scheduler.free_slot(held, call.slot)
        self._pump_soon()

    def _carry_out(self, held: HeldJob, decision: Decision, outcome: TaskOutcome | None) -> None:
        match decision.verdict:
            case Verdict.ACCEPT:
                self.records.settle(held, AcknowledgeType.ACCEPT, "succeeded")
            case Verdict.RETRY | Verdict.DEFER:
                assert outcome is not None
                self._metrics.retried += 1
                log_retry(held, self.scheduler.rules, decision, outcome)
                if decision.verdict is Verdict.DEFER:
                    self._copier.defer(held, decision.delay_ms)
            case Verdict.RELEASE:
                self.records.release(held)
            case Verdict.GIVE_UP:
                assert decision.cause is not None
                self._give_up(held, decision.cause, outcome)
            case Verdict.NOTHING:
                pass

    def _give_up(self, held: HeldJob, cause: GiveUpCause, outcome: TaskOutcome | None) -> None:
        if cause is GiveUpCause.REJECTED:
            self._metrics.rejected += 1
        elif cause is GiveUpCause.UNREADABLE:
            self._metrics.unreadable += 1
        log_given_up(held, cause, outcome)
        if not self._copier.give_up(held, cause, outcome):
            self.scheduler.leave(held)
            counter = "dead_lettered" if self._facts.broker_dead_letters else "discarded"
            self.records.settle(held, AcknowledgeType.REJECT, counter, describe(cause, outcome))

    def _lost(self, deliveries: Sequence[Delivery], error: Exception) -> None:
        for delivery in deliveries:
            if (held := self.records.lost(delivery)) is not None:
                self.scheduler.leave(held)
                note = self.calls.lost(held)
                logger.warning("%s: the lock of %s was lost%s: %s", held.task, held, note, error)
        self._pump_soon()

    async def _revoke(self, partition: int) -> None:
        """Starts nothing of a partition any more. Returns when nothing of it runs: others are to have it."""

        def is_quiet() -> bool:
            is_held = any(held.partition == partition for held in self.records.held)
            return not is_held and not self.calls.works_on(partition)

        self._release(self.scheduler.close_partition(partition))
        await self._changes.until(is_quiet, self._drain_timeout)
        self.calls.cut_partition(partition)
        self._take_back_copied(partition)
        await self._changes.until(is_quiet)

    async def _drain(self) -> None:
        self._release(self.scheduler.drain())
        await self._changes.until(lambda: not self.records or self._cutting.is_set(), self._drain_timeout)
        self.calls.cut()
        self._take_back_copied()
        await self._changes.until(lambda: not self.records, self.calls.stop_s)
        for held in self.records.held:
            self._take_back(held)
        await self.records.finish()

    def _release(self, records: Sequence[HeldJob]) -> None:
        for held in records:
            self.records.release(held)

    def _take_back_copied(self, partition: int | None = None) -> None:
        for held in self._copier.cancel(partition):
            if held.stage is not Stage.GONE:  # else it has just been rejected, or lost
                self._take_back(held)

    def _take_back(self, held: HeldJob) -> None:
        """A record whose function was not waited for: it never failed, so it goes to another worker."""
        if self.calls.leave(held):
            logger.warning("%s: %s is released while its function still runs", held.task, held)
        self.scheduler.leave(held)
        self.records.release(held)
        self._pump_soon()

    def _now_ms(self) -> int:
        return round(self._loop.time() * 1000)


def _build_scheduler(options: TaskOptions, facts: GroupFacts, hold_ms_max: int | None) -> Scheduler[HeldJob]:
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
