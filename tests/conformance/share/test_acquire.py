"""What a fetch acquires: how many records, from which partition, when it waits and what wakes it.

Batches matter more than records here: in the usual mode a batch is never cut, in record_limit (KIP-1206) it is.
Scenario numbers are those of docs/concepts/share-semantics.md.
"""

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import (
    ACCEPT,
    RECORD_LIMIT,
    RELEASE,
    NewMember,
    ShareMember,
    either,
    fill,
    new_queue,
    offsets_of,
    set_group,
)
from tests.conformance.steps import batch, new_topic, now_ms, produced
from tests.conformance.wire_client import NEVER_MS, WireClient

"""Less than a fetch would wait, with room for a busy machine."""
DAY_MS = 86_400_000


@pytest.mark.parametrize(("batch_size", "acquired"), [(2, [(0, 4, 1), (5, 9, 1)]), (100, [(0, 9, 1)])])
def test_whole_batches_are_acquired_beyond_the_number_asked_for(
    wire: WireClient, member: NewMember, unique: str, batch_size: int, acquired: list[tuple[int, int, int]]
) -> None:
    """Scenario 24. BatchSize says where one range of acquired records may end and the next begin."""
    alone = member(new_queue(wire, unique, 5, 5, 5))
    answer = alone.fetch(0, max_records=6, batch_size=batch_size)
    assert answer.acquired() == acquired
    assert answer.sent() == [0, 9]


