"""Goal: who may commit, fetch and delete offsets, and what each partition is answered. Method: by the handlers."""

from typing import Any, cast

import pytest

from headrace.broker.call import Call
from headrace.broker.core import BrokerCore
from headrace.broker.handlers import (
    error_response,
    offset_commit,
    offset_delete,
    offset_fetch,
    txn_offset_commit,
)
from headrace.broker.later import Later
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.messages.txn_offset_commit_response import TxnOffsetCommitResponse
from tests.unit.broker.groups.classic_client import INITIAL_DELAY_MS, ClassicClient, stable_group
from tests.unit.broker.groups.consumer_client import ConsumerClient, converge
from tests.unit.broker.groups.fake_core import FakeCore

PRODUCER = ProducerIdAndEpoch(500, 0)
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
RETENTION_MS = 7 * 24 * 60 * MINUTE_MS
CHECK_MS = 10 * MINUTE_MS


@pytest.fixture(autouse=True)
def topic(core: FakeCore) -> Any:
    return core.topics.create("t", 4)


def commit(core: FakeCore, *offsets: int, topic: str = "t", version: int = 9, **fields: Any) -> Any:
    """Offsets of partitions 0, 1, ... by nobody in particular."""
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset, committed_leader_epoch=5)
        for index, offset in enumerate(offsets)
    ]
    request = OffsetCommitRequest(
        group_id="g", topics=[OffsetCommitRequestTopic(name=topic, partitions=partitions)], **fields
    )
    return core.handle(offset_commit, request, version=version)


def codes(response: Any) -> list[int]:
    return [partition.error_code for topic in response.topics for partition in topic.partitions]


def fetch(core: FakeCore, *indexes: int, topic: str = "t", **fields: Any) -> Any:
    asked = OffsetFetchRequestTopics(name=topic, partition_indexes=indexes)
    group = OffsetFetchRequestGroup(group_id="g", topics=[asked], **fields)
    return core.handle(offset_fetch, OffsetFetchRequest(groups=[group]), version=9).groups[0]


def offsets(group: Any) -> list[int]:
    return [partition.committed_offset for topic in group.topics for partition in topic.partitions]


def commit_in_transaction(
    core: FakeCore, offset: int, producer: ProducerIdAndEpoch = PRODUCER, **fields: Any
) -> Any:
    partition = TxnOffsetCommitRequestPartition(
        committed_offset=offset, committed_metadata=fields.pop("metadata", "")
    )
    request = TxnOffsetCommitRequest(
        group_id=fields.pop("group_id", "g"),
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
        **fields,
    )
    call = Call(api_version=5)
    topics, _ = txn_offset_commit.commit_offsets(cast(BrokerCore, core), request, request.topics, call)
    return TxnOffsetCommitResponse(topics=topics)


def test_a_simple_consumer_commits_and_fetches(core: FakeCore) -> None:
    assert codes(commit(core, 3, 4)) == [0, 0]
    group = fetch(core, 0, 1, 2)
    assert offsets(group) == [3, 4, -1]
    assert [partition.committed_leader_epoch for partition in group.topics[0].partitions] == [5, 5, -1]


def test_a_commit_is_answered_when_it_is_durable_but_seen_at_once(core: FakeCore) -> None:
    core.is_synced = False
    answer = commit(core, 3)
    assert isinstance(answer, Later)
    assert not answer.is_done
    assert offsets(fetch(core, 0)) == [3]
    core.sync()
    assert codes(answer.value) == [0]


def test_a_commit_that_the_disk_refuses_is_not_seen(core: FakeCore) -> None:
    core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    assert codes(commit(core, 3)) == [ErrorCode.NOT_COORDINATOR]
    core.refusal = None
    assert offsets(fetch(core, 0)) == [-1]


