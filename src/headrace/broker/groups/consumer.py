"""Consumer groups (KIP-848) as the journal makes them: members, epochs, targets, who holds which partition.

Theory of operation. Three epochs. The *group epoch* grows whenever something changes that an assignment depends on:
members, subscriptions, topics. The *assignment epoch* is the group epoch for which the target assignment was computed.
Each member has its *own epoch*, and comes heartbeat by heartbeat to the assignment epoch by giving up and taking
partitions (reconcile.py). What a request changes is decided in heartbeats.py and comes back here as journal entries;
nothing but `apply` changes what is kept. Sessions and revocation deadlines are not in the journal: after a
restart members get a whole session again.
"""

from collections import Counter
from collections.abc import Iterable

from headrace.broker.groups import records
from headrace.broker.groups.consumer_member import ConsumerMember, HeldPartitions, MemberState
from headrace.broker.groups.offsets import OffsetAndMetadata
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import CommitCheck, Now, Write
from headrace.broker.groups.subscriptions import TopicsView, fingerprint, subscribed_names
from headrace.wire.enums import GroupState, GroupType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicIdPartition
from headrace.wire.message import Message
from headrace.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
)
from headrace.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from headrace.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from headrace.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from headrace.wire.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from headrace.wire.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from headrace.wire.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from headrace.wire.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from headrace.wire.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from headrace.wire.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from headrace.wire.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from headrace.wire.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

OFFSET_COMMIT_WITH_EPOCH_SINCE = 9
KEYS = (
    ConsumerGroupMetadataKey,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupRegularExpressionKey,
)
"""The types of entries that `apply` takes."""


