"""SyncGroup (14), v0-v5: the leader of a classic group brings the assignment, every member fetches its part.

Parked until the leader's has come and is in the journal. v5 says again which protocol the member means.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.classic import require_classic
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from headrace.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)
PROTOCOL_SINCE = 5


def handle(core: "BrokerCore", request: SyncGroupRequest, call: Call) -> Later[SyncGroupResponse]:
    if call.api_version >= PROTOCOL_SINCE and None in (request.protocol_type, request.protocol_name):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    group = require_classic(core.groups.registry, request.group_id)
    response: Later[SyncGroupResponse] = Later()
    core.groups.carry_out(group, group.rebalance.sync(request, response, core.groups.now()))
    return response
