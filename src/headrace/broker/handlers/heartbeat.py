"""Heartbeat (12), v0-v4: a member of a classic group is alive. REBALANCE_IN_PROGRESS calls it to join again.

A heartbeat only moves a deadline back: the group's timer stays as it is.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.classic import require_classic
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 4)


def handle(core: "BrokerCore", request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    group = require_classic(core.groups.registry, request.group_id)
    group.rebalance.heartbeat(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        now=core.groups.now(),
    )
    return HeartbeatResponse()
