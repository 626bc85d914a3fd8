"""ShareGroupHeartbeat (76), v1: everything a member of a share group says and hears (KIP-932).

Joining (epoch 0), living, leaving (-1); which topics it reads, by name only. The answer carries its epoch, when to come
again, and its assignment where that has changed. Unlike Apache Kafka we let members come again sooner while assignments
are in motion, so that a fresh group is at work after a tenth of a second.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.features import require_share_groups
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 1)


def handle(
    core: "BrokerCore", request: ShareGroupHeartbeatRequest, call: Call
) -> ShareGroupHeartbeatResponse:
    require_share_groups(core.settings)
    return core.groups.share.heartbeat(request, call)


def error_response(
    request: ShareGroupHeartbeatRequest, code: ErrorCode, message: str | None, call: Call
) -> ShareGroupHeartbeatResponse:
    return ShareGroupHeartbeatResponse(error_code=code, error_message=message)
