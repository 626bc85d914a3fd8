"""Members of share groups: what a heartbeat is answered, who is refused, and what the journal and timers make of it."""

from pathlib import Path

import pytest

from headrace.broker.groups.share import ShareGroup
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import NewRecord, build_batch
from headrace.wire.share_state import ShareKey
from tests.unit.broker.groups.share_world import REST_MS, SETTLING_MS, ShareWorld, assigned

NONE = ErrorCode.NONE
EARLIEST = {"share.auto.offset.reset": "earliest"}


def test_the_first_heartbeat_of_a_fresh_group_is_answered_with_its_assignment(world: ShareWorld) -> None:
    topic_id = world.new_topic("t", 3)
    answer = world.heartbeat("m", 0, ["t"])
    assert (answer.error_code, answer.error_message, answer.member_id) == (NONE, None, "m")
    assert (answer.member_epoch, answer.heartbeat_interval_ms) == (3, SETTLING_MS)
    assert assigned(answer) == {topic_id: [0, 1, 2]}


def test_share_partitions_have_their_state_before_anybody_is_told_of_them(world: ShareWorld) -> None:
    topic_id = world.new_topic("t", 2)
    world.heartbeat("m", 0, ["t"])
    for partition in (0, 1):
        state = world.state(topic_id, partition)
        assert (state.state_epoch, state.start_offset, state.complete_count) == (2, -1, -1)


def test_an_unchanged_heartbeat_says_nothing_new_and_writes_nothing(world: ShareWorld) -> None:
    world.new_topic()
    world.heartbeat("m", 0, ["t"])
    partition = world.core.topics.internal("__consumer_offsets").partitions[
        world.core.groups.partition_of("g")
    ]
    end_offset = partition.log.end_offset
    answer = world.heartbeat("m", 3)
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (NONE, 3, None)
    assert partition.log.end_offset == end_offset


def test_a_group_that_has_come_to_rest_beats_at_its_own_interval(world: ShareWorld) -> None:
    world.new_topic()
    world.heartbeat("m", 0, ["t"])
    world.pass_time(10_000)
    assert world.heartbeat("m", 3).heartbeat_interval_ms == REST_MS
    world.core.settings.replace_group("g", {"share.heartbeat.interval.ms": "7000"})
    assert world.heartbeat("m", 3).heartbeat_interval_ms == 7_000


def test_the_settling_interval_is_a_setting_and_never_longer_than_the_other(tmp_path) -> None:
    world = ShareWorld(tmp_path, headrace_share_settling_heartbeat_interval_ms=9_000)
    world.new_topic()
    assert world.heartbeat("m", 0, ["t"]).heartbeat_interval_ms == REST_MS
    world.close()


def test_members_that_start_together_share_a_fresh_groups_backlog(tmp_path: Path) -> None:
    world = ShareWorld(tmp_path, headrace_share_initial_rebalance_delay_ms=100)
    topic_id = world.new_topic("t", 2)
    world.write("t", 1)
    world.write("t", 1, partition=1)
    world.core.settings.replace_group("g", EARLIEST)
    first = world.heartbeat("a", 0, ["t"])
    assert (assigned(first), first.heartbeat_interval_ms) == ({}, 100)
    world.pass_time(30)
    second = world.heartbeat("b", 0, ["t"])
    assert (assigned(second), second.heartbeat_interval_ms) == ({}, 70)
    world.pass_time(70)
    assert assigned(world.heartbeat("a", first.member_epoch)) == {topic_id: [0]}
    assert assigned(world.heartbeat("b", second.member_epoch)) == {topic_id: [1]}
    world.close()


def test_the_first_member_of_an_emptied_group_waits_for_others_again(tmp_path: Path) -> None:
    world = ShareWorld(tmp_path, headrace_share_initial_rebalance_delay_ms=100)
    topic_id = world.new_topic("t")
    world.write("t", 2)
    world.core.settings.replace_group("g", EARLIEST)
    world.heartbeat("a", 0, ["t"])
    world.pass_time(10_000)
    world.heartbeat("a", -1)
    again = world.heartbeat("b", 0, ["t"])
    assert (assigned(again), again.heartbeat_interval_ms) == ({}, 100)
    world.pass_time(100)
    assert assigned(world.heartbeat("b", again.member_epoch)) == {topic_id: [0]}
    world.close()


