"""Acknowledgements: accept, release, reject, renew and gap, one by one and in one list, right and wrong.

What was written down is read as a new leader would read it (ReadShareGroupState), so that "done" means durable.
Scenario numbers are those of docs/concepts/share-semantics.md.
"""

from typing import Any
from uuid import uuid4

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.share.share_client import (
    ACCEPT,
    GAP,
    QUIET_MS,
    REJECT,
    RELEASE,
    RENEW,
    NewMember,
    ShareMember,
    fill,
    new_queue,
    offsets_of,
    set_group,
)
from tests.conformance.share.share_state import ACKNOWLEDGED, ARCHIVED, AVAILABLE, written_state
from tests.conformance.wire_client import WireClient

RENEWING: dict[str, Any] = {
    "is_renew_ack": True,
    "max_bytes": 0,
    "min_bytes": 0,
    "max_records": 0,
    "max_wait_ms": 0,
}
"""What a ShareFetch that renews must say: it may fetch nothing."""
LOCK: dict[str, Any] = {"record_lock_duration_ms": "1000"}


@pytest.fixture
def topic_id(wire: WireClient, unique: str) -> bytes:
    """A queue of one partition with ten records in two batches."""
    return new_queue(wire, unique, 5, 5)


@pytest.fixture
def holder(member: NewMember, topic_id: bytes) -> ShareMember:
    """A member that has acquired all ten."""
    one = member(topic_id)
    one.take(10, 0)
    return one


def test_accepting_twice_is_fine_once_the_start_has_passed(
    wire: WireClient, holder: ShareMember, unique: str
) -> None:
    """Scenario 34."""
    assert holder.ack((0, 4, ACCEPT)) == 0
    assert holder.ack((0, 4, ACCEPT)) == 0
    assert holder.ack((2, 6, ACCEPT)) == 0, "what lies before the start is passed over"
    assert written_state(wire, unique, holder.topic_id)[-1] == (5, 6, ACKNOWLEDGED, 1)


