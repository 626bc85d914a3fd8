"""LeaveGroup (13), v0-v5: a member goes; from v3 several at once, static ones by instance id alone (administrators)."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.leave_group_response import LeaveGroupResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)
MANY_SINCE = 3


def handle(core: "BrokerCore", request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    if call.api_version >= MANY_SINCE:
        return LeaveGroupResponse(members=core.groups.classic.leave(request.group_id, request.members))
    (left,) = core.groups.classic.leave(request.group_id, [MemberIdentity(member_id=request.member_id)])
    return LeaveGroupResponse(error_code=left.error_code)


def error_response(
    request: LeaveGroupRequest, code: ErrorCode, message: str | None, call: Call
) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=code)