@pytest.mark.parametrize(
    ("records", "config"), [(0, EARLIEST), (1, EARLIEST), (500, {})], ids=["none", "one", "latest"]
)
def test_a_member_waits_for_no_others_where_there_is_nothing_to_share(
    tmp_path: Path, records: int, config: dict[str, str]
) -> None:
    world = ShareWorld(tmp_path, headrace_share_initial_rebalance_delay_ms=100)
    topic_id = world.new_topic("t", 2)
    if records:
        world.write("t", records)
    world.core.settings.replace_group("g", config)
    assert assigned(world.heartbeat("a", 0, ["t"])) == {topic_id: [0, 1]}
    world.write("t", 10)
    assert assigned(world.heartbeat("b", 0, ["t"])) == {topic_id: [1]}
    assert assigned(world.heartbeat("a", 3)) == {topic_id: [0]}
    world.close()


def test_a_backlog_of_which_all_is_settled_makes_nobody_wait(tmp_path: Path) -> None:
    world = ShareWorld(tmp_path, headrace_share_initial_rebalance_delay_ms=100)
    topic_id = world.new_topic("t")
    world.write("t", 10)
    key = ShareKey("g", topic_id, 0)
    world.core.share_state.initialize(key, state_epoch=1, start_offset=10)
    assert assigned(world.heartbeat("a", 0, ["t"])) == {topic_id: [0]}
    world.heartbeat("a", -1)
    world.write("t", 10)
    assert assigned(world.heartbeat("b", 0, ["t"])) == {}
    world.close()


def test_a_member_that_joins_a_small_group_gets_its_part_at_once(world: ShareWorld) -> None:
    topic_id = world.new_topic("t", 2)
    world.heartbeat("a", 0, ["t"])
    assert assigned(world.heartbeat("b", 0, ["t"])) == {topic_id: [1]}
    assert assigned(world.heartbeat("a", 3)) == {topic_id: [0]}


@pytest.mark.parametrize(("members", "partitions"), [(18, 1), (2, 1_001)], ids=["members", "partitions"])
def test_a_large_group_is_assigned_at_intervals(world: ShareWorld, members: int, partitions: int) -> None:
    world.new_topic("t", partitions)
    for number in range(members):
        joined = world.heartbeat(f"m{number}", 0, ["t"])
    assert (assigned(joined), joined.heartbeat_interval_ms) == ({}, SETTLING_MS)


def test_partitions_added_to_a_topic_that_the_group_reads_start_at_their_first_record(
    world: ShareWorld,
) -> None:
    topic_id = world.new_topic()
    world.heartbeat("m", 0, ["t"])
    assert world.state(topic_id, 0).start_offset == -1
    world.core.topics.add_partitions("t", 2)
    world.write("t", 10, partition=1)
    world.heartbeat("m", 3)
    assert world.state(topic_id, 1).start_offset == 0


