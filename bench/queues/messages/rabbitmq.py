"""A quorum queue in RabbitMQ: many unconfirmed messages in flight, prefetch, one acknowledgement for many messages."""

import os
from collections.abc import Callable
from typing import Any

import pika

from bench.clients.figures import Figures, Stopwatch
from bench.queues.jobs.work import SERVER
from bench.queues.messages import common
from bench.queues.messages.confirms import Confirms

QUEUE = "bench"
PERSISTENT = pika.BasicProperties(delivery_mode=2)
IN_FLIGHT = 4000
ACKNOWLEDGE_EVERY = 100
"""A fifth of the prefetch: the server sends on while these are on their way."""


def _run(on_channel: Callable[[Any, Any], None]) -> None:
    """Opens a channel, hands it over, and returns when its connection is closed."""

    def failed(connection: Any, error: object) -> None:
        raise ConnectionError(str(error))

    def opened(connection: Any) -> None:
        connection.channel(on_open_callback=lambda channel: on_channel(connection, channel))

    connection = pika.SelectConnection(
        pika.URLParameters(os.environ[SERVER]), on_open_callback=opened, on_open_error_callback=failed
    )
    connection.add_on_close_callback(lambda *_: connection.ioloop.stop())
    connection.ioloop.start()


class Sender:
    """Publishes as long as fewer than IN_FLIGHT are unconfirmed; closes the connection when all are confirmed."""

    def __init__(self, messages: int) -> None:
        self._messages = messages
        self._sent = 0
        self._confirms = Confirms()
        self._watch = Stopwatch()
        self.figures: Figures | None = None

    def begin(self, connection: Any, channel: Any) -> None:
        self._connection, self._channel = connection, channel
        arguments = {"x-queue-type": "quorum"}
        channel.queue_declare(QUEUE, durable=True, arguments=arguments, callback=self._declared)

    def _declared(self, _: object) -> None:
        self._channel.confirm_delivery(self._on_confirm, callback=self._confirming)

    def _confirming(self, _: object) -> None:
        self._watch = Stopwatch()
        self._publish()

    def _publish(self) -> None:
        while self._sent < self._messages and self._sent - self._confirms.count < IN_FLIGHT:
            self._channel.basic_publish("", QUEUE, common.message(self._sent), PERSISTENT)
            self._sent += 1

    def _on_confirm(self, frame: Any) -> None:
        if not isinstance(frame.method, pika.spec.Basic.Ack):
            raise RuntimeError(f"message {frame.method.delivery_tag} was refused")
        self._confirms.add(frame.method.delivery_tag, is_multiple=frame.method.multiple)
        if self._confirms.count == self._messages:
            self.figures = self._watch.figures(self._messages)
            self._connection.close()
        elif self._sent - self._confirms.count <= IN_FLIGHT // 2:
            self._publish()


class Receiver:
    """Acknowledges every so many messages with one frame, and what is over when nothing more came."""

    def __init__(self, shift: common.Shift) -> None:
        self._shift = shift
        self._bodies: list[bytes] = []
        self._tag = 0

    def begin(self, connection: Any, channel: Any) -> None:
        self._connection, self._channel = connection, channel
        channel.basic_qos(prefetch_count=common.AT_ONCE, callback=self._ready)

    def _ready(self, _: object) -> None:
        self._shift.begin()
        self._channel.basic_consume(QUEUE, self._on_message)
        self._look()

    def _on_message(self, _: object, method: Any, properties: object, body: bytes) -> None:
        self._bodies.append(body)
        self._tag = method.delivery_tag
        if len(self._bodies) >= ACKNOWLEDGE_EVERY:
            self._acknowledge()

    def _acknowledge(self) -> None:
        self._channel.basic_ack(self._tag, multiple=True)
        self._shift.note(self._bodies)
        self._bodies = []

    def _look(self) -> None:
        if self._bodies:
            self._acknowledge()
        if self._shift.is_over:
            self._connection.close()
        else:
            self._connection.ioloop.call_later(common.IDLE_S, self._look)


def send(messages: int) -> Figures:
    sender = Sender(messages)
    _run(sender.begin)
    if sender.figures is None:
        raise ConnectionError("the connection was closed before all messages were confirmed")
    return sender.figures


def consume(shift: common.Shift) -> None:
    _run(Receiver(shift).begin)


def left() -> int:
    """Ready messages alone: with no consumer connected, no other kind is there."""
    with pika.BlockingConnection(pika.URLParameters(os.environ[SERVER])) as connection:
        declared = connection.channel().queue_declare(QUEUE, passive=True)
        return int(declared.method.message_count)


if __name__ == "__main__":
    common.main(send, consume, left)
