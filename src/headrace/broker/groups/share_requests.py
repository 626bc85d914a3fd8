"""ShareGroupHeartbeat and ShareGroupDescribe: from the request to the group's rules and back; and how a share group
changes.

A decided change goes to the journal first and is applied then. Share-partitions that a heartbeat brings into the group
get their state before that, in `__share_group_state`; so the first answer of a fresh group has its assignment already.
"""

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.groups.registry import Now
from headrace.broker.groups.share import ShareGroup
from headrace.broker.later import Later
from headrace.share import errors
from headrace.share.group import SMALL_GROUP_PARTITIONS
from headrace.share.membership import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    MEMBER_ID_MAX,
    EpochChanged,
    GroupChange,
    GroupSettings,
    HeartbeatRequest,
    MemberHeartbeat,
    StateTopicsChanged,
    TopicState,
)
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_group_describe_response import DescribedGroup
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator

logger = logging.getLogger("headrace.groups")

DECIDED_AT_THE_FIRST_FETCH = -1
"""The start offset of a share-partition whose group has not said where it begins."""
FIRST_RECORD = 0
"""The start offset of a partition that was added to a topic which the group reads (KAFKA-20742)."""
CODES: dict[type[errors.ShareError], ErrorCode] = {
    errors.InvalidRequest: ErrorCode.INVALID_REQUEST,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.GroupMaxSizeReached: ErrorCode.GROUP_MAX_SIZE_REACHED,
}
"""What the rules of membership refuse, in Kafka's codes."""


