"""`headrace backup` of a broker under load: what was acknowledged before is in the copy, which agrees with itself."""

import json
import threading
import uuid
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from typer.testing import CliRunner

from headrace import Admin, Broker, ShareConsumer
from headrace.cli.app import app

TOPICS = {"events": 3, "left": 1, "right": 1, "jobs": 2}


def headrace(*arguments: object, status: int = 0) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == status, result.output
    return result.output


class Load:
    """Plain records, transactions over two topics, commits of a group, a share group: each in a thread of its own."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self.stopping = threading.Event()
        self.warm = {name: threading.Event() for name in ("events", "transactions", "commits", "jobs")}
        self.acknowledged: set[str] = set()
        self.sent: set[str] = set()
        self.committed: set[str] = set()
        self.begun: set[str] = set()
        self.accepted: set[str] = set()
        self.delivered: set[str] = set()
        self.commits = 0
        self.failures: list[BaseException] = []
        work = (self._produce, self._transact, self._commit, self._share)
        self._threads = [threading.Thread(target=self._guard, args=(one,)) for one in work]

    def _guard(self, work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:
            self.failures.append(error)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()
        for event in self.warm.values():
            assert event.wait(60), self.failures

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "acks": "all", "linger.ms": 2})

        def told(error: KafkaError | None, message: Message) -> None:
            assert error is None
            self.acknowledged.add(message.value().decode())
            if len(self.acknowledged) > 300:
                self.warm["events"].set()

        while not self.stopping.is_set():
            for topic in ("events", "jobs"):
                for _ in range(10):
                    value = f"{topic} {uuid.uuid4()}"
                    self.sent.add(value)
                    producer.produce(topic, value, on_delivery=told)
            producer.flush()

    def _transact(self) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": "mover"})
        producer.init_transactions()
        while not self.stopping.is_set():
            value = str(uuid.uuid4())
            self.begun.add(value)
            producer.begin_transaction()
            producer.produce("left", value)
            producer.produce("right", value)
            producer.commit_transaction()
            self.committed.add(value)
            if len(self.committed) > 5:
                self.warm["transactions"].set()

    def _commit(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "readers",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["events"])
        while not self.stopping.is_set():
            if consumer.consume(50, 0.1):
                consumer.commit(asynchronous=False)
                self.commits += 1
                if self.commits > 3:
                    self.warm["commits"].set()
        consumer.close()

    def _share(self) -> None:
        with ShareConsumer(
            bootstrap_servers=self.servers, group_id="workers", share_acknowledgement_mode="explicit"
        ) as consumer:
            consumer.subscribe(["jobs"])
            while not self.stopping.is_set():
                taken = []
                for delivery in consumer.poll(0.2):
                    delivery.accept()
                    taken.append(delivery.value.decode())
                    self.delivered.add(taken[-1])
                consumer.commit_sync()
                self.accepted.update(taken)
                if len(self.accepted) > 20:
                    self.warm["jobs"].set()


def read_all(servers: str, topics: list[str], *, isolation: str = "read_uncommitted") -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"audit-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    places = [TopicPartition(name, index, 0) for name in topics for index in range(TOPICS[name])]
    consumer.assign(places)
    values: list[str] = []
    ends = 0
    while ends < len(places):
        for message in consumer.consume(500, 1.0):
            if message.error() is None:
                values.append(message.value().decode())
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF
                ends += 1
    consumer.close()
    return values


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, set[str]], Load]:
    """A copy, what was promised before it was asked for, and what there was in the end."""
    folder = tmp_path_factory.mktemp("backup")
    with Broker(data_dir=folder / "data") as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for name, partitions in TOPICS.items():
                admin.create_topic(name, partitions=partitions)
            admin.set_group_config("workers", {"share.auto.offset.reset": "earliest"})
        load = Load(broker.bootstrap_servers)
        try:
            load.start()
            before = {name: set(getattr(load, name)) for name in ("acknowledged", "committed", "accepted")}
            answer = json.loads(headrace("backup", folder / "copy", "--data", folder / "data", "--json"))
            assert answer["partitions"] > 7
        finally:
            load.stop()
    return folder / "copy", before, load


def test_the_copy_starts_clean_and_every_file_of_it_is_sound(
    copied: tuple[Path, dict[str, set[str]], Load],
) -> None:
    copy, _, _ = copied
    report = json.loads(headrace("log", "check", copy, "--json"))
    assert report["was_clean"]
    assert report["findings"] == []


def test_what_was_promised_before_is_in_the_copy(copied: tuple[Path, dict[str, set[str]], Load]) -> None:
    copy, before, load = copied
    with Broker(data_dir=copy) as broker:
        assert broker.call(lambda: broker.core.logs.was_clean)
        values = read_all(broker.bootstrap_servers, ["events", "jobs"])
        assert max(Counter(values).values()) == 1
        assert before["acknowledged"] <= set(values) <= load.sent
        left = read_all(broker.bootstrap_servers, ["left"], isolation="read_committed")
        right = read_all(broker.bootstrap_servers, ["right"], isolation="read_committed")
        assert sorted(left) == sorted(right)
        assert before["committed"] <= set(left) <= load.begun
        ends = {
            index: broker.call(lambda index=index: broker.core.topics.require("events", index).log.end_offset)
            for index in range(3)
        }
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"})
        for place in consumer.committed([TopicPartition("events", index) for index in range(3)]):
            assert place.offset <= ends[place.partition]
        consumer.close()
        with ShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id="workers") as member:
            member.subscribe(["jobs"])
            again: set[str] = set()
            wanted = {value for value in values if value.startswith("jobs")} - load.delivered
            while not wanted <= again:
                again |= {delivery.value.decode() for delivery in member.poll(1.0)}
        assert not again & before["accepted"]


def test_a_target_that_is_in_use_is_refused(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data"):
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "file").touch()
        output = headrace("backup", tmp_path / "full", "--data", tmp_path / "data", status=1)
        assert "is not empty" in output
        output = headrace("backup", tmp_path / "data" / "x", "--data", tmp_path / "data", status=1)
        assert "inside the data directory" in output
    output = headrace("backup", tmp_path / "new", "--data", tmp_path / "data", status=1)
    assert "no broker is running" in output
    assert not (tmp_path / "new").exists()
