"""Goal: the live view shows who holds what and for how long. Method: a real core, members that speak to it."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.broker.call import Call
from headrace.broker.share.view import group_view
from headrace.broker.topics import Topic
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import alter_share_group_offsets_request as alter
from tests.unit.broker.share.bench import ACCEPT, GROUP, RELEASE, Bench, Member

ACQUIRED, AVAILABLE, ACKNOWLEDGED = RecordState.ACQUIRED, RecordState.AVAILABLE, RecordState.ACKNOWLEDGED


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def topic(bench: Bench) -> Topic:
    """With 10 records; the group is there, and begins at the first of them."""
    topic = bench.core.topics.create("orders", partitions=2, configs={})
    bench.produce(topic, 10)
    reset(bench, "orders", 0)
    return topic


def reset(bench: Bench, topic: str, start_offset: int) -> None:
    partition = alter.AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=start_offset)
    asked = alter.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[partition])
    request = alter.AlterShareGroupOffsetsRequest(group_id=GROUP, topics=[asked])
    bench.core.handle(request, Call(api_version=0, connection_id=9))
    bench.core.settle()


def only(bench: Bench) -> SharePartitionState:
    ((place, view),) = group_view(bench.core, GROUP).items()
    assert place == (view.topic, view.partition) == ("orders", 0)
    return view


def test_records_that_are_held_show_their_holder_and_the_time_left(bench: Bench, topic: Topic) -> None:
    ann, bob = Member(bench, "ann"), Member(bench, "bob", connection_id=2)
    assert ann.take(topic, records_max=5) == [(0, 4, 1)]
    bench.advance(2)
    assert bob.take(topic, records_max=3, mode=1) == [(5, 7, 1)]
    ann.acknowledge(topic, (1, 1, ACCEPT), (2, 2, RELEASE))
    bench.advance(1)
    view = only(bench)
    assert [replace(run, lock_ms_left=None) for run in view.runs] == [
        StateRun(0, 0, ACQUIRED, 1, "ann"),
        StateRun(1, 1, ACKNOWLEDGED, 1),
        StateRun(2, 2, AVAILABLE, 1),
        StateRun(3, 4, ACQUIRED, 1, "ann"),
        StateRun(5, 7, ACQUIRED, 1, "bob"),
        StateRun(8, 9, AVAILABLE, 0),
    ]
    left = [run.lock_ms_left for run in view.runs]
    assert left[:1] + left[3:5] == pytest.approx([27_000, 27_000, 29_000], abs=900)
    assert left[1:3] + left[5:] == [None, None, None]
    assert (view.start_offset, view.next_offset, view.in_flight) == (0, 10, 10)
    assert (view.log_start_offset, view.log_end_offset) == (0, 10)
    assert (view.delivery_complete_count, view.window_max, view.is_live) == (1, 2000, True)


def test_what_nobody_serves_is_shown_as_it_is_written(bench: Bench, topic: Topic) -> None:
    ann = Member(bench, "ann")
    ann.take(topic)
    ann.acknowledge(topic, (1, 3, ACCEPT))
    ann.fetch(topic, epoch=-1)
    for disconnected in bench.core.on_disconnect:
        disconnected(1)
    assert bench.core.share_leader.loaded(GROUP) == []
    view = only(bench)
    assert view.runs == (
        StateRun(0, 0, AVAILABLE, 1),
        StateRun(1, 3, ACKNOWLEDGED, 1),
        StateRun(4, 9, AVAILABLE, 1),
    )
    assert (view.start_offset, view.next_offset, view.delivery_complete_count) == (0, 10, 3)


def test_after_a_restart_nobody_holds_a_record(tmp_path: Path) -> None:
    bench = Bench(metadata=tmp_path / "metadata.sqlite")
    topic = bench.topic("orders")
    bench.produce(topic, 10)
    reset(bench, "orders", 0)
    ann = Member(bench, "ann")
    ann.take(topic)
    ann.acknowledge(topic, (1, 3, ACCEPT))
    bench.restart()
    assert only(bench).runs == (StateRun(0, 0, AVAILABLE, 0), StateRun(1, 3, ACKNOWLEDGED, 1))


def test_a_group_of_committed_records_shows_how_far_it_can_read(bench: Bench, topic: Topic) -> None:
    assert only(bench).stable_offset is None
    bench.configure(**{"share.isolation.level": "read_committed"})
    assert only(bench).stable_offset == 10


def test_a_start_that_is_not_decided_is_none(bench: Bench, topic: Topic) -> None:
    bench.topic("fresh")
    view = group_view(bench.core, GROUP)["fresh", 0]
    assert (view.start_offset, view.next_offset, view.delivery_complete_count) == (None, None, None)
    assert view.runs == ()


def test_state_that_was_set_anew_is_shown_and_not_what_the_old_leader_holds(
    bench: Bench, topic: Topic
) -> None:
    Member(bench, "ann").take(topic)
    reset(bench, "orders", 7)
    view = only(bench)
    assert (view.start_offset, view.runs) == (7, ())


def test_partitions_come_in_order(bench: Bench, topic: Topic) -> None:
    bench.topic("a", partitions=2)
    assert list(group_view(bench.core, GROUP)) == [("a", 0), ("a", 1), ("orders", 0)]


def test_an_unknown_group_is_refused(bench: Bench) -> None:
    with pytest.raises(KafkaError, match="Group g not found") as refusal:
        group_view(bench.core, GROUP)
    assert refusal.value.code is ErrorCode.GROUP_ID_NOT_FOUND
