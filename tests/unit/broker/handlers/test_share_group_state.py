"""The share coordinator's five APIs (83 to 87) over the real store: initialize, write, read, summarize, delete."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.messages import (
    delete_share_group_state_request,
    initialize_share_group_state_request,
    read_share_group_state_request,
    read_share_group_state_summary_request,
    write_share_group_state_request,
)
from tests.unit.broker.groups.share_world import ShareWorld

NONE = ErrorCode.NONE
AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVED = 0, 1, 2, 4


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ShareWorld]:
    world = ShareWorld(tmp_path)
    world.new_topic("t", 2)
    yield world
    world.close()


def topic_id(world: ShareWorld) -> bytes:
    topic = world.core.topics.get("t")
    assert topic is not None
    return topic.id


def only(response):
    (topic,) = response.results
    (partition,) = topic.partitions
    return partition


def initialize(world: ShareWorld, partition=0, *, epoch=1, start=0, topic=None, group="g"):
    messages = initialize_share_group_state_request
    data = messages.PartitionData(partition=partition, state_epoch=epoch, start_offset=start)
    state = messages.InitializeStateData(topic_id=topic or topic_id(world), partitions=[data])
    return only(world.ask(messages.InitializeShareGroupStateRequest(group_id=group, topics=[state])))


def write(world: ShareWorld, *batches, epoch=1, leader=0, start=-1, count=-1, partition=0, version=1):
    messages = write_share_group_state_request
    data = messages.PartitionData(
        partition=partition,
        state_epoch=epoch,
        leader_epoch=leader,
        start_offset=start,
        delivery_complete_count=count,
        state_batches=[
            messages.StateBatch(
                first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
            )
            for first, last, state, count in batches
        ],
    )
    topic = messages.WriteStateData(topic_id=topic_id(world), partitions=[data])
    return only(world.ask(messages.WriteShareGroupStateRequest(group_id="g", topics=[topic]), version))


def read(world: ShareWorld, partition=0, *, leader=-1, topic=None):
    messages = read_share_group_state_request
    data = messages.PartitionData(partition=partition, leader_epoch=leader)
    state = messages.ReadStateData(topic_id=topic or topic_id(world), partitions=[data])
    return only(world.ask(messages.ReadShareGroupStateRequest(group_id="g", topics=[state])))


def summarize(world: ShareWorld, partition=0, topic=None):
    messages = read_share_group_state_summary_request
    data = messages.PartitionData(partition=partition)
    state = messages.ReadStateSummaryData(topic_id=topic or topic_id(world), partitions=[data])
    return only(world.ask(messages.ReadShareGroupStateSummaryRequest(group_id="g", topics=[state])))


def delete(world: ShareWorld, partition=0):
    messages = delete_share_group_state_request
    data = messages.PartitionData(partition=partition)
    state = messages.DeleteStateData(topic_id=topic_id(world), partitions=[data])
    return only(world.ask(messages.DeleteShareGroupStateRequest(group_id="g", topics=[state])))


def batches(result):
    return [
        (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count)
        for one in result.state_batches
    ]


def test_what_is_written_is_read_back_merged(world: ShareWorld) -> None:
    assert initialize(world, start=0).error_code == NONE
    assert write(world, (0, 4, ACKNOWLEDGED, 1), count=5).error_code == NONE
    assert write(world, (3, 9, AVAILABLE, 2), count=3).error_code == NONE
    result = read(world)
    assert (result.error_code, result.state_epoch, result.start_offset) == (NONE, 1, 0)
    assert batches(result) == [(0, 2, ACKNOWLEDGED, 1), (3, 9, AVAILABLE, 2)]


def test_a_summary_has_the_epochs_the_start_and_the_count(world: ShareWorld) -> None:
    initialize(world, epoch=4, start=2)
    write(world, (2, 3, ARCHIVED, 1), epoch=4, leader=7, count=2)
    result = summarize(world)
    assert (result.error_code, result.state_epoch, result.leader_epoch) == (NONE, 4, 7)
    assert (result.start_offset, result.delivery_complete_count) == (2, 2)


def test_what_is_not_initialized_is_refused_to_leaders_and_unknown_in_summaries(world: ShareWorld) -> None:
    assert read(world).error_code == ErrorCode.INVALID_REQUEST
    assert read(world).error_message == "Read operation on uninitialized share partition not allowed."
    assert write(world).error_code == ErrorCode.INVALID_REQUEST
    assert write(world).error_message == "Write operation on uninitialized share partition not allowed."
    result = summarize(world)
    assert (result.error_code, result.start_offset, result.state_epoch, result.leader_epoch) == (
        NONE,
        -1,
        0,
        0,
    )
    assert result.delivery_complete_count == -1


def test_epochs_of_the_past_are_fenced(world: ShareWorld) -> None:
    initialize(world, epoch=3)
    older = initialize(world, epoch=2)
    assert older.error_code == ErrorCode.FENCED_STATE_EPOCH
    assert write(world, epoch=2).error_code == ErrorCode.FENCED_STATE_EPOCH
    assert read(world, leader=5).error_code == NONE
    assert write(world, epoch=3, leader=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert read(world, leader=4).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert read(world, leader=-1).error_code == NONE


def test_initializing_again_begins_anew(world: ShareWorld) -> None:
    initialize(world)
    write(world, (0, 4, ACKNOWLEDGED, 1), count=5)
    assert initialize(world, epoch=2, start=-1).error_code == NONE
    result = read(world)
    assert (result.start_offset, batches(result)) == (-1, [])


def test_what_is_deleted_is_gone_and_deleting_it_again_is_fine(world: ShareWorld) -> None:
    initialize(world)
    assert delete(world).error_code == NONE
    assert delete(world).error_code == NONE
    assert read(world).error_code == ErrorCode.INVALID_REQUEST


def test_partitions_that_cannot_be_are_refused(world: ShareWorld) -> None:
    for call in (initialize, read, summarize):
        negative = call(world, -1)
        assert negative.error_code == ErrorCode.INVALID_REQUEST
        assert negative.error_message == "The partition id cannot be a negative number."
    assert delete(world, -1).error_code == ErrorCode.INVALID_REQUEST
    for call in (initialize, summarize):
        assert call(world, 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        unknown = call(world, 0, topic=b"x" * 16)
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert unknown.error_message == "This server does not host this topic-partition."


@pytest.mark.parametrize("batch", [(0, 4, ACQUIRED, 1), (0, 4, 9, 1), (4, 0, ACKNOWLEDGED, 1)])
def test_a_state_that_no_record_can_be_in_is_refused(world: ShareWorld, batch) -> None:
    initialize(world)
    assert write(world, batch).error_code == ErrorCode.INVALID_REQUEST
    assert batches(read(world)) == []


def test_each_partition_has_its_own_answer(world: ShareWorld) -> None:
    messages = initialize_share_group_state_request
    parts = [
        messages.PartitionData(partition=index, state_epoch=1, start_offset=index) for index in (0, 9, 1)
    ]
    topics = [messages.InitializeStateData(topic_id=topic_id(world), partitions=parts)]
    response = world.ask(messages.InitializeShareGroupStateRequest(group_id="g", topics=topics))
    answers = [(one.partition, one.error_code) for one in response.results[0].partitions]
    assert answers == [(0, NONE), (9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (1, NONE)]
    assert (world.state(topic_id(world), 1).start_offset, response.results[0].topic_id) == (
        1,
        topic_id(world),
    )


def test_a_request_without_a_group_or_topics_has_no_answers(world: ShareWorld) -> None:
    messages = initialize_share_group_state_request
    data = messages.InitializeStateData(topic_id=topic_id(world), partitions=[messages.PartitionData()])
    assert world.ask(messages.InitializeShareGroupStateRequest(group_id="", topics=[data])).results == []
    assert world.ask(messages.InitializeShareGroupStateRequest(group_id="g")).results == []


def test_a_disk_that_fails_is_said_of_each_partition(world: ShareWorld) -> None:
    initialize(world)
    world.core.failure = OSError("full")
    assert write(world, (0, 4, ACKNOWLEDGED, 1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    world.core.failure = None
    assert batches(read(world)) == []
