"""kill -9 under load: real processes, an idempotent producer that lives through every kill, a group that commits.

Each round kills the server after a random while and starts it again on the same directory and port. At the end: every
acknowledged record is there, once, in order per partition, and no committed offset went back. `--rounds N` sets how
many kills (few in `make test`, many in `make chaos`); the seed is printed and can be given with HEADRACE_SEED.
"""

import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.chaos.server_process import ServerProcess, choose_seed

TOPIC, PARTITIONS = "orders", 3
START_S_MAX = 30.0
FLUSH_S_MAX = 90.0
# Small segments, so that kills also fall on rolls, indexes and snapshots.
SETTINGS = {"log.segment.bytes": 1048576, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    process = ServerProcess(tmp_path / "data", tmp_path / "server.log", SETTINGS)
    process.start()
    yield process
    process.close()


class Load:
    """Produces numbered records and commits growing offsets until told to stop, and keeps what was acknowledged."""

    def __init__(self, address: str) -> None:
        common = {"bootstrap.servers": address, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100}
        self._producer = Producer(
            {
                **common,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
                "compression.type": "lz4",
            }
        )
        self._committer = Consumer({**common, "group.id": "auditors", "enable.auto.commit": False})
        self.acknowledged: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
        self.failed: list[str] = []
        self.committed = 0
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._produce), threading.Thread(target=self._commit)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        left = self._producer.flush(FLUSH_S_MAX)
        assert left == 0, f"{left} records were never answered"
        self._committer.close()

    def _produce(self) -> None:
        number = 0
        while not self._stopping.is_set():
            try:
                self._producer.produce(
                    TOPIC,
                    str(number).encode() + b" " * 100,
                    partition=number % PARTITIONS,
                    on_delivery=self._delivered,
                )
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        partition, value = message.partition(), message.value()
        assert partition is not None
        assert value is not None
        self.acknowledged[partition].append(int(value))

    def _commit(self) -> None:
        """As a consumer does: never beyond the records there are, where a start would move it back."""
        while not self._stopping.is_set():
            offset = min(self.committed + 1, len(self.acknowledged[0]))
            if offset == self.committed:
                self._stopping.wait(0.005)
                continue
            try:
                self._committer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
                self.committed = offset
            except KafkaException:
                self._stopping.wait(0.02)


def read_all(address: str) -> dict[int, list[int]]:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    ended: set[int] = set()
    deadline = time.monotonic() + FLUSH_S_MAX
    while len(ended) < PARTITIONS and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=1.0):
            partition = message.partition()
            assert partition is not None
            if message.error() is not None:
                ended.add(partition)
                continue
            found[partition].append(int(message.value() or b""))
    consumer.close()
    assert len(ended) == PARTITIONS, "the topic could not be read to its end"
    return found


def committed_offset(address: str) -> int:
    consumer = Consumer({"bootstrap.servers": address, "group.id": "auditors"})
    try:
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=START_S_MAX)
        return max(0, int(found.offset))  # -1001: none is committed yet
    finally:
        consumer.close()


@pytest.mark.timeout(0)
def test_nothing_acknowledged_is_lost_doubled_or_out_of_order(server: ServerProcess, rounds: int) -> None:
    seed = choose_seed()
    print(f"seed {seed}, {rounds} rounds")
    choose = random.Random(seed)
    admin = AdminClient({"bootstrap.servers": server.address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result()
    load = Load(server.address)
    load.start()
    try:
        for _ in range(rounds):
            time.sleep(choose.uniform(0.05, 1.2))  # the kill must fall at a moment nobody has chosen
            server.kill()
            confirmed = load.committed
            server.start()
            assert committed_offset(server.address) >= confirmed, "a committed offset went back"
    finally:
        load.stop()
    assert load.failed == [], f"an idempotent producer was told of failures: {load.failed[:3]}"
    found = read_all(server.address)
    for partition, acknowledged in load.acknowledged.items():
        assert len(acknowledged) > 0
        assert found[partition] == sorted(set(found[partition])), (
            f"partition {partition}: out of order or twice"
        )
        missing = set(acknowledged) - set(found[partition])
        assert not missing, f"partition {partition}: {len(missing)} acknowledged records are lost"
    total = sum(len(acknowledged) for acknowledged in load.acknowledged.values())
    print(
        f"{total} records acknowledged over {rounds} kills, {load.committed} commits, none lost, none twice"
    )
