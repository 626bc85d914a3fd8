"""OffsetCommit (8), v2-v10: how far a group has read. Answered when it is durable.

Members are checked against their generation or epoch; epoch -1 (administrators, consumers without a group) is
accepted while the group has no members. v2-v4 may ask for a retention of their own, v10 names topics by id.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.offset_commit_request import OffsetCommitRequest
from headrace.wire.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (2, 10)


def handle(core: "BrokerCore", request: OffsetCommitRequest, call: Call) -> Later[OffsetCommitResponse]:
    return core.groups.offsets.commit(request, call)


def error_response(
    request: OffsetCommitRequest, code: ErrorCode, message: str | None, call: Call
) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
