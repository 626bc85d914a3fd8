"""Appends a few records to one partition, with acks=all: for tools that put records back. Not a producer.

    offset = await produce(cluster, "orders", 0, [NewRecord(b"key", b"value")])

A refusal that passes (a change of leader, above all) is waited out and the batch is sent again: it was not written.
Where the outcome is unknown (the connection broke, no answer in time) nothing is sent again, unless `is_repeatable`:
ConnectionLost or RequestTimeoutError says so, and the records may be there or not.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence

from headrace.client.cluster import Cluster, Partition, Topic
from headrace.client.errors import ConnectionLost, RequestTimeoutError, error_for, is_retriable
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.produce_response import ProduceResponse
from headrace.wire.records import NewRecord, build_batch

ALL_IN_SYNC = -1
UNKNOWN_OUTCOME = (ConnectionLost, RequestTimeoutError)


async def produce(
    cluster: Cluster,
    topic: str,
    partition: int,
    records: Sequence[NewRecord],
    *,
    is_repeatable: bool = False,
) -> int:
    """Returns the offset of the first record. KafkaError when the broker refuses, or will not have it in time.

    `is_repeatable`: better written twice than not at all.
    """
    batch = build_batch(records)
    deadline = _now() + cluster.settings.default_api_timeout_ms / 1000
    tries = 0
    while True:
        try:
            found, led = await _find(cluster, topic, partition)
            response = await _send(cluster, found, led, batch)
        except KafkaError as error:
            if isinstance(error, UNKNOWN_OUTCOME) and not is_repeatable:
                raise
            refusal = error  # nothing was sent, or it may be sent again
        else:
            answer = response.responses[0].partition_responses[0]
            if not answer.error_code:
                return answer.base_offset
            refusal = error_for(
                answer.error_code, answer.error_message, about=f"partition {topic}-{partition}"
            )
        settings = cluster.settings
        wait_ms = min(settings.retry_backoff_max_ms, settings.retry_backoff_ms << min(tries, 30))
        wait_s = wait_ms * random.uniform(0.8, 1.2) / 1000
        if not is_retriable(refusal.code) or _now() + wait_s > deadline:
            raise refusal
        tries += 1
        await asyncio.sleep(wait_s)
        with contextlib.suppress(ConnectionError, TimeoutError):  # the next round says so
            await cluster.refresh([topic])


async def _find(cluster: Cluster, name: str, index: int) -> tuple[Topic, Partition]:
    if cluster.topic(name) is None:
        await cluster.refresh([name])
    topic = cluster.topic(name)
    partition = topic.partitions.get(index) if topic is not None else None
    about = f"partition {name}-{index}"
    if topic is None or partition is None:
        code = cluster.topic_errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        raise error_for(code, about=about)
    if partition.leader_id not in cluster.nodes:
        raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, about=about)
    return topic, partition


async def _send(cluster: Cluster, topic: Topic, partition: Partition, batch: bytes) -> ProduceResponse:
    data = PartitionProduceData(index=partition.partition, records=batch)
    request = ProduceRequest(
        acks=ALL_IN_SYNC,
        timeout_ms=cluster.settings.request_timeout_ms,
        topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])],
    )
    response: ProduceResponse = await cluster.send(partition.leader_id, request)
    return response


def _now() -> float:
    return asyncio.get_running_loop().time()
