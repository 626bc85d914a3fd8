"""Copies of a record that is tried again later as a new record; its attempts go with it in a header."""

import asyncio
import logging
import random
from collections.abc import Iterable

from headrace.client.delivery import Delivery
from headrace.wire.dead_letter import ATTEMPTS
from headrace.worker.backoff import Backoff
from headrace.worker.bodies import Header
from headrace.worker.outbox import Outbox
from headrace.worker.scheduler import Job, Stage

logger = logging.getLogger("headrace.worker")

DIGITS_MAX = 9
"""Anybody may write the header; Python refuses to read numbers of some thousand digits."""
RETRIES = Backoff(first=0.5, factor=2.0, most=30.0)


def carried_attempts(headers: Iterable[Header]) -> int:
    """The attempts that earlier copies of a record have had."""
    values = [value for name, value in headers if name == ATTEMPTS and value is not None]
    last = values[-1] if values else b""
    return int(last) if last.isdigit() and len(last) <= DIGITS_MAX else 0


def headers_of_copy(headers: Iterable[Header], attempts: int) -> tuple[Header, ...]:
    own = tuple(header for header in headers if header[0] != ATTEMPTS)
    return (*own, (ATTEMPTS, str(attempts).encode()))


async def requeue(outbox: Outbox, job: Job, delivery: Delivery, task: str) -> bool:
    """Sends a copy to the record's own topic, as often as it takes. False when the record is not ours any more."""
    tries = 0
    headers = headers_of_copy(delivery.headers, job.attempts)
    while job.stage is Stage.GIVING_UP:
        try:
            await outbox.send_async(delivery.topic, delivery.value, key=delivery.key, headers=headers)
            return True
        except Exception as error:  # whatever it is: without a copy the record must not go
            tries += 1
            delay_s = RETRIES.delay_ms(tries, random.random()) / 1000
            logger.error(
                "%s: the copy of %s-%d@%d cannot be written; the record stays locked; retrying in %.1f s: %s",
                task, delivery.topic, delivery.partition, delivery.offset, delay_s, error,
            )  # fmt: skip
            await asyncio.sleep(delay_s)
    return False
