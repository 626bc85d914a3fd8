"""kafka-python: producer, consumer group, transactions and the admin client, in pure Python."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions, NewTopic
from kafka.errors import TopicAlreadyExistsError, UnknownTopicOrPartitionError

from tests.compat.confluent import wait_for

WAIT_MS = 30_000


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


@contextmanager
def producer(bootstrap_servers: str, **settings: Any) -> Iterator[KafkaProducer]:
    client = KafkaProducer(bootstrap_servers=bootstrap_servers, **settings)
    try:
        yield client
    finally:
        client.close()


@contextmanager
def consumer(bootstrap_servers: str, *topics: str, **settings: Any) -> Iterator[KafkaConsumer]:
    client = KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=WAIT_MS,
        heartbeat_interval_ms=200,
        **settings,
    )
    try:
        yield client
    finally:
        client.close()


def take(source: KafkaConsumer, count: int) -> list[bytes]:
    return [next(source).value for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_records_come_back_as_they_were_sent(bootstrap_servers: str, unique: str, codec: str | None) -> None:
    with producer(bootstrap_servers, compression_type=codec, acks="all", linger_ms=5) as sender:
        sent = [
            sender.send(unique, b"value %d" % n, key=b"k", headers=[("name", b"value")]) for n in range(200)
        ]
        assert [one.get(30).offset for one in sent] == list(range(200))
    with consumer(bootstrap_servers, unique, group_id=None) as source:
        first = next(source)
        assert (first.key, first.value, list(first.headers)) == (b"k", b"value 0", [("name", b"value")])
        assert take(source, 199) == [b"value %d" % n for n in range(1, 200)]


def test_a_group_goes_on_where_it_committed(
    bootstrap_servers: str, admin: KafkaAdminClient, unique: str
) -> None:
    admin.create_topics([NewTopic(unique, num_partitions=3, replication_factor=1)], wait_for_metadata=True)
    with producer(bootstrap_servers) as sender:
        for number in range(30):
            sender.send(unique, b"%d" % number, partition=number % 3)
        sender.flush()
        with consumer(bootstrap_servers, unique, group_id=unique) as source:
            assert sorted(map(int, take(source, 30))) == list(range(30))
            source.commit()
        sender.send(unique, b"later", partition=1).get(30)
    with consumer(bootstrap_servers, unique, group_id=unique) as source:
        assert take(source, 1) == [b"later"]
        partition = TopicPartition(unique, 1)
        assert source.beginning_offsets([partition]) == {partition: 0}
        assert source.end_offsets([partition]) == {partition: 11}
        found = source.offsets_for_times({partition: 0})[partition]
        assert found is not None
        assert found.offset == 0


def test_a_transaction_is_seen_whole_or_not_at_all(bootstrap_servers: str, unique: str) -> None:
    with producer(bootstrap_servers, transactional_id=unique, linger_ms=0) as sender:
        sender.init_transactions()
        for value, end in [(b"aborted", sender.abort_transaction), (b"committed", sender.commit_transaction)]:
            sender.begin_transaction()
            sender.send(unique, value).get(30)
            end()
    with consumer(bootstrap_servers, unique, isolation_level="read_committed") as source:
        assert take(source, 1) == [b"committed"]


def test_the_admin_client_makes_changes_and_sees_them(
    bootstrap_servers: str, admin: KafkaAdminClient, unique: str
) -> None:
    topic = NewTopic(unique, num_partitions=1, replication_factor=1, topic_configs={"retention.ms": "5000"})
    admin.create_topics([topic], wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([topic])
    admin.create_partitions({unique: NewPartitions(2)})
    wait_for(lambda: len(admin.describe_topics([unique])[0]["partitions"]) == 2, "the second partition")
    with producer(bootstrap_servers) as sender:
        for number in range(5):
            sender.send(unique, b"%d" % number, partition=0)
        sender.flush()
    partition = TopicPartition(unique, 0)
    admin.delete_records({partition: 3})
    with consumer(bootstrap_servers, unique, group_id=unique) as source:
        assert take(source, 2) == [b"3", b"4"]
        source.commit()
    assert admin.list_group_offsets({unique: None})[unique][partition].offset == 5
    assert unique in {group["group_id"] for group in admin.list_groups()}
    admin.delete_groups([unique])
    assert unique not in {group["group_id"] for group in admin.list_groups()}
    admin.delete_topics([unique])
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([unique])
