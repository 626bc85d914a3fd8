"""OffsetFetch (9), v1-v10: how far groups have read; -1 where they have not.

v2: null topics mean all that the group has. v7: `require_stable` answers UNSTABLE_OFFSET_COMMIT for partitions with
an offset in an open transaction. v8: many groups at once. v9: members say who they are and are checked. v10: topic ids.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.pieces import CutList
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
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
CUTS = {
    0: CutList("topics", "topics", "partition_indexes", "partitions"),
    8: CutList("groups", "groups", "topics", "topics"),
}
MANY_GROUPS_SINCE = 8
TOPIC_IDS_SINCE = 10
NO_OFFSET = -1


def handle(core: "BrokerCore", request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    fetched = [
        _OffsetFetch(
            core,
            asked.group_id,
            require_stable=request.require_stable,
            with_topic_ids=call.api_version >= TOPIC_IDS_SINCE,
        ).run(asked)
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


class _OffsetFetch:
    """One group's offsets: of the topics asked for, or all that it has."""

    def __init__(
        self, core: "BrokerCore", group_id: str, *, require_stable: bool, with_topic_ids: bool
    ) -> None:
        self._core = core
        self._store = core.groups.state.offsets
        self._group_id = group_id
        self._require_stable = require_stable
        self._with_topic_ids = with_topic_ids

    def run(self, asked: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
        try:
            group = self._core.groups.registry.get(self._group_id)
            if group is not None:
                group.check_offset_fetch(member_id=asked.member_id, epoch=asked.member_epoch)
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=self._group_id, error_code=error.code)
        if asked.topics is None:
            return OffsetFetchResponseGroup(group_id=self._group_id, topics=[*self._all()])
        found = map(self._topic, asked.topics)
        # As in Kafka, topics with unknown ids are the last ones.
        topics = sorted(found, key=lambda topic: not topic.name) if self._with_topic_ids else [*found]
        return OffsetFetchResponseGroup(group_id=self._group_id, topics=topics)

    def _all(self) -> Iterator[OffsetFetchResponseTopics]:
        for name, offsets in self._store.of_group(self._group_id):
            topic_id = self._id_of(name)
            if self._with_topic_ids and topic_id == ZERO_UUID:
                continue
            indexes = sorted(index for index, committed in offsets.items() if committed.is_of(topic_id))
            yield OffsetFetchResponseTopics(
                name=name,
                topic_id=topic_id,
                partitions=[self._partition(name, topic_id, index) for index in indexes],
            )

    def _topic(self, asked: OffsetFetchRequestTopics) -> OffsetFetchResponseTopics:
        known = self._core.topics.by_id(asked.topic_id) if self._with_topic_ids else None
        if self._with_topic_ids and known is None:
            unknown = [_no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID) for index in asked.partition_indexes]
            return OffsetFetchResponseTopics(topic_id=asked.topic_id, partitions=unknown)
        name = known.name if known is not None else asked.name
        topic_id = self._id_of(name)
        return OffsetFetchResponseTopics(
            name=name,
            topic_id=topic_id,
            partitions=[self._partition(name, topic_id, index) for index in asked.partition_indexes],
        )

    def _id_of(self, topic: str) -> bytes:
        known = self._core.topics.get(topic)
        return known.id if known is not None else ZERO_UUID

    def _partition(self, topic: str, topic_id: bytes, index: int) -> OffsetFetchResponsePartitions:
        if self._require_stable and self._store.is_pending(self._group_id, topic, index):
            return _no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)
        committed = self._store.get(self._group_id, topic, index)
        # An offset of a topic that had this name before may be left until the next start if the disk was full when
        # that topic was deleted.
        if committed is None or not committed.is_of(topic_id):
            return _no_offset(index, ErrorCode.NONE)
        return OffsetFetchResponsePartitions(
            partition_index=index,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )


def _no_offset(index: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=code)
