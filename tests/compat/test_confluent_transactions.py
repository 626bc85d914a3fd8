"""confluent-kafka's transactional producer: commit, abort, consume-transform-produce, fencing."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.confluent import WAIT_S, consumer, nothing_more, partitions, produce, take


@pytest.fixture
def topic(bootstrap_servers: str, unique: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.create_topics([NewTopic(unique, num_partitions=2)])[unique].result(WAIT_S)
    return unique


def transactional(bootstrap_servers: str, name: str) -> Producer:
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": name, "linger.ms": 0})
    producer.init_transactions(WAIT_S)
    return producer


@contextmanager
def reading(bootstrap_servers: str, topic: str, isolation: str) -> Iterator[Consumer]:
    with consumer(bootstrap_servers, f"reads-{isolation}", **{"isolation.level": isolation}) as source:
        source.assign(partitions(topic, 0))
        yield source


def test_only_what_was_committed_is_seen_by_those_who_ask_for_that(
    bootstrap_servers: str, topic: str
) -> None:
    producer = transactional(bootstrap_servers, topic)
    for name, end in [("one", producer.commit_transaction), ("two", producer.abort_transaction)]:
        producer.begin_transaction()
        for number in range(3):
            producer.produce(topic, f"{name}-{number}", partition=0)
        producer.flush(WAIT_S)
        end(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, "three", partition=0)
    producer.commit_transaction(WAIT_S)
    with reading(bootstrap_servers, topic, "read_committed") as source:
        assert [m.value().decode() for m in take(source, 4)] == ["one-0", "one-1", "one-2", "three"]
        assert nothing_more(source)
    with reading(bootstrap_servers, topic, "read_uncommitted") as source:
        seen = take(source, 7)
        assert [m.value().decode() for m in seen[3:6]] == ["two-0", "two-1", "two-2"]
        # Every transaction ends with a marker, which takes an offset of its own.
        assert [m.offset() for m in seen] == [0, 1, 2, 4, 5, 6, 8]


def test_an_open_transaction_holds_back_only_those_who_read_committed(
    bootstrap_servers: str, topic: str
) -> None:
    producer = transactional(bootstrap_servers, topic)
    producer.begin_transaction()
    producer.produce(topic, "open", partition=0)
    producer.flush(WAIT_S)
    plain = Producer({"bootstrap.servers": bootstrap_servers})
    plain.produce(topic, "plain", partition=0)
    assert plain.flush(WAIT_S) == 0
    with reading(bootstrap_servers, topic, "read_uncommitted") as source:
        assert [m.value() for m in take(source, 2)] == [b"open", b"plain"]
    with reading(bootstrap_servers, topic, "read_committed") as source:
        assert nothing_more(source)
        producer.commit_transaction(WAIT_S)
        assert [m.value() for m in take(source, 2)] == [b"open", b"plain"]


def test_consumed_offsets_are_committed_with_what_was_produced(bootstrap_servers: str, topic: str) -> None:
    produce(bootstrap_servers, topic, [str(number) for number in range(20)])
    target = f"{topic}-out"
    producer = transactional(bootstrap_servers, topic)
    for end in (producer.abort_transaction, producer.commit_transaction):
        with consumer(bootstrap_servers, topic) as source:
            source.subscribe([topic])
            messages = take(source, 20)
            producer.begin_transaction()
            for message in messages:
                producer.produce(target, message.value() + b"!", partition=0)
            producer.flush(WAIT_S)
            offsets = source.position(source.assignment())
            producer.send_offsets_to_transaction(offsets, source.consumer_group_metadata(), WAIT_S)
            end(WAIT_S)
    with consumer(bootstrap_servers, topic) as source:
        committed = source.committed(partitions(topic, 0, 0), timeout=WAIT_S)
        assert sum(partition.offset for partition in committed) == 20
        source.subscribe([topic])
        assert nothing_more(source)
    with reading(bootstrap_servers, target, "read_committed") as source:
        assert {m.value() for m in take(source, 20)} == {b"%d!" % number for number in range(20)}
        assert nothing_more(source)


def test_a_second_producer_of_the_same_name_fences_the_first(bootstrap_servers: str, topic: str) -> None:
    first = transactional(bootstrap_servers, topic)
    first.begin_transaction()
    first.produce(topic, "from the first", partition=0)
    first.flush(WAIT_S)
    second = transactional(bootstrap_servers, topic)
    with pytest.raises(KafkaException) as raised:
        first.commit_transaction(WAIT_S)
    assert raised.value.args[0].code() in {KafkaError._FENCED, KafkaError.PRODUCER_FENCED}
    second.begin_transaction()
    second.produce(topic, "from the second", partition=0)
    second.commit_transaction(WAIT_S)
    with reading(bootstrap_servers, topic, "read_committed") as source:
        assert [m.value() for m in take(source, 1)] == [b"from the second"]


def test_one_transaction_spans_partitions_and_topics(bootstrap_servers: str, topic: str) -> None:
    producer = transactional(bootstrap_servers, topic)
    producer.begin_transaction()
    for name in (topic, f"{topic}-more"):
        producer.produce(name, name, partition=0)
    producer.produce(topic, topic, partition=1)
    producer.commit_transaction(WAIT_S)
    everywhere = [
        TopicPartition(topic, 0, 0),
        TopicPartition(topic, 1, 0),
        TopicPartition(f"{topic}-more", 0, 0),
    ]
    with consumer(bootstrap_servers, topic, **{"isolation.level": "read_committed"}) as source:
        source.assign(everywhere)
        assert sorted(m.value().decode() for m in take(source, 3)) == sorted([topic, topic, f"{topic}-more"])
