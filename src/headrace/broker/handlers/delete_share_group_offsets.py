"""DeleteShareGroupOffsets (92), v0: an empty share group forgets topics. Answered when it is durable."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.features import require_share_groups
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from headrace.wire.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)


def handle(
    core: "BrokerCore", request: DeleteShareGroupOffsetsRequest, call: Call
) -> Later[DeleteShareGroupOffsetsResponse]:
    require_share_groups(core.settings)
    return core.groups.share_offsets.delete(request)


def error_response(
    request: DeleteShareGroupOffsetsRequest, code: ErrorCode, message: str | None, call: Call
) -> DeleteShareGroupOffsetsResponse:
    return DeleteShareGroupOffsetsResponse(error_code=code, error_message=KafkaError(code, message).text)
