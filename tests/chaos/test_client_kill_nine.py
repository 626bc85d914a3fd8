"""kill -9 of a consumer, and a broker that is away for a while, on our own broker."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.client.admin.sync import Admin
from headrace.client.delivery import Delivery
from headrace.client.sync import ShareConsumer
from headrace.wire.errors import KafkaError
from tests.chaos.haste import Haste
from tests.chaos.holding_process import start_holding
from tests.chaos.server_process import ServerProcess

GROUP, TOPIC, RECORDS = "workers", "jobs", 20
WAIT_S = 60.0
LOCK_MS = 60_000
"""What comes back within the time that tests wait does not owe it to the end of a lock."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """With a queue of one partition, which everybody gets: a dead member keeps its assignment for a while."""
    settings = {"group.share.record.lock.duration.ms": LOCK_MS}
    process = ServerProcess(tmp_path / "data", tmp_path / "server.log", settings)
    process.start()
    with Admin(bootstrap_servers=process.address) as admin:
        admin.create_topic(TOPIC)
        admin.set_group_config(GROUP, {"share.auto.offset.reset": "earliest"})
    produce(process, RECORDS)
    yield process
    process.close()


def produce(server: ServerProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": server.address})
    for number in range(count):
        producer.produce(TOPIC, str(number))
    assert producer.flush(WAIT_S) == 0


def explicit(server: ServerProcess) -> ShareConsumer:
    consumer = ShareConsumer(
        bootstrap_servers=server.address, group_id=GROUP, share_acknowledgement_mode="explicit"
    )
    consumer.subscribe([TOPIC])
    return consumer


def work_off(consumer: ShareConsumer, count: int) -> list[tuple[int, int, int]]:
    """Accepts until so many have come: partition, offset and delivery count of each."""
    taken: list[tuple[int, int, int]] = []
    deadline = time.monotonic() + WAIT_S
    while len(taken) < count:
        assert time.monotonic() < deadline, f"{len(taken)} of {count} records came"
        for one in consumer.poll(0.2):
            taken.append((one.partition, one.offset, one.delivery_count))
            one.accept()
    assert set(consumer.commit_sync(WAIT_S).values()) == {None}
    return sorted(taken)


def test_what_a_killed_consumer_held_goes_to_another(server: ServerProcess, tmp_path: Path) -> None:
    process, held = start_holding(tmp_path / "held", server.address, GROUP, TOPIC, RECORDS)
    process.kill()
    with explicit(server) as other:
        assert work_off(other, RECORDS) == [(partition, offset, 2) for partition, offset in held]


def test_a_consumer_outlasts_a_broker_that_is_away(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    haste = Haste(monkeypatch, caplog, members=1, brokers=1)
    with explicit(server) as consumer:
        work_off(consumer, RECORDS)
        haste.begin()
        server.kill()
        while not haste.has_everybody_tried_again:
            assert consumer.poll(0.2) == []
        server.start()
        haste.check()
        produce(server, RECORDS)
        assert [place[1] for place in work_off(consumer, RECORDS)] == list(range(RECORDS, 2 * RECORDS))


def test_a_consumer_closes_although_its_broker_is_gone_and_says_what_it_does_not_know(
    server: ServerProcess,
) -> None:
    consumer = explicit(server)
    taken: list[Delivery] = []
    while not taken:
        taken = consumer.poll(1.0)
    told: list[tuple[set[int], KafkaError | None]] = []
    consumer.set_acknowledgement_commit_callback(
        lambda offsets, error: told.extend((each, error) for each in offsets.values())
    )
    for one in taken:
        one.accept()
    server.kill()
    consumer.close()
    assert sorted(offset for offsets, _ in told for offset in offsets) == [one.offset for one in taken]
    assert None not in [error for _, error in told]
