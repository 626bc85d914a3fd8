"""ConsumerGroupHeartbeat (68), v0-v1: everything a member of a consumer group says and hears (KIP-848).

Joining (epoch 0), living, leaving (-1), leaving for a while (-2, static members); subscriptions, in v1 also a pattern;
which partitions it owns. The answer carries its epoch and, when it has changed, its assignment.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)


def handle(
    core: "BrokerCore", request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse:
    return core.groups.consumer.heartbeat(request, call)


def error_response(
    request: ConsumerGroupHeartbeatRequest, code: ErrorCode, message: str | None, call: Call
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=code, error_message=message)
