"""Whole stories told by a real client (librdkafka), where many APIs must play together.

Single features of clients are in `tests/compat/`; here is what only holds if groups, offsets, transactions and the log
agree with each other.
"""

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.compat.confluent import WAIT_S, consumer, produce, take
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.steps import new_topic
from tests.conformance.wire_client import WireClient

COUNT = 300


@pytest.fixture
def topic(wire: WireClient, unique: str) -> str:
    new_topic(wire, unique, partitions=4)
    return unique


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_every_record_is_read_once_while_members_come_and_go(
    broker: BrokerUnderTest, topic: str, protocol: str
) -> None:
    sent = [str(number) for number in range(COUNT)]
    produce(broker.bootstrap_servers, topic, sent)
    seen: list[Message] = []

    def read(member: Consumer, count: int) -> None:
        """Takes records and commits them before anybody else may have the partition."""
        for message in take(member, count):
            member.commit(message=message, asynchronous=False)
            seen.append(message)

    with consumer(broker.bootstrap_servers, topic, **{"group.protocol": protocol}) as first:
        first.subscribe([topic])
        read(first, COUNT // 3)
    with consumer(broker.bootstrap_servers, topic, **{"group.protocol": protocol}) as second:
        second.subscribe([topic])
        read(second, COUNT // 3)
    with consumer(broker.bootstrap_servers, topic, **{"group.protocol": protocol}) as third:
        third.subscribe([topic])
        read(third, COUNT - 2 * (COUNT // 3))
    assert sorted(int(message.value() or b"-1") for message in seen) == list(range(COUNT))


def copy_some(producer: Producer, source: Consumer, target: str, count: int) -> None:
    """Begins a transaction that copies the next records and moves the group on behind them; leaves it open."""
    messages = take(source, count)
    producer.begin_transaction()
    positions: dict[tuple[str, int], int] = {}
    for message in messages:
        producer.produce(target, message.value())
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        assert topic is not None
        assert partition is not None
        assert offset is not None
        positions[topic, partition] = offset + 1
    moved = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
    producer.send_offsets_to_transaction(moved, source.consumer_group_metadata(), WAIT_S)


def test_a_copy_made_in_transactions_is_exact_whatever_happens_to_the_copier(
    broker: BrokerUnderTest, wire: WireClient, topic: str
) -> None:
    copy, step = f"{topic}-copy", COUNT // 5
    new_topic(wire, copy)
    produce(broker.bootstrap_servers, topic, [str(number) for number in range(COUNT)])
    done, lives = 0, 0
    while done < COUNT:
        lives += 1
        settings = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": topic, "linger.ms": 1}
        producer = Producer(settings)
        producer.init_transactions(WAIT_S)
        with consumer(broker.bootstrap_servers, topic) as source:
            source.subscribe([topic])
            # Each life commits one batch of records and ends in the next: by an abort, or just so.
            copy_some(producer, source, copy, step)
            producer.commit_transaction(WAIT_S)
            done += step
            if done < COUNT:
                copy_some(producer, source, copy, step)
                producer.abort_transaction(WAIT_S) if lives % 2 else producer.flush(WAIT_S)
        del producer
    with consumer(
        broker.bootstrap_servers, f"{topic}-reader", **{"isolation.level": "read_committed"}
    ) as reader:
        reader.subscribe([copy])
        copied = [int(message.value() or b"-1") for message in take(reader, COUNT)]
        assert reader.poll(0.3) is None
    assert sorted(copied) == list(range(COUNT))
    assert lives == 5
