"""DescribeShareGroupOffsets (90), v0-v1: where share groups start in their partitions.

v1 also tells how far they lag (KIP-1226). Both are of the persisted state: acknowledgements that are just under
way are not seen.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.share import ShareGroup
from headrace.broker.pieces import CutList
from headrace.wire.errors import KafkaError
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from headrace.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

VERSIONS = (0, 1)
CUTS = {0: CutList("groups", "groups", "topics", "topics")}
UNKNOWN = -1
LONG_MAX = 2**63 - 1


def handle(
    core: "BrokerCore", request: DescribeShareGroupOffsetsRequest, call: Call
) -> DescribeShareGroupOffsetsResponse:
    core.features.require_share_groups()
    return DescribeShareGroupOffsetsResponse(groups=[_describe(core, group) for group in request.groups])


def _describe(
    core: "BrokerCore", asked: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    """Of the partitions asked for, or of all that have state. What nobody knows has no offset, and no error."""
    try:
        core.groups.registry.get(asked.group_id)
    except KafkaError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id, error_code=error.code, error_message=error.message
        )
    if asked.topics is None:
        wanted = _initialized(core, asked.group_id)
    else:
        wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=asked.group_id,
        topics=[_describe_topic(core, asked.group_id, name, partitions) for name, partitions in wanted],
    )


def _initialized(core: "BrokerCore", group_id: str) -> list[tuple[str, Iterable[int]]]:
    group = core.groups.registry.get(group_id)
    if not isinstance(group, ShareGroup):
        return []
    return [(topic.name, topic.partitions) for topic in sorted(group.rules.initialized.values())]


def _describe_topic(
    core: "BrokerCore", group_id: str, name: str, partitions: Iterable[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    topic = core.topics.get(name)
    if topic is None:
        unknown = [_describe_unknown(index) for index in partitions]
        return DescribeShareGroupOffsetsResponseTopic(topic_name=name, partitions=unknown)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=topic.id,
        partitions=[_describe_partition(core, group_id, topic, index) for index in partitions],
    )


def _describe_partition(
    core: "BrokerCore", group_id: str, topic: "Topic", index: int
) -> DescribeShareGroupOffsetsResponsePartition:
    key = ShareKey(group_id, topic.id, index)
    try:
        core.share_state.require_sound(key)
    except KafkaError as error:
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index,
            start_offset=UNKNOWN,
            error_code=error.code,
            error_message=error.message,
        )
    state = core.share_state.get(key)
    if state is None:
        return _describe_unknown(index)
    lag = UNKNOWN
    # A start that comes from share.auto.offset.reset has no count yet: nothing is settled above it.
    count = 0 if state.last_offset() < state.start_offset else state.complete_count
    if state.start_offset != UNKNOWN and count != UNKNOWN:
        lag = topic.partitions[index].log.end_offset - state.start_offset - count
        lag = max(-LONG_MAX, min(lag, LONG_MAX))  # whoever writes state by hand may say anything
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag
    )


def _describe_unknown(index: int) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNKNOWN)
