"""Producers, as applications use them: `python -m bench.clients.producers headrace-one ...`.

`-one`: one record after the other, each acknowledged before the next is sent. `-many`: as many as go. Records have no
key and a value of 100 bytes; acks=all, idempotent, and the sender learns the offset of every record.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Iterator
from functools import partial

from bench.clients import RECORD_BYTES
from bench.clients.figures import Figures, Stopwatch

MANY = 20_000
VALUE = bytes(RECORD_BYTES)


def headrace_one(servers: str, topic: str, seconds: float) -> Figures:
    from headrace import Producer

    with Producer(bootstrap_servers=servers) as producer:
        return _repeat(lambda: producer.send(topic, VALUE).result(), 1, seconds)


def headrace_many(servers: str, topic: str, seconds: float) -> Figures:
    from headrace import Producer

    def values(until: float) -> Iterator[bytes]:
        while time.perf_counter() < until:
            for _ in range(MANY // 100):
                yield VALUE

    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, VALUE).result()
        watch = Stopwatch()
        sent = producer.send_many(topic, values(watch.started + seconds))
        return watch.figures(len(sent))


def confluent_one(servers: str, topic: str, seconds: float) -> Figures:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0})

    def send() -> None:
        producer.produce(topic, VALUE)
        producer.flush()

    return _repeat(send, 1, seconds)


def confluent_many(servers: str, topic: str, seconds: float) -> Figures:
    from confluent_kafka import Message, Producer

    offsets: list[int | None] = []

    def note(error: object, message: Message) -> None:
        assert error is None
        offsets.append(message.offset())

    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})

    def send() -> None:
        for _ in range(MANY):
            while True:
                try:
                    producer.produce(topic, VALUE, on_delivery=note)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)

    return _repeat(send, MANY, seconds, finish=producer.flush)


def aiokafka_one(servers: str, topic: str, seconds: float) -> Figures:
    return asyncio.run(_aiokafka(servers, topic, seconds, 1))


def aiokafka_many(servers: str, topic: str, seconds: float) -> Figures:
    return asyncio.run(_aiokafka(servers, topic, seconds, MANY))


async def _aiokafka(servers: str, topic: str, seconds: float, at_once: int) -> Figures:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, acks="all", max_batch_size=524_288
    ) as producer:
        await producer.send_and_wait(topic, VALUE)
        watch = Stopwatch()
        count = 0
        while time.perf_counter() < watch.started + seconds:
            if at_once == 1:
                await producer.send_and_wait(topic, VALUE)
            else:
                await asyncio.gather(*[await producer.send(topic, VALUE) for _ in range(at_once)])
            count += at_once
        return watch.figures(count)


def _repeat(
    send: Callable[[], object], records: int, seconds: float, *, finish: Callable[[], object] = lambda: None
) -> Figures:
    send()
    finish()
    watch = Stopwatch()
    count = 0
    while time.perf_counter() < watch.started + seconds:
        send()
        count += records
    finish()
    return watch.figures(count)


TASKS = {
    "headrace-one": headrace_one,
    "headrace-many": headrace_many,
    "confluent-one": confluent_one,
    "confluent-many": confluent_many,
    "aiokafka-one": aiokafka_one,
    "aiokafka-many": aiokafka_many,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    chosen = parser.parse_args()
    run = partial(TASKS[chosen.task], chosen.bootstrap_server, chosen.topic, chosen.seconds)
    run().print()


if __name__ == "__main__":
    main()