class ShareRequests:
    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._core = coordinator.core
        self._registry = coordinator.state.registry

    def settings(self, group_id: str) -> GroupSettings:
        settings = self._core.settings
        heartbeat_ms = settings.group_int(group_id, "share.heartbeat.interval.ms")
        return GroupSettings(
            session_ms=settings.group_int(group_id, "share.session.timeout.ms"),
            heartbeat_ms=heartbeat_ms,
            assignment_interval_ms=settings.group_int(group_id, "share.assignment.interval.ms"),
            initial_delay_ms=settings.int("headrace.share.initial.rebalance.delay.ms"),
            is_small_group_at_once=not self._has_own_interval(group_id),
            members_max=settings.int("group.share.max.size"),
            motion_heartbeat_ms=min(
                heartbeat_ms, settings.int("headrace.share.settling.heartbeat.interval.ms")
            ),
        )

    def _has_own_interval(self, group_id: str) -> bool:
        """Whether somebody has set how often the group is assigned: then that holds for small groups too."""
        settings = self._core.settings
        return settings.is_given("group.share.assignment.interval.ms") or (
            "share.assignment.interval.ms" in settings.group_overrides(group_id)
        )

    def heartbeat(self, request: ShareGroupHeartbeatRequest, call: Call) -> ShareGroupHeartbeatResponse:
        names = request.subscribed_topic_names
        asked = HeartbeatRequest(
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            client_id=call.client_id or "",
            client_host=call.client_host,
            subscribed=tuple(names) if names is not None else None,
        )
        try:
            _check(request.group_id, asked)
            if asked.member_epoch == LEAVE_EPOCH:
                return self._leave(request.group_id, asked.member_id)
            return self._beat(request.group_id, asked)
        except errors.ShareError as error:
            raise KafkaError(CODES[type(error)], str(error)) from None

    def _beat(self, group_id: str, asked: HeartbeatRequest) -> ShareGroupHeartbeatResponse:
        group = self._group_for(group_id, asked)
        now = self._coordinator.now()
        settings = self.settings(group_id)
        if (
            settings.initial_delay_ms
            and not group.rules.is_assigned
            and not self._has_backlog(group, asked.subscribed or ())
        ):
            settings = replace(settings, initial_delay_ms=0)
        beat = group.rules.heartbeat(asked, topics=group.topic_info, settings=settings, now_ms=now.ms)
        for topic_id, topic in beat.initialize.items():
            # Records were written to a partition of a topic the group reads: none of them may be passed over.
            # That it reads the topic is in its own record, or is told by state that outlived the record.
            keys = [ShareKey(group_id, topic_id, index) for index in topic.partitions]
            is_read = topic_id in beat.grown or any(self._core.share_state.get(key) for key in keys)
            start_offset = FIRST_RECORD if is_read else DECIDED_AT_THE_FIRST_FETCH
            # There may be state that the group does not know of: its own record was refused, or lost in a power cut,
            # after the state was written. Members may have settled records since; none of that is forgotten.
            new = [key for key in keys if self._core.share_state.get(key) is None]
            self._core.share_state.initialize_new(
                new, state_epoch=beat.state_epoch, start_offset=start_offset
            )
        if beat.changes:
            self.change(group, beat.changes, now)
            if any(isinstance(change, EpochChanged) for change in beat.changes):
                self._core.metrics.count("share-group-rebalance-count")
        group.rules.touch(asked.member_id, now.ms + settings.session_ms)
        self._coordinator.watch(group)
        return _respond(asked.member_id, beat)

    def _has_backlog(self, group: ShareGroup, subscribed: Iterable[str]) -> bool:
        """Whether there is more than one record that members which start together could share.

        A topic of very many partitions is not looked at: it counts as having some.
        """
        names = set(subscribed).union(*(member.subscribed for member in group.rules.members.values()))
        topics = [topic for name in names if (topic := self._core.topics.get(name)) is not None]
        if sum(len(topic.partitions) for topic in topics) > SMALL_GROUP_PARTITIONS:
            return True
        is_latest = self._core.settings.group_str(group.group_id, "share.auto.offset.reset") == "latest"
        count = 0
        for topic in topics:
            for partition in topic.partitions:
                log = partition.log
                state = self._core.share_state.get(ShareKey(group.group_id, topic.id, partition.index))
                if state is not None and state.start_offset != DECIDED_AT_THE_FIRST_FETCH:
                    done = max(0, state.complete_count)
                    count += max(0, log.end_offset - max(log.start_offset, state.start_offset) - done)
                elif not is_latest:
                    count += log.end_offset - log.start_offset
                if count > 1:
                    return True
        return False

    def _group_for(self, group_id: str, asked: HeartbeatRequest) -> ShareGroup:
        group = self._registry.get(group_id)
        if group is None and asked.member_epoch == JOIN_EPOCH:
            return ShareGroup(group_id, self._core.topics)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
        return self._registry.require_type(group_id, ShareGroup, "share")

    def _leave(self, group_id: str, member_id: str) -> ShareGroupHeartbeatResponse:
        group = self._registry.require_type(group_id, ShareGroup, "share")
        changes = group.rules.leave(member_id, topics=group.topic_info)
        self.change(group, changes, self._coordinator.now())
        return ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_EPOCH)

    def initialise(
        self, key: ShareKey, epoch: int, *, start_offset: int = DECIDED_AT_THE_FIRST_FETCH
    ) -> Later[None]:
        """State that begins anew, whatever was there before."""
        left = self._core.share_state.get(key)
        state_epoch = epoch if left is None else max(epoch, left.state_epoch)
        return self._core.share_state.initialize(key, state_epoch=state_epoch, start_offset=start_offset)

    def change(self, group: ShareGroup, changes: list[GroupChange], now: Now) -> Later[None]:
        """Into the journal, then into the group. Resolves when it is durable."""
        durable = self._coordinator.append(group.group_id, group.entries(changes, now.wall_ms))
        self._registry.put(group)
        group.rules.apply(changes, now_ms=now.ms)
        return durable

    def forget_topic(self, group: ShareGroup, topic_id: bytes) -> None:
        """The topic is deleted, and with it the share coordinator's state."""
        self._core.share_leader.forget_partitions(group.group_id, topic_id)
        self._change_quietly(group, group.rules.forget_topics([topic_id]))

    def mend(self, group: ShareGroup) -> None:
        """At start: what a crash has left without a topic is dropped; what it left without state begins anew."""
        initialized = {}
        for topic_id, topic in group.rules.initialized.items():
            there = tuple(
                index
                for index in topic.partitions
                if self._has_state(ShareKey(group.group_id, topic_id, index))
            )
            if there:
                initialized[topic_id] = TopicState(topic.name, there)
        if initialized != group.rules.initialized:
            logger.warning("share group %s: some of its partitions have lost their state", group.group_id)
            self._change_quietly(group, [StateTopicsChanged(initialized)])

    def _has_state(self, key: ShareKey) -> bool:
        is_topic_there = self._core.topics.by_id(key.topic_id) is not None
        store = self._core.share_state
        return is_topic_there and (store.get(key) is not None or not store.is_sound(key))

    def _change_quietly(self, group: ShareGroup, changes: list[GroupChange]) -> None:
        """For what nobody waits for, and what the next start would find out again."""
        if not changes:
            return
        try:
            self.change(group, changes, self._coordinator.now())
        except KafkaError as error:
            logger.warning("group %s: the journal refused a change: %s", group.group_id, error)

    def describe(self, group_id: str) -> DescribedGroup:
        if not group_id:
            return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            group = self._registry.require_type(group_id, ShareGroup, "share")
        except KafkaError as error:
            return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
        return group.describe(self._core.settings.list("group.share.assignors")[0])


def _check(group_id: str, asked: HeartbeatRequest) -> None:
    """What can be said without knowing the group. Kafka has no text for a bad member id."""
    if not asked.member_id or len(asked.member_id) > MEMBER_ID_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    if not group_id.strip():
        raise KafkaError(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")
    asked.check()


def _respond(member_id: str, beat: MemberHeartbeat) -> ShareGroupHeartbeatResponse:
    assignment = None
    if beat.assignment is not None:
        assignment = Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in beat.assignment.items()
            ]
        )
    return ShareGroupHeartbeatResponse(
        member_id=member_id,
        member_epoch=beat.member_epoch,
        heartbeat_interval_ms=beat.heartbeat_ms,
        assignment=assignment,
    )
