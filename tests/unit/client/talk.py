"""What tests of the client need around it: topics made and records written through the client's own connections."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from headrace import Broker
from headrace.client.cluster import ANY, Cluster, TopicMetadata
from headrace.client.settings import ClientSettings
from headrace.wire.batches import Compression
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import NewRecord, build_batch

T = TypeVar("T")
NOT_YET_LED = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
FAST = {"retry_backoff_ms": 5, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 40}


def run(
    coroutine: Coroutine[Any, Any, T],
    timeout_s: float = 30.0,
    *,
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(timeout_s):
            return await coroutine

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(bounded())


def settings_for(broker: Broker | str, **keywords: Any) -> ClientSettings:
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    return ClientSettings.parse(**{"bootstrap_servers": servers, **FAST, **keywords})


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = 1,
    replicas: int = 1,
    configs: Mapping[str, str] | None = None,
) -> TopicMetadata:
    asked = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
    )
    answer = await cluster.send(ANY, CreateTopicsRequest(topics=[asked]))
    assert not answer.topics[0].error_code, answer
    while True:  # Apache's brokers hear of a new topic a moment after its maker
        await cluster.refresh([name])
        topic = cluster.topic(name)
        if topic is not None and all(each.leader_id >= 0 for each in topic.partitions.values()):
            return topic


async def produce(
    cluster: Cluster,
    topic: TopicMetadata,
    values: Sequence[bytes],
    *,
    key: bytes | None = None,
    partition: int = 0,
    compression: Compression = Compression.NONE,
    timestamp: int = 1_000,
) -> int:
    """Writes one batch and returns the offset of its first record."""
    batch = build_batch([NewRecord(key, value, (), timestamp) for value in values], compression=compression)
    data = TopicProduceData(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_data=[PartitionProduceData(index=partition, records=batch)],
    )
    request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    while True:
        answer = await cluster.send(topic.partitions[partition].leader_id, request)
        written = answer.responses[0].partition_responses[0]
        if written.error_code not in NOT_YET_LED:
            assert not written.error_code, written
            return int(written.base_offset)
        await asyncio.sleep(0.01)  # Apache names a leader a moment before it leads, and gives no signal


async def delete_records(cluster: Cluster, topic: TopicMetadata, before: int) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=before)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic.name, partitions=[partition])], timeout_ms=10_000
    )
    answer = await cluster.send(topic.partitions[0].leader_id, request)
    assert not answer.topics[0].partitions[0].error_code, answer
