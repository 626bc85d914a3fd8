"""Goal: locks on records that are being worked on survive what happens to other brokers, and their loss is told.

Method: a consumer holds a record of each partition, longer than a lock lasts; one of the leaders is killed meanwhile.
Another consumer is killed itself: what it held goes to others.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.client.delivery import Delivery, TopicPartition
from headrace.client.sync import ShareConsumer
from headrace.wire.errors import KafkaError
from tests.chaos.holding_process import start_holding
from tests.cluster.brokers import NODES, WAIT_S_MAX, Brokers, wait_until

pytestmark = [pytest.mark.needs_kafka, pytest.mark.timeout(300)]
LOCK_S = 4.0
NewConsumer = Callable[..., ShareConsumer]


@pytest.fixture
def topic(brokers: Brokers, unique: str) -> str:
    """Its partitions are led by all nodes between them; each has one record."""
    brokers.new_topic(unique, len(NODES))
    brokers.set_group(unique, lock_s=LOCK_S)
    producer = Producer({"bootstrap.servers": brokers.addresses, "acks": "all"})
    for partition in range(len(NODES)):
        producer.produce(unique, str(partition), partition=partition)
    assert producer.flush(WAIT_S_MAX) == 0
    assert set(brokers.leaders(unique).values()) == set(NODES)
    return unique


@pytest.fixture
def consumer(brokers: Brokers, topic: str) -> Iterator[NewConsumer]:
    with ExitStack() as stack:

        def make(**settings: Any) -> ShareConsumer:
            made = ShareConsumer(
                bootstrap_servers=brokers.addresses,
                group_id=topic,
                share_acknowledgement_mode="explicit",
                max_unacknowledged=10,
                **settings,
            )
            stack.callback(made.close)
            made.subscribe([topic])
            return made

        yield make


def take_into(held: dict[int, Delivery], consumer: ShareConsumer) -> int:
    """Polls once, and keeps what comes by partition; returns how many are held."""
    held |= {one.partition: one for one in consumer.poll(0.2)}
    return len(held)


def test_the_death_of_a_leader_takes_its_locks_and_no_others(
    brokers: Brokers, topic: str, consumer: NewConsumer
) -> None:
    lost: list[tuple[Sequence[Delivery], KafkaError]] = []
    mine = consumer(auto_renew=True, on_lost=lambda deliveries, error: lost.append((deliveries, error)))
    held: dict[int, Delivery] = {}
    wait_until("all records are held", lambda: take_into(held, mine) == len(NODES))
    first_deadlines = {partition: one.lock_deadline for partition, one in held.items()}
    leaders = brokers.leaders(topic)
    victim = leaders[0]
    assert victim is not None
    brokers.kill(victim)
    wait_until("the loss is told", lambda: bool(lost))
    assert [(list(deliveries), held[0].is_lost) for deliveries, _ in lost] == [([held[0]], True)]
    others = {partition for partition in held if leaders[partition] != victim}
    assert others == {1, 2}

    def are_renewed_twice() -> bool:
        return all(held[one].lock_deadline > first_deadlines[one] + 1.5 * LOCK_S for one in others)

    wait_until("the other locks live on", are_renewed_twice)
    assert [held[partition].is_lost for partition in others] == [False, False]
    again: dict[int, Delivery] = {}
    wait_until("the lost record comes again", lambda: take_into(again, mine) == 1)
    assert [(one.partition, one.offset, one.value) for one in again.values()] == [(0, 0, b"0")]
    told: list[tuple[Any, Any]] = []
    mine.set_acknowledgement_commit_callback(lambda offsets, error: told.append((offsets, error)))
    held[0].accept()  # too late, and must not count for the new delivery
    for partition in others:
        held[partition].accept()
    results = mine.commit_sync(WAIT_S_MAX)
    assert any(TopicPartition(topic, 0) in offsets and error is not None for offsets, error in told)
    results.pop(TopicPartition(topic, 0), None)  # the refusal may have been told before the commit began
    assert results == dict.fromkeys((TopicPartition(topic, partition) for partition in (1, 2)), None)
    again[0].accept()
    assert mine.commit_sync(WAIT_S_MAX) == {TopicPartition(topic, 0): None}
    wait_until("all is settled", lambda: not any(brokers.lag(topic, len(NODES)).values()))


def test_what_a_killed_consumer_held_goes_to_another(
    brokers: Brokers, topic: str, consumer: NewConsumer, tmp_path: Path
) -> None:
    # The dead member keeps its share of the partitions until its session ends.
    brokers.admin.set_group_config(topic, {"share.session.timeout.ms": 6_000})
    places = [(partition, 0) for partition in range(len(NODES))]
    process, held = start_holding(tmp_path / "held", brokers.addresses, topic, topic, len(NODES))
    assert held == places
    process.kill()
    taken: dict[int, Delivery] = {}
    other = consumer(auto_renew=True)
    wait_until("all came back", lambda: take_into(taken, other) == len(NODES))
    for one in taken.values():
        one.accept()
    assert set(other.commit_sync(WAIT_S_MAX).values()) == {None}
    assert sorted((one.partition, one.offset) for one in taken.values()) == places
    assert [one.delivery_count for one in taken.values()] == [2, 2, 2]