def test_partitions_added_while_the_group_is_empty_start_at_their_first_record(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    world.heartbeat("m", 0, ["t"])
    world.heartbeat("m", -1)
    world.core.topics.add_partitions("t", 2)
    world.write("t", 10, partition=1)
    world.power_cycle()
    world.heartbeat("n", 0, ["t"])
    assert world.state(topic_id, 1).start_offset == 0


def test_partitions_added_before_a_power_cut_start_at_their_first_record(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    joined = world.heartbeat("m", 0, ["t"])
    world.core.topics.add_partitions("t", 2)
    world.write("t", 10, partition=1)
    world.power_cycle()
    world.heartbeat("m", joined.member_epoch)
    assert world.state(topic_id, 1).start_offset == 0


def test_a_topic_that_the_group_has_not_read_starts_where_the_group_says(world: ShareWorld) -> None:
    world.new_topic()
    world.heartbeat("m", 0, ["t"])
    other = world.new_topic("u", 2)
    world.heartbeat("m", 3, ["t", "u"])
    assert [world.state(other, index).start_offset for index in (0, 1)] == [-1, -1]


def test_a_member_that_joins_soon_after_waits_for_an_assignment_interval_that_was_set(
    world: ShareWorld,
) -> None:
    world.core.settings.replace_group("g", {"share.assignment.interval.ms": "1000"})
    topic_id = world.new_topic("t", 2)
    world.heartbeat("a", 0, ["t"])
    joined = world.heartbeat("b", 0, ["t"])
    assert assigned(joined) == {}
    assert joined.heartbeat_interval_ms == SETTLING_MS
    world.pass_time(1_000)
    moved = world.heartbeat("b", joined.member_epoch)
    assert assigned(moved) == {topic_id: [1]}
    assert assigned(world.heartbeat("a", 3)) == {topic_id: [0]}


def test_a_member_that_joins_again_gets_the_same_epoch_and_all_of_its_assignment(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    world.heartbeat("m", 0, ["t"])
    again = world.heartbeat("m", 0, ["t"])
    assert (again.member_epoch, assigned(again)) == (3, {topic_id: [0]})
    full = world.heartbeat("m", 3, ["t"])
    assert assigned(full) == {topic_id: [0]}


def test_topics_that_do_not_exist_are_waited_for(world: ShareWorld) -> None:
    answer = world.heartbeat("m", 0, ["later"])
    assert (answer.error_code, assigned(answer)) == (NONE, {})
    topic_id = world.new_topic("later")
    world.pass_time(1_000)
    assert assigned(world.heartbeat("m", answer.member_epoch)) == {topic_id: [0]}


def test_partitions_that_are_added_get_state_and_are_assigned(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    world.heartbeat("m", 0, ["t"])
    world.core.topics.add_partitions("t", 3)
    world.pass_time(1_000)
    grown = world.heartbeat("m", 3)
    assert assigned(grown) == {topic_id: [0, 1, 2]}
    assert world.state(topic_id, 2).state_epoch == grown.member_epoch - 1
    assert world.state(topic_id, 0).state_epoch == 2, "what there was is not begun anew"


def test_a_deleted_topic_is_forgotten_and_made_again_it_begins_anew(world: ShareWorld) -> None:
    former_id = world.new_topic()
    world.heartbeat("m", 0, ["t"])
    world.core.topics.delete("t")
    assert world.group().rules.initialized == {}
    assert world.state(former_id) is None
    world.pass_time(1_000)
    without = world.heartbeat("m", 3)
    assert assigned(without) == {}
    topic_id = world.new_topic()
    world.pass_time(1_000)
    assert assigned(world.heartbeat("m", without.member_epoch)) == {topic_id: [0]}
    assert world.state(topic_id) is not None


def test_a_member_that_leaves_is_gone_and_the_group_stays(world: ShareWorld) -> None:
    world.new_topic()
    world.heartbeat("m", 0, ["t"])
    answer = world.heartbeat("m", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (NONE, "m", -1)
    assert (answer.heartbeat_interval_ms, answer.assignment) == (0, None)
    described = world.describe()
    assert (described.group_state, described.members) == ("Empty", [])
    assert (described.group_epoch, described.assignment_epoch) == (4, 4)
    assert world.heartbeat("m", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out_after_its_session(world: ShareWorld) -> None:
    world.new_topic()
    world.heartbeat("silent", 0, ["t"])
    world.heartbeat("alive", 0, ["t"])
    world.pass_time(40_000)
    alive = world.heartbeat("alive", 4)
    world.pass_time(4_999)
    assert {member.member_id for member in world.describe().members} == {"silent", "alive"}
    world.pass_time(1)
    described = world.describe()
    assert [member.member_id for member in described.members] == ["alive"]
    assert described.group_epoch == 5
    assert world.heartbeat("alive", alive.member_epoch).error_code == NONE


def test_all_members_that_fall_silent_at_once_are_out(world: ShareWorld) -> None:
    for member_id in ("a", "b", "c"):
        world.heartbeat(member_id, 0, ["t"])
    world.pass_time(45_000)
    assert world.describe().group_state == "Empty"


def test_a_session_is_as_long_as_the_group_says(world: ShareWorld) -> None:
    world.core.settings.replace_group("g", {"share.session.timeout.ms": "60000"})
    world.heartbeat("m", 0, ["t"])
    world.pass_time(59_999)
    assert world.describe().group_state == "Stable"
    world.pass_time(1)
    assert world.describe().group_state == "Empty"


def test_a_group_takes_as_many_members_as_it_may(tmp_path) -> None:
    world = ShareWorld(tmp_path, group_share_max_size=2)
    for member_id in ("a", "b"):
        assert world.heartbeat(member_id, 0, ["t"]).error_code == NONE
    refused = world.heartbeat("c", 0, ["t"])
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The share group has reached its maximum capacity of 2 members."
    assert world.heartbeat("a", 0, ["t"]).error_code == NONE
    world.close()


@pytest.mark.parametrize(
    ("epoch", "fields", "message"),
    [
        (0, {"member_id": ""}, None),
        (0, {"member_id": "m" * 37}, None),
        (0, {"group": " "}, "GroupId can't be empty."),
        (0, {"rack_id": ""}, "RackId can't be empty."),
        (0, {"topics": None}, "SubscribedTopicNames must be set in first request."),
        (0, {"topics": []}, "SubscribedTopicNames must be set in first request."),
        (-2, {}, "MemberEpoch is invalid."),
    ],
)
def test_a_malformed_heartbeat_is_refused(world: ShareWorld, epoch: int, fields, message) -> None:
    given = {"member_id": "m", "topics": ["t"], **fields}
    answer = world.heartbeat(given.pop("member_id"), epoch, given.pop("topics"), **given)
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == (None, 0, 0)
    assert [*world.core.groups.state.registry] == []


def test_who_is_no_member_is_told_so(world: ShareWorld) -> None:
    unknown = world.heartbeat("m", 5)
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Share group g not found.",
    )
    left = world.heartbeat("m", -1)
    assert (left.error_code, left.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found.")
    world.heartbeat("m", 0, ["t"])
    stranger = world.heartbeat("other", 1)
    assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.error_message == "Member other is not a member of group g."


def test_a_member_with_another_epoch_is_fenced(world: ShareWorld) -> None:
    world.heartbeat("m", 0, ["t"])
    for epoch in (1, 9):
        assert world.heartbeat("m", epoch).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    world.pass_time(1_000)
    assert world.heartbeat("m", 2, ["other"]).member_epoch == 3
    assert world.heartbeat("m", 2).member_epoch == 3, "the last answer may have been lost"


def test_share_groups_can_be_turned_off(tmp_path) -> None:
    world = ShareWorld(tmp_path)
    world.core.features.finalize({"share.version": 0})
    assert world.heartbeat("m", 0, ["t"]).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert world.describe().error_code == ErrorCode.UNSUPPORTED_VERSION
    world.close()


def test_a_journal_that_refuses_leaves_everything_as_it_was(world: ShareWorld) -> None:
    world.new_topic()
    world.heartbeat("m", 0, ["t"])
    before = world.group().snapshot()
    world.core.failure = OSError("full")
    refused = world.heartbeat("n", 0, ["t"])
    assert refused.error_code == ErrorCode.NOT_COORDINATOR
    assert world.heartbeat("x", 0, ["t"], group="new").error_code != NONE
    assert world.group().snapshot() == before
    assert world.core.groups.state.registry.get("new") is None
    world.core.failure = None


def test_a_session_that_ends_while_the_journal_refuses_ends_once_it_does_not(world: ShareWorld) -> None:
    world.heartbeat("m", 0, ["t"])
    world.core.failure = OSError("full")
    world.pass_time(50_000)
    assert world.describe().group_state == "Stable"
    world.core.failure = None
    world.pass_time(1_000)
    assert world.describe().group_state == "Empty"


def test_a_group_is_described_with_its_members(world: ShareWorld) -> None:
    topic_id = world.new_topic("t", 2)
    world.heartbeat("m", 0, ["t", "missing"], rack_id="r1")
    described = world.describe()
    assert (described.error_code, described.error_message, described.group_id) == (NONE, None, "g")
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    assert (described.group_epoch, described.assignment_epoch) == (3, 3)
    (member,) = described.members
    assert (member.member_id, member.rack_id, member.member_epoch) == ("m", "r1", 3)
    assert (member.client_id, member.client_host) == ("client", "/127.0.0.1")
    assert list(member.subscribed_topic_names) == ["missing", "t"]
    (topic,) = member.assignment.topic_partitions
    assert (topic.topic_id, topic.topic_name, list(topic.partitions)) == (topic_id, "t", [0, 1])


def test_a_description_leaves_out_topics_that_are_gone(world: ShareWorld) -> None:
    world.new_topic()
    world.heartbeat("m", 0, ["t"])
    world.core.topics.delete("t")
    assert list(world.describe().members[0].assignment.topic_partitions) == []


def test_groups_that_cannot_be_described_say_why(world: ShareWorld) -> None:
    assert world.describe("").error_code == ErrorCode.INVALID_GROUP_ID
    missing = world.describe("missing")
    assert (missing.error_code, missing.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group missing not found.",
    )
    assert missing.group_state == ""


def test_after_a_power_cut_members_go_on_where_they_were(world: ShareWorld) -> None:
    topic_id = world.new_topic("t", 2)
    world.heartbeat("m", 0, ["t"], rack_id="r")
    before = world.group().snapshot()
    world.pass_time(44_000)
    world.power_cycle()
    assert world.group().snapshot() == before
    world.pass_time(44_000)
    assert world.heartbeat("m", 3).error_code == NONE, "a restart gives everybody a whole session"
    assert assigned(world.heartbeat("m", 0, ["t"])) == {topic_id: [0, 1]}
    world.pass_time(45_000)
    assert world.describe().group_state == "Empty"


def test_share_partitions_without_state_are_found_at_start_and_begin_anew(world: ShareWorld) -> None:
    topic_id = world.new_topic("t", 2)
    world.heartbeat("m", 0, ["t"])
    world.core.share_state.delete(ShareKey("g", topic_id, 1))
    world.power_cycle()
    assert world.group().rules.initialized[topic_id].partitions == (0,)
    answer = world.heartbeat("m", 3)
    assert answer.error_code == NONE
    assert world.state(topic_id, 1).state_epoch == 3
    assert world.describe().group_epoch == 4
    assert world.state(topic_id, 0).state_epoch == 2


def test_a_topic_whose_deletion_was_cut_short_is_forgotten_at_start(world: ShareWorld) -> None:
    former_id = world.new_topic("t", 2)
    kept_id = world.new_topic("kept")
    world.heartbeat("m", 0, ["t", "kept"])
    world.core.metadata.delete_topic("t")
    world.power_cycle()
    assert world.core.topics.by_id(former_id) is None
    assert set(world.group().rules.initialized) == {kept_id}
    world.pass_time(1_000)
    assert assigned(world.heartbeat("m", 3)) == {kept_id: [0]}


def test_a_topic_that_is_deleted_while_the_journal_refuses_is_forgotten_at_the_next_start(
    world: ShareWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = world.new_topic()
    world.heartbeat("m", 0, ["t"])

    def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(world.core.groups, "append", refuse)
    world.core.topics.delete("t")
    assert set(world.group().rules.initialized) == {topic_id}
    world.power_cycle()
    assert world.group().rules.initialized == {}


def test_state_that_the_group_does_not_know_of_is_kept_with_what_members_have_settled(
    world: ShareWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic_id = world.new_topic()
    append = world.core.groups.append

    def refuse(*_: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    monkeypatch.setattr(world.core.groups, "append", refuse)
    assert world.heartbeat("m", 0, ["t"]).error_code != 0
    monkeypatch.setattr(world.core.groups, "append", append)
    settled = [StateBatch(0, 4, RecordState.ACKNOWLEDGED, 1)]
    world.core.share_state.write(
        ShareKey("g", topic_id, 0),
        state_epoch=-1,
        leader_epoch=-1,
        start_offset=0,
        complete_count=5,
        batches=settled,
    )
    assert assigned(world.heartbeat("m", 0, ["t"])) == {topic_id: [0]}
    assert (world.state(topic_id).start_offset, world.state(topic_id).merged()) == (0, settled)


def test_an_added_partition_starts_at_its_first_record_though_the_record_of_the_group_is_lost(
    world: ShareWorld,
) -> None:
    topic_id = world.new_topic("t", 2)
    world.core.share_state.initialize(ShareKey("g", topic_id, 0), state_epoch=7, start_offset=5)
    world.heartbeat("m", 0, ["t"])
    assert (world.state(topic_id).start_offset, world.state(topic_id, 1).start_offset) == (5, 0)


def test_what_was_answered_before_a_kill_survives_a_power_cut_after_the_next_start(world: ShareWorld) -> None:
    topic_id = world.new_topic()
    world.heartbeat("m", 0, ["t"])
    world.runner.is_held = True
    settled = [StateBatch(0, 4, RecordState.ARCHIVED, 1)]
    world.core.topics.require("t", 0).log.append(build_batch([NewRecord(None, b"v", (), 0)] * 5), now_ms=0)
    world.core.logs.sync([world.core.topics.require("t", 0).log])
    world.core.share_state.write(
        ShareKey("g", topic_id, 0),
        state_epoch=-1,
        leader_epoch=-1,
        start_offset=0,
        complete_count=5,
        batches=settled,
    )
    world.kill()
    world.power_cycle()
    assert world.state(topic_id).merged() == settled


def test_groups_are_counted_by_type_and_state(world: ShareWorld) -> None:
    world.heartbeat("m", 0, ["t"])
    world.heartbeat("m", 0, ["t"], group="left")
    world.heartbeat("m", -1, group="left")
    values = {
        (sample.name, *sample.labels.values()): sample.value for sample in world.core.metrics.snapshot()
    }
    assert values["group-count", "share"] == 2
    assert values["group-count", "consumer"] == 0
    assert values["share-group-count", "Stable"] == 1
    assert values["share-group-count", "Empty"] == 1
    assert values["share-group-rebalance-count",] == 2


def test_a_share_group_never_expires(world: ShareWorld) -> None:
    world.heartbeat("m", 0, ["t"])
    world.heartbeat("m", -1)
    world.pass_time(8 * 24 * 3_600_000)  # a consumer group ends after seven days
    assert isinstance(world.core.groups.state.registry.get("g"), ShareGroup)
