"""Classic groups as the coordinator sees them: what they allow, what they show, how the journal keeps them.

How members come, agree and go is in classic_rebalance.py.
"""

from headrace.broker.groups import records
from headrace.broker.groups.classic_members import ClassicMember, Members
from headrace.broker.groups.classic_rebalance import (
    CONSUMER_PROTOCOL,
    ClassicLimits,
    Rebalance,
)
from headrace.broker.groups.offsets import OffsetAndMetadata
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import CommitCheck, Now, Registry, Write, require_group_id
from headrace.wire.enums import GroupState, GroupType
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.group_metadata_value import GroupMetadataValue


class ClassicGroup:
    type = GroupType.CLASSIC

    def __init__(self, group_id: str, limits: ClassicLimits, *, wall_ms: int = -1) -> None:
        self.rebalance = Rebalance(group_id, limits, wall_ms=wall_ms)

    @property
    def group_id(self) -> str:
        return self.rebalance.group_id

    @property
    def protocol_type_name(self) -> str:
        return self.rebalance.protocol_type or ""

    @property
    def state_name(self) -> str:
        return self.rebalance.state.value

    @property
    def is_empty(self) -> bool:
        return self.rebalance.state is GroupState.EMPTY

    def check_offset_commit(
        self, *, member_id: str, instance_id: str | None, epoch: int, version: int, is_transactional: bool
    ) -> CommitCheck | None:
        if epoch < 0 and self.rebalance.state is GroupState.EMPTY:
            return None  # an administrator, or a consumer that assigns partitions to itself
        if epoch >= 0 or member_id or instance_id is not None:
            self.rebalance.members.require(member_id, instance_id)
            if epoch != self.rebalance.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not is_transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not is_transactional and self.rebalance.state is GroupState.COMPLETING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def note_offset_commit(self, member_id: str, now: Now) -> None:
        member = self.rebalance.members.get(member_id)
        if member is not None and self.rebalance.state in (
            GroupState.STABLE,
            GroupState.PREPARING_REBALANCE,
        ):
            self.rebalance.touch(member, now)

    def check_offset_fetch(self, *, member_id: str | None, epoch: int) -> None:
        """Classic members do not say who they are when they fetch."""

    def check_offset_delete(self) -> None:
        if self.rebalance.state is not GroupState.EMPTY and self.rebalance.protocol_type != CONSUMER_PROTOCOL:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if self.rebalance.state is not GroupState.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def is_subscribed_to(self, topic: str) -> bool:
        if self.rebalance.subscribed_topics is None:
            return self.rebalance.protocol_type == CONSUMER_PROTOCOL
        return topic in self.rebalance.subscribed_topics

    def offsets_idle_since(self, committed: OffsetAndMetadata) -> int | None:
        rebalance = self.rebalance
        if rebalance.protocol_type is None:
            return committed.committed_ms
        if rebalance.state is GroupState.EMPTY:
            return rebalance.state_since_ms if rebalance.state_since_ms != -1 else committed.committed_ms
        is_known = rebalance.protocol_type == CONSUMER_PROTOCOL and rebalance.subscribed_topics is not None
        return committed.committed_ms if is_known and rebalance.state is GroupState.STABLE else None

    def forget_topic(self, topic: str) -> None:
        """The leader watches topics itself, and joins again when they change."""

    def deadline_ms(self) -> int | None:
        return self.rebalance.deadline_ms()

    def expire(self, now: Now) -> Write | None:
        return self.rebalance.expire(now)

    def start_clocks(self, now: Now) -> Write | None:
        return self.rebalance.start_clocks(now)

    def as_new_entry(self) -> JournalEntry:
        """What makes a group known before its first rebalance has an outcome."""
        value = GroupMetadataValue(
            protocol=None, leader=None, current_state_timestamp=self.rebalance.state_since_ms
        )
        return records.group_metadata(self.group_id, value)

    def tombstones(self) -> list[JournalEntry]:
        return [records.group_metadata(self.group_id, None)]

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue, limits: ClassicLimits) -> "ClassicGroup":
        group = cls(group_id, limits, wall_ms=value.current_state_timestamp)
        members = [
            ClassicMember(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_ms=member.session_timeout
                if member.rebalance_timeout == -1
                else member.rebalance_timeout,
                session_ms=member.session_timeout,
                protocols=((value.protocol or "", member.subscription),),
                assignment=member.assignment,
            )
            for member in value.members
        ]
        rebalance = group.rebalance
        rebalance.state = GroupState.STABLE if members else GroupState.EMPTY
        rebalance.generation = value.generation
        rebalance.protocol_type = value.protocol_type or None
        rebalance.protocol_name = value.protocol
        rebalance.members = Members(members, value.leader)
        rebalance.note_subscriptions()
        return group

    def snapshot(self) -> object:
        rebalance = self.rebalance
        members = [
            member.as_record(rebalance.protocol_name, member.assignment) for member in rebalance.members
        ]
        # A stable group's state is younger than its record: it became stable by being recorded.
        since_ms = rebalance.state_since_ms if self.is_empty else None
        protocol = (rebalance.protocol_type, rebalance.protocol_name, rebalance.members.leader_id)
        return (
            rebalance.state,
            rebalance.generation,
            *protocol,
            since_ms,
            rebalance.subscribed_topics,
            members,
        )


def require_classic(registry: Registry, group_id: str) -> ClassicGroup:
    """The group of a member that says it has joined."""
    require_group_id(group_id)
    group = registry.get(group_id)
    if not isinstance(group, ClassicGroup):
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
    return group
