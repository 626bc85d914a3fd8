"""Goal: groups of every type are listed, described and deleted alike on both brokers."""

from collections.abc import Callable

import pytest

from headrace.client.admin import Admin, GroupState, GroupType, SomeFailedError
from headrace.client.admin.results import GroupListing
from headrace.client.errors import (
    GroupIdNotFoundError,
    InvalidConfigError,
    InvalidGroupIdError,
    NonEmptyGroupError,
    UnknownMemberIdError,
)
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import LEAVE, ShareMember, new_queue
from tests.conformance.steps import (
    assignment,
    batch,
    beat,
    commit,
    join,
    leave,
    new_topic,
    produced,
    subscription,
    sync,
    topic_id_of,
    wait_for,
)
from tests.conformance.wire_client import WireClient

NewMember = Callable[[bytes], ShareMember]
CONSUMER_MEMBER = "x" * 22


@pytest.fixture
def three_groups(wire: WireClient, unique: str) -> str:
    """An empty share group, a classic one with a committed offset, and a member of a consumer group."""
    new_queue(wire, unique, 3)
    wait_for(lambda: commit(wire, f"{unique}-classic", unique, 2, metadata="so far") == 0)
    answer = beat(wire, f"{unique}-consumer", CONSUMER_MEMBER, 0, topics=[unique])
    assert answer.error_code == 0, answer
    return unique


def mine(groups: list[GroupListing], unique: str) -> dict[str, GroupType]:
    return {group.group_id: group.type for group in groups if group.group_id.startswith(unique)}


def test_groups_are_listed_by_type_and_state(admin: Admin, three_groups: str) -> None:
    everything = admin.list_groups()
    assert mine(everything, three_groups) == {
        three_groups: GroupType.SHARE,
        f"{three_groups}-classic": GroupType.CLASSIC,
        f"{three_groups}-consumer": GroupType.CONSUMER,
    }
    assert mine(admin.list_groups(type="share"), three_groups) == {three_groups: GroupType.SHARE}
    assert set(mine(admin.list_groups(type=["Share", GroupType.CLASSIC]), three_groups)) == {
        three_groups,
        f"{three_groups}-classic",
    }
    assert set(mine(admin.list_groups(state=GroupState.EMPTY), three_groups)) == {
        three_groups,
        f"{three_groups}-classic",
    }
    assert mine(admin.list_groups(type="share", state="stable"), three_groups) == {}
    assert GroupListing(three_groups, GroupType.SHARE, GroupState.EMPTY, "share") in everything


def test_a_type_that_does_not_exist_is_refused_with_the_choices(admin: Admin) -> None:
    with pytest.raises(ValueError, match="'queue' is not a group type; choose from share, consumer, classic"):
        admin.list_groups(type="queue")


def test_one_group_is_found_by_its_id(admin: Admin, three_groups: str) -> None:
    assert admin.find_group(f"{three_groups}-classic").type is GroupType.CLASSIC
    with pytest.raises(GroupIdNotFoundError, match=f"{three_groups}-not-there not found"):
        admin.find_group(f"{three_groups}-not-there")


def test_a_share_group_shows_its_members_and_their_assignment(
    admin: Admin, wire: WireClient, member: NewMember, broker: BrokerUnderTest, unique: str
) -> None:
    topic_id = new_queue(wire, unique, partitions=2)
    alone = member(topic_id)
    alone.join(unique)
    group = admin.describe_share_group(unique)
    assert (group.group_id, group.state, group.assignor) == (unique, GroupState.STABLE, "simple")
    assert (group.coordinator.node_id, group.coordinator.port) == (1, broker.port)
    (only,) = group.members
    assert (only.member_id, only.member_epoch) == (alone.member_id, alone.epoch)
    assert (only.subscribed, only.assignment) == ((unique,), ((unique, 0), (unique, 1)))
    assert only.assignment[1].partition == 1
    assert "127.0.0.1" in only.host
    assert group.group_epoch >= group.assignment_epoch > 0
    alone.heartbeat(LEAVE)
    empty = admin.describe_share_group(unique)
    assert (empty.state, empty.members) == (GroupState.EMPTY, ())


