"""The rebalance of a classic group: the machine behind JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

Theory of operation. A group is Empty until its first member joins. Then it is PreparingRebalance: JoinGroup requests
are parked until every member has joined again, or the rebalance timeout has passed and those who have not are
dropped. A new generation begins, CompletingRebalance: all joins are answered, the leader is given everybody's
metadata, and SyncGroup requests are parked until the leader's arrives with the assignment. The assignment goes to
the journal; then the group is Stable, and all syncs are answered. Members that stop sending heartbeats, leave, or
change what they ask for start it again. A new group waits a little longer for its first members (`initial_delay_ms`).

The journal holds a group as it became Stable or Empty. A rebalance under way is not in it: after a restart
the members find their old generation, or join again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.broker.groups import records
from headrace.broker.groups.classic_members import ClassicMember, Deadlines, Members, Protocols, reborn
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Now, Write
from headrace.broker.later import Later
from headrace.wire.enums import GroupState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.group_metadata_value import GroupMetadataValue
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from headrace.wire.messages.leave_group_request import MemberIdentity
from headrace.wire.messages.leave_group_response import MemberResponse
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from headrace.wire.messages.sync_group_response import SyncGroupResponse

CONSUMER_PROTOCOL = "consumer"
NEW_MEMBER_JOIN_MS = 300_000
"""How long a new member's JoinGroup stays parked: its client may be gone, and we would not know."""
POSTPONED_MS_MIN = 100
"""Static members may say that they need no time for a rebalance at all."""
MEMBER_ID_REQUIRED_SINCE = 4
SKIP_ASSIGNMENT_SINCE = 9


TRANSITIONS = {
    (GroupState.EMPTY, GroupState.PREPARING_REBALANCE),
    (GroupState.STABLE, GroupState.PREPARING_REBALANCE),
    (GroupState.COMPLETING_REBALANCE, GroupState.PREPARING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE),
    (GroupState.PREPARING_REBALANCE, GroupState.EMPTY),
    (GroupState.COMPLETING_REBALANCE, GroupState.STABLE),
}


@dataclass(frozen=True, slots=True)
class ClassicLimits:
    size_max: int = 2**31 - 1
    initial_delay_ms: int = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """A JoinGroup request with what is known around it."""

    request: JoinGroupRequest
    answer: Later[JoinGroupResponse]
    client_id: str = ""
    client_host: str = ""
    version: int = 9
    fresh_id: str
    """A random id, used if the member has none yet."""

    @property
    def protocols(self) -> Protocols:
        return tuple((protocol.name, protocol.metadata) for protocol in self.request.protocols)

    @property
    def rebalance_ms(self) -> int:
        return self.request.rebalance_timeout_ms if self.version >= 1 else self.request.session_timeout_ms

    @property
    def new_member_id(self) -> str:
        instance_id = self.request.group_instance_id
        return f"{self.client_id if instance_id is None else instance_id}-{self.fresh_id}"


def _done() -> None:
    """Nothing is left to do once the journal has it."""


