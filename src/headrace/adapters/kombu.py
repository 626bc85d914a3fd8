"""A transport for kombu, and so for Celery: queues are topics that are read by a share group.

    import headrace.adapters.kombu                      # registers headrace://

    app = Celery("shop", broker="headrace://localhost:9092")

Theory of operation. A queue is a topic. Each channel that consumes has a share consumer, so there may be any number of
workers. An acknowledgement accepts the record, a rejection rejects it, and a message that is requeued is released.
Locks are renewed until then. A message with an `eta` that is far ahead goes to the group's delay topic
(`headrace.worker.later`), and every connection that consumes also forwards what is due.

Kafka has no exchanges, so routing happens where a message is published, with the bindings that this process has
declared. Two kinds of queues have no topic of their own: temporary ones (auto-deleted, and not durable or with an
expiry: those for remote control, events and results by RPC) and those of a fanout exchange. Instead the exchange has a
topic, and each such queue reads it without a group, from where it was bound. Messages go there if the exchange is a
fanout exchange, or if this process knows no other queue for them.
"""

import contextlib
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Iterable
from queue import Empty
from typing import Any

from amqp.protocol import queue_declare_ok_t
from kombu.exceptions import ChannelError
from kombu.transport import TRANSPORT_ALIASES, virtual
from kombu.transport.base import Transport as KombuTransport
from kombu.transport.base import to_rabbitmq_queue_arguments
from kombu.utils.compat import detect_environment
from kombu.utils.uuid import uuid

from headrace.adapters.kombu_link import KombuConnectionError, Link
from headrace.adapters.kombu_options import DEFAULT_PORT, read_options
from headrace.adapters.kombu_readers import (
    BroadcastListener,
    Inbox,
    KombuArrival,
    ShareReader,
    accept,
    reject,
    release,
)
from headrace.adapters.kombu_records import broadcast_topic, eta_of, expires_at_ms, to_message, to_record
from headrace.client.delivery import Delivery
from headrace.version import __version__
from headrace.wire.errors import KafkaError

__all__ = ["Channel", "Transport"]

logger = logging.getLogger("headrace.kombu")

PERSISTENT = 2
DRAINED_MAX = 50
CONNECT_S = 5
CONNECT_S_MIN = 1
"""TLS and a login to a broker that is far away fit into it."""
_tags = itertools.count(1)