def test_what_is_no_share_group_says_so(admin: Admin, three_groups: str) -> None:
    with pytest.raises(GroupIdNotFoundError, match=r"not-there not found.*Check the group's name and type"):
        admin.describe_share_group(f"{three_groups}-not-there")
    with pytest.raises(GroupIdNotFoundError, match="is not a share group"):
        admin.describe_share_group(f"{three_groups}-consumer")
    with pytest.raises(InvalidGroupIdError, match="not empty"):
        admin.describe_share_group("")


def join_until_assigned(wire: WireClient, group: str, topic: str) -> int:
    """The epoch in which the member has its partitions."""
    answers = [beat(wire, group, CONSUMER_MEMBER, 0, topics=[topic])]

    def is_assigned() -> bool:
        assert answers[-1].error_code == 0, answers[-1]
        if answers[-1].assignment and answers[-1].assignment.topic_partitions:
            return True
        answers.append(beat(wire, group, CONSUMER_MEMBER, answers[-1].member_epoch))
        return False

    wait_for(is_assigned, every_s=0.05)
    return int(answers[-1].member_epoch)


def test_a_consumer_group_shows_members_offsets_and_lag(admin: Admin, wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    produced(wire, unique, batch(*"abcde"))

    epoch = join_until_assigned(wire, unique, unique)
    assert (
        commit(wire, unique, unique, 2, member_id=CONSUMER_MEMBER, generation_id_or_member_epoch=epoch) == 0
    )
    group = admin.describe_consumer_group(unique)
    assert (group.type, group.coordinator.node_id, group.assignor) == (GroupType.CONSUMER, 1, "uniform")
    assert group.group_epoch is not None
    (only,) = group.members
    assert (only.member_id, only.member_epoch, only.subscribed) == (CONSUMER_MEMBER, epoch, (unique,))
    first, second = group.offsets[unique, 0], group.offsets[unique, 1]
    assert (first.offset, first.end_offset, first.lag, first.member_id) == (2, 5, 3, CONSUMER_MEMBER)
    assert (second.offset, second.end_offset, second.lag, second.member_id) == (
        None,
        0,
        None,
        CONSUMER_MEMBER,
    )


def test_a_classic_group_shows_the_same(admin: Admin, wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    produced(wire, unique, batch(*"abc"))
    joined = join(wire, unique, protocols={"range": subscription(unique)}, instance="static-1")
    assert joined.error_code == 0, joined
    given = assignment(**{unique: [0, 1]})
    assert (
        sync(wire, unique, joined.member_id, joined.generation_id, {joined.member_id: given}).error_code == 0
    )
    generation = {"member_id": joined.member_id, "generation_id_or_member_epoch": joined.generation_id}
    assert commit(wire, unique, unique, 3, group_instance_id="static-1", **generation) == 0
    group = admin.describe_consumer_group(unique)
    assert (group.type, group.state, group.assignor) == (GroupType.CLASSIC, GroupState.STABLE, "range")
    assert group.group_epoch is None
    (only,) = group.members
    assert (only.instance_id, only.assignment) == ("static-1", ((unique, 0), (unique, 1)))
    offset = group.offsets[unique, 0]
    assert (offset.offset, offset.lag, offset.member_id) == (3, 0, joined.member_id)
    leave(wire, unique, joined.member_id)


def test_offsets_are_committed_for_a_group_without_members_alone(admin: Admin, three_groups: str) -> None:
    classic, consumer = f"{three_groups}-classic", f"{three_groups}-consumer"
    assert admin.describe_consumer_group(classic).offsets[three_groups, 0].offset == 2
    admin.alter_consumer_group_offsets(classic, {(three_groups, 0): 1})
    assert admin.describe_consumer_group(classic).offsets[three_groups, 0].offset == 1
    with pytest.raises(UnknownMemberIdError, match=f"group '{consumer}', partition 0 of topic"):
        admin.alter_consumer_group_offsets(consumer, {(three_groups, 0): 0})
    assert all(one.offset is None for one in admin.describe_consumer_group(consumer).offsets.values())
    with pytest.raises(ValueError, match="an offset must be an int >= 0, got -1"):
        admin.alter_consumer_group_offsets(classic, {(three_groups, 0): -1})


def test_offsets_of_a_topic_that_is_gone_have_no_lag(admin: Admin, wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    wait_for(lambda: commit(wire, unique, unique, 2, metadata="so far") == 0)
    offset = admin.describe_consumer_group(unique).offsets[unique, 0]
    assert (offset.offset, offset.metadata, offset.end_offset, offset.member_id) == (2, "so far", 0, None)
    assert offset.lag == 0
    admin.delete_topics([unique])

    def is_gone() -> bool:
        found = admin.describe_consumer_group(unique).offsets.get((unique, 0))
        return found is None or (found.end_offset, found.lag) == (None, None)

    wait_for(is_gone)


def test_a_share_group_is_no_consumer_group_and_says_so(admin: Admin, three_groups: str) -> None:
    with pytest.raises(GroupIdNotFoundError, match="it is a share group"):
        admin.describe_consumer_group(three_groups)
    with pytest.raises(GroupIdNotFoundError, match="not-there not found"):
        admin.describe_consumer_group(f"{three_groups}-not-there")


def test_groups_are_deleted_of_any_type(admin: Admin, three_groups: str) -> None:
    with pytest.raises(SomeFailedError, match="2 of 4 failed") as failed:
        admin.delete_groups(
            [
                three_groups,
                f"{three_groups}-classic",
                f"{three_groups}-consumer",
                f"{three_groups}-not-there",
            ]
        )
    assert {group: type(error) for group, error in failed.value.errors.items()} == {
        f"{three_groups}-consumer": NonEmptyGroupError,
        f"{three_groups}-not-there": GroupIdNotFoundError,
    }
    assert set(mine(admin.list_groups(), three_groups)) == {f"{three_groups}-consumer"}
    with pytest.raises(NonEmptyGroupError, match="Stop the group's members first"):
        admin.delete_groups([f"{three_groups}-consumer"])


def test_group_configs_are_set_before_there_is_a_group_and_put_back(admin: Admin, unique: str) -> None:
    assert admin.group_config(unique)["share.auto.offset.reset"].value == "latest"
    admin.set_group_config(
        unique, {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": 20_000}
    )
    config = admin.group_config(unique)
    assert config["share.auto.offset.reset"].value == "earliest"
    assert (
        config["share.record.lock.duration.ms"].value,
        config["share.record.lock.duration.ms"].is_default,
    ) == (
        "20000",
        False,
    )
    admin.set_group_config(unique, {"share.auto.offset.reset": None})
    config = admin.group_config(unique)
    assert config["share.auto.offset.reset"].value == "latest"
    assert config["share.record.lock.duration.ms"].value == "20000"


def test_a_group_config_out_of_bounds_is_refused_with_the_bound(admin: Admin, unique: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"group\.share\.max\.record\.lock\.duration\.ms"):
        admin.set_group_config(unique, {"share.record.lock.duration.ms": 70_000})
    with pytest.raises(
        InvalidConfigError, match=f"group '{unique}'.*Unknown group config name: share.nonsense"
    ):
        admin.set_group_config(unique, {"share.nonsense": 1})


def test_a_survey_finds_members_offsets_and_lag_of_every_group(
    admin: Admin, wire: WireClient, three_groups: str, member: NewMember
) -> None:
    worker = member(topic_id_of(wire, three_groups))
    worker.join(three_groups)

    def has_lag() -> bool:
        beat = worker.heartbeat()  # Apache Kafka takes longer than a session to know the lag
        assert beat.error_code == 0, beat
        return admin.share_group_offsets(three_groups)[three_groups, 0].lag is not None

    wait_for(has_lag)
    surveyed, left_out = admin.survey_groups()
    found = {one.listing.group_id: one for one in surveyed if one.listing.group_id.startswith(three_groups)}
    share = found[three_groups]
    assert (share.members, share.error, left_out) == (1, None, 0)
    assert share.places[three_groups, 0].lag == admin.share_group_offsets(three_groups)[three_groups, 0].lag
    classic = found[f"{three_groups}-classic"]
    assert (classic.members, classic.places[three_groups, 0].offset) == (0, 2)
    assert found[f"{three_groups}-consumer"].members == 1
    assert surveyed[0].listing.type is GroupType.SHARE


def test_a_survey_of_too_many_groups_counts_the_rest(admin: Admin, three_groups: str) -> None:
    surveyed, left_out = admin.survey_groups(groups_max=1)
    assert len(surveyed) == 1
    assert left_out >= 2
