"""LeaveGroup (13), v0-v5: a member goes; from v3 several at once, static ones by instance id alone (administrators).

Members of a consumer group leave by heartbeat; this is how administrators remove them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.consumer_member import ConsumerMember
from headrace.broker.groups.heartbeats import require_static
from headrace.broker.groups.registry import require_group_id
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from headrace.wire.messages.leave_group_response import LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 5)
MANY_SINCE = 3


def handle(core: "BrokerCore", request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    require_group_id(request.group_id)
    if call.api_version >= MANY_SINCE:
        return LeaveGroupResponse(members=_leave(core, request.group_id, request.members))
    (left,) = _leave(core, request.group_id, [MemberIdentity(member_id=request.member_id)])
    return LeaveGroupResponse(error_code=left.error_code)


def _leave(core: "BrokerCore", group_id: str, leaving: Sequence[MemberIdentity]) -> list[MemberResponse]:
    group = core.groups.registry.get(group_id)
    if isinstance(group, ClassicGroup):
        responses, write = group.rebalance.leave(leaving, core.groups.now())
        core.groups.carry_out(group, write)
        return responses
    if isinstance(group, ConsumerGroup):
        return _remove(core, group, leaving)
    return [_left(identity, ErrorCode.UNKNOWN_MEMBER_ID) for identity in leaving]


def _remove(
    core: "BrokerCore", group: ConsumerGroup, leaving: Sequence[MemberIdentity]
) -> list[MemberResponse]:
    responses, members = [], {}
    for identity in leaving:
        try:
            member = _find(group, identity)
        except KafkaError as error:
            responses.append(_left(identity, error.code))
        else:
            members[member.member_id] = member
            responses.append(_left(identity, ErrorCode.NONE))
    if members:
        core.groups.journal(group.group_id, group.fencing_entries(*members.values()))
    return responses


def _find(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is None:
        return group.require(identity.member_id)
    holder = group.static_member(identity.group_instance_id)
    claimed = identity.member_id or (holder.member_id if holder is not None else "")
    return require_static(group, identity.group_instance_id, claimed)


def _left(identity: MemberIdentity, code: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
    )