class _Declared:
    """What this process has declared on a cluster: kombu's connections share it, as they would share a broker."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.state = virtual.BrokerState()
        self.temporary: set[str] = set()
        """Queues without a topic of their own."""
        self.positions: dict[str, dict[str, int]] = {}
        """Of each queue that listens: the next offset in each broadcast topic."""

    def forget(self, queue: str) -> None:
        with self.lock:
            for exchange in self.state.exchanges.values():
                exchange["table"] = [meta for meta in exchange["table"] if meta[2] != queue]
            self.state.queue_bindings_delete(queue)
            self.temporary.discard(queue)
            self.positions.pop(queue, None)


_declared: dict[tuple[str, str, str], _Declared] = {}


def _is_temporary(durable: bool = False, auto_delete: bool = False, arguments: Any = None, **_: Any) -> bool:
    """A queue that ends with its consumer: remote control, events and results by RPC have such queues."""
    return auto_delete and (not durable or "x-expires" in (arguments or {}))


class ShareMessage(virtual.Message):  # type: ignore[misc]
    """A message with the delivery that it came by."""

    def __init__(self, payload: dict[str, Any], channel: Any = None, **keywords: Any) -> None:
        self.delivery: Delivery | None = payload.pop("delivery", None)
        self.reader: ShareReader | None = payload.pop("reader", None)
        self.sent_ms: int = payload.pop("sent_ms", -1)
        super().__init__(payload, channel=channel, **keywords)


class ShareQoS(virtual.QoS):  # type: ignore[misc]
    """The messages that the application has and has not settled. Any thread may settle them."""

    def __init__(self, channel: "Channel", prefetch_count: int = 0) -> None:
        self.channel = channel
        self.prefetch_count = prefetch_count or 0
        self._messages: dict[Any, ShareMessage] = {}

    def room(self, held: int) -> int:
        """How many more records the channel may hold."""
        most = self.channel.link.options.max_held
        return max(0, min(self.prefetch_count or most, most) - held)

    def can_consume(self) -> bool:
        return self.room(self.channel.held) > 0

    def can_consume_max_estimate(self) -> int:
        return self.room(self.channel.held)

    def append(self, message: ShareMessage, delivery_tag: Any) -> None:
        self._messages[delivery_tag] = message

    def get(self, delivery_tag: Any) -> ShareMessage:
        return self._messages[delivery_tag]

    def ack(self, delivery_tag: Any) -> None:
        message = self._messages.pop(delivery_tag, None)
        if message is not None and message.delivery is not None:
            accept(message.delivery)
            self._settled(message)

    def reject(self, delivery_tag: Any, requeue: bool = False) -> None:
        message = self._messages.get(delivery_tag)
        if message is None:
            return
        if message.delivery is not None:
            if requeue:
                release(self.channel.link, message.delivery)
            else:
                reject(message.delivery)
            self._settled(message)
        elif requeue:
            self.channel.deliver_again(message)
        self._messages.pop(delivery_tag, None)

    def restore_unacked(self) -> None:
        for tag in list(self._messages):
            self.reject(tag, requeue=True)

    def restore_unacked_once(self, stderr: Any = None) -> None:
        """When the channel closes. What cannot be given back now comes back when its lock ends."""
        with contextlib.suppress(KombuConnectionError, KafkaError):  # the first one says it for all
            for tag, message in list(self._messages.items()):
                if message.delivery is not None:
                    self.reject(tag, requeue=True)
        self._messages.clear()

    def _settled(self, message: ShareMessage) -> None:
        if message.reader is not None:
            message.reader.settled()


class Channel(virtual.Channel):  # type: ignore[misc]
    """A channel, which one thread uses at a time; only messages may be settled by others."""

    Message = ShareMessage
    QoS = ShareQoS
    supports_fanout = True
    body_encoding = None
    from_transport_options = ("body_encoding",)

    def __init__(self, connection: "Transport", **keywords: Any) -> None:
        super().__init__(connection, **keywords)
        self.closed: bool = False
        self._callbacks: dict[str, Callable[[dict[str, Any]], Any]] = {}
        self._no_ack: set[str] = set()
        self._reader: ShareReader | None = None
        self._getters: dict[str, ShareReader] = {}
        self._listeners: dict[str, list[BroadcastListener]] = {}

    @property
    def link(self) -> Link:
        if self.connection is None:
            raise KombuConnectionError("this channel is closed; make a new one")
        return self.connection.link  # type: ignore[no-any-return]

    @property
    def held(self) -> int:
        return self._reader.held if self._reader is not None else 0

    @property
    def _declared(self) -> _Declared:
        return self.connection.declared  # type: ignore[no-any-return]

    # Queues

    def queue_declare(self, queue: str | None = None, passive: bool = False, **options: Any) -> Any:
        name = queue or f"amq.gen-{uuid()}"
        if passive:
            if not self._has_queue(name):
                raise ChannelError(
                    f"NOT_FOUND - no queue {name!r}: there is no topic {self._topic(name)}",
                    (50, 10), "Channel.queue_declare", "404",
                )  # fmt: skip
        elif _is_temporary(**options):
            self._declare_temporary(name)
            return queue_declare_ok_t(name, 0, 0)
        elif not options.get("auto_delete"):  # else there is a topic once it is bound, or a message is sent
            self._new_queue(name)
        return queue_declare_ok_t(name, self._size(name), 0)

    def prepare_queue_arguments(self, arguments: dict[str, Any], **options: Any) -> Any:
        return to_rabbitmq_queue_arguments(arguments, **options)

    def _declare_temporary(self, queue: str) -> None:
        with self._declared.lock:
            is_new = queue not in self._declared.temporary
            self._declared.temporary.add(queue)
        if is_new:
            self._listen_from_now(queue, "")

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: Any = None,
        **options: Any,
    ) -> None:
        name = exchange or "amq.direct"
        with self._declared.lock:
            is_bound = self.state.has_binding(queue, name, routing_key)
        if is_bound:
            return
        if self._is_listening(queue, name):
            self.link.run(self.link.topics.create_broadcast(self._broadcast_topic(name)))
            self._listen_from_now(queue, name)
        else:
            self._new_queue(queue)
        with self._declared.lock:
            super().queue_bind(queue, name, routing_key, arguments, **options)

    def _queue_bind(self, *_: Any) -> None:
        """The table of this process is all that there is."""

    def queue_unbind(self, *arguments: Any, **keywords: Any) -> None:
        with self._declared.lock:
            super().queue_unbind(*arguments, **keywords)

    def exchange_declare(self, *arguments: Any, **keywords: Any) -> None:
        with self._declared.lock:
            super().exchange_declare(*arguments, **keywords)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        with self._declared.lock:
            self.state.exchanges.pop(exchange, None)

    def queue_delete(
        self, queue: str, if_unused: bool = False, if_empty: bool = False, **options: Any
    ) -> None:
        if self._has_topic_of_its_own(queue) and self._has_queue(queue):
            link, topic = self.link, self._topic(queue)
            if (if_empty and self._size(queue)) or (if_unused and link.run(link.topics.is_consumed(topic))):
                return
            link.run(link.topics.delete(topic))
        self._declared.forget(queue)

    def _new_queue(self, queue: str, **options: Any) -> None:
        self.link.run(self.link.topics.create(self._topic(queue)))

    def _has_queue(self, queue: str, **options: Any) -> bool:
        is_there = self.link.run(self.link.topics.has(self._topic(queue)))
        return is_there or not self._has_topic_of_its_own(queue)

    def _size(self, queue: str) -> int:
        link = self.link
        return link.run(link.topics.size(self._topic(queue))) if self._has_topic_of_its_own(queue) else 0

    def _purge(self, queue: str) -> int:
        link = self.link
        return link.run(link.topics.purge(self._topic(queue))) if self._has_topic_of_its_own(queue) else 0

    def _topic(self, queue: str) -> str:
        return self.link.options.topic(queue)

    def _broadcast_topic(self, exchange: str) -> str:
        return broadcast_topic(self.link.options.group_id, exchange)

    def _has_topic_of_its_own(self, queue: str) -> bool:
        return queue not in self._declared.temporary

    def _is_listening(self, queue: str, exchange: str) -> bool:
        """Whether what the exchange has for the queue goes through the exchange's topic."""
        return not self._has_topic_of_its_own(queue) or self.typeof(exchange).type == "fanout"

    def _listen_from_now(self, queue: str, exchange: str) -> None:
        topic = self._broadcast_topic(exchange)
        end = self.link.run(self.link.topics.end_of(topic))
        with self._declared.lock:
            self._declared.positions.setdefault(queue, {}).setdefault(topic, end)

    # Publishing

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **options: Any) -> None:
        self._inplace_augment_message(message, exchange, routing_key)
        queues = self._routes(exchange, routing_key)
        for queue in queues:
            self._put(queue, message)
        if not queues or (exchange and self.typeof(exchange).type == "fanout"):
            self._put_fanout(exchange, message, routing_key)

    def _routes(self, exchange: str, routing_key: str) -> list[str]:
        """The queues with a topic of their own that take the message."""
        if not exchange:
            is_there = self._has_topic_of_its_own(routing_key) and self._has_queue(routing_key)
            return [routing_key] if is_there else []
        with self._declared.lock:
            kind = self.typeof(exchange)
            if kind.type == "fanout" or exchange not in self.state.exchanges:
                return []
            found: Iterable[str] = kind.lookup(self.get_table(exchange), exchange, routing_key, None)
            return sorted(queue for queue in found if self._has_topic_of_its_own(queue))

    def _put(self, queue: str, message: dict[str, Any], **options: Any) -> None:
        link, topic = self.link, self._topic(queue)
        value, headers = to_record(message)
        eta = eta_of(message)
        if eta is not None and link.is_far(eta):
            link.run(link.send_later(topic, value, headers, eta))
        else:
            link.run(link.send(topic, value, headers))

    def _put_fanout(self, exchange: str, message: dict[str, Any], routing_key: str, **options: Any) -> None:
        is_persistent = message["properties"].get("delivery_mode") == PERSISTENT
        kind = self.typeof(exchange).type
        if is_persistent and kind != "fanout":
            logger.warning(
                "a message for exchange %r with routing key %r was not routed: this process has bound "
                "no queue to the exchange",
                exchange, routing_key,
            )  # fmt: skip
        value, headers = to_record(message)
        waits = (
            is_persistent or kind != "topic"
        )  # Celery's events, several for each task, need not be waited for
        self.link.run(self.link.broadcast(self._broadcast_topic(exchange), value, headers, waits=waits))

    # Consuming

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **options: Any
    ) -> None:
        def receive(payload: dict[str, Any]) -> Any:
            message = self.Message(payload, channel=self)
            if not no_ack:
                self.qos.append(message, message.delivery_tag)
            return callback(message)

        self._tag_to_queue[consumer_tag] = queue
        self._consumers.add(consumer_tag)
        self._active_queues.append(queue)
        self._callbacks[queue] = receive
        (self._no_ack.add if no_ack else self._no_ack.discard)(queue)
        if queue not in self._listeners:
            self._listen(queue)
        self._read()

    def basic_cancel(self, consumer_tag: str) -> None:
        if consumer_tag not in self._consumers:
            return
        self._consumers.remove(consumer_tag)
        queue = self._tag_to_queue.pop(consumer_tag)
        self._active_queues.remove(queue)
        if queue in self._active_queues:
            return
        self._callbacks.pop(queue, None)
        with contextlib.suppress(
            KombuConnectionError
        ):  # then everything is back, or comes back when its lock ends
            for listener in self._listeners.pop(queue, ()):
                self.link.run(listener.stop())
            self._read()
        self._give_back(lambda arrival: arrival.queue == queue)
        if not self._has_topic_of_its_own(queue):
            self._declared.forget(queue)

    def _read(self) -> None:
        queues = {self._topic(queue): queue for queue in self._active_queues if self._is_read(queue)}
        if self._reader is None and queues:
            self._reader = ShareReader(
                self.link, self.connection.inbox, self, lambda held: self.qos.room(held)
            )
        if self._reader is not None:
            self._reader.read(queues)

    def _is_read(self, queue: str) -> bool:
        """Whether its own topic is to be read. One that only listens to fanout exchanges may have none."""
        if not self._has_topic_of_its_own(queue):
            return False
        return queue not in self._declared.positions or self._has_queue(queue)

    def _listen(self, queue: str) -> None:
        """Starts to read the broadcast topics of a queue."""
        with self._declared.lock:
            bindings = list(self.state.queue_bindings(queue))
            positions = self._declared.positions.get(queue)
        if positions is None and self._has_topic_of_its_own(queue):
            return
        if positions is None:
            positions = self._declared.positions.setdefault(queue, {})
        keys: dict[str, list[str]] = {}
        for exchange, routing_key, _ in bindings:
            keys.setdefault(exchange, []).append(routing_key)
        if not bindings:
            keys[""] = [queue]
        self._listeners[queue] = []
        for exchange, wanted in keys.items():
            if not exchange or self._is_listening(queue, exchange):
                topic = self._broadcast_topic(exchange)
                listener = BroadcastListener(
                    self.link,
                    self.connection.inbox,
                    self,
                    queue,
                    topic,
                    positions,
                    self._matcher(exchange, wanted),
                )
                self.link.run(listener.start())
                self._listeners[queue].append(listener)

    def _matcher(self, exchange: str, routing_keys: list[str]) -> Callable[[str], bool]:
        kind = self.typeof(exchange)
        if kind.type == "fanout":
            return lambda _: True
        table = [kind.prepare_bind("", exchange, key, None) for key in routing_keys]
        return lambda key: bool(kind.lookup(table, exchange, key, None))

    def receive(self, arrival: KombuArrival) -> bool:
        """Hands a message to its consumer. False if there is none any more."""
        callback = self._callbacks.get(arrival.queue)
        delivery = arrival.delivery
        if callback is None or (delivery is not None and delivery.is_lost):
            self._give_one_back(arrival)
            return False
        payload = self._payload(arrival)
        is_late = self._is_expired(payload, arrival)
        if delivery is not None:
            if is_late or arrival.queue in self._no_ack:
                accept(delivery)
                self._settle(self._reader)
            if arrival.queue not in self._no_ack:
                payload |= {"delivery": delivery, "reader": self._reader}
        if is_late:
            return False
        callback(payload)
        return True

    def _is_expired(self, payload: dict[str, Any], arrival: KombuArrival) -> bool:
        until_ms = expires_at_ms(payload, arrival.sent_ms)
        return until_ms is not None and until_ms < self.link.now_ms()

    def _payload(self, arrival: KombuArrival) -> dict[str, Any]:
        payload = to_message(arrival.value, arrival.headers) | {"sent_ms": arrival.sent_ms}
        properties = payload["properties"]
        properties["delivery_tag"] = next(_tags)
        if arrival.delivery is not None:
            is_again = arrival.delivery.delivery_count > 1 or payload.get("redelivered") is True
            properties["delivery_info"]["redelivered"] = payload["redelivered"] = is_again
        return payload

    def deliver_again(self, message: ShareMessage) -> None:
        """Requeues a message that came by broadcast, for this process alone."""
        queue = next((each for each in self._active_queues if not self._has_topic_of_its_own(each)), None)
        if queue is not None:
            value, headers = to_record(message.serializable())
            self.connection.inbox.put(KombuArrival(self, queue, value, headers, message.sent_ms))

    def basic_get(self, queue: str, no_ack: bool = False, **options: Any) -> ShareMessage | None:
        while (arrival := self._get_one(queue)) is not None:
            payload = self._payload(arrival)
            delivery, reader = arrival.delivery, self._getters[queue]
            assert delivery is not None
            if not self._is_expired(payload, arrival):
                break
            accept(delivery)
            reader.settled()
        else:
            return None
        if no_ack:
            accept(delivery)
            reader.settled()
        else:
            payload |= {"delivery": delivery, "reader": reader}
        message = self.Message(payload, channel=self)
        if not no_ack:
            self.qos.append(message, message.delivery_tag)
        return message

    def _get_one(self, queue: str) -> KombuArrival | None:
        """A message of a queue, if it has any."""
        if not self._has_topic_of_its_own(queue):
            return None
        link, topic = self.link, self._topic(queue)
        if not link.run(link.topics.size(topic)):
            return None
        if queue not in self._getters:
            self._getters[queue] = ShareReader(link, self.connection.inbox, self, lambda _: 0)
        delivery = link.run(
            self._getters[queue].get(topic, link.options.get_timeout), link.options.get_timeout + 60
        )
        if delivery is None:
            return None
        return KombuArrival(
            self, queue, delivery.value, delivery.headers, delivery.timestamp, delivery, delivery.offset
        )

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        self.qos.prefetch_count = prefetch_count
        if self._reader is not None:
            self._reader.look()

    def drain_events(self, timeout: float | None = None, callback: Any = None) -> None:
        try:
            self.connection.drain_events(self.connection, timeout=timeout)
        except TimeoutError:
            raise Empty() from None

    def close(self) -> None:
        """Gives back all messages that are not settled."""
        if self.closed:
            return
        self.closed = True
        connection = self.connection
        try:
            if connection is not None and connection.is_usable:
                self._end()
        finally:
            self._consumers.clear()
            self._active_queues.clear()
            self._callbacks.clear()
            if connection is not None:
                connection.close_channel(self)
            self.exchange_types = None

    def _end(self) -> None:
        for tag in list(self._consumers):
            self.basic_cancel(tag)
        self._give_back(lambda arrival: arrival.channel is self)
        if self._qos is not None:
            self._qos.restore_unacked_once()
        for reader in (self._reader, *self._getters.values()):
            if reader is not None:
                with contextlib.suppress(KombuConnectionError, KafkaError):
                    reader.close()

    def _give_back(self, is_meant: Callable[[KombuArrival], bool]) -> None:
        found = self.connection.inbox.take_back(lambda arrival: arrival.channel is self and is_meant(arrival))
        with contextlib.suppress(
            KombuConnectionError, KafkaError
        ):  # then they come back when their locks end
            for arrival in found:
                self._give_one_back(arrival)

    def _give_one_back(self, arrival: KombuArrival) -> None:
        if arrival.delivery is not None:
            release(self.link, arrival.delivery)
            self._settle(self._reader)
        elif arrival.topic:
            with self._declared.lock:
                positions = self._declared.positions.get(arrival.queue, {})
                positions[arrival.topic] = min(arrival.offset, positions.get(arrival.topic, arrival.offset))

    def _settle(self, reader: ShareReader | None) -> None:
        if reader is not None:
            reader.settled()


