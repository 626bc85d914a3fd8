"""Writes the copies of records that are given up, as often as it takes."""

import asyncio
import logging
import random

from headrace.client.delivery import Delivery
from headrace.wire.dead_letter import without_value
from headrace.wire.records import NewRecord
from headrace.worker.backoff import Backoff
from headrace.worker.dead_letters import RecordOrigin, build_dead_letter
from headrace.worker.outbox import Outbox, TooLargeError
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.scheduler import GiveUpCause, Job, Stage

logger = logging.getLogger("headrace.worker")

RETRIES = Backoff(first=0.5, factor=2.0, most=30.0)


class DeadLetterWriter:
    """Of one task. The record stays locked, and is rejected by the caller, once `write` says that its copy is there."""

    def __init__(self, outbox: Outbox, topic: str, *, group_id: str, worker: str) -> None:
        self._outbox = outbox
        self.topic = topic
        self._group_id = group_id
        self._worker = worker

    async def write(
        self, job: Job, delivery: Delivery, task: str, cause: GiveUpCause, outcome: TaskOutcome | None
    ) -> bool:
        """True when the topic has acknowledged the copy; False when the record is not ours any more."""
        letter = self.letter_of(job, delivery, task, cause, outcome)
        tries = 0
        while job.stage is Stage.GIVING_UP:
            try:
                await self._outbox.send_dead_letter(
                    self.topic,
                    letter.value,
                    key=letter.key,
                    headers=tuple(letter.headers),
                    partition=delivery.partition,
                )
                return True
            except Exception as error:  # whatever it is: without a copy the record must not go
                smaller = without_value(letter) if isinstance(error, TooLargeError) else None
                if smaller is not None:
                    letter = smaller
                    continue
                tries += 1
                await self._wait(tries, delivery, task, error)
        return False

    def letter_of(
        self, job: Job, delivery: Delivery, task: str, cause: GiveUpCause, outcome: TaskOutcome | None
    ) -> NewRecord:
        return build_dead_letter(
            self._origin(job, delivery, task),
            key=delivery.key,
            value=delivery.value,
            headers=delivery.headers,
            cause=cause,
            outcome=outcome,
        )

    async def _wait(self, tries: int, delivery: Delivery, task: str, error: Exception) -> None:
        delay_s = RETRIES.delay_ms(tries, random.random()) / 1000
        logger.error(
            "%s: the dead letter of %s-%d@%d cannot be written; the record stays locked; retrying in %.1f s: %s",
            task, delivery.topic, delivery.partition, delivery.offset, delay_s, error,
        )  # fmt: skip
        await asyncio.sleep(delay_s)

    def _origin(self, job: Job, delivery: Delivery, task: str) -> RecordOrigin:
        return RecordOrigin(
            topic=delivery.topic,
            partition=delivery.partition,
            offset=delivery.offset,
            timestamp_ms=delivery.timestamp,
            group_id=self._group_id,
            delivery_count=delivery.delivery_count,
            attempts=job.attempts,
            task=task,
            worker=self._worker,
        )
