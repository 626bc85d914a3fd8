"""What the tests with confluent-kafka have in common: produce and wait, consume until it is enough."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition

WAIT_S = 60


def produce(bootstrap_servers: str, topic: str, values: Iterable[str], **settings: Any) -> list[Message]:
    """Produces the values, each with itself as its key, and returns the messages as they were acknowledged."""
    delivered: list[Message] = []

    def on_delivery(error: object, message: Message) -> None:
        assert error is None, error
        delivered.append(message)

    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, **settings})
    for value in values:
        producer.produce(topic, value, key=value, on_delivery=on_delivery)
    assert producer.flush(WAIT_S) == 0
    return delivered


@contextmanager
def consumer(bootstrap_servers: str, group: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer that starts at the beginning and commits when told to; closed at the end."""
    opened = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **settings,
        }
    )
    try:
        yield opened
    finally:
        opened.close()


def take(source: Consumer, count: int) -> list[Message]:
    """The next `count` messages; fails when they do not come in time."""
    messages: list[Message] = []
    deadline = time.monotonic() + WAIT_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        for message in source.consume(count - len(messages), timeout=1.0):
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def nothing_more(source: Consumer) -> bool:
    """Whether a consumer that is up to date gets nothing."""
    return source.poll(0.5) is None


def wait_for(condition: Callable[[], object], what: str, polled: Iterable[Consumer] = ()) -> None:
    """Waits until the condition holds, polling the consumers so that they follow their group.

    librdkafka also tells of errors it gets over (a coordinator that is busy); one that stays ends in the deadline.
    """
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"did not happen: {what}"
        for source in polled:
            message = source.poll(0.05)
            assert message is None or message.error() is not None, "a record, where none was sent"


def partitions(topic: str, *offsets: int) -> list[TopicPartition]:
    """Partitions 0, 1, ... of a topic with these offsets."""
    return [TopicPartition(topic, index, offset) for index, offset in enumerate(offsets)]
