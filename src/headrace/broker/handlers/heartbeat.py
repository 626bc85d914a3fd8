"""Heartbeat (12), v0-v4: a member of a classic group is alive. REBALANCE_IN_PROGRESS calls it to join again."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 4)


def handle(core: "BrokerCore", request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    core.groups.classic.heartbeat(request)
    return HeartbeatResponse()


def error_response(
    request: HeartbeatRequest, code: ErrorCode, message: str | None, call: Call
) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=code)
