"""What a member's heartbeat changes in its consumer group (KIP-848). Decides and changes nothing.

In order: who is it and is its epoch right; what has it changed about itself; has the group epoch to grow; has a new
target to be computed; what is its own next step. Each change is a journal entry, in Kafka's order.
`HeartbeatDecision` carries them with the answer, and what `accept` then notes about time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from headrace.broker.groups import records
from headrace.broker.groups.assignors import ASSIGNORS, MemberSpec
from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.consumer_member import JOINING, LEAVING_FOR_A_WHILE, NOTHING, ConsumerMember
from headrace.broker.groups.reconcile import Goal, reconcile
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Now
from headrace.broker.groups.subscriptions import (
    compile_pattern,
    fingerprint,
    resolve,
    subscribed_names,
    topic_ids,
)
from headrace.broker.settings import Settings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicIdPartition
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

NEVER_SET = -1
MEMBER_ID_BY_CLIENT_SINCE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerLimits:
    """The settings that hold for one group."""

    session_ms: int = 45_000
    heartbeat_ms: int = 5_000
    assignment_interval_ms: int = 1_000
    size_max: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    """The first is used when members ask for none."""


def consumer_limits(settings: Settings, group_id: str) -> ConsumerLimits:
    return ConsumerLimits(
        session_ms=settings.group_int(group_id, "consumer.session.timeout.ms"),
        heartbeat_ms=settings.group_int(group_id, "consumer.heartbeat.interval.ms"),
        assignment_interval_ms=settings.group_int(group_id, "consumer.assignment.interval.ms"),
        size_max=settings.get_int("group.consumer.max.size"),
        assignors=tuple(settings.get_list("group.consumer.assignors")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A heartbeat with what is known around it."""

    request: ConsumerGroupHeartbeatRequest
    client_id: str = ""
    client_host: str = ""
    version: int = 1
    fresh_id: str = ""
    """A random id, used if the client has not made one."""
    may_describe: Callable[[str], bool] = bool
    """Topics that patterns may find, by their names: those that the client may describe."""

    @property
    def owned(self) -> frozenset[TopicIdPartition] | None:
        topics = self.request.topic_partitions
        if topics is None:
            return None
        return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


@dataclass(slots=True)
class HeartbeatDecision:
    member: ConsumerMember
    entries: list[JournalEntry] = field(default_factory=list)
    response: ConsumerGroupHeartbeatResponse = field(default_factory=ConsumerGroupHeartbeatResponse)
    has_refreshed: bool = False

    def accept(self, group: ConsumerGroup, limits: ConsumerLimits, now: Now) -> None:
        """Once the entries are in the journal and applied: the clocks that the heartbeat has started again."""
        if self.has_refreshed:
            group.is_stale = False
        if any(entry.key.API_KEY == TARGET_METADATA for entry in self.entries):
            group.note_assigned(now)
        group.keep_session(self.member.member_id, limits.session_ms, now)
        if any(entry.key.API_KEY == CURRENT_ASSIGNMENT for entry in self.entries):
            group.watch_revocation(self.member, now)


