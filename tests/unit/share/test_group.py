"""Membership of a share group: "Membership and assignment" in docs/concepts/share-semantics.md.

Method: `Office` plays the coordinator: it decides, keeps the journal, applies, and turns the clock.
"""

from collections.abc import Iterable

import pytest

from headrace.share.assignor import Assignment, flatten
from headrace.share.errors import FencedMemberEpoch, GroupMaxSizeReached, UnknownMember
from headrace.share.group import ShareGroupRules
from headrace.share.membership import (
    CurrentChanged,
    EpochChanged,
    GroupChange,
    GroupSettings,
    HeartbeatRequest,
    MemberChanged,
    MemberHeartbeat,
    StateTopicsChanged,
    TargetChanged,
    TargetEpochChanged,
    TopicInfo,
    TopicState,
)

T, U = b"t" * 16, b"u" * 16


def fingerprint(topics: Iterable[tuple[str, bytes, int]]) -> int:
    described = sorted(topics)
    return hash(tuple(described)) if described else 0


class Office:
    def __init__(self, **settings: int) -> None:
        self.topics = {"t": TopicInfo(T, 2)}
        self.settings = GroupSettings(**settings)
        self.group = ShareGroupRules("g", fingerprint=fingerprint)
        self.journal: list[GroupChange] = []
        self.now_ms = 0

    def beat(self, member_id: str, epoch: int, *subscribed: str, **more: str) -> MemberHeartbeat:
        request = HeartbeatRequest(
            member_id=member_id, member_epoch=epoch, subscribed=subscribed or None, **more
        )
        before = self.group.snapshot()
        beat = self.group.heartbeat(
            request, topics=self.topics.get, settings=self.settings, now_ms=self.now_ms
        )
        assert self.group.snapshot() == before
        self.apply(beat.changes)
        self.group.touch(member_id, self.now_ms + self.settings.session_ms)
        return beat

    def leave(self, member_id: str) -> list[GroupChange]:
        changes = self.group.leave(member_id, topics=self.topics.get)
        self.apply(changes)
        return changes

    def apply(self, changes: list[GroupChange]) -> None:
        self.journal += changes
        self.group.apply(changes, now_ms=self.now_ms)
        replayed = ShareGroupRules("g", fingerprint=fingerprint)
        replayed.apply(self.journal)
        assert replayed.snapshot() == self.group.snapshot()

    def assigned(self, member_id: str) -> Assignment:
        return self.group.currents[member_id].assigned


class TestJoining:
    def test_a_fresh_group_answers_its_first_heartbeat_with_the_assignment(
        self,
    ) -> None:  # Kafka: the third, scenario 2
        office = Office()
        beat = office.beat("m1", 0, "t", client_id="c", client_host="/127.0.0.1")
        assert (beat.member_epoch, beat.assignment) == (3, {T: (0, 1)})
        assert (beat.initialize, beat.state_epoch) == ({T: TopicState("t", (0, 1))}, 2)
        assert [type(change) for change in beat.changes] == [
            MemberChanged,
            StateTopicsChanged,
            EpochChanged,
            TargetChanged,
            TargetEpochChanged,
            CurrentChanged,
        ]
        assert not office.group.is_empty

    def test_a_heartbeat_without_news_changes_nothing_and_tells_nothing(self) -> None:  # scenario 4
        office = Office()
        office.beat("m1", 0, "t")
        beat = office.beat("m1", 3)
        assert (beat.changes, beat.assignment, beat.initialize, beat.member_epoch) == ([], None, {}, 3)

    def test_joining_again_keeps_the_epoch_and_tells_the_assignment(self) -> None:  # scenario 5
        office = Office()
        office.beat("m1", 0, "t")
        beat = office.beat("m1", 0, "t")
        assert (beat.changes, beat.member_epoch, beat.assignment) == ([], 3, {T: (0, 1)})

    def test_a_full_request_is_told_the_assignment(self) -> None:
        office = Office()
        office.beat("m1", 0, "t")
        assert office.beat("m1", 3, "t").assignment == {T: (0, 1)}

    def test_a_full_group_takes_back_its_members_and_nobody_else(self) -> None:  # scenario 10
        office = Office(members_max=1)
        office.beat("m1", 0, "t")
        with pytest.raises(GroupMaxSizeReached, match="maximum capacity of 1 members"):
            office.beat("m2", 0, "t")
        office.beat("m1", 0, "t")

    def test_missing_topics_are_accepted_and_assigned_once_they_exist(self) -> None:  # scenario 8
        office = Office(assignment_interval_ms=0)
        assert office.beat("m1", 0, "t", "later").assignment == {T: (0, 1)}
        office.topics["later"] = TopicInfo(U, 1)
        beat = office.beat("m1", 3)
        assert (beat.member_epoch, beat.assignment) == (5, {T: (0, 1), U: (0,)})
        assert beat.initialize == {U: TopicState("later", (0,))}

    def test_a_member_without_any_topic_that_exists_is_assigned_nothing(self) -> None:
        office = Office()
        assert office.beat("m1", 0, "later").assignment == {}


