"""Share group members (KIP-932, "Share group membership"): heartbeats, epochs, fencing, who gets which partition.

The coordinator alone is asked here; it neither knows nor minds what members fetch. Scenario numbers are
those of docs/concepts/share-semantics.md.
"""

import time
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance import steps
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import (
    LEAVE,
    NewMember,
    ShareMember,
    assigned,
    describe_share_group,
    either,
    fill,
    new_queue,
    set_group,
)
from tests.conformance.steps import new_topic, wait_for
from tests.conformance.wire_client import WireClient

NO_TOPIC = b"\0" * 16
GROUP_SIZE_MAX = 200


def test_the_first_member_makes_the_group(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 1, with records that members which start together can share."""
    topic_id = new_topic(wire, unique)
    set_group(wire, unique, auto_offset_reset="earliest")
    fill(wire, unique, 2)
    answer = member(topic_id).heartbeat(0, topics=[unique])
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.member_epoch, assigned(answer)) == (2, {})
    why = "the first member waits a moment for others, and not for the next regular heartbeat"
    intervals = either(broker, apache=[5_000], headrace=range(1, 101), because=why)
    assert answer.heartbeat_interval_ms in intervals


def test_a_new_group_has_its_assignment_after_the_assignment_interval(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 2."""
    topic_id = new_topic(wire, unique)
    interval_s = 1 if broker.is_apache else 15
    set_group(wire, unique, assignment_interval_ms=str(1_000 * interval_s))
    alone = member(topic_id)
    started = time.monotonic()
    answer = alone.join(unique)
    waited_s = time.monotonic() - started
    assert assigned(answer) == {topic_id: [0]}
    assert answer.heartbeat_interval_ms <= 5_000
    if broker.is_apache:
        assert alone.epoch == 3
        assert waited_s > 0.9 * interval_s
    else:
        assert waited_s < interval_s, "the first assignment waits for other members only"
    settled = alone.heartbeat()
    assert (settled.error_code, settled.member_epoch, settled.assignment) == (0, alone.epoch, None)
    wait_for(lambda: alone.heartbeat().heartbeat_interval_ms == 5_000, every_s=0.05)


def test_only_a_joining_member_makes_a_group(member: NewMember) -> None:
    """Scenario 3."""
    stranger = member(NO_TOPIC)
    assert stranger.heartbeat(5).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    refused = stranger.heartbeat(LEAVE)
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (refused.member_id, refused.member_epoch, refused.heartbeat_interval_ms) == (None, 0, 0)


def test_a_member_with_the_wrong_epoch_is_fenced(member: NewMember, unique: str) -> None:
    """Scenario 4. Nothing is there to be assigned, so the member stays at epoch 2."""
    waiting = member(NO_TOPIC)
    assert waiting.heartbeat(0, topics=[f"{unique}-not-there"]).member_epoch == 2
    assert waiting.heartbeat(1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert waiting.heartbeat(9).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    answer = waiting.heartbeat(2)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (0, 2, None)


def test_a_heartbeat_whose_answer_was_lost_may_be_repeated(member: NewMember, unique: str) -> None:
    """Scenario 4: the epoch before the last one is accepted."""
    waiting = member(NO_TOPIC)
    before = waiting.heartbeat(0, topics=[f"{unique}-not-there"]).member_epoch
    moved = waiting.heartbeat(topics=[f"{unique}-neither"]).member_epoch
    assert moved == before + 1
    again = waiting.heartbeat(before)
    assert (again.error_code, again.member_epoch) == (0, moved)
    assert waiting.heartbeat(before - 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH


def test_a_member_that_joins_again_gets_the_same_epoch_and_its_whole_assignment(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 5."""
    topic_id = new_topic(wire, unique)
    alone = member(topic_id)
    alone.join(unique)
    epoch = alone.epoch
    answer = alone.heartbeat(0, topics=[unique])
    assert (answer.error_code, answer.member_epoch) == (0, epoch)
    assert assigned(answer) == {topic_id: [0]}
    full = alone.heartbeat(topics=[unique])
    assert assigned(full) == {topic_id: [0]}, "a request with topics is answered in full"


def test_strangers_and_members_that_left_are_unknown(member: NewMember, unique: str) -> None:
    """Scenario 6."""
    first = member(NO_TOPIC)
    first.heartbeat(0, topics=[f"{unique}-not-there"])
    assert member(NO_TOPIC).heartbeat(1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    gone = first.heartbeat(LEAVE)
    assert (gone.error_code, gone.member_epoch, gone.heartbeat_interval_ms) == (0, LEAVE, 0)
    assert first.heartbeat(LEAVE).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("epoch", "fields"),
    [
        pytest.param(0, {"member_id": ""}, id="no member id"),
        pytest.param(0, {"member_id": "m" * 37}, id="a member id of 37 characters"),
        pytest.param(0, {"topics": None}, id="joining without topics"),
        pytest.param(0, {"topics": []}, id="joining with an empty list of topics"),
        pytest.param(0, {"rack_id": ""}, id="an empty rack"),
        pytest.param(-2, {}, id="an epoch below -1"),
    ],
)
def test_a_malformed_heartbeat_is_refused(
    member: NewMember, unique: str, epoch: int, fields: dict[str, object]
) -> None:
    """Scenario 7."""
    answer = member(NO_TOPIC).heartbeat(epoch, **{"topics": [unique], **fields})  # type: ignore[arg-type]
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 0, 0)


def test_a_member_id_of_36_characters_and_an_unset_rack_are_fine(member: NewMember, unique: str) -> None:
    """Scenario 7."""
    long_name = member(NO_TOPIC, member_id="m" * 36)
    assert long_name.heartbeat(0, topics=[f"{unique}-not-there"], rack_id=None).error_code == 0


def test_a_topic_that_is_not_there_yet_is_assigned_once_it_is(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 8."""
    later = f"{unique}-later"
    topic_id = new_topic(wire, unique)
    alone = member(topic_id)
    assert assigned(alone.join(unique, later)) == {topic_id: [0]}
    later_id = new_topic(wire, later)
    wait_for_assignment(alone, {topic_id: [0], later_id: [0]})


def test_three_members_share_two_partitions(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 9: every member has work, every partition has two members."""
    topic_id = new_topic(wire, unique, partitions=2)
    members = [member(topic_id) for _ in range(3)]
    held: dict[str, list[int]] = {one.member_id: [] for one in members}
    for one in members:
        held[one.member_id] = (assigned(one.heartbeat(0, topics=[unique])) or {}).get(topic_id, [])

    def is_settled() -> bool:
        for one in members:
            answer = one.heartbeat()
            assert answer.error_code == 0
            if answer.assignment is not None:
                held[one.member_id] = (assigned(answer) or {}).get(topic_id, [])
        everything = sorted(partition for partitions in held.values() for partition in partitions)
        return everything == [0, 0, 1, 1] and all(held.values())

    wait_for(is_settled, every_s=0.05)
    assert sorted(map(len, held.values())) == [1, 1, 2]
    described = {
        one.member_id: sorted(one.assignment.topic_partitions[0].partitions)
        for one in describe_share_group(wire, unique).members
    }
    assert described == held


def test_a_group_is_full_at_its_largest_size(member: NewMember, wire: WireClient, unique: str) -> None:
    """Scenario 10. All join over one connection without waiting for one another's answers."""
    topics = [f"{unique}-not-there"]
    for number in range(GROUP_SIZE_MAX):
        wire.post_ask(
            "share_group_heartbeat",
            1,
            group_id=unique,
            member_id=f"member-{number}",
            member_epoch=0,
            subscribed_topic_names=topics,
        )
    joined = [wire.receive() for _ in range(GROUP_SIZE_MAX)]
    assert {answer.error_code for answer in joined} == {0}
    one_too_many = member(NO_TOPIC)
    assert one_too_many.heartbeat(0, topics=topics).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    known = member(NO_TOPIC, member_id="member-7")
    assert known.heartbeat(0, topics=topics).error_code == 0
    assert known.heartbeat(LEAVE).error_code == 0
    assert one_too_many.heartbeat(0, topics=topics).error_code == 0


def test_a_silent_member_is_removed_but_its_records_stay_locked(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 11: the coordinator forgets the member, the leader of the partition does not."""
    topic_id = new_queue(wire, unique, 5, heartbeat_interval_ms="100", session_timeout_ms="800")
    silent = member(topic_id)
    assert silent.fetch(0).offsets() == [0, 1, 2, 3, 4]
    silent.join(unique)
    before = describe_share_group(wire, unique)
    assert before.group_state == "Stable"
    after = wait_for(lambda: empty_group(wire, unique), every_s=0.05)
    assert after.group_epoch == before.group_epoch + 1
    assert silent.heartbeat().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member(topic_id).quiet(0).offsets() == []
    assert silent.ack((0, 4, 1)) == 0


@pytest.mark.parametrize("leaves", [True, False], ids=["left", "expired"])
def test_a_group_that_was_emptied_has_nothing_left_to_assign(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str, leaves: bool
) -> None:
    """Only after its last member: the group's epoch moved, and so does that of its assignment."""
    topic_id = new_topic(wire, unique)
    set_group(wire, unique, heartbeat_interval_ms="100", session_timeout_ms="800")
    first, last = member(topic_id), member(topic_id)
    first.join(unique)
    last.join(unique)
    before = describe_share_group(wire, unique)
    assert before.assignment_epoch == before.group_epoch
    assert first.heartbeat(LEAVE).error_code == 0
    one_left = describe_share_group(wire, unique)
    assert (one_left.group_epoch, one_left.assignment_epoch) == (before.group_epoch + 1, before.group_epoch)
    if leaves:
        assert last.heartbeat(LEAVE).error_code == 0
    after = wait_for(lambda: empty_group(wire, unique), every_s=0.05)
    assert after.group_epoch == before.group_epoch + 2
    why = "Kafka 4.4's rule, so that an empty group does not look as if an assignment were due (KAFKA-20442)"
    assert after.assignment_epoch == either(
        broker, apache=before.group_epoch, headrace=after.group_epoch, because=why
    )


def empty_group(wire: WireClient, group: str) -> Any:
    found = describe_share_group(wire, group)
    return found if found.group_state == "Empty" else None


def test_a_share_groups_id_is_of_no_use_to_consumers(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 12."""
    new_topic(wire, unique)
    member(NO_TOPIC).heartbeat(0, topics=[unique])
    beat = steps.beat(wire, unique, "consumer", 0, topics=[unique])
    assert beat.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert steps.join(wire, unique).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert steps.commit(wire, unique, unique, 0) == ErrorCode.GROUP_ID_NOT_FOUND
    classic = steps.describe_group(wire, unique)
    assert (classic.error_code, classic.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert steps.committed(wire, unique, unique).committed_offset == -1


def test_a_consumer_groups_id_is_of_no_use_to_share_consumers(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 12."""
    assert steps.beat(wire, unique, "consumer", 0, topics=[unique]).error_code == 0
    assert member(NO_TOPIC).heartbeat(0, topics=[unique]).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    steps.beat(wire, unique, "consumer", -1)
    assert member(NO_TOPIC).heartbeat(0, topics=[unique]).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_partitions_added_to_a_topic_are_assigned(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 13. Records in a new partition are delivered from its beginning or its end, as in any other."""
    set_group(wire, unique, auto_offset_reset="earliest")
    topic_id = new_topic(wire, unique)
    alone = member(topic_id)
    alone.join(unique)
    more = {"name": unique, "count": 3, "assignments": None}
    (grown,) = wire.ask("create_partitions", 3, topics=[more], timeout_ms=5_000).results
    assert grown.error_code == 0
    wait_for_assignment(alone, {topic_id: [0, 1, 2]})
    steps.wait_until_led(wire, unique, 3)
    fill(wire, unique, 2, partition=2)
    assert alone.take(2, 0, 1, 2) == [(2, 0, 1, 1)]


def test_records_of_an_added_partition_that_came_before_the_group_saw_it_are_passed_over(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Apache Kafka up to 4.3, with the default `share.auto.offset.reset=latest` (KAFKA-20742)."""
    topic_id = new_topic(wire, unique)
    alone = member(topic_id)
    alone.join(unique)
    more = {"name": unique, "count": 2, "assignments": None}
    (grown,) = wire.ask("create_partitions", 3, topics=[more], timeout_ms=5_000).results
    assert grown.error_code == 0
    steps.wait_until_led(wire, unique, 2)
    fill(wire, unique, 2, partition=1)
    wait_for_assignment(alone, {topic_id: [0, 1]})
    early = alone.quiet(0, 1)
    assert [early.acquired(index) for index in early.partitions if early.acquired(index)] == []
    fill(wire, unique, 1, partition=1)
    assert alone.take(1) == [(1, 2, 2, 1)]


def wait_for_assignment(member: ShareMember, wanted: dict[bytes, list[int]]) -> None:
    wait_for(lambda: assigned(member.beat_until_assigned()) == wanted, every_s=0.05)
