"""A share consumer of many partitions comes and goes: no turn of the loop does more than a bounded piece of it."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.broker.share.leader import PARTITIONS_PER_STEP
from headrace.broker.topics import PARTITIONS_PER_STEP as DIRECTORIES_PER_STEP
from headrace.broker.topics import Topic
from headrace.wire.messages.share_acknowledge_request import (
    AcknowledgementBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.share_state import ShareKey
from tests.unit.broker.share.bench import ACCEPT, GROUP, Bench, Member, acquired
from tests.unit.log.logs import delete_records
from tests.unit.work import operations

PARTITIONS = 4 * PARTITIONS_PER_STEP


@pytest.fixture
def bench() -> Bench:
    return Bench()


def topic_of_many(bench: Bench, partitions: int = PARTITIONS, *, records: int = 1) -> Topic:
    topic = bench.topic(partitions=partitions)
    for index in range(partitions):
        bench.produce(topic, records, index=index)
    return topic


def turns(bench: Bench, begin: Callable[[], object]) -> list[int]:
    """The operations of each turn until nothing is left to do."""
    counts = [operations(begin)]
    while bench.core.slices.is_pending:
        counts.append(operations(bench.core.settle))
    return counts


def disconnect(bench: Bench, connection_id: int = 1) -> Callable[[], None]:
    def run() -> None:
        for told in bench.core.on_disconnect:
            told(connection_id)

    return run


def lost_consumer(partitions: int) -> list[int]:
    bench = Bench()
    topic = topic_of_many(bench, partitions)
    Member(bench, "a").fetch(topic, records_max=10 * partitions, indexes=range(partitions))
    counts = turns(bench, disconnect(bench))
    assert not bench.core.share_leader.loaded(GROUP)
    return counts


def test_a_lost_consumer_is_dealt_with_in_bounded_steps_and_in_linear_work() -> None:
    small, large = lost_consumer(PARTITIONS), lost_consumer(2 * PARTITIONS)
    assert len(large) > len(small) > 4
    assert sum(large) < 2.5 * sum(small)
    # The first turn also looks who holds what, which is a fraction of giving it back.
    assert max(large) < 2 * max(small)


def test_a_deleted_topic_is_unloaded_in_bounded_steps(bench: Bench) -> None:
    topic = topic_of_many(bench)
    Member(bench, "a").fetch(topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS))
    bench.core.topics.delete(topic.name)
    left = [PARTITIONS]
    while bench.core.slices.is_pending:
        bench.core.settle()
        left.append(len(bench.core.share_leader.loaded(GROUP)))
    assert left[-1] == 0
    assert max(before - after for before, after in pairwise(left)) == PARTITIONS_PER_STEP


def test_the_directories_of_a_deleted_topic_are_moved_a_few_a_turn(bench: Bench) -> None:
    topic = topic_of_many(bench, 3 * DIRECTORIES_PER_STEP)
    gone = bench.core.topics.delete(topic.name)
    moved = [0]
    while not gone.is_done:
        bench.core.settle()
        moved.append(sum(name.endswith("-delete") for name in bench.disk.list()))
    assert moved[-1] == 3 * DIRECTORIES_PER_STEP
    assert max(after - before for before, after in pairwise(moved)) == DIRECTORIES_PER_STEP


def test_records_of_a_lost_consumer_are_free_for_whoever_comes_before_their_turn(bench: Bench) -> None:
    topic = topic_of_many(bench)
    Member(bench, "a").fetch(topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS))
    disconnect(bench)()
    assert bench.core.slices.is_pending
    response = Member(bench, "b", connection_id=2).fetch(topic, indexes=[PARTITIONS - 1])
    assert acquired(response, PARTITIONS - 1) == [(0, 0, 2)]


def test_a_consumer_that_comes_back_at_once_keeps_what_it_acquires_anew(bench: Bench) -> None:
    topic = topic_of_many(bench)
    Member(bench, "a").fetch(topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS))
    disconnect(bench)()
    again = Member(bench, "a", connection_id=2)
    response = again.fetch(topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS))
    while bench.core.slices.is_pending:
        bench.core.settle()
    assert all(acquired(response, index) == [(0, 0, 2)] for index in range(PARTITIONS))
    assert again.settle(topic, (0, 0, ACCEPT)) == 0


def test_the_delivery_count_of_a_lost_consumers_records_is_kept_when_they_are_unloaded(bench: Bench) -> None:
    topic = topic_of_many(bench)
    Member(bench, "a").fetch(topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS))
    disconnect(bench)()
    while bench.core.slices.is_pending:
        bench.core.settle()
    response = Member(bench, "b", connection_id=2).fetch(
        topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS)
    )
    assert {acquired(response, index)[0] for index in range(PARTITIONS)} == {(0, 0, 2)}


def fetch_turns(partitions: int, *, records: int) -> list[int]:
    bench = Bench()
    topic = topic_of_many(bench, partitions, records=records)
    member = Member(bench, "a")
    return turns(
        bench,
        lambda: member.ask_fetch(topic, records_max=10 * partitions, indexes=range(partitions), wait_ms=1000),
    )


def test_a_first_fetch_loads_and_acquires_in_bounded_steps() -> None:
    for records in (0, 1):
        small, large = fetch_turns(PARTITIONS, records=records), fetch_turns(2 * PARTITIONS, records=records)
        assert len(large) > len(small) >= 4
        # One turn looks at all of them, to see whether the fetch has to wait; that is a fraction of loading them.
        assert max(large) < 2 * max(small)


def test_a_fetch_of_many_partitions_gets_what_there_is_in_each(bench: Bench) -> None:
    topic = topic_of_many(bench)
    response = Member(bench, "a").fetch(topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS))
    assert all(acquired(response, index) == [(0, 0, 1)] for index in range(PARTITIONS))


def test_a_consumer_that_goes_in_the_middle_of_its_fetch_acquires_no_more(bench: Bench) -> None:
    topic = topic_of_many(bench)
    later = Member(bench, "a").ask_fetch(topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS))
    assert isinstance(later, Later)
    while not any(loaded.engine.holders for loaded in bench.core.share_leader.loaded(GROUP)):
        bench.core.settle()
    later.abandon()
    disconnect(bench)()
    while bench.core.slices.is_pending:
        bench.core.settle()
    assert not any(loaded.engine.holders for loaded in bench.core.share_leader.loaded(GROUP))
    response = Member(bench, "b", connection_id=2).fetch(
        topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS)
    )
    counts = [acquired(response, index)[0] for index in range(PARTITIONS)]
    assert counts[0] == (0, 0, 2)
    assert counts[-1] == (0, 0, 1)


def test_a_parked_fetch_of_many_partitions_is_woken_by_records_that_come_while_it_looks(bench: Bench) -> None:
    topic = topic_of_many(bench, records=0)
    rival = Member(bench, "b", connection_id=2)
    later = Member(bench, "a").ask_fetch(topic, indexes=range(PARTITIONS), wait_ms=60_000)
    assert isinstance(later, Later)
    while bench.core.slices.is_pending:
        bench.core.settle()
    bench.produce(topic, 1, index=PARTITIONS - 1)
    assert bench.core.slices.is_pending
    assert acquired(rival.fetch(topic, indexes=[PARTITIONS - 1]), PARTITIONS - 1) == [(0, 0, 1)]
    bench.produce(topic, 1, index=0)
    while bench.core.slices.is_pending or bench.core.parked.is_pending:
        bench.core.settle()
    assert acquired(later.value, 0) == [(0, 0, 1)]


def test_a_parked_fetch_of_many_partitions_is_answered_when_its_time_is_up(bench: Bench) -> None:
    topic = topic_of_many(bench, records=0)
    later = Member(bench, "a").ask_fetch(topic, indexes=range(PARTITIONS), wait_ms=1000)
    assert isinstance(later, Later)
    while bench.core.slices.is_pending:
        bench.core.settle()
    bench.clock.advance(1000)
    while bench.core.is_due():
        bench.core.settle()
    assert len(later.value.responses[0].partitions) == PARTITIONS
    assert len(bench.core.parked) == 0


def test_answers_for_many_partitions_are_taken_in_bounded_steps(bench: Bench) -> None:
    topic = topic_of_many(bench)
    Member(bench, "a").fetch(topic, records_max=10 * PARTITIONS, indexes=range(PARTITIONS))
    request = ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id="a",
        share_session_epoch=1,
        topics=[
            AcknowledgeTopic(
                topic_id=topic.id,
                partitions=[
                    AcknowledgePartition(
                        partition_index=index,
                        acknowledgement_batches=[
                            AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
                        ],
                    )
                    for index in range(PARTITIONS)
                ],
            )
        ],
    )
    later = bench.core.handle(request, Call(api_version=2, connection_id=1))
    assert isinstance(later, Later)
    steps = 1
    while not later.is_done:
        bench.core.settle()
        steps += 1
    assert steps == PARTITIONS // PARTITIONS_PER_STEP
    (answered,) = later.value.responses  # type: ignore[attr-defined]
    assert [(one.partition_index, one.error_code) for one in answered.partitions] == [
        (index, 0) for index in range(PARTITIONS)
    ]
    assert not any(loaded.engine.holders for loaded in bench.core.share_leader.loaded(GROUP))


def join(bench: Bench, topic: Topic) -> None:
    request = ShareGroupHeartbeatRequest(
        group_id="joining", member_id="m" * 22, member_epoch=0, subscribed_topic_names=[topic.name]
    )
    response = bench.core.handle(request, Call(api_version=1, connection_id=1))
    assert response.error_code == 0  # type: ignore[union-attr]


def state_offsets(bench: Bench) -> list[tuple[int, int]]:
    """Records and batches in the state topic."""
    logs = [partition.log for partition in bench.core.topics.internal("__share_group_state").partitions]
    return [(log.end_offset, len(list(log.reader.batches()))) for log in logs]


def test_a_group_that_joins_many_partitions_writes_their_states_in_few_batches(tmp_path: Path) -> None:
    bench = Bench(metadata=tmp_path / "metadata.sqlite")
    topic = bench.core.topics.create("wide", partitions=PARTITIONS, configs={})
    before = state_offsets(bench)
    join(bench, topic)
    written = [
        (records - records_before, batches - batches_before)
        for (records, batches), (records_before, batches_before) in zip(
            state_offsets(bench), before, strict=True
        )
    ]
    assert sum(records for records, _ in written) == PARTITIONS
    assert max(batches for _, batches in written) == 1
    bench.restart()
    states = [bench.core.share_state.get(ShareKey("joining", topic.id, index)) for index in range(PARTITIONS)]
    assert all(state is not None and state.start_offset == -1 for state in states)


def test_a_deleted_topic_takes_its_states_with_it_in_few_batches_whatever_others_there_are(
    bench: Bench,
) -> None:
    topic = bench.core.topics.create("wide", partitions=PARTITIONS, configs={})
    join(bench, topic)
    few = operations(lambda: bench.core.share_state._note_topic_deleted(topic))
    keys = list(bench.core.share_state.keys())
    assert not [key for key in keys if key.topic_id == topic.id]
    bench.topic(partitions=PARTITIONS)
    other = bench.core.topics.create("other", partitions=PARTITIONS, configs={})
    join(bench, other)
    before = state_offsets(bench)
    many = operations(lambda: bench.core.share_state._note_topic_deleted(other))
    assert many < 1.2 * few
    batches = [now[1] - then[1] for now, then in zip(state_offsets(bench), before, strict=True)]
    assert max(batches) == 1


def test_state_that_was_written_in_one_batch_and_pruned_in_part_is_read_at_the_next_start(
    tmp_path: Path,
) -> None:
    bench = Bench(metadata=tmp_path / "metadata.sqlite")
    topic = bench.core.topics.create("wide", partitions=PARTITIONS, configs={})
    join(bench, topic)
    keys = [ShareKey("joining", topic.id, index) for index in range(PARTITIONS)]
    states = {key: bench.core.share_state.get(key) for key in keys}
    renewed = {key for key, state in states.items() if state is not None and state.snapshot_at < 3}
    for key in renewed:
        bench.core.share_state.renew(key)
    for partition in bench.core.topics.internal("__share_group_state").partitions:
        delete_records(partition.log, 3)
    bench.restart(clean=False)
    assert bench.core.journals.is_sound("__share_group_state")
    assert all(bench.core.share_state.get(key) is not None for key in keys)


def last_answer_of(topic: Topic) -> ShareAcknowledgeRequest:
    """Accepts the first record of each partition and closes the session of "a"."""
    batch = AcknowledgementBatch(first_offset=0, last_offset=0, acknowledge_types=[ACCEPT])
    places = [
        AcknowledgePartition(partition_index=partition.index, acknowledgement_batches=[batch])
        for partition in topic.partitions
    ]
    return ShareAcknowledgeRequest(
        group_id=GROUP,
        member_id="a",
        share_session_epoch=-1,
        topics=[AcknowledgeTopic(topic_id=topic.id, partitions=places)],
    )


def test_the_end_of_an_old_session_gives_back_nothing_of_a_new_one(bench: Bench) -> None:
    """The last request of a session takes several turns, and its member opens the next one on another connection."""
    topic = topic_of_many(bench, 3 * PARTITIONS_PER_STEP, records=2)
    old = Member(bench, "a", connection_id=1)
    old.fetch(topic, records_max=10 * PARTITIONS, indexes=range(3 * PARTITIONS_PER_STEP))
    answer = bench.core.handle(last_answer_of(topic), Call(api_version=2, connection_id=1))
    assert isinstance(answer, Later)
    new = Member(bench, "a", connection_id=2)
    assert new.take(topic) == []
    while not answer.is_done:
        bench.core.settle()
    assert Member(bench, "b", connection_id=3).take(topic) == []
    assert new.settle(topic, (1, 1, ACCEPT)) == 0


def test_a_connection_that_closes_during_the_end_of_its_session_leaves_nothing_behind(bench: Bench) -> None:
    topic = topic_of_many(bench, 3 * PARTITIONS_PER_STEP)
    Member(bench, "a").fetch(topic, records_max=10 * PARTITIONS, indexes=range(3 * PARTITIONS_PER_STEP))
    assert isinstance(bench.core.handle(last_answer_of(topic), Call(api_version=2, connection_id=1)), Later)
    turns(bench, disconnect(bench))
    assert not bench.core.share_leader._left
    assert not bench.core.share_leader.loaded(GROUP)
