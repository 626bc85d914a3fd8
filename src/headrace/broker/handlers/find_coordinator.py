"""FindCoordinator (10), v0-v6: who coordinates a group or a transactional id. On one node: we do.

v4 and later ask for many keys at once. Key types: 0 group, 1 transaction; 2 (share) comes with share groups.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 6)
GROUP, TRANSACTION = 0, 1


def handle(core: "BrokerCore", request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if call.api_version >= 4 else (request.key,)
    found = [_find(core, key, request.key_type) for key in keys]
    if call.api_version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    only = found[0]
    return FindCoordinatorResponse(
        error_code=only.error_code,
        # Kafka's name for "no error" stands here; the versions with many keys have an empty message instead.
        error_message=only.error_message or ErrorCode.NONE.name,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def _find(core: "BrokerCore", key: str, key_type: int) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        return _refused(key, ErrorCode.INVALID_REQUEST, f"Unknown coordinator type {key_type}.")
    if not key and key_type == TRANSACTION:
        return _refused(key, ErrorCode.INVALID_REQUEST, "The transactional id must not be empty.")
    return Coordinator(key=key, node_id=core.node_id, host=core.host, port=core.port)


def _refused(key: str, code: ErrorCode, message: str | None) -> Coordinator:
    return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)


def error_response(
    request: FindCoordinatorRequest, code: ErrorCode, message: str | None, call: Call
) -> FindCoordinatorResponse:
    if call.api_version >= 4:
        return FindCoordinatorResponse(
            coordinators=[_refused(key, code, message) for key in request.coordinator_keys]
        )
    return FindCoordinatorResponse(error_code=code, error_message=message, node_id=-1, host="", port=-1)
