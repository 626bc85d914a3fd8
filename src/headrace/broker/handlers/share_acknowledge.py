"""ShareAcknowledge (79), v1-v2: a member answers for records it holds, without fetching.

The session is shared with ShareFetch: a good request moves its epoch by one, -1 closes it after the answers were taken.
v2 adds RENEW (KIP-1222). Refused: unknown session 122, wrong epoch 123, a record the member does not hold 121.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 2)


def handle(
    core: "BrokerCore", request: ShareAcknowledgeRequest, call: Call
) -> ShareAcknowledgeResponse | Later[ShareAcknowledgeResponse]:
    return core.share_leader.acknowledge(request, call)


def error_response(
    request: ShareAcknowledgeRequest, code: ErrorCode, message: str | None, call: Call
) -> ShareAcknowledgeResponse:
    return ShareAcknowledgeResponse(error_code=code, error_message=message)