def test_unknown_topics_and_partitions_are_refused_one_by_one(core: FakeCore) -> None:
    assert codes(commit(core, 1, topic="nowhere")) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert core.groups.state.registry.get("g") is None
    assert codes(commit(core, 1, 2, 3, 4, 5)) == [0, 0, 0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_metadata_may_have_4096_characters(core: FakeCore) -> None:
    def with_metadata(length: int) -> list[int]:
        partition = OffsetCommitRequestPartition(committed_offset=1, committed_metadata="x" * length)
        topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
        return codes(core.handle(offset_commit, OffsetCommitRequest(group_id="g", topics=[topic]), version=9))

    assert with_metadata(4097) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert with_metadata(4096) == [0]


def test_null_metadata_is_kept_as_none_at_all(core: FakeCore) -> None:
    partition = OffsetCommitRequestPartition(committed_offset=1, committed_metadata=None)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    core.handle(offset_commit, OffsetCommitRequest(group_id="g", topics=[topic]), version=9)
    assert fetch(core, 0).topics[0].partitions[0].metadata == ""


def test_a_generation_of_an_unknown_group_is_refused_by_version(core: FakeCore) -> None:
    assert codes(commit(core, 1, generation_id_or_member_epoch=1)) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert codes(commit(core, 1, generation_id_or_member_epoch=1, version=8)) == [
        ErrorCode.ILLEGAL_GENERATION
    ]


def test_a_classic_member_commits_in_its_generation_only(core: FakeCore) -> None:
    member, _ = stable_group(core)
    assert member.commit(5) == ErrorCode.NONE
    member.generation += 1
    assert member.commit(5) == ErrorCode.ILLEGAL_GENERATION
    member.member_id = "who"
    assert member.commit(5) == ErrorCode.UNKNOWN_MEMBER_ID


def test_nobody_commits_from_outside_into_a_group_with_members(core: FakeCore) -> None:
    stable_group(core)
    assert codes(commit(core, 5)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_commit_between_join_and_sync_must_wait(core: FakeCore) -> None:
    member = ClassicClient(core)
    parked = member.join()
    core.pass_time(INITIAL_DELAY_MS)
    assert member.take(parked.value).commit(5) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_keeps_a_classic_session_alive_and_is_welcome_before_a_rebalance(core: FakeCore) -> None:
    member, other = stable_group(core)
    other.leave()
    for _ in range(3):
        core.pass_time(9_999)
        assert member.commit(5) == ErrorCode.NONE
    assert member.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_consumer_member_commits_in_its_epoch(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    assert member.commit(5) == ErrorCode.NONE
    assert member.commit(5, epoch=member.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert member.commit(5, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert ConsumerClient(core, "b", epoch=2).commit(5) == ErrorCode.UNKNOWN_MEMBER_ID
    assert codes(commit(core, 5)) == [ErrorCode.UNKNOWN_MEMBER_ID]


def test_a_commit_from_an_older_epoch_is_good_for_partitions_held_since(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    second.join()
    converge(first, second)
    kept, lost = first.indexes[0], second.indexes[0]
    assert first.commit(5, partition=kept, epoch=2) == ErrorCode.NONE
    assert first.commit(5, partition=lost, epoch=2) == ErrorCode.STALE_MEMBER_EPOCH
    assert second.commit(5, partition=lost, epoch=2) == ErrorCode.STALE_MEMBER_EPOCH  # it got it in epoch 3
    assert second.commit(5, partition=lost) == ErrorCode.NONE


def test_a_member_commits_what_it_is_giving_up(core: FakeCore) -> None:
    first, second = ConsumerClient(core, "a"), ConsumerClient(core, "b")
    first.join()
    core.pass_time(1_000)
    second.join()
    first.send()
    for partition in range(4):
        assert first.commit(5, partition=partition) == ErrorCode.NONE


def test_an_empty_consumer_group_takes_commits_from_outside(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    member.leave()
    assert codes(commit(core, 5)) == [0]


def test_version_10_names_topics_by_id(core: FakeCore, topic: Any) -> None:
    partition = OffsetCommitRequestPartition(committed_offset=5)
    topics = [
        OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])
        for topic_id in (topic.id, b"?" * 16)
    ]
    response = core.handle(offset_commit, OffsetCommitRequest(group_id="g", topics=topics), version=10)
    assert codes(response) == [0, ErrorCode.UNKNOWN_TOPIC_ID]
    asked = [OffsetFetchRequestTopics(topic_id=one.topic_id, partition_indexes=[0]) for one in topics]
    fetched = core.handle(
        offset_fetch,
        OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=asked)]),
        version=10,
    ).groups[0]
    assert [one.topic_id for one in fetched.topics] == [topic.id, b"?" * 16]
    assert offsets(fetched) == [5, -1]
    assert fetched.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_all_offsets_of_a_group_by_name_and_by_id(core: FakeCore, topic: Any) -> None:
    commit(core, 3, 4)
    everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    by_name = core.handle(offset_fetch, everything, version=9).groups[0]
    by_id = core.handle(offset_fetch, everything, version=10).groups[0]
    assert (by_name.topics[0].name, offsets(by_name)) == ("t", [3, 4])
    assert (by_id.topics[0].topic_id, offsets(by_id)) == (topic.id, [3, 4])


def test_many_groups_are_fetched_at_once_and_unknown_ones_have_no_offsets(core: FakeCore) -> None:
    commit(core, 3)
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=None) for group_id in ("g", "nowhere")]
    known, unknown = core.handle(offset_fetch, OffsetFetchRequest(groups=groups)).groups
    assert (offsets(known), unknown.topics, unknown.error_code) == ([3], [], 0)


