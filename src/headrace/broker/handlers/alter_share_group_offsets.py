"""AlterShareGroupOffsets (91), v0: where an empty share group shall start anew. Answered when it is durable.

A group that does not exist is made. Partitions that do not exist are refused. Offsets are not checked against the log:
what is below its start is read from there.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.registry import require_group_id
from headrace.broker.groups.share import ShareGroup
from headrace.broker.groups.share_groups import require_empty
from headrace.broker.later import Later, when_all
from headrace.share.membership import TopicState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
)
from headrace.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

VERSIONS = (0, 0)
UNKNOWN = -1


def handle(
    core: "BrokerCore", request: AlterShareGroupOffsetsRequest, call: Call
) -> Later[AlterShareGroupOffsetsResponse]:
    core.features.require_share_groups()
    require_group_id(request.group_id)
    group = core.groups.registry.get(request.group_id)
    if group is None:
        group = ShareGroup(request.group_id, core.topics)
    elif not isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")
    require_empty(group)
    altered: dict[bytes, TopicState] = {}
    written: list[Later[None]] = []
    responses = []
    for asked in request.topics:
        topic = core.topics.get(asked.topic_name)
        results = [_alter_partition(core, group, topic, one, written) for one in asked.partitions]
        responses.append(
            AlterShareGroupOffsetsResponseTopic(
                topic_name=asked.topic_name,
                topic_id=topic.id if topic is not None else ZERO_UUID,
                partitions=results,
            )
        )
        done = tuple(result.partition_index for result in results if not result.error_code)
        if topic is not None and done:
            altered[topic.id] = TopicState(topic.name, done)
            core.share_leader.fence_partitions(group.group_id, topic.id, frozenset(done))
    if altered:
        changes = group.rules.initialize(altered)
        written.append(core.groups.share.change(group, changes, core.groups.now()))
    return when_all(written).map(lambda _: AlterShareGroupOffsetsResponse(responses=responses))


def _alter_partition(
    core: "BrokerCore",
    group: ShareGroup,
    topic: "Topic | None",
    asked: AlterShareGroupOffsetsRequestPartition,
    written: list[Later[None]],
) -> AlterShareGroupOffsetsResponsePartition:
    index = asked.partition_index
    try:
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if asked.start_offset < UNKNOWN:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"{asked.start_offset} is not an offset that a partition can start at.",
            )
        key = ShareKey(group.group_id, topic.id, index)
        written.append(core.groups.share.initialize(key, group.rules.epoch, start_offset=asked.start_offset))
    except KafkaError as error:
        return AlterShareGroupOffsetsResponsePartition(
            partition_index=index, error_code=error.code, error_message=error.text
        )
    return AlterShareGroupOffsetsResponsePartition(partition_index=index)
