"""Where share groups start, seen and set by administrators; and what is left of a group that is deleted: nothing."""

from collections.abc import Mapping

import pytest

from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.codec import encode
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.share_state import ShareKey
from tests.unit.broker.groups.share_world import ShareWorld

NONE = ErrorCode.NONE
NO_TOPIC = bytes(16)


def describe(world: ShareWorld, topics: Mapping[str, list[int]] | None = None, group: str = "g"):
    """(topic, partition) to (start offset, leader epoch, lag); and the group's error."""
    asked = topics and [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=indexes)
        for name, indexes in topics.items()
    ]
    request = DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=asked)]
    )
    (answer,) = world.ask(request).groups
    assert answer.group_id == group
    assert answer.error_code == NONE
    return {
        (topic.topic_name, one.partition_index): (one.start_offset, one.leader_epoch, one.lag)
        for topic in answer.topics
        for one in topic.partitions
        if one.error_code == NONE
    }


def alter(world: ShareWorld, topics: Mapping[str, Mapping[int, int]], group: str = "g"):
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset)
                    for index, offset in offsets.items()
                ],
            )
            for name, offsets in topics.items()
        ],
    )
    return world.ask(request)


def codes(response):
    return {
        (topic.topic_name, one.partition_index): ErrorCode(one.error_code)
        for topic in response.responses
        for one in topic.partitions
    }


def delete_offsets(world: ShareWorld, *topics: str, group: str = "g"):
    return world.ask(
        DeleteShareGroupOffsetsRequest(
            group_id=group, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in topics]
        )
    )


def delete_group(world: ShareWorld, group: str = "g") -> ErrorCode:
    (result,) = world.ask(DeleteGroupsRequest(groups_names=[group])).results
    return ErrorCode(result.error_code)


def accept(world: ShareWorld, topic_id: bytes, first: int, last: int, start_offset: int = 0) -> None:
    """As the leader writes it down."""
    world.core.share_state.write(
        ShareKey("g", topic_id, 0),
        state_epoch=-1,
        leader_epoch=0,
        start_offset=start_offset,
        complete_count=last - first + 1,
        batches=[StateBatch(first, last, RecordState.ACKNOWLEDGED, 1)],
    )


def test_a_partition_that_nobody_has_acknowledged_has_no_offset_and_no_lag(world: ShareWorld) -> None:
    world.new_topic("t", 2)
    world.heartbeat("m", 0, ["t"])
    assert describe(world) == {("t", 0): (-1, 0, -1), ("t", 1): (-1, 0, -1)}


