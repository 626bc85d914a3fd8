"""Partitions are followed by plain fetches: what goes wrong with one of them is no matter of the others."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from headrace.client.cluster import Node, PartitionMetadata, TopicMetadata
from headrace.client.errors import error_for
from headrace.client.settings import ShareSettings
from headrace.client.tailing import Tail, TailPartition
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.fetch_request import FetchRequest
from headrace.wire.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from headrace.wire.records import NewRecord, build_batch
from tests.unit.client.talk import run

TOPIC_ID = bytes(range(16))


class FakeCluster:
    """One broker that leads partition 0, with a record in each partition. The others have no leader yet."""

    def __init__(self, partitions: int) -> None:
        self.nodes = {1: Node(1, "localhost", 1)}
        self.leaders = {
            index: PartitionMetadata(index, 1 if index == 0 else -1, 0) for index in range(partitions)
        }
        self.refresh: Callable[[Iterable[str]], Awaitable[None]] = self.lead
        self._all_lead = asyncio.Event()

    def topic_by_id(self, topic_id: bytes) -> TopicMetadata:
        return TopicMetadata("t", topic_id, partitions=self.leaders)

    async def lead(self, topics: Iterable[str]) -> None:
        assert list(topics) == ["t"]
        self.leaders |= {index: PartitionMetadata(index, 1, 0) for index in self.leaders}
        self._all_lead.set()

    async def connection(self, node_id: int) -> "FakeCluster":
        return self

    async def send(self, request: FetchRequest, *, timeout_ms: float) -> FetchResponse:
        asked = request.topics[0].partitions
        if all(one.fetch_offset for one in asked):
            is_over = self._all_lead.is_set()
            await (asyncio.Event() if is_over else self._all_lead).wait()  # no more records come
        records = build_batch([NewRecord(None, b"there", (), 0)])
        data = [
            PartitionData(partition_index=one.partition, records=b"" if one.fetch_offset else records)
            for one in asked
        ]
        return FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=data)])


class Following:
    """A tail of all partitions of a cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._arrived = asyncio.Event()
        settings = ShareSettings.parse(bootstrap_servers="localhost:1", group_id="g", retry_backoff_ms=5)
        self.tail = Tail(cluster, settings, arrived=self._arrived.set)  # type: ignore[arg-type]
        self.partitions = [self.tail.follow("t", TOPIC_ID, index, 0) for index in cluster.leaders]

    async def arrival_of(self, partition: TailPartition) -> Any:
        while (part := partition.take()) is None:
            await self._arrived.wait()
            self._arrived.clear()
        return part


def test_partitions_without_a_leader_are_asked_for_together_and_beside_the_others() -> None:
    async def scenario() -> None:
        cluster = FakeCluster(partitions=30)
        may_answer = asyncio.Event()
        troubles: list[int] = []

        async def slow(topics: Iterable[str]) -> None:
            troubles.append(len(following.tail.trouble))
            await may_answer.wait()
            if len(troubles) > 1:
                assert len({each.again_s for each in following.partitions[1:]}) == 1, "they go together"
                await cluster.lead(topics)

        cluster.refresh = slow
        following = Following(cluster)
        assert (await following.arrival_of(following.partitions[0])).end == 1
        may_answer.set()
        for partition in following.partitions[1:]:
            assert (await following.arrival_of(partition)).end == 1
        assert troubles == [0, 29], "one look for all of them, and one more"
        await following.tail.close()

    run(scenario())


@pytest.mark.parametrize(
    "error", [error_for(ErrorCode.NETWORK_EXCEPTION), ValueError("a fault of the client")]
)
def test_metadata_that_cannot_be_had_are_asked_for_again(error: Exception) -> None:
    async def scenario() -> None:
        cluster = FakeCluster(partitions=2)

        async def fails_once(_: Iterable[str]) -> None:
            cluster.refresh = cluster.lead
            raise error

        cluster.refresh = fails_once
        following = Following(cluster)
        assert (await following.arrival_of(following.partitions[1])).end == 1
        await following.tail.close()

    run(scenario())