class TestFencing:
    def test_the_epoch_must_be_the_members_or_the_one_before(self) -> None:  # scenario 4
        office = Office()
        office.beat("m1", 0, "t")
        for epoch in (1, 9):
            with pytest.raises(FencedMemberEpoch):
                office.beat("m1", epoch)
        office.now_ms = 1_000
        office.topics["t"] = TopicInfo(T, 3)
        assert office.beat("m1", 3).member_epoch == 5
        retried = office.beat("m1", 3)  # the answer got lost: the member asks as before
        assert (retried.member_epoch, retried.assignment) == (5, {T: (0, 1, 2)})

    def test_an_unknown_member_must_join(self) -> None:  # scenario 6
        office = Office()
        office.beat("m1", 0, "t")
        with pytest.raises(UnknownMember, match="Member m2 is not a member of group g"):
            office.beat("m2", 1)
        office.leave("m1")
        with pytest.raises(UnknownMember):
            office.leave("m1")


class TestChanges:
    def test_leaving_moves_the_epoch_and_the_others_take_over(self) -> None:
        office = Office(assignment_interval_ms=0)
        office.beat("m1", 0, "t")
        office.beat("m2", 0, "t")
        office.beat("m1", 3)
        changes = office.leave("m2")
        assert [type(change) for change in changes] == [
            CurrentChanged,
            TargetChanged,
            MemberChanged,
            EpochChanged,
        ]
        assert office.group.epoch == 5
        assert office.beat("m1", 4).assignment == {T: (0, 1)}

    def test_the_last_member_leaves_the_group_empty_for_the_next_to_come(self) -> None:  # scenario 11
        office = Office()
        office.beat("m1", 0, "t")
        changes = office.leave("m1")
        assert changes[-2:] == [EpochChanged(4, 0), TargetEpochChanged(4)]
        assert office.group.is_empty
        assert (office.group.epoch, office.group.metadata_hash, office.group.targets) == (4, 0, {})
        office.now_ms = 5_000
        beat = office.beat("m2", 0, "t")
        assert (beat.member_epoch, beat.assignment, beat.initialize) == (5, {T: (0, 1)}, {})

    def test_added_partitions_are_initialized_and_assigned(self) -> None:  # scenario 13
        office = Office(assignment_interval_ms=0)
        office.beat("m1", 0, "t")
        office.topics["t"] = TopicInfo(T, 4)
        beat = office.beat("m1", 3)
        assert beat.initialize == {T: TopicState("t", (2, 3))}
        assert office.assigned("m1") == {T: (0, 1, 2, 3)}
        assert office.group.initialized == {T: TopicState("t", (0, 1, 2, 3))}

    def test_the_epoch_grows_once_more_for_new_partitions_unless_an_assignment_is_yet_to_come(self) -> None:
        """As in Kafka, which assigns what there was before while the state of the new ones is initialized."""
        office = Office(assignment_interval_ms=1_000, is_small_group_at_once=True)
        assert (office.beat("m1", 0, "t").member_epoch, office.group.epoch) == (3, 3)
        office.now_ms = 999
        office.topics["t"] = TopicInfo(T, 3)
        beat = office.beat("m1", 3)
        assert (beat.state_epoch, beat.member_epoch, office.group.epoch) == (4, 4, 4)
        office.now_ms = 1_999
        office.topics["t"] = TopicInfo(T, 4)
        beat = office.beat("m1", 4)
        assert (beat.state_epoch, beat.member_epoch, office.group.epoch) == (5, 6, 6)
        assert office.assigned("m1") == {T: (0, 1, 2, 3)}

    def test_a_deleted_topic_is_taken_from_the_assignment(self) -> None:  # scenario 64
        office = Office(assignment_interval_ms=0)
        office.beat("m1", 0, "t")
        del office.topics["t"]
        office.apply(office.group.forget_topics([T]))
        assert office.group.initialized == {}
        assert office.beat("m1", 3).assignment == {}

    def test_a_narrower_subscription_takes_effect_at_once(self) -> None:
        office = Office(assignment_interval_ms=1_000)
        office.topics["u"] = TopicInfo(U, 1)
        office.beat("m1", 0, "t", "u")
        beat = office.beat("m1", 3, "u")
        assert (beat.assignment, beat.member_epoch, office.group.epoch) == ({U: (0,)}, 3, 4)

    def test_rack_and_client_are_kept_without_moving_the_epoch(self) -> None:
        office = Office()
        office.beat("m1", 0, "t", client_id="c1")
        beat = office.beat("m1", 3, client_id="c2", rack_id="r")
        (change,) = beat.changes
        assert isinstance(change, MemberChanged)
        assert (change.metadata.client_id, change.metadata.rack_id, change.metadata.subscribed) == (
            "c2",
            "r",
            ("t",),
        )

    def test_only_targets_that_change_are_written(self) -> None:
        office = Office(assignment_interval_ms=0)
        office.beat("m1", 0, "t")
        office.beat("m2", 0, "t")
        beat = office.beat("m3", 0, "t")
        changed = {change.member_id for change in beat.changes if isinstance(change, TargetChanged)}
        assert changed == {"m1", "m3"}  # one of the two gets a second partition, the other keeps its own

    def test_members_with_different_subscriptions(self) -> None:
        office = Office(assignment_interval_ms=0)
        office.topics["u"] = TopicInfo(U, 2)
        office.beat("m1", 0, "t")
        office.beat("m2", 0, "u", "t", "u")
        office.beat("m1", 3)
        assert set(flatten(office.assigned("m2"))) >= {(U, 0), (U, 1)}
        assert set(office.assigned("m1")) == {T}


