"""Start offsets of share groups: shown, altered, forgotten; and all state of a group that is deleted.

Theory of operation. A group's share-partitions are entered twice: in the group's own record (which partitions have
state) and in the share coordinator's (the state). State goes first, in both directions: a crash in between leaves
state that nobody asks for, or a group that is told at the next start which of its partitions have to begin anew. The
leader of the partition, which holds the state in memory, is told to forget it.
"""

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from headrace.broker.groups.share import ShareGroup
from headrace.broker.later import Later, resolved, when_all
from headrace.share.membership import TopicState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
)
from headrace.wire.messages.alter_share_group_offsets_response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from headrace.wire.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from headrace.wire.messages.delete_share_group_offsets_response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from headrace.wire.messages.describe_share_group_offsets_request import DescribeShareGroupOffsetsRequestGroup
from headrace.wire.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator
    from headrace.broker.topics import Topic

UNKNOWN = -1
LONG_MAX = 2**63 - 1
NOTHING_TO_DELETE = "There is no offset information to delete."


class ShareOffsetRequests:
    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._core = coordinator.core
        self._registry = coordinator.state.registry

    def describe(
        self, asked: DescribeShareGroupOffsetsRequestGroup
    ) -> DescribeShareGroupOffsetsResponseGroup:
        """Of the partitions asked for, or of all that have state. What nobody knows has no offset, and no error."""
        try:
            self._registry.get(asked.group_id)
        except KafkaError as error:
            return DescribeShareGroupOffsetsResponseGroup(
                group_id=asked.group_id, error_code=error.code, error_message=error.message
            )
        if asked.topics is None:
            wanted = self._initialised(asked.group_id)
        else:
            wanted = [(topic.topic_name, topic.partitions) for topic in asked.topics]
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=asked.group_id,
            topics=[self._describe_topic(asked.group_id, name, partitions) for name, partitions in wanted],
        )

    def _initialised(self, group_id: str) -> list[tuple[str, Iterable[int]]]:
        group = self._registry.get(group_id)
        if not isinstance(group, ShareGroup):
            return []
        return [(topic.name, topic.partitions) for topic in sorted(group.rules.initialized.values())]

    def _describe_topic(
        self, group_id: str, name: str, partitions: Iterable[int]
    ) -> DescribeShareGroupOffsetsResponseTopic:
        topic = self._core.topics.get(name)
        if topic is None:
            unknown = [_describe_unknown(index) for index in partitions]
            return DescribeShareGroupOffsetsResponseTopic(topic_name=name, partitions=unknown)
        return DescribeShareGroupOffsetsResponseTopic(
            topic_name=name,
            topic_id=topic.id,
            partitions=[self._describe_partition(group_id, topic, index) for index in partitions],
        )

    def _describe_partition(
        self, group_id: str, topic: "Topic", index: int
    ) -> DescribeShareGroupOffsetsResponsePartition:
        key = ShareKey(group_id, topic.id, index)
        try:
            self._core.share_state.require_sound(key)
        except KafkaError as error:
            return DescribeShareGroupOffsetsResponsePartition(
                partition_index=index,
                start_offset=UNKNOWN,
                error_code=error.code,
                error_message=error.message,
            )
        state = self._core.share_state.get(key)
        if state is None:
            return _describe_unknown(index)
        lag = UNKNOWN
        # A start that comes from share.auto.offset.reset has no count yet: nothing is settled above it.
        count = 0 if state.last_offset() < state.start_offset else state.complete_count
        if state.start_offset != UNKNOWN and count != UNKNOWN:
            lag = topic.partitions[index].log.end_offset - state.start_offset - count
            lag = max(-LONG_MAX, min(lag, LONG_MAX))  # whoever writes state by hand may say anything
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=index, start_offset=state.start_offset, leader_epoch=state.leader_epoch, lag=lag
        )

    def alter(self, request: AlterShareGroupOffsetsRequest) -> Later[AlterShareGroupOffsetsResponse]:
        """Answers when it is durable. A group that does not exist is made. Partitions that do not exist are refused."""
        _require_group_id(request.group_id)
        group = self._registry.get(request.group_id)
        if group is None:
            group = ShareGroup(request.group_id, self._core.topics)
        elif not isinstance(group, ShareGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} is not a share group.")
        _require_empty(group)
        altered: dict[bytes, TopicState] = {}
        written: list[Later[None]] = []
        responses = []
        for asked in request.topics:
            topic = self._core.topics.get(asked.topic_name)
            results = [self._alter_partition(group, topic, one, written) for one in asked.partitions]
            responses.append(
                AlterShareGroupOffsetsResponseTopic(
                    topic_name=asked.topic_name,
                    topic_id=topic.id if topic is not None else ZERO_UUID,
                    partitions=results,
                )
            )
            done = tuple(result.partition_index for result in results if not result.error_code)
            if topic is not None and done:
                altered[topic.id] = TopicState(topic.name, done)
                self._core.share_leader.fence_partitions(group.group_id, topic.id, frozenset(done))
        if altered:
            changes = group.rules.initialize(altered)
            written.append(self._coordinator.share.change(group, changes, self._coordinator.now()))
        return when_all(written).map(lambda _: AlterShareGroupOffsetsResponse(responses=responses))

    def _alter_partition(
        self,
        group: ShareGroup,
        topic: "Topic | None",
        asked: AlterShareGroupOffsetsRequestPartition,
        written: list[Later[None]],
    ) -> AlterShareGroupOffsetsResponsePartition:
        index = asked.partition_index
        try:
            if topic is None or not 0 <= index < len(topic.partitions):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if asked.start_offset < UNKNOWN:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, f"{asked.start_offset} is no offset a partition can start at."
                )
            key = ShareKey(group.group_id, topic.id, index)
            share = self._coordinator.share
            written.append(share.initialise(key, group.rules.epoch, start_offset=asked.start_offset))
        except KafkaError as error:
            return AlterShareGroupOffsetsResponsePartition(
                partition_index=index, error_code=error.code, error_message=error.text
            )
        return AlterShareGroupOffsetsResponsePartition(partition_index=index)

    def delete(self, request: DeleteShareGroupOffsetsRequest) -> Later[DeleteShareGroupOffsetsResponse]:
        """Answers when it is durable. The next member that reads a forgotten topic begins anew."""
        _require_group_id(request.group_id)
        group = self._registry.require_type(request.group_id, ShareGroup, "share")
        _require_empty(group)
        left = set(group.rules.initialized)
        written: list[Later[None]] = []
        responses = []
        for asked in request.topics:
            try:
                topic = self._require_initialised(asked.topic_name, left)
            except KafkaError as error:
                responses.append(
                    DeleteShareGroupOffsetsResponseTopic(
                        topic_name=asked.topic_name, error_code=error.code, error_message=error.text
                    )
                )
                continue
            written += self._forget(group, topic.id)
            left.remove(topic.id)
            responses.append(DeleteShareGroupOffsetsResponseTopic(topic_name=topic.name, topic_id=topic.id))
        changes = group.rules.forget_topics(group.rules.initialized.keys() - left)
        if changes:
            written.append(self._coordinator.share.change(group, changes, self._coordinator.now()))
        return when_all(written).map(lambda _: DeleteShareGroupOffsetsResponse(responses=responses))

    def _require_initialised(self, name: str, initialised: Container[bytes]) -> "Topic":
        topic = self._core.topics.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if topic.id not in initialised:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOTHING_TO_DELETE)
        return topic

    def _forget(self, group: ShareGroup, topic_id: bytes) -> list[Later[None]]:
        """The state of all share-partitions of a topic; the group's record is the caller's."""
        self._core.share_leader.forget_partitions(group.group_id, topic_id)
        if self._core.topics.by_id(topic_id) is None:
            return []  # the share coordinator has cleared up when the topic went
        partitions = group.rules.initialized[topic_id].partitions
        deleted = [
            self._core.share_state.delete(ShareKey(group.group_id, topic_id, index)) for index in partitions
        ]
        return [durable for durable in deleted if durable is not None]

    def forget_group(self, group: ShareGroup) -> Later[None]:
        """Everything that is kept of a group which is about to be deleted."""
        written = [
            durable for topic_id in group.rules.initialized for durable in self._forget(group, topic_id)
        ]
        self._core.share_leader.forget_group(group.group_id)
        return when_all(written).map(lambda _: None) if written else resolved(None)


def _describe_unknown(index: int) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(partition_index=index, start_offset=UNKNOWN)


def _require_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def _require_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
