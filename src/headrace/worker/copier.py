"""Writes the copies of records, and settles each record when its copy is written (`copying.py`)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from headrace.client.delivery import AcknowledgeType
from headrace.worker.copying import CopyResult, PlainCopies
from headrace.worker.dead_letters import DeadLetterBuilder, describe
from headrace.worker.held import HeldRecords
from headrace.worker.held_job import HeldJob
from headrace.worker.jobs import Stage
from headrace.worker.metrics import TaskMetrics
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.rules import GiveUpCause
from headrace.worker.scheduler import Scheduler
from headrace.worker.transactions.copies import OnceCopies

logger = logging.getLogger("headrace.worker")


class Copier:
    """Of one task. `ended` is called when a copy is written, or will not be."""

    def __init__(
        self,
        copies: PlainCopies | OnceCopies,
        letters: DeadLetterBuilder | None,
        scheduler: Scheduler[HeldJob],
        records: HeldRecords,
        metrics: TaskMetrics,
        *,
        ended: Callable[[], None],
    ) -> None:
        self._copies = copies
        self._letters = letters
        self._scheduler = scheduler
        self._records = records
        self._metrics = metrics
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[asyncio.Task[None], HeldJob] = {}

    def give_up(self, held: HeldJob, cause: GiveUpCause, outcome: TaskOutcome | None) -> bool:
        """False when there is no dead-letter topic: reject it without a copy."""
        reject = AcknowledgeType.REJECT
        if self._letters is not None:
            write = partial(self._copies.write_dead_letter, self._letters, held, cause, outcome)
            self._begin(held, self._replace(held, write, "dead_lettered", reject, describe(cause, outcome)))
        elif (
            self._scheduler.rules.holds and cause is GiveUpCause.LAST_DELIVERY
        ):  # else the broker archives it
            write = partial(self._copies.requeue, held)
            self._begin(held, self._replace(held, write, "requeued", reject, "A copy was sent to its topic."))
        else:
            return False
        return True

    def defer(self, held: HeldJob, delay_ms: int) -> None:
        """A copy is scheduled, with the attempts so far. The record waits here if that fails."""
        schedule = partial(self._schedule, held, delay_ms)
        self._begin(held, self._replace(held, schedule, "scheduled", AcknowledgeType.ACCEPT))

    def cancel(self, partition: int | None = None) -> list[HeldJob]:
        """All, or those of a partition. Returns their records."""
        canceled: list[HeldJob] = []
        for task, held in self._under_way.items():
            if partition in (None, held.partition):
                task.cancel()
                canceled.append(held)
        return canceled

    def _begin(self, held: HeldJob, replacing: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(replacing)
        self._under_way[task] = held
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        held = self._under_way.pop(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("%s: the copy of %s failed: %r", held.task, held, error, exc_info=error)
        self._ended()

    async def _replace(
        self,
        held: HeldJob,
        write: Callable[[], Awaitable[CopyResult]],
        counter: str,
        answer: AcknowledgeType,
        reason: str | None = None,
    ) -> None:
        """`counter` is the one of the metrics that grows with the copy; the record then gets `answer`."""
        result = await write()
        if result is CopyResult.WRITTEN:
            self._metrics.count(counter)
        if result is CopyResult.NONE or held.stage is not Stage.GIVING_UP:
            return
        self._scheduler.leave(held)
        if result is CopyResult.WRITTEN:
            self._records.settle(held, answer, reason=reason)
        else:
            self._metrics.duplicates += 1
            self._records.settle(held, AcknowledgeType.ACCEPT, "succeeded")

    async def _schedule(self, held: HeldJob, delay_ms: int) -> CopyResult:
        due_ms = round(self._loop.time() * 1000) + delay_ms
        try:
            return await self._copies.defer(held, delay_ms)
        except Exception as error:  # whatever it is: the record stays
            logger.warning("%s: %s cannot be scheduled and keeps its lock: %s", held.task, held, error)
            self._scheduler.hold(held, due_ms)
            return CopyResult.NONE
