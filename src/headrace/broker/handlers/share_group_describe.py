"""ShareGroupDescribe (77), v1: share groups with members, epochs and assignments."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.features import require_share_groups
from headrace.broker.handlers.describe_groups import ALL_OPERATIONS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from headrace.wire.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 1)


def handle(core: "BrokerCore", request: ShareGroupDescribeRequest, call: Call) -> ShareGroupDescribeResponse:
    require_share_groups(core.settings)
    groups = [core.groups.share.describe(group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        groups = [_with_operations(group) if not group.error_code else group for group in groups]
    return ShareGroupDescribeResponse(groups=groups)


def _with_operations(group: DescribedGroup) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.group_state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor_name,
        members=group.members,
        authorized_operations=ALL_OPERATIONS,
    )


def error_response(
    request: ShareGroupDescribeRequest, code: ErrorCode, message: str | None, call: Call
) -> ShareGroupDescribeResponse:
    return ShareGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.group_ids
        ]
    )
