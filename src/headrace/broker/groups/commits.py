"""What OffsetCommit and TxnOffsetCommit have in common: the group, and the offset as the journal keeps it."""

from typing import TYPE_CHECKING

from headrace.broker.groups import records
from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.offsets import OffsetAndMetadata
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Group
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.offset_commit_request import OffsetCommitRequestPartition
from headrace.wire.messages.txn_offset_commit_request import TxnOffsetCommitRequestPartition

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator

NO_EXPIRY = -1


def group_for_commit(groups: "GroupCoordinator", group_id: str, epoch: int, *, unknown: ErrorCode) -> Group:
    group = groups.registry.get(group_id)
    if group is not None:
        return group
    if epoch >= 0:
        raise KafkaError(unknown, f"Group {group_id} not found.")
    # A simple one: its offsets will make it.
    return ClassicGroup(group_id, groups.state.classic_limits)


def committed_offset(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    *,
    topic_id: bytes,
    wall_ms: int,
    metadata_max: int,
    expires_ms: int = NO_EXPIRY,
) -> OffsetAndMetadata | None:
    """None: its metadata is longer than `offset.metadata.max.bytes`."""
    metadata = partition.committed_metadata or ""
    if len(metadata) > metadata_max:
        return None
    return OffsetAndMetadata(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=metadata,
        committed_ms=wall_ms,
        expires_ms=expires_ms,
        topic_id=topic_id,
    )


def commit_entry(group_id: str, topic: str, partition: int, committed: OffsetAndMetadata) -> JournalEntry:
    return records.offset_commit(group_id, topic, partition, committed.as_record())
