"""Goal: a tool's few records are appended, or it is said why not. Method: the real broker in process."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from headrace import Broker
from headrace.client.cluster import Cluster
from headrace.client.errors import (
    ConnectionLost,
    InvalidTopicError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from headrace.client.plain_fetch import read_range
from headrace.client.plain_produce import produce
from headrace.wire.records import NewRecord, read_records
from tests.unit.client.misbehaving import Relay
from tests.unit.client.talk import create_topic, settings_for

T = TypeVar("T")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        create = broker.core.topics.create
        broker.call(lambda: create("orders", partitions=2, configs={"max.message.bytes": "1000"}))
        yield broker


def run(broker: Broker, work: Callable[[Cluster], Awaitable[T]]) -> T:
    async def go() -> T:
        async with Cluster(settings_for(broker, default_api_timeout_ms=200)) as cluster:
            return await work(cluster)

    return asyncio.run(go())


def test_records_are_there_with_their_headers_and_the_first_offset_is_returned(broker: Broker) -> None:
    async def work(cluster: Cluster) -> list[object]:
        sent = [NewRecord(b"k", b"one", [("h", None)], 5), NewRecord(None, b"two", (), 6)]
        first = await produce(cluster, "orders", 1, sent)
        batches = [batch async for _, batch in read_range(cluster, "orders", 1, first, first + 1)]
        return [
            (record.offset - first, record.key, record.value, record.headers, record.timestamp)
            for batch in batches
            for record in read_records(batch)
        ]

    assert run(broker, work) == [(0, b"k", b"one", [("h", None)], 5), (1, None, b"two", [], 6)]


@pytest.mark.parametrize(
    ("topic", "partition", "value", "error"),
    [
        ("nothing", 0, b"", UnknownTopicOrPartitionError),
        ("orders", 7, b"", UnknownTopicOrPartitionError),
        ("orders", 0, bytes(2000), RecordTooLargeError),
        ("__consumer_offsets", 0, b"", InvalidTopicError),
    ],
)
def test_what_the_broker_refuses_is_raised_with_its_place(
    broker: Broker, topic: str, partition: int, value: bytes, error: type[Exception]
) -> None:
    broker.call(lambda: broker.core.topics.internal("__consumer_offsets"))

    async def work(cluster: Cluster) -> None:
        with pytest.raises(error, match=f"{topic}-{partition}"):
            await produce(cluster, topic, partition, [NewRecord(None, value)])

    run(broker, work)


@pytest.mark.parametrize("is_repeatable", [False, True])
def test_records_whose_answer_is_lost_are_sent_again_only_if_they_may_be_there_twice(
    unique: str, is_repeatable: bool
) -> None:
    async def work() -> None:
        async with Relay() as relay:
            with relay.behind() as broker:
                async with Cluster(settings_for(relay.address, default_api_timeout_ms=10_000)) as cluster:
                    await create_topic(cluster, unique)
                    relay.lose_answer(broker, unique)
                    sent = produce(
                        cluster, unique, 0, [NewRecord(None, b"once or twice")], is_repeatable=is_repeatable
                    )
                    if is_repeatable:
                        assert await sent == 1, "the first one is at offset 0"
                    else:
                        with pytest.raises(ConnectionLost):
                            await sent
                    assert broker.core.topics.require(unique, 0).log.end_offset == 1 + is_repeatable

    asyncio.run(work())
