"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: from the request to the group and back.

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
    decide_heartbeat,
    decide_leave,
)
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Now
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.consumer_group_describe_response import DescribedGroup
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator


class ConsumerRequests:
    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._registry = coordinator.state.registry

    def limits(self, group_id: str) -> ConsumerLimits:
        settings = self._coordinator.core.settings
        return ConsumerLimits(
            session_ms=settings.group_int(group_id, "consumer.session.timeout.ms"),
            heartbeat_ms=settings.group_int(group_id, "consumer.heartbeat.interval.ms"),
            assignment_interval_ms=settings.group_int(group_id, "consumer.assignment.interval.ms"),
            size_max=settings.int("group.consumer.max.size"),
            assignors=tuple(settings.list("group.consumer.assignors")),
        )

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, call: Call) -> ConsumerGroupHeartbeatResponse:
        limits = self.limits(request.group_id)
        check_request(request, call.api_version, limits.assignors)
        if request.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return self._leave(request)
        group, tombstones = self._group_for(request)
        now = self._coordinator.now()
        beat = Beat(
            request=request,
            client_id=call.client_id or "",
            client_host=call.client_host,
            version=call.api_version,
            fresh_id=self._coordinator.new_short_id(),
        )
        decision = decide_heartbeat(group, beat, limits, now)
        self._settle(group, decision, tombstones)
        self._accept(group, decision, limits, now)
        return decision.response

    def _group_for(self, request: ConsumerGroupHeartbeatRequest) -> tuple[ConsumerGroup, list[JournalEntry]]:
        """The group, and what makes room for it where a classic one stands in its place."""
        group_id = request.group_id
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if request.member_epoch != JOINING:
            text = f"Consumer group {group_id} not found." if group is None else _other_type(group_id)
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, text)
        if group is None:
            return ConsumerGroup(group_id, self._coordinator.core.topics), []
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, _other_type(group_id))
        if not group.is_empty:
            raise KafkaError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group_id} to consumer group because online upgrade is disabled.",
            )
        return ConsumerGroup(group_id, self._coordinator.core.topics), group.tombstones()

    def _settle(
        self, group: ConsumerGroup, decision: HeartbeatDecision, tombstones: list[JournalEntry]
    ) -> None:
        if not tombstones and not decision.entries:
            return
        self._coordinator.append(group.group_id, [*tombstones, *decision.entries])
        for entry in tombstones:
            self._coordinator.state.apply(entry)
        self._registry.put(group)
        for entry in decision.entries:
            self._coordinator.state.apply(entry)

    def _accept(
        self, group: ConsumerGroup, decision: HeartbeatDecision, limits: ConsumerLimits, now: Now
    ) -> None:
        # Only a change can bring a deadline nearer; an unchanged heartbeat moves one back.
        may_be_nearer = bool(decision.entries) or limits.session_ms < group.session_ms
        decision.accept(group, limits, now)
        if may_be_nearer:
            self._coordinator.watch(group)

    def _leave(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        group = self._registry.require_type(request.group_id, ConsumerGroup, "consumer")
        entries, member = decide_leave(group, request)
        self._coordinator.journal(group.group_id, entries)
        return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)

    def describe(self, group_id: str) -> DescribedGroup:
        if not group_id:
            return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            group = self._registry.require_type(group_id, ConsumerGroup, "consumer")
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        return group.describe(self.limits(group_id).assignors[0])


def _other_type(group_id: str) -> str:
    return f"Group {group_id} is not a consumer group."
