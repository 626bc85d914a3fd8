"""DescribeShareGroupOffsets (90), v0-v1: where share groups start in their partitions.

v1 also tells how far they lag (KIP-1226). Both are of the persisted state: acknowledgements that are just under
way are not seen.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.features import require_share_groups
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequest
from headrace.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)


def handle(
    core: "BrokerCore", request: DescribeShareGroupOffsetsRequest, call: Call
) -> DescribeShareGroupOffsetsResponse:
    require_share_groups(core.settings)
    return DescribeShareGroupOffsetsResponse(
        groups=[core.groups.share_offsets.describe(group) for group in request.groups]
    )


def error_response(
    request: DescribeShareGroupOffsetsRequest, code: ErrorCode, message: str | None, call: Call
) -> DescribeShareGroupOffsetsResponse:
    return DescribeShareGroupOffsetsResponse(
        groups=[
            DescribeShareGroupOffsetsResponseGroup(
                group_id=group.group_id, error_code=code, error_message=message
            )
            for group in request.groups
        ]
    )
