"""What a kombu connection asks of brokers: one thread with an event loop, and the clients that run there.

Methods without `async` may be called from any thread, and wait. An error that may pass is raised as
`KombuConnectionError`, so that kombu connects again; any other error of a broker is raised as it is.
"""

import asyncio
import concurrent.futures
import contextlib
import logging
from collections.abc import Coroutine, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from headrace.adapters.kombu_options import KombuOptions
from headrace.adapters.kombu_records import RecordHeader
from headrace.adapters.kombu_topics import KombuTopics
from headrace.client.background import BackgroundLoop
from headrace.client.errors import IllegalStateError, UnknownTopicOrPartitionError, is_retriable
from headrace.client.producing.aio import AsyncProducer
from headrace.client.settings import ClientSettings, ProducerSettings
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
        self.topics = KombuTopics(options, self._settings)
        self._schedule = Schedule(options.given, options.group_id)
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
        await self.topics.close()

    # On the loop's thread

    async def send(self, topic: str, value: bytes | None, headers: Sequence[RecordHeader]) -> None:
        """Returns when the brokers have stored the record."""
        try:
            await self._open_producer().send(topic, value, headers=headers)
        except UnknownTopicOrPartitionError:
            self.topics.forget(topic)
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
        await self.topics.create_broadcast(topic)
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
