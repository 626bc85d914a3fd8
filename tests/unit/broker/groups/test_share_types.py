"""A group id belongs to one type of group: what the others are told, and how share groups are listed."""

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.list_groups_request import ListGroupsRequest
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_delete_request import OffsetDeleteRequest
from headrace.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.messages.share_group_describe_request import ShareGroupDescribeRequest
from tests.unit.broker.groups.share_world import ShareWorld

NOT_FOUND = ErrorCode.GROUP_ID_NOT_FOUND


def consumer_heartbeat(world: ShareWorld, epoch: int = 0):
    return world.ask(
        ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=epoch,
            rebalance_timeout_ms=1000,
            subscribed_topic_names=["t"],
            topic_partitions=[],
        )
    )


def join(world: ShareWorld):
    return world.ask(
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
    )


def commit(world: ShareWorld) -> ErrorCode:
    topic = world.core.topics.get("t")
    assert topic is not None
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    asked = OffsetCommitRequestTopic(name="t", topic_id=topic.id, partitions=[offset])
    request = OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=-1, topics=[asked])
    return ErrorCode(world.ask(request).topics[0].partitions[0].error_code)


@pytest.fixture(params=["with a member", "empty"])
def share_group(request, world: ShareWorld) -> ShareWorld:
    world.new_topic()
    world.heartbeat("m", 0, ["t"])
    if request.param == "empty":
        world.heartbeat("m", -1)
    return world


def test_a_share_group_does_not_become_a_consumer_group(share_group: ShareWorld) -> None:
    for epoch in (0, 5):
        answer = consumer_heartbeat(share_group, epoch)
        assert (answer.error_code, answer.error_message) == (NOT_FOUND, "Group g is not a consumer group.")


def test_a_share_group_does_not_become_a_classic_group(share_group: ShareWorld) -> None:
    assert join(share_group).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_share_group_takes_no_offsets_and_has_none(share_group: ShareWorld) -> None:
    assert commit(share_group) is NOT_FOUND
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    (fetched,) = share_group.ask(OffsetFetchRequest(groups=[group])).groups
    assert (fetched.error_code, list(fetched.topics)) == (ErrorCode.NONE, [])
    assert share_group.ask(OffsetDeleteRequest(group_id="g")).error_code == NOT_FOUND


def test_a_share_group_is_dead_to_those_who_ask_for_a_classic_one(share_group: ShareWorld) -> None:
    (described,) = share_group.ask(DescribeGroupsRequest(groups=["g"])).groups
    assert (described.error_code, described.group_state) == (NOT_FOUND, "Dead")
    assert described.error_message == "Group g is not a classic group."
    (older,) = share_group.ask(DescribeGroupsRequest(groups=["g"]), 5).groups
    assert (older.error_code, older.group_state) == (ErrorCode.NONE, "Dead")


def test_a_share_group_is_not_found_among_consumer_groups(share_group: ShareWorld) -> None:
    (described,) = share_group.ask(ConsumerGroupDescribeRequest(group_ids=["g"])).groups
    assert (described.error_code, described.error_message) == (NOT_FOUND, "Group g is not a consumer group.")


@pytest.mark.parametrize("is_empty", [True, False])
def test_a_consumer_group_does_not_become_a_share_group(world: ShareWorld, is_empty: bool) -> None:
    world.new_topic()
    consumer_heartbeat(world)
    if is_empty:
        consumer_heartbeat(world, -1)
    for epoch in (0, 3, -1):
        answer = world.heartbeat("m", epoch, ["t"])
        assert (answer.error_code, answer.error_message) == (NOT_FOUND, "Group g is not a share group.")
    assert world.describe().error_message == "Group g is not a share group."


def test_a_classic_group_does_not_become_a_share_group(world: ShareWorld) -> None:
    world.new_topic()
    assert commit(world) is ErrorCode.NONE
    assert world.heartbeat("m", 0, ["t"]).error_code == NOT_FOUND


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ([], [], {"classic", "left", "live"}),
        ([], ["share"], {"left", "live"}),
        ([], ["Share"], {"left", "live"}),
        ([], ["classic"], {"classic"}),
        (["Stable"], ["share"], {"live"}),
        (["empty"], ["share"], {"left"}),
        (["Dead"], ["share"], set()),
    ],
)
def test_share_groups_are_listed_by_state_and_type(world: ShareWorld, states, types, expected) -> None:
    world.new_topic()
    world.heartbeat("m", 0, ["t"], group="live")
    world.heartbeat("m", 0, ["t"], group="left")
    world.heartbeat("m", -1, group="left")
    topic = world.core.topics.get("t")
    assert topic is not None
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    asked = OffsetCommitRequestTopic(name="t", topic_id=topic.id, partitions=[offset])
    world.ask(OffsetCommitRequest(group_id="classic", generation_id_or_member_epoch=-1, topics=[asked]))
    listed = world.ask(ListGroupsRequest(states_filter=states, types_filter=types)).groups
    assert {group.group_id for group in listed} == expected
    for group in listed:
        if group.group_id == "live":
            shown = (group.protocol_type, group.group_state, group.group_type)
            assert shown == ("share", "Stable", "share")


def test_operations_are_told_to_those_who_ask(world: ShareWorld) -> None:
    world.heartbeat("m", 0, ["t"])
    request = ShareGroupDescribeRequest(group_ids=["g", "x"], include_authorized_operations=True)
    known, unknown = world.ask(request).groups
    assert known.authorized_operations > 0
    assert unknown.authorized_operations == -(2**31)
    assert world.describe().authorized_operations == -(2**31)
