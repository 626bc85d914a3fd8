"""A real Spark (local[2]) and our broker in process. One JVM for all tests that need no crash.

Tests count effects: rows in SQLite or Parquet, by partition and offset. Topics and groups are named by `unique`.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamReader

from headrace import Broker
from headrace.client.admin.sync import Admin
from headrace.spark import register
from headrace.testing import ApacheKafka
from headrace.testing.java import find_java

WAIT_S = 90
LOCK_BOUNDS = {
    "group.share.min.record.lock.duration.ms": 1_000,
    "group.share.max.record.lock.duration.ms": 3_600_000,
}
GROUP_SETTINGS = {
    **LOCK_BOUNDS,
    "group.share.record.lock.duration.ms": 30_000,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.needs_spark)
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))  # pandas 3, says pyspark 4.3
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))  # py4j's sockets


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker(settings=GROUP_SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder from which every process of Spark can import."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="session")
def spark(modules: Path) -> Iterator[SparkSession]:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(modules)]))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(find_java().home)
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    register(session)
    yield session
    session.stop()


@dataclass
class Queue:
    """A topic with a share group on it, and what a test wants to know of both."""

    bootstrap_servers: str
    topic: str
    group: str
    folder: Path
    partitions: int = 2
    sent: int = 0
    options: dict[str, str] = field(default_factory=dict)

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.bootstrap_servers)

    def send(self, count: int, value: Callable[[int], bytes] = lambda number: b"%d" % number) -> None:
        """Records with rising numbers as values, in turn over the partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5})
        for number in range(self.sent, self.sent + count):
            producer.produce(self.topic, value(number), partition=number % self.partitions)
        assert producer.flush(WAIT_S) == 0
        self.sent += count

    def stream(
        self, spark: SparkSession, *, reader: DataStreamReader | None = None, **options: object
    ) -> DataFrame:
        given = {
            "kafka.bootstrap.servers": self.bootstrap_servers,
            "subscribe": self.topic,
            "kafka.group.id": self.group,
            "startingOffsets": "earliest",
            "checkpointLocation": self.checkpoint,
            **self.options,
            **{name: str(value) for name, value in options.items()},
        }
        return (reader or spark.readStream).format("kafka-share").options(**given).load()

    def lag(self) -> int | None:
        with self.admin() as admin:
            found = admin.share_group_offsets(self.group, [self.topic])
        lags = [each.lag for each in found.values()]
        return None if None in lags else sum(lag or 0 for lag in lags)


@pytest.fixture
def queue(broker: Broker, unique: str, tmp_path: Path) -> Queue:
    return make_queue(broker.bootstrap_servers, unique, tmp_path)


def make_queue(bootstrap_servers: str, name: str, folder: Path, *, partitions: int = 2) -> Queue:
    made = Queue(bootstrap_servers, name, name, folder, partitions)
    with made.admin() as admin:
        admin.create_topic(made.topic, partitions=made.partitions)
    return made


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """A real Kafka. Its timers are Kafka's own, so a new group waits some seconds for its partitions."""
    with ApacheKafka(settings=LOCK_BOUNDS) as cluster:
        yield cluster


class Effects:
    """What a query did, by micro-batch: a sink that is repeatable for one batch id."""

    def __init__(self) -> None:
        self.batches: dict[int, list[dict[str, Any]]] = {}

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        self.batches[batch_id] = [row.asDict() for row in batch.collect()]

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    @property
    def numbers(self) -> list[int]:
        return sorted(int(row["value"]) for row in self.rows)


@pytest.fixture
def effects() -> Effects:
    return Effects()


def drain(stream: DataFrame, effects: Callable[[DataFrame, int], None], queue: Queue) -> Any:
    """Runs a query until the queue is empty."""
    query = (
        stream.writeStream.foreachBatch(effects)
        .option("checkpointLocation", queue.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    return finish(query)


def finish(query: Any) -> Any:
    try:
        assert query.awaitTermination(WAIT_S), f"not done after {WAIT_S} s: {query.status}"
    finally:
        query.stop()
    return query


def wait_for(condition: Callable[[], bool]) -> None:
    """Spark says nothing when a micro-batch is done, so this looks again and again."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)  # the pace of looking
