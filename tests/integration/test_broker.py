"""`Broker` in a process of the user's own: it starts and stops, keeps its data, and its clock can be turned."""

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace import Broker
from headrace.log.disk import DirectoryLocked

WAIT_S = 60


def produce(broker: Broker, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce("orders", value)
    assert producer.flush(WAIT_S) == 0


def read(broker: Broker, count: int) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "log_level": 0}
    )
    consumer.assign([TopicPartition("orders", 0, 0)])
    found = consumer.consume(count, timeout=WAIT_S)
    consumer.close()
    return [message.value() for message in found]


def test_what_is_produced_is_consumed() -> None:
    with Broker() as broker:
        produce(broker, b"one", b"two")
        assert read(broker, 2) == [b"one", b"two"]


def test_a_data_directory_keeps_records_and_the_cluster_id(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        cluster_id = broker.core.cluster_id
        produce(broker, b"kept")
    with Broker(data_dir=tmp_path / "data") as broker:
        assert broker.core.cluster_id == cluster_id
        assert read(broker, 1) == [b"kept"]


def test_a_second_broker_on_the_same_directory_is_refused_and_leaves_no_thread(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data"):
        before = set(threading.enumerate())
        with pytest.raises(DirectoryLocked, match="in use by another broker"):
            Broker(data_dir=tmp_path / "data").start()
        assert set(threading.enumerate()) <= before


def test_a_broker_can_be_used_only_while_it_runs() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="not running"):
        _ = broker.bootstrap_servers
    broker.start()
    with pytest.raises(RuntimeError, match="started already"):
        broker.start()
    broker.stop()
    broker.stop()
    with pytest.raises(RuntimeError, match="not running"):
        broker.advance(1)


def test_turning_the_clock_ends_the_session_of_a_silent_member() -> None:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        produce(broker, b"one")
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "workers",
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe(["orders"])
        assert consumer.poll(WAIT_S) is not None
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})

        def members() -> int:
            return len(admin.describe_consumer_groups(["workers"])["workers"].result().members)

        assert members() == 1
        broker.advance(3600)
        assert members() == 0
        consumer.close()


def test_settings_may_be_given_as_keywords_with_underscores() -> None:
    with Broker(settings={"num_partitions": 3}) as broker:
        produce(broker, b"one")
        metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(
            "orders", timeout=WAIT_S
        )
        assert len(metadata.topics["orders"].partitions) == 3
