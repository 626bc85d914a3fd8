"""JoinGroup (11), v0-v9: a member asks into a classic group, or comes back for a rebalance.

Answered when the group has a new generation: the leader gets everybody's metadata. From v4 a new member without
an instance id is first given a member id (MEMBER_ID_REQUIRED) and asks again with it. v5 brings static members
(KIP-345), v9 tells a returning static leader that no new assignment is wanted (KIP-814).
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 9)
NULL_PROTOCOL_SINCE = 7


def handle(core: "BrokerCore", request: JoinGroupRequest, call: Call) -> Later[JoinGroupResponse]:
    return core.groups.classic.join(request, call).map(lambda response: _fit(response, call))


def _fit(response: JoinGroupResponse, call: Call) -> JoinGroupResponse:
    """A response without a protocol, an error: null where the version has null, an empty name before."""
    if response.protocol_name:
        return response
    return JoinGroupResponse(
        error_code=response.error_code,
        generation_id=response.generation_id,
        member_id=response.member_id,
        protocol_name=None if call.api_version >= NULL_PROTOCOL_SINCE else "",
    )


def error_response(
    request: JoinGroupRequest, code: ErrorCode, message: str | None, call: Call
) -> JoinGroupResponse:
    return _fit(JoinGroupResponse(error_code=code, member_id=request.member_id), call)