TARGET_METADATA = 6
"""The type of the records that say for which group epoch the target was computed."""
CURRENT_ASSIGNMENT = 8
"""The type of the records that say what a member holds."""


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """What can be said about a heartbeat without knowing its group. Raises KafkaError."""
    epoch = request.member_epoch
    if (version >= MEMBER_ID_BY_CLIENT_SINCE or epoch > 0 or epoch == -1) and not request.member_id.strip():
        _refuse("MemberId can't be empty.")
    if not request.group_id.strip():
        _refuse("GroupId can't be empty.")
    if request.instance_id is not None and not request.instance_id.strip():
        _refuse("InstanceId can't be empty.")
    if request.rack_id is not None and not request.rack_id.strip():
        _refuse("RackId can't be empty.")
    if epoch == JOINING:
        if request.rebalance_timeout_ms == NEVER_SET:
            _refuse("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            _refuse("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            _refuse("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")
    elif epoch == LEAVING_FOR_A_WHILE and request.instance_id is None:
        _refuse("InstanceId can't be null.")
    elif epoch < LEAVING_FOR_A_WHILE:
        _refuse("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _refuse(why: str) -> None:
    raise KafkaError(ErrorCode.INVALID_REQUEST, why)


def decide_heartbeat(group: ConsumerGroup, beat: Beat, limits: ConsumerLimits, now: Now) -> HeartbeatDecision:
    return _Heartbeat(group, beat, limits, now).decide()


def decide_leave(
    group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest
) -> tuple[list[JournalEntry], ConsumerMember]:
    """The entries of a member that goes, for good or (static, epoch -2) to come back; and the member."""
    if request.instance_id is None:
        member = group.require(request.member_id)
        return group.fencing_entries(member), member
    member = require_static(group, request.instance_id, request.member_id)
    if request.member_epoch != LEAVING_FOR_A_WHILE:
        return group.fencing_entries(member), member
    paused = replace(member, epoch=LEAVING_FOR_A_WHILE, revoking=NOTHING, held=dict.fromkeys(member.held, 0))
    return [paused.current_entry(group.group_id)], paused


def require_static(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    member = group.static_member(instance_id)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}.",
        )
    return member


class _Heartbeat:
    """One decision under way: what the group will be like when its entries are applied."""

    def __init__(self, group: ConsumerGroup, beat: Beat, limits: ConsumerLimits, now: Now) -> None:
        self.group = group
        self.beat = beat
        self.request = beat.request
        self.limits = limits
        self.now = now
        self.entries: list[JournalEntry] = []
        self.replaced: ConsumerMember | None = None
        self.resolved: Mapping[str, frozenset[str]] = group.resolved

    def decide(self) -> HeartbeatDecision:
        former = self._find()
        member = self._updated(former)
        if member != former:
            self.entries.append(member.metadata_entry(self.group.group_id))
        has_new_topics = member.topic_names != former.topic_names
        has_new_pattern = member.pattern != former.pattern
        has_refreshed = self.group.is_stale or has_new_topics or has_new_pattern
        epoch = self.group.epoch
        if has_refreshed:
            self._resolve_patterns(member)
            finds_topics = has_new_pattern and bool(self.resolved.get(member.pattern))
            epoch = self._group_epoch(member, has_changed=has_new_topics or finds_topics)
        assignment_epoch, target = self._target(member, epoch)
        reconciled = self._reconciled(member, assignment_epoch, target, has_new_topics or has_new_pattern)
        if reconciled != member:
            self.entries.append(reconciled.current_entry(self.group.group_id))
        return HeartbeatDecision(reconciled, self.entries, self._respond(former, reconciled), has_refreshed)

    def _find(self) -> ConsumerMember:
        """The member as it is, a new one, or a static one that takes its former place under a new id."""
        group, request = self.group, self.request
        is_joining = request.member_epoch == JOINING
        if len(group.members) >= self.limits.size_max and request.member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {self.limits.size_max} members.",
            )
        member_id = request.member_id or self.beat.fresh_id
        if request.instance_id is not None:
            former = group.static_member(request.instance_id)
            if is_joining and former is not None:
                return self._take_over(former, member_id)
            if not is_joining:
                member = require_static(group, request.instance_id, member_id)
                self._check_epoch(member)
                return member
        if is_joining:
            return group.members.get(member_id) or ConsumerMember(member_id=member_id)
        member = group.require(member_id)
        self._check_epoch(member)
        return member

    def _take_over(self, former: ConsumerMember, member_id: str) -> ConsumerMember:
        if former.epoch != LEAVING_FOR_A_WHILE:
            raise KafkaError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {former.instance_id} cannot join the group because the "
                f"instance id is owned by {former.member_id} member.",
            )
        group_id = self.group.group_id
        member = replace(former, member_id=member_id, epoch=0, previous_epoch=0)
        self.replaced = former
        self.entries += records.member_tombstones(group_id, former.member_id)
        self.entries.append(member.metadata_entry(group_id))
        self.entries.append(records.target_assignment(group_id, member_id, self._former_target(member)))
        self.entries.append(member.current_entry(group_id))
        return member

    def _former_target(self, member: ConsumerMember) -> frozenset[TopicIdPartition]:
        holder = self.replaced or member
        return self.group.targets.get(holder.member_id, frozenset())

    def _check_epoch(self, member: ConsumerMember) -> None:
        """A smaller epoch is right if our last answer was lost: the epoch before, owning no more than we gave."""
        epoch = self.request.member_epoch
        if epoch == member.epoch:
            return
        is_greater = epoch > member.epoch
        owned = self.beat.owned
        if (
            not is_greater
            and epoch == member.previous_epoch
            and owned is not None
            and owned <= member.held.keys()
        ):
            return
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {'greater' if is_greater else 'smaller'} member epoch ({epoch}) than the "
            f"one known by the group coordinator ({member.epoch}). The member must abandon all its partitions and "
            "rejoin.",
        )

    def _updated(self, former: ConsumerMember) -> ConsumerMember:
        """Null and -1 in a heartbeat mean: as before."""
        request = self.request
        names, pattern = request.subscribed_topic_names, request.subscribed_topic_regex
        is_set = request.rebalance_timeout_ms != NEVER_SET
        member = replace(
            former,
            instance_id=former.instance_id if request.instance_id is None else request.instance_id,
            rack_id=former.rack_id if request.rack_id is None else request.rack_id,
            client_id=self.beat.client_id,
            client_host=self.beat.client_host,
            rebalance_ms=request.rebalance_timeout_ms if is_set else former.rebalance_ms,
            assignor=former.assignor if request.server_assignor is None else request.server_assignor,
            topic_names=former.topic_names if names is None else frozenset(names),
            pattern=former.pattern if pattern is None else pattern,
        )
        if member.pattern and member.pattern != former.pattern:
            compile_pattern(member.pattern)
        return member

    def _members_with(self, member: ConsumerMember) -> dict[str, ConsumerMember]:
        """The group's members as they will be."""
        members = self.group.members_without(self.replaced.member_id if self.replaced else None)
        return {**members, member.member_id: member}

    def _names_of(self, member: ConsumerMember) -> frozenset[str]:
        return subscribed_names(member.topic_names, member.pattern, self.resolved)

    def _resolve_patterns(self, member: ConsumerMember) -> None:
        """All patterns of the group against the topics that are there now; those nobody has any more go."""
        group = self.group
        patterns = {one.pattern for one in self._members_with(member).values() if one.pattern}
        for pattern in sorted(group.resolved.keys() - patterns):
            self.entries.append(records.regular_expression_tombstone(group.group_id, pattern))
        self.resolved = {
            pattern: frozenset(filter(self.beat.may_describe, resolve(pattern, group.topics)))
            for pattern in sorted(patterns)
        }
        for pattern, names in self.resolved.items():
            if group.resolved.get(pattern) != names:
                self.entries.append(
                    records.regular_expression(group.group_id, pattern, names, self.now.wall_ms)
                )

    def _group_epoch(self, member: ConsumerMember, *, has_changed: bool) -> int:
        group = self.group
        names = {name for one in self._members_with(member).values() for name in self._names_of(one)}
        metadata_hash = fingerprint(names, group.topics)
        if not has_changed and metadata_hash == group.metadata_hash:
            return group.epoch
        self.entries.append(records.group_epoch(group.group_id, group.epoch + 1, metadata_hash))
        return group.epoch + 1

    def _target(self, member: ConsumerMember, epoch: int) -> tuple[int, frozenset[TopicIdPartition]]:
        """The newest assignment's epoch, and the member's part in it; computed now if it is older than the group."""
        group = self.group
        if epoch <= group.assignment_epoch or not group.may_assign(
            self.limits.assignment_interval_ms, self.now
        ):
            return group.assignment_epoch, self._former_target(member)
        members = self._members_with(member)
        specs = {
            member_id: MemberSpec(
                topic_ids(self._names_of(one), group.topics),
                self._former_target(one) if one is member else group.targets.get(member_id, frozenset()),
                one.instance_id,
            )
            for member_id, one in members.items()
        }
        ids = {topic_id for spec in specs.values() for topic_id in spec.topic_ids}
        topics = {topic.id: len(topic.partitions) for topic in map(group.topics.by_id, sorted(ids)) if topic}
        assignor = group.preferred_assignor(members.values()) or self.limits.assignors[0]
        targets = ASSIGNORS[assignor](specs, topics)
        for member_id, partitions in targets.items():
            had_target = member_id in group.targets or (self.replaced and member_id == member.member_id)
            if not had_target or partitions != specs[member_id].partitions:
                self.entries.append(records.target_assignment(group.group_id, member_id, partitions))
        self.entries.append(records.target_epoch(group.group_id, epoch, self.now.wall_ms))
        return epoch, targets[member.member_id]

    def _reconciled(
        self,
        member: ConsumerMember,
        epoch: int,
        target: frozenset[TopicIdPartition],
        has_new_subscription: bool,
    ) -> ConsumerMember:
        if member.is_reconciled_to(epoch) and not has_new_subscription:
            return member
        goal = Goal(
            epoch=epoch,
            partitions=target,
            topic_ids=topic_ids(self._names_of(member), self.group.topics),
            is_owned=self.group.is_held,
        )
        return reconcile(member, goal, owned=self.beat.owned, has_subscription_changed=has_new_subscription)

    def _respond(self, former: ConsumerMember, member: ConsumerMember) -> ConsumerGroupHeartbeatResponse:
        """The assignment goes out when it has changed, and to whoever says all about itself: it may have missed it."""
        request = self.request
        has_topics = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
        is_full = (
            request.rebalance_timeout_ms != NEVER_SET and has_topics and request.topic_partitions is not None
        )
        assignment = None
        if request.member_epoch == JOINING or is_full or former.held != member.held:
            assignment = Assignment(
                topic_partitions=[
                    TopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in records.by_topic(member.held).items()
                ]
            )
        return ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=self.limits.heartbeat_ms,
            assignment=assignment,
        )
