"""A group's scheduled records: sending them, listing them, canceling them.

schedule = Schedule({"bootstrap.servers": "localhost:9092"}, "mailers")
for each in schedule.upcoming(100):
    print(each.at, each.topic, each.id)
schedule.cancel(each.id)
"""

import asyncio
import heapq
import logging
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.background import BackgroundLoop
from headrace.client.cluster import Cluster
from headrace.client.errors import (
    InvalidTopicError,
    OffsetOutOfRangeError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.client.producing.aio import AsyncProducer
from headrace.client.producing.record import ProducerRecord
from headrace.client.settings import ClientSettings
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import KafkaError
from headrace.wire.records import read_records
from headrace.worker.bodies import Header
from headrace.worker.control import ControlReader, ControlState, valid_positions
from headrace.worker.errors import QueueError, SendError
from headrace.worker.later import (
    CANCEL,
    STEPS,
    Waiting,
    as_datetime,
    control_topic,
    deadline_ms,
    foreign_headers,
    headers_for,
    later_topic,
    new_id,
    step_of,
    time_in,
    waiting_of,
    write_moment,
)  # fmt: skip
from headrace.worker.outbox import settings_for

logger = logging.getLogger("headrace.worker")

T = TypeVar("T")
LATER_CONFIGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}
CONTROL_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1048576",
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
LIST_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Scheduled:
    """A record that is sent later."""

    id: str
    at: datetime
    topic: str
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class LaterPlace:
    """Where a scheduled record is to be written."""

    scheduled: Scheduled
    topic: str
    partition: int
    headers: tuple[Header, ...]


@dataclass(slots=True)
class ReadLimit:
    """How much of each step is read at most. What is left has entered its step later than what was read."""

    records: int
    bytes: int
    is_exceeded: bool = False
    """Something was left."""


