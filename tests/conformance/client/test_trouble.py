"""Locks, partitions, topics and brokers that go away while records are in hand: all is answered or told, once."""

import asyncio
from pathlib import Path
from typing import Any

from headrace import Broker
from headrace.client.aio import AsyncShareConsumer
from headrace.client.delivery import Delivery, TopicPartition
from headrace.client.errors import InvalidRecordStateError
from headrace.client.sync import ShareConsumer
from tests.conformance.client.conftest import NewConsumer
from tests.conformance.client.steps import one_poll, take
from tests.conformance.conftest import SHARE_SETTINGS, BrokerUnderTest
from tests.conformance.share.share_client import describe_share_group, fill, new_queue
from tests.conformance.steps import wait_for
from tests.conformance.wire_client import WireClient


def test_an_implicit_accept_that_comes_too_late_is_reported(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 2, record_lock_duration_ms="1000")
    slow = consumer()
    deliveries = one_poll(slow)
    wait_for(lambda: all(delivery.is_lost for delivery in deliveries))
    (error,) = slow.commit_sync().values()
    assert isinstance(error, InvalidRecordStateError)


def test_records_of_a_partition_that_moves_to_another_member_can_still_be_answered(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1, partitions=2, heartbeat_interval_ms="50")
    first = consumer(share_acknowledgement_mode="explicit", max_unacknowledged=10)
    held = take(first, 2)
    consumer(share_acknowledgement_mode="explicit")
    wait_for(lambda: _shares(wire, unique) == [1, 1])
    fill(wire, unique, 1, partition=0)
    first.poll(0.3)
    for delivery in held:
        delivery.accept()
    results = first.commit_sync()
    assert set(results.values()) <= {None}


def _shares(wire: WireClient, group: str) -> list[int]:
    return [
        sum(len(one.partitions) for one in member.assignment.topic_partitions)
        for member in describe_share_group(wire, group).members
    ]


def test_a_closed_consumer_gives_back_what_it_held_in_partitions_it_lost(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    new_queue(wire, unique, 1, partitions=2, heartbeat_interval_ms="50")
    first = consumer(share_acknowledgement_mode="explicit", max_unacknowledged=10)
    take(first, 2)
    second = consumer(share_acknowledgement_mode="explicit", max_unacknowledged=10)
    wait_for(lambda: _shares(wire, unique) == [1, 1])
    first.poll(0.5)  # a fetch forgets the partition that went
    first.close()
    again = take(second, 2, within_s=10)
    assert sorted((one.partition, one.offset) for one in again) == [(0, 0), (1, 0)]


def test_a_deleted_topic_fails_what_was_held_and_nothing_else(
    wire: WireClient, consumer: NewConsumer, unique: str
) -> None:
    other = f"{unique}-other"
    # Short locks: Apache Kafka 4.3 fails one fetch as a whole here, and forgets to give back what it had acquired.
    new_queue(wire, unique, 1, heartbeat_interval_ms="50", record_lock_duration_ms="1000")
    new_queue(wire, other, 1, group=unique)
    mine = consumer(unique, other, share_acknowledgement_mode="explicit", max_unacknowledged=10)
    held = take(mine, 2)
    wire.ask("delete_topics", 5, topic_names=[other], timeout_ms=10_000)
    for delivery in held:
        if delivery.topic == other:
            delivery.accept()
    results = mine.commit_sync()
    assert results[TopicPartition(other, 0)] is not None
    fill(wire, unique, 1)
    assert wait_for(lambda: (unique, 1) in {(one.topic, one.offset) for one in mine.poll(0.2)})


def test_a_poll_that_waits_ends_when_the_consumer_is_closed(
    broker: BrokerUnderTest, wire: WireClient, unique: str
) -> None:
    new_queue(wire, unique)

    async def run() -> list[Delivery]:
        consumer = AsyncShareConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=unique)
        consumer.subscribe([unique])
        await consumer.poll(0.1)
        polling = asyncio.create_task(consumer.poll(30))
        await asyncio.sleep(0)
        await consumer.close()
        async with asyncio.timeout(5):
            return await polling

    assert asyncio.run(run()) == []


def test_a_consumer_lives_through_a_restart_of_the_broker(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**SHARE_SETTINGS, "group.share.heartbeat.interval.ms": 50}
    lost: list[Delivery] = []
    with Broker(data_dir=tmp_path, settings=settings) as first:
        port = int(first.bootstrap_servers.rpartition(":")[2])
        with WireClient(first.bootstrap_servers) as wire:
            new_queue(wire, "q", 4)
        consumer = ShareConsumer(
            bootstrap_servers=first.bootstrap_servers,
            group_id="q",
            share_acknowledgement_mode="explicit",
            on_lost=lambda found, _: lost.extend(found),
        )
        consumer.subscribe(["q"])
        one, two, three, four = one_poll(consumer)
        one.accept()
        two.accept()
        assert consumer.commit_sync() == {TopicPartition("q", 0): None}
    wait_for(lambda: len(lost) == 2)
    assert lost == [three, four]
    assert three.is_lost
    with Broker(data_dir=tmp_path, settings=settings, port=port):
        three.accept()  # too late, which is told
        four.accept()
        (error,) = consumer.commit_sync().values()
        assert isinstance(error, InvalidRecordStateError)
        assert [delivery.offset for delivery in take(consumer, 2)] == [2, 3]
        consumer.close()