class Transport(virtual.Transport):  # type: ignore[misc]
    """`headrace://host:9092`, or `headrace://host:9092/name` with topics and a group of that name."""

    Channel = Channel
    default_port = DEFAULT_PORT
    driver_type = "kafka"
    driver_name = "headrace"
    can_parse_url = False
    connection_errors = (*KombuTransport.connection_errors, KombuConnectionError)
    channel_errors = (*KombuTransport.channel_errors, KafkaError)
    recoverable_connection_errors = connection_errors
    recoverable_channel_errors = ()
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **keywords: Any) -> None:
        super().__init__(client, **keywords)
        self.options = read_options(client)
        self.inbox = Inbox()
        self._link: Link | None = None
        self._hub: Any = None
        place = self.options.servers, self.options.group_id, self.options.topic_prefix
        self.declared = _declared.setdefault(place, _Declared())
        self.state = self.declared.state

    @property
    def link(self) -> Link:
        if self._link is None or not self._link.is_usable:
            raise KombuConnectionError("the connection is closed, or was made before a fork")
        return self._link

    @property
    def is_usable(self) -> bool:
        return self._link is not None and self._link.is_usable

    def driver_version(self) -> str:
        return __version__

    def establish_connection(self) -> "Transport":
        environment = detect_environment()
        if environment != "default":
            raise RuntimeError(
                f"{environment} has replaced Python's threads, which this transport needs; "
                "start the worker with --pool=prefork, threads or solo"
            )
        if not self.is_usable:
            self._link = self._connect(self._connect_s())
            weakref.finalize(self, self._link.abandon).atexit = False
        return super().establish_connection()  # type: ignore[no-any-return]

    def _connect_s(self) -> float:
        """How long a host may stay silent. Kombu gives up after one connect_timeout for all URLs together, so one URL
        must leave time for the others."""
        together: float = self.client.connect_timeout or CONNECT_S
        return max(together / max(1, len(self.client.alt)), min(together, CONNECT_S_MIN))

    def _connect(self, timeout_s: float) -> Link:
        link = Link(self.options)
        try:
            link.run(link.topics.connect(), timeout_s)
        except BaseException as error:
            link.close()
            if isinstance(error, KombuConnectionError):
                raise KombuConnectionError(f"{self.options.servers}: {error}") from error
            raise
        return link

    def verify_connection(self, connection: Any) -> bool:
        return self.is_usable

    def close_connection(self, connection: Any) -> None:
        self.unregister_from_event_loop(connection, self._hub)
        super().close_connection(connection)
        if self._link is not None:
            self._link.close()
            self._link = None

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        self._hub = loop
        loop.add_reader(self.inbox.open_bell(), self._drain_some, connection)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        if self._hub is not None:
            with contextlib.suppress(Exception):  # whatever it is, such as a loop that is closed
                self._hub.remove_reader(self.inbox.open_bell())
            self._hub = None
        self.inbox.close_bell()

    def _drain_some(self, connection: Any) -> None:
        """What has come, up to a limit: the loop has more to do."""
        self.inbox.silence_bell()
        try:
            for _ in range(DRAINED_MAX):
                self.drain_events(connection, timeout=0)
        except TimeoutError:
            return
        finally:
            self.inbox.ring_for_more()

    def drain_events(self, connection: Any, timeout: float | None = None) -> None:
        """Hands over one message; socket.timeout if none comes in time."""
        if not self.is_usable:
            raise KombuConnectionError("the connection is closed, or was made before a fork")
        is_delivered = False
        while not is_delivered:
            arrival = self.inbox.take(timeout)
            if arrival is None:
                raise TimeoutError
            is_delivered = arrival.channel.receive(arrival)


TRANSPORT_ALIASES.setdefault("headrace", "headrace.adapters.kombu:Transport")