class Schedule:
    """`settings` are client settings by Kafka's names, as of a Queue. Methods may be called from any thread."""

    def __init__(
        self, settings: Mapping[str, Any], group_id: str, *, now_ms: Callable[[], int] | None = None
    ) -> None:
        self._given = dict(settings)
        self._group_id = group_id
        self._topic, self._control_topic = later_topic(group_id), control_topic(group_id)
        self.now_ms = now_ms or _wall_ms
        self._is_ready = False

    def place(
        self,
        topic: str,
        headers: Sequence[Header],
        delay: float | timedelta | None = None,
        at: datetime | None = None,
    ) -> LaterPlace:
        """What to write so that a record is sent to `topic` later. `prepare` must have been called."""
        now_ms = self.now_ms()
        moment_ms = deadline_ms(delay, at, now_ms)
        waiting = Waiting(new_id(moment_ms), moment_ms, topic)
        return LaterPlace(
            Scheduled(waiting.id, as_datetime(moment_ms), topic),
            self._topic,
            step_of(max(0, moment_ms - now_ms)),
            headers_for(waiting, foreign_headers(headers)),
        )

    def place_many(
        self,
        topic: str,
        records: Iterable[ProducerRecord],
        delay: float | timedelta | None = None,
        at: datetime | None = None,
    ) -> Iterator[ProducerRecord]:
        """The same for many records that are due together."""
        for record in records:
            headers: Any = record.headers  # of a queue: pairs with bytes
            placement = self.place(topic, headers, delay, at)
            yield record._replace(headers=placement.headers, partition=placement.partition)

    def prepare(self, timeout: float | None = None) -> None:
        """Creates the topics if they do not exist. SendError if that takes longer than `timeout` seconds."""
        if not self._is_ready:
            _run(self.prepare_async(timeout=timeout))

    async def prepare_async(
        self,
        more: Sequence[str] = (),
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> None:
        """Creates the topics, and `more` topics with the brokers' defaults."""
        if self._is_ready and not more:
            return
        try:
            async with asyncio.timeout(timeout), AsyncAdmin(ClientSettings.parse(self._given)) as admin:
                await _create(admin, self._control_topic, 1, CONTROL_CONFIGS)
                await _create(admin, self._topic, STEPS, LATER_CONFIGS)
                for name in more:
                    await _create(admin, name, -1, {})
        except (KafkaError, TimeoutError) as error:
            raise SendError(
                f"nothing can be scheduled for group {self._group_id}: its topics {self._topic} and "
                f"{self._control_topic} cannot be created: {str(error) or f'no response within {timeout} s'}"
            ) from error
        self._is_ready = True

    def upcoming(self, most: int = LIST_MAX) -> list[Scheduled]:
        """The records that are due next, at most so many."""
        return _run(self.upcoming_async(most))

    async def upcoming_async(self, most: int = LIST_MAX, limit: ReadLimit | None = None) -> "list[Scheduled]":
        async with aclosing(self.scan(limit)) as scheduled:
            return await _smallest(scheduled, most)

    def cancel(self, id: str) -> bool:
        """Takes a record out of the schedule. False when its time is over, so that it may have been sent."""
        return _run(self.cancel_async(id))

    async def cancel_async(self, id: str) -> bool:
        at_ms = time_in(id)
        if at_ms is None:
            raise QueueError(
                f"{id!r} is not the ID of a scheduled record; `headrace schedule list` shows them"
            )
        if at_ms <= self.now_ms():
            return False
        await self._require_topics()
        async with AsyncProducer.of(settings_for(self._given)) as producer:
            await producer.send(
                self._control_topic, write_moment(at_ms), key=CANCEL + id.encode(), partition=0
            )
        return at_ms > self.now_ms()  # else it may have been sent meanwhile

    async def _require_topics(self) -> None:
        """To write to a topic that does not exist would create it, with settings that lose what it holds."""
        async with Cluster(ClientSettings.parse(self._given)) as cluster:
            await cluster.refresh([self._control_topic])
            if cluster.topic(self._control_topic) is None:
                raise QueueError(
                    f"group {self._group_id!r} has no schedule: there is no topic {self._control_topic}; check the name"
                )

    async def scan(self, limit: ReadLimit | None = None) -> AsyncGenerator[Scheduled, None]:
        """All scheduled records, or those within the limit, step by step. Memory does not grow with their number.

        The longest step comes first: a forwarder moves records to shorter ones meanwhile. Such a record may come twice.
        """
        async with Cluster(ClientSettings.parse(self._given)) as cluster:
            try:
                control = ControlReader(cluster, self._control_topic)
                await control.catch_up()
                control.state.positions = await valid_positions(cluster, self._topic, control.state.positions)
                for step in reversed(range(STEPS)):
                    place = (self._topic, step)
                    end = (await list_offsets(cluster, {place: OffsetSpec.LATEST}, committed=True))[place]
                    async with aclosing(self._read(cluster, step, end, control.state, limit)) as found:
                        async for each in found:
                            yield each
            except (UnknownTopicOrPartitionError, InvalidTopicError):
                return  # nothing has ever been scheduled, or the group's name cannot be that of a topic

    async def _read(
        self, cluster: Cluster, step: int, end: int, state: ControlState, limit: ReadLimit | None
    ) -> AsyncGenerator[Scheduled, None]:
        position = state.positions.offsets[step]
        if limit is not None and end - position > limit.records:
            end, limit.is_exceeded = position + limit.records, True
        while position < end:
            try:
                reading = self._read_from(cluster, step, position, end, state, limit)
                async with aclosing(reading) as found:
                    async for each in found:
                        yield each
                return
            except OffsetOutOfRangeError as error:  # a forwarder has moved records and deleted them
                if error.log_start_offset <= position:
                    raise
                position = error.log_start_offset

    async def _read_from(
        self,
        cluster: Cluster,
        step: int,
        position: int,
        end: int,
        state: ControlState,
        limit: ReadLimit | None,
    ) -> AsyncGenerator[Scheduled, None]:
        size = 0
        async with aclosing(
            read_range(cluster, self._topic, step, position, end - 1, committed=True)
        ) as batches:
            async for _, batch in batches:
                if limit is not None and size >= limit.bytes:
                    limit.is_exceeded = True
                    return
                size += len(batch)
                for record in read_records(batch):
                    waiting = waiting_of(record.headers)
                    if not position <= record.offset < end:
                        continue
                    if waiting is None or waiting.id in state.canceled:
                        continue
                    yield Scheduled(
                        waiting.id,
                        as_datetime(waiting.at_ms),
                        waiting.topic,
                        record.key,
                        record.value,
                        foreign_headers(record.headers),
                    )


async def _create(admin: AsyncAdmin, name: str, partitions: int, configs: Mapping[str, str]) -> None:
    try:
        await admin.create_topic(name, partitions, configs=configs)
    except TopicExistsError:
        found = (await admin.describe_topics([name]))[name]
        if len(found.partitions) < partitions:
            await admin.create_partitions(name, partitions)
        await _check(admin, name, configs)


async def _check(admin: AsyncAdmin, name: str, configs: Mapping[str, str]) -> None:
    """A topic that somebody else has created: with another retention, it would lose what waits."""
    if not configs:
        return
    try:
        found = await admin.topic_config(name)
    except KafkaError:
        return  # no right to look
    for key in ("cleanup.policy", "retention.ms", "retention.bytes"):
        wanted, entry = configs.get(key), found.get(key)
        if wanted is not None and entry is not None and entry.value != wanted:
            logger.warning(
                "topic %s has %s=%s, so that scheduled records may be lost; set it to %s",
                name, key, entry.value, wanted,
            )  # fmt: skip


async def _smallest(scheduled: AsyncGenerator[Scheduled, None], most: int) -> "list[Scheduled]":
    heap: list[tuple[float, int, Scheduled]] = []
    ids: set[str] = set()
    count = 0
    async for each in scheduled:
        if each.id in ids:
            continue
        count += 1
        entry = (-each.at.timestamp(), -count, each)
        if len(heap) < most:
            heapq.heappush(heap, entry)
        elif heap and entry > heap[0]:
            ids.discard(heapq.heapreplace(heap, entry)[2].id)
        else:
            continue
        ids.add(each.id)
    return [entry[2] for entry in sorted(heap, reverse=True)]


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    background = BackgroundLoop("headrace-schedule")
    try:
        return background.run(coroutine)
    finally:
        background.close()


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
