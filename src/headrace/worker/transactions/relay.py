"""`OutboxRelay`: sends what is in the outbox, in its order, and deletes what brokers have acknowledged.

Any number of relays may run for a group; one of them leads, by a lease in the database, and the others stand by. A
relay that is killed between the acknowledgement and the deletion leaves records that its successor sends again: each
has an id (`headrace.id`), by which a task with `once=` recognizes it.

Order is kept by topic, and no topic waits for another one: the records of each are read and sent by themselves. If a
record is not acknowledged, its topic is blocked for some seconds, longer each time: the records behind it stay in the
outbox and are not even read, and the first one is then tried alone. They are sent after it, also those that brokers had
acknowledged already.
"""

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from headrace.base.backoff import backoff
from headrace.wire.dead_letter import read_facts
from headrace.wire.records import NewRecord
from headrace.worker.later import later_topic, step_of, waiting_of
from headrace.worker.outbox import Outbox
from headrace.worker.transactions.database import WorkerDatabase
from headrace.worker.transactions.statements import (
    OutboxRecord,
    count_records,
    delete_records,
    lead,
    next_records,
    next_topics,
    resign,
)

logger = logging.getLogger("headrace.worker")

LOOK_S = 0.2
"""How often the leader looks for new records."""
STAND_BY_S = 1.0
AGAIN_S = 1.0
LEASE_MS = 15_000
RECORDS_MAX, TOPIC_RECORDS_MIN = 500, 20
"""That are read at a time, of all topics together and of each one."""
PATIENCE_S = 1.0
"""After so long, topics that have been sent do not wait any more for those that have not."""
TOPICS_MAX = 100
"""That are sent at a time."""
BLOCKED_S, BLOCKED_S_MAX = 5.0, 60.0
"""How long the records of a topic wait after one of them was not acknowledged."""


@dataclass(slots=True)
class _Blocked:
    """A topic whose first record was not acknowledged."""

    until_s: float = 0.0
    failures: int = 0