def test_accepting_twice_is_refused_while_the_start_lies_before(holder: ShareMember) -> None:
    """Scenario 34, with a record before them that is not done."""
    assert holder.ack((5, 9, ACCEPT)) == 0
    assert holder.ack((5, 9, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE


def test_each_record_of_a_range_may_have_its_own_answer(
    wire: WireClient, member: NewMember, holder: ShareMember, unique: str
) -> None:
    """Scenario 35."""
    types = (ACCEPT, RELEASE, REJECT, GAP, RENEW)
    assert holder.ack((5, 9, *types), is_renew_ack=True) == 0
    assert written_state(wire, unique, holder.topic_id) == [
        (5, 5, ACKNOWLEDGED, 1),
        (6, 6, AVAILABLE, 1),
        (7, 8, ARCHIVED, 1),
    ]
    assert member(holder.topic_id).fetch(0).acquired() == [(6, 6, 2)]
    assert holder.ack((9, 9, ACCEPT)) == 0


def test_only_the_holder_may_acknowledge(member: NewMember, holder: ShareMember) -> None:
    """Scenario 36."""
    other = member(holder.topic_id)
    other.quiet(0)
    answer = other.acknowledge({0: [(0, 4, ACCEPT)]})
    assert answer.codes == {0: ErrorCode.INVALID_RECORD_STATE}
    assert answer.partitions[0].error_message
    assert holder.ack((0, 4, ACCEPT)) == 0


def test_after_the_lock_ran_out_it_is_too_late(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 36."""
    slow = member(new_queue(wire, unique, 5, **LOCK))
    assert slow.fetch(0).offsets() == [0, 1, 2, 3, 4]
    set_group(wire, unique, record_lock_duration_ms="30000")  # for the second delivery
    broker.pass_time(1.3)
    assert slow.ack((0, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert slow.fetch().acquired() == [(0, 4, 2)]
    assert slow.ack((0, 4, ACCEPT)) == 0


def test_what_was_never_acquired_cannot_be_acknowledged(
    wire: WireClient, holder: ShareMember, unique: str
) -> None:
    """Scenario 36: nothing is done when a range is wrong in part."""
    fill(wire, unique, 5)
    assert holder.ack((10, 14, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert holder.ack((8, 12, ACCEPT)) == ErrorCode.INVALID_REQUEST
    assert holder.ack((0, 9, ACCEPT)) == 0


@pytest.mark.parametrize(
    ("bad", "version"),
    [
        pytest.param([(4, 0, ACCEPT)], 2, id="first after last"),
        pytest.param([(0, 3, ACCEPT), (2, 4, ACCEPT)], 2, id="ranges that overlap"),
        pytest.param([(3, 4, ACCEPT), (0, 1, ACCEPT)], 2, id="ranges out of order"),
        pytest.param([(0, 4)], 2, id="no type"),
        pytest.param([(0, 4, ACCEPT, ACCEPT)], 2, id="two types for five records"),
        pytest.param([(0, 4, 5)], 2, id="an unknown type"),
        pytest.param([(0, 4, -1)], 2, id="a negative type"),
        pytest.param([(0, 4, RENEW)], 2, id="renewing without saying so before"),
        pytest.param([(0, 4, RENEW)], 1, id="renewing in version 1"),
    ],
)
def test_a_malformed_acknowledgement_fails_its_partition_alone(
    wire: WireClient, member: NewMember, unique: str, bad: list[tuple[int, ...]], version: int
) -> None:
    """Scenario 37."""
    alone = member(new_queue(wire, unique, 5, partitions=2))
    alone.take(10, 0, 1)
    answer = alone.acknowledge({0: bad, 1: [(0, 4, ACCEPT)]}, version=version)
    assert (answer.error, answer.codes) == (0, {0: ErrorCode.INVALID_REQUEST, 1: 0})
    assert alone.ack((0, 4, ACCEPT)) == 0


def test_a_record_named_twice_fails_its_partition(holder: ShareMember) -> None:
    """Scenario 37: where one range ends and the next begins, no record may be in both."""
    assert holder.ack((0, 2, ACCEPT), (2, 4, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert holder.ack((0, 4, ACCEPT)) == 0


def test_one_bad_range_undoes_the_good_ones_before_it(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 38."""
    topic_id = new_queue(wire, unique, 5, 5)
    holder, other = member(topic_id), member(topic_id)
    assert holder.fetch(0, max_records=5).offsets() == [0, 1, 2, 3, 4]
    assert other.fetch(0).offsets() == [5, 6, 7, 8, 9]
    assert holder.ack((0, 1, ACCEPT), (2, 3, RELEASE), (5, 6, ACCEPT)) == ErrorCode.INVALID_RECORD_STATE
    assert written_state(wire, unique, topic_id) == []
    assert other.quiet().acquired() == []
    assert holder.ack((0, 4, ACCEPT)) == 0


def test_a_rejected_record_never_comes_back(
    wire: WireClient, member: NewMember, holder: ShareMember, unique: str
) -> None:
    """Scenario 39."""
    assert holder.ack((3, 3, REJECT)) == 0
    assert written_state(wire, unique, holder.topic_id) == [(3, 3, ARCHIVED, 1)]
    holder.close()
    assert offsets_of(member(holder.topic_id).take(9, 0)) == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_the_last_release_archives(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 40, with one record so that each delivery is of the whole batch."""
    topic_id = new_queue(wire, unique, 1)
    alone = member(topic_id)
    for count in range(1, 6):
        assert alone.fetch(0).acquired() == [(0, 0, count)]
        assert alone.ack((0, 0, RELEASE)) == 0
    assert alone.quiet().acquired() == []
    assert written_state(wire, unique, topic_id) == [(0, 0, ARCHIVED, 5)]


def test_the_last_lock_that_runs_out_archives(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 40: a record that nobody answers for ends in the same way."""
    topic_id = new_queue(wire, unique, 1, delivery_count_limit="2", **LOCK)
    alone = member(topic_id)
    assert alone.fetch(0).acquired() == [(0, 0, 1)]
    assert alone.fetch().acquired() == [(0, 0, 2)]
    assert alone.fetch(max_wait_ms=1_500).acquired() == []
    assert written_state(wire, unique, topic_id) == [(0, 0, ARCHIVED, 2)]


def test_bad_records_are_isolated_step_by_step(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 41: the batch is halved before the last attempt, and in that each record comes alone."""
    alone = member(new_queue(wire, unique, 20))
    deliveries = released_until_gone(alone, 0, expected=25)
    whole = [[(0, 19, count)] for count in (1, 2, 3)]
    halves = [
        [[(first, first + 9, 4)], *([(offset, offset, 5)] for offset in range(first, first + 10))]
        for first in (0, 10)
    ]
    assert deliveries == [*whole, *halves[0], *halves[1]]


def test_with_two_deliveries_nothing_is_isolated(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 42."""
    alone = member(new_queue(wire, unique, 20, delivery_count_limit="2"))
    assert released_until_gone(alone, 0, expected=2) == [[(0, 19, 1)], [(0, 19, 2)]]


def released_until_gone(
    alone: ShareMember, partition: int, *, expected: int
) -> list[list[tuple[int, int, int]]]:
    """What each fetch acquired, when everything is released again at once; one more must come back empty."""
    deliveries = []
    adding: tuple[int, ...] = (partition,)
    for _ in range(expected):
        acquired = alone.fetch(*adding).acquired(partition)
        deliveries.append(acquired)
        adding = ()
        assert alone.ack(*((first, last, RELEASE) for first, last, _ in acquired)) == 0
    assert alone.quiet().acquired(partition) == []
    return deliveries


def test_renewing_starts_the_lock_anew_and_writes_nothing(
    broker: BrokerUnderTest, wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 43 (KIP-1222)."""
    topic_id = new_queue(wire, unique, 5, record_lock_duration_ms="2000")
    holder, other = member(topic_id), member(topic_id)
    assert holder.fetch(0).offsets() == [0, 1, 2, 3, 4]
    other.quiet(0)
    for _ in range(2):
        broker.pass_time(1.1)  # together longer than a lock lasts
        answer = holder.acknowledge({0: [(0, 4, RENEW)]}, is_renew_ack=True)
        assert (answer.codes, answer.response.acquisition_lock_timeout_ms) == ({0: 0}, 2_000)
    assert written_state(wire, unique, topic_id) == []
    assert holder.ack((0, 3, ACCEPT)) == 0
    broker.pass_time(2.2)  # the last renewal runs out
    assert holder.ack((4, 4, RENEW), is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE
    assert other.fetch().acquired() == [(4, 4, 2)]


def test_a_group_may_forbid_renewing(wire: WireClient, holder: ShareMember, unique: str) -> None:
    """Scenario 43 (KIP-1240)."""
    assert holder.ack((0, 4, RENEW), is_renew_ack=True) == 0
    set_group(wire, unique, renew_acknowledge_enable="false")
    assert holder.ack((0, 4, RENEW), is_renew_ack=True) == ErrorCode.INVALID_RECORD_STATE
    assert holder.ack((0, 4, ACCEPT)) == 0


@pytest.mark.parametrize("asked", ["max_bytes", "min_bytes", "max_records", "max_wait_ms"])
def test_a_fetch_that_renews_may_fetch_nothing(holder: ShareMember, asked: str) -> None:
    """Scenario 44: it is refused before the session is looked at, so its epoch can be used again."""
    refused = holder.fetch(acks={0: [(0, 4, RENEW)]}, **{**RENEWING, asked: 1})
    assert refused.error == ErrorCode.INVALID_REQUEST
    answer = holder.fetch(acks={0: [(0, 4, RENEW)]}, **RENEWING)
    assert (answer.error, answer.partitions[0].acknowledge_error_code) == (0, 0)


def test_a_fetch_that_renews_brings_no_records(wire: WireClient, holder: ShareMember, unique: str) -> None:
    """Scenario 44: acknowledgements of all kinds are taken."""
    fill(wire, unique, 5)
    answer = holder.fetch(acks={0: [(0, 4, RENEW), (5, 9, ACCEPT)]}, **RENEWING)
    assert (answer.acquired(), answer.partitions[0].acknowledge_error_code) == ([], 0)
    assert written_state(wire, unique, holder.topic_id) == [(5, 9, ACKNOWLEDGED, 1)]


def test_a_partition_without_ranges_is_not_answered(wire: WireClient, member: NewMember, unique: str) -> None:
    """Scenario 45: unless another partition has some."""
    alone = member(new_queue(wire, unique, 5, partitions=2))
    alone.take(10, 0, 1)
    answer = alone.acknowledge({0: []})
    assert (answer.error, answer.codes) == (0, {})
    assert alone.acknowledge({0: [], 1: [(0, 4, ACCEPT)]}).codes == {0: 0, 1: 0}


def test_a_fetch_brings_records_although_its_acknowledgements_failed(
    wire: WireClient, holder: ShareMember, unique: str
) -> None:
    """Scenario 46: acknowledgements that are wrong in form, and such as come too late."""
    fill(wire, unique, 5)
    malformed = holder.fetch(acks={0: [(0, 4, 9)]})
    assert malformed.partitions[0].error_code == 0
    assert malformed.partitions[0].acknowledge_error_code == ErrorCode.INVALID_REQUEST
    assert malformed.acquired() == [(10, 14, 1)]
    assert holder.ack((5, 9, ACCEPT)) == 0
    fill(wire, unique, 1)
    late = holder.fetch(acks={0: [(5, 9, ACCEPT)]})
    assert late.partitions[0].error_code == 0
    assert late.partitions[0].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert late.partitions[0].acknowledge_error_message
    assert late.acquired() == [(15, 15, 1)]
    assert holder.ack((0, 4, ACCEPT), (10, 15, ACCEPT)) == 0


def test_acknowledgements_that_come_with_a_fetch_are_done_before_it(holder: ShareMember) -> None:
    """Scenario 46, when all is well: what is released is there to be fetched by the same request."""
    answer = holder.fetch(acks={0: [(0, 4, RELEASE), (5, 9, ACCEPT)]}, max_wait_ms=QUIET_MS)
    assert answer.partitions[0].acknowledge_error_code == 0
    released = answer.acquired() or holder.fetch().acquired()
    assert released == [(0, 4, 2)]


def test_topics_and_partitions_that_do_not_exist(holder: ShareMember) -> None:
    """Scenario 47."""
    assert holder.ack((0, 0, ACCEPT), partition=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    known = holder.topic_id
    holder.topic_id = uuid4().bytes
    assert holder.ack((0, 0, ACCEPT)) == ErrorCode.UNKNOWN_TOPIC_ID
    holder.topic_id = known
    assert holder.ack((0, 9, ACCEPT)) == 0
