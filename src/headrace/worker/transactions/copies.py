"""Copies of the records of a task with `once=`: a dead letter, or the same record later or again.

One transaction finishes the record and writes its copy into the outbox, so that it is never both run and copied, and
never copied twice. The relay of the worker sends the copy.
"""

import asyncio
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable
from enum import Enum

from headrace.client.delivery import Delivery
from headrace.worker.backoff import Backoff
from headrace.worker.bodies import Header
from headrace.worker.dead_letter_writer import DeadLetterWriter
from headrace.worker.outbox import Outbox
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.requeue import headers_of_copy
from headrace.worker.schedule import Schedule
from headrace.worker.scheduler import GiveUpCause, Job, Stage
from headrace.worker.transactions.database import WorkerDatabase
from headrace.worker.transactions.statements import (
    OutboxRecord,
    RecordPlace,
    message_id_of,
    replace_by_copy,
    with_message_id,
)

logger = logging.getLogger("headrace.worker")

RETRIES = Backoff(first=0.5, factor=2.0, most=30.0)


class CopyResult(Enum):
    WRITTEN = "written"
    DONE_BEFORE = "done before"
    """The record was finished by an earlier run. There is no copy: accept it."""
    LOST = "lost"
    """The record is not ours any more."""


def new_message_id() -> str:
    return secrets.token_hex(16)


class OnceCopies:
    """Of one task."""

    def __init__(
        self,
        database: WorkerDatabase,
        *,
        group_id: str,
        task: str,
        sender: Outbox,
        schedule: Schedule | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._database = database
        self._group_id = group_id
        self._task = task
        self._sender = sender
        self._schedule = schedule
        self._now_ms = now_ms

    async def write_dead_letter(
        self,
        letters: DeadLetterWriter,
        job: Job,
        delivery: Delivery,
        task: str,
        cause: GiveUpCause,
        outcome: TaskOutcome | None,
    ) -> CopyResult:
        letter = letters.letter_of(job, delivery, task, cause, outcome)
        copy = self._copy(letters.topic, letter.headers, letter.key, letter.value)

        async def write() -> bool:
            count = await self._sender.partitions(letters.topic)
            return await self._replace(delivery, copy(delivery.partition % count))

        return await self._until_written(job, delivery, write)

    async def requeue(self, job: Job, delivery: Delivery) -> CopyResult:
        """To the record's own topic."""
        headers = headers_of_copy(delivery.headers, job.attempts)
        copy = self._copy(delivery.topic, headers, delivery.key, delivery.value)
        return await self._until_written(job, delivery, lambda: self._replace(delivery, copy(None)))

    async def defer(self, job: Job, delivery: Delivery, delay_ms: int) -> CopyResult:
        """To the record's own topic, after that time. Raises whatever keeps it from being written."""
        assert self._schedule is not None
        await self._schedule.prepare_async()
        headers = headers_of_copy(delivery.headers, job.attempts)
        place = self._schedule.place(delivery.topic, headers, delay_ms / 1000)
        copy = self._copy(place.topic, place.headers, delivery.key, delivery.value)
        is_written = await self._replace(delivery, copy(place.partition))
        return CopyResult.WRITTEN if is_written else CopyResult.DONE_BEFORE

    def _copy(
        self, topic: str, headers: Iterable[Header], key: bytes | None, value: bytes | None
    ) -> Callable[[int | None], OutboxRecord]:
        own = with_message_id(headers, new_message_id())
        return lambda partition: OutboxRecord(self._group_id, topic, partition, key, value, own)

    async def _replace(self, delivery: Delivery, copy: OutboxRecord) -> bool:
        place = RecordPlace(
            self._group_id,
            delivery.topic,
            delivery.topic_id,
            delivery.partition,
            delivery.offset,
            message_id_of(delivery.headers),
        )
        return await self._database.transact(lambda: replace_by_copy(place, self._now_ms(), copy))

    async def _until_written(
        self, job: Job, delivery: Delivery, write: Callable[[], Awaitable[bool]]
    ) -> CopyResult:
        tries = 0
        while job.stage is Stage.GIVING_UP:
            try:
                return CopyResult.WRITTEN if await write() else CopyResult.DONE_BEFORE
            except Exception as error:  # whatever it is: without a copy the record must not go
                tries += 1
                delay_s = RETRIES.delay_ms(tries, random.random()) / 1000
                logger.error(
                    "%s: the copy of %s-%d@%d cannot be written; the record stays locked; retrying in %.1f s: %s",
                    self._task, delivery.topic, delivery.partition, delivery.offset, delay_s, error,
                )  # fmt: skip
                await asyncio.sleep(delay_s)
        return CopyResult.LOST
