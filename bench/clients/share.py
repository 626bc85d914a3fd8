"""librdkafka's ShareConsumer through confluent-kafka: `python -m bench.clients.share consume ...`.

`fill` makes the topic it reads, so many records to a batch; `consume` joins a new share group and works it off from
the beginning; `latency` sends one record at a time and takes the time to its delivery and to the answer of its commit.
"""

import argparse
import time
from pathlib import Path
from statistics import quantiles

from confluent_kafka import KafkaException, Producer, ShareConsumer

from bench.clients import RECORD_BYTES, transport
from bench.clients.figures import Figures, Stopwatch
from bench.wire import Connection, set_group_config

GIVE_UP_S = 60.0


def fill(
    bootstrap_servers: str,
    topic: str,
    *,
    records: int,
    per_batch: int,
    partitions: int = 1,
    record_bytes: int = RECORD_BYTES,
    ca: Path | None = None,
) -> Figures:
    """Batch after batch, in turn over the partitions, so that all are of the same size."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "batch.num.messages": per_batch,
            "batch.size": 1_000_000,
            "linger.ms": 5 if per_batch == 1 else 100,
            "queue.buffering.max.messages": max(100_000, 4 * per_batch),
            "delivery.report.only.error": True,
            **transport(ca),
        }
    )
    watch, value = Stopwatch(), bytes(record_bytes)
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number // per_batch % partitions)
                break
            except BufferError:
                producer.poll(0.01)
        if not number % 1000:
            producer.poll(0)
    if producer.flush(GIVE_UP_S):
        raise TimeoutError("the topic could not be filled")
    return watch.figures(records)


def _consumer(bootstrap_servers: str, group: str, *, is_explicit: bool, ca: Path | None) -> ShareConsumer:
    with Connection(bootstrap_servers, ca=ca) as admin:
        set_group_config(admin, group, "share.auto.offset.reset", "earliest")
    return ShareConsumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "share.acknowledgement.mode": "explicit" if is_explicit else "implicit",
            "socket.nagle.disable": True,
            **transport(ca),
        }
    )


def consume(
    bootstrap_servers: str,
    topic: str,
    *,
    group: str,
    records: int,
    seconds: float,
    is_explicit: bool,
    ca: Path | None,
) -> Figures:
    """The clock runs from the first records on: joining is a figure of its own."""
    consumer = _consumer(bootstrap_servers, group, is_explicit=is_explicit, ca=ca)
    joining = time.perf_counter()
    consumer.subscribe([topic])
    first = _work_off(consumer, joining + GIVE_UP_S, is_explicit=is_explicit)
    watch = Stopwatch()
    joined_ms = (watch.started - joining) * 1000
    done = 0
    while first + done < records and time.perf_counter() < watch.started + seconds:
        done += _work_off(consumer, watch.started + GIVE_UP_S, is_explicit=is_explicit)
    figures = watch.figures(done, joined_ms=joined_ms)
    consumer.close()
    return figures


def _work_off(consumer: ShareConsumer, deadline: float, *, is_explicit: bool) -> int:
    while time.perf_counter() < deadline:
        messages = consumer.poll(0.5)
        if not messages:
            continue
        for message in (messages[0], messages[-1]):
            if message.error() is not None:
                raise KafkaException(message.error())
        if is_explicit:
            for message in messages:
                consumer.acknowledge(message)
        return len(messages)
    raise TimeoutError(f"no records within {GIVE_UP_S:.0f} s")


def latency(bootstrap_servers: str, topic: str, *, group: str, seconds: float, ca: Path | None) -> Figures:
    producer = Producer(
        {"bootstrap.servers": bootstrap_servers, "acks": "all", "linger.ms": 0, **transport(ca)}
    )
    consumer = _consumer(bootstrap_servers, group, is_explicit=False, ca=ca)
    consumer.subscribe([topic])
    delivered_ms: list[float] = []
    committed_ms: list[float] = []
    for _ in range(50):
        _round_trip(producer, consumer, topic)
    watch = Stopwatch()
    while time.perf_counter() < watch.started + seconds:
        delivered, committed = _round_trip(producer, consumer, topic)
        delivered_ms.append(delivered)
        committed_ms.append(committed)
    delivery, commit = quantiles(delivered_ms, n=100), quantiles(committed_ms, n=100)
    figures = watch.figures(
        len(delivered_ms),
        deliver_p50_ms=delivery[49],
        deliver_p99_ms=delivery[98],
        commit_p50_ms=commit[49],
        commit_p99_ms=commit[98],
    )
    consumer.close()
    return figures


def _round_trip(producer: Producer, consumer: ShareConsumer, topic: str) -> tuple[float, float]:
    """Milliseconds from produce to delivery, and of the commit."""
    started = time.perf_counter()
    producer.produce(topic, bytes(RECORD_BYTES))
    producer.poll(0)
    while not consumer.poll(0.5):
        if time.perf_counter() > started + GIVE_UP_S:
            raise TimeoutError(f"a record was not delivered within {GIVE_UP_S:.0f} s")
    delivered = time.perf_counter()
    for error in consumer.commit_sync().values():
        if error is not None:
            raise error
    return (delivered - started) * 1000, (time.perf_counter() - delivered) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=["fill", "consume", "consume-explicit", "latency"])
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--group", default="bench")
    parser.add_argument("--records", type=int, default=0)
    parser.add_argument("--per-batch", type=int, default=150)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--record-bytes", type=int, default=RECORD_BYTES)
    parser.add_argument("--ca", type=Path, help="of a listener with TLS")
    chosen = parser.parse_args()
    server, topic, ca = chosen.bootstrap_server, chosen.topic, chosen.ca
    if chosen.task == "fill":
        figures = fill(
            server,
            topic,
            records=chosen.records,
            per_batch=chosen.per_batch,
            partitions=chosen.partitions,
            record_bytes=chosen.record_bytes,
            ca=ca,
        )
    elif chosen.task == "latency":
        figures = latency(server, topic, group=chosen.group, seconds=chosen.seconds, ca=ca)
    else:
        figures = consume(
            server,
            topic,
            group=chosen.group,
            records=chosen.records,
            seconds=chosen.seconds,
            is_explicit=chosen.task == "consume-explicit",
            ca=ca,
        )
    figures.print()


if __name__ == "__main__":
    main()
