"""DescribeGroups (15), v0-v6: classic groups with their members. Consumer groups have ConsumerGroupDescribe.

What is not there, or of another type, is "Dead"; from v6 it is also GROUP_ID_NOT_FOUND with a text that says why
(KIP-1043).
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.pieces import CutList
from headrace.wire.enums import GroupState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_groups_response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 6)
CUTS = {0: CutList("groups", "groups")}
ALL_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Without access control everybody may read, delete and describe a group, and read and alter its settings."""
DEAD = "Dead"
NOT_FOUND_IS_AN_ERROR_SINCE = 6


def handle(core: "BrokerCore", request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    groups = [_describe(core, group_id, call) for group_id in request.groups]
    for group in groups:
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = ALL_OPERATIONS
    return DescribeGroupsResponse(groups=groups)


def _describe(core: "BrokerCore", group_id: str, call: Call) -> DescribedGroup:
    try:
        return _described(core.groups.registry.require_type(group_id, ClassicGroup, "classic"))
    except KafkaError as error:
        if error.code is ErrorCode.GROUP_ID_NOT_FOUND and call.api_version < NOT_FOUND_IS_AN_ERROR_SINCE:
            return DescribedGroup(group_id=group_id, group_state=DEAD)
        return DescribedGroup(
            group_id=group_id, group_state=DEAD, error_code=error.code, error_message=error.message
        )


def _described(group: ClassicGroup) -> DescribedGroup:
    is_stable = group.rebalance.state is GroupState.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type_name,
        protocol_data=(group.rebalance.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(group.rebalance.protocol_name) if is_stable else b"",
                member_assignment=member.assignment,
            )
            for member in group.rebalance.members
        ],
    )
