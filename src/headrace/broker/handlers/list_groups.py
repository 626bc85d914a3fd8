"""ListGroups (16), v0-v5: every group with its state and type; v4 filters by states, v5 by types (KIP-518, KIP-848)."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.list_groups_response import ListGroupsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)


def handle(core: "BrokerCore", request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    return ListGroupsResponse(
        groups=core.groups.admin.list(states=request.states_filter, types=request.types_filter)
    )


def error_response(
    request: ListGroupsRequest, code: ErrorCode, message: str | None, call: Call
) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=code)
