"""Copies that take the place of a record: a dead letter, or the same record later or again.

The record keeps its lock until its copy is written. `PlainCopies` sends the copies, so a crash before the record is
settled leaves both. The copies of a task with `once=` are written in a transaction (`transactions/copies.py`).
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from enum import Enum

from headrace.worker.backoff import Backoff
from headrace.worker.dead_letters import DeadLetterBuilder
from headrace.worker.held_job import HeldJob
from headrace.worker.jobs import Stage
from headrace.worker.outbox import Outbox
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.rules import GiveUpCause
from headrace.worker.schedule import Schedule

logger = logging.getLogger("headrace.worker")

RETRIES = Backoff(first=0.5, factor=2.0, most=30.0)


class CopyResult(Enum):
    WRITTEN = "written"
    DONE_BEFORE = "done before"
    """The record was finished by an earlier run. There is no copy: accept it."""
    NONE = "none"
    """The record is not ours any more, or it stays as it is."""


class PlainCopies:
    def __init__(self, outbox: Outbox, schedule: Schedule | None) -> None:
        self._outbox = outbox
        self._schedule = schedule

    async def write_dead_letter(
        self, letters: DeadLetterBuilder, held: HeldJob, cause: GiveUpCause, outcome: TaskOutcome | None
    ) -> CopyResult:
        letter = letters.build(held, cause, outcome)

        async def send() -> bool:
            count = await self._outbox.partitions(letters.topic)
            await self._outbox.send_letter(
                letters.topic, letter, held.partition % count
            )  # as KIP-1191 has it
            return True

        return await until_written(held, "dead letter", send)

    async def requeue(self, held: HeldJob) -> CopyResult:
        """To the record's own topic."""
        delivery, headers = held.delivery, held.headers_of_copy()

        async def send() -> bool:
            await self._outbox.send_async(delivery.topic, delivery.value, key=delivery.key, headers=headers)
            return True

        return await until_written(held, "copy", send)

    async def defer(self, held: HeldJob, delay_ms: int) -> CopyResult:
        """To the record's own topic, after that time. Raises whatever keeps it from being written."""
        assert self._schedule is not None
        delivery = held.delivery
        await self._schedule.prepare_async()
        place = self._schedule.place(delivery.topic, held.headers_of_copy(), delay_ms / 1000)
        await self._outbox.send_async(
            place.topic, delivery.value, key=delivery.key, headers=place.headers, partition=place.partition
        )
        return CopyResult.WRITTEN


async def until_written(held: HeldJob, what: str, write: Callable[[], Awaitable[bool]]) -> CopyResult:
    """As often as it takes, while the record is ours. `write` is False when the record was finished before."""
    tries = 0
    while held.stage is Stage.GIVING_UP:
        try:
            return CopyResult.WRITTEN if await write() else CopyResult.DONE_BEFORE
        except Exception as error:  # whatever it is: without a copy the record must not go
            tries += 1
            delay_s = RETRIES.delay_ms(tries, random.random()) / 1000
            logger.error(
                "%s: the %s of %s cannot be written; the record stays locked; retrying in %.1f s: %s",
                held.task, what, held, delay_s, error,
            )  # fmt: skip
            await asyncio.sleep(delay_s)
    return CopyResult.NONE
