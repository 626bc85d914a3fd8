"""Committed offsets: who may commit and read them, in which group, and what becomes of them."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import plain
from tests.conformance.steps import (
    beat,
    commit,
    commit_in_transaction,
    committed,
    end_transaction,
    init_producer,
    join_named,
    leave,
    new_topic,
    stable_group,
    subscription,
    topic_id_of,
    wait_for,
)
from tests.conformance.wire_client import WireClient

GROUP_UNKNOWN = {True: ErrorCode.GROUP_ID_NOT_FOUND, False: ErrorCode.ILLEGAL_GENERATION}


@pytest.fixture
def topic(wire: WireClient, unique: str) -> str:
    new_topic(wire, unique, partitions=2)
    return unique


def as_member(member_id: str, generation: int, **more: Any) -> dict[str, Any]:
    return {"member_id": member_id, "generation_id_or_member_epoch": generation, **more}


def delete_offset(wire: WireClient, group: str, topic: str, partition: int = 0) -> Any:
    asked = {"name": topic, "partitions": [{"partition_index": partition}]}
    return wire.ask("offset_delete", 0, group_id=group, topics=[asked])


def test_a_commit_replaces_the_one_before(wire: WireClient, unique: str, topic: str) -> None:
    assert [commit(wire, unique, topic, offset) for offset in (5, 3)] == [0, 0]
    assert committed(wire, unique, topic).committed_offset == 3


def test_several_partitions_are_committed_at_once(wire: WireClient, unique: str, topic: str) -> None:
    partitions = [
        {"partition_index": index, "committed_offset": 10 + index, "committed_metadata": f"note {index}"}
        for index in (0, 1, 7)
    ]
    topics = [
        {"name": topic, "partitions": partitions},
        {"name": f"{unique}-not", "partitions": partitions[:1]},
    ]
    response = wire.ask("offset_commit", 9, group_id=unique, topics=topics)
    codes = {
        (answer.name, partition.partition_index): partition.error_code
        for answer in response.topics
        for partition in answer.partitions
    }
    assert codes == {
        (topic, 0): 0,
        (topic, 1): 0,
        (topic, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (f"{unique}-not", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    found = [committed(wire, unique, topic, partition=index) for index in (0, 1)]
    assert [(one.committed_offset, one.metadata) for one in found] == [(10, "note 0"), (11, "note 1")]


def test_an_unknown_topic_id_is_refused(wire: WireClient, unique: str) -> None:
    partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    nobodys = {"topic_id": bytes(range(16)), "partitions": [partition]}
    response = wire.ask("offset_commit", 10, group_id=unique, topics=[nobodys])
    assert response.topics[0].topic_id == bytes(range(16))
    assert response.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    asked = {"topic_id": bytes(range(16)), "partition_indexes": [0]}
    (group,) = wire.ask("offset_fetch", 10, groups=[{"group_id": unique, "topics": [asked]}]).groups
    (partition,) = group.topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (ErrorCode.UNKNOWN_TOPIC_ID, -1)


def test_offsets_of_unknown_topic_ids_come_last(wire: WireClient, unique: str) -> None:
    ids = [bytes(range(16)), new_topic(wire, unique)]
    asked = [{"topic_id": topic_id, "partition_indexes": [0]} for topic_id in ids]
    (group,) = wire.ask("offset_fetch", 10, groups=[{"group_id": unique, "topics": asked}]).groups
    assert [topic.topic_id for topic in group.topics] == [*reversed(ids)]


def test_a_note_may_be_null_or_long_but_not_too_long(wire: WireClient, unique: str, topic: str) -> None:
    assert commit(wire, unique, topic, 1, metadata=None) == 0
    assert committed(wire, unique, topic).metadata == ""
    assert commit(wire, unique, topic, 2, metadata="x" * 4096) == 0
    assert commit(wire, unique, topic, 3, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert committed(wire, unique, topic).committed_offset == 2


@pytest.mark.parametrize("version", [8, 9])
def test_a_member_of_no_group_is_refused(wire: WireClient, unique: str, topic: str, version: int) -> None:
    # KIP-848 gave newer clients an error that says so.
    code = commit(wire, unique, topic, 1, version=version, **as_member("nobody", 1))
    assert code == GROUP_UNKNOWN[version >= 9]


def test_a_member_commits_in_its_generation(wire: WireClient, unique: str, topic: str) -> None:
    member_id = stable_group(wire, unique).member_id
    assert commit(wire, unique, topic, 1, **as_member(member_id, 1)) == 0
    for generation in (0, 2):
        code = commit(wire, unique, topic, 9, **as_member(member_id, generation))
        assert code == ErrorCode.ILLEGAL_GENERATION
    assert commit(wire, unique, topic, 9, **as_member("nobody", 1)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(wire, unique, topic).committed_offset == 1


def test_an_outsider_may_not_commit_for_a_group_with_members(
    wire: WireClient, unique: str, topic: str
) -> None:
    member_id = stable_group(wire, unique).member_id
    assert commit(wire, unique, topic, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    leave(wire, unique, member_id)
    assert commit(wire, unique, topic, 1) == 0


def test_between_join_and_sync_a_commit_is_refused(wire: WireClient, unique: str, topic: str) -> None:
    joined = join_named(wire, unique)
    code = commit(wire, unique, topic, 1, **as_member(joined.member_id, 1))
    assert code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_a_session_alive(
    broker: BrokerUnderTest, wire: WireClient, unique: str, topic: str
) -> None:
    member_id = stable_group(wire, unique, session_ms=2_000).member_id
    for offset in range(5):
        broker.pass_time(0.5)
        assert commit(wire, unique, topic, offset, **as_member(member_id, 1)) == 0


def test_offsets_may_be_kept_under_no_name(wire: WireClient, unique: str, topic: str) -> None:
    # Joining a group needs a name; for offsets alone the empty one has always done.
    assert commit(wire, "", topic, 1) == 0
    assert committed(wire, "", topic).committed_offset == 1
    assert wire.ask("delete_groups", 2, groups_names=[""]).results[0].error_code == 0


def test_an_unknown_group_has_committed_nothing(wire: WireClient, unique: str, topic: str) -> None:
    assert plain(committed(wire, unique, topic)) == {
        "partition_index": 0,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": 0,
    }
    (group,) = wire.ask("offset_fetch", 9, groups=[{"group_id": unique, "topics": None}]).groups
    assert (group.error_code, group.topics) == (0, [])


def test_nothing_is_known_of_an_unknown_topic_either(wire: WireClient, unique: str, topic: str) -> None:
    commit(wire, unique, topic, 1)
    found = committed(wire, unique, f"{unique}-not")
    assert (found.error_code, found.committed_offset) == (0, -1)


def test_null_asks_for_everything_committed(wire: WireClient, unique: str, topic: str) -> None:
    commit(wire, unique, topic, 1)
    commit(wire, unique, topic, 2, partition=1)
    (group,) = wire.ask("offset_fetch", 9, groups=[{"group_id": unique, "topics": None}]).groups
    (found,) = group.topics
    assert {one.partition_index: one.committed_offset for one in found.partitions} == {0: 1, 1: 2}
    old = wire.ask("offset_fetch", 7, group_id=unique, topics=None)
    assert [(one.name, len(one.partitions)) for one in old.topics] == [(topic, 2)]


def test_several_groups_are_asked_at_once(wire: WireClient, unique: str, topic: str) -> None:
    for number in range(2):
        commit(wire, f"{unique}-{number}", topic, number)
    groups = [
        {"group_id": f"{unique}-{number}", "topics": [{"name": topic, "partition_indexes": [0]}]}
        for number in range(3)
    ]
    response = wire.ask("offset_fetch", 9, groups=groups)
    found = {
        group.group_id.removeprefix(unique): group.topics[0].partitions[0].committed_offset
        for group in response.groups
    }
    assert found == {"-0": 0, "-1": 1, "-2": -1}


def test_an_offset_in_an_open_transaction_is_not_stable(wire: WireClient, unique: str, topic: str) -> None:
    commit(wire, unique, topic, 1)
    producer = init_producer(wire, unique)
    assert commit_in_transaction(wire, unique, producer, unique, topic, 7) == 0
    assert committed(wire, unique, topic).committed_offset == 1
    unstable = committed(wire, unique, topic, require_stable=True)
    assert (unstable.error_code, unstable.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    stable = committed(wire, unique, topic, partition=1, require_stable=True)
    assert (stable.error_code, stable.committed_offset) == (0, -1)
    assert end_transaction(wire, unique, producer, commit=True, version=5).error_code == 0
    wait_for(lambda: committed(wire, unique, topic, require_stable=True).committed_offset == 7)


def test_an_aborted_transaction_commits_nothing(wire: WireClient, unique: str, topic: str) -> None:
    producer = init_producer(wire, unique)
    assert commit_in_transaction(wire, unique, producer, unique, topic, 7) == 0
    assert end_transaction(wire, unique, producer, commit=False, version=5).error_code == 0
    wait_for(lambda: committed(wire, unique, topic, require_stable=True).error_code == 0)
    assert committed(wire, unique, topic).committed_offset == -1


class TestOfMembersByEpoch:
    """Members of a consumer group (KIP-848) commit and read with their epoch."""

    @pytest.fixture
    def epoch(self, wire: WireClient, unique: str, topic: str) -> int:
        def settled() -> int | None:
            response = beat(wire, unique, "member", 0, topics=[topic])
            return response.member_epoch if response.assignment.topic_partitions else None

        return wait_for(settled)

    def test_the_members_own_epoch_is_right(
        self, wire: WireClient, unique: str, topic: str, epoch: int
    ) -> None:
        assert commit(wire, unique, topic, 5, **as_member("member", epoch)) == 0
        found = committed(wire, unique, topic, member_id="member", member_epoch=epoch)
        assert found.committed_offset == 5

    def test_a_later_epoch_is_stale(self, wire: WireClient, unique: str, topic: str, epoch: int) -> None:
        code = commit(wire, unique, topic, 5, **as_member("member", epoch + 1))
        assert code == ErrorCode.STALE_MEMBER_EPOCH

    def test_an_older_client_hears_of_a_generation(
        self, wire: WireClient, unique: str, topic: str, epoch: int
    ) -> None:
        code = commit(wire, unique, topic, 5, version=8, **as_member("member", epoch + 1))
        assert code == ErrorCode.UNSUPPORTED_VERSION

    def test_an_outsider_is_refused_while_there_are_members(
        self, wire: WireClient, unique: str, topic: str, epoch: int
    ) -> None:
        assert commit(wire, unique, topic, 5) == ErrorCode.UNKNOWN_MEMBER_ID
        assert commit(wire, unique, topic, 5, **as_member("nobody", epoch)) == ErrorCode.UNKNOWN_MEMBER_ID

    def test_reading_with_a_wrong_epoch_is_refused(
        self, wire: WireClient, unique: str, topic: str, epoch: int
    ) -> None:
        def code(member_id: str, member_epoch: int) -> int:
            wanted = {
                "group_id": unique,
                "member_id": member_id,
                "member_epoch": member_epoch,
                "topics": [{"name": topic, "partition_indexes": [0]}],
            }
            (group,) = wire.ask("offset_fetch", 9, groups=[wanted]).groups
            assert group.topics == [] or not group.error_code
            return int(group.error_code)

        assert code("member", epoch) == 0
        assert code("member", epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
        assert code("nobody", epoch) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_a_topic_somebody_reads_are_kept(
    wire: WireClient, connect: Callable[[], WireClient], unique: str, topic: str
) -> None:
    member_id = stable_group(wire, unique, protocols={"range": subscription(topic)}).member_id
    commit(wire, unique, topic, 1, **as_member(member_id, 1))
    response = delete_offset(wire, unique, topic)
    assert response.error_code == 0
    assert response.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    leave(wire, unique, member_id)
    assert delete_offset(wire, unique, topic).topics[0].partitions[0].error_code == 0
    assert committed(wire, unique, topic).committed_offset == -1


def test_offsets_of_other_topics_are_deleted_while_members_read_on(
    wire: WireClient, unique: str, topic: str
) -> None:
    member_id = stable_group(wire, unique, protocols={"range": subscription("somewhere else")}).member_id
    commit(wire, unique, topic, 1, **as_member(member_id, 1))
    assert delete_offset(wire, unique, topic).topics[0].partitions[0].error_code == 0
    assert committed(wire, unique, topic).committed_offset == -1


def test_a_group_that_is_not_of_consumers_keeps_its_offsets_while_it_has_members(
    wire: WireClient, unique: str, topic: str
) -> None:
    joined = join_named(wire, unique, protocol_type="connect", protocols={"v1": b"anything"})
    assert joined.error_code == 0
    assert delete_offset(wire, unique, topic).error_code == ErrorCode.NON_EMPTY_GROUP


def test_deleting_what_is_not_there(wire: WireClient, unique: str, topic: str) -> None:
    response = delete_offset(wire, unique, topic)
    assert (response.error_code, response.topics) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    commit(wire, unique, topic, 1)
    # Nothing was committed for partition 1: there is nothing to delete, and nothing wrong.
    assert delete_offset(wire, unique, topic, 1).topics[0].partitions[0].error_code == 0
    missing = delete_offset(wire, unique, f"{unique}-not")
    assert missing.topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deleted_topic_takes_its_offsets_with_it(wire: WireClient, unique: str, topic: str) -> None:
    commit(wire, unique, topic, 1)
    wire.ask("delete_topics", 5, topic_names=[topic], timeout_ms=5000)
    wait_for(lambda: topic_id_of(wire, topic) == bytes(16))
    wait_for(lambda: committed(wire, unique, topic).committed_offset == -1)
