"""DescribeTopicPartitions (75), v0: topics with their partitions, page by page, in the order of names.

A page holds as many partitions as the request and `max.request.partition.size.limit` allow; where it ends in
the middle, `next_cursor` says where the next one begins. Without names it walks through all topics.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.topics import INTERNAL, Topic, check_name
from headrace.wire.acls import AclOperation, AclResourceType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from headrace.wire.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)
TAKES_MANY = True
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
"""All that can be done to a topic, as a bit field of operation codes: without access control everybody may."""


def handle(
    core: "BrokerCore", request: DescribeTopicPartitionsRequest, call: Call
) -> DescribeTopicPartitionsResponse:
    names = _names(core, request)
    visible = _visible(core, names, request, call)
    refused = [_refused(name) for name in names if name not in visible] if request.topics else []
    response = _page(core, request, [name for name in names if name in visible])
    response.topics = [*response.topics, *refused]
    return response


def _visible(
    core: "BrokerCore", names: Sequence[str], request: DescribeTopicPartitionsRequest, call: Call
) -> Collection[str]:
    """Those that the client may describe. It is not told whether others exist."""
    access = core.access
    if access is None:
        return set(names)
    allows = access.allows if request.topics else access.may
    return {name for name in names if allows(call, AclOperation.DESCRIBE, AclResourceType.TOPIC, name)}


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)


def _page(
    core: "BrokerCore", request: DescribeTopicPartitionsRequest, names: Sequence[str]
) -> DescribeTopicPartitionsResponse:
    limit = core.settings.get_int("max.request.partition.size.limit")
    remaining = max(min(limit, request.response_partition_limit), 1)
    cursor = request.cursor
    found: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        if not remaining:
            return DescribeTopicPartitionsResponse(
                topics=found, next_cursor=Cursor(topic_name=name, partition_index=0)
            )
        topic = core.topics.get(name)
        if topic is None:
            if request.topics:
                found.append(_missing(name))
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(first + remaining, len(topic.partitions))
        found.append(_describe(core, topic, first, end))
        remaining -= max(end - first, 0)
        if end < len(topic.partitions):
            return DescribeTopicPartitionsResponse(
                topics=found, next_cursor=Cursor(topic_name=name, partition_index=end)
            )
    return DescribeTopicPartitionsResponse(topics=found)


def _names(core: "BrokerCore", request: DescribeTopicPartitionsRequest) -> list[str]:
    cursor = request.cursor
    begin = cursor.topic_name if cursor is not None else ""
    asked: Iterator[str] = (topic.name for topic in (request.topics or core.topics))
    names = sorted({name for name in asked if name >= begin})
    if cursor is not None and request.topics and begin not in names:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {begin}",
        )
    if cursor is not None and cursor.partition_index < 0:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "DescribeTopicPartitionsRequest cursor partition must be valid: "
            f"Cursor(topicName='{begin}', partitionIndex={cursor.partition_index})",
        )
    return names


def _describe(core: "BrokerCore", topic: Topic, first: int, end: int) -> DescribeTopicPartitionsResponseTopic:
    this_node = [core.node_id]
    leader_epoch = core.logs.store.leader_epoch  # of all logs; asking each would open those not in use
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.is_internal,
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                partition_index=partition.index,
                leader_id=core.node_id,
                leader_epoch=leader_epoch,
                replica_nodes=this_node,
                isr_nodes=this_node,
                eligible_leader_replicas=[],
                last_known_elr=[],
            )
            for partition in topic.partitions[first:end]
        ],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    try:
        check_name(name)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    except KafkaError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
