"""librdkafka through confluent-kafka, as applications use it: `python -m bench.clients.confluent produce ...`.

Records have no key and a value of 100 bytes; a batch holds at most 150; acks=all, idempotent.
"""

import argparse
import contextlib
import time
from pathlib import Path
from statistics import quantiles
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer

from bench.clients import RECORD_BYTES, RECORDS_PER_BATCH, transport
from bench.clients.figures import Figures, Stopwatch

GIVE_UP_S = 60.0


def produce(bootstrap_servers: str, topic: str, *, seconds: float, ca: Path | None) -> Figures:
    """As many records as go in `seconds`; the time ends when the last of them is acknowledged."""
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "batch.num.messages": RECORDS_PER_BATCH,
            "delivery.report.only.error": True,
            "socket.nagle.disable": True,
            "on_delivery": lambda error, _: failures.append(error),
            **transport(ca),
        }
    )
    value = bytes(RECORD_BYTES)
    producer.produce(topic, value)
    _flush(producer)
    messages: list[Any] = [{"value": value}] * RECORDS_PER_BATCH
    produced = 0
    watch = Stopwatch()
    deadline = watch.started + seconds
    while time.perf_counter() < deadline:
        queued = 0
        with contextlib.suppress(BufferError):
            queued = producer.produce_batch(topic, messages)
        produced += queued
        if queued < RECORDS_PER_BATCH:
            messages = [{"value": value}] * RECORDS_PER_BATCH
            producer.poll(0.002)
    _flush(producer)
    figures = watch.figures(produced)
    if failures:
        raise KafkaException(failures[0])
    return figures


def _flush(producer: Producer) -> None:
    left = producer.flush(GIVE_UP_S)
    if left:
        raise TimeoutError(f"{left} records were not acknowledged within {GIVE_UP_S:.0f} s")


def _consumer(bootstrap_servers: str, group: str, **settings: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "socket.nagle.disable": True,
            # librdkafka rests a whole second when its queue is full; its consumer would run dry meanwhile.
            "fetch.queue.backoff.ms": 2,
            **settings,
        }
    )


def consume(
    bootstrap_servers: str, topic: str, *, group: str, records: int, seconds: float, ca: Path | None
) -> Figures:
    """Joins a new group and reads from the beginning; the clock runs from the first records on."""
    consumer = _consumer(bootstrap_servers, group, **{"auto.offset.reset": "earliest", **transport(ca)})
    joining = time.perf_counter()
    consumer.subscribe([topic])
    first = _consume_some(consumer, joining + GIVE_UP_S)
    watch = Stopwatch()
    joined_ms = (watch.started - joining) * 1000
    read = 0
    while first + read < records and time.perf_counter() < watch.started + seconds:
        read += _consume_some(consumer, watch.started + GIVE_UP_S)
    figures = watch.figures(read, joined_ms=joined_ms)
    consumer.close()
    return figures


def _consume_some(consumer: Consumer, deadline: float) -> int:
    while time.perf_counter() < deadline:
        messages = consumer.consume(num_messages=5_000, timeout=0.05)
        if messages:
            for message in (messages[0], messages[-1]):
                _require(message.error())
            return len(messages)
    raise TimeoutError(f"no records within {GIVE_UP_S:.0f} s")


def latency(bootstrap_servers: str, topic: str, *, group: str, seconds: float, ca: Path | None) -> Figures:
    """One record at a time: produced, acknowledged by all, consumed; the time from the first to the last of these."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "socket.nagle.disable": True,
            **transport(ca),
        }
    )
    consumer = _consumer(bootstrap_servers, group, **{"auto.offset.reset": "earliest", **transport(ca)})
    consumer.subscribe([topic])
    value = bytes(RECORD_BYTES)
    for _ in range(50):
        _round_trip(producer, consumer, topic, value)
    times_ms: list[float] = []
    watch = Stopwatch()
    while time.perf_counter() < watch.started + seconds:
        started = time.perf_counter()
        _round_trip(producer, consumer, topic, value)
        times_ms.append((time.perf_counter() - started) * 1000)
    cuts = quantiles(times_ms, n=100)
    figures = watch.figures(len(times_ms), p50_ms=cuts[49], p99_ms=cuts[98])
    consumer.close()
    return figures


def _round_trip(producer: Producer, consumer: Consumer, topic: str, value: bytes) -> None:
    acknowledged: list[bool] = []

    def on_delivery(error: KafkaError | None, _: Message) -> None:
        _require(error)
        acknowledged.append(True)

    deadline = time.perf_counter() + GIVE_UP_S
    producer.produce(topic, value, on_delivery=on_delivery)
    while not acknowledged:
        producer.poll(1.0)
        if time.perf_counter() > deadline:
            raise TimeoutError(f"a record was not acknowledged within {GIVE_UP_S:.0f} s")
    while (message := consumer.poll(1.0)) is None:
        if time.perf_counter() > deadline:
            raise TimeoutError(f"a record was not consumed within {GIVE_UP_S:.0f} s")
    _require(message.error())


def _require(error: KafkaError | None) -> None:
    if error is not None:
        raise KafkaException(error)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["produce", "consume", "latency"])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--group", default="bench")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--ca", type=Path, help="of a listener with TLS")
    chosen = parser.parse_args()
    server, topic, seconds, ca = chosen.bootstrap_server, chosen.topic, chosen.seconds, chosen.ca
    if chosen.task == "produce":
        figures = produce(server, topic, seconds=seconds, ca=ca)
    elif chosen.task == "consume":
        figures = consume(server, topic, group=chosen.group, records=chosen.records, seconds=seconds, ca=ca)
    else:
        figures = latency(server, topic, group=chosen.group, seconds=seconds, ca=ca)
    figures.print()


if __name__ == "__main__":
    main()
