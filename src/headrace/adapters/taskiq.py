"""Taskiq on a share group: `HeadraceBroker` is a Taskiq broker.

    broker = HeadraceBroker("localhost:9092", group_id="shop")

    @broker.task
    async def send(to: str) -> None: ...

Theory of operation. A queue is a topic; workers consume their queues as members of one share group. The consumer runs
on an event loop of its own, on another thread: a task that blocks Taskiq's loop costs no lock. Taskiq asks for one
message at a time, when it has room for it, so by default one record is fetched at a time, and no record waits in a
worker that cannot start it. The lock of a message is renewed until Taskiq acknowledges it, as long as the process
lives.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

from headrace.adapters.backend import TaskBackend, log_lost, place_of
from headrace.client.aio import AsyncShareConsumer
from headrace.client.background import BackgroundLoop
from headrace.client.delivery import Delivery, TopicPartition
from headrace.client.errors import (
    AuthorizationError,
    BrokerNotAvailableError,
    CorruptRecordError,
    IllegalStateError,
)
from headrace.wire.errors import KafkaError
from headrace.worker.errors import QueueError

logger = logging.getLogger("headrace.adapters")

QUEUE_NAME, DELAY = "queue_name", "delay"
"""Labels that other brokers of Taskiq have, too."""
TASK_ID, TASK_NAME = "taskiq.task_id", "taskiq.task_name"
PREFETCH_MAX = 1_000
HELD_MAX = 100_000
"""A bound beyond all that Taskiq asks for: its own is max_async_tasks + max_prefetch."""
POLL_S = 30.0
ACK_S = 30.0
"""How long an acknowledgement may take until it is taken to be lost with its lock."""
CLOSE_S = 4.0
"""Less than the 5 s that a worker of Taskiq gives its broker by default (--shutdown-timeout)."""
AGAIN_S = 1.0
T = TypeVar("T")


class HeadraceBroker(AsyncBroker):
    """A broker of Taskiq. `group_id` is the share group of the workers.

    `queue_name` is the topic of tasks without a label `queue_name`. A worker consumes that topic and the topics of all
    labels `queue_name` of its tasks, or, if it is given, only `queues`. `prefetch` is how many messages are fetched at
    a time: with more than 1, a worker holds messages that others could start, and fetches less often. `settings` and
    other keyword arguments are client settings by Kafka's names (`security.protocol`, `client_id=`). `partitions` is
    for topics that are created here; without it, the brokers' default.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        group_id: str = "taskiq",
        queue_name: str = "taskiq",
        queues: Sequence[str] | None = None,
        prefetch: int = 1,
        partitions: int | None = None,
        settings: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if queues is not None and (isinstance(queues, str) or not queues):
            raise QueueError(f"queues must be a list with one or more names, or None, got {queues!r}")
        if not 1 <= prefetch <= PREFETCH_MAX:
            raise QueueError(f"prefetch must be from 1 to {PREFETCH_MAX}, got {prefetch}")
        self.prefetch = prefetch
        self.backend = TaskBackend(bootstrap_servers, group_id, {**(settings or {}), **kwargs}, partitions)
        self.queue_name = queue_name
        self.queues = queues
        for name in (queue_name, *(queues or ())):
            self.backend.check_topic(name)
        self._consumer: _LoopConsumer | None = None

    async def kick(self, message: BrokerMessage) -> None:
        """Returns when the message is stored. Its label `delay` is in seconds."""
        topic = str(message.labels.get(QUEUE_NAME) or self.queue_name)
        self.backend.check_topic(topic)
        headers = ((TASK_ID, message.task_id.encode()), (TASK_NAME, message.task_name.encode()))
        await self.backend.send_async(topic, message.message, headers, _delay_of(message))

    async def listen(self) -> AsyncGenerator[bytes | AckableMessage, None]:
        """Messages, one by one. What was yielded and not acknowledged is given back by `shutdown`."""
        if self._consumer is None:
            self._consumer = _LoopConsumer(self.backend, self.topics(), self.prefetch)
        consumer = self._consumer
        await consumer.start()
        try:
            while True:
                delivery = await consumer.next()
                if delivery is not None:
                    yield AckableMessage(data=delivery.value or b"", ack=partial(consumer.accept, delivery))
        finally:
            consumer.give_back()

    def topics(self) -> list[str]:
        """Those that a worker consumes."""
        if self.queues is not None:
            return list(dict.fromkeys(self.queues))
        labels = (task.labels.get(QUEUE_NAME) for task in self.get_all_tasks().values())
        names = list(dict.fromkeys([self.queue_name, *(str(name) for name in labels if name)]))
        for name in names:
            self.backend.check_topic(name)
        return names

    async def shutdown(self) -> None:
        """Sends acknowledgements, gives back all other messages, and leaves the group."""
        try:
            await super().shutdown()
        finally:
            consumer, self._consumer = self._consumer, None
            if consumer is not None:
                await consumer.close()
            await asyncio.to_thread(self.backend.close)


