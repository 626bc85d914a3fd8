"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: from the request to the right group's machine and back.

A group of the other protocol is converted while it is empty (KIP-848, "Migrating from the classic protocol"). A
consumer group that has members refuses classic ones with INCONSISTENT_GROUP_PROTOCOL: members of both protocols in one
group (Kafka's online migration) are not supported.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.classic_rebalance import Joining
from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.heartbeats import require_static
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Group, Write
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse
from headrace.wire.messages.leave_group_request import MemberIdentity
from headrace.wire.messages.leave_group_response import MemberResponse
from headrace.wire.messages.sync_group_request import SyncGroupRequest
from headrace.wire.messages.sync_group_response import SyncGroupResponse

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator


class ClassicRequests:
    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._registry = coordinator.state.registry

    def join(self, request: JoinGroupRequest, call: Call) -> Later[JoinGroupResponse]:
        _require_group_id(request.group_id)
        settings = self._coordinator.core.settings
        shortest, longest = (
            settings.int("group.min.session.timeout.ms"),
            settings.int("group.max.session.timeout.ms"),
        )
        if not shortest <= request.session_timeout_ms <= longest:
            raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
        former = self._registry.get(request.group_id)
        if former is not None and not isinstance(former, ClassicGroup) and not _gives_way(former):
            raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        joining = Joining(
            request=request,
            answer=Later(),
            client_id=call.client_id or "",
            client_host=call.client_host,
            version=call.api_version,
            fresh_id=self._coordinator.new_uuid(),
        )
        if isinstance(former, ClassicGroup):
            self._join(former, joining)
        elif request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            self._join_new(joining, former.tombstones() if former is not None else [])
        return joining.answer

    def _join(self, group: ClassicGroup, joining: Joining) -> None:
        self._coordinator.carry_out(group, group.rebalance.join(joining, self._coordinator.now()))

    def _join_new(self, joining: Joining, tombstones: Sequence[JournalEntry]) -> None:
        """A group's first member. The group is journalled first, so that everybody knows of it who asks."""
        now = self._coordinator.now()
        limits = self._coordinator.state.classic_limits
        group = ClassicGroup(joining.request.group_id, limits, wall_ms=now.wall_ms)
        group.rebalance.check_protocols(joining)  # before the journal: a refusal must leave no group behind

        def begin() -> None:
            self._registry.put(group)
            self._join(group, joining)

        def refuse(code: ErrorCode) -> None:
            joining.answer.resolve(JoinGroupResponse(error_code=code))

        self._coordinator.carry_out(group, Write([*tombstones, group.as_new_entry()], begin, refuse))

    def sync(self, request: SyncGroupRequest) -> Later[SyncGroupResponse]:
        group = self._require(request.group_id)
        answer: Later[SyncGroupResponse] = Later()
        write = group.rebalance.sync(request, answer, self._coordinator.now())
        self._coordinator.carry_out(group, write)
        return answer

    def heartbeat(self, request: HeartbeatRequest) -> None:
        """Raises KafkaError. A heartbeat only moves a deadline back: the group's timer stays as it is."""
        group = self._require(request.group_id)
        group.rebalance.heartbeat(
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            now=self._coordinator.now(),
        )

    def leave(self, group_id: str, leaving: Sequence[MemberIdentity]) -> list[MemberResponse]:
        _require_group_id(group_id)
        group = self._registry.get(group_id)
        if isinstance(group, ClassicGroup):
            responses, write = group.rebalance.leave(leaving, self._coordinator.now())
            self._coordinator.carry_out(group, write)
            return responses
        if isinstance(group, ConsumerGroup):
            return self._remove_from(group, leaving)
        return [_left(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in leaving]

    def _remove_from(self, group: ConsumerGroup, leaving: Sequence[MemberIdentity]) -> list[MemberResponse]:
        """Members of a consumer group leave by heartbeat; this is how administrators remove them."""
        responses, members = [], {}
        for identity in leaving:
            try:
                if identity.group_instance_id is None:
                    member = group.require(identity.member_id)
                else:
                    holder = group.static_member(identity.group_instance_id)
                    claimed = identity.member_id or (holder.member_id if holder is not None else "")
                    member = require_static(group, identity.group_instance_id, claimed)
            except KafkaError as error:
                responses.append(_left(identity, error.code))
            else:
                members[member.member_id] = member
                responses.append(_left(identity, ErrorCode.NONE))
        if members:
            self._coordinator.journal(group.group_id, group.fencing_entries(*members.values()))
        return responses

    def _require(self, group_id: str) -> ClassicGroup:
        _require_group_id(group_id)
        group = self._registry.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} not found.")
        return group


def _require_group_id(group_id: str) -> None:
    if not group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)


def _gives_way(group: Group) -> bool:
    """An empty group of the newer protocol becomes a classic one. Share groups never do."""
    return isinstance(group, ConsumerGroup) and group.is_empty


def _left(identity: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
    )
