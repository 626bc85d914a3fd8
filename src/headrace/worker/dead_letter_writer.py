"""Writes the copies of records that are given up, as often as it takes."""

import asyncio
import logging
import random
from functools import partial

from headrace.client.delivery import Delivery
from headrace.worker.backoff import Backoff
from headrace.worker.dead_letters import RecordOrigin, build_dead_letter
from headrace.worker.outbox import Outbox, TooLargeError
from headrace.worker.outcomes import TaskOutcome
from headrace.worker.scheduler import GiveUpCause, Job, Stage

logger = logging.getLogger("headrace.worker")

RETRIES = Backoff(first=0.5, factor=2.0, most=30.0)


class DeadLetterWriter:
    """Of one task. The record stays locked, and is rejected by the caller, once `write` says that its copy is there."""

    def __init__(self, outbox: Outbox, topic: str, *, group_id: str, task: str, worker: str) -> None:
        self._outbox = outbox
        self._topic = topic
        self._group_id = group_id
        self._task = task
        self._worker = worker

    async def write(
        self, job: Job, delivery: Delivery, cause: GiveUpCause, outcome: TaskOutcome | None
    ) -> bool:
        """True when the topic has acknowledged the copy; False when the record is not ours any more."""
        build = partial(
            build_dead_letter,
            self._origin(job, delivery),
            key=delivery.key,
            value=delivery.value,
            headers=delivery.headers,
            cause=cause,
            outcome=outcome,
        )
        letter, is_whole, tries = build(), True, 0
        while job.stage is Stage.GIVING_UP:
            try:
                await self._outbox.send_beside(
                    self._topic,
                    letter.value,
                    key=letter.key,
                    headers=letter.headers,
                    partition=delivery.partition,
                )
                return True
            except Exception as error:  # whatever it is: without a copy the record must not go
                if isinstance(error, TooLargeError) and is_whole:
                    letter, is_whole = build(copies_value=False), False
                    continue
                tries += 1
                await self._wait(tries, delivery, error)
        return False

    async def _wait(self, tries: int, delivery: Delivery, error: Exception) -> None:
        delay_s = RETRIES.delay_ms(tries, random.random()) / 1000
        logger.error(
            "%s: no dead letter yet for %s-%d@%d, which stays locked; again in %.1f s: %s",
            self._task, delivery.topic, delivery.partition, delivery.offset, delay_s, error,
        )  # fmt: skip
        await asyncio.sleep(delay_s)

    def _origin(self, job: Job, delivery: Delivery) -> RecordOrigin:
        return RecordOrigin(
            topic=delivery.topic,
            partition=delivery.partition,
            offset=delivery.offset,
            timestamp_ms=delivery.timestamp,
            group_id=self._group_id,
            delivery_count=delivery.delivery_count,
            attempts=job.attempts,
            task=self._task,
            worker=self._worker,
        )