class ConsumerGroup:
    type = GroupType.CONSUMER
    protocol_type_name = "consumer"

    def __init__(self, group_id: str, topics: TopicsView, *, session_ms: int = 45_000) -> None:
        self.group_id = group_id
        self.topics = topics
        self.session_ms = session_ms
        """The newest that a heartbeat was granted; members that come from the journal get it first."""
        self.epoch = 1
        self.metadata_hash = 0
        self.assignment_epoch = 1
        self.assigned_ms = 0
        """When the target was computed, by the wall clock, for whoever reads the journal; 0: never."""
        self._assigned_at_ms: int | None = None
        """The same by the monotonic clock; None: not since the start. Intervals go by this one."""
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, frozenset[TopicIdPartition]] = {}
        self.resolved: dict[str, frozenset[str]] = {}
        """The topics that each pattern of a member stands for."""
        self.is_stale = True
        """Topics have changed since the last heartbeat: the next one looks whether that matters."""
        self._names: frozenset[str] | None = None
        """The topics that its members read; None until it is asked for, as for each topic that changes."""
        self._has_patterns = False
        self._static: dict[str, str] = {}
        self._holders: Counter[TopicIdPartition] = Counter()
        self._sessions: dict[str, int] = {}
        self._revocations: dict[str, tuple[int, int]] = {}

    @property
    def state_name(self) -> str:
        if not self.members:
            return GroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return GroupState.ASSIGNING
        if any(not member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return GroupState.RECONCILING
        return GroupState.STABLE

    @property
    def is_empty(self) -> bool:
        return not self.members

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        return self.members[self._static[instance_id]] if instance_id in self._static else None

    def require(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return member

    def is_held(self, partition: TopicIdPartition) -> bool:
        return partition in self._holders

    def names_of(self, member: ConsumerMember) -> frozenset[str]:
        return subscribed_names(member.topic_names, member.pattern, self.resolved)

    def members_without(self, *member_ids: str | None) -> dict[str, ConsumerMember]:
        return {
            member_id: member for member_id, member in self.members.items() if member_id not in member_ids
        }

    def preferred_assignor(self, members: Iterable[ConsumerMember]) -> str | None:
        """The one most of these members ask for; by name among equals."""
        votes = Counter(member.assignor for member in members if member.assignor)
        return max(votes, key=lambda name: (votes[name], name)) if votes else None

    def apply(self, key: Message, value: Message | None) -> None:
        self._names = None
        match key, value:
            case ConsumerGroupMetadataKey(), ConsumerGroupMetadataValue() as metadata:
                self.epoch, self.metadata_hash = metadata.epoch, metadata.metadata_hash
            case (
                ConsumerGroupTargetAssignmentMetadataKey(),
                ConsumerGroupTargetAssignmentMetadataValue() as target,
            ):
                self.assignment_epoch, self.assigned_ms = target.assignment_epoch, target.assignment_timestamp
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id), None:
                self.targets.pop(member_id, None)
            case (
                ConsumerGroupTargetAssignmentMemberKey(member_id=member_id),
                ConsumerGroupTargetAssignmentMemberValue() as assignment,
            ):
                self.targets[member_id] = frozenset(
                    (topic.topic_id, index)
                    for topic in assignment.topic_partitions
                    for index in topic.partitions
                )
            case ConsumerGroupRegularExpressionKey(regular_expression=pattern), None:
                self.resolved.pop(pattern, None)
            case (
                ConsumerGroupRegularExpressionKey(regular_expression=pattern),
                ConsumerGroupRegularExpressionValue() as resolved,
            ):
                self.resolved[pattern] = frozenset(resolved.topics)
            case ConsumerGroupMemberMetadataKey(member_id=member_id), None:
                self._replace(member_id, None)
            case (
                ConsumerGroupMemberMetadataKey(member_id=member_id),
                ConsumerGroupMemberMetadataValue() as described,
            ):
                member = self.members.get(member_id) or ConsumerMember(member_id=member_id)
                self._replace(member_id, member.with_metadata(described))
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id), current if (
                member_id in self.members
            ):
                assert current is None or isinstance(current, ConsumerGroupCurrentMemberAssignmentValue)
                self._replace(member_id, self.members[member_id].with_current(current))
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id), (
                ConsumerGroupCurrentMemberAssignmentValue() as current
            ):
                # Compaction keeps each key's newest record: this one may come before the member's own.
                self._replace(member_id, ConsumerMember(member_id=member_id).with_current(current))

    def _replace(self, member_id: str, member: ConsumerMember | None) -> None:
        former = self.members.get(member_id)
        if former is not None:
            for partition in {**former.held, **former.revoking}:
                self._holders[partition] -= 1
                if not self._holders[partition]:
                    del self._holders[partition]
            if former.instance_id is not None and self._static.get(former.instance_id) == member_id:
                del self._static[former.instance_id]
        if member is None:
            self.members.pop(member_id, None)
            self.forget_deadlines(member_id)
            return
        self.members[member_id] = member
        self._holders.update({**member.held, **member.revoking}.keys())
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id

    def tombstones(self) -> list[JournalEntry]:
        """In Kafka's order, which lets a half-read journal never hold a member without its group."""
        group_id = self.group_id
        kinds = (
            ConsumerGroupCurrentMemberAssignmentKey,
            ConsumerGroupTargetAssignmentMemberKey,
            ConsumerGroupMemberMetadataKey,
        )
        current, target, metadata = (
            [JournalEntry(kind(group_id=group_id, member_id=member_id)) for member_id in self.members]
            for kind in kinds
        )
        return [
            *current,
            *target,
            JournalEntry(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)),
            *metadata,
            *(records.regular_expression_tombstone(group_id, pattern) for pattern in self.resolved),
            JournalEntry(ConsumerGroupPartitionMetadataKey(group_id=group_id)),
            JournalEntry(ConsumerGroupMetadataKey(group_id=group_id)),
        ]

    def fencing_entries(self, *members: ConsumerMember) -> list[JournalEntry]:
        """What takes members out: their tombstones, patterns nobody has any more, and a new group epoch."""
        entries = [
            entry
            for member in members
            for entry in records.member_tombstones(self.group_id, member.member_id)
        ]
        left = self.members_without(*(member.member_id for member in members))
        patterns = {member.pattern for member in left.values()}
        entries += [
            records.regular_expression_tombstone(self.group_id, pattern)
            for pattern in self.resolved
            if pattern not in patterns
        ]
        names = {name for member in left.values() for name in self.names_of(member)}
        epoch = self.epoch + 1
        entries.append(records.group_epoch(self.group_id, epoch, fingerprint(names, self.topics)))
        if not left:  # nobody is left to be assigned anything (KAFKA-20442)
            entries.append(records.target_epoch(self.group_id, epoch, self.assigned_ms))
        return entries

    def may_assign(self, interval_ms: int, now: Now) -> bool:
        """Whether the last assignment is old enough for another one."""
        return self._assigned_at_ms is None or now.ms - self._assigned_at_ms >= interval_ms

    def note_assigned(self, now: Now) -> None:
        self._assigned_at_ms = now.ms

    def keep_session(self, member_id: str, session_ms: int, now: Now) -> None:
        self.session_ms = session_ms
        self._sessions[member_id] = now.ms + session_ms

    def watch_revocation(self, member: ConsumerMember, now: Now) -> None:
        """A member that must give partitions up has its rebalance timeout to do so, or is fenced."""
        if member.state is MemberState.UNREVOKED:
            self._revocations[member.member_id] = (now.ms + member.rebalance_ms, member.epoch)
        else:
            self._revocations.pop(member.member_id, None)

    def forget_deadlines(self, member_id: str) -> None:
        self._sessions.pop(member_id, None)
        self._revocations.pop(member_id, None)

    def deadline_ms(self) -> int | None:
        deadlines = [
            *self._sessions.values(),
            *(deadline_ms for deadline_ms, _ in self._revocations.values()),
        ]
        return min(deadlines, default=None)

    def expire(self, now: Now) -> Write | None:
        for member_id, (deadline_ms, epoch) in [*self._revocations.items()]:
            if deadline_ms <= now.ms:
                del self._revocations[member_id]
                if self.members[member_id].epoch == epoch:
                    return Write(self.fencing_entries(self.members[member_id]))
        for member_id, deadline_ms in self._sessions.items():
            if deadline_ms <= now.ms:
                return Write(self.fencing_entries(self.members[member_id]))
        return None

    def start_clocks(self, now: Now) -> Write | None:
        for member in self.members.values():
            self.keep_session(member.member_id, self.session_ms, now)
            self.watch_revocation(member, now)
        return None

    def forget_topic(self, topic: str) -> None:
        if not self.is_stale:
            self.is_stale = self.is_subscribed_to(topic) or self._has_patterns

    def check_offset_commit(
        self, *, member_id: str, instance_id: str | None, epoch: int, version: int, is_transactional: bool
    ) -> CommitCheck | None:
        if epoch < 0 and not self.members:
            return None  # an administrator, or a consumer that assigns partitions to itself
        if is_transactional and epoch == -1 and not member_id and instance_id is None:
            return None  # a producer too old to say for whom it commits
        member = self.require(member_id)
        if not is_transactional and version < OFFSET_COMMIT_WITH_EPOCH_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        if epoch > member.epoch:
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"Received member epoch {epoch} is newer than current member epoch {member.epoch}.",
            )
        return None if epoch == member.epoch else _commit_check(member, epoch)

    def note_offset_commit(self, member_id: str, now: Now) -> None:
        """Only heartbeats keep a session alive."""

    def check_offset_fetch(self, *, member_id: str | None, epoch: int) -> None:
        if member_id is None and epoch < 0:
            return
        member = self.require(member_id or "")
        if epoch != member.epoch:
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"The received member epoch {epoch} does not match the expected member epoch {member.epoch}.",
            )

    def check_offset_delete(self) -> None:
        """Topics that are subscribed to are refused one by one."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        if self._names is None:
            self._names = frozenset().union(*map(self.names_of, self.members.values()))
            self._has_patterns = any(member.pattern for member in self.members.values())
        return topic in self._names

    def offsets_idle_since(self, committed: OffsetAndMetadata) -> int | None:
        return committed.committed_ms

    def snapshot(self) -> object:
        epochs = (self.epoch, self.metadata_hash, self.assignment_epoch, self.assigned_ms)
        return *epochs, self.members, self.targets, self.resolved, self._static, self._holders


def _commit_check(member: ConsumerMember, epoch: int) -> CommitCheck:
    """A commit from before the member's newest epoch is good for partitions that it has held since then (KIP-1251)."""
    held: HeldPartitions = {**member.revoking, **member.held}

    def check(topic: str, topic_id: bytes, partition: int) -> None:
        since = held.get((topic_id, partition))
        if since is None:
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"Partition {topic}-{partition} is not assigned or pending revocation for member.",
            )
        if epoch < since:
            raise KafkaError(
                ErrorCode.STALE_MEMBER_EPOCH,
                f"Received member epoch {epoch} is older than assignment epoch {since} "
                f"for partition {topic}-{partition}.",
            )

    return check
