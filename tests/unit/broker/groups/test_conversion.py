"""Goal: an empty group changes its protocol and keeps its offsets; a group with members does not."""

import pytest

from headrace.broker.handlers import describe_groups
from headrace.wire.enums import GroupType
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from tests.unit.broker.groups.classic_client import INITIAL_DELAY_MS, ClassicClient, stable_group
from tests.unit.broker.groups.consumer_client import ConsumerClient
from tests.unit.broker.groups.fake_core import FakeCore


@pytest.fixture(autouse=True)
def topic(core: FakeCore) -> None:
    core.topics.create("t", 4)


def type_of(core: FakeCore) -> GroupType:
    return core.groups.state.registry.require("g").type


def test_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets(core: FakeCore) -> None:
    members = stable_group(core)
    assert members[0].commit(7) == ErrorCode.NONE
    for member in members:
        member.leave()
    assert ConsumerClient(core, "a").join().error_code == ErrorCode.NONE
    assert type_of(core) is GroupType.CONSUMER
    committed = core.groups.state.offsets.get("g", "t", 0)
    assert committed is not None
    assert committed.offset == 7


def test_a_simple_group_becomes_a_consumer_group(core: FakeCore) -> None:
    assert ClassicClient(core).commit(7) == ErrorCode.NONE
    assert ConsumerClient(core, "a").join().error_code == ErrorCode.NONE
    assert type_of(core) is GroupType.CONSUMER


def test_an_empty_consumer_group_becomes_a_classic_group_with_its_offsets(core: FakeCore) -> None:
    member = ConsumerClient(core, "a", pattern="t")
    member.join()
    assert member.commit(7) == ErrorCode.NONE
    member.leave()
    parked = ClassicClient(core).join()
    core.pass_time(INITIAL_DELAY_MS)
    assert parked.value.generation_id == 1
    assert type_of(core) is GroupType.CLASSIC
    assert core.groups.state.offsets.get("g", "t", 0) is not None


def test_there_and_back_again(core: FakeCore) -> None:
    for _ in range(3):
        (member,) = stable_group(core, ClassicClient(core))
        member.leave()
        consumer = ConsumerClient(core, "a")
        consumer.join()
        consumer.leave()
    assert type_of(core) is GroupType.CONSUMER


def test_a_classic_group_with_members_refuses_consumer_members_as_with_kafkas_migration_disabled(
    core: FakeCore,
) -> None:
    stable_group(core)
    response = ConsumerClient(core, "a").join()
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert response.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )


def test_a_consumer_group_with_members_refuses_classic_members(core: FakeCore) -> None:
    ConsumerClient(core, "a").join()
    client = ClassicClient(core)
    assert client.ask_to_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    client.member_id, client.generation = "a", 2
    assert client.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert client.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_knows_its_id_does_not_convert_an_empty_consumer_group(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    member.leave()
    assert ClassicClient(core, member_id="old").ask_to_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert type_of(core) is GroupType.CONSUMER


def test_a_consumer_member_that_does_not_join_does_not_convert_an_empty_classic_group(core: FakeCore) -> None:
    ClassicClient(core).commit(7)
    assert ConsumerClient(core, "a", epoch=3).beat().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert type_of(core) is GroupType.CLASSIC


def test_a_refused_conversion_leaves_the_group_as_it_was(core: FakeCore) -> None:
    ClassicClient(core).commit(7)
    core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert ConsumerClient(core, "a").join().error_code == ErrorCode.NOT_COORDINATOR
    core.refusal = None
    assert type_of(core) is GroupType.CLASSIC


def test_a_consumer_group_is_dead_to_describe_groups_which_says_why(core: FakeCore) -> None:
    ConsumerClient(core, "a").join()
    (newer,) = core.handle(describe_groups, DescribeGroupsRequest(groups=["g"]), version=6).groups
    assert (newer.group_state, newer.error_code) == ("Dead", ErrorCode.GROUP_ID_NOT_FOUND)
    assert newer.error_message == "Group g is not a classic group."
    (older,) = core.handle(describe_groups, DescribeGroupsRequest(groups=["g"]), version=5).groups
    assert (older.group_state, older.error_code) == ("Dead", ErrorCode.NONE)
