"""ListGroups (16), v0-v5: every group with its state and type; v4 filters by states, v5 by types (KIP-518, KIP-848).

Filters ignore case.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListedGroup, ListGroupsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)


def handle(core: "BrokerCore", request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    states = {state.strip().lower() for state in request.states_filter}
    types = {kind.strip().lower() for kind in request.types_filter}
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type_name,
                group_state=group.state_name,
                group_type=group.type.value,
            )
            for group in core.groups.registry
            if (not states or group.state_name.lower() in states) and (not types or group.type.value in types)
        ]
    )
