"""Clients that do not read: what is held for them has a bound, and nobody gets nothing."""

import pytest

from headrace.broker.call import Call
from headrace.broker.outgoing import CUT_OFF_BYTES_MIN, Outgoing
from headrace.broker.topics import Topic
from headrace.wire.batches import split
from headrace.wire.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from headrace.wire.messages.fetch_response import FetchResponse
from tests.unit.broker.share.bench import Bench, Member, acquired

LIMIT = 10_000
EVERYTHING = 1 << 30


@pytest.fixture
def bench() -> Bench:
    return Bench(**{"headrace.unread.response.bytes": LIMIT})


def fetched_bytes(bench: Bench, topic: Topic) -> int:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=EVERYTHING)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=EVERYTHING,
        session_epoch=-1,
        topics=[FetchTopic(topic=topic.name, partitions=[partition])],
    )
    response = bench.core.handle(request, Call(api_version=12, connection_id=1))
    assert isinstance(response, FetchResponse)
    return len(response.responses[0].partitions[0].records or b"")


def first_batch(topic: Topic) -> int:
    data = topic.partitions[0].log.reader.read(0, max_bytes=EVERYTHING).data
    return next(split(data))[1].size


def test_readers_that_do_not_read_get_less_and_less_but_never_nothing(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 2000)
    batch = first_batch(topic)
    sizes: list[int] = []
    for number in range(30):
        sizes.append(fetched_bytes(bench, topic))
        size = sizes[-1]
        bench.core.outgoing.congested(number, lambda size=size: size)  # type: ignore[misc]
    assert LIMIT // 2 - batch < sizes[0] <= LIMIT // 2
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] == batch
    assert sum(sizes) <= LIMIT + 30 * batch
    for number in range(30):
        bench.core.outgoing.relieved(number)
    assert fetched_bytes(bench, topic) == sizes[0]


def test_a_share_fetch_gets_one_batch_too_while_others_do_not_read(bench: Bench) -> None:
    topic = bench.topic()
    bench.produce(topic, 2000)
    bench.core.outgoing.congested(1, lambda: 10 * LIMIT)
    response = Member(bench, "a").fetch(topic, records_max=2000, max_bytes=EVERYTHING)
    assert acquired(response) == [(0, 4, 1)]
    assert len(response.responses[0].partitions[0].records or b"") == first_batch(topic)


def test_the_allowance_never_falls_below_nothing() -> None:
    outgoing = Outgoing(100)
    outgoing.congested(1, lambda: 1000)
    assert outgoing.allowance() == 0


def test_who_leaves_most_unread_is_cut_off_at_twice_the_bound() -> None:
    """Responses to other requests than fetches are as large as they are."""
    outgoing = Outgoing(10 * CUT_OFF_BYTES_MIN)
    cut_off: list[int] = []
    sizes = [1, 9, 3, 8, 0.5]
    for number, size in enumerate(sizes):
        outgoing.congested(
            number,
            lambda size=size: int(size * CUT_OFF_BYTES_MIN),
            lambda number=number: cut_off.append(number),
        )  # type: ignore[misc]
    assert cut_off == [1]
    assert outgoing.unread_bytes() == 12.5 * CUT_OFF_BYTES_MIN


def test_many_that_are_a_little_slow_are_not_cut_off() -> None:
    outgoing = Outgoing(100)
    cut_off: list[int] = []
    for number in range(10):
        outgoing.congested(number, lambda: CUT_OFF_BYTES_MIN, lambda number=number: cut_off.append(number))  # type: ignore[misc]
    assert not cut_off
