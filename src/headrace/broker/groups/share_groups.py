"""How share groups change: their settings, the journal, the state of their partitions, and what a start mends.

A decided change goes to the journal first and is applied then.

A group's share-partitions are entered twice: in the group's own record (which partitions have state) and in the share
coordinator's (the state). State goes first, in both directions: a crash in between leaves state that nobody asks for,
or a group that is told at the next start which of its partitions have to begin anew. The leader of the partition, which
holds the state in memory, is told to forget it.
"""

import logging
from typing import TYPE_CHECKING

from headrace.broker.groups.registry import Now
from headrace.broker.groups.share import ShareGroup
from headrace.broker.later import Later, resolved, when_all
from headrace.share.membership import (
    GroupChange,
    GroupSettings,
    StateTopicsChanged,
    TopicState,
)
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator

logger = logging.getLogger("headrace.groups")

DECIDED_AT_THE_FIRST_FETCH = -1
"""The start offset of a share-partition whose group has not said where it begins."""


class ShareGroups:
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
            initial_delay_ms=settings.get_int("headrace.share.initial.rebalance.delay.ms"),
            is_small_group_at_once=not self._has_own_interval(group_id),
            members_max=settings.get_int("group.share.max.size"),
            motion_heartbeat_ms=min(
                heartbeat_ms, settings.get_int("headrace.share.settling.heartbeat.interval.ms")
            ),
        )

    def _has_own_interval(self, group_id: str) -> bool:
        """Whether somebody has set how often the group is assigned: then that holds for small groups too."""
        settings = self._core.settings
        return settings.is_given("group.share.assignment.interval.ms") or (
            "share.assignment.interval.ms" in settings.group_overrides(group_id)
        )

    def initialize(
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

    def forget_state(self, group: ShareGroup, topic_id: bytes) -> list[Later[None]]:
        """The state of all share-partitions of a topic; the group's record is the caller's."""
        self._core.share_leader.forget_partitions(group.group_id, topic_id)
        if self._core.topics.by_id(topic_id) is None:
            return []  # the share coordinator has cleared up when the topic went
        partitions = group.rules.initialized[topic_id].partitions
        return self._core.share_state.delete_all(
            ShareKey(group.group_id, topic_id, index) for index in partitions
        )

    def forget_group(self, group: ShareGroup) -> Later[None]:
        """Everything that is kept of a group which is about to be deleted."""
        written = [
            durable for topic_id in group.rules.initialized for durable in self.forget_state(group, topic_id)
        ]
        self._core.share_leader.forget_group(group.group_id)
        return when_all(written).map(lambda _: None) if written else resolved(None)


def require_empty(group: ShareGroup) -> None:
    if not group.is_empty:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