def test_lag_is_what_is_neither_before_the_start_nor_complete(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    world.write("t", 10)
    world.heartbeat("m", 0, ["t"])
    accept(world, topic_id, 0, 1)
    assert describe(world) == {("t", 0): (0, 0, 8)}
    accept(world, topic_id, 5, 6, start_offset=5)
    assert describe(world) == {("t", 0): (5, 0, 3)}


def test_the_leaders_epoch_is_shown_before_there_is_an_offset(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    world.heartbeat("m", 0, ["t"])
    world.core.share_state.read(ShareKey("g", topic_id, 0), 7)
    assert describe(world) == {("t", 0): (-1, 7, -1)}


def test_what_nobody_knows_has_no_offset_and_no_error(world: ShareWorld) -> None:
    world.new_topic("t", 1)
    world.heartbeat("m", 0, ["t"])
    asked = {"t": [0, 7, -1], "missing": [0]}
    unknown = (-1, 0, -1)
    assert describe(world, asked) == {
        ("t", 0): unknown, ("t", 7): unknown, ("t", -1): unknown, ("missing", 0): unknown
    }  # fmt: skip
    assert describe(world, asked, group="missing") == describe(world, asked)
    assert describe(world, group="missing") == {}
    assert describe(world, {}) == {}


def test_topics_are_named_with_their_ids(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    request = DescribeShareGroupOffsetsRequest(
        groups=[
            DescribeShareGroupOffsetsRequestGroup(
                group_id="g",
                topics=[
                    DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=[0])
                    for name in ("missing", "t")
                ],
            )
        ]
    )
    (answer,) = world.ask(request).groups
    assert [(topic.topic_name, topic.topic_id) for topic in answer.topics] == [
        ("missing", NO_TOPIC),
        ("t", topic_id),
    ]


def test_offsets_are_set_before_the_group_exists(world: ShareWorld) -> None:
    topic_id = world.new_topic("t", 2)
    world.write("t", 10)
    response = alter(world, {"t": {0: 4}})
    assert (response.error_code, response.error_message) == (NONE, None)
    assert response.responses[0].topic_id == topic_id
    assert codes(response) == {("t", 0): NONE}
    assert describe(world) == {("t", 0): (4, 0, 6)}
    described = world.describe()
    assert (described.group_state, described.group_epoch) == ("Empty", 1)
    assert world.state(topic_id).state_epoch == 1


def test_an_offset_that_was_set_stays_when_members_come(world: ShareWorld) -> None:
    topic_id = world.new_topic("t", 2)
    alter(world, {"t": {0: 4}})
    world.heartbeat("m", 0, ["t"])
    assert world.state(topic_id, 0).start_offset == 4
    assert world.state(topic_id, 1).start_offset == 0, (
        "as in Kafka 4.4, the rest of a known topic is read from its start"
    )


def test_partitions_that_do_not_exist_are_refused_and_the_others_set(world: ShareWorld) -> None:
    world.new_topic("t", 2)
    response = alter(world, {"t": {0: 4, 2: 4, -1: 4}, "missing": {0: 1}})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes(response) == {
        ("t", 0): NONE, ("t", 2): unknown, ("t", -1): unknown, ("missing", 0): unknown
    }  # fmt: skip
    assert response.responses[1].topic_id == NO_TOPIC
    refused = response.responses[1].partitions[0]
    assert refused.error_message == "This server does not host this topic-partition."
    assert describe(world) == {("t", 0): (4, 0, -4)}


def test_a_request_that_sets_nothing_makes_no_group(world: ShareWorld) -> None:
    assert codes(alter(world, {"missing": {0: 1}})) == {("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert alter(world, {}).error_code == NONE
    assert world.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_an_offset_below_minus_one_is_refused(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    assert codes(alter(world, {"t": {0: -2}})) == {("t", 0): ErrorCode.INVALID_REQUEST}
    assert world.state(topic_id) is None


def test_offsets_of_a_group_with_members_cannot_be_changed(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    world.heartbeat("m", 0, ["t"])
    for response in (alter(world, {"t": {0: 4}}), delete_offsets(world, "t")):
        assert response.error_code == ErrorCode.NON_EMPTY_GROUP
        assert response.error_message == "The group is not empty."
    assert delete_group(world) is ErrorCode.NON_EMPTY_GROUP
    assert world.state(topic_id).start_offset == -1


def test_offsets_set_again_begin_anew(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    world.write("t", 10)
    world.heartbeat("m", 0, ["t"])
    accept(world, topic_id, 0, 4)
    world.heartbeat("m", -1)
    alter(world, {"t": {0: 2}})
    state = world.state(topic_id)
    assert (state.start_offset, state.complete_count, list(state.merged())) == (2, 0, [])
    assert state.state_epoch == 4
    assert describe(world) == {("t", 0): (2, 0, 8)}


@pytest.mark.parametrize("group", ["", "missing", "classic"])
def test_groups_whose_offsets_cannot_be_changed_say_why(world: ShareWorld, group: str) -> None:
    topic_id = world.new_topic()
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=[offset])
    world.ask(OffsetCommitRequest(group_id="classic", generation_id_or_member_epoch=-1, topics=[topic]))
    expected = {
        "": (ErrorCode.INVALID_GROUP_ID, "The group id is invalid."),
        "missing": (ErrorCode.GROUP_ID_NOT_FOUND, "Group missing not found."),
        "classic": (ErrorCode.GROUP_ID_NOT_FOUND, "Group classic is not a share group."),
    }[group]
    deleted = delete_offsets(world, "t", group=group)
    assert (deleted.error_code, deleted.error_message) == expected
    if group != "missing":
        altered = alter(world, {"t": {0: 1}}, group=group)
        assert (altered.error_code, altered.error_message) == expected


def test_a_group_forgets_topics_one_by_one(world: ShareWorld) -> None:
    topic_id, other_id = world.new_topic("t", 2), world.new_topic("other")
    alter(world, {"t": {0: 1, 1: 1}, "other": {0: 2}})
    response = delete_offsets(world, "t", "missing")
    assert [(one.topic_name, one.topic_id, one.error_code) for one in response.responses] == [
        ("t", topic_id, NONE),
        ("missing", NO_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert world.state(topic_id, 0) is world.state(topic_id, 1) is None
    assert world.state(other_id).start_offset == 2
    (again,) = delete_offsets(world, "t").responses
    assert (again.error_code, again.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "There is no offset information to delete.",
    )


def test_a_forgotten_topic_begins_anew_with_the_next_member(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    alter(world, {"t": {0: 1}})
    delete_offsets(world, "t", "t")
    world.heartbeat("m", 0, ["t"])
    assert world.state(topic_id).start_offset == -1


def test_a_deleted_group_leaves_no_state(world: ShareWorld) -> None:
    topic_id = world.new_topic("t", 2)
    world.heartbeat("m", 0, ["t"])
    world.heartbeat("m", -1)
    assert delete_group(world) is NONE
    assert world.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.state(topic_id, 0) is world.state(topic_id, 1) is None
    assert delete_group(world) is ErrorCode.GROUP_ID_NOT_FOUND
    world.power_cycle()
    assert world.describe().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert world.state(topic_id) is None


def test_a_group_of_a_deleted_topic_can_be_deleted(world: ShareWorld) -> None:
    world.new_topic()
    alter(world, {"t": {0: 1}})
    world.core.topics.delete("t")
    assert delete_group(world) is NONE


def test_a_group_made_again_begins_anew(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    alter(world, {"t": {0: 5}})
    delete_group(world)
    answer = world.heartbeat("m", 0, ["t"])
    assert answer.member_epoch == 3
    assert (world.state(topic_id).state_epoch, world.state(topic_id).start_offset) == (2, -1)


def test_offsets_survive_a_power_cut(world: ShareWorld) -> None:
    world.new_topic("t", 2)
    world.write("t", 3)
    alter(world, {"t": {0: 3, 1: 0}})
    before = describe(world)
    world.power_cycle()
    assert describe(world) == before == {("t", 0): (3, 0, 0), ("t", 1): (0, 0, 0)}


@pytest.mark.parametrize("start", [-(2**63), 2**63 - 1])
def test_an_absurd_start_that_somebody_wrote_by_hand_can_be_described(world: ShareWorld, start: int) -> None:
    topic_id = world.new_topic()
    world.write("t", 3)
    key = ShareKey("g", topic_id, 0)
    world.core.share_state.initialize(key, state_epoch=1, start_offset=start)
    request = DescribeShareGroupOffsetsRequest(
        groups=[
            DescribeShareGroupOffsetsRequestGroup(
                group_id="g", topics=[DescribeShareGroupOffsetsRequestTopic(topic_name="t", partitions=[0])]
            )
        ]
    )
    assert encode(world.ask(request, 1), 1)
