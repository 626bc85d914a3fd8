"""aiokafka: producer, consumer group, transactions and the admin client."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import ProducerFenced

WAIT_S = 60


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, WAIT_S))
    # A fenced producer leaves futures that nobody asks; collected here, they complain into this test's own log.
    gc.collect()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    while not await condition():  # noqa: ASYNC110 (what is waited for is in another process)
        await asyncio.sleep(0.05)


@asynccontextmanager
async def reading(bootstrap_servers: str, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=200,
        metadata_max_age_ms=1_000,
        **settings,
    )
    await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def take(consumer: AIOKafkaConsumer, count: int) -> list[bytes | None]:
    return [(await consumer.getone()).value for _ in range(count)]


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_records_come_back_as_they_were_sent(bootstrap_servers: str, unique: str, codec: str | None) -> None:
    async def story() -> None:
        headers = [("name", b"value")]
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, compression_type=codec, acks="all"
        ) as sender:
            sent = [await sender.send(unique, b"value %d" % n, key=b"k", headers=headers) for n in range(100)]
            assert [(await one).offset for one in sent] == list(range(100))
        async with reading(bootstrap_servers, unique) as consumer:
            first = await consumer.getone()
            assert (first.key, first.value, first.headers) == (b"k", b"value 0", (("name", b"value"),))
            assert await take(consumer, 99) == [b"value %d" % n for n in range(1, 100)]

    run(story())


def test_a_group_shares_partitions_and_goes_on_where_it_committed(
    bootstrap_servers: str, unique: str
) -> None:
    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
        await admin.start()
        await admin.create_topics([NewTopic(unique, 4, 1)])
        await admin.close()
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as sender:
            for number in range(40):
                await sender.send_and_wait(unique, b"%d" % number, partition=number % 4)
            async with reading(bootstrap_servers, unique, group_id=unique) as first:
                assert sorted(int(value or b"") for value in await take(first, 40)) == list(range(40))
                await first.commit()
                async with reading(bootstrap_servers, unique, group_id=unique) as second:
                    await until(lambda: two_each(first, second))
                    assert first.assignment() | second.assignment() == {
                        TopicPartition(unique, n) for n in range(4)
                    }
            await sender.send_and_wait(unique, b"later", partition=2)
            async with reading(bootstrap_servers, unique, group_id=unique) as again:
                assert await take(again, 1) == [b"later"]

    run(story())


async def two_each(*members: AIOKafkaConsumer) -> bool:
    return {len(member.assignment()) for member in members} == {2}


def test_transactions_commit_abort_and_fence(bootstrap_servers: str, unique: str) -> None:
    async def story() -> None:
        sender = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=unique)
        await sender.start()
        async with sender.transaction():
            await sender.send_and_wait(unique, b"committed")
        await sender.begin_transaction()
        await sender.send_and_wait(unique, b"aborted")
        await sender.abort_transaction()
        async with sender.transaction():
            await sender.send_and_wait(unique, b"committed too")
            await sender.send_offsets_to_transaction({TopicPartition(unique, 0): 7}, f"{unique}-group")
        async with reading(bootstrap_servers, unique, isolation_level="read_committed") as consumer:
            assert await take(consumer, 2) == [b"committed", b"committed too"]
        async with reading(bootstrap_servers, unique, group_id=f"{unique}-group") as consumer:
            assert await consumer.committed(TopicPartition(unique, 0)) == 7
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=unique):
            with pytest.raises(ProducerFenced):
                async with sender.transaction():
                    await sender.send_and_wait(unique, b"too late")
        await sender.stop()

    run(story())


def test_the_admin_client_makes_changes_and_sees_them(bootstrap_servers: str, unique: str) -> None:
    async def story() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
        await admin.start()
        await admin.create_topics([NewTopic(unique, 2, 1, topic_configs={"retention.ms": "5000"})])
        await admin.create_partitions({unique: NewPartitions(3)})
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as sender:
            for number in range(5):
                await sender.send_and_wait(unique, b"%d" % number, partition=0)
        deleted = await admin.delete_records({TopicPartition(unique, 0): RecordsToDelete(before_offset=2)})
        assert deleted == {TopicPartition(unique, 0): 2}

        async def has_three_partitions() -> bool:
            (topic,) = await admin.describe_topics([unique])
            return len(topic["partitions"]) == 3

        async def is_gone() -> bool:
            return unique not in await admin.list_topics()

        await until(has_three_partitions)
        (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, unique)])
        values = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert values["retention.ms"] == "5000"
        async with reading(bootstrap_servers, unique, group_id=unique) as consumer:
            await take(consumer, 3)
            await consumer.commit()
            (described,) = await admin.describe_consumer_groups([unique])
            assert described.groups[0][1:3] == (unique, "Stable")
        offsets = await admin.list_consumer_group_offsets(unique)
        assert offsets[TopicPartition(unique, 0)].offset == 5
        assert (unique, "consumer") in {entry[:2] for entry in await admin.list_consumer_groups()}
        await admin.delete_topics([unique])
        await until(is_gone)
        await admin.close()

    run(story())
