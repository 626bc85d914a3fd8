"""A share consumer of many partitions comes and goes: no turn of the loop does more than a bounded piece of it."""

from collections.abc import Callable

import pytest

from headrace.broker.share.leader import PARTITIONS_PER_STEP
from headrace.broker.topics import Topic
from tests.unit.broker.share.bench import ACCEPT, GROUP, Bench, Member, acquired
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
    assert len(bench.core.share_leader.loaded(GROUP)) == PARTITIONS - PARTITIONS_PER_STEP
    while bench.core.slices.is_pending:
        bench.core.settle()
    assert not bench.core.share_leader.loaded(GROUP)


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
