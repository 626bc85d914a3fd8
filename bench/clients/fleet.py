"""Consumers that take 5 ms over each record, each a process of its own: `python -m bench.clients.fleet share ...`.

`share` is our ShareConsumer, explicit, in record_limit mode, so that nobody locks more than it can work off soon;
`group` is confluent-kafka's Consumer in a consumer group. The processes are forked before any of them has a consumer.
The rate is taken over a window that begins when everybody who can have records has had some.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException

from bench.clients.figures import Figures
from bench.wire import Connection, set_group_config
from headrace.client.sync import ShareConsumer

WAIT_S = 0.005
POLL_RECORDS = 20
POLL_S = 0.2
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0


@dataclass(frozen=True, slots=True)
class Place:
    """What a consumer's process needs to know. It alone writes to its slot of `counts`."""

    bootstrap_servers: str
    topic: str
    group: str
    slot: int
    counts: Any
    is_over: Any

    def work(self) -> None:
        # The work itself: the benchmark is about waiting.
        time.sleep(WAIT_S)
        self.counts[self.slot] += 1


def work_in_share_group(place: Place) -> None:
    with ShareConsumer(
        bootstrap_servers=place.bootstrap_servers,
        group_id=place.group,
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",
        max_poll_records=POLL_RECORDS,
    ) as consumer:
        consumer.subscribe([place.topic])
        while not place.is_over.is_set():
            for delivery in consumer.poll(POLL_S):
                place.work()
                delivery.accept()


def work_in_consumer_group(place: Place) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": place.bootstrap_servers,
            "group.id": place.group,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([place.topic])
    while not place.is_over.is_set():
        for message in consumer.consume(POLL_RECORDS, POLL_S):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            place.work()
    consumer.close()


KINDS: dict[str, Callable[[Place], None]] = {
    "share": work_in_share_group,
    "group": work_in_consumer_group,
}


def run(
    kind: str,
    bootstrap_servers: str,
    topic: str,
    *,
    group: str,
    consumers: int,
    partitions: int,
    seconds: float,
) -> Figures:
    """`working` of the figures is how many consumers got records in the window."""
    if kind == "share":
        with Connection(bootstrap_servers) as admin:
            set_group_config(admin, group, "share.auto.offset.reset", "earliest")
    fork = multiprocessing.get_context("fork")
    counts, is_over = fork.RawArray("q", consumers), fork.Event()
    processes = [
        fork.Process(
            target=KINDS[kind],
            args=(Place(bootstrap_servers, topic, group, slot, counts, is_over),),
            daemon=True,
        )
        for slot in range(consumers)
    ]
    for process in processes:
        process.start()
    can_work = consumers if kind == "share" else min(consumers, partitions)
    deadline = time.monotonic() + START_TIMEOUT_S
    while sum(count > 0 for count in counts) < can_work and time.monotonic() < deadline:
        time.sleep(0.01)
    before, started = list(counts), time.perf_counter()
    time.sleep(seconds)
    after, window_s = list(counts), time.perf_counter() - started
    is_over.set()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
        if process.exitcode != 0:
            process.kill()
            raise RuntimeError(f"a consumer ended with {process.exitcode} (None: it did not end)")
    working = sum(late > early for early, late in zip(before, after, strict=True))
    return Figures(sum(after) - sum(before), window_s, 0.0, {"working": working})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--consumers", type=int, required=True)
    parser.add_argument("--partitions", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=2.0)
    chosen = parser.parse_args()
    run(
        chosen.kind,
        chosen.bootstrap_server,
        chosen.topic,
        group=chosen.group,
        consumers=chosen.consumers,
        partitions=chosen.partitions,
        seconds=chosen.seconds,
    ).print()


if __name__ == "__main__":
    main()
