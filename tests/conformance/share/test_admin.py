"""What administrators ask and change: start offsets and lag, resets, deletions, configs of groups.

The words of Kafka's refusals are asserted where its tools print them. Scenario numbers are those of
docs/concepts/share-semantics.md.
"""

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.share.share_client import (
    ACCEPT,
    LEAVE,
    NewMember,
    alter_offsets,
    assigned,
    describe_offsets,
    describe_share_group,
    fill,
    new_queue,
    offsets_of,
    set_group,
    start_and_lag,
)
from tests.conformance.steps import DELETE, GROUP, SET, alter, beat, describe_configs, new_topic, wait_for
from tests.conformance.wire_client import WireClient

UNKNOWN = -1
NO_DETAILS = "There is no offset information to delete."


def test_lag_is_known_from_the_first_acknowledgement_on(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 60: until then nothing is written, not even where the group starts."""
    topic_id = new_topic(wire, unique)
    fill(wire, unique, 10)
    set_group(wire, unique, auto_offset_reset="earliest")
    alone = member(topic_id)
    alone.join(unique)
    alone.take(10, 0)
    assert start_and_lag(wire, unique, unique) == (UNKNOWN, UNKNOWN)
    assert alone.ack((0, 1, ACCEPT)) == 0
    assert start_and_lag(wire, unique, unique) == (0, 8)
    assert alone.ack((4, 4, ACCEPT)) == 0
    assert start_and_lag(wire, unique, unique) == (2, 7)


def test_version_0_knows_no_lag(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 60, as a client before KIP-1226 sees it."""
    new_queue(wire, unique, 10)
    wanted = {"group_id": unique, "topics": [{"topic_name": unique, "partitions": [0]}]}
    (answer,) = wire.ask("describe_share_group_offsets", 0, groups=[wanted]).groups
    (found,) = answer.topics[0].partitions
    assert (found.start_offset, found.lag, found.error_code) == (0, UNKNOWN, 0)


def test_whatever_is_not_known_has_no_offset_and_is_no_error(wire: WireClient, unique: str) -> None:
    """DescribeShareGroupOffsets answers -1 for them."""
    new_queue(wire, unique)
    foreign = f"{unique}-foreign"
    foreign_id = new_topic(wire, foreign)
    # Apache Kafka's group coordinator learns of a topic a moment after its leader.
    wait_for(lambda: bytes(describe_offsets(wire, unique, foreign).topics[0].topic_id) == foreign_id)
    for topic, seen_id in [(foreign, foreign_id), (f"{unique}-not-there", bytes(16))]:
        (found,) = describe_offsets(wire, unique, topic).topics
        assert bytes(found.topic_id) == seen_id
        (part,) = found.partitions
        assert (part.start_offset, part.leader_epoch, part.lag, part.error_code) == (UNKNOWN, 0, UNKNOWN, 0)
    nobody = describe_offsets(wire, f"{unique}-nobody")
    assert (nobody.error_code, list(nobody.topics)) == (0, [])
    (nothing_asked,) = wire.ask(
        "describe_share_group_offsets", 1, groups=[{"group_id": unique, "topics": []}]
    ).groups
    assert (nothing_asked.error_code, list(nothing_asked.topics)) == (0, [])


def test_a_group_with_members_can_be_neither_reset_nor_deleted(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 61."""
    alone = member(new_queue(wire, unique))
    alone.join(unique)
    assert alter_offsets(wire, unique, unique, {0: 0}) == {None: ErrorCode.NON_EMPTY_GROUP}
    assert delete_offsets(wire, unique, unique)[0] == ErrorCode.NON_EMPTY_GROUP
    assert delete_group(wire, unique) == ErrorCode.NON_EMPTY_GROUP
    assert alone.heartbeat(LEAVE).error_code == 0
    assert delete_group(wire, unique) == 0
    assert describe_share_group(wire, unique).error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_that_does_not_exist_is_made_by_a_reset(wire: WireClient, unique: str) -> None:
    """Scenario 61."""
    new_topic(wire, unique)
    assert delete_group(wire, unique) == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete_offsets(wire, unique, unique)[0] == ErrorCode.GROUP_ID_NOT_FOUND
    wait_for(lambda: alter_offsets(wire, unique, unique, {0: 0}) == {0: 0})
    group = describe_share_group(wire, unique)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Empty", "simple")
    assert list(group.members) == []


def test_a_reset_of_a_partition_that_does_not_exist_leaves_the_others_done(
    wire: WireClient, unique: str
) -> None:
    """Scenario 61."""
    new_queue(wire, unique)
    codes = alter_offsets(wire, unique, unique, {0: 4, 9: 4})
    assert codes == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert start_and_lag(wire, unique, unique)[0] == 4


def test_offsets_can_be_deleted_once(wire: WireClient, unique: str) -> None:
    """Scenario 62."""
    new_queue(wire, unique)
    assert delete_offsets(wire, unique, unique) == (0, {unique: (0, None)})
    assert delete_offsets(wire, unique, unique) == (
        0,
        {unique: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_DETAILS)},
    )
    missing = f"{unique}-not-there"
    code, topics = delete_offsets(wire, unique, missing)
    assert (code, topics[missing][0]) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert list(describe_offsets(wire, unique).topics) == []


def test_a_reset_to_the_end_leaves_no_lag(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 63."""
    topic_id = new_queue(wire, unique, 5, 5)
    assert start_and_lag(wire, unique, unique) == (0, 10)
    assert alter_offsets(wire, unique, unique, {0: 10}) == {0: 0}
    assert start_and_lag(wire, unique, unique) == (10, 0)
    alone = member(topic_id)
    assert alone.quiet(0).acquired() == []
    fill(wire, unique, 1)
    assert alone.fetch().acquired() == [(10, 10, 1)]
    assert start_and_lag(wire, unique, unique) == (10, 1)


def test_a_reset_to_the_beginning_delivers_everything_again(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 63, the other way round."""
    topic_id = new_queue(wire, unique, 5)
    first = member(topic_id)
    first.join(unique)
    first.take(5, 0)
    assert first.ack((0, 4, ACCEPT)) == 0
    first.close()
    assert first.heartbeat(LEAVE).error_code == 0
    first.disconnect()
    assert alter_offsets(wire, unique, unique, {0: 0}) == {0: 0}
    assert offsets_of(member(topic_id).take(5, 0)) == [0, 1, 2, 3, 4]


def test_a_deleted_topic_leaves_the_group(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 64."""
    alone = member(new_queue(wire, unique, 5))
    alone.join(unique)
    assert [topic.topic_name for topic in describe_offsets(wire, unique).topics] == [unique]
    (deleted,) = wire.ask("delete_topics", 6, topics=[{"name": unique}], timeout_ms=5_000).responses
    assert deleted.error_code == 0
    wait_for(lambda: assigned(alone.heartbeat()) == {}, every_s=0.05)
    wait_for(lambda: not describe_offsets(wire, unique).topics)
    assert describe_share_group(wire, unique).group_state == "Stable"


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("record.lock.duration.ms", "999", "at least 1000"),
        ("record.lock.duration.ms", "60001", "group.share.max.record.lock.duration.ms"),
        ("delivery.count.limit", "1", "at least 2"),
        ("delivery.count.limit", "11", "group.share.max.delivery.count.limit"),
        ("partition.max.record.locks", "99", "at least 100"),
        ("partition.max.record.locks", "4001", "group.share.max.partition.max.record.locks"),
        ("session.timeout.ms", "60001", "group.share.max.session.timeout.ms"),
        ("session.timeout.ms", "99", "group.share.min.session.timeout.ms"),
        ("heartbeat.interval.ms", "15001", "group.share.max.heartbeat.interval.ms"),
        ("heartbeat.interval.ms", "49", "group.share.min.heartbeat.interval.ms"),
        ("assignment.interval.ms", "15001", "group.share.max.assignment.interval.ms"),
        ("auto.offset.reset", "newest", "share.auto.offset.reset"),
        ("auto.offset.reset", "by_duration:yesterday", "share.auto.offset.reset"),
        ("isolation.level", "READ_COMMITTED", "share.isolation.level"),
        ("renew.acknowledge.enable", "perhaps", "share.renew.acknowledge.enable"),
        ("no.such.setting", "1", "Unknown group config name: share.no.such.setting"),
    ],
)
def test_a_config_out_of_its_bounds_is_refused(
    wire: WireClient, unique: str, setting: str, value: str, words: str
) -> None:
    """Scenario 65."""
    answer = alter(wire, GROUP, unique, (f"share.{setting}", SET, value))
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert words in answer.error_message


def test_configs_of_a_group_are_kept_before_there_is_a_group(wire: WireClient, unique: str) -> None:
    """They are stored under the name of the group."""
    before = describe_configs(wire, GROUP, unique, "share.delivery.count.limit")
    assert before["share.delivery.count.limit"].value == "5"
    set_group(wire, unique, delivery_count_limit="7", isolation_level="read_committed")
    found = describe_configs(wire, GROUP, unique, "share.delivery.count.limit", "share.isolation.level")
    dynamic_group_config = 8
    assert {name: (config.value, config.config_source) for name, config in found.items()} == {
        "share.delivery.count.limit": ("7", dynamic_group_config),
        "share.isolation.level": ("read_committed", dynamic_group_config),
    }
    assert alter(wire, GROUP, unique, ("share.delivery.count.limit", DELETE, None)).error_code == 0
    wait_for(lambda: describe_configs(wire, GROUP, unique)["share.delivery.count.limit"].value == "5")


def test_share_groups_are_listed_by_type_and_state(wire: WireClient, member: NewMember, unique: str) -> None:
    """ListGroups filters by both."""
    alone = member(new_queue(wire, unique))

    def listed(**filters: list[str]) -> list[tuple[str, str, str]]:
        groups = wire.ask("list_groups", 5, **filters).groups
        return [
            (one.group_type, one.protocol_type, one.group_state) for one in groups if one.group_id == unique
        ]

    assert listed(types_filter=["share"]) == [("share", "share", "Empty")]
    assert listed(types_filter=["SHARE"], states_filter=["Stable"]) == []
    alone.join(unique)
    assert listed(types_filter=["Share"], states_filter=["Stable"]) == [("share", "share", "Stable")]
    assert listed(types_filter=["consumer"]) == []


def test_a_group_is_described_with_its_members(wire: WireClient, member: NewMember, unique: str) -> None:
    """ShareGroupDescribe: state, epochs, assignor and every member's assignment."""
    topic_id = new_queue(wire, unique, partitions=2)
    alone = member(topic_id)
    alone.join(unique)
    group = describe_share_group(wire, unique)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    assert group.group_epoch == group.assignment_epoch == alone.epoch
    assert group.authorized_operations == -(1 << 31)
    (one,) = group.members
    assert (one.member_id, one.member_epoch) == (alone.member_id, alone.epoch)
    assert (one.client_id, one.client_host, one.rack_id) == ("conformance", "/127.0.0.1", None)
    assert list(one.subscribed_topic_names) == [unique]
    (topic,) = one.assignment.topic_partitions
    assert (bytes(topic.topic_id), topic.topic_name) == (topic_id, unique)
    assert sorted(topic.partitions) == [0, 1]


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("", ErrorCode.INVALID_GROUP_ID, None),
        ("{}-nobody", ErrorCode.GROUP_ID_NOT_FOUND, "Group {}-nobody not found."),
        ("{}", ErrorCode.GROUP_ID_NOT_FOUND, "Group {} is not a share group."),
    ],
)
def test_only_share_groups_are_described(
    wire: WireClient, unique: str, name: str, code: int, words: str | None
) -> None:
    """An empty ID is invalid; an unknown group and a consumer group are not found."""
    assert beat(wire, unique, "consumer", 0, topics=[unique]).error_code == 0
    answer = describe_share_group(wire, name.format(unique))
    assert (answer.error_code, answer.group_state) == (code, "")
    if words is not None:
        assert answer.error_message == words.format(unique)


def delete_offsets(wire: WireClient, group: str, topic: str) -> tuple[int, dict[str, tuple[int, str | None]]]:
    """The error code of the whole request, and (code, message) by topic."""
    response = wire.ask("delete_share_group_offsets", 0, group_id=group, topics=[{"topic_name": topic}])
    topics = {one.topic_name: (int(one.error_code), one.error_message) for one in response.responses}
    return int(response.error_code), topics


def delete_group(wire: WireClient, group: str) -> int:
    (result,) = wire.ask("delete_groups", 2, groups_names=[group]).results
    return int(result.error_code)
