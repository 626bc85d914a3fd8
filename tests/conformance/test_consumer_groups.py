"""Consumer groups (KIP-848): the coordinator assigns, and members follow by their heartbeats."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import plain
from tests.conformance.steps import (
    GROUP,
    assigned,
    assignment,
    beat,
    heartbeat,
    join,
    join_named,
    new_topic,
    set_config,
    subscription,
    sync,
    wait_for,
    wait_until_led,
)
from tests.conformance.wire_client import WireClient

LEAVE, LEAVE_FOR_A_WHILE = -1, -2


class Member:
    """A member that does as it is told: it owns what it was last assigned, and says so."""

    def __init__(self, wire: WireClient, group: str, member_id: str, **joining: Any) -> None:
        self.wire, self.group, self.id = wire, group, member_id
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}
        self.last: Any = None
        self.beat(**joining)

    def beat(self, **fields: Any) -> Any:
        """One heartbeat that must be taken."""
        if self.epoch > 0:
            fields.setdefault("topic_partitions", self.owned)
        self.last = beat(self.wire, self.group, self.id, self.epoch, **fields)
        assert self.last.error_code == 0, self.last
        self.epoch = self.last.member_epoch
        if (now := assigned(self.last)) is not None:
            self.owned = now
        return self.last

    def partitions(self) -> list[int]:
        return sorted(index for partitions in self.owned.values() for index in partitions)


def settle(*members: Member) -> None:
    """Heartbeats in turn until somebody owns something and nobody hears anything new."""

    def is_quiet() -> bool:
        before = [(member.epoch, member.owned) for member in members]
        for member in members:
            member.beat()
        return before == [(member.epoch, member.owned) for member in members]

    wait_for(lambda: is_quiet() and is_quiet() and any(member.owned for member in members))


def describe(wire: WireClient, group: str) -> Any:
    return wire.ask("consumer_group_describe", 1, group_ids=[group]).groups[0]


def refused(code: ErrorCode, message: str | None) -> dict[str, Any]:
    return {
        "throttle_time_ms": 0,
        "error_code": code,
        "error_message": message,
        "member_id": None,
        "member_epoch": 0,
        "heartbeat_interval_ms": 0,
        "assignment": None,
    }


def test_a_member_alone_gets_everything(wire: WireClient, unique: str) -> None:
    topic_id = new_topic(wire, unique, partitions=3)
    member = Member(wire, unique, "one", topics=[unique])
    settle(member)
    assert member.owned == {topic_id: [0, 1, 2]}
    first_epoch = member.epoch
    again = member.beat()
    assert (again.member_epoch, again.assignment) == (first_epoch, None)
    found = describe(wire, unique)
    assert (found.group_state, found.group_epoch, found.assignment_epoch) == (
        "Stable",
        first_epoch,
        first_epoch,
    )


def test_the_first_epochs(wire: WireClient, unique: str) -> None:
    # For a topic that is not there, so that no news of it can come in between and move the epoch on.
    first = Member(wire, unique, "one", topics=[unique])
    second = Member(wire, unique, "two", topics=[unique])
    assert (first.epoch, second.epoch) == (2, 3)


def test_two_members_share_what_there_is(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=4)
    first = Member(wire, unique, "one", topics=[unique])
    settle(first)
    second = Member(wire, unique, "two", topics=[unique])
    # The first must let go before the second may have anything.
    assert second.partitions() == []
    told = first.beat()
    assert len(assigned(told)[next(iter(first.owned))]) == 2
    settle(first, second)
    assert sorted(first.partitions() + second.partitions()) == [0, 1, 2, 3]
    assert (len(first.partitions()), len(second.partitions())) == (2, 2)
    assert first.epoch == second.epoch
    assert describe(wire, unique).group_state == "Stable"


def test_a_group_that_moves_partitions_is_reconciling(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    first = Member(wire, unique, "one", topics=[unique])
    settle(first)
    Member(wire, unique, "two", topics=[unique])
    found = describe(wire, unique)
    assert found.group_state == "Reconciling"
    members = {member.member_id: member for member in found.members}

    def size(assignment: Any) -> int:
        return sum(len(topic.partitions) for topic in assignment.topic_partitions)

    assert [size(members[name].assignment) for name in ("one", "two")] == [2, 0]
    assert [size(members[name].target_assignment) for name in ("one", "two")] == [1, 1]
    assert members["one"].member_epoch == first.epoch == found.group_epoch - 1


def test_a_third_member_waits_for_a_free_partition(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    members = [Member(wire, unique, name, topics=[unique]) for name in ("one", "two", "three")]
    settle(*members)
    assert sorted(len(member.partitions()) for member in members) == [0, 1, 1]


def test_what_a_leaver_had_goes_to_the_others(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    first = Member(wire, unique, "one", topics=[unique])
    second = Member(wire, unique, "two", topics=[unique])
    settle(first, second)
    left = beat(wire, unique, "two", LEAVE)
    assert plain(left) == {**refused(ErrorCode.NONE, None), "member_id": "two", "member_epoch": LEAVE}
    settle(first)
    assert first.partitions() == [0, 1]
    assert beat(wire, unique, "two", second.epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_whose_members_have_left_is_empty(
    broker: BrokerUnderTest, wire: WireClient, unique: str
) -> None:
    new_topic(wire, unique)
    members = [Member(wire, unique, name, topics=[unique]) for name in ("one", "two")]
    settle(*members)
    full = describe(wire, unique)
    assert full.assignment_epoch == full.group_epoch
    beat(wire, unique, "one", LEAVE)
    one_left = describe(wire, unique)
    assert (one_left.group_epoch, one_left.assignment_epoch) == (full.group_epoch + 1, full.group_epoch)
    beat(wire, unique, "two", LEAVE)
    found = describe(wire, unique)
    assert (found.error_code, found.group_state, found.members) == (0, "Empty", [])
    assert found.group_epoch == full.group_epoch + 2
    # Kafka 4.4's rule, so that an empty group does not look as if an assignment were due (KAFKA-20442).
    assert found.assignment_epoch == (full.group_epoch if broker.is_apache else found.group_epoch)


def test_an_epoch_that_is_not_the_members_is_fenced(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    member = Member(wire, unique, "one", topics=[unique])
    settle(member)
    for epoch in (member.epoch + 1, 9):
        assert beat(wire, unique, "one", epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert beat(wire, unique, "one", member.epoch).error_code == 0


def test_the_epoch_before_is_taken_from_a_member_that_missed_an_answer(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    member = Member(wire, unique, "one", topics=[unique])
    settle(member)
    old_epoch, owned = member.epoch, member.owned
    member.beat(topics=[unique, f"{unique}-later"])
    assert member.epoch == old_epoch + 1
    # The answer was lost: it beats with the epoch it knows and what it owns, and is told again.
    again = beat(wire, unique, "one", old_epoch, topic_partitions=owned)
    assert (again.error_code, again.member_epoch) == (0, old_epoch + 1)
    # Owning nothing it cannot be the same member.
    lost = beat(wire, unique, "one", old_epoch, topic_partitions={bytes(range(16)): [0]})
    assert lost.error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_fenced_member_may_join_again(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    member = Member(wire, unique, "one", topics=[unique])
    settle(member)
    again = beat(wire, unique, "one", 0, topics=[unique])
    assert (again.error_code, again.member_epoch) == (0, member.epoch)
    assert assigned(again) == member.owned


def test_an_unknown_member_is_refused(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    missing = beat(wire, unique, "one", 1)
    assert plain(missing) == refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Consumer group {unique} not found.")
    assert beat(wire, unique, "one", LEAVE).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    Member(wire, unique, "one", topics=[unique])
    assert beat(wire, unique, "two", 1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert beat(wire, unique, "two", LEAVE).error_code == ErrorCode.UNKNOWN_MEMBER_ID


INVALID: dict[str, tuple[str, int, dict[str, Any], str]] = {
    "no member id": ("", 0, {}, "MemberId can't be empty."),
    "a member id of blanks": (" ", 0, {}, "MemberId can't be empty."),
    "no topics": (
        "one",
        0,
        {"topics": None},
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    "no rebalance timeout": (
        "one",
        0,
        {"rebalance_timeout_ms": -1},
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    "partitions before it joined": (
        "one",
        0,
        {"topic_partitions": {bytes(range(16)): [0]}},
        "TopicPartitions must be empty when (re-)joining.",
    ),
    "no owned partitions": (
        "one",
        0,
        {"topic_partitions": None},
        "TopicPartitions must be empty when (re-)joining.",
    ),
    "an empty instance id": ("one", 0, {"instance_id": ""}, "InstanceId can't be empty."),
    "an empty rack": ("one", 0, {"rack_id": ""}, "RackId can't be empty."),
    "an epoch that means nothing": ("one", -3, {}, "MemberEpoch is invalid."),
    "a static leave without an instance": ("one", LEAVE_FOR_A_WHILE, {}, "InstanceId can't be null."),
}


@pytest.mark.parametrize("what", INVALID)
def test_a_request_that_makes_no_sense_is_refused(wire: WireClient, unique: str, what: str) -> None:
    member_id, epoch, fields, message = INVALID[what]
    if epoch == 0:
        fields = {"topics": [unique], **fields}
    response = beat(wire, unique, member_id, epoch, **fields)
    assert plain(response) == refused(ErrorCode.INVALID_REQUEST, message)


def test_a_group_must_have_a_name(wire: WireClient, unique: str) -> None:
    response = beat(wire, "", "one", 0, topics=[unique])
    assert plain(response) == refused(ErrorCode.INVALID_REQUEST, "GroupId can't be empty.")


@pytest.mark.parametrize("name", ["sticky", ""])
def test_an_assignor_we_do_not_have_is_refused(wire: WireClient, unique: str, name: str) -> None:
    response = beat(wire, unique, "one", 0, topics=[unique], server_assignor=name)
    message = f"ServerAssignor {name} is not supported. Supported assignors: uniform, range."
    assert plain(response) == refused(ErrorCode.UNSUPPORTED_ASSIGNOR, message)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_may_choose_the_assignor(wire: WireClient, unique: str, assignor: str) -> None:
    topics = [f"{unique}-{number}" for number in range(2)]
    ids = [new_topic(wire, name, partitions=3) for name in topics]
    first = Member(wire, unique, "one", topics=topics, server_assignor=assignor)
    second = Member(wire, unique, "two", topics=topics, server_assignor=assignor)
    settle(first, second)
    assert describe(wire, unique).assignor_name == assignor
    sizes = sorted([len(first.partitions()), len(second.partitions())])
    # Range takes each topic for itself, so the first of two members has the larger share of both.
    assert sizes == ([2, 4] if assignor == "range" else [3, 3])
    assert {topic for member in (first, second) for topic in member.owned} == set(ids)


def test_a_topic_that_does_not_exist_yet_is_assigned_when_it_does(wire: WireClient, unique: str) -> None:
    member = Member(wire, unique, "one", topics=[unique])
    assert member.owned == {}
    topic_id = new_topic(wire, unique)
    wait_for(lambda: member.beat() and member.owned == {topic_id: [0]})


def test_new_partitions_are_assigned(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    member = Member(wire, unique, "one", topics=[unique])
    topic = {"name": unique, "count": 3, "assignments": None}
    assert wire.ask("create_partitions", 3, topics=[topic], timeout_ms=5000).results[0].error_code == 0
    wait_until_led(wire, unique, partitions=3)
    wait_for(lambda: member.beat() and member.partitions() == [0, 1, 2])


def test_a_deleted_topic_is_taken_away(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    member = Member(wire, unique, "one", topics=[unique])
    wire.ask("delete_topics", 5, topic_names=[unique], timeout_ms=5000)
    wait_for(lambda: member.beat() and member.owned == {})


def test_a_member_may_change_its_mind(wire: WireClient, unique: str) -> None:
    ids = [new_topic(wire, f"{unique}-{number}") for number in range(2)]
    member = Member(wire, unique, "one", topics=[f"{unique}-0"])
    member.beat(topics=[f"{unique}-1"])
    wait_for(lambda: member.beat() and member.owned == {ids[1]: [0]})
    member.beat(topics=[])
    wait_for(lambda: member.beat() and member.owned == {})


def test_a_pattern_subscribes_to_all_it_matches(wire: WireClient, unique: str) -> None:
    ids = [new_topic(wire, f"{unique}-{name}") for name in ("red", "green")]
    new_topic(wire, f"other-{unique}-red")
    member = Member(wire, unique, "one", subscribed_topic_regex=f"{unique}-(red|gre+n|blue)")
    wait_for(lambda: member.beat() and set(member.owned) == set(ids))
    found = describe(wire, unique)
    assert [one.subscribed_topic_regex for one in found.members] == [f"{unique}-(red|gre+n|blue)"]
    assert [one.subscribed_topic_names for one in found.members] == [[]]


def test_a_pattern_that_matches_nothing_changes_no_epoch_until_it_does(wire: WireClient, unique: str) -> None:
    member = Member(wire, unique, "one", subscribed_topic_regex=f"{unique}-.*")
    assert (member.epoch, member.owned) == (1, {})
    topic_id = new_topic(wire, f"{unique}-red", partitions=2)
    wait_for(lambda: member.beat() and member.owned == {topic_id: [0, 1]})
    assert member.epoch == 2


def test_names_and_a_pattern_go_together(wire: WireClient, unique: str) -> None:
    ids = [new_topic(wire, f"{unique}-{name}") for name in ("red", "green")]
    member = Member(wire, unique, "one", topics=[f"{unique}-red"], subscribed_topic_regex=f"{unique}-g.*")
    wait_for(lambda: member.beat() and set(member.owned) == set(ids))


def test_a_pattern_that_is_none_is_refused(wire: WireClient, unique: str) -> None:
    response = beat(wire, unique, "one", 0, subscribed_topic_regex="[")
    assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "[" in response.error_message


def test_a_silent_member_is_out(wire: WireClient, unique: str) -> None:
    set_config(wire, GROUP, unique, "consumer.heartbeat.interval.ms", "100")
    set_config(wire, GROUP, unique, "consumer.session.timeout.ms", "400")
    new_topic(wire, unique)
    member = Member(wire, unique, "one", topics=[unique])
    assert member.last.heartbeat_interval_ms == 100
    wait_for(lambda: describe(wire, unique).group_state == "Empty")
    assert beat(wire, unique, "one", member.epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_let_go_in_time_is_out(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    first = Member(wire, unique, "one", topics=[unique], rebalance_timeout_ms=300)
    settle(first)
    second = Member(wire, unique, "two", topics=[unique])
    assert len(assigned(first.beat())[next(iter(first.owned))]) == 1
    wait_for(lambda: second.beat() and second.partitions() == [0, 1])
    assert beat(wire, unique, "one", first.epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_comes_back_has_its_place(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    first = Member(wire, unique, "one", topics=[unique], instance_id="static")
    second = Member(wire, unique, "two", topics=[unique])
    settle(first, second)
    epoch, owned = first.epoch, first.owned
    away = beat(wire, unique, "one", LEAVE_FOR_A_WHILE, instance_id="static")
    assert (away.error_code, away.member_epoch) == (0, LEAVE_FOR_A_WHILE)
    settle(second)
    assert second.partitions() != [0, 1]
    again = Member(wire, unique, "new one", topics=[unique], instance_id="static")
    assert (again.epoch, again.owned) == (epoch, owned)
    old = beat(wire, unique, "one", epoch)
    assert old.error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_in_use_is_not_given_to_another(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    member = Member(wire, unique, "one", topics=[unique], instance_id="static")
    other = beat(wire, unique, "two", 0, topics=[unique], instance_id="static")
    assert other.error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    member.beat(instance_id="static")
    fenced = beat(wire, unique, "two", 1, instance_id="static")
    assert fenced.error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_group_that_does_not_exist_is_described_so(wire: WireClient, unique: str) -> None:
    found = describe(wire, unique)
    assert (found.error_code, found.group_id) == (ErrorCode.GROUP_ID_NOT_FOUND, unique)
    assert found.error_message == f"Group {unique} not found."


def test_a_classic_member_cannot_join_with_a_foreign_protocol(
    wire: WireClient, connect: Callable[[], WireClient], unique: str
) -> None:
    new_topic(wire, unique)
    Member(wire, unique, "one", topics=[unique])
    response = join(connect(), unique, protocol_type="connect")
    assert response.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_group_of_consumers_becomes_a_consumer_group(
    wire: WireClient, connect: Callable[[], WireClient], unique: str
) -> None:
    # KIP-848, "Consumer upgrade": old and new clients live in one group while they are replaced one by one.
    new_topic(wire, unique, partitions=2)
    protocols = {"range": subscription(unique)}
    old = join_named(wire, unique, protocols=protocols)
    sync(wire, unique, old.member_id, 1, {old.member_id: assignment(**{unique: [0, 1]})})
    new = Member(connect(), unique, "new", topics=[unique])
    assert [group.group_type for group in wire.ask("list_groups", 5).groups if group.group_id == unique] == [
        "consumer"
    ]
    kinds = {member.member_id: member.member_type for member in describe(wire, unique).members}
    assert kinds == {old.member_id: 0, "new": 1}
    # The old one is told by its heartbeat to join again, and gets what the coordinator has assigned.
    wait_for(lambda: heartbeat(wire, unique, old.member_id, 1) == ErrorCode.REBALANCE_IN_PROGRESS)
    rejoined = join(wire, unique, old.member_id, protocols=protocols)
    assert (rejoined.error_code, rejoined.protocol_name) == (0, "range")
    synced = sync(wire, unique, old.member_id, rejoined.generation_id)
    assert synced.error_code == 0
    wait_for(lambda: new.beat() and new.epoch == rejoined.generation_id)
