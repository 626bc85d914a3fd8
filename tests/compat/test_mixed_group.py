"""Four share consumers on one queue at once: ours with asyncio and without, librdkafka's and Java's.

Every record is accepted by one of them, or rejected by one of them, and by nobody else; the counts are exact.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import AcknowledgeType
from headrace.client.sync import ShareConsumer
from tests.compat.test_share_consumers import awake
from tests.conformance.share.share_client import describe_share_group, new_queue, start_and_lag
from tests.conformance.wire_client import WireClient
from tests.share_consumers import (
    ACCEPT,
    REJECT,
    RELEASE,
    JavaRuntime,
    JavaShareConsumer,
    Librdkafka,
    ShareClient,
    java_runtime,
)

pytestmark = [pytest.mark.needs_java_client, pytest.mark.timeout(180)]
PARTITIONS = 2
EACH_AT_LEAST = 30
WITHIN_S = 90.0
Place = tuple[int, int]


@pytest.fixture(scope="module")
def java() -> Iterator[JavaRuntime]:
    with java_runtime() as runtime:
        yield runtime


def verdict(offset: int, delivery_count: int) -> int:
    """The same whoever is asked: some are released the first time, some are rejected, whenever they come."""
    if offset % 11 == 7:
        return REJECT
    return RELEASE if offset % 7 == 3 and delivery_count == 1 else ACCEPT


@dataclass(slots=True)
class Took:
    """What one consumer has answered, by kind."""

    places: dict[int, list[Place]] = field(default_factory=lambda: {ACCEPT: [], RELEASE: [], REJECT: []})

    def answer(self, partition: int, offset: int, delivery_count: int) -> int:
        kind = verdict(offset, delivery_count)
        self.places[kind].append((partition, offset))
        return kind

    @property
    def count(self) -> int:
        return sum(map(len, self.places.values()))


class Worker(threading.Thread):
    """One consumer on a thread of its own, until it is told to stop; then it commits and leaves."""

    def __init__(self, name: str, work: Callable[["Worker"], None]) -> None:
        super().__init__(name=name, daemon=True)
        self.took = Took()
        self.stopping = threading.Event()
        self.failure: BaseException | None = None
        self._work = work

    def run(self) -> None:
        try:
            self._work(self)
        except BaseException as error:
            self.failure = error
            raise


def settings_of(bootstrap_servers: str, group: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "share.acknowledgement.mode": "explicit",
        "max.poll.records": 10,
    }


def ours(bootstrap_servers: str, name: str) -> Callable[[Worker], None]:
    def work(worker: Worker) -> None:
        with ShareConsumer(settings_of(bootstrap_servers, name)) as consumer:
            consumer.subscribe([name])
            while not worker.stopping.is_set():
                for one in consumer.poll(0.2):
                    kind = worker.took.answer(one.partition, one.offset, one.delivery_count)
                    consumer.acknowledge(one, AcknowledgeType(kind))
            assert set(consumer.commit_sync().values()) <= {None}

    return work


def ours_with_asyncio(bootstrap_servers: str, name: str) -> Callable[[Worker], None]:
    async def run(worker: Worker) -> None:
        async with AsyncShareConsumer(settings_of(bootstrap_servers, name)) as consumer:
            consumer.subscribe([name])
            while not worker.stopping.is_set():
                for one in await consumer.poll(0.2):
                    kind = worker.took.answer(one.partition, one.offset, one.delivery_count)
                    consumer.acknowledge(one, AcknowledgeType(kind))
            assert set((await consumer.commit_sync()).values()) <= {None}

    return lambda worker: asyncio.run(run(worker))


def foreign(make: Callable[[], ShareClient]) -> Callable[[Worker], None]:
    def work(worker: Worker) -> None:
        client = make()
        while not worker.stopping.is_set():
            for one in client.poll(0.2):
                client.acknowledge(one, worker.took.answer(one.partition, one.offset, one.count))
        assert set(client.commit().values()) <= {None}
        client.close()
        refused = [commit for commit in client.commits if commit.error is not None]
        assert refused == []

    return work


def wait_until(what: str, is_so: Callable[[], bool], workers: list[Worker]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not is_so():
        assert [worker.failure for worker in workers if worker.failure] == []
        counts = {worker.name: worker.took.count for worker in workers}
        assert time.monotonic() < deadline, f"{what}: no; so far {counts}"
        time.sleep(0.05)  # the pace of looking: four kinds of client, no one signal


def test_each_record_is_settled_by_one_of_four_kinds_of_consumers(
    bootstrap_servers: str, java: JavaRuntime, unique: str
) -> None:
    awake(bootstrap_servers)
    explicit = {"share_acknowledgement_mode": "explicit", "max_poll_records": 10}
    workers = [
        Worker("headrace", ours(bootstrap_servers, unique)),
        Worker("headrace with asyncio", ours_with_asyncio(bootstrap_servers, unique)),
        Worker("librdkafka", foreign(lambda: Librdkafka(bootstrap_servers, unique, unique, **explicit))),
        Worker(
            "Java", foreign(lambda: JavaShareConsumer(java, bootstrap_servers, unique, unique, **explicit))
        ),
    ]
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
    produced: Counter[int] = Counter()
    with ExitStack() as stack, WireClient(bootstrap_servers) as wire:
        new_queue(wire, unique, partitions=PARTITIONS)
        for worker in workers:
            worker.start()
            stack.callback(worker.join, WITHIN_S)
        for worker in workers:
            stack.callback(worker.stopping.set)
        wait_until(
            "all have joined",
            lambda: len(describe_share_group(wire, unique).members) == len(workers),
            workers,
        )

        def each_has_had_its_share() -> bool:
            for partition in range(PARTITIONS):
                for _ in range(20):
                    producer.produce(unique, str(produced[partition]), partition=partition)
                    produced[partition] += 1
            assert producer.flush(30) == 0
            return all(worker.took.count >= EACH_AT_LEAST for worker in workers)

        wait_until("each has had its share", each_has_had_its_share, workers)

        def is_worked_off() -> bool:
            return all(start_and_lag(wire, unique, unique, index)[1] == 0 for index in range(PARTITIONS))

        wait_until("all is worked off", is_worked_off, workers)
    assert [worker.name for worker in workers if worker.is_alive()] == []
    assert [worker.failure for worker in workers if worker.failure] == []

    offsets = [(partition, offset) for partition in produced for offset in range(produced[partition])]
    for kind in (ACCEPT, RELEASE, REJECT):
        found = sorted(place for worker in workers for place in worker.took.places[kind])
        expected = {
            ACCEPT: [place for place in offsets if place[1] % 11 != 7],
            RELEASE: [place for place in offsets if place[1] % 11 != 7 and place[1] % 7 == 3],
            REJECT: [place for place in offsets if place[1] % 11 == 7],
        }
        assert found == sorted(expected[kind])
