"""Requests for very many partitions: no turn of the loop does more than a bounded piece of them, and the answer is the
one that many small requests would get."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.call import Call
from headrace.broker.groups.share import ShareGroup
from headrace.broker.handlers import (
    alter_share_group_offsets,
    delete_groups,
    fetch,
    list_offsets,
    offset_commit,
    produce,
)
from headrace.broker.later import Later
from headrace.broker.topics import Topic
from headrace.broker.transactions import ending
from headrace.log.memory_disk import MemoryDisk
from headrace.wire.compression import Compression
from headrace.wire.errors import ErrorCode
from headrace.wire.message import Message, replaced
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.delete_groups_response import DeleteGroupsResponse
from headrace.wire.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.init_producer_id_response import InitProducerIdResponse
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.metadata_request import MetadataRequest
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from headrace.wire.records import NewRecord, build_batch
from headrace.wire.share_state import ShareKey
from tests.unit.broker.share.bench import GROUP, Bench, WhenTold
from tests.unit.work import operations

EVERYTHING = 1 << 30


@pytest.fixture
def bench() -> Bench:
    return Bench()


def topic_of(bench: Bench, partitions: int) -> Topic:
    return bench.core.topics.create("t", partitions=partitions, configs={})


def turns(bench: Bench, request: Message, version: int) -> tuple[Any, list[int]]:
    """The response, and the operations of each turn until it was there."""
    answers: list[Any] = []
    counts = [operations(lambda: answers.append(bench.core.handle(request, Call(api_version=version))))]
    (answer,) = answers
    while isinstance(answer, Later) and not answer.is_done:
        counts.append(operations(bench.core.settle))
    return answer.value if isinstance(answer, Later) else answer, counts


def produce_to(indexes: range, *, acks: int = 1, name: str = "t") -> ProduceRequest:
    batch = build_batch([NewRecord(None, b"v", (), 0)])
    return ProduceRequest(
        acks=acks,
        topic_data=[
            TopicProduceData(
                name=name,
                partition_data=[PartitionProduceData(index=index, records=batch) for index in indexes],
            )
        ],
    )


def fetch_from(indexes: range, *, wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=EVERYTHING,
        session_epoch=-1,
        topics=[
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=EVERYTHING)
                    for index in indexes
                ],
            )
        ],
    )


def list_offsets_of(indexes: range, timestamp: int = -1) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=partitions)])


@pytest.mark.parametrize(
    ("request_for", "version", "per_step"),
    [
        (produce_to, 12, produce.PARTITIONS_PER_STEP),
        (fetch_from, 12, fetch.PARTITIONS_PER_STEP),
        (list_offsets_of, 7, list_offsets.PARTITIONS_PER_STEP),
    ],
)
def test_twice_as_many_partitions_take_more_turns_and_not_longer_ones(
    request_for: Callable[[range], Message], version: int, per_step: int
) -> None:
    longest: list[int] = []
    for steps in (3, 6):
        bench = Bench()
        topic_of(bench, steps * per_step)
        response, counts = turns(bench, request_for(range(steps * per_step)), version)
        assert len(counts) >= steps
        longest.append(max(counts))
        (answered,) = response.topics if hasattr(response, "topics") else response.responses
        partitions = getattr(answered, "partition_responses", None) or answered.partitions
        assert [getattr(one, "index", getattr(one, "partition_index", None)) for one in partitions] == [
            *range(steps * per_step)
        ]
        assert not any(one.error_code for one in partitions)
    assert longest[1] < 1.5 * longest[0]


def test_searches_by_time_count_for_more_than_looking_at_an_offset(bench: Bench) -> None:
    partitions = list_offsets.PARTITIONS_PER_STEP
    topic_of(bench, partitions)
    assert len(turns(bench, list_offsets_of(range(partitions)), 7)[1]) == 1
    assert len(turns(bench, list_offsets_of(range(partitions), 0), 7)[1]) == list_offsets.SEARCH_COST


def packed_batch(records: int) -> bytes:
    """The last record is the youngest."""
    made = [NewRecord(None, b"v", (), 1_000 + number) for number in range(records)]
    return build_batch(made, compression=Compression.ZSTD)


@pytest.mark.parametrize("timestamp", [-3, 0, 1_100])
def test_searches_by_time_open_batches_beside_the_loop_one_at_a_time(timestamp: int) -> None:
    longest: list[int] = []
    for records in (200, 2_000):
        runner = WhenTold()
        bench = Bench(runner=runner)
        topic = topic_of(bench, 100)
        for partition in topic.partitions:
            partition.log.append(packed_batch(records), now_ms=0)
        answers: list[Any] = []
        request = list_offsets_of(range(100), timestamp)
        counts = [
            operations(lambda: answers.append(bench.core.handle(request, Call(api_version=7))))  # noqa: B023
        ]
        opened = 0
        while not answers[0].is_done:
            assert len(runner.waiting) <= 1
            if runner.waiting:
                runner.step()
                opened += 1
            counts.append(operations(bench.core.settle))
        assert opened == 100
        longest.append(max(counts))
        found = {(one.timestamp, one.offset) for one in answers[0].value.topics[0].partitions}
        wanted = {-3: records - 1, 0: 0, 1_100: 100}[timestamp]
        assert found == {(1_000 + wanted, wanted)}
    assert longest[1] < 1.2 * longest[0]


def test_a_search_that_fails_on_its_worker_refuses_its_partition_alone(bench: Bench) -> None:
    topic = topic_of(bench, 2)
    topic.partitions[0].log.append(build_batch([NewRecord(None, b"v", (), 7)]), now_ms=0)
    log = topic.partitions[1].log
    log.append(packed_batch(200), now_ms=0)
    assert isinstance(bench.disk, MemoryDisk)
    bench.disk.flip_bit(log.segments[0].path, 8 * 70)
    response, _ = turns(bench, list_offsets_of(range(2), 1), 7)
    sound, damaged = response.topics[0].partitions
    assert (sound.error_code, sound.offset) == (ErrorCode.NONE, 0)
    assert (damaged.error_code, damaged.offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def alter_of(indexes: range, start_offset: int = 3) -> AlterShareGroupOffsetsRequest:
    partitions = [
        AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start_offset)
        for index in indexes
    ]
    topics = [AlterShareGroupOffsetsRequestTopic(topic_name="t", partitions=partitions)]
    return AlterShareGroupOffsetsRequest(group_id=GROUP, topics=topics)


def starts_of(bench: Bench, topic: Topic) -> list[int | None]:
    keys = [ShareKey(GROUP, topic.id, partition.index) for partition in topic.partitions]
    states = [bench.core.share_state.get(key) for key in keys]
    return [state.start_offset if state is not None else None for state in states]


def test_offsets_of_a_share_group_are_set_a_few_a_turn(bench: Bench) -> None:
    step = alter_share_group_offsets.PARTITIONS_PER_STEP
    topic = topic_of(bench, 4 * step)
    turns(bench, alter_of(range(1)), 0)
    response, counts = turns(bench, alter_of(range(2 * step)), 0)
    assert len(counts) == 2
    assert {one.error_code for one in response.responses[0].partitions} == {ErrorCode.NONE}
    assert starts_of(bench, topic) == [3] * 2 * step + [None] * 2 * step
    _, more = turns(bench, alter_of(range(4 * step)), 0)
    assert len(more) == 4
    assert max(more) < 1.2 * max(counts)
    group = bench.core.groups.registry.require_type(GROUP, ShareGroup, "share")
    assert group.rules.initialized[topic.id].partitions == tuple(range(4 * step))


def test_the_rest_of_a_share_groups_offsets_is_refused_once_it_has_a_member(bench: Bench) -> None:
    step = alter_share_group_offsets.PARTITIONS_PER_STEP
    topic = topic_of(bench, 3 * step)
    answer = bench.core.handle(alter_of(range(3 * step)), Call(api_version=0))
    assert isinstance(answer, Later)
    join = ShareGroupHeartbeatRequest(
        group_id=GROUP, member_id="m", member_epoch=0, subscribed_topic_names=["t"]
    )
    bench.core.handle(join, Call(api_version=1))
    while not answer.is_done:
        bench.core.settle()
    codes = [one.error_code for one in answer.value.responses[0].partitions]  # type: ignore[attr-defined]
    assert codes == [ErrorCode.NONE] * step + [ErrorCode.NON_EMPTY_GROUP] * 2 * step
    assert starts_of(bench, topic)[:step] == [3] * step
    assert 3 not in starts_of(bench, topic)[step:]


def test_offsets_of_a_topic_that_is_deleted_while_they_are_set_are_refused(bench: Bench) -> None:
    step = alter_share_group_offsets.PARTITIONS_PER_STEP
    topic_of(bench, 2 * step)
    answer = bench.core.handle(alter_of(range(2 * step)), Call(api_version=0))
    assert isinstance(answer, Later)
    bench.core.topics.delete("t")
    again = topic_of(bench, 2 * step)
    while not answer.is_done:
        bench.core.settle()
    codes = [one.error_code for one in answer.value.responses[0].partitions]  # type: ignore[attr-defined]
    assert codes == [ErrorCode.NONE] * step + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * step
    assert starts_of(bench, again) == [None] * 2 * step


def begin_transaction(bench: Bench, partitions: int) -> InitProducerIdResponse:
    """One that has written to each of the partitions of "t"."""
    ask = bench.core.handle
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    producer, _ = turns(bench, init, 4)
    assert isinstance(producer, InitProducerIdResponse)
    added = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name="t", partitions=[*range(partitions)])],
    )
    answer = ask(added, Call(api_version=3))
    assert not isinstance(answer, Later) or answer.is_done
    return producer


def end_of(producer: InitProducerIdResponse) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id="x",
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=True,
    )


def test_the_markers_of_a_large_transaction_are_written_a_few_a_turn(bench: Bench) -> None:
    step = ending.MARKERS_PER_STEP
    topic = topic_of(bench, 10 * step)
    turns(bench, produce_to(range(10 * step)), 12)
    producer = begin_transaction(bench, 10 * step)
    answer = bench.core.handle(end_of(producer), Call(api_version=3))
    assert isinstance(answer, Later)
    marked = [sum(partition.log.end_offset == 2 for partition in topic.partitions)]
    while not answer.is_done:
        bench.core.settle()
        marked.append(sum(partition.log.end_offset == 2 for partition in topic.partitions))
    assert marked == [step * number for number in range(1, 11)]
    assert answer.value.error_code == ErrorCode.NONE  # type: ignore[attr-defined]


def test_a_topic_deleted_between_two_turns_gets_no_more_markers_nor_does_a_later_one_of_its_name(
    bench: Bench,
) -> None:
    step = ending.MARKERS_PER_STEP
    topic_of(bench, 3 * step)
    turns(bench, produce_to(range(3 * step)), 12)
    producer = begin_transaction(bench, 3 * step)
    answer = bench.core.handle(end_of(producer), Call(api_version=3))
    assert isinstance(answer, Later)
    bench.core.topics.delete("t")
    again = topic_of(bench, 3 * step)
    while not answer.is_done:
        bench.core.settle()
    assert answer.value.error_code == ErrorCode.NONE  # type: ignore[attr-defined]
    assert {partition.log.end_offset for partition in again.partitions} == {0}


def test_write_txn_markers_are_written_a_few_a_turn(bench: Bench) -> None:
    step = ending.MARKERS_PER_STEP
    topic = topic_of(bench, 4 * step)
    turns(bench, produce_to(range(4 * step)), 12)
    begin_transaction(bench, 4 * step)
    places = WritableTxnMarkerTopic(name="t", partition_indexes=[*range(4 * step)])
    marker = WritableTxnMarker(
        producer_id=9, producer_epoch=0, transaction_result=False, topics=[places], coordinator_epoch=0
    )
    response, counts = turns(bench, WriteTxnMarkersRequest(markers=[marker]), 1)
    assert len(counts) == 4
    assert len(response.markers[0].topics[0].partitions) == 4 * step
    assert {partition.log.end_offset for partition in topic.partitions} == {2}


def test_a_parked_fetch_of_many_partitions_is_answered_over_several_turns(bench: Bench) -> None:
    partitions = 3 * fetch.PARTITIONS_PER_STEP
    topic_of(bench, partitions)
    later = bench.core.handle(fetch_from(range(partitions), wait_ms=60_000), Call(api_version=12))
    assert isinstance(later, Later)
    bench.core.handle(produce_to(range(partitions - 1, partitions)), Call(api_version=12))
    bench.core.settle()
    assert not later.is_done
    while bench.core.slices.is_pending:
        bench.core.settle()
    (answered,) = later.value.responses  # type: ignore[attr-defined]
    assert [one.partition_index for one in answered.partitions if one.records] == [partitions - 1]


def test_first_writes_make_files_and_so_fewer_of_them_go_into_a_turn(bench: Bench) -> None:
    partitions = produce.PARTITIONS_PER_STEP
    topic_of(bench, partitions)
    assert len(turns(bench, produce_to(range(partitions)), 12)[1]) > 2
    assert len(turns(bench, produce_to(range(partitions)), 12)[1]) == 1


def test_partitions_that_are_not_there_are_refused_in_their_place(bench: Bench) -> None:
    partitions = 2 * produce.PARTITIONS_PER_STEP
    topic_of(bench, partitions)
    response, _ = turns(bench, produce_to(range(partitions + 1)), 12)
    codes = [one.error_code for one in response.responses[0].partition_responses]
    assert codes == [0] * partitions + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_topic_deleted_between_two_turns_takes_no_more_records(bench: Bench) -> None:
    partitions = 3 * produce.PARTITIONS_PER_STEP
    topic = topic_of(bench, partitions)
    later = bench.core.handle(produce_to(range(partitions)), Call(api_version=12))
    assert isinstance(later, Later)
    bench.core.topics.delete("t")
    while not later.is_done:
        bench.core.settle()
    codes = [one.error_code for one in later.value.responses[0].partition_responses]  # type: ignore[attr-defined]
    written = [
        partition.index for partition in topic.partitions if partition.opened_log and partition.log.size
    ]
    assert 0 < len(written) < partitions
    assert codes == [0] * len(written) + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * (partitions - len(written))


def test_produce_without_acks_to_many_partitions_is_written_and_not_answered(bench: Bench) -> None:
    partitions = 2 * produce.PARTITIONS_PER_STEP
    topic = topic_of(bench, partitions)
    response, _ = turns(bench, produce_to(range(partitions), acks=0), 12)
    assert response is None
    assert all(partition.log.end_offset == 1 for partition in topic.partitions)


@pytest.mark.parametrize(
    ("request_", "version"),
    [(MetadataRequest(topics=None), 12), (DescribeTopicPartitionsRequest(topics=[]), 0)],
)
def test_descriptions_of_topics_open_no_logs(bench: Bench, request_: Message, version: int) -> None:
    topic = topic_of(bench, 3)
    response, _ = turns(bench, request_, version)
    assert [len(described.partitions) for described in response.topics] == [3]
    assert not any(partition.opened_log for partition in topic.partitions)


def commit_of(indexes: range) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=0) for index in indexes
    ]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)],
    )


def test_very_many_offsets_are_prepared_in_steps_and_committed_all_at_once(bench: Bench) -> None:
    count = 4 * offset_commit.OFFSETS_PER_STEP
    topic_of(bench, count)
    store = bench.core.groups.state.offsets
    answer = bench.core.handle(commit_of(range(count)), Call(api_version=9))
    assert isinstance(answer, Later)
    steps = 0
    while not answer.is_done:
        assert store.get("g", "t", 0) is None
        bench.core.settle()
        steps += 1
    assert steps == 4
    assert {partition.error_code for partition in answer.value.topics[0].partitions} == {ErrorCode.NONE}
    assert all(store.get("g", "t", index) is not None for index in range(count))


def test_groups_are_deleted_so_many_a_turn(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delete_groups, "GROUPS_PER_STEP", 20)
    topic_of(bench, 1)
    names = [f"g{number}" for number in range(90)]

    def delete(named: list[str]) -> tuple[DeleteGroupsResponse, list[int]]:
        for name in named:
            bench.core.handle(replaced(commit_of(range(1)), "group_id", name), Call(api_version=9))
        return turns(bench, DeleteGroupsRequest(groups_names=[*named, "missing"]), 2)

    _, few = delete(names[:30])
    response, many = delete(names)
    assert [one.group_id for one in response.results] == [*names, "missing"]
    assert [one.error_code for one in response.results] == [0] * 90 + [ErrorCode.GROUP_ID_NOT_FOUND]
    assert [bench.core.groups.registry.get(name) for name in names] == [None] * 90
    assert len(many) == len(few) + 3
    assert max(many) < 1.5 * max(few)


def test_one_step_of_offsets_does_not_grow_with_their_number(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_commit, "OFFSETS_PER_STEP", 50)
    topic_of(bench, 300)
    turns(bench, commit_of(range(1)), 9)
    few = turns(bench, commit_of(range(150)), 9)[1]
    many = turns(bench, commit_of(range(300)), 9)[1]
    assert len(many) == len(few) + 3
    assert max(many[1:-1]) < 1.2 * max(few[1:-1])


def test_offsets_of_a_topic_that_is_deleted_while_they_are_prepared_are_refused(bench: Bench) -> None:
    count = 2 * offset_commit.OFFSETS_PER_STEP
    topic_of(bench, count)
    answer = bench.core.handle(commit_of(range(count)), Call(api_version=9))
    assert isinstance(answer, Later)
    bench.core.topics.delete("t")
    while not answer.is_done:
        bench.core.settle()
    codes = {partition.error_code for partition in answer.value.topics[0].partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert bench.core.groups.state.offsets.get("g", "t", 0) is None


def test_fetch_sessions_may_have_as_many_partitions_as_a_request_may_name() -> None:
    bench = Bench(**{"headrace.request.elements.max": 1000})
    request = fetch_from(range(1000))
    request.session_epoch = 0
    opened, _ = turns(bench, request, 12)
    more = fetch_from(range(1000, 1001))
    more.session_id, more.session_epoch = opened.session_id, 1
    response, _ = turns(bench, more, 12)
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert len(bench.core.fetch_sessions) == 0


def test_share_sessions_may_have_as_many_partitions_as_a_request_may_name() -> None:
    bench = Bench(**{"headrace.request.elements.max": 1000})
    assert bench.core.share_leader.sessions.partitions_max == 1000


def test_a_search_by_time_ends_when_its_client_has_gone() -> None:
    runner = WhenTold()
    bench = Bench(runner=runner)
    topic = topic_of(bench, 3)
    for partition in topic.partitions:
        for _ in range(5):
            partition.log.append(packed_batch(200), now_ms=0)
    answer = bench.core.handle(list_offsets_of(range(3), 1_199), Call(api_version=7))
    assert isinstance(answer, Later)
    runner.step()
    bench.core.settle()
    assert len(runner.waiting) == 1
    answer.abandon()
    runner.step()
    while bench.core.slices.is_pending:
        bench.core.settle()
    assert not runner.waiting
    assert not answer.is_done


def produce_in_transaction(producer: InitProducerIdResponse, indexes: range) -> ProduceRequest:
    batch = build_batch(
        [NewRecord(None, b"v", (), 0)],
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = [PartitionProduceData(index=index, records=batch) for index in indexes]
    topics = [TopicProduceData(name="t", partition_data=data)]
    return ProduceRequest(acks=1, transactional_id="x", topic_data=topics)


@pytest.mark.parametrize("partitions", [10, 200])
def test_partitions_of_a_request_join_its_transaction_with_one_record_of_the_journal(
    bench: Bench, partitions: int
) -> None:
    """Each record names all partitions of the transaction: one for each would grow with the square."""
    topic_of(bench, partitions)
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    producer, _ = turns(bench, init, 4)
    journal = bench.core.topics.internal("__transaction_state")
    before = sum(partition.log.end_offset for partition in journal.partitions)
    response, _ = turns(bench, produce_in_transaction(producer, range(partitions)), 12)
    assert {one.error_code for one in response.responses[0].partition_responses} == {ErrorCode.NONE}
    assert sum(partition.log.end_offset for partition in journal.partitions) == before + 1
    transaction = bench.core.transactions.describe("x")
    assert transaction is not None
    assert len(transaction.partitions) == partitions


def test_each_partition_of_a_fenced_producers_request_is_told_so(bench: Bench) -> None:
    topic_of(bench, 3)
    init = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
    producer, _ = turns(bench, init, 4)
    turns(bench, init, 4)
    response, _ = turns(bench, produce_in_transaction(producer, range(4)), 12)
    assert [one.error_code for one in response.responses[0].partition_responses] == [
        ErrorCode.INVALID_PRODUCER_EPOCH
    ] * 3 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    transaction = bench.core.transactions.describe("x")
    assert transaction is not None
    assert not transaction.partitions
