"""ConsumerGroupDescribe (69), v0-v1: consumer groups with members, epochs and assignments (KIP-848). v1 tells each
member's protocol; here it is always the consumer protocol.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.handlers.describe_groups import ALL_OPERATIONS
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_describe_response import (
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)


def handle(
    core: "BrokerCore", request: ConsumerGroupDescribeRequest, call: Call
) -> ConsumerGroupDescribeResponse:
    groups = [core.groups.consumer.describe(group_id) for group_id in request.group_ids]
    if request.include_authorized_operations:
        groups = [_with_operations(group) if not group.error_code else group for group in groups]
    return ConsumerGroupDescribeResponse(groups=groups)


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
    request: ConsumerGroupDescribeRequest, code: ErrorCode, message: str | None, call: Call
) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(
        groups=[
            DescribedGroup(group_id=group_id, error_code=code, error_message=message)
            for group_id in request.group_ids
        ]
    )
