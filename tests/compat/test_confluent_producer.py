"""confluent-kafka's producer: every kind of acknowledgement and compression, headers, timestamps, refusals."""

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent import WAIT_S, produce, take


def read_back(bootstrap_servers: str, topic: str, count: int) -> list[Message]:
    source = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "not-used", "enable.auto.commit": False}
    )
    source.assign([TopicPartition(topic, 0, 0)])
    try:
        return take(source, count)
    finally:
        source.close()


def create(bootstrap_servers: str, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(topic, num_partitions=1, config=configs)])[topic].result(WAIT_S)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back_as_it_was_sent(bootstrap_servers: str, unique: str, codec: str) -> None:
    create(bootstrap_servers, unique)
    values = [f"value {number} " * 50 for number in range(300)]
    produce(bootstrap_servers, unique, values, **{"compression.type": codec, "linger.ms": 50})
    assert [message.value().decode() for message in read_back(bootstrap_servers, unique, 300)] == values


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_stores_the_records(
    bootstrap_servers: str, unique: str, acks: str
) -> None:
    create(bootstrap_servers, unique)
    values = [str(number) for number in range(100)]
    delivered = produce(bootstrap_servers, unique, values, acks=acks)
    assert [message.value().decode() for message in read_back(bootstrap_servers, unique, 100)] == values
    if acks != "0":
        assert [message.offset() for message in delivered] == list(range(100))


def test_an_idempotent_producer_keeps_the_order(bootstrap_servers: str, unique: str) -> None:
    create(bootstrap_servers, unique)
    values = [str(number) for number in range(2_000)]
    small_batches = {"enable.idempotence": True, "batch.num.messages": 20, "linger.ms": 0}
    delivered = produce(bootstrap_servers, unique, values, **small_batches)
    assert [message.offset() for message in delivered] == list(range(2_000))
    assert [message.value().decode() for message in read_back(bootstrap_servers, unique, 2_000)] == values


def test_keys_headers_and_timestamps_come_back(bootstrap_servers: str, unique: str) -> None:
    create(bootstrap_servers, unique, **{"retention.ms": "-1"})  # the first record is from 2023
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    headers = [("one", b"1"), ("one", b"again"), ("none", None), ("empty", b"")]
    producer.produce(unique, b"value", key=b"key", headers=headers, timestamp=1_700_000_000_123)
    producer.produce(unique, None, key=b"tombstone")
    assert producer.flush(WAIT_S) == 0
    first, second = read_back(bootstrap_servers, unique, 2)
    assert (first.key(), first.value(), first.headers()) == (b"key", b"value", headers)
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1_700_000_000_123)
    assert (second.key(), second.value()) == (b"tombstone", None)


def test_a_topic_with_log_append_time_gives_the_brokers_time(bootstrap_servers: str, unique: str) -> None:
    create(bootstrap_servers, unique, **{"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(unique, b"value", timestamp=1_000)
    assert producer.flush(WAIT_S) == 0
    (message,) = read_back(bootstrap_servers, unique, 1)
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert timestamp > 1_700_000_000_000


def test_a_record_beyond_the_topics_limit_is_refused_and_the_next_one_is_not(
    bootstrap_servers: str, unique: str
) -> None:
    create(bootstrap_servers, unique, **{"max.message.bytes": "2000"})
    errors: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 0})
    for size in (3_000, 100):
        producer.produce(unique, b"x" * size, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(WAIT_S) == 0
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert errors[1] is None


def test_a_topic_is_made_by_the_first_record_sent_to_it(bootstrap_servers: str, unique: str) -> None:
    (message,) = produce(bootstrap_servers, unique, ["first"])
    assert (message.partition(), message.offset()) == (0, 0)
