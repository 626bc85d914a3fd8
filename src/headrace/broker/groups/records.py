"""The journal's records, in Kafka's own schemas, so that Apache's tools read `__consumer_offsets` as their own.

A record's key is an int16 that says its type, then the key message; its value an int16 version, then the value message.
A null value is a tombstone: the thing that the key names is gone. `JournalEntry` holds both as messages; only here they
become bytes and come back. Types that we do not know (streams groups) decode to None and are skipped. Entries of share
groups are made in share_records.py.
"""

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headrace.wire.codec import MalformedMessage, encode, read_message
from headrace.wire.ids import TopicIdPartition
from headrace.wire.message import Message
from headrace.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from headrace.wire.messages.consumer_group_current_member_assignment_value import (
    TopicPartitions as CurrentTopicPartitions,
)
from headrace.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from headrace.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from headrace.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from headrace.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from headrace.wire.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from headrace.wire.messages.consumer_group_partition_metadata_value import ConsumerGroupPartitionMetadataValue
from headrace.wire.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from headrace.wire.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from headrace.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from headrace.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from headrace.wire.messages.consumer_group_target_assignment_member_value import (
    TopicPartition as TargetTopicPartition,
)
from headrace.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from headrace.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.messages.group_metadata_value import GroupMetadataValue
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.messages.share_group_current_member_assignment_key import (
    ShareGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
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
)
from headrace.wire.messages.share_group_target_assignment_member_key import (
    ShareGroupTargetAssignmentMemberKey,
)
from headrace.wire.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
)
from headrace.wire.messages.share_group_target_assignment_metadata_key import (
    ShareGroupTargetAssignmentMetadataKey,
)
from headrace.wire.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)

_SHORT = struct.Struct(">h")
_TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    key.API_KEY: (key, value)
    for key, value in (
        (OffsetCommitKey, OffsetCommitValue),
        (GroupMetadataKey, GroupMetadataValue),
        (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
        (ConsumerGroupPartitionMetadataKey, ConsumerGroupPartitionMetadataValue),
        (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue),
        (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue),
        (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue),
        (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue),
        (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue),
        (ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue),
        (ShareGroupMetadataKey, ShareGroupMetadataValue),
        (ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue),
        (ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue),
        (ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue),
        (ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue),
    )
}
_OFFSET_COMMIT = _SHORT.pack(OffsetCommitKey.API_KEY)
# What 4.3 writes; every other value has one version only.
GROUP_METADATA_VERSION = 3
OFFSET_VERSION = 4
OFFSET_WITH_EXPIRY_VERSION = 1


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One change as it stands in the journal."""

    key: Message
    value: Message | None = None
    version: int = 0

    def encode(self) -> tuple[bytes, bytes | None]:
        key = _SHORT.pack(self.key.API_KEY) + encode(self.key, 0)
        if self.value is None:
            return key, None
        return key, _SHORT.pack(self.version) + encode(self.value, self.version)


def is_offset_commit(key: bytes) -> bool:
    return key[:2] == _OFFSET_COMMIT


def decode(key: bytes, value: bytes | None) -> JournalEntry | None:
    """The entry, or None for a type of record that is not ours to understand."""
    if len(key) < _SHORT.size:
        raise MalformedMessage("a journal record with a key of less than two bytes")
    (kind,) = _SHORT.unpack_from(key)
    if kind not in _TYPES:
        return None
    key_class, value_class = _TYPES[kind]
    key_message, _ = read_message(key_class, 0, key, _SHORT.size)
    if value is None:
        return JournalEntry(key_message)
    if len(value) < _SHORT.size:
        raise MalformedMessage("a journal record with a value of less than two bytes")
    (version,) = _SHORT.unpack_from(value)
    oldest, newest = value_class.VERSIONS
    if not oldest <= version <= newest:
        raise MalformedMessage(f"{value_class.__name__} of unknown version {version}")
    value_message, _ = read_message(value_class, version, value, _SHORT.size)
    return JournalEntry(key_message, value_message, version)


def offset_commit(group_id: str, topic: str, partition: int, value: OffsetCommitValue | None) -> JournalEntry:
    version = OFFSET_VERSION
    if value is not None and value.expire_timestamp != -1:
        version = OFFSET_WITH_EXPIRY_VERSION  # the only one that has the field
    return JournalEntry(OffsetCommitKey(group=group_id, topic=topic, partition=partition), value, version)


def group_metadata(group_id: str, value: GroupMetadataValue | None) -> JournalEntry:
    return JournalEntry(GroupMetadataKey(group=group_id), value, GROUP_METADATA_VERSION)


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> JournalEntry:
    return JournalEntry(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def target_epoch(group_id: str, epoch: int, assigned_ms: int) -> JournalEntry:
    return JournalEntry(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id),
        ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=assigned_ms),
    )


def target_assignment(group_id: str, member_id: str, partitions: Iterable[TopicIdPartition]) -> JournalEntry:
    return JournalEntry(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TargetTopicPartition(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in by_topic(partitions).items()
            ]
        ),
    )


def current_partitions(assignment: Mapping[TopicIdPartition, int]) -> list[CurrentTopicPartitions]:
    """Partitions with the epochs at which they were assigned, as current assignment records hold them."""
    return [
        CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=[assignment[topic_id, index] for index in indexes],
        )
        for topic_id, indexes in by_topic(assignment).items()
    ]


def regular_expression(group_id: str, pattern: str, topics: Iterable[str], resolved_ms: int) -> JournalEntry:
    return JournalEntry(
        ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern),
        ConsumerGroupRegularExpressionValue(topics=sorted(topics), version=0, timestamp=resolved_ms),
    )


def regular_expression_tombstone(group_id: str, pattern: str) -> JournalEntry:
    return JournalEntry(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern))


def member_tombstones(group_id: str, member_id: str) -> list[JournalEntry]:
    """In Kafka's order: what the member holds, what it shall hold, what it is."""
    return [
        JournalEntry(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)),
        JournalEntry(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)),
        JournalEntry(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)),
    ]


def by_topic(partitions: Iterable[TopicIdPartition]) -> dict[bytes, list[int]]:
    """Partition indexes by topic id, both in order."""
    topics: dict[bytes, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return topics
