"""ConsumerGroupHeartbeat (68), v0-v1: everything a member of a consumer group says and hears (KIP-848).

Joining (epoch 0), living, leaving (-1), leaving for a while (-2, static members); subscriptions, in v1 also a pattern;
which partitions it owns. The response carries its epoch and, when it has changed, its assignment.

A classic group gives way to a joining member of the consumer protocol while it is empty; its offsets stay. A classic
group that has members is refused as Kafka does with `group.consumer.migration.policy=disabled`: members of both
protocols in one group are not supported.
"""

from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.consumer_member import JOINING, LEAVING, LEAVING_FOR_A_WHILE
from headrace.broker.groups.heartbeats import (
    Beat,
    ConsumerLimits,
    HeartbeatDecision,
    check_request,
    consumer_limits,
    decide_heartbeat,
    decide_leave,
)
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Now
from headrace.broker.security.acls import is_visible
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (0, 1)


def handle(
    core: "BrokerCore", request: ConsumerGroupHeartbeatRequest, call: Call
) -> ConsumerGroupHeartbeatResponse:
    limits = consumer_limits(core.settings, request.group_id)
    check_request(request, call.api_version, limits.assignors)
    if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
        return _leave(core, request)
    group, tombstones = _group_for(core, request)
    now = core.groups.now()
    beat = Beat(
        request=request,
        client_id=call.client_id or "",
        client_host=call.client_host,
        version=call.api_version,
        fresh_id=core.groups.new_short_id(),
        may_describe=lambda topic: is_visible(core, call, topic),
    )
    decision = decide_heartbeat(group, beat, limits, now)
    _journal(core, group, decision, tombstones)
    _accept(core, group, decision, limits, now)
    return decision.response


def _leave(core: "BrokerCore", request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
    group = core.groups.registry.require_type(request.group_id, ConsumerGroup, "consumer")
    entries, member = decide_leave(group, request)
    core.groups.journal(group.group_id, entries)
    return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def _group_for(
    core: "BrokerCore", request: ConsumerGroupHeartbeatRequest
) -> tuple[ConsumerGroup, list[JournalEntry]]:
    """The group, and what makes room for it where a classic one stands in its place."""
    group_id = request.group_id
    group = core.groups.registry.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group, []
    if group is None:
        if request.member_epoch != JOINING:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {group_id} not found.")
        return ConsumerGroup(group_id, core.topics), []
    if request.member_epoch != JOINING or not isinstance(group, ClassicGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if not group.is_empty:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is disabled.",
        )
    return ConsumerGroup(group_id, core.topics), group.tombstones()


def _journal(
    core: "BrokerCore", group: ConsumerGroup, decision: HeartbeatDecision, tombstones: list[JournalEntry]
) -> None:
    if not tombstones and not decision.entries:
        return
    core.groups.append(group.group_id, [*tombstones, *decision.entries])
    for entry in tombstones:
        core.groups.state.apply(entry)
    core.groups.registry.put(group)
    for entry in decision.entries:
        core.groups.state.apply(entry)


def _accept(
    core: "BrokerCore", group: ConsumerGroup, decision: HeartbeatDecision, limits: ConsumerLimits, now: Now
) -> None:
    # Only a change can bring a deadline nearer; an unchanged heartbeat moves one back.
    may_be_nearer = bool(decision.entries) or limits.session_ms < group.session_ms
    decision.accept(group, limits, now)
    if may_be_nearer:
        core.groups.watch(group)
