"""Records for the stories, and how their consumers take them."""

import time
from collections.abc import Callable, Sequence

from confluent_kafka import Producer

from tests.share_consumers import WAIT_S, Delivery, Librdkafka

OpenConsumer = Callable[..., Librdkafka]
Handle = Callable[[Librdkafka, Delivery], None]
EXPLICIT = {"share_acknowledgement_mode": "explicit"}


def produce(
    bootstrap_servers: str,
    topic: str,
    values: Sequence[str],
    *,
    keys: Sequence[str | None] | None = None,
    partitions: int = 1,
    in_one_batch: bool = False,
) -> None:
    """Produces the values, to the partitions in turn; each a batch of its own or as few batches as there can be."""
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 200 if in_one_batch else 0})
    for number, value in enumerate(values):
        key = keys[number] if keys else None
        producer.produce(topic, value, key, partition=number % partitions)
        if not in_one_batch:
            producer.flush()
    assert producer.flush(WAIT_S) == 0


def poll_each(consumers: Sequence[Librdkafka], handle: Handle) -> None:
    """Polls the consumers in turn and hands each record on."""
    for consumer in consumers:
        for delivery in consumer.poll(0.05):
            handle(consumer, delivery)


def work(
    consumers: Sequence[Librdkafka], is_done: Callable[[], bool], handle: Handle, *, within_s: float = WAIT_S
) -> None:
    """Lets the consumers work until it is done; fails when that takes too long."""
    deadline = time.monotonic() + within_s
    while not is_done():
        assert time.monotonic() < deadline, "the work was not done in time"
        poll_each(consumers, handle)
