"""One member of a consumer group (KIP-848): what it told us, its epoch, what it holds, and its form in the journal."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType

from headrace.broker.groups import records
from headrace.broker.groups.records import JournalEntry
from headrace.wire.ids import TopicIdPartition
from headrace.wire.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from headrace.wire.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from headrace.wire.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from headrace.wire.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue

JOINING = 0
LEAVING = -1
LEAVING_FOR_A_WHILE = -2
"""The epochs by which members say that they come or go; the last is a static member's that means to come back."""

HeldPartitions = Mapping[TopicIdPartition, int]
"""Partitions with the epochs at which the member got them."""
NOTHING: HeldPartitions = MappingProxyType({})


class MemberState(IntEnum):
    """With the numbers that the journal holds."""

    STABLE = 0
    UNREVOKED = 1
    """Has been asked to give partitions up and has not confirmed that it did."""
    UNRELEASED = 2
    """Waits for partitions that others have not given up yet."""
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_ms: int = -1
    topic_names: frozenset[str] = frozenset()
    pattern: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    held: HeldPartitions = field(default_factory=lambda: NOTHING, hash=False)
    """What it may read."""
    revoking: HeldPartitions = field(default_factory=lambda: NOTHING, hash=False)
    """What it must give up, and holds until it has confirmed that it did."""

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def advanced(
        self, epoch: int, *, state: MemberState, held: HeldPartitions, revoking: HeldPartitions
    ) -> "ConsumerMember":
        return replace(
            self, epoch=epoch, previous_epoch=self.epoch, state=state, held=held, revoking=revoking
        )

    def metadata_entry(self, group_id: str) -> JournalEntry:
        return JournalEntry(
            ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=self.member_id),
            ConsumerGroupMemberMetadataValue(
                instance_id=self.instance_id,
                rack_id=self.rack_id,
                client_id=self.client_id,
                client_host=self.client_host,
                subscribed_topic_names=sorted(self.topic_names),
                subscribed_topic_regex=self.pattern,
                rebalance_timeout_ms=self.rebalance_ms,
                server_assignor=self.assignor,
                classic_member_metadata=None,
            ),
        )

    def with_metadata(self, value: ConsumerGroupMemberMetadataValue) -> "ConsumerMember":
        return replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            pattern=value.subscribed_topic_regex or "",
            rebalance_ms=value.rebalance_timeout_ms,
            assignor=value.server_assignor,
        )

    def current_entry(self, group_id: str) -> JournalEntry:
        return JournalEntry(
            ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=self.member_id),
            ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=self.epoch,
                previous_member_epoch=self.previous_epoch,
                state=self.state,
                assigned_partitions=records.current_partitions(self.held),
                partitions_pending_revocation=records.current_partitions(self.revoking),
            ),
        )

    def with_current(self, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> "ConsumerMember":
        if value is None:
            return self.advanced(LEAVING, state=MemberState.STABLE, held=NOTHING, revoking=NOTHING)
        return replace(
            self,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            held=_held(value.assigned_partitions, value.member_epoch),
            revoking=_held(value.partitions_pending_revocation, value.member_epoch),
        )


def _held(topics: Iterable[TopicPartitions], member_epoch: int) -> HeldPartitions:
    held: dict[TopicIdPartition, int] = {}
    for topic in topics:
        epochs: Sequence[int] = topic.assignment_epochs or ()
        if len(epochs) != len(topic.partitions):
            # Written before 4.3: it was held in the member's epoch at the latest.
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        held.update(
            {(topic.topic_id, index): epoch for index, epoch in zip(topic.partitions, epochs, strict=True)}
        )
    return held
