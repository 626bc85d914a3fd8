"""Dramatiq on a share group: `HeadraceBroker` in the place of `RabbitmqBroker` or `RedisBroker`.

    broker = HeadraceBroker("localhost:9092", group_id="shop")
    dramatiq.set_broker(broker)

Theory of operation. A queue is a topic, and all queues of an application are consumed by one share group. Dramatiq has
a consumer thread for each queue: it alone polls its `ShareConsumer`. Worker threads acknowledge through the delivery of
their message, which is safe from any thread. Locks are renewed in the background as long as the process lives, so a
message comes again only when its worker has died.

Dramatiq's own brokers keep delayed messages in a second queue whose consumers hold them in memory until they are due.
Here that would keep records locked for days, and a share-partition locks a limited number of records: those that are
due later would hold up the others. So delayed messages are scheduled records (`worker/later.py`), there are no delay
queues, and no worker holds a message that is not due.
"""

import contextlib
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import dramatiq
from dramatiq.broker import Broker, Consumer, MessageProxy
from dramatiq.common import current_millis, q_name
from dramatiq.errors import ConnectionClosed, ConnectionFailed, DecodeError, QueueJoinTimeout, QueueNotFound

from headrace.adapters.backend import TaskBackend, log_lost, place_of, run_here
from headrace.adapters.backlog import Backlog
from headrace.client.delivery import Delivery
from headrace.client.errors import CorruptRecordError, IllegalStateError, WakeupError
from headrace.client.sync import ShareConsumer
from headrace.wire.errors import KafkaError
from headrace.worker.errors import QueueError

logger = logging.getLogger("headrace.adapters")

CLOSE_S = 10.0
AGAIN_S = 5.0
"""When a message comes again whose retry could not be enqueued."""
TROUBLE = (KafkaError, OSError, TimeoutError, QueueError)
ACTOR, MESSAGE_ID = "dramatiq.actor", "dramatiq.message_id"