def test_in_record_limit_not_one_record_too_many_is_acquired(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 25: whole batches are still sent, and the next fetch takes up where the last one stopped."""
    alone = member(new_queue(wire, unique, 5, 5, 5))
    limited = {"max_records": 6, "batch_size": 2, "share_acquire_mode": RECORD_LIMIT}
    first = alone.fetch(0, **limited)
    assert (first.acquired(), first.sent()) == ([(0, 5, 1)], [0, 9])
    second = alone.fetch(**limited)
    assert (second.acquired(), second.sent()) == ([(6, 9, 1), (10, 11, 1)], [5, 14])
    third = alone.fetch(**limited)
    assert (third.acquired(), third.sent()) == ([(12, 14, 1)], [10, 14])
    assert list(second.values()) == [6, 7, 8, 9, 10, 11]


def test_an_acquire_mode_that_does_not_exist(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str
) -> None:
    """It fails the request, and still uses up the session epoch."""
    alone = member(new_queue(wire, unique, 5))
    alone.fetch(0, max_records=0)
    assert alone.fetch(share_acquire_mode=7).error == either(
        broker,
        apache=ErrorCode.UNKNOWN_SERVER_ERROR,
        headrace=ErrorCode.INVALID_REQUEST,
        because="it is the request that is wrong, not the server",
    )
    assert alone.fetch(epoch=1).error == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert alone.fetch(epoch=2).offsets() == [0, 1, 2, 3, 4]


def test_one_partition_can_use_up_the_records_of_a_fetch(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 26: the other one's turn is next."""
    alone = member(new_queue(wire, unique, 10, partitions=2))
    first = alone.take(10, 0, 1, max_records=6)
    second = alone.take(10, max_records=6)
    assert sorted(first + second) == [(0, 0, 9, 1), (1, 0, 9, 1)]


def test_the_limit_of_bytes_never_keeps_a_whole_batch_back(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 27."""
    alone = member(new_queue(wire, unique, 5, 5))
    assert alone.fetch(0, max_bytes=1).acquired() == [(0, 4, 1)]
    assert alone.fetch(max_bytes=1).acquired() == [(5, 9, 1)]


@pytest.mark.parametrize("nothing", ["max_records", "max_bytes"])
def test_a_fetch_of_nothing_is_answered_at_once(
    wire: WireClient, member: NewMember, unique: str, nothing: str
) -> None:
    """Scenario 27."""
    alone = member(new_queue(wire, unique, 5))
    answer = alone.fetch(0, **{nothing: 0, "max_wait_ms": NEVER_MS})
    assert (answer.error, answer.acquired()) == (0, [])


def test_an_empty_queue_is_waited_for_and_named_only_at_first(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 28."""
    alone = member(new_queue(wire, unique))
    started = time.monotonic()
    first = alone.fetch(0, max_wait_ms=500)
    assert time.monotonic() - started > 0.45
    assert list(first.partitions) == [0]
    found = first.partitions[0]
    assert (found.error_code, found.records, list(found.acquired_records)) == (0, b"", [])
    assert (found.current_leader.leader_id, found.current_leader.leader_epoch) == (0, 0)
    started = time.monotonic()
    assert alone.fetch(max_wait_ms=500).partitions == {}
    assert time.monotonic() - started > 0.45


def test_a_parked_fetch_wakes_when_a_record_comes(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 29."""
    alone = member(new_queue(wire, unique))
    alone.quiet(0)
    alone.post_fetch(max_wait_ms=NEVER_MS)
    time.sleep(0.2)  # a parked request shows no sign: give it time to be parked
    fill(wire, unique, 1)
    assert alone.fetched().acquired() == [(0, 0, 1)]


def test_a_parked_fetch_wakes_when_another_members_lock_runs_out(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 29."""
    topic_id = new_queue(wire, unique, 5, record_lock_duration_ms="1000")
    slow, other = member(topic_id), member(topic_id)
    started = time.monotonic()
    answer = slow.fetch(0)
    assert (answer.offsets(), answer.response.acquisition_lock_timeout_ms) == ([0, 1, 2, 3, 4], 1_000)
    assert other.fetch(0, max_wait_ms=NEVER_MS).acquired() == [(0, 4, 2)]
    assert time.monotonic() - started > 0.95


@pytest.mark.parametrize("how", ["released", "session closed", "connection lost"])
def test_a_parked_fetch_gets_what_another_member_gives_back(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str, how: str
) -> None:
    """Scenario 29: no wake-up is missed. Apache Kafka looks again only when the wait is over, or in the next fetch."""
    topic_id = new_queue(wire, unique, 5)
    giver, other = member(topic_id), member(topic_id)
    assert giver.fetch(0).offsets() == [0, 1, 2, 3, 4]
    other.quiet(0)
    other.post_fetch(max_wait_ms=1_500 if broker.is_apache else NEVER_MS)
    time.sleep(0.1)  # as above: it must be parked before the records come back
    if how == "released":
        assert giver.ack((0, 4, RELEASE)) == 0
    elif how == "session closed":
        giver.close()
    else:
        giver.disconnect()
    given = other.fetched().acquired()
    if broker.is_apache and not given:
        given = [(first, last, count) for _, first, last, count in other.take(5)]
    assert given == [(0, 4, 2)]


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """When the wait is over, it takes what there is."""
    alone = member(new_queue(wire, unique, 1))
    started = time.monotonic()
    assert alone.fetch(0, min_bytes=100_000, max_wait_ms=500).acquired() == [(0, 0, 1)]
    assert time.monotonic() - started > 0.45


def test_the_window_of_records_in_flight_is_limited(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 30: only what is done at its beginning moves it; what is inside it may be delivered again."""
    alone = member(new_queue(wire, unique, *[7] * 20, partition_max_record_locks="100"))
    assert offsets_of(alone.take(100, 0)) == list(range(105))
    assert alone.quiet().offsets() == []
    assert alone.ack((0, 6, ACCEPT)) == 0
    assert alone.fetch().acquired() == [(105, 111, 1)]
    assert alone.ack((50, 56, ACCEPT)) == 0
    assert alone.quiet().offsets() == []
    assert alone.ack((60, 62, RELEASE)) == 0
    assert alone.fetch().acquired() == [(60, 62, 2)]
    assert alone.quiet().offsets() == []


def test_a_new_group_starts_with_what_comes_after_it(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 31: share.auto.offset.reset is latest."""
    topic_id = new_topic(wire, unique)
    fill(wire, unique, 5)
    alone = member(topic_id)
    alone.join(unique)
    assert alone.quiet(0).acquired() == []
    fill(wire, unique, 1)
    assert alone.fetch().acquired() == [(5, 5, 1)]


def test_a_group_may_start_at_the_beginning(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 31, with share.auto.offset.reset=earliest."""
    topic_id = new_topic(wire, unique)
    fill(wire, unique, 5)
    set_group(wire, unique, auto_offset_reset="earliest")
    alone = member(topic_id)
    alone.join(unique)
    assert alone.fetch(0).acquired() == [(0, 4, 1)]


def test_a_group_may_start_some_time_ago(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 32, with share.auto.offset.reset=by_duration: no record is so young, until one comes."""
    topic_id = new_topic(wire, unique)
    produced(wire, unique, batch("old", "old too", timestamp=now_ms() - DAY_MS))
    set_group(wire, unique, auto_offset_reset="by_duration:PT1M")
    alone = member(topic_id)
    alone.join(unique)
    found = alone.quiet(0).partitions[0]
    assert found.error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    has_message = found.error_message is not None
    assert has_message is either(broker, apache=False, headrace=True, because="an error explains itself")
    fill(wire, unique, 1)
    assert alone.take(1) == [(0, 2, 2, 1)]


def test_members_that_fetch_at_the_same_time_never_get_the_same_record(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 33."""
    topic_id = new_queue(wire, unique, *[3] * 40)
    members = [member(topic_id) for _ in range(4)]
    taken: list[list[int]] = [[] for _ in members]

    def is_all_taken() -> bool:
        return sum(map(len, taken)) >= 120

    def take_some(one: ShareMember, found: list[int]) -> None:
        adding: tuple[int, ...] = (0,)
        deadline = time.monotonic() + 15
        while not is_all_taken() and time.monotonic() < deadline:
            found += one.quiet(*adding, max_records=3).offsets()
            adding = ()

    with ThreadPoolExecutor(len(members)) as pool:
        list(pool.map(take_some, members, taken))
    assert sorted(offset for found in taken for offset in found) == list(range(120))
    assert all(found == sorted(found) for found in taken)
