"""ConsumerGroupDescribe (69), v0-v1: consumer groups with members, epochs and assignments (KIP-848). v1 tells each
member's protocol; here it is always the consumer protocol.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups import records
from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.consumer_member import ConsumerMember
from headrace.broker.groups.heartbeats import consumer_limits
from headrace.broker.handlers.describe_groups import ALL_OPERATIONS
from headrace.broker.pieces import CutList
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicIdPartition
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_describe_response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)
CUTS = {0: CutList("group_ids", "groups")}
USES_CONSUMER_PROTOCOL = 1


def handle(
    core: "BrokerCore", request: ConsumerGroupDescribeRequest, call: Call
) -> ConsumerGroupDescribeResponse:
    groups = [_describe(core, group_id) for group_id in request.group_ids]
    for group in groups:
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = ALL_OPERATIONS
    return ConsumerGroupDescribeResponse(groups=groups)


def _describe(core: "BrokerCore", group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = core.groups.registry.require_type(group_id, ConsumerGroup, "consumer")
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return _described(group, consumer_limits(core.settings, group_id).assignors[0])


def _described(group: ConsumerGroup, default_assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(group.members.values()) or default_assignor,
        members=[_describe_member(group, member) for member in group.members.values()],
    )


def _describe_member(group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.pattern,
        assignment=_describe_partitions(group, [*member.held, *member.revoking]),
        target_assignment=_describe_partitions(group, group.targets.get(member.member_id, ())),
        member_type=USES_CONSUMER_PROTOCOL,
    )


def _describe_partitions(group: ConsumerGroup, partitions: Iterable[TopicIdPartition]) -> Assignment:
    described = []
    for topic_id, indexes in records.by_topic(partitions).items():
        topic = group.topics.by_id(topic_id)
        if topic is not None:
            described.append(TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=indexes))
    return Assignment(topic_partitions=described)
