"""What a kombu connection asks of brokers: one thread with an event loop, and the clients that run there.

Methods without `async` may be called from any thread, and wait. An error that may pass is raised as
`KombuConnectionError`, so that kombu connects again; any other error of a broker is raised as it is.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from headrace.adapters.kombu_options import KombuOptions
from headrace.adapters.kombu_records import RecordHeader
from headrace.client.admin.aio import AsyncAdmin
from headrace.client.background import BackgroundLoop
from headrace.client.errors import (
    AuthorizationError,
    GroupIdNotFoundError,
    IllegalStateError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
    is_retriable,
)
from headrace.client.producing.aio import AsyncProducer
from headrace.client.settings import ClientSettings, ProducerSettings
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import KafkaError
from headrace.worker.errors import QueueError
from headrace.worker.forwarder import Forwarder
from headrace.worker.group_facts import GroupFacts, prepare_group
from headrace.worker.schedule import Schedule

logger = logging.getLogger("headrace.kombu")

T = TypeVar("T")
CLOSE_S = 5.0
ANSWER_S = 90.0
"""The longest that a call waits. The clients give up before that, by default.api.timeout.ms."""
BROADCAST_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}
"""Who listens to an exchange reads at once. What is older is of no use."""


class KombuConnectionError(ConnectionError):
    """A broker did not answer, or not yet as it should. Trying again may help."""


@contextlib.contextmanager
def as_kombu_errors() -> Iterator[None]:
    try:
        yield
    except KafkaError as error:
        if is_retriable(error.code):
            raise KombuConnectionError(str(error)) from error
        raise
    except QueueError as error:
        cause = error.__cause__
        if isinstance(cause, KafkaError) and is_retriable(cause.code):
            raise KombuConnectionError(str(error)) from error
        raise
    except (IllegalStateError, TimeoutError, concurrent.futures.CancelledError) as error:
        raise KombuConnectionError(str(error) or "no broker responded in time") from error


class Link:
    def __init__(self, options: KombuOptions) -> None:
        self.options = options
        self.facts = GroupFacts()
        self._settings = ClientSettings.parse(options.given)
        self._background = BackgroundLoop("headrace-kombu")
        self._producer: AsyncProducer | None = None
        self._admin: AsyncAdmin | None = None
        self._schedule = Schedule(options.given, options.group_id)
        self._known: set[str] = set()
        """Topics that exist."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._forwarding: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_usable(self) -> bool:
        return not self._is_closed and self._background.is_own_process

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._background.loop

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = ANSWER_S) -> T:
        with as_kombu_errors():
            return self._background.run(coroutine, timeout_s)

    def call_soon(self, function: Any, *arguments: object) -> None:
        """On the loop's thread; nothing happens once the link is closed."""
        if self.is_usable:
            with contextlib.suppress(RuntimeError, IllegalStateError):
                self.loop.call_soon_threadsafe(function, *arguments)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """A task that ends with the link. On the loop's thread."""
        task = self.loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def close(self) -> None:
        if not self.is_usable:
            return
        self._is_closed = True
        with contextlib.suppress(Exception):
            self._background.run(self._close(), 3 * CLOSE_S)
        self._background.close()

    def abandon(self) -> None:
        """Closes without waiting for it: nobody has the connection any more, and this may be a garbage collection."""
        if self.is_usable:
            self._is_closed = True
            with contextlib.suppress(IllegalStateError):
                self._background.submit(self._close()).add_done_callback(lambda _: self._background.stop())

    async def _close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        if self._producer is not None:
            await self._producer.close(CLOSE_S)
        if self._admin is not None:
            await self._admin.close()

    # On the loop's thread

    async def connect(self) -> None:
        """Tries each address once. When to try again, and which URL, is up to kombu."""
        await self._open_admin(timeout_s=0)

    async def _open_admin(self, timeout_s: float | None = None) -> AsyncAdmin:
        if self._admin is None:
            admin = AsyncAdmin(self._settings)
            await admin.start(timeout_s=timeout_s)
            self._admin = admin
        return self._admin

    async def has_topic(self, topic: str) -> bool:
        if topic in self._known:
            return True
        admin = await self._open_admin()
        try:
            await admin.describe_topics([topic])
        except UnknownTopicOrPartitionError:
            return False
        self._known.add(topic)
        return True

    async def create_topic(self, topic: str) -> None:
        """Unless it exists."""
        options = self.options
        await self._create(topic, options.partitions, options.topic_config)

    async def create_broadcast_topic(self, topic: str) -> None:
        await self._create(topic, 1, BROADCAST_CONFIGS)

    async def _create(self, topic: str, partitions: int, configs: Mapping[str, Any]) -> None:
        if await self.has_topic(topic):
            return
        admin = await self._open_admin()
        with contextlib.suppress(TopicExistsError):
            await admin.create_topic(
                topic, partitions, replication_factor=self.options.replication_factor, configs=configs
            )
        self._known.add(topic)

    async def delete_topic(self, topic: str) -> None:
        admin = await self._open_admin()
        self._known.discard(topic)
        with contextlib.suppress(UnknownTopicOrPartitionError):
            await admin.delete_topics([topic])

    async def end_of(self, topic: str) -> int:
        """Where the next record of a broadcast topic will be; 0 if there is no such topic."""
        if not await self.has_topic(topic):
            return 0
        admin = await self._open_admin()
        found = await admin.list_offsets({(topic, 0): OffsetSpec.LATEST})
        return found[topic, 0].offset or 0

    async def size(self, topic: str) -> int:
        """The records that are neither done nor rejected, those that a worker has now included."""
        admin = await self._open_admin()
        try:
            found = await admin.share_group_offsets(self.options.group_id, [topic])
            if all(each.lag is not None for each in found.values()):
                return sum(each.lag or 0 for each in found.values())
        except (GroupIdNotFoundError, AuthorizationError):
            pass  # no worker has ever run, or this program may not know
        except UnknownTopicOrPartitionError:
            return 0
        try:
            topics = await admin.describe_topics([topic], offsets=True)
        except (UnknownTopicOrPartitionError, AuthorizationError):
            return 0
        return sum((each.end_offset or 0) - (each.start_offset or 0) for each in topics[topic].partitions)

    async def purge(self, topic: str) -> int:
        admin = await self._open_admin()
        count = await self.size(topic)
        try:
            found = (await admin.describe_topics([topic]))[topic]
        except UnknownTopicOrPartitionError:
            return 0
        await admin.delete_records({(topic, each.partition): OffsetSpec.LATEST for each in found.partitions})
        return count

    async def is_consumed(self, topic: str) -> bool:
        admin = await self._open_admin()
        try:
            group = await admin.describe_share_group(self.options.group_id)
        except GroupIdNotFoundError:
            return False
        return any(topic in member.subscribed for member in group.members)

    async def send(self, topic: str, value: bytes | None, headers: Sequence[RecordHeader]) -> None:
        """Returns when the brokers have stored the record."""
        try:
            await self._open_producer().send(topic, value, headers=headers)
        except UnknownTopicOrPartitionError:
            self._known.discard(topic)
            raise

    async def send_later(
        self, topic: str, value: bytes | None, headers: Sequence[RecordHeader], at: datetime
    ) -> None:
        """The same for a record that is due at a time: a worker of the group forwards it then."""
        await self._schedule.prepare_async()
        place = self._schedule.place(topic, headers, at=at.astimezone(UTC))
        await self._open_producer().send(place.topic, value, headers=place.headers, partition=place.partition)

    async def broadcast(
        self, topic: str, value: bytes, headers: Sequence[RecordHeader], *, waits: bool = True
    ) -> None:
        """Returns when the brokers have stored the record; or does not wait for that, and logs errors."""
        await self.create_broadcast_topic(topic)
        sent = await self._open_producer().send_soon(topic, value, headers=headers)
        if waits:
            await sent
        else:
            sent.add_done_callback(_log_failure)

    def now_ms(self) -> int:
        return self._schedule.now_ms()

    def is_far(self, moment: datetime) -> bool:
        """Whether a message is due too late to be held by a worker until then."""
        return moment.timestamp() * 1000 > self.now_ms() + self.options.hold_max * 1000

    async def work(self) -> GroupFacts:
        """Prepares the group, and forwards what is due as long as the link is there."""
        if self._forwarding is None:
            self.facts = await prepare_group(self._settings, self.options.group_id, start_from="earliest")
            forwarder = Forwarder(self.options.given, self.options.group_id, (), self._schedule.now_ms)
            self._forwarding = self.spawn(forwarder.run())
        return self.facts

    def _open_producer(self) -> AsyncProducer:
        if self._producer is None:
            self._producer = AsyncProducer.of(ProducerSettings.parse(self.options.given))
        return self._producer


def _log_failure(sent: "asyncio.Future[Any]") -> None:
    error = None if sent.cancelled() else sent.exception()
    if error is not None:
        logger.warning("a broadcast message was not sent: %s", error)