@pytest.mark.parametrize("version", [1, 2, 5, 7])
def test_old_versions_ask_for_one_group(core: FakeCore, version: int) -> None:
    commit(core, 3)
    asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    response = core.handle(offset_fetch, OffsetFetchRequest(group_id="g", topics=asked), version=version)
    assert offsets(response) == [3, -1]
    if version >= 2:
        response = core.handle(offset_fetch, OffsetFetchRequest(group_id="g", topics=None), version=version)
        assert offsets(response) == [3]


def test_an_error_response_has_the_form_of_its_version(core: FakeCore) -> None:
    asked = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(group_id="g", topics=asked)
    oldest = error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, None, Call(api_version=1))
    assert (codes(oldest), oldest.error_code) == ([ErrorCode.UNKNOWN_SERVER_ERROR], 0)
    older = error_response(request, ErrorCode.UNKNOWN_SERVER_ERROR, None, Call(api_version=7))
    assert (codes(older), older.error_code) == ([], ErrorCode.UNKNOWN_SERVER_ERROR)


def test_members_that_say_who_they_are_are_checked_when_they_fetch(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    assert fetch(core, 0, member_id="a", member_epoch=2).error_code == ErrorCode.NONE
    assert fetch(core, 0, member_id="a", member_epoch=1).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(core, 0, member_id="b", member_epoch=2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(core, 0).error_code == ErrorCode.NONE


def test_offsets_in_a_transaction_are_not_seen_before_it_commits(core: FakeCore) -> None:
    commit(core, 3)
    response = commit_in_transaction(core, 8)
    assert codes(response) == [0]
    assert offsets(fetch(core, 0)) == [3]
    core.end_transaction(PRODUCER, "g", commit=True)
    assert offsets(fetch(core, 0)) == [8]


def test_offsets_of_an_aborted_transaction_are_never_seen(core: FakeCore) -> None:
    commit_in_transaction(core, 8)
    core.check_replay()
    core.end_transaction(PRODUCER, "g", commit=False)
    assert offsets(fetch(core, 0)) == [-1]


def test_who_requires_stable_offsets_is_told_of_open_transactions(core: FakeCore) -> None:
    commit(core, 3)
    commit_in_transaction(core, 8)
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    request = OffsetFetchRequest(groups=[group], require_stable=True)
    (partition,) = core.handle(offset_fetch, request).groups[0].topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    core.end_transaction(PRODUCER, "g", commit=True)
    (partition,) = core.handle(offset_fetch, request).groups[0].topics[0].partitions
    assert (partition.error_code, partition.committed_offset) == (ErrorCode.NONE, 8)


def test_a_transactional_commit_is_checked_like_any_other_in_the_words_of_producers(core: FakeCore) -> None:
    member, _ = stable_group(core)
    who: dict[str, Any] = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation}
    assert codes(commit_in_transaction(core, 8, **who)) == [0]
    with pytest.raises(KafkaError) as refused:
        commit_in_transaction(core, 8, **{**who, "generation_id_or_member_epoch": 7})
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
    with pytest.raises(KafkaError) as refused:
        commit_in_transaction(core, 8, **{**who, "member_id": "who"})
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transactional_commit_of_a_stale_consumer_member_is_an_illegal_generation(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    with pytest.raises(KafkaError) as refused:
        commit_in_transaction(core, 8, member_id="a", generation_id_or_member_epoch=member.epoch + 1)
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


def test_a_producer_too_old_to_say_for_whom_commits_into_any_group(core: FakeCore) -> None:
    member = ConsumerClient(core, "a")
    member.join()
    assert codes(commit_in_transaction(core, 8)) == [0]


def test_a_transactional_commit_with_long_metadata_is_refused_for_that_partition(core: FakeCore) -> None:
    assert codes(commit_in_transaction(core, 8, metadata="x" * 5000)) == [ErrorCode.OFFSET_METADATA_TOO_LARGE]


def test_an_unknown_group_takes_transactional_commits_without_a_generation_only(core: FakeCore) -> None:
    with pytest.raises(KafkaError) as refused:
        commit_in_transaction(core, 8, generation_id_or_member_epoch=1, member_id="m")
    assert refused.value.code is ErrorCode.ILLEGAL_GENERATION
    assert codes(commit_in_transaction(core, 8)) == [0]


def delete(core: FakeCore, *indexes: int, group_id: str = "g", topic: str = "t") -> Any:
    partitions = [OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=partitions)]
    return core.handle(offset_delete, OffsetDeleteRequest(group_id=group_id, topics=topics))


def test_offsets_are_deleted_one_by_one(core: FakeCore) -> None:
    commit(core, 3, 4)
    assert codes(delete(core, 0, 2, 9)) == [0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert offsets(fetch(core, 0, 1)) == [-1, 4]


def test_pending_offsets_are_deleted_too(core: FakeCore) -> None:
    commit_in_transaction(core, 8)
    delete(core, 0)
    core.end_transaction(PRODUCER, "g", commit=True)
    assert offsets(fetch(core, 0)) == [-1]


def test_offsets_of_subscribed_topics_are_not_deleted(core: FakeCore) -> None:
    core.topics.create("u", 1)
    member, _ = stable_group(core)
    member.commit(5)
    member.commit(6, topic="u")
    assert codes(delete(core, 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert codes(delete(core, 0, topic="u")) == [0]
    assert (offsets(fetch(core, 0)), offsets(fetch(core, 0, topic="u"))) == ([5], [-1])


def test_offsets_of_a_consumer_groups_topics_are_not_deleted(core: FakeCore) -> None:
    ConsumerClient(core, "a", topics=None, pattern="t").join()
    assert codes(delete(core, 0)) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]


def test_a_group_of_other_clients_must_be_empty_to_lose_offsets(core: FakeCore) -> None:
    stable_group(core, ClassicClient(core, protocol_type="connect"))
    assert delete(core, 0).error_code == ErrorCode.NON_EMPTY_GROUP


def test_deleting_offsets_of_no_group_is_an_error(core: FakeCore) -> None:
    assert delete(core, 0, group_id="nowhere").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(core, 0, group_id="").error_code == ErrorCode.INVALID_GROUP_ID


def test_a_deleted_topic_takes_its_offsets_with_it(core: FakeCore) -> None:
    core.topics.create("u", 1)
    commit(core, 3)
    commit(core, 4, topic="u")
    commit_in_transaction(core, 8)
    core.topics.delete("t")
    core.topics.create("t", 4)
    core.end_transaction(PRODUCER, "g", commit=True)
    assert (offsets(fetch(core, 0)), offsets(fetch(core, 0, topic="u"))) == ([-1], [4])


def test_offsets_that_a_full_disk_kept_from_being_deleted_do_not_pass_to_a_new_topic_of_that_name(
    core: FakeCore,
) -> None:
    commit(core, 3)
    core.refusal = ErrorCode.KAFKA_STORAGE_ERROR
    core.topics.delete("t")
    core.refusal = None
    core.topics.create("t", 4)
    assert offsets(fetch(core, 0)) == [-1]


def test_a_simple_groups_offsets_and_then_the_group_expire_after_their_retention(core: FakeCore) -> None:
    commit(core, 3)
    core.pass_time(RETENTION_MS - CHECK_MS)
    assert offsets(fetch(core, 0)) == [3]
    core.pass_time(2 * CHECK_MS)
    assert offsets(fetch(core, 0)) == [-1]
    assert core.groups.state.registry.get("g") is None


def test_an_empty_groups_offsets_expire_from_when_it_became_empty(core: FakeCore) -> None:
    (member,) = stable_group(core, ClassicClient(core, session_ms=30 * MINUTE_MS))
    member.commit(5)
    for _ in range(600):
        core.pass_time(20 * MINUTE_MS)
        assert member.heartbeat() == ErrorCode.NONE
    assert offsets(fetch(core, 0)) == [5]
    member.leave()
    core.pass_time(RETENTION_MS - CHECK_MS)
    assert offsets(fetch(core, 0)) == [5]
    core.pass_time(2 * CHECK_MS)
    assert core.groups.state.registry.get("g") is None


def test_offsets_of_topics_that_a_living_group_no_longer_reads_expire(core: FakeCore) -> None:
    core.topics.create("u", 1)
    (member,) = stable_group(core, ClassicClient(core, session_ms=30 * MINUTE_MS))
    member.commit(5)
    member.commit(6, topic="u")
    for _ in range(RETENTION_MS // (20 * MINUTE_MS) + 1):
        core.pass_time(20 * MINUTE_MS)
        member.heartbeat()
    assert (offsets(fetch(core, 0)), offsets(fetch(core, 0, topic="u"))) == ([5], [-1])


def test_a_retention_that_an_old_client_asks_for_counts(core: FakeCore) -> None:
    commit(core, 3, version=4, retention_time_ms=CHECK_MS // 2)
    core.pass_time(CHECK_MS)
    assert offsets(fetch(core, 0)) == [-1]


def test_a_group_with_an_open_transaction_does_not_expire(core: FakeCore) -> None:
    commit(core, 3)
    commit_in_transaction(core, 8)
    core.pass_time(2 * RETENTION_MS)
    core.end_transaction(PRODUCER, "g", commit=True)
    assert offsets(fetch(core, 0)) == [8]


def test_an_empty_consumer_group_without_offsets_is_forgotten(core: FakeCore) -> None:
    member = ConsumerClient(core, "a", pattern="t")
    member.join()
    core.pass_time(CHECK_MS // 2)
    assert core.groups.state.registry.get("g") is not None
    core.pass_time(CHECK_MS)
    assert core.groups.state.registry.get("g") is None


def test_a_wall_clock_that_was_wrong_for_a_while_expires_nothing(core: FakeCore) -> None:
    commit(core, 10)
    core.clock.jump_ms = 365 * DAY_MS
    core.pass_time(2 * CHECK_MS)
    core.clock.jump_ms = 0
    core.pass_time(2 * CHECK_MS)
    assert offsets(fetch(core, 0)) == [10]


def test_a_retention_beyond_the_end_of_time_is_one_that_never_ends(core: FakeCore) -> None:
    assert codes(commit(core, 10, version=2, retention_time_ms=2**63 - 1)) == [ErrorCode.NONE]
    core.pass_time(2 * RETENTION_MS)
    assert offsets(fetch(core, 0)) == [10]
