"""AlterShareGroupOffsets (91), v0: where an empty share group shall start anew. Answered when it is durable.

A group that does not exist is made. Offsets are not checked against the log: what is below its start is read from
there.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.features import require_share_groups
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from headrace.wire.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)


def handle(
    core: "BrokerCore", request: AlterShareGroupOffsetsRequest, call: Call
) -> Later[AlterShareGroupOffsetsResponse]:
    require_share_groups(core.settings)
    return core.groups.share_offsets.alter(request)


def error_response(
    request: AlterShareGroupOffsetsRequest, code: ErrorCode, message: str | None, call: Call
) -> AlterShareGroupOffsetsResponse:
    return AlterShareGroupOffsetsResponse(error_code=code, error_message=KafkaError(code, message).text)
