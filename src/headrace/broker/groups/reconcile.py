"""One step of one member from what it holds toward what it shall hold (KIP-848, "Reconciliation").

A partition never has two readers: a member first gives up what it must no longer read, and says so by the partitions it
reports as owned; only then it moves to the new epoch, and only then others may get them. A member that waits for
partitions of others takes the new epoch at once and gets them heartbeat by heartbeat as they become free.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass, replace

from headrace.broker.groups.consumer_member import NOTHING, ConsumerMember, HeldPartitions, MemberState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicIdPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    epoch: int
    partitions: Set[TopicIdPartition]
    topic_ids: Set[bytes]
    """What the member is subscribed to now, which may be less than when the target was made."""
    is_owned: Callable[[TopicIdPartition], bool]
    """Does any member hold it?"""


def reconcile(
    member: ConsumerMember,
    goal: Goal,
    *,
    owned: Set[TopicIdPartition] | None,
    has_subscription_changed: bool = False,
) -> ConsumerMember:
    """The member after the step; the same one if it cannot move. `owned` is what it reports, None if it did not."""
    match member.state:
        case MemberState.STABLE if member.epoch == goal.epoch:
            return _drop_unsubscribed(member, goal, owned) if has_subscription_changed else member
        case MemberState.UNREVOKED if _holds_any(owned, member.revoking):
            return _drop_unsubscribed(member, goal, owned) if has_subscription_changed else member
        case MemberState.UNKNOWN if owned is None or owned:
            raise KafkaError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
        case _:
            return _advance(member, goal, owned)


def _advance(member: ConsumerMember, goal: Goal, owned: Set[TopicIdPartition] | None) -> ConsumerMember:
    target = {partition for partition in goal.partitions if partition[0] in goal.topic_ids}
    kept = {partition: epoch for partition, epoch in member.held.items() if partition in target}
    surplus = {partition: epoch for partition, epoch in member.held.items() if partition not in target}
    if surplus and _holds_any(owned, surplus):
        return member.advanced(member.epoch, state=MemberState.UNREVOKED, held=kept, revoking=surplus)
    missing = target - kept.keys()
    # What it is giving up itself is still entered as held, but by nobody else.
    free = {
        partition for partition in missing if partition in member.revoking or not goal.is_owned(partition)
    }
    return member.advanced(
        goal.epoch,
        state=MemberState.STABLE if free == missing else MemberState.UNRELEASED,
        held=kept | dict.fromkeys(free, goal.epoch),
        revoking=NOTHING,
    )


def _drop_unsubscribed(
    member: ConsumerMember, goal: Goal, owned: Set[TopicIdPartition] | None
) -> ConsumerMember:
    """A member that reads fewer topics now gives their partitions up without waiting for a new assignment."""
    dropped = {
        partition: epoch for partition, epoch in member.held.items() if partition[0] not in goal.topic_ids
    }
    if not dropped:
        return member
    kept = {partition: epoch for partition, epoch in member.held.items() if partition not in dropped}
    revoking = {**member.revoking, **dropped}
    if _holds_any(owned, revoking):
        return member.advanced(member.epoch, state=MemberState.UNREVOKED, held=kept, revoking=revoking)
    return replace(member, previous_epoch=member.epoch, held=kept)


def _holds_any(owned: Set[TopicIdPartition] | None, partitions: HeldPartitions) -> bool:
    """A member that does not say what it owns may still own anything."""
    return owned is None or any(partition in owned for partition in partitions)
