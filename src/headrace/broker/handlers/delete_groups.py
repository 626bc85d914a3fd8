"""DeleteGroups (42), v0-v2: empty groups of any type, with their offsets. Answered when they are gone for good."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later, when_all
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_groups_response import DeletableGroupResult, DeleteGroupsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 2)


def handle(core: "BrokerCore", request: DeleteGroupsRequest, call: Call) -> Later[DeleteGroupsResponse]:
    results = [core.groups.admin.delete(group_id) for group_id in dict.fromkeys(request.groups_names)]
    return when_all(results).map(lambda deleted: DeleteGroupsResponse(results=deleted))


def error_response(
    request: DeleteGroupsRequest, code: ErrorCode, message: str | None, call: Call
) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[
            DeletableGroupResult(group_id=group_id, error_code=code) for group_id in request.groups_names
        ]
    )