class HeadraceBroker(Broker):
    """A Dramatiq broker. `group_id` is the share group of the workers, and the beginning of the names of its topics.

    `settings` and other keyword arguments are client settings by Kafka's names (`security.protocol`, `client_id=`).
    `topic_prefix` stands before the names of queues, `GROUP_ID.` unless it is given. `partitions` is for topics that
    are created here; without it, the brokers' default. `middleware` as in every broker of Dramatiq.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "localhost:9092",
        *,
        group_id: str = "dramatiq",
        topic_prefix: str | None = None,
        partitions: int | None = None,
        settings: Mapping[str, Any] | None = None,
        middleware: "list[dramatiq.Middleware] | None" = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(middleware=middleware)
        self.queues: set[str] = set()
        self.backend = TaskBackend(bootstrap_servers, group_id, {**(settings or {}), **kwargs}, partitions)
        self.topic_prefix = f"{group_id}." if topic_prefix is None else topic_prefix
        self._consumers: set[_ShareGroupConsumer] = set()

    def topic_of(self, queue_name: str) -> str:
        """The topic that a queue is. A queue and its delay queue are the same."""
        topic = self.topic_prefix + q_name(queue_name)
        self.backend.check_topic(topic)
        return topic

    def declare_queue(self, queue_name: str) -> None:
        if queue_name not in self.queues:
            self.topic_of(queue_name)
            self.emit_before("declare_queue", queue_name)
            self.queues.add(queue_name)
            self.emit_after("declare_queue", queue_name)

    def get_declared_queues(self) -> set[str]:
        return self.queues.copy()

    def enqueue(
        self, message: "dramatiq.Message[Any]", *, delay: int | None = None
    ) -> "dramatiq.Message[Any]":
        """Returns when the message is stored. `delay` is in milliseconds, up to ten years.

        Raises ConnectionClosed when it was not stored. A message that a worker is about to retry then stays in its
        queue, although Dramatiq acknowledges it.
        """
        held = message if isinstance(message, _HeldMessage) else None
        options = {} if delay is None else {"eta": current_millis() + delay}
        message = message.copy(queue_name=q_name(message.queue_name), options=options)
        try:
            self.emit_before("enqueue", message, delay)
            self._send(message, delay)
        except BaseException:
            if held is not None:
                held.is_unsent = True
            raise
        self.emit_after("enqueue", message, delay)
        return message

    def _send(self, message: "dramatiq.Message[Any]", delay: int | None) -> None:
        """Whoever consumes a message gets it when it is due: with an `eta`, Dramatiq would wait again."""
        sent = message.copy()
        sent.options.pop("eta", None)
        headers = ((ACTOR, sent.actor_name.encode()), (MESSAGE_ID, sent.message_id.encode()))
        delay_s = None if delay is None else max(0, delay) / 1000
        try:
            self.backend.send(self.topic_of(sent.queue_name), sent.encode(), headers, delay_s)
        except TROUBLE as error:
            raise ConnectionClosed(f"message {sent.message_id} was not enqueued: {error}") from error

    def consume(self, queue_name: str, prefetch: int = 1, timeout: int = 30_000) -> Consumer:
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        topic = self.topic_of(queue_name)
        try:
            facts = run_here(self.backend.prepare([topic]))
        except TROUBLE as error:
            raise ConnectionFailed(f"queue {queue_name} cannot be consumed: {error}") from error
        self.backend.forward()
        consumer = _ShareGroupConsumer(self, topic, prefetch, timeout, facts.delivery_limit)
        self._consumers.add(consumer)
        return consumer

    def flush(self, queue_name: str) -> None:
        """Deletes all messages of a queue from its topic, and those that are delayed."""
        with Backlog(self.backend, self.topic_of(queue_name)) as backlog:
            backlog.drop()

    def flush_all(self) -> None:
        for queue_name in self.queues:
            self.flush(queue_name)

    def join(self, queue_name: str, *, interval: int = 100, timeout: int | None = None) -> None:
        """Waits until the group has settled all messages of a queue, the delayed ones too. For tests.

        `interval` and `timeout` are in milliseconds; QueueJoinTimeout when the time is over.
        """
        if queue_name not in self.queues:
            raise QueueNotFound(queue_name)
        deadline = math.inf if timeout is None else time.monotonic() + timeout / 1000
        with Backlog(self.backend, self.topic_of(queue_name)) as backlog:
            while (left_s := deadline - time.monotonic()) > 0:
                with contextlib.suppress(TimeoutError):
                    if backlog.is_empty(None if timeout is None else left_s):
                        return
                time.sleep(min(interval / 1000, left_s))
        raise QueueJoinTimeout(queue_name)

    def close(self) -> None:
        """Gives back what its consumers hold, and sends what is on its way."""
        for consumer in list(self._consumers):
            consumer.close(at_once=True)
        self.backend.close()

    def forget(self, consumer: "_ShareGroupConsumer") -> None:
        self._consumers.discard(consumer)


class _HeldMessage(MessageProxy):
    """A message that this process has the lock of."""

    def __init__(
        self, message: "dramatiq.Message[Any]", delivery: Delivery, consumer: "_ShareGroupConsumer"
    ) -> None:
        super().__init__(message)
        self.delivery = delivery
        self.holder = consumer
        """Dramatiq may have made another consumer for the queue since."""
        self.is_unsent = False
        """It was to be enqueued again, and that has failed."""
        self.is_answered = False


class _ShareGroupConsumer(Consumer):
    """Messages of one queue. `__next__` is for one thread; answers may come from others."""

    def __init__(
        self, broker: HeadraceBroker, topic: str, prefetch: int, timeout: int, delivery_limit: int
    ) -> None:
        self._broker = broker
        self._topic = topic
        self._prefetch = max(1, prefetch)
        self._timeout_s = timeout / 1000
        self._delivery_limit = delivery_limit
        self._ready: deque[Delivery] = deque()
        self._held = 0
        """Messages in Dramatiq's hands."""
        self._is_closed = self._is_finished = False
        self._changed = threading.Condition()
        self._polling = threading.RLock()
        settings = broker.backend.consumer_settings(topic, self._prefetch, self._prefetch)
        self._consumer = ShareConsumer(settings, on_lost=log_lost)
        self._consumer.subscribe([topic])

    def __next__(self) -> MessageProxy | None:
        try:
            delivery = self._take()
        except CorruptRecordError as error:
            logger.error("queue topic %s: %s", self._topic, error)
            return None
        except (*TROUBLE, IllegalStateError) as error:
            raise ConnectionClosed(f"queue topic {self._topic}: {error}") from error
        if delivery is None:
            return None
        try:
            message: dramatiq.Message[Any] = dramatiq.Message.decode(delivery.value or b"")
        except DecodeError as error:
            logger.error("%s is rejected: it is not a Dramatiq message: %s", place_of(delivery), error.error)
            self._answer(delivery, delivery.reject)
            return None
        return _HeldMessage(message, delivery, self)

    def _take(self) -> Delivery | None:
        """The next record, which counts as held from now on."""
        with self._polling:
            if not self._ready and not self._is_closed:
                room = self._wait_for_room()
                if room > 0:
                    self._ready.extend(self._poll(room))
            with self._changed:
                while self._ready:
                    delivery = self._ready.popleft()
                    if not delivery.is_lost:
                        self._held += 1
                        return delivery
        return None

    def _wait_for_room(self) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._held < self._prefetch or self._is_closed, self._timeout_s)
            return 0 if self._is_closed else self._prefetch - self._held

    def _poll(self, room: int) -> list[Delivery]:
        try:
            return self._consumer.poll(self._timeout_s, max_records=room)
        except WakeupError:  # it is to be closed
            return []

    def ack(self, message: MessageProxy) -> None:
        held = _unanswered(message)
        if held is None:
            return
        delivery = held.delivery
        if held.is_unsent:
            logger.error(
                "message %s could not be enqueued again; it will be delivered again in %.0f s",
                held.message_id,
                AGAIN_S,
            )
            held.holder._answer(delivery, lambda: delivery.release(after=AGAIN_S))
        else:
            held.holder._answer(delivery, delivery.accept)

    def nack(self, message: MessageProxy) -> None:
        held = _unanswered(message)
        if held is not None:
            held.holder._answer(held.delivery, held.delivery.reject)

    def requeue(self, messages: Iterable[MessageProxy]) -> None:
        for message in messages:
            held = _unanswered(message)
            if held is not None:
                held.holder._give_back(held.delivery)

    def _give_back(self, delivery: Delivery) -> None:
        """Kafka counts deliveries, not runs, and gives up a record that is released for the last time: then a copy
        takes its place."""
        if delivery.delivery_count >= self._delivery_limit and not delivery.is_lost:
            try:
                self._broker.backend.send(self._topic, delivery.value, tuple(delivery.headers))
            except TROUBLE as error:
                logger.error(
                    "%s is lost: this was its last delivery, and its copy was not sent: %s",
                    place_of(delivery),
                    error,
                )
            else:
                self._answer(delivery, delivery.accept)
                return
        self._answer(delivery, delivery.release)

    def _answer(self, delivery: Delivery, answer: Any) -> None:
        try:
            answer()
        except IllegalStateError as error:
            logger.warning("%s will be delivered again: %s", place_of(delivery), error)
        with self._changed:
            self._held -= 1
            self._changed.notify_all()
            is_last = self._is_closed and self._held <= 0
        if is_last:
            self._finish()

    def close(self, *, at_once: bool = False) -> None:
        """Gives back what Dramatiq has not got yet. What it is working on keeps its locks until it is answered.

        Dramatiq closes a consumer when it pauses a worker, too, and its messages are acknowledged after that.
        """
        self._is_closed = True
        self._consumer.wakeup()
        with self._polling:
            with self._changed:
                waiting = list(self._ready)
                self._ready.clear()
                self._held += len(waiting)
                self._changed.notify_all()
            for delivery in waiting:
                self._give_back(delivery)
            if at_once or self._held <= 0:
                self._finish()

    def _finish(self) -> None:
        with self._changed:
            if self._is_finished:
                return
            self._is_finished = True
        self._broker.forget(self)
        with self._polling:
            self._consumer.close(CLOSE_S)


def _unanswered(message: MessageProxy) -> _HeldMessage | None:
    """The message, for the first answer to it."""
    if not isinstance(message, _HeldMessage) or message.is_answered:
        return None
    message.is_answered = True
    return message
