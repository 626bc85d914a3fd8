"""JoinGroup (11), v0-v9: a member asks into a classic group, or comes back for a rebalance.

Answered when the group has a new generation: the leader gets everybody's metadata. From v4 a new member without
an instance id is first given a member id (MEMBER_ID_REQUIRED) and asks again with it. v5 brings static members
(KIP-345), v9 tells a returning static leader that no new assignment is wanted (KIP-814).

A consumer group is converted to a classic one while it is empty (KIP-848, "Migrating from the classic protocol"). One
that has members refuses with INCONSISTENT_GROUP_PROTOCOL: members of both protocols in one group (Kafka's online
migration) are not supported. Share groups are never converted.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.classic_rebalance import Joining
from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Group, Write, require_group_id
from headrace.broker.later import Later
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.join_group_request import JoinGroupRequest
from headrace.wire.messages.join_group_response import JoinGroupResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 9)
NULL_PROTOCOL_SINCE = 7


def handle(core: "BrokerCore", request: JoinGroupRequest, call: Call) -> Later[JoinGroupResponse]:
    require_group_id(request.group_id)
    shortest = core.settings.get_int("group.min.session.timeout.ms")
    longest = core.settings.get_int("group.max.session.timeout.ms")
    if not shortest <= request.session_timeout_ms <= longest:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
    former = core.groups.registry.get(request.group_id)
    if former is not None and not isinstance(former, ClassicGroup) and not _gives_way(former):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    joining = Joining(
        request=request,
        answer=Later(),
        client_id=call.client_id or "",
        client_host=call.client_host,
        version=call.api_version,
        fresh_id=core.groups.new_uuid(),
    )
    if isinstance(former, ClassicGroup):
        _join(core, former, joining)
    elif request.member_id:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
    else:
        _join_new(core, joining, former.tombstones() if former is not None else [])
    return joining.answer.map(lambda response: _fit(response, call))


def _gives_way(group: Group) -> bool:
    return isinstance(group, ConsumerGroup) and group.is_empty


def _join(core: "BrokerCore", group: ClassicGroup, joining: Joining) -> None:
    core.groups.carry_out(group, group.rebalance.join(joining, core.groups.now()))


def _join_new(core: "BrokerCore", joining: Joining, tombstones: Sequence[JournalEntry]) -> None:
    """A group's first member. The group is journaled first, so that everybody knows of it who asks."""
    limits = core.groups.state.classic_limits
    group = ClassicGroup(joining.request.group_id, limits, wall_ms=core.groups.now().wall_ms)
    group.rebalance.check_protocols(joining)  # before the journal: a refusal must leave no group behind

    def begin() -> None:
        core.groups.registry.put(group)
        _join(core, group, joining)

    def refuse(code: ErrorCode) -> None:
        joining.answer.resolve(JoinGroupResponse(error_code=code))

    core.groups.carry_out(group, Write([*tombstones, group.as_new_entry()], begin, refuse))


def _fit(response: JoinGroupResponse, call: Call) -> JoinGroupResponse:
    """A response without a protocol, an error: null where the version has null, an empty name before."""
    if response.protocol_name:
        return response
    return JoinGroupResponse(
        error_code=response.error_code,
        generation_id=response.generation_id,
        member_id=response.member_id,
        protocol_name=None if call.api_version >= NULL_PROTOCOL_SINCE else "",
    )


def error_response(
    request: JoinGroupRequest, code: ErrorCode, message: str | None, call: Call
) -> JoinGroupResponse:
    return _fit(JoinGroupResponse(error_code=code, member_id=request.member_id), call)
