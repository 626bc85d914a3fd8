"""Copies of the records of a task with `once=`: a dead letter, or the same record later or again.

One transaction finishes the record and writes its copy into the outbox, so that it is never both run and copied, and
never copied twice. The relay of the worker sends the copy.
"""

import secrets
from collections.abc import Callable, Iterable

from headrace.client.delivery import Delivery
from headrace.worker.bodies import Header
from headrace.worker.copying import CopyResult, until_written
from headrace.worker.dead_letters import DeadLetterBuilder
from headrace.worker.held_job import HeldJob
from headrace.worker.outbox import Outbox
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.rules import GiveUpCause
from headrace.worker.schedule import Schedule
from headrace.worker.transactions.database import WorkerDatabase
from headrace.worker.transactions.statements import (
    OutboxRecord,
    RecordPlace,
    message_id_of,
    replace_by_copy,
    with_message_id,
)


def new_message_id() -> str:
    return secrets.token_hex(16)


class OnceCopies:
    """Of one task."""

    def __init__(
        self,
        database: WorkerDatabase,
        *,
        group_id: str,
        sender: Outbox,
        schedule: Schedule | None,
        now_ms: Callable[[], int],
    ) -> None:
        self._database = database
        self._group_id = group_id
        self._sender = sender
        self._schedule = schedule
        self._now_ms = now_ms

    async def write_dead_letter(
        self, letters: DeadLetterBuilder, held: HeldJob, cause: GiveUpCause, outcome: TaskOutcome | None
    ) -> CopyResult:
        letter = letters.build(held, cause, outcome)
        copy = self._copy(letters.topic, letter.headers, letter.key, letter.value)

        async def write() -> bool:
            count = await self._sender.partitions(letters.topic)
            return await self._replace(held.delivery, copy(held.partition % count))

        return await until_written(held, "dead letter", write)

    async def requeue(self, held: HeldJob) -> CopyResult:
        delivery = held.delivery
        copy = self._copy(delivery.topic, held.headers_of_copy(), delivery.key, delivery.value)
        return await until_written(held, "copy", lambda: self._replace(delivery, copy(None)))

    async def defer(self, held: HeldJob, delay_ms: int) -> CopyResult:
        assert self._schedule is not None
        delivery = held.delivery
        await self._schedule.prepare_async()
        place = self._schedule.place(delivery.topic, held.headers_of_copy(), delay_ms / 1000)
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
