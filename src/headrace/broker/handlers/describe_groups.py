"""DescribeGroups (15), v0-v6: classic groups with their members. Consumer groups have ConsumerGroupDescribe.

What is not there is "Dead"; from v6 it is also GROUP_ID_NOT_FOUND with a text that says why (KIP-1043).
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_groups_response import DescribedGroup, DescribeGroupsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 6)
ALL_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
"""Without access control everybody may read, delete and describe a group, and read and alter its settings."""


def handle(core: "BrokerCore", request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    groups = [
        core.groups.admin.describe_classic(group_id, version=call.api_version) for group_id in request.groups
    ]
    if request.include_authorized_operations:
        groups = [_with_operations(group) if not group.error_code else group for group in groups]
    return DescribeGroupsResponse(groups=groups)


def _with_operations(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.group_state,
        protocol_type=group.protocol_type,
        protocol_data=group.protocol_data,
        members=group.members,
        authorized_operations=ALL_OPERATIONS,
    )


def error_response(
    request: DescribeGroupsRequest, code: ErrorCode, message: str | None, call: Call
) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.groups
        ]
    )
