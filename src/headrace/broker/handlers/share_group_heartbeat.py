"""ShareGroupHeartbeat (76), v1: everything a member of a share group says and hears (KIP-932).

Joining (epoch 0), living, leaving (-1); which topics it reads, by name only. The response carries its epoch, the
interval to the next heartbeat, and its assignment where that has changed. Unlike Apache Kafka we let members send the
next heartbeat sooner while assignments are in motion, so that a fresh group is at work after a tenth of a second.

Share-partitions that a heartbeat brings into the group get their state, in `__share_group_state`, before the change of
the group is journaled; so the first response of a fresh group has its assignment already.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.errors import engine_error
from headrace.broker.groups.share import ShareGroup
from headrace.broker.groups.share_groups import DECIDED_AT_THE_FIRST_FETCH
from headrace.share.errors import ShareError
from headrace.share.group import SMALL_GROUP_PARTITIONS
from headrace.share.membership import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    MEMBER_ID_MAX,
    EpochChanged,
    HeartbeatRequest,
    MemberHeartbeat,
)
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 1)
FIRST_RECORD = 0
"""The start offset of a partition that was added to a topic which the group reads (KAFKA-20742)."""


def handle(
    core: "BrokerCore", request: ShareGroupHeartbeatRequest, call: Call
) -> ShareGroupHeartbeatResponse:
    core.features.require_share_groups()
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
            return _leave(core, request.group_id, asked.member_id)
        return _beat(core, request.group_id, asked)
    except ShareError as error:
        raise engine_error(error) from None


def _beat(core: "BrokerCore", group_id: str, asked: HeartbeatRequest) -> ShareGroupHeartbeatResponse:
    group = _group_for(core, group_id, asked)
    now = core.groups.now()
    settings = core.groups.share.settings(group_id)
    if (
        settings.initial_delay_ms
        and not group.rules.is_assigned
        and not _has_backlog(core, group, asked.subscribed or ())
    ):
        settings = replace(settings, initial_delay_ms=0)
    beat = group.rules.heartbeat(asked, topics=group.topic_info, settings=settings, now_ms=now.ms)
    for topic_id, topic in beat.initialize.items():
        # Records were written to a partition of a topic the group reads: none of them may be passed over.
        # That it reads the topic is in its own record, or is told by state that outlived the record.
        keys = [ShareKey(group_id, topic_id, index) for index in topic.partitions]
        is_read = topic_id in beat.grown or any(core.share_state.get(key) for key in keys)
        start_offset = FIRST_RECORD if is_read else DECIDED_AT_THE_FIRST_FETCH
        # There may be state that the group does not know of: its own record was refused, or lost in a power cut,
        # after the state was written. Members may have settled records since; none of that is forgotten.
        new = [key for key in keys if core.share_state.get(key) is None]
        core.share_state.initialize_new(new, state_epoch=beat.state_epoch, start_offset=start_offset)
    if beat.changes:
        core.groups.share.change(group, beat.changes, now)
        if any(isinstance(change, EpochChanged) for change in beat.changes):
            core.metrics.count("share-group-rebalance-count")
    group.rules.touch(asked.member_id, now.ms + settings.session_ms)
    core.groups.watch(group)
    return _respond(asked.member_id, beat)


def _has_backlog(core: "BrokerCore", group: ShareGroup, subscribed: Iterable[str]) -> bool:
    """Whether there is more than one record that members which start together could share.

    A topic of very many partitions is not looked at: it counts as having some.
    """
    names = set(subscribed).union(*(member.subscribed for member in group.rules.members.values()))
    topics = [topic for name in names if (topic := core.topics.get(name)) is not None]
    if sum(len(topic.partitions) for topic in topics) > SMALL_GROUP_PARTITIONS:
        return True
    is_latest = core.settings.group_str(group.group_id, "share.auto.offset.reset") == "latest"
    count = 0
    for topic in topics:
        for partition in topic.partitions:
            log = partition.log
            state = core.share_state.get(ShareKey(group.group_id, topic.id, partition.index))
            if state is not None and state.start_offset != DECIDED_AT_THE_FIRST_FETCH:
                done = max(0, state.complete_count)
                count += max(0, log.end_offset - max(log.start_offset, state.start_offset) - done)
            elif not is_latest:
                count += log.end_offset - log.start_offset
            if count > 1:
                return True
    return False


def _group_for(core: "BrokerCore", group_id: str, asked: HeartbeatRequest) -> ShareGroup:
    group = core.groups.registry.get(group_id)
    if group is None and asked.member_epoch == JOIN_EPOCH:
        return ShareGroup(group_id, core.topics)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Share group {group_id} not found.")
    return core.groups.registry.require_type(group_id, ShareGroup, "share")


def _leave(core: "BrokerCore", group_id: str, member_id: str) -> ShareGroupHeartbeatResponse:
    group = core.groups.registry.require_type(group_id, ShareGroup, "share")
    changes = group.rules.leave(member_id, topics=group.topic_info)
    core.groups.share.change(group, changes, core.groups.now())
    return ShareGroupHeartbeatResponse(member_id=member_id, member_epoch=LEAVE_EPOCH)


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
