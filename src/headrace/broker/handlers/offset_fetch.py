"""OffsetFetch (9), v1-v10: how far groups have read; -1 where they have not.

v2: null topics mean all that the group has. v7: `require_stable` answers UNSTABLE_OFFSET_COMMIT for partitions with
an offset in an open transaction. v8: many groups at once. v9: members say who they are and are checked. v10: topic ids.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 10)
GROUP_ERROR_SINCE = 2
MANY_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10


def handle(core: "BrokerCore", request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    fetched = [
        core.groups.offsets.fetch(
            asked,
            require_stable=request.require_stable,
            with_topic_ids=call.api_version >= TOPIC_IDS_SINCE,
        )
        for asked in _groups(request, call)
    ]
    return _respond(fetched, call)


def _groups(request: OffsetFetchRequest, call: Call) -> list[OffsetFetchRequestGroup]:
    """Older requests ask for one group: they are read as a newer one that does."""
    if call.api_version >= MANY_GROUPS_SINCE:
        return [*request.groups]
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return [OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)]


def _respond(groups: list[OffsetFetchResponseGroup], call: Call) -> OffsetFetchResponse:
    if call.api_version >= MANY_GROUPS_SINCE:
        return OffsetFetchResponse(groups=groups)
    (only,) = groups
    return OffsetFetchResponse(
        error_code=only.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in only.topics
        ],
    )


def error_response(
    request: OffsetFetchRequest, code: ErrorCode, message: str | None, call: Call
) -> OffsetFetchResponse:
    return _respond([_refused(asked, code, call) for asked in _groups(request, call)], call)


def _refused(asked: OffsetFetchRequestGroup, code: ErrorCode, call: Call) -> OffsetFetchResponseGroup:
    if call.api_version >= GROUP_ERROR_SINCE:
        return OffsetFetchResponseGroup(group_id=asked.group_id, error_code=code)
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, error_code=code)
                for index in topic.partition_indexes
            ],
        )
        for topic in asked.topics or ()
    ]
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics)
