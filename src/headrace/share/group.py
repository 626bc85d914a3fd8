"""ShareGroup: who is a member, and who is assigned what.

Theory of operation. The *group epoch* grows whenever something changes that an assignment depends on: members, their
subscriptions, topics, partitions with share state. The *assignment epoch* is the group epoch for which the target
assignment was computed. A member takes its target in one step at its next heartbeat, and its own epoch becomes the
assignment epoch: partitions are shared, so nobody has to let go first. A member is fenced unless it sends its own
epoch, the one before it (its last answer was lost), or 0 to join (again).

Only partitions whose share state has been initialized are assigned. Here the caller initializes them at once, inside
the heartbeat that first sees them. Kafka does so after it, and assigns what there was before with one epoch and the new
partitions with the next; here one heartbeat does both, and the epoch grows as it does there.

The first member of an empty group waits a moment for others (`initial_delay_ms`), so that members which start together
share the backlog, if there is any; from then on a small group is assigned anew at every change, a large one at
intervals. While an assignment is in motion members are told a short heartbeat interval, so that it does not take until
their next regular heartbeat for everyone to get work; at rest the configured one.

Deciding mutates nothing; `apply` makes decided or replayed changes so. Session deadlines and the instants of the last
moves are no part of the journal: after a replay call `touch` for each member.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from heapq import heappop, heappush
from typing import TypeVar

from headrace.share.assignor import Assignment, assign
from headrace.share.errors import FencedMemberEpoch, GroupMaxSizeReached, UnknownMember
from headrace.share.membership import (
    JOIN_EPOCH,
    CurrentAssignment,
    CurrentChanged,
    EpochChanged,
    Fingerprint,
    GroupChange,
    GroupSettings,
    HeartbeatRequest,
    MemberChanged,
    MemberHeartbeat,
    MemberMetadata,
    StateTopicsChanged,
    TargetChanged,
    TargetEpochChanged,
    TopicInfo,
    TopicLookup,
    TopicState,
)

V = TypeVar("V")
SMALL_GROUP_MEMBERS = 16
SMALL_GROUP_PARTITIONS = 1_000
"""Up to these a group is small: to compute its assignment costs less than a millisecond or two."""


class ShareGroupRules:
    def __init__(self, group_id: str, *, fingerprint: Fingerprint) -> None:
        self.group_id = group_id
        self.epoch = 1
        self.assignment_epoch = 1
        self.metadata_hash = 0
        self.members: dict[str, MemberMetadata] = {}
        self.targets: dict[str, Assignment] = {}
        self.currents: dict[str, CurrentAssignment] = {}
        self.initialized: Mapping[bytes, TopicState] = {}
        self.initializing: Mapping[bytes, TopicState] = {}
        self.deleting: Mapping[bytes, str] = {}
        self._fingerprint = fingerprint
        self._subscribers: Counter[str] = Counter()  # of each topic
        self._assigned_ms: int | None = None
        self._filled_ms: int | None = None  # when the first member came into the empty group
        self._moved_ms: int | None = None
        self._deadlines: dict[str, int] = {}
        self._heap: list[tuple[int, str]] = []

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def is_assigned(self) -> bool:
        """Somebody has been given partitions."""
        return any(self.targets.values())

    def heartbeat(
        self, request: HeartbeatRequest, *, topics: TopicLookup, settings: GroupSettings, now_ms: int
    ) -> MemberHeartbeat:
        """Decides a join, rejoin or heartbeat (not a leave). `topics` looks up a topic as it exists now."""
        self._check(request, settings)
        member_id, changes = request.member_id, list[GroupChange]()
        before = self.members.get(member_id)
        metadata = _updated(before, request)
        if metadata != before:
            changes.append(MemberChanged(member_id, metadata))
        known = self._known_topics(member_id, metadata, topics)
        initialize = self._initialize(known, changes)
        metadata_hash = self._fingerprint((name, *info) for name, info in known.items())
        is_changed = before is None or metadata.subscribed != before.subscribed
        is_idle = bool(known) and not self.is_assigned
        delay_ms = self._delay_left(settings, now_ms) if is_idle else 0
        is_due = is_idle and not delay_ms
        is_forgotten = is_due and self.epoch == self.assignment_epoch
        is_moved = is_changed or is_forgotten or metadata_hash != self.metadata_hash
        epoch = state_epoch = self.epoch + is_moved
        if initialize and not delay_ms and self._is_assigned_apart(epoch, settings, now_ms):
            epoch += 1
        if epoch > self.epoch:
            changes.append(EpochChanged(epoch, metadata_hash))
        assignment_epoch, target = self.assignment_epoch, self.targets.get(member_id, {})
        # As in Kafka, a group that has no share state yet is assigned nothing at first.
        may_assign = bool(initialize) if delay_ms else is_due or self._may_assign(known, settings, now_ms)
        if epoch > assignment_epoch and may_assign:
            assignment_epoch = epoch
            assignable = known if not delay_ms else {}
            target = self._assign({**self.members, member_id: metadata}, assignable, changes)[member_id]
            changes.append(TargetEpochChanged(epoch))
        subscribed = {known[name].topic_id for name in metadata.subscribed if name in known}
        assigned = {topic: indexes for topic, indexes in target.items() if topic in subscribed}
        is_told = self._change_current(request, assignment_epoch, assigned, changes)
        is_in_motion = epoch > assignment_epoch or epoch > self.epoch or self._just_moved(settings, now_ms)
        heartbeat_ms = settings.motion_heartbeat_ms if is_in_motion else settings.heartbeat_ms
        return MemberHeartbeat(
            changes=changes,
            initialize=initialize,
            grown=frozenset(initialize.keys() & (self.initialized.keys() | self.initializing.keys())),
            state_epoch=state_epoch,
            member_epoch=assignment_epoch,
            heartbeat_ms=min(delay_ms, heartbeat_ms) if delay_ms else heartbeat_ms,
            assignment=assigned if is_told else None,
        )

    def leave(self, member_id: str, *, topics: TopicLookup) -> list[GroupChange]:
        """Decides that a member goes: it said so, or its session ended."""
        if member_id not in self.members:
            raise UnknownMember(f"Member {member_id} is not a member of group {self.group_id}.")
        known = self._known_topics(member_id, MemberMetadata(), topics)
        epoch = self.epoch + 1
        changes: list[GroupChange] = [
            CurrentChanged(member_id, None),
            TargetChanged(member_id, None),
            MemberChanged(member_id, None),
            EpochChanged(epoch, self._fingerprint((name, *info) for name, info in known.items())),
        ]
        if len(self.members) == 1:  # nobody is left to be assigned anything (KAFKA-20442)
            changes.append(TargetEpochChanged(epoch))
        return changes

    def initialize(self, topics: Mapping[bytes, TopicState]) -> list[GroupChange]:
        """Decides that these partitions have share state from now on (an administrator set their offsets)."""
        initialized = dict(self.initialized)
        for topic_id, state in topics.items():
            initialized[topic_id] = _united(initialized.get(topic_id), state)
        return [
            StateTopicsChanged(
                initialized, _without(self.initializing, topics), _without(self.deleting, topics)
            )
        ]

    def forget_topics(self, topic_ids: Iterable[bytes]) -> list[GroupChange]:
        """Decides that these topics have no share state here any more: deleted, or their offsets were."""
        gone = set(topic_ids)
        if not gone & (self.initialized.keys() | self.initializing.keys() | self.deleting.keys()):
            return []
        initialized, initializing = _without(self.initialized, gone), _without(self.initializing, gone)
        return [StateTopicsChanged(initialized, initializing, _without(self.deleting, gone))]

    def apply(self, changes: Iterable[GroupChange], *, now_ms: int | None = None) -> None:
        """Makes changes so; without `now_ms` when they are replayed."""
        for change in changes:
            match change:
                case MemberChanged(member_id, metadata):
                    self._filled_ms = self._filled_ms if self.members else now_ms
                    self._set_member(member_id, metadata)
                case EpochChanged(epoch, metadata_hash):
                    self.epoch, self.metadata_hash, self._moved_ms = epoch, metadata_hash, now_ms
                case TargetEpochChanged(assignment_epoch):
                    self.assignment_epoch, self._assigned_ms = assignment_epoch, now_ms
                case TargetChanged(member_id, target):
                    _set(self.targets, member_id, target)
                case CurrentChanged(member_id, current):
                    _set(self.currents, member_id, current)
                case _:  # StateTopicsChanged: mypy knows that nothing else is left
                    self.initialized, self.initializing = change.initialized, change.initializing
                    self.deleting = change.deleting

    def touch(self, member_id: str, deadline_ms: int) -> None:
        """The member was heard of: its session lasts until then."""
        if len(self._heap) > 64 + 4 * len(self._deadlines):
            self._heap = sorted((deadline, member) for member, deadline in self._deadlines.items())
        self._deadlines[member_id] = deadline_ms
        heappush(self._heap, (deadline_ms, member_id))

    def deadline_ms(self) -> int | None:
        """When the first session ends, unless its member is heard of."""
        while self._heap and self._deadlines.get(self._heap[0][1]) != self._heap[0][0]:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def expired(self, now_ms: int) -> list[str]:
        """Members whose session has ended: let each `leave`."""
        deadline_ms = self.deadline_ms()
        if deadline_ms is None or deadline_ms > now_ms:
            return []
        return sorted(member for member, deadline in self._deadlines.items() if deadline <= now_ms)

    def snapshot(self) -> dict[str, object]:
        """All that the journal makes of the group, for comparing."""
        return {
            "epochs": (self.epoch, self.assignment_epoch, self.metadata_hash),
            "members": dict(self.members),
            "targets": dict(self.targets),
            "currents": dict(self.currents),
            "topics": (dict(self.initialized), dict(self.initializing), dict(self.deleting)),
        }

    def _check(self, request: HeartbeatRequest, settings: GroupSettings) -> None:
        is_known = request.member_id in self.members
        if not is_known and len(self.members) >= settings.members_max:
            raise GroupMaxSizeReached(
                f"The share group has reached its maximum capacity of {settings.members_max} members."
            )
        epoch = request.member_epoch
        if epoch == JOIN_EPOCH:
            return
        if not is_known:
            raise UnknownMember(f"Member {request.member_id} is not a member of group {self.group_id}.")
        current = self.currents.get(request.member_id, CurrentAssignment())
        if epoch > current.member_epoch:
            raise FencedMemberEpoch(
                f"The share group member has a greater member epoch ({epoch}) than the one known by the group "
                f"coordinator ({current.member_epoch}). The member must abandon all its partitions and rejoin."
            )
        if epoch < current.member_epoch and epoch != current.previous_epoch:
            raise FencedMemberEpoch(
                f"The share group member has a smaller member epoch ({epoch}) than the one known by the group "
                f"coordinator ({current.member_epoch}), and it does not match the previous member epoch "
                f"({current.previous_epoch}). The member must abandon all its partitions and rejoin."
            )

    def _known_topics(
        self, member_id: str, metadata: MemberMetadata, topics: TopicLookup
    ) -> dict[str, TopicInfo]:
        """The topics that exist and that anyone subscribes to, once the member does so."""
        subscribers = self._subscribers
        before = self.members.get(member_id)
        if before is None or before.subscribed != metadata.subscribed:
            subscribers = subscribers.copy()
            subscribers.subtract(before.subscribed if before is not None else ())
            subscribers.update(metadata.subscribed)
        names = (name for name, count in subscribers.items() if count)
        return {name: info for name in names if (info := topics(name)) is not None}

    def _initialize(
        self, known: Mapping[str, TopicInfo], changes: list[GroupChange]
    ) -> Mapping[bytes, TopicState]:
        """Partitions that need share state and have none; from this decision on they have it."""
        missing: dict[bytes, TopicState] = {}
        for name, info in known.items():
            have = self.initialized.get(info.topic_id)
            own = have.partitions if have is not None else ()
            if len(own) < info.partitions:
                lacking = tuple(index for index in range(info.partitions) if index not in own)
                missing[info.topic_id] = TopicState(name, lacking)
        if missing:
            changes += self.initialize(missing)
        return missing

    def _delay_left(self, settings: GroupSettings, now_ms: int) -> int:
        """For how long the first assignment since the group was empty is still held back."""
        filled_ms = self._filled_ms if self.members else now_ms
        return 0 if filled_ms is None else max(0, filled_ms + settings.initial_delay_ms - now_ms)

    def _is_assigned_apart(self, epoch: int, settings: GroupSettings, now_ms: int) -> bool:
        """Whether Kafka assigns this epoch before the new partitions have share state, and those with an epoch more."""
        return epoch == self.assignment_epoch or self._is_interval_over(settings, now_ms)

    def _is_interval_over(self, settings: GroupSettings, now_ms: int) -> bool:
        return self._assigned_ms is None or now_ms - self._assigned_ms >= settings.assignment_interval_ms

    def _may_assign(self, known: Mapping[str, TopicInfo], settings: GroupSettings, now_ms: int) -> bool:
        return self._is_interval_over(settings, now_ms) or (
            settings.is_small_group_at_once
            and len(self.members) <= SMALL_GROUP_MEMBERS
            and sum(info.partitions for info in known.values()) <= SMALL_GROUP_PARTITIONS
        )

    def _just_moved(self, settings: GroupSettings, now_ms: int) -> bool:
        return self._moved_ms is not None and now_ms - self._moved_ms < settings.motion_ms

    def _assign(
        self,
        members: Mapping[str, MemberMetadata],
        known: Mapping[str, TopicInfo],
        changes: list[GroupChange],
    ) -> dict[str, Assignment]:
        """A new target assignment; what it changes for whom."""
        subscriptions = {
            member_id: [known[name].topic_id for name in metadata.subscribed if name in known]
            for member_id, metadata in members.items()
        }
        partitions = {info.topic_id: range(info.partitions) for info in known.values()}
        targets = assign(subscriptions, partitions, self.targets)
        for member_id, target in targets.items():
            if target != self.targets.get(member_id):
                changes.append(TargetChanged(member_id, target))
        return targets

    def _change_current(
        self, request: HeartbeatRequest, epoch: int, assigned: Assignment, changes: list[GroupChange]
    ) -> bool:
        """Whether to tell the member its assignment: it asks, it is another one, or the last answer got lost."""
        before = self.currents.get(request.member_id, CurrentAssignment())
        if epoch != before.member_epoch or assigned != before.assigned:
            current = CurrentAssignment(
                member_epoch=epoch, previous_epoch=before.member_epoch, assigned=assigned
            )
            changes.append(CurrentChanged(request.member_id, current))
        if request.subscribed is not None or request.member_epoch != before.member_epoch:
            return True
        return assigned != before.assigned

    def _set_member(self, member_id: str, metadata: MemberMetadata | None) -> None:
        before = self.members.get(member_id)
        if before is not None:
            self._subscribers.subtract(before.subscribed)
        if metadata is not None:
            self._subscribers.update(metadata.subscribed)
        else:
            self._deadlines.pop(member_id, None)
        self._subscribers = +self._subscribers
        _set(self.members, member_id, metadata)


def _updated(before: MemberMetadata | None, request: HeartbeatRequest) -> MemberMetadata:
    metadata = replace(
        before or MemberMetadata(), client_id=request.client_id, client_host=request.client_host
    )
    if request.rack_id is not None:
        metadata = replace(metadata, rack_id=request.rack_id)
    if request.subscribed is not None:
        metadata = replace(metadata, subscribed=tuple(sorted(set(request.subscribed))))
    return metadata


def _united(before: TopicState | None, added: TopicState) -> TopicState:
    own = before.partitions if before is not None else ()
    return TopicState(added.name, tuple(sorted({*own, *added.partitions})))


def _without(topics: Mapping[bytes, V], gone: Container[bytes]) -> dict[bytes, V]:
    return {topic_id: value for topic_id, value in topics.items() if topic_id not in gone}


def _set(entries: dict[str, V], key: str, value: V | None) -> None:
    if value is None:
        entries.pop(key, None)
    else:
        entries[key] = value