class OutboxRelay:
    """Sends the outbox of one group of one database."""

    def __init__(
        self, database: WorkerDatabase, sender: Outbox, group_id: str, now_ms: Callable[[], int]
    ) -> None:
        self.sent = 0
        """Records that brokers have acknowledged to this relay."""
        self._database = database
        self._sender = sender
        self._group_id = group_id
        self._now_ms = now_ms
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._lease_ms = 0
        self._blocked: dict[str, _Blocked] = {}
        """Until a record of theirs was acknowledged, in the loop's time."""
        self._sending: dict[str, asyncio.Task[bool]] = {}
        """Topics whose first records are on their way."""

    async def run(self) -> None:
        """Until it is canceled. Trouble is logged and tried again."""
        trouble = ""
        try:
            while True:
                try:
                    is_more = await self.relay()
                    trouble = ""
                    await asyncio.sleep(0 if is_more else LOOK_S if self._lease_ms else STAND_BY_S)
                except Exception as error:
                    if str(error) != trouble:
                        trouble = str(error)
                        logger.warning(
                            "group %s: the outbox in %s is delayed, retrying: %s",
                            self._group_id, self._database.database.name, error,
                        )  # fmt: skip
                    self._lease_ms = 0
                    await asyncio.sleep(AGAIN_S)
        finally:
            await self.close()

    async def drain(self, seconds: float) -> int:
        """Relays until the outbox is empty, or for so long. Returns how many records are left."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            while left := await self._database.transact(lambda: count_records(self._group_id)):
                if loop.time() > deadline:
                    return left
                if not await self.relay():
                    await asyncio.sleep(LOOK_S)
            return 0
        finally:
            await self.close()

    async def relay(self) -> bool:
        """Sends what is there, as much as goes at a time. True when there may be more."""
        after, is_more = "", False
        while await self._lead():
            topics = await self._database.transact(partial(next_topics, self._group_id, after, TOPICS_MAX))
            limits = self._limits(topics)
            records = await self._database.transact(partial(next_records, self._group_id, limits))
            is_more = await self._collect(self._send(records)) or is_more
            if len(topics) < TOPICS_MAX:
                return is_more
            after = topics[-1]
        await self._cancel()  # another relay took over; what is on its way may come twice
        return False

    def _limits(self, topics: Sequence[str]) -> dict[str, int]:
        """How many records to read of each topic; of one that was blocked, only that which blocked it."""
        now_s = asyncio.get_running_loop().time()
        free = [
            topic
            for topic in topics
            if topic not in self._sending
            and not ((blocked := self._blocked.get(topic)) and blocked.until_s > now_s)
        ]
        free = free[: max(0, TOPICS_MAX - len(self._sending))]
        each = max(TOPIC_RECORDS_MIN, RECORDS_MAX // max(1, len(free)))
        return {topic: 1 if topic in self._blocked else each for topic in free}

    async def _lead(self) -> bool:
        """Keeps the lease, which is renewed when half of it is over."""
        now_ms = self._now_ms()
        if self._lease_ms > now_ms + LEASE_MS // 2:
            return True
        until_ms = now_ms + LEASE_MS
        leads = await self._database.transact(lambda: lead(self._group_id, self._name, now_ms, until_ms))
        if leads and not self._lease_ms:
            logger.info(
                "group %s: this process relays the outbox in %s", self._group_id, self._database.database.name
            )
        self._lease_ms = until_ms if leads else 0
        return leads

    def _send(self, records: Sequence[OutboxRecord]) -> "list[asyncio.Task[bool]]":
        """Begins to send them, those of each topic by themselves."""
        begun: list[asyncio.Task[bool]] = []
        by_topic: dict[str, list[OutboxRecord]] = {}
        for record in records:
            by_topic.setdefault(record.topic, []).append(record)
        for topic, some in by_topic.items():
            begun.append(asyncio.create_task(self._send_topic(topic, some)))
            self._sending[topic] = begun[-1]
        return begun

    async def _collect(self, begun: "list[asyncio.Task[bool]]") -> bool:
        """Waits for what has just begun, but not for long. True when something was sent."""
        if begun:
            await asyncio.wait(begun, timeout=PATIENCE_S)
        done = [self._sending.pop(topic) for topic, task in list(self._sending.items()) if task.done()]
        results = [task.result() for task in done if task.exception() is None]
        for failed in (task for task in done if task.exception() is not None):
            failed.result()
        return any(results)

    async def _send_topic(self, topic: str, records: Sequence[OutboxRecord]) -> bool:
        """True when something was sent."""
        sending = (self._send_one(record) for record in records)
        results = await asyncio.gather(*sending, return_exceptions=True)
        failed = next((n for n, result in enumerate(results) if isinstance(result, BaseException)), None)
        done = [record.seq for record in records[:failed]]
        if done:
            await self._database.transact(partial(delete_records, self._group_id, done))
            self.sent += len(done)
            self._blocked.pop(topic, None)
        if failed is not None:
            self._block(records[failed], results[failed])
        return bool(done)

    def _block(self, record: OutboxRecord, error: object) -> None:
        blocked = self._blocked.setdefault(record.topic, _Blocked())
        wait_s = backoff(BLOCKED_S, BLOCKED_S_MAX, blocked.failures, random.random())
        blocked.until_s = asyncio.get_running_loop().time() + wait_s
        blocked.failures += 1
        logger.error(
            "group %s: record %d of the outbox in %s is not sent, and the others for topic %s wait behind it; trying "
            "again in %.0f s: %s",
            self._group_id, record.seq, self._database.database.name, record.topic, wait_s, error,
        )  # fmt: skip

    async def _send_one(self, record: OutboxRecord) -> None:
        partition = self._partition_of(record)
        if is_dead_letter(record):
            letter = NewRecord(record.key, record.value, list(record.headers))
            await self._sender.send_letter(record.topic, letter, partition)
        else:
            await self._sender.send_async(
                record.topic, record.value, key=record.key, headers=tuple(record.headers), partition=partition
            )

    def _partition_of(self, record: OutboxRecord) -> int | None:
        """A scheduled record may have been in the outbox for long: it goes to the step for what is left of its wait."""
        waiting = waiting_of(record.headers) if record.topic == later_topic(self._group_id) else None
        return record.partition if waiting is None else step_of(waiting.at_ms - self._now_ms())

    async def _cancel(self) -> None:
        sending, self._sending = list(self._sending.values()), {}
        for task in sending:
            task.cancel()
        if sending:
            await asyncio.wait(sending)

    async def close(self) -> None:
        """What is on its way may come again."""
        await self._cancel()
        await self._resign()

    async def _resign(self) -> None:
        """So that another relay need not wait for the end of the lease."""
        if self._lease_ms:
            self._lease_ms = 0
            try:
                await asyncio.wait_for(
                    self._database.transact(lambda: resign(self._group_id, self._name)), AGAIN_S
                )
            except Exception as error:
                logger.debug(
                    "group %s: the lease of the relay was not released and will expire: %s",
                    self._group_id,
                    error,
                )


def is_dead_letter(record: OutboxRecord) -> bool:
    return read_facts(record.headers) is not None
