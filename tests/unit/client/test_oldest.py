"""The time of the oldest unsettled record: read once, kept while a group stands there."""

import asyncio

from headrace import Admin, Broker, Producer
from headrace.client import oldest as oldest_module
from headrace.client.cluster import Cluster
from headrace.client.oldest import OldestRecords, Standing
from headrace.client.settings import ClientSettings
from headrace.wire.errors import ErrorCode, KafkaError


def test_times_are_read_once_and_the_largest_lag_first() -> None:
    with Broker() as broker:
        broker.call(lambda: broker.core.topics.create("orders", partitions=1, configs={}))
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(3):
                producer.send("orders", b"x", timestamp=1_000 + number).result()
        producer_done = [Standing("orders", 0, offset) for offset in range(3)]

        async def story() -> None:
            async with Cluster(ClientSettings.parse(bootstrap_servers=broker.bootstrap_servers)) as cluster:
                oldest = OldestRecords(cluster, reads_max=2)
                lags = dict(zip(producer_done, (1, 5, 3), strict=True))
                await oldest.refresh(lags)
                assert [oldest.oldest_ms([place]) for place in producer_done] == [None, 1_001, 1_002]
                await oldest.refresh(lags)
                assert oldest.oldest_ms(producer_done) == 1_000
                await oldest.refresh({})
                assert oldest.oldest_ms(producer_done) is None
                await oldest.refresh({Standing("orders", 0, 99): 1, Standing("nowhere", 0, 0): 1})
                assert oldest.oldest_ms([Standing("orders", 0, 99), Standing("nowhere", 0, 0)]) is None

        asyncio.run(story())


def test_what_could_not_be_read_is_tried_again_a_few_at_a_time(monkeypatch) -> None:
    """A group that is stuck stands at one place for long: an election must not hide its age until it moves."""
    away = {Standing("orders", number, 0) for number in range(oldest_module.AT_ONCE + 1)}
    asked: list[Standing] = []

    async def record_time(_: Cluster, place: Standing) -> int:
        asked.append(place)
        if place in away:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE)
        return 1_000 + place.partition

    monkeypatch.setattr(oldest_module, "record_time", record_time)

    async def story() -> None:
        oldest = OldestRecords(Cluster(ClientSettings.parse(bootstrap_servers="localhost:1")))
        lags = dict.fromkeys(away, 1)
        await oldest.refresh(lags)
        assert oldest.oldest_ms(lags) is None
        asked.clear()
        new = Standing("orders", 99, 0)
        await oldest.refresh({**lags, new: 1})
        assert len(asked) == oldest_module.AT_ONCE + 1
        assert oldest.oldest_ms([new]) == 1_099
        away.clear()
        for _ in range(2):
            await oldest.refresh(lags)
        assert [oldest.oldest_ms([place]) for place in lags] == [1_000 + place.partition for place in lags]

    asyncio.run(story())


def test_a_record_that_was_compacted_away_has_the_time_of_the_next() -> None:
    with Broker() as broker:
        broker.call(lambda: broker.core.topics.create("orders", partitions=1, configs={}))
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b"x", timestamp=1_000).result()
            with producer_with_transaction(broker) as transactional:
                transactional.begin()
                transactional.send("orders", b"x", timestamp=2_000).result()
                transactional.commit()  # its marker at offset 2 has no record
            producer.send("orders", b"x", timestamp=3_000).result()

        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            times = [admin.record_time("orders", 0, offset) for offset in range(5)]
            assert times == [1_000, 2_000, 3_000, 3_000, None]
            assert admin.record_time("nowhere", 0, 0) is None


def producer_with_transaction(broker: Broker) -> Producer:
    return Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="t")
