"""OffsetDelete (47), v0: forgets a group's offsets of topics that it does not read. Answered when they are gone."""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups import records
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Group, require_group_id
from headrace.broker.later import Later, resolved
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.offset_delete_request import OffsetDeleteRequest
from headrace.wire.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 0)


def handle(core: "BrokerCore", request: OffsetDeleteRequest, call: Call) -> Later[OffsetDeleteResponse]:
    require_group_id(request.group_id)
    group = core.groups.registry.require(request.group_id)
    group.check_offset_delete()
    entries: list[JournalEntry] = []
    topics = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(
                    partition_index=partition.partition_index,
                    error_code=_delete(core, group, topic.name, partition.partition_index, entries),
                )
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    response = OffsetDeleteResponse(topics=topics)
    if not entries:
        return resolved(response)
    return core.groups.journal(request.group_id, entries).map(lambda _: response)


def _delete(
    core: "BrokerCore", group: Group, topic: str, index: int, entries: list[JournalEntry]
) -> ErrorCode:
    known = core.topics.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if group.is_subscribed_to(topic):
        return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    store = core.groups.state.offsets
    is_there = store.get(group.group_id, topic, index) is not None
    if is_there or store.is_pending(group.group_id, topic, index):
        entries.append(records.offset_commit(group.group_id, topic, index, None))
    return ErrorCode.NONE