class Rebalance:
    def __init__(self, group_id: str, limits: ClassicLimits, *, wall_ms: int = -1) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        self.state_since_ms = wall_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.members = Members()
        self.subscribed_topics: frozenset[str] | None = None
        self.pending_joins = Deadlines()
        """Members that were given an id and told to come back with it, and until when they may."""
        self.pending_syncs: set[str] = set()
        self._came_from_empty = False
        self._join_deadline_ms: int | None = None
        self._sync_deadline_ms: int | None = None
        self._initial_left_ms: int | None = None
        """In a new group's first rebalance: by how much its delay may still be extended."""
        self._has_new_member = False

    def join(self, joining: Joining, now: Now) -> Write | None:
        """Answers at once or parks the answer. Raises KafkaError for what is refused to the member as it came."""
        request = joining.request
        if not self._accepts(request.member_id):
            self._remove(request.member_id)
            joining.answer.resolve(JoinGroupResponse(error_code=ErrorCode.GROUP_MAX_SIZE_REACHED))
            return None
        self.check_protocols(joining)
        if request.member_id:
            return self._join_known(joining, now)
        former = self.members.static(request.group_instance_id)
        if former is not None:
            return self._join_again(former, joining, now)
        if request.group_instance_id is None and joining.version >= MEMBER_ID_REQUIRED_SINCE:
            self.pending_joins.add(joining.new_member_id, now.ms + request.session_timeout_ms)
            joining.answer.resolve(
                JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=joining.new_member_id)
            )
            return None
        return self._add(joining, joining.new_member_id, now)

    def _join_known(self, joining: Joining, now: Now) -> Write | None:
        request = joining.request
        if request.member_id in self.pending_joins:
            return self._add(joining, request.member_id, now)
        member = self.members.require(request.member_id, request.group_instance_id)
        if self.state is GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        is_leader = self.members.leader_id == member.member_id
        is_unchanged = member.protocols == joining.protocols
        # A leader that joins a stable group again wants a rebalance: it saw a change that we cannot see.
        if is_unchanged and (
            self.state is GroupState.COMPLETING_REBALANCE
            or (self.state is GroupState.STABLE and not is_leader)
        ):
            joining.answer.resolve(
                self._welcome(member, leader_id=self.members.leader_id, with_members=is_leader)
            )
            return None
        member.protocols = joining.protocols
        member.rebalance_ms = joining.rebalance_ms
        member.session_ms = request.session_timeout_ms
        member.joining = joining.answer
        return self._rebalance_or_complete(now)

    def _join_again(self, former: ClassicMember, joining: Joining, now: Now) -> Write | None:
        """A static member has come back without its member id: it takes the place of its former self."""
        member = reborn(
            former,
            joining.new_member_id,
            protocols=joining.protocols,
            rebalance_ms=joining.rebalance_ms,
            session_ms=joining.request.session_timeout_ms,
        )
        members = self.members.with_replaced(former, member)
        former_leader = self.members.leader_id

        def take_over() -> None:
            self.members = members
            self.touch(member, now)
            self.pending_syncs.discard(former.member_id)
            former.answer_join(
                JoinGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, member_id=former.member_id)
            )
            former.answer_sync(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))

        def welcome() -> None:
            take_over()
            self.note_subscriptions()  # no new generation tells what it reads now: else offsets of that would expire
            can_skip = joining.version >= SKIP_ASSIGNMENT_SINCE
            is_leader = can_skip and members.leader_id == member.member_id
            # An older client that found itself leader would assign anew, and nobody waits for that.
            leader_id = members.leader_id if can_skip else former_leader
            joining.answer.resolve(
                self._welcome(member, leader_id=leader_id, with_members=is_leader, skips_assignment=is_leader)
            )

        def refuse(code: ErrorCode) -> None:
            joining.answer.resolve(JoinGroupResponse(error_code=code, generation_id=self.generation))

        if self.state is GroupState.STABLE and members.select_protocol() == self.protocol_name:
            assignments = {one.member_id: one.assignment for one in members}
            return Write([self._as_entry(members, assignments)], welcome, refuse)
        take_over()
        member.joining = joining.answer
        if self.state is GroupState.PREPARING_REBALANCE:
            return self._complete_if_joined(now)
        return self._prepare_rebalance(now)

    def sync(self, request: SyncGroupRequest, answer: Later[SyncGroupResponse], now: Now) -> Write | None:
        member = self.members.require(request.member_id, request.group_instance_id)
        if request.generation_id != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if _differ(request.protocol_type, self.protocol_type) or _differ(
            request.protocol_name, self.protocol_name
        ):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        self._note_synced(member.member_id)
        if self.state is GroupState.STABLE:
            answer.resolve(self._assigned(member))
            return None
        member.syncing = answer
        if member.member_id != self.members.leader_id:
            return None
        given = {assignment.member_id: assignment.assignment for assignment in request.assignments}
        assignments = {one.member_id: given.get(one.member_id, b"") for one in self.members}

        def assign() -> None:
            for one in self.members:
                one.assignment = assignments[one.member_id]
            self._move_to(GroupState.STABLE, now)
            self._answer_syncs(ErrorCode.NONE, now)

        def start_over(code: ErrorCode) -> None:
            self._reset_assignments(code, now)
            self._rebalance_or_complete(now)

        return Write([self._as_entry(self.members, assignments)], assign, start_over)

    def heartbeat(self, *, member_id: str, instance_id: str | None, generation: int, now: Now) -> None:
        """Raises KafkaError, also to call the member to a rebalance; that keeps its session alive all the same."""
        member = self.members.require(member_id, instance_id)
        if generation != self.generation:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        if self.state is GroupState.EMPTY:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        self.touch(member, now)
        if self.state is GroupState.PREPARING_REBALANCE:
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def leave(self, leaving: Sequence[MemberIdentity], now: Now) -> tuple[list[MemberResponse], Write | None]:
        """Members by id, or static ones by instance id alone, as administrators remove them."""
        responses = []
        for identity in leaving:
            code = ErrorCode.NONE
            try:
                self._leave_one(identity.member_id, identity.group_instance_id)
            except KafkaError as error:
                code = error.code
            responses.append(
                MemberResponse(
                    member_id=identity.member_id,
                    group_instance_id=identity.group_instance_id,
                    error_code=code,
                )
            )
        if (
            all(response.error_code != ErrorCode.NONE for response in responses)
            or self.state is GroupState.EMPTY
        ):
            return responses, None
        return responses, self._rebalance_or_complete(now)

    def _leave_one(self, member_id: str, instance_id: str | None) -> None:
        if member_id in self.pending_joins:
            self.pending_joins.discard(member_id)
            return
        holder = self.members.static(instance_id) if not member_id else None
        member = holder or self.members.require(member_id, instance_id)
        self._expel(member)

    def deadline_ms(self) -> int | None:
        deadlines = [member.deadline_ms for member in self.members]
        deadlines += [self.pending_joins.first_ms(), self._join_deadline_ms, self._sync_deadline_ms]
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def expire(self, now: Now) -> Write | None:
        if _is_due(self._join_deadline_ms, now):
            return self._expire_join(now)
        if _is_due(self._sync_deadline_ms, now):
            return self._expire_sync(now)
        if _is_due(self.pending_joins.first_ms(), now):
            self.pending_joins.pop_first()
            return self._complete_join(now) if self._is_complete else None
        for member in self.members:
            if _is_due(member.deadline_ms, now):
                member.deadline_ms = None
                if not member.is_excused:
                    self._expel(member)
                    if self.state is GroupState.PREPARING_REBALANCE:
                        return self._complete_join(now) if self._is_complete else None
                    return self._rebalance_or_complete(now)
        return None

    def _expire_join(self, now: Now) -> Write | None:
        left_ms, delay_ms = self._initial_left_ms, self.limits.initial_delay_ms
        if not left_ms or not self._has_new_member:
            return self._complete_join(now)
        # Members are still coming in one by one: wait for more, within the rebalance timeout.
        self._has_new_member = False
        self._join_deadline_ms = now.ms + min(delay_ms, left_ms)
        self._initial_left_ms = max(left_ms - delay_ms, 0)
        return None

    def _expire_sync(self, now: Now) -> Write | None:
        self._sync_deadline_ms = None
        if not self.pending_syncs:
            return None
        for member_id in [*self.pending_syncs]:
            self._remove(member_id)
        return self._prepare_rebalance(now)

    def start_clocks(self, now: Now) -> Write | None:
        for member in self.members:
            self.touch(member, now)
        if len(self.members) > self.limits.size_max:
            # The limit was lowered: a rebalance lets members commit before some are turned away.
            return self._prepare_rebalance(now)
        return None

    @property
    def _is_complete(self) -> bool:
        """Every member has joined, and nobody who was given an id is still to come."""
        is_preparing = self.state is GroupState.PREPARING_REBALANCE
        return is_preparing and self.members.joined_count == len(self.members) and not self.pending_joins

    def _add(self, joining: Joining, member_id: str, now: Now) -> Write | None:
        request = joining.request
        member = ClassicMember(
            member_id=member_id,
            instance_id=request.group_instance_id,
            client_id=joining.client_id,
            client_host=joining.client_host,
            rebalance_ms=joining.rebalance_ms,
            session_ms=request.session_timeout_ms,
            protocols=joining.protocols,
            is_new=True,
            deadline_ms=now.ms + NEW_MEMBER_JOIN_MS,
            joining=joining.answer,
        )
        if not len(self.members):
            self.protocol_type = request.protocol_type
        if self.state is GroupState.PREPARING_REBALANCE and self._came_from_empty:
            self._has_new_member = True
        self.pending_joins.discard(member_id)
        self.members.add(member)
        return self._rebalance_or_complete(now)

    def _rebalance_or_complete(self, now: Now) -> Write | None:
        return (
            self._complete_if_joined(now)
            if self.state is GroupState.PREPARING_REBALANCE
            else self._prepare_rebalance(now)
        )

    def _prepare_rebalance(self, now: Now) -> Write | None:
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._reset_assignments(ErrorCode.REBALANCE_IN_PROGRESS, now)
        self.pending_syncs.clear()
        self._sync_deadline_ms = None
        is_first = self.state is GroupState.EMPTY
        self._move_to(GroupState.PREPARING_REBALANCE, now)
        self._came_from_empty = is_first
        if is_first:
            delay_ms = self.limits.initial_delay_ms
            self._join_deadline_ms = now.ms + delay_ms
            self._initial_left_ms = max(self.members.rebalance_ms - delay_ms, 0)
            return None
        if self._is_complete:
            return self._complete_join(now)
        self._join_deadline_ms = now.ms + self.members.rebalance_ms
        return None

    def _complete_if_joined(self, now: Now) -> Write | None:
        # A new group's delay is kept even when all are there: others may be on their way.
        return self._complete_join(now) if self._is_complete and not self._came_from_empty else None

    def _complete_join(self, now: Now) -> Write | None:
        self._join_deadline_ms = self._initial_left_ms = None
        for member in self.members:
            if member.joining is None and member.instance_id is None:
                self._remove(member.member_id)
        if len(self.members) and not self.members.elect_joined_leader():
            # Only static members are left, and none has come: their sessions will end, or one of them comes.
            self._join_deadline_ms = now.ms + max(self.members.rebalance_ms, POSTPONED_MS_MIN)
            return None
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.members.select_protocol() if len(self.members) else None
        self.note_subscriptions()
        if not len(self.members):
            self._move_to(GroupState.EMPTY, now)
            return Write([self._as_entry(self.members, {})], _done)
        self._move_to(GroupState.COMPLETING_REBALANCE, now)
        for member in self.members:
            self.touch(member, now)
            member.is_new = False
            self.pending_syncs.add(member.member_id)
        self._sync_deadline_ms = now.ms + self.members.rebalance_ms
        leader_id = self.members.leader_id
        for member in self.members:
            is_leader = member.member_id == leader_id
            member.answer_join(self._welcome(member, leader_id=leader_id, with_members=is_leader))
        return None

    def _reset_assignments(self, code: ErrorCode, now: Now) -> None:
        for member in self.members:
            member.assignment = b""
        self._answer_syncs(code, now)

    def _answer_syncs(self, code: ErrorCode, now: Now) -> None:
        for member in self.members:
            response = (
                self._assigned(member) if code is ErrorCode.NONE else SyncGroupResponse(error_code=code)
            )
            if member.answer_sync(response):
                self.touch(member, now)

    def _note_synced(self, member_id: str) -> None:
        self.pending_syncs.discard(member_id)
        if not self.pending_syncs:
            self._sync_deadline_ms = None

    def note_subscriptions(self) -> None:
        is_consumer = self.protocol_type == CONSUMER_PROTOCOL
        self.subscribed_topics = self.members.subscribed_topics(self.protocol_name) if is_consumer else None

    def touch(self, member: ClassicMember, now: Now) -> None:
        member.deadline_ms = now.ms + member.session_ms

    def _expel(self, member: ClassicMember) -> None:
        # Its client may still be there with a JoinGroup parked: it is told to start anew.
        member.answer_join(JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        self._remove(member.member_id)

    def _remove(self, member_id: str) -> None:
        self.members.remove(member_id)
        self.pending_joins.discard(member_id)
        self.pending_syncs.discard(member_id)

    def _move_to(self, state: GroupState, now: Now) -> None:
        assert (self.state, state) in TRANSITIONS, f"{self.group_id}: {self.state.value} to {state.value}"
        self.state = state
        self.state_since_ms = now.wall_ms
        self._came_from_empty = False

    def _accepts(self, member_id: str) -> bool:
        """Is there room for one more? Whoever is in stays in; a rebalance counts those who have come back."""
        if self.state is GroupState.EMPTY:
            return True
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING_REBALANCE:
            is_waiting = member is not None and member.joining is not None
            return is_waiting or self.members.joined_count < self.limits.size_max
        return member is not None or len(self.members) < self.limits.size_max

    def check_protocols(self, joining: Joining) -> None:
        """A newcomer must be of the group's type and support a protocol that all members do. Raises KafkaError."""
        protocol_type, names = joining.request.protocol_type, {name for name, _ in joining.protocols}
        if self.state is GroupState.EMPTY:
            is_supported = bool(protocol_type and names)
        else:
            # A group whose members have all left has no common protocols to hold a newcomer to.
            is_common = not len(self.members) or bool(names & self.members.common_protocols())
            is_supported = protocol_type == self.protocol_type and is_common
        if not is_supported:
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def _welcome(
        self,
        member: ClassicMember,
        *,
        leader_id: str | None,
        with_members: bool,
        skips_assignment: bool = False,
    ) -> JoinGroupResponse:
        members = [
            JoinGroupResponseMember(
                member_id=one.member_id,
                group_instance_id=one.instance_id,
                metadata=one.metadata(self.protocol_name),
            )
            for one in (self.members if with_members else ())
        ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader_id or "",
            skip_assignment=skips_assignment,
            member_id=member.member_id,
            members=members,
        )

    def _assigned(self, member: ClassicMember) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
        )

    def _as_entry(self, members: Members, assignments: Mapping[str, bytes]) -> JournalEntry:
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=members.leader_id,
            current_state_timestamp=self.state_since_ms,
            members=[
                member.as_record(self.protocol_name, assignments[member.member_id]) for member in members
            ],
        )
        return records.group_metadata(self.group_id, value)


def _is_due(deadline_ms: int | None, now: Now) -> bool:
    return deadline_ms is not None and deadline_ms <= now.ms


def _differ(asked: str | None, known: str | None) -> bool:
    return asked is not None and known is not None and asked != known
