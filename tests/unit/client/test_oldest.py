"""The time of the oldest unsettled record: read once, kept while a group stands there."""

import asyncio

from headrace import Broker, Producer
from headrace.client.cluster import Cluster
from headrace.client.oldest import OldestRecords, Standing
from headrace.client.settings import ClientSettings


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
