"""ShareGroupDescribe (77), v1: share groups with members, epochs and assignments."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.share import ShareGroup
from headrace.broker.handlers.describe_groups import ALL_OPERATIONS
from headrace.broker.pieces import CutList
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 1)
CUTS = {0: CutList("group_ids", "groups")}


def handle(core: "BrokerCore", request: ShareGroupDescribeRequest, call: Call) -> ShareGroupDescribeResponse:
    core.features.require_share_groups()
    groups = [_describe(core, group_id) for group_id in request.group_ids]
    for group in groups:
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = ALL_OPERATIONS
    return ShareGroupDescribeResponse(groups=groups)


def _describe(core: "BrokerCore", group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = core.groups.registry.require_type(group_id, ShareGroup, "share")
    except KafkaError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return _described(group, core.settings.get_list("group.share.assignors")[0])


def _described(group: ShareGroup, assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.rules.epoch,
        assignment_epoch=group.rules.assignment_epoch,
        assignor_name=assignor,
        members=[_describe_member(group, member_id) for member_id in group.rules.members],
    )


def _describe_member(group: ShareGroup, member_id: str) -> Member:
    metadata = group.rules.members[member_id]
    current = group.rules.currents[member_id]
    return Member(
        member_id=member_id,
        rack_id=metadata.rack_id,
        member_epoch=current.member_epoch,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed,
        assignment=_describe_assignment(group, current.assigned),
    )


def _describe_assignment(group: ShareGroup, assigned: Mapping[bytes, Sequence[int]]) -> Assignment:
    topics = [(group.topics.by_id(topic_id), indexes) for topic_id, indexes in assigned.items()]
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic.id, topic_name=topic.name, partitions=indexes)
            for topic, indexes in topics
            if topic is not None
        ]
    )
