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
from collections.abc import (
    AsyncGenerator,
    Callable,
    Container,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypeVar

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.background import BackgroundLoop
from headrace.client.cluster import Cluster
from headrace.client.errors import (
    InvalidTopicError,
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    RequestTimeoutError,
    TopicAuthorizationError,
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
from headrace.worker.control import ControlReader, valid_positions
from headrace.worker.errors import QueueError, SendError
from headrace.worker.later import (
    CANCEL,
    STEPS,
    StepPositions,
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
    ids: set[str] = field(default_factory=set)
    """Of the scheduled records that were read."""


@dataclass(frozen=True, slots=True)
class Cancellation:
    """What became of the IDs that were to be canceled."""

    canceled: tuple[str, ...] = ()
    late: tuple[str, ...] = ()
    """Their time is over: they may have been sent."""
    unknown: tuple[str, ...] = ()
    """No such records are scheduled."""


@dataclass(slots=True)
class _Reading:
    """How the steps are read."""

    cluster: Cluster
    positions: StepPositions
    without: Container[str] = ()
    """Canceled records."""
    limit: ReadLimit | None = None
    committed: bool = True


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

    def cancel(self, id: str, *, is_known: bool = False) -> bool:
        """Takes a record out of the schedule. False when its time is over, so that it may have been sent.

        QueueError when no record with this ID is scheduled. To find out, what is scheduled is read, unless the caller
        knows that the record is (`is_known`).
        """
        return _run(self.cancel_async(id, is_known=is_known))

    async def cancel_async(self, id: str, *, is_known: bool = False, limit: ReadLimit | None = None) -> bool:
        done = await self.cancel_many_async([id], is_known=is_known, limit=limit)
        if done.unknown:
            raise QueueError(
                f"no record with the ID {id!r} is scheduled in group {self._group_id!r}: it was canceled or sent "
                f"before, or is of another group; `headrace schedule list {self._group_id}` shows those that are"
            )
        return bool(done.canceled)

    def cancel_many(self, ids: Iterable[str]) -> Cancellation:
        """Like `cancel`, for many. QueueError if one of them is not even an ID; then nothing is canceled."""
        return _run(self.cancel_many_async(ids))

    async def cancel_many_async(
        self, ids: Iterable[str], *, is_known: bool = False, limit: ReadLimit | None = None
    ) -> Cancellation:
        """With a `limit`, records that might be beyond it count as scheduled."""
        moments = {id: self._moment_of(id) for id in ids}
        open_ms = {id: at_ms for id, at_ms in moments.items() if at_ms > self.now_ms()}
        unknown: set[str] = set()
        if open_ms:
            async with Cluster(ClientSettings.parse(self._given)) as cluster:
                await self._require_topics(cluster)
                noted = await self._note_canceled(open_ms)
                open_ms = {id: at_ms for id, at_ms in open_ms.items() if at_ms > self.now_ms()}
                if open_ms and not is_known:
                    unknown = await self._not_scheduled(cluster, open_ms.keys(), noted, limit)
        return Cancellation(
            canceled=tuple(id for id in open_ms if id not in unknown),
            late=tuple(id for id in moments if id not in open_ms),
            unknown=tuple(id for id in open_ms if id in unknown),
        )

    def _moment_of(self, id: str) -> int:
        at_ms = time_in(id)
        if at_ms is None:
            raise QueueError(
                f"{id!r} is not the ID of a scheduled record; `headrace schedule list` shows them"
            )
        return at_ms

    async def _note_canceled(self, moments: Mapping[str, int]) -> int:
        """Returns the offset behind the cancellations in the control topic."""
        async with AsyncProducer.of(settings_for(self._given)) as producer:
            sent = [
                await producer.send_soon(
                    self._control_topic, write_moment(at_ms), key=CANCEL + id.encode(), partition=0
                )
                for id, at_ms in moments.items()
            ]
            return max([metadata.offset for metadata in await asyncio.gather(*sent)]) + 1

    async def _not_scheduled(
        self, cluster: Cluster, ids: Iterable[str], noted: int, limit: ReadLimit | None
    ) -> set[str]:
        """Those of the canceled records that there are not; none where that cannot be known.

        It is asked after the cancellation is written, which is what must be in time. What transactions have not
        committed yet is read as well: behind them may be records that were sent just now. A forwarder may have met the
        cancellation and dropped the record meanwhile: then it has forgotten the cancellation in the control topic.
        """
        missing = set(ids)
        control = ControlReader(cluster, self._control_topic)
        try:
            await control.catch_up()
            reading = _Reading(cluster, control.state.positions, limit=limit, committed=False)
            async with aclosing(self._read_all(reading)) as found:
                async for each in found:
                    missing.discard(each.id)
                    if not missing:
                        return missing
            if limit is not None and limit.is_exceeded:
                return set()
            await control.catch_up(noted)
        except (TopicAuthorizationError, OffsetNotAvailableError, RequestTimeoutError):
            return set()  # it may not read, or a transaction stays open
        return missing & control.state.canceled.keys()

    async def _require_topics(self, cluster: Cluster) -> None:
        """To write to a topic that does not exist would create it, with settings that lose what it holds."""
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
            control = ControlReader(cluster, self._control_topic)
            try:
                await control.catch_up()
            except (UnknownTopicOrPartitionError, InvalidTopicError):
                return  # nothing has ever been scheduled, or the group's name cannot be that of a topic
            state = control.state
            reading = _Reading(cluster, state.positions, without=state.canceled.keys(), limit=limit)
            async with aclosing(self._read_all(reading)) as found:
                async for each in found:
                    yield each

    async def _read_all(self, reading: _Reading) -> AsyncGenerator[Scheduled, None]:
        try:
            reading.positions = await valid_positions(reading.cluster, self._topic, reading.positions)
            for step in reversed(range(STEPS)):
                place = (self._topic, step)
                wanted = {place: OffsetSpec.LATEST}
                end = (await list_offsets(reading.cluster, wanted, committed=reading.committed))[place]
                async with aclosing(self._read(reading, step, end)) as found:
                    async for each in found:
                        yield each
        except (UnknownTopicOrPartitionError, InvalidTopicError):
            return  # as above

    async def _read(self, reading: _Reading, step: int, end: int) -> AsyncGenerator[Scheduled, None]:
        position, limit = reading.positions.offsets[step], reading.limit
        if limit is not None and end - position > limit.records:
            end, limit.is_exceeded = position + limit.records, True
        while position < end:
            try:
                async with aclosing(self._read_from(reading, step, position, end)) as found:
                    async for each in found:
                        yield each
                return
            except OffsetOutOfRangeError as error:  # a forwarder has moved records and deleted them
                if error.log_start_offset <= position:
                    raise
                position = error.log_start_offset

    async def _read_from(
        self, reading: _Reading, step: int, position: int, end: int
    ) -> AsyncGenerator[Scheduled, None]:
        size, limit = 0, reading.limit
        batches = read_range(
            reading.cluster, self._topic, step, position, end - 1, committed=reading.committed
        )
        async with aclosing(batches):
            async for _, batch in batches:
                if limit is not None and size >= limit.bytes:
                    limit.is_exceeded = True
                    return
                size += len(batch)
                for record in read_records(batch):
                    waiting = waiting_of(record.headers)
                    if waiting is None or not position <= record.offset < end:
                        continue
                    if waiting.id in reading.without:
                        continue
                    if limit is not None:
                        limit.ids.add(waiting.id)
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
