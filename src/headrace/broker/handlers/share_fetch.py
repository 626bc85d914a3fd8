"""ShareFetch (78), v1-v2: opens, extends and closes a share session, takes acknowledgements, hands out records.

The answer waits until MinBytes can be acquired or MaxWaitMs have passed. v2 adds the acquire mode (KIP-1206) and RENEW
(KIP-1222). Refused as a whole: no group or member id 42, unknown session 122, wrong epoch 123, acknowledgements in the
request that opens a session 42, too many sessions 133.

`acquire_only` is ours, a tagged field that Kafka passes over: the member gets the ranges, and instead of their records
how many bytes these have.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import ShareFetchResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 2)


def handle(
    core: "BrokerCore", request: ShareFetchRequest, call: Call
) -> ShareFetchResponse | Later[ShareFetchResponse]:
    return core.share_leader.fetch(request, call)


def error_response(
    request: ShareFetchRequest, code: ErrorCode, message: str | None, call: Call
) -> ShareFetchResponse:
    return ShareFetchResponse(error_code=code, error_message=message)