class TestMotion:
    def test_three_members_that_join_together_are_all_at_work_after_the_assignment_interval(self) -> None:
        office = Office()
        office.topics["t"] = TopicInfo(T, 6)
        epochs = {member: office.beat(member, 0, "t").member_epoch for member in ("m1", "m2", "m3")}
        assert [len(list(flatten(office.assigned(member)))) for member in epochs] == [6, 0, 0]
        rounds = 0
        while not all(len(list(flatten(office.assigned(member)))) == 2 for member in epochs):
            office.now_ms += 100
            rounds += 1
            for member in epochs:
                beat = office.beat(member, epochs[member])
                assert beat.heartbeat_ms == 100
                epochs[member] = beat.member_epoch
        assert rounds == 10

    def test_at_rest_the_configured_interval_is_told(self) -> None:
        office = Office()
        assert office.beat("m1", 0, "t").heartbeat_ms == 100
        office.now_ms = 2_999
        assert office.beat("m1", 3).heartbeat_ms == 100
        office.now_ms = 3_000
        assert office.beat("m1", 3).heartbeat_ms == 5_000

    def test_a_target_that_is_due_but_not_computed_yet_keeps_the_interval_short(self) -> None:
        office = Office(assignment_interval_ms=15_000)
        office.beat("m1", 0, "t")
        office.now_ms = 5_000
        office.beat("m2", 0, "t")
        office.now_ms = 10_000
        assert office.beat("m1", 3).heartbeat_ms == 100
        office.now_ms = 15_000
        assert office.beat("m1", 3).member_epoch == 4
        assert office.beat("m2", 3).heartbeat_ms == 5_000

    def test_a_member_that_does_not_come_does_not_keep_the_others_busy(self) -> None:
        office = Office(assignment_interval_ms=0)
        office.beat("m1", 0, "t")
        office.beat("m2", 0, "t")  # m1 does not know its new target yet
        office.now_ms = 10_000
        assert office.beat("m2", 4).heartbeat_ms == 5_000


class TestSessions:
    def test_a_silent_member_is_found_when_its_session_ends(self) -> None:  # scenario 11
        office = Office()
        assert office.group.deadline_ms() is None
        office.beat("m1", 0, "t")
        office.now_ms = 10_000
        office.beat("m2", 0, "t")
        assert office.group.deadline_ms() == 45_000
        assert office.group.expired(44_999) == []
        assert office.group.expired(45_000) == ["m1"]
        office.leave("m1")
        assert office.group.deadline_ms() == 55_000
        assert office.group.expired(60_000) == ["m2"]

    def test_old_deadlines_do_not_pile_up(self) -> None:
        group = ShareGroupRules("g", fingerprint=fingerprint)
        for now_ms in range(5_000):
            group.touch("m1", now_ms)
        assert len(group._heap) < 100
        assert group.deadline_ms() == 4_999

    def test_after_a_replay_sessions_are_started_anew(self) -> None:
        office = Office()
        office.beat("m1", 0, "t")
        replayed = ShareGroupRules("g", fingerprint=fingerprint)
        replayed.apply(office.journal)
        assert replayed.deadline_ms() is None
        for member in replayed.members:
            replayed.touch(member, 45_000)
        assert replayed.expired(45_000) == ["m1"]


class TestTopicsOfAdministrators:
    def test_offsets_set_by_an_administrator_initialize_partitions(self) -> None:
        office = Office()
        office.apply(office.group.initialize({T: TopicState("t", (1,))}))
        beat = office.beat("m1", 0, "t")
        assert beat.initialize == {T: TopicState("t", (0,))}

    def test_what_another_broker_left_half_done_is_done_again(self) -> None:
        office = Office()
        half_done = {T: TopicState("t", (0, 1))}
        office.apply([StateTopicsChanged({}, initializing=half_done, deleting={T: "t", U: "u"})])
        beat = office.beat("m1", 0, "t")
        assert beat.initialize == half_done
        assert (office.group.initializing, office.group.deleting) == ({}, {U: "u"})

    def test_forgetting_what_is_not_there_changes_nothing(self) -> None:
        assert Office().group.forget_topics([T]) == []

    def test_a_member_without_a_current_assignment_in_the_journal_counts_as_new(self) -> None:
        office = Office()
        office.beat("m1", 0, "t")
        replayed = ShareGroupRules("g", fingerprint=fingerprint)
        replayed.apply([change for change in office.journal if not isinstance(change, CurrentChanged)])
        request = HeartbeatRequest(member_id="m1", member_epoch=3)
        with pytest.raises(FencedMemberEpoch):
            replayed.heartbeat(request, topics=office.topics.get, settings=office.settings, now_ms=0)