class _LoopConsumer:
    """A share consumer on an event loop of its own, for callers on another loop."""

    def __init__(self, backend: TaskBackend, topics: Sequence[str], prefetch: int) -> None:
        self._backend = backend
        self._topics = topics
        self._prefetch = prefetch
        self._ready: deque[Delivery] = deque()
        """Fetched, and not asked for yet."""
        self._background = BackgroundLoop("headrace-taskiq")
        self._consumer: AsyncShareConsumer | None = None
        self._turn = asyncio.Lock()
        """A poll that is stopped ends before the next begins."""

    async def start(self) -> None:
        """Waits for brokers as long as it takes; raises when they refuse the client."""
        if self._consumer is None:
            await self._run(self._start())
            self._backend.forward()

    async def next(self) -> Delivery | None:
        """None when there was nothing for a while. Canceled, it gives back what has just come."""
        if not self._ready:
            call = _PollCall()
            polling = self._background.submit(self._poll(call))
            polled = asyncio.wrap_future(polling)
            try:
                self._ready.extend(await asyncio.shield(polled))
            except asyncio.CancelledError:
                self._background.loop.call_soon_threadsafe(call.stop)
                polling.add_done_callback(_release_polled)
                raise
        while self._ready:
            delivery = self._ready.popleft()
            if not delivery.is_lost:
                return delivery
        return None

    def give_back(self) -> None:
        """What was not asked for goes to other workers."""
        _release(self._ready)
        self._ready.clear()

    async def accept(self, delivery: Delivery) -> None:
        """Returns when the broker has it. What it does not take is logged: the message is delivered again."""
        error: Exception | None
        try:
            error = await self._run(self._accept(delivery))
        except (IllegalStateError, KafkaError, OSError, TimeoutError) as refused:
            error = refused
        if error is not None or delivery.is_lost:
            logger.warning("%s may be delivered again: %s", place_of(delivery), error or "its lock is lost")

    async def close(self) -> None:
        try:
            if self._consumer is not None:
                await self._run(self._consumer.close(CLOSE_S))
        finally:
            await asyncio.to_thread(self._background.close)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(self._background.submit(work))

    # On the loop of its own

    async def _start(self) -> None:
        while True:
            try:
                await self._backend.prepare(self._topics)
                self._consumer = await self._connect()
                return
            except (BrokerNotAvailableError, OSError, TimeoutError) as error:
                logger.warning("topics %s cannot be consumed yet: %s", ", ".join(self._topics), error)
                await asyncio.sleep(AGAIN_S)

    async def _connect(self) -> AsyncShareConsumer:
        settings = self._backend.consumer_settings("taskiq", HELD_MAX, self._prefetch)
        consumer = AsyncShareConsumer(settings, on_lost=log_lost)
        try:
            await consumer.start()
            consumer.subscribe(self._topics)
        except BaseException:
            await consumer.close(0)
            raise
        return consumer

    async def _poll(self, call: "_PollCall") -> list[Delivery]:
        call.task = asyncio.current_task()
        if call.is_stopped:
            return []
        async with self._turn:
            return await self._poll_in_turn()

    async def _poll_in_turn(self) -> list[Delivery]:
        consumer = self._consumer
        assert consumer is not None
        try:
            return await consumer.poll(POLL_S)
        except CorruptRecordError as error:
            logger.error("%s", error)
        except AuthorizationError as error:
            if consumer.acquisition_lock_timeout_ms() is None:
                raise  # it has never worked: a mistake in the setup
            logger.error("no messages are delivered until access is granted again: %s", error)
            await asyncio.sleep(AGAIN_S)
        return []

    async def _accept(self, delivery: Delivery) -> KafkaError | None:
        assert self._consumer is not None
        delivery.accept()
        results = await self._consumer.commit_sync(ACK_S)
        return results.get(TopicPartition(delivery.topic, delivery.partition))


class _PollCall:
    """A poll, on the consumer's loop. It may be stopped before it has begun."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None
        self.is_stopped = False

    def stop(self) -> None:
        self.is_stopped = True
        if self.task is not None:
            self.task.cancel()


def _release_polled(polling: "Future[list[Delivery]]") -> None:
    """Nobody waits for these any more."""
    if not polling.cancelled() and polling.exception() is None:
        _release(polling.result())


def _release(deliveries: Iterable[Delivery]) -> None:
    for delivery in deliveries:
        with contextlib.suppress(IllegalStateError):  # the consumer is closed, which gives them back
            delivery.release()


def _delay_of(message: BrokerMessage) -> float | None:
    given = message.labels.get(DELAY)
    try:
        return None if given is None else max(0.0, float(given))
    except ValueError:
        raise QueueError(f"label {DELAY} must be a number of seconds, got {given!r}") from None
