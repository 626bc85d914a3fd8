"""OffsetDelete (47), v0: forgets a group's offsets of topics that it does not read. Answered when they are gone."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.offset_delete_request import OffsetDeleteRequest
from headrace.wire.messages.offset_delete_response import OffsetDeleteResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)


def handle(core: "BrokerCore", request: OffsetDeleteRequest, call: Call) -> Later[OffsetDeleteResponse]:
    return core.groups.offsets.delete(request)


def error_response(
    request: OffsetDeleteRequest, code: ErrorCode, message: str | None, call: Call
) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=code)
