"""The calls of a task's function that go on: each is started on the pool of the task, watched, and ended if it must be.

A coroutine or a process that is told to stop ends soon. A thread cannot be stopped: its call is abandoned. Nobody waits
for it any more, but its slot is taken until it ends. Of a batch, records may lose their locks while others keep theirs:
the call goes on for those.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from headrace.worker.batch import spread
from headrace.worker.delivery_facts import facts_of_delivery
from headrace.worker.held_job import HeldJob
from headrace.worker.hooks import TaskRun
from headrace.worker.jobs import CallSlot, Stage
from headrace.worker.metrics import TaskMetrics
from headrace.worker.outcomes import BodyError, TaskOutcome, TaskResult, outcome_of, timed_out
from headrace.worker.pools import CallPool, LoopPool, ProcessPool, TaskCall, ThreadPool, run
from headrace.worker.progress import TaskProgress
from headrace.worker.task import Pool, Task
from headrace.worker.threads import OtherLoopPool
from headrace.worker.typed import TypedPool, TypedTasks

logger = logging.getLogger("headrace.worker")

STOP_S = 5.0
"""How long a coroutine or a process may take to end once it was told to."""
RUNS_MAX = 100
"""How many runs of a task a worker tells of."""
STOPPED = TaskOutcome(TaskResult.REJECTED, "it was stopped")
"""Of a run that was not waited for: no failure of what it does."""


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
class RunningCall:
    """One call of the function, for a held record or for a batch of them."""

    records: Sequence[HeldJob]
    slot: CallSlot
    handle: TaskCall
    began_s: float
    timer: asyncio.TimerHandle | None = None
    is_timed_out: bool = False
    is_cut: bool = False
    """The worker stops, and does not wait for it."""
    is_abandoned: bool = False
    """It could not be stopped; nobody waits for it any more, but its slot is taken."""

    @property
    def is_lost(self) -> bool:
        return all(held.stage is Stage.GONE for held in self.records)

    def cut(self) -> bool:
        self.is_cut = True
        return self.handle.stop()

    def __str__(self) -> str:
        more = len(self.records) - 1
        return f"{self.records[0]}" + (f" and {more} more" if more else "")


class RunningCalls:
    """Of one task. `ended` gets each record with the outcome of its run, of a batch those that succeeded first, and
    whether the slot of the call is free; `freed` gets an abandoned call that has ended after all."""

    def __init__(
        self,
        task: Task[Any, Any, Any],
        group_id: str,
        metrics: TaskMetrics,
        changes: TaskProgress,
        user_loop: asyncio.AbstractEventLoop | None,
        *,
        ended: Callable[[HeldJob, TaskOutcome, bool], None],
        freed: Callable[[RunningCall], None],
    ) -> None:
        self._task = task
        self._group_id = group_id
        self._metrics = metrics
        self._changes = changes
        self._ended, self._freed = ended, freed
        self._pool = _build_pool(task, user_loop)
        self._loop = asyncio.get_running_loop()
        self._going: dict[RunningCall, None] = {}
        """Those that have not ended, also those that nobody waits for any more."""
        self._awaited: dict[HeldJob, RunningCall] = {}
        """The calls that records wait for."""
        self._is_closed = False

    def running(self) -> list[RunningRecord]:
        """What the function is working on now, the longest run first, at most RUNS_MAX. From any thread."""
        now_s = self._loop.time()
        found = [
            RunningRecord(
                held.delivery.topic,
                held.partition,
                held.offset,
                attempt=held.attempts,
                seconds=max(0.0, now_s - call.began_s),
            )
            for held, call in self._awaited.copy().items()
        ]
        return sorted(found, key=lambda one: -one.seconds)[:RUNS_MAX]

    def works_on(self, partition: int) -> bool:
        return any(held.partition == partition for call in self._going for held in call.records)

    def start(self, slot: CallSlot, records: Sequence[HeldJob]) -> None:
        readable: list[HeldJob] = []
        bodies: list[Any] = []
        for held in records:
            try:
                bodies.append(self._task.codec.read(held.delivery.value, held.delivery.headers))
                readable.append(held)
            except BodyError as error:
                self._ended(held, outcome_of(error), True)
        if not readable:
            return
        try:
            handle = self._pool.start(self._arguments(readable, bodies))
        except Exception as error:  # no more threads or processes to be had
            for held, outcome in zip(readable, spread(outcome_of(error), len(readable)), strict=True):
                self._ended(held, outcome, True)
            return
        call = RunningCall(readable, slot, handle, self._loop.time())
        self._going[call] = None
        self._awaited.update(dict.fromkeys(readable, call))
        timeout = self._task.options.timeout
        if timeout is not None:
            call.timer = self._loop.call_later(timeout, self._time_is_up, call, timeout)
        handle.future.add_done_callback(partial(self._end, call))

    def _arguments(self, records: Sequence[HeldJob], bodies: list[Any]) -> tuple[Any, ...]:
        """What the pool is given: the run, the body, and the delivery; of a batch, lists of them."""
        given: list[Any] = []
        if self._task.takes_delivery:
            is_process = self._task.options.pool is Pool.PROCESS
            given = [facts_of_delivery(held.delivery) if is_process else held.delivery for held in records]
        runs = [self._run_of(held) for held in records]
        if self._task.options.batch is None:
            return (runs[0], bodies[0], *given)
        run = replace(runs[0], batch=tuple(runs))
        return (run, bodies, given) if self._task.takes_delivery else (run, bodies)

    def _run_of(self, held: HeldJob) -> TaskRun:
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
            attempt=held.attempts,
            topic_id=delivery.topic_id if self._task.options.once is not None else "",
        )

    def _end(self, call: RunningCall, future: "asyncio.Future[TaskOutcome]") -> None:
        del self._going[call]
        self._changes.note()
        if call.timer is not None:
            call.timer.cancel()
        if self._is_closed:
            return
        if call.is_abandoned:
            self._freed(call)
            return
        self._metrics.note_run(self._loop.time() - call.began_s)
        outcome = _outcome_of(future)
        if call.is_timed_out and not call.is_cut:
            assert self._task.options.timeout is not None
            outcome = timed_out(self._task.options.timeout)
        ends = list(zip(call.records, spread(outcome, len(call.records)), strict=True))
        for held, each in sorted(ends, key=lambda end: end[1].result is not TaskResult.DONE):
            self._awaited.pop(held, None)
            is_stopped = each.result is not TaskResult.DONE and self._was_stopped(call, held)
            self._ended(held, STOPPED if is_stopped else each, True)

    def _was_stopped(self, call: RunningCall, held: HeldJob) -> bool:
        is_taken_away = self._task.options.is_strict and call.is_lost
        return is_taken_away or (call.is_cut and held.stage is Stage.RUNNING)

    def _time_is_up(self, call: RunningCall, timeout: float) -> None:
        call.is_timed_out = True
        self._metrics.timed_out += 1
        if call.handle.stop():
            call.timer = self._loop.call_later(STOP_S, self._abandon, call, timeout)
        else:
            self._abandon(call, timeout)

    def _abandon(self, call: RunningCall, timeout: float) -> None:
        call.is_abandoned = True
        self._metrics.abandoned += 1
        self._metrics.note_run(self._loop.time() - call.began_s)
        logger.warning(
            "%s: the run of %s continues after its timeout, because it cannot be stopped; it keeps its slot until it "
            "ends%s",
            self._task.name, call, self._cure,
        )  # fmt: skip
        for held, each in zip(call.records, spread(timed_out(timeout), len(call.records)), strict=True):
            self._awaited.pop(held, None)
            self._ended(held, each, False)

    def lost(self, held: HeldJob) -> str:
        """Its lock has ended, and it is GONE. Returns what that means for its run, for the log."""
        call = self._awaited.pop(held, None)
        if call is None:
            return ""
        if not call.is_lost:
            return "; its result will not count"  # its batch goes on for the others
        if not call.handle.stop():
            logger.warning(
                "%s: the run of %s continues, because it cannot be stopped%s", self._task.name, call, self._cure
            )  # fmt: skip
        return "; its run is stopped, its result will not count"

    def leave(self, held: HeldJob) -> bool:
        """Nobody waits any more for the call that works on it. False if there is none."""
        call = self._awaited.pop(held, None)
        if call is not None:
            call.is_abandoned = True
        return call is not None

    def cut(self) -> None:
        """Stops all that somebody waits for: the worker ends, or others may have its part of a limit by now."""
        for call in dict.fromkeys(self._awaited.values()):
            call.cut()

    def cut_partition(self, partition: int) -> None:
        for call in self._going:
            if any(held.partition == partition for held in call.records) and not call.cut():
                logger.warning(
                    "%s: another worker waits for the run of %s, which cannot be stopped%s",
                    self._task.name, call, self._cure,
                )  # fmt: skip

    @property
    def stop_s(self) -> float:
        """How long it is worth waiting for calls that were told to stop."""
        return STOP_S if self._task.options.pool is not Pool.THREAD else 0.0

    async def quiet(self) -> None:
        """Returns when nothing runs."""
        await self._changes.until(lambda: not self._going)

    async def close(self) -> None:
        self._is_closed = True
        for call in dict.fromkeys(self._awaited.values()):
            call.handle.stop()
        if isinstance(self._pool, ProcessPool | TypedPool):
            await asyncio.to_thread(self._pool.close)  # it waits for processes to end
        else:
            self._pool.close()

    async def end(self) -> bool:
        """Stops also what nobody waits for. False when something continues: others must not get its keys yet."""
        for call in self._going:
            call.handle.stop()
        await self._changes.until(lambda: not self._going, self.stop_s)
        if self._going:
            logger.warning(
                "%s: %d runs continue, because they cannot be stopped; others get its partitions when the group's "
                "session has timed out%s",
                self._task.name, len(self._going), self._cure,
            )  # fmt: skip
        return not self._going

    @property
    def _cure(self) -> str:
        return "; pool='process' can end such runs" if self._task.options.pool is Pool.THREAD else ""


def _outcome_of(future: "asyncio.Future[TaskOutcome]") -> TaskOutcome:
    if future.cancelled():
        return TaskOutcome(TaskResult.FAILED, "it was canceled", "CancelledError")
    return future.result()


def _build_pool(task: Task[Any, Any, Any], user_loop: asyncio.AbstractEventLoop | None) -> CallPool:
    """Coroutines run on `user_loop`, or on the loop of the worker itself."""
    if isinstance(task, TypedTasks):
        return TypedPool({each.name: _build_pool(each, user_loop) for each in task.members})
    match task.options.pool:
        case Pool.LOOP if user_loop is not None:
            return OtherLoopPool(task.invoke_async, user_loop)
        case Pool.LOOP:
            return LoopPool(task.invoke_async)
        case Pool.THREAD:
            return ThreadPool(partial(run, task.invoke))
        case Pool.PROCESS:
            return ProcessPool(task.function.__module__, task.function.__qualname__)
