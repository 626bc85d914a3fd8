"""Goal: consumer groups (KIP-848) as Apache Kafka 4.3 runs them. Method: clients that heartbeat by the handler."""

from typing import Any

import pytest

from headrace.broker.handlers import consumer_group_describe, leave_group
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from tests.unit.broker.groups.consumer_client import ConsumerClient, converge, group_of
from tests.unit.broker.groups.fake_core import FakeCore

SESSION_MS = 45_000
HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def topic(core: FakeCore) -> Any:
    return core.topics.create("t", 4)


def code(response: Any) -> ErrorCode:
    return ErrorCode(response.error_code)


def test_the_first_member_gets_every_partition_with_its_first_heartbeat(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    response = member.join()
    # A new group begins at epoch 1, and its first member makes it 2, as in 4.3.
    assert (response.member_epoch, response.heartbeat_interval_ms) == (2, 5_000)
    assert member.indexes == [0, 1, 2, 3]
    assert group_of(core).state_name == "Stable"


def test_a_client_too_old_to_make_its_id_is_given_one(core: FakeCore) -> None:
    member = ConsumerClient(core, "", version=0)
    assert len(member.join().member_id) == 22
    assert code(member.beat()) == ErrorCode.NONE


def test_a_second_member_gets_its_half_once_the_first_has_given_it_up(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    core.pass_time(1_000)
    second.join()
    assert second.indexes == []  # all is still with the first
    told = first.beat()
    assert (told.member_epoch, len(first.indexes)) == (
        2,
        2,
    )  # it must give up two, and stays in its epoch until then
    second.beat()
    assert second.indexes == []
    assert first.beat().member_epoch == 3
    second.beat()
    assert sorted([*first.indexes, *second.indexes]) == [0, 1, 2, 3]
    assert group_of(core).state_name == "Stable"


def test_assignments_are_computed_at_most_once_in_the_interval(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    second.join()
    assert (second.epoch, second.indexes, group_of(core).state_name) == (2, [], "Assigning")
    core.pass_time(999)
    second.beat()
    assert second.epoch == 2
    core.pass_time(1)
    second.beat()
    assert second.epoch == 3


def test_a_wall_clock_set_back_does_not_hold_up_assignments(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    core.clock.jump_ms = -HOUR_MS
    core.pass_time(1_000)
    second.join()
    assert second.epoch == 3


def test_an_interval_of_zero_assigns_at_once(core: FakeCore) -> None:
    core.settings.replace_group("g", {"consumer.assignment.interval.ms": "0"})
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    second.join()
    assert second.epoch == 3


def test_a_groups_own_settings_count(core: FakeCore) -> None:
    core.settings.replace_group(
        "g", {"consumer.heartbeat.interval.ms": "7000", "consumer.session.timeout.ms": "50000"}
    )
    member = ConsumerClient(core, "a")
    assert member.join().heartbeat_interval_ms == 7_000
    core.pass_time(49_999)
    assert code(member.beat()) == ErrorCode.NONE
    core.pass_time(50_000)
    assert code(member.beat()) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_session_that_is_made_shorter_ends_in_time(core: FakeCore) -> None:
    core.settings.replace_group("g", {"consumer.session.timeout.ms": "60000"})
    member = ConsumerClient(core, "a")
    member.join()
    core.settings.replace_group("g", {})
    member.beat()
    core.pass_time(SESSION_MS)
    assert code(member.beat()) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_assignment_is_only_sent_when_it_has_changed_or_all_is_said(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    assert member.join().assignment is not None
    assert member.beat().assignment is None
    full = member.beat(rebalance_timeout_ms=30_000, subscribed_topic_names=["t"])
    assert full.assignment is not None


def test_a_member_that_leaves_gives_its_partitions_to_the_others(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    second.join()
    converge(first, second)
    assert first.leave() == ErrorCode.NONE
    converge(second)
    assert second.indexes == [0, 1, 2, 3]
    assert code(first.beat()) == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_answer_to_a_leaving_member_says_that_it_left(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    response = member.send(member_epoch=-1)
    assert (response.member_id, response.member_epoch) == ("a", -1)
    assert group_of(core).state_name == "Empty"


def test_a_silent_member_is_fenced_when_its_session_ends(core: FakeCore) -> None:
    silent, alive = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    silent.join()
    core.pass_time(SESSION_MS - 1)
    alive.join()
    core.pass_time(1)
    converge(alive)
    assert alive.indexes == [0, 1, 2, 3]
    assert code(silent.beat()) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_give_up_its_partitions_in_time_is_fenced(core: FakeCore) -> None:
    stubborn, other = ConsumerClient(core, "a", rebalance_ms=10_000), ConsumerClient(core, "b")
    stubborn.join()
    core.pass_time(1_000)
    other.join()
    stubborn.send()  # told to give up two; from now on it says nothing of what it owns
    core.pass_time(9_999)
    assert code(stubborn.send()) == ErrorCode.NONE
    core.pass_time(1)
    assert code(stubborn.send()) == ErrorCode.UNKNOWN_MEMBER_ID
    converge(other)
    assert other.indexes == [0, 1, 2, 3]


def test_a_member_that_gave_up_in_time_is_not_fenced(core: FakeCore) -> None:
    first, other = ConsumerClient(core, "a", rebalance_ms=10_000), ConsumerClient(core, "b")
    first.join()
    core.pass_time(1_000)
    other.join()
    converge(first, other)
    core.pass_time(20_000)
    assert code(first.beat()) == ErrorCode.NONE


def test_wrong_epochs_are_fenced(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    assert code(member.send(member_epoch=member.epoch + 1)) == ErrorCode.FENCED_MEMBER_EPOCH
    assert code(member.send(member_epoch=member.epoch - 1)) == ErrorCode.FENCED_MEMBER_EPOCH


def test_the_epoch_before_is_right_when_our_answer_was_lost(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    second.join()
    converge(first, second)
    second.leave()
    core.pass_time(1_000)
    before, owned = first.epoch, {*first.owned}
    first.beat()
    assert first.epoch > before
    first.epoch, first.owned = before, owned
    again = first.beat()
    assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, before + 1)
    first.epoch, first.owned = before, {(b"x" * 16, 0)}
    assert code(first.beat()) == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_may_start_again_from_zero(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    assert (code(member.join()), member.epoch, member.indexes) == (ErrorCode.NONE, 2, [0, 1, 2, 3])


def test_unknown_groups_and_members_are_told_so(core: FakeCore) -> None:
    stranger = ConsumerClient(core, "who", epoch=3)
    assert code(stranger.beat()) == ErrorCode.GROUP_ID_NOT_FOUND
    assert stranger.leave() == ErrorCode.GROUP_ID_NOT_FOUND
    ConsumerClient(core, "a").join()
    assert code(stranger.beat()) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave() == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({}, "RebalanceTimeoutMs must be provided in first request."),
        ({"rebalance_timeout_ms": 1}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"rebalance_timeout_ms": 1, "topic_partitions": []},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -2}, "InstanceId can't be null."),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_an_incomplete_heartbeat_is_refused_with_kafkas_words(core: FakeCore, fields: Any, text: str) -> None:
    response = ConsumerClient(core, "a").send(**fields)
    assert (code(response), response.error_message) == (ErrorCode.INVALID_REQUEST, text)


def test_an_assignor_that_is_not_there_is_refused(core: FakeCore) -> None:
    response = ConsumerClient(core, "a", assignor="magic").join()
    assert code(response) == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert (
        response.error_message
        == "ServerAssignor magic is not supported. Supported assignors: uniform, range."
    )


def test_most_members_choose_the_assignor(core: FakeCore) -> None:
    clients = [
        ConsumerClient(core, name, assignor=wanted)
        for name, wanted in [("a", "range"), ("b", "range"), ("c", None)]
    ]
    for client in clients:
        client.join()
    converge(*clients)
    assert [client.indexes for client in clients] == [[0, 1], [2], [3]]
    (described,) = core.handle(consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert described.assignor_name == "range"


def test_a_full_group_turns_newcomers_away(core: FakeCore) -> None:
    core = FakeCore(**{"group.consumer.max.size": 1})
    core.topics.create("t", 4)
    member = ConsumerClient(core, "a")
    member.join()
    assert code(ConsumerClient(core, "b").join()) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code(member.beat()) == ErrorCode.NONE
    core.check_replay()


def test_new_partitions_are_assigned_with_the_next_heartbeat(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    core.pass_time(1_000)
    core.topics.add_partitions("t", 6)
    member.beat()
    assert member.indexes == [0, 1, 2, 3, 4, 5]


def test_a_topic_that_is_made_later_is_assigned_with_the_next_heartbeat(core: FakeCore) -> None:
    member = ConsumerClient(core, "a", topics=["t", "later"])
    member.join()
    core.pass_time(1_000)
    core.topics.create("later", 2)
    member.beat()
    assert len(member.owned) == 6


def test_a_deleted_topic_is_taken_away_with_the_next_heartbeats(core: FakeCore) -> None:
    core.topics.create("doomed", 2)
    member = ConsumerClient(core, "a", topics=["t", "doomed"])
    member.join()
    core.pass_time(1_000)
    core.topics.delete("doomed")
    converge(member)
    assert len(member.owned) == 4


def test_a_topic_nobody_reads_changes_nothing(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    core.topics.create("elsewhere", 2)
    core.pass_time(1_000)
    assert member.beat().member_epoch == 2


def test_a_changed_subscription_moves_partitions(core: FakeCore) -> None:
    core.topics.create("u", 2)
    member = ConsumerClient(core, "a")
    member.join()
    core.pass_time(1_000)
    member.beat(subscribed_topic_names=["u"])
    converge(member)
    assert len(member.owned) == 2


def test_a_pattern_stands_for_all_topics_it_matches_also_later_ones(core: FakeCore) -> None:
    core.topics.create("orders-eu", 1)
    member = ConsumerClient(core, "a", topics=None, pattern="orders-.*")
    member.join()
    assert len(member.owned) == 1
    core.pass_time(1_000)
    core.topics.create("orders-us", 2)
    member.beat()
    assert len(member.owned) == 3
    core.pass_time(1_000)
    core.topics.delete("orders-eu")
    converge(member)
    assert len(member.owned) == 2


def test_names_and_a_pattern_add_up(core: FakeCore) -> None:
    core.topics.create("orders", 1)
    member = ConsumerClient(core, "a", topics=["t"], pattern="o.*")
    member.join()
    assert len(member.owned) == 5
    assert group_of(core).is_subscribed_to("orders")


def test_a_bad_pattern_is_refused_and_leaves_no_group(core: FakeCore) -> None:
    response = ConsumerClient(core, "a", topics=None, pattern="(").join()
    assert code(response) == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert core.groups.state.registry.get("g") is None


def test_a_pattern_nobody_has_any_more_is_forgotten(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a", pattern="x.*"), ConsumerClient(core, "b", pattern="y.*")
    first.join()
    second.join()
    assert {*group_of(core).resolved} == {"x.*", "y.*"}
    first.beat(subscribed_topic_regex="")
    assert {*group_of(core).resolved} == {"y.*"}
    second.leave()
    assert not group_of(core).resolved


def test_a_static_member_comes_back_to_its_partitions(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a", instance_id="one"), ConsumerClient(core, "b", instance_id="two")
    first.join()
    second.join()
    converge(first, second)
    epoch, held = group_of(core).epoch, first.indexes
    assert first.leave(-2) == ErrorCode.NONE
    back = ConsumerClient(core, "c", instance_id="one")
    back.join()
    assert (back.epoch, back.indexes, group_of(core).epoch) == (epoch, held, epoch)
    assert code(first.beat()) == ErrorCode.FENCED_INSTANCE_ID
    assert first.leave(-2) == ErrorCode.FENCED_INSTANCE_ID


def test_an_instance_that_is_in_use_is_not_given_to_another(core: FakeCore) -> None:
    ConsumerClient(core, "a", instance_id="one").join()
    assert code(ConsumerClient(core, "b", instance_id="one").join()) == ErrorCode.UNRELEASED_INSTANCE_ID


def test_an_unknown_instance_is_told_so(core: FakeCore) -> None:
    ConsumerClient(core, "a").join()
    stranger = ConsumerClient(core, "b", instance_id="two", epoch=2)
    assert code(stranger.beat()) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave(-2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_left_for_a_while_is_fenced_when_it_stays_away(core: FakeCore) -> None:
    member = ConsumerClient(core, "a", instance_id="one")
    member.join()
    member.leave(-2)
    core.pass_time(SESSION_MS)
    assert group_of(core).is_empty


def test_a_static_member_that_leaves_for_good_makes_room(core: FakeCore) -> None:
    member = ConsumerClient(core, "a", instance_id="one")
    member.join()
    assert member.leave(-1) == ErrorCode.NONE
    assert code(ConsumerClient(core, "b", instance_id="one").join()) == ErrorCode.NONE


def test_an_administrator_removes_members_by_leave_group(core: FakeCore) -> None:
    for member in (
        ConsumerClient(core, "a"),
        ConsumerClient(core, "b", instance_id="two"),
        ConsumerClient(core, "c"),
    ):
        member.join()
    leaving = [
        MemberIdentity(member_id="a"),
        MemberIdentity(group_instance_id="two"),
        MemberIdentity(member_id="who"),
        MemberIdentity(member_id="c", group_instance_id="two"),
        MemberIdentity(group_instance_id="three"),
    ]
    response = core.handle(leave_group, LeaveGroupRequest(group_id="g", members=leaving))
    assert [member.error_code for member in response.members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert {*group_of(core).members} == {"c"}


def test_a_refused_journal_changes_nothing(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert code(member.join()) == ErrorCode.NOT_COORDINATOR
    assert core.groups.state.registry.get("g") is None
    core.refusal = None
    member.join()
    core.refusal = ErrorCode.MESSAGE_TOO_LARGE
    assert code(ConsumerClient(core, "b").join()) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert member.leave() == ErrorCode.UNKNOWN_SERVER_ERROR
    core.refusal = None
    assert {*group_of(core).members} == {"a"}


def test_an_expired_member_whose_removal_the_journal_refuses_is_removed_later(core: FakeCore) -> None:
    ConsumerClient(core, "a").join()
    core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    core.pass_time(SESSION_MS + 5_000)
    assert not group_of(core).is_empty
    core.refusal = None
    core.pass_time(1_000)
    assert group_of(core).is_empty


def test_after_a_restart_members_go_on_where_they_were_with_a_whole_session(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    second.join()
    converge(first, second)
    core.pass_time(SESSION_MS - 2_000)
    core.groups.state.registry.remove("g")
    core.groups.load()
    core.pass_time(SESSION_MS - 1)
    assert code(first.beat()) == ErrorCode.NONE
    core.pass_time(1)
    converge(first)
    assert first.indexes == [0, 1, 2, 3]


def test_after_a_restart_a_member_has_its_rebalance_timeout_again(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a", rebalance_ms=10_000), ConsumerClient(core, "b")
    first.join()
    core.pass_time(1_000)
    second.join()
    first.send()
    core.groups.state.registry.remove("g")
    core.groups.load()
    core.pass_time(10_000)
    assert {*group_of(core).members} == {"b"}


def test_a_described_group_tells_epochs_and_assignments(core: FakeCore, topic: Any) -> None:
    ConsumerClient(core, "a", instance_id="one", pattern="t").join()
    request = ConsumerGroupDescribeRequest(group_ids=["g", "nowhere", ""], include_authorized_operations=True)
    described, missing, nameless = core.handle(consumer_group_describe, request).groups
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Stable", 2, 2)
    assert (described.assignor_name, described.authorized_operations) == ("uniform", 3400)
    (member,) = described.members
    assert (member.member_id, member.instance_id, member.member_epoch, member.member_type) == (
        "a",
        "one",
        2,
        1,
    )
    assert (member.client_id, member.client_host) == ("client", "/10.0.0.1")
    assert (member.subscribed_topic_names, member.subscribed_topic_regex) == (["t"], "t")
    (assigned,) = member.assignment.topic_partitions
    assert (assigned.topic_id, assigned.topic_name, assigned.partitions) == (topic.id, "t", [0, 1, 2, 3])
    assert member.target_assignment == member.assignment
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group nowhere not found.",
    )
    assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_described_member_holds_what_it_has_not_given_up_yet(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    core.pass_time(1_000)
    second.join()
    first.send()
    (described,) = core.handle(consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert described.group_state == "Reconciling"
    assert len(described.members[0].assignment.topic_partitions[0].partitions) == 4
    assert len(described.members[0].target_assignment.topic_partitions[0].partitions) == 2
