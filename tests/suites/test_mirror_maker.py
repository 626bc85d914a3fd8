"""MirrorMaker 2 moves topics and groups from our broker, with the file of docs/how-to/move-to-kafka.md.

It runs Kafka Connect in distributed mode, which keeps its own state in topics of the target.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]

from headrace.testing import ApacheKafka
from headrace.testing.child_process import ChildProcess
from headrace.testing.java import find_java
from tests.suites.broker import served
from tests.suites.jars import connect_jars

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "move-to-kafka.md"
COPY_S_MAX = 150
RECORDS, COMMITTED = 200, 120
GROUP, TOPIC = "billing", "orders"


@pytest.fixture(params=["headrace", "apache"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with ExitStack() as stack:
        if request.param == "apache":
            yield stack.enter_context(ApacheKafka()).bootstrap_servers
        else:
            folder = tmp_path / "target"
            folder.mkdir()
            yield stack.enter_context(served(folder)).addresses["PLAINTEXT"]


@pytest.fixture
def source(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "source"
    folder.mkdir()
    with served(folder) as broker:
        yield broker.addresses["PLAINTEXT"]


def properties(source: str, target: str) -> str:
    found = re.search(r'```properties title="mm2.properties"\n(.*?)```', PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found[1].replace("localhost:9092", source).replace("localhost:9192", target)


@pytest.mark.needs_connect
@pytest.mark.timeout(400)
def test_topics_configs_records_and_positions_arrive(source: str, target: str, tmp_path: Path) -> None:
    fill(source)
    file = tmp_path / "mm2.properties"
    file.write_text(properties(source, target))
    command: list[str | Path] = [find_java().executable, "-Xmx512m", "-XX:TieredStopAtLevel=1"]
    command += ["-cp", f"{connect_jars()}/*", "org.apache.kafka.connect.mirror.MirrorMaker", file]
    maker = ChildProcess(command, output=tmp_path / "mm2.log")
    try:
        wait(lambda: records_in(target) == RECORDS, maker)
        wait(lambda: position(target) is not None, maker)
    finally:
        maker.stop()
    assert read(target) == read(source)
    assert cleanup_policy(target) == "compact"
    reached = position(target)
    assert reached is not None
    assert 0 < reached <= COMMITTED


def fill(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(TOPIC, 1, 1, config={"cleanup.policy": "compact"})
    admin.create_topics([topic])[TOPIC].result(30)
    producer = Producer({"bootstrap.servers": servers})
    for number in range(RECORDS):
        producer.produce(
            TOPIC,
            f"value-{number}",
            f"key-{number}",
            headers=[("number", str(number).encode())],
            timestamp=1_700_000_000_000 + number,
        )
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, COMMITTED)], asynchronous=False)
    consumer.close()


def wait(is_reached: Callable[[], bool], maker: ChildProcess) -> None:
    deadline = time.monotonic() + COPY_S_MAX
    while not is_reached():
        assert maker.is_running, maker.output_tail()
        assert time.monotonic() < deadline, maker.output_tail()
        time.sleep(0.5)  # another process copies; there is nothing to wait on


def records_in(servers: str) -> int:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "nobody"})
    try:
        if TOPIC not in consumer.list_topics(timeout=30).topics:
            return 0
        return int(consumer.get_watermark_offsets(TopicPartition(TOPIC, 0), timeout=30)[1])
    finally:
        consumer.close()


def position(servers: str) -> int | None:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP})
    try:
        [found] = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
        return found.offset if found.offset >= 0 else None
    finally:
        consumer.close()


def read(servers: str) -> list[tuple[object, ...]]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "nobody"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        found: list[tuple[object, ...]] = []
        while len(found) < RECORDS:
            [message] = consumer.consume(1, timeout=30)
            assert message.error() is None
            found.append(
                (message.offset(), message.key(), message.value(), message.headers(), message.timestamp())
            )
        return found
    finally:
        consumer.close()


def cleanup_policy(servers: str) -> str:
    admin = AdminClient({"bootstrap.servers": servers})
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    return str(admin.describe_configs([resource])[resource].result(30)["cleanup.policy"].value)
