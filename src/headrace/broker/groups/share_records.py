"""Changes of share groups as entries of the journal, in Kafka's schemas (types 10 to 15), and back again."""

from collections.abc import Iterable, Mapping
from typing import Protocol

from headrace.broker.groups.records import JournalEntry
from headrace.share.assignor import Assignment
from headrace.share.membership import (
    CurrentAssignment,
    CurrentChanged,
    EpochChanged,
    GroupChange,
    MemberChanged,
    MemberMetadata,
    StateTopicsChanged,
    TargetChanged,
    TargetEpochChanged,
    TopicState,
)
from headrace.wire.message import Message
from headrace.wire.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from headrace.wire.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from headrace.wire.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from headrace.wire.messages.share_group_metadata_key import ShareGroupMetadataKey
from headrace.wire.messages.share_group_metadata_value import ShareGroupMetadataValue
from headrace.wire.messages.share_group_state_partition_metadata_key import (
    ShareGroupStatePartitionMetadataKey,
)
from headrace.wire.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from headrace.wire.messages.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey,
)
from headrace.wire.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from headrace.wire.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from headrace.wire.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

KEYS = (
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)
"""The types of entries that belong to share groups."""
STABLE = 0
"""The only state a member of a share group is ever in."""


def entry(group_id: str, change: GroupChange, wall_ms: int) -> JournalEntry:
    match change:
        case MemberChanged(member_id, metadata):
            return JournalEntry(
                ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), _member_value(metadata)
            )
        case EpochChanged(epoch, metadata_hash):
            return JournalEntry(
                ShareGroupMetadataKey(group_id=group_id),
                ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
            )
        case TargetEpochChanged(epoch):
            return JournalEntry(
                ShareGroupTargetAssignmentMetadataKey(group_id=group_id),
                ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=wall_ms),
            )
        case TargetChanged(member_id, target):
            return JournalEntry(
                ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
                _target_value(target),
            )
        case CurrentChanged(member_id, current):
            return JournalEntry(
                ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
                _current_value(current),
            )
        case StateTopicsChanged():
            return JournalEntry(ShareGroupStatePartitionMetadataKey(group_id=group_id), _topics_value(change))


def _member_value(metadata: MemberMetadata | None) -> ShareGroupMemberMetadataValue | None:
    if metadata is None:
        return None
    return ShareGroupMemberMetadataValue(
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        subscribed_topic_names=metadata.subscribed,
    )


def _target_value(target: Assignment | None) -> ShareGroupTargetAssignmentMemberValue | None:
    if target is None:
        return None
    topics = [TopicPartition(topic_id=topic_id, partitions=indexes) for topic_id, indexes in target.items()]
    return ShareGroupTargetAssignmentMemberValue(topic_partitions=topics)


def _current_value(current: CurrentAssignment | None) -> ShareGroupCurrentMemberAssignmentValue | None:
    if current is None:
        return None
    return ShareGroupCurrentMemberAssignmentValue(
        member_epoch=current.member_epoch,
        previous_member_epoch=current.previous_epoch,
        state=STABLE,
        assigned_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in current.assigned.items()
        ],
    )


def _topics_value(change: StateTopicsChanged) -> ShareGroupStatePartitionMetadataValue:
    def listed(topics: Mapping[bytes, TopicState]) -> list[TopicPartitionsInfo]:
        return [
            TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=topic.partitions)
            for topic_id, topic in topics.items()
        ]

    return ShareGroupStatePartitionMetadataValue(
        initializing_topics=listed(change.initializing),
        initialized_topics=listed(change.initialized),
        deleting_topics=[
            TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in change.deleting.items()
        ],
    )


def change(key: Message, value: Message | None) -> GroupChange | None:
    """What an entry says; None for the tombstones that only a whole group leaves behind."""
    match key, value:
        case ShareGroupMemberMetadataKey(member_id=member_id), None:
            return MemberChanged(member_id, None)
        case ShareGroupMemberMetadataKey(member_id=member_id), ShareGroupMemberMetadataValue() as metadata:
            return MemberChanged(
                member_id,
                MemberMetadata(
                    rack_id=metadata.rack_id,
                    client_id=metadata.client_id,
                    client_host=metadata.client_host,
                    subscribed=tuple(metadata.subscribed_topic_names),
                ),
            )
        case ShareGroupMetadataKey(), ShareGroupMetadataValue() as group:
            return EpochChanged(group.epoch, group.metadata_hash)
        case ShareGroupTargetAssignmentMetadataKey(), ShareGroupTargetAssignmentMetadataValue() as target:
            return TargetEpochChanged(target.assignment_epoch)
        case ShareGroupTargetAssignmentMemberKey(member_id=member_id), None:
            return TargetChanged(member_id, None)
        case ShareGroupTargetAssignmentMemberKey(member_id=member_id), (
            ShareGroupTargetAssignmentMemberValue() as assigned
        ):
            return TargetChanged(member_id, _assignment(assigned.topic_partitions))
        case ShareGroupCurrentMemberAssignmentKey(member_id=member_id), None:
            return CurrentChanged(member_id, None)
        case ShareGroupCurrentMemberAssignmentKey(member_id=member_id), (
            ShareGroupCurrentMemberAssignmentValue() as current
        ):
            return CurrentChanged(
                member_id,
                CurrentAssignment(
                    member_epoch=current.member_epoch,
                    previous_epoch=current.previous_member_epoch,
                    assigned=_assignment(current.assigned_partitions),
                ),
            )
        case ShareGroupStatePartitionMetadataKey(), ShareGroupStatePartitionMetadataValue() as topics:
            return StateTopicsChanged(
                _topics(topics.initialized_topics),
                _topics(topics.initializing_topics),
                {topic.topic_id: topic.topic_name for topic in topics.deleting_topics},
            )
        case _:
            return None


class _Assigned(Protocol):
    @property
    def topic_id(self) -> bytes: ...

    @property
    def partitions(self) -> Iterable[int]: ...


def _assignment(topics: Iterable[_Assigned]) -> dict[bytes, tuple[int, ...]]:
    return {topic.topic_id: tuple(topic.partitions) for topic in topics}


def _topics(topics: Iterable[TopicPartitionsInfo]) -> dict[bytes, TopicState]:
    return {topic.topic_id: TopicState(topic.topic_name, tuple(topic.partitions)) for topic in topics}


def group_tombstones(group_id: str) -> list[JournalEntry]:
    """Of an empty group, in Kafka's order."""
    return [
        JournalEntry(ShareGroupTargetAssignmentMetadataKey(group_id=group_id)),
        JournalEntry(ShareGroupStatePartitionMetadataKey(group_id=group_id)),
        JournalEntry(ShareGroupMetadataKey(group_id=group_id)),
    ]
