"""Queues on logs that have holes: transactions, deleted records, compaction.

Offsets without a record for the client (markers, compacted records) are acquired too; the client answers with a gap.
Scenario numbers are those of docs/concepts/share-semantics.md.
"""

import pytest

from headrace.wire.batches import read_header
from headrace.wire.records import NewRecord, build_batch
from tests.conformance.share.share_client import (
    ACCEPT,
    GAP,
    RELEASE,
    NewMember,
    fill,
    new_queue,
    offsets_of,
    set_group,
    start_and_lag,
)
from tests.conformance.share.share_state import ACKNOWLEDGED, ARCHIVED, written_state
from tests.conformance.steps import (
    add_partitions,
    batches,
    end_offset,
    end_transaction,
    fetch,
    init_producer,
    list_offset,
    now_ms,
    produced,
    transactional_batch,
    values,
    wait_for,
    wait_for_state,
)
from tests.conformance.wire_client import WireClient

HOUR_MS = 3_600_000
EARLIEST = -2
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "60000"}


class Transactions:
    """One transactional producer, one partition, the manner of clients before transaction version 2."""

    def __init__(self, wire: WireClient, topic: str) -> None:
        self._wire = wire
        self._topic = topic
        self._producer = init_producer(wire, topic)
        self._sequence = 0

    def write(self, *values: str) -> None:
        """Begins a transaction with these records and leaves it open."""
        assert add_partitions(self._wire, self._topic, self._producer, self._topic, 0) == 0
        records = transactional_batch(self._producer, self._sequence, *values)
        produced(self._wire, self._topic, records, transactional_id=self._topic)
        self._sequence += len(values)

    def end(self, *, commit: bool) -> None:
        """Ends it, and waits for the marker."""
        answer = end_transaction(self._wire, self._topic, self._producer, commit=commit)
        assert answer.error_code == 0, answer
        wait_for_state(self._wire, self._topic, "CompleteCommit" if commit else "CompleteAbort")


@pytest.fixture
def topic_id(wire: WireClient, unique: str) -> bytes:
    return new_queue(wire, unique)


@pytest.fixture
def transactions(wire: WireClient, topic_id: bytes, unique: str) -> Transactions:
    """The log 0-2 committed, 3 marker, 4-6 aborted, 7 marker, 8-9 committed, 10 marker, 11-12 open."""
    writer = Transactions(wire, unique)
    for records, is_commit in [(("a", "b", "c"), True), (("d", "e", "f"), False), (("g", "h"), True)]:
        writer.write(*records)
        writer.end(commit=is_commit)
    writer.write("i", "j")
    return writer


def test_read_uncommitted_delivers_whatever_is_in_the_log(
    member: NewMember, topic_id: bytes, transactions: Transactions
) -> None:
    """Scenario 48: open and aborted transactions too. The markers' offsets are acquired like any other."""
    answer = member(topic_id).fetch(0)
    assert answer.offsets() == list(range(13))
    assert list(answer.values()) == [0, 1, 2, 4, 5, 6, 8, 9, 11, 12]


def test_read_committed_leaves_out_what_was_aborted_and_waits_for_what_is_open(
    wire: WireClient, member: NewMember, unique: str, topic_id: bytes, transactions: Transactions
) -> None:
    """Scenario 49: markers are acquired here as well, but not the records of an aborted transaction."""
    set_isolation(wire, unique)
    alone = member(topic_id)
    answer = alone.fetch(0)
    assert answer.acquired() == [(0, 3, 1), (7, 10, 1)]
    assert list(answer.values()) == [0, 1, 2, 8, 9]
    assert alone.quiet().acquired() == []
    transactions.end(commit=False)
    assert alone.take(1) == [(0, 13, 13, 1)]


def test_a_parked_fetch_wakes_when_a_transaction_ends(
    wire: WireClient, member: NewMember, unique: str, topic_id: bytes, transactions: Transactions
) -> None:
    """Scenario 49: the records of the transaction become readable with its marker."""
    set_isolation(wire, unique)
    alone = member(topic_id)
    alone.take(8, 0)
    alone.post_fetch()
    transactions.end(commit=True)
    found = alone.fetched().offsets()
    found += [] if 13 in found else alone.fetch().offsets()
    assert found == [11, 12, 13]


def set_isolation(wire: WireClient, group: str) -> None:
    set_group(wire, group, isolation_level="read_committed")


def test_the_start_passes_a_marker_that_was_answered_with_a_gap(
    wire: WireClient, member: NewMember, unique: str, topic_id: bytes
) -> None:
    """Scenario 50. The new start is written with the acknowledgement after the one that moved it."""
    writer = Transactions(wire, unique)
    writer.write("a", "b", "c")
    writer.end(commit=True)
    alone = member(topic_id)
    alone.take(4, 0)
    assert alone.ack((0, 2, ACCEPT), (3, 3, GAP)) == 0
    assert written_state(wire, unique, topic_id) == [(0, 2, ACKNOWLEDGED, 1), (3, 3, ARCHIVED, 1)]
    fill(wire, unique, 1)
    assert alone.fetch().acquired() == [(4, 4, 1)]
    assert alone.ack((4, 4, ACCEPT)) == 0
    assert start_and_lag(wire, unique, unique) == (4, 0)


def test_records_that_were_deleted_are_passed_over(
    wire: WireClient, member: NewMember, unique: str, topic_id: bytes
) -> None:
    """Scenario 51: acknowledgements for them are taken and do nothing."""
    fill(wire, unique, 5, 5)
    alone = member(topic_id)
    alone.take(10, 0)
    assert alone.ack((5, 9, RELEASE)) == 0
    deleted = wire.ask(
        "delete_records",
        2,
        topics=[{"name": unique, "partitions": [{"partition_index": 0, "offset": 7}]}],
        timeout_ms=5_000,
    )
    assert deleted.topics[0].partitions[0].low_watermark == 7
    assert list_offset(wire, unique, 0, EARLIEST).offset == 7
    assert alone.take(3) == [(0, 7, 9, 2)]
    assert alone.ack((0, 4, ACCEPT)) == 0
    assert alone.ack((3, 8, ACCEPT)) == 0
    assert alone.ack((9, 9, ACCEPT)) == 0
    assert start_and_lag(wire, unique, unique)[1] == 0


def test_a_record_that_was_compacted_away_is_answered_with_a_gap(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 52: its offset lies within a batch, so it is acquired with the rest."""
    topic_id = new_queue(wire, unique, configs=COMPACTED)
    produce_keys(wire, unique, "abc", hours_ago=2)
    produce_keys(wire, unique, "b", hours_ago=2)
    produce_keys(wire, unique, "x", hours_ago=0)
    wait_until_compacted(wire, unique, [b"a", b"c", b"b", b"x"])
    alone = member(topic_id)
    first = alone.fetch(0)
    assert first.acquired()[0][:2] in [(0, 3), (0, 4)], "the last record is in another segment"
    assert list(first.values())[:3] == [0, 2, 3]
    if 4 not in first.offsets():
        assert alone.fetch().acquired() == [(4, 4, 1)]
    assert alone.ack((0, 4, ACCEPT, GAP, ACCEPT, ACCEPT, ACCEPT)) == 0
    assert start_and_lag(wire, unique, unique)[1] == 0


def test_a_batch_that_was_compacted_away_while_it_was_available_is_archived(
    wire: WireClient, member: NewMember, unique: str
) -> None:
    """Scenario 52: no client can answer for it, so the broker does."""
    topic_id = new_queue(wire, unique, configs=COMPACTED)
    produce_keys(wire, unique, "ab", hours_ago=2)
    produce_keys(wire, unique, "c", hours_ago=2)
    alone = member(topic_id)
    alone.take(3, 0)
    assert alone.ack((0, 1, RELEASE)) == 0
    produce_keys(wire, unique, "ab", hours_ago=1)
    produce_keys(wire, unique, "x", hours_ago=0)
    wait_until_compacted(wire, unique, [b"c", b"a", b"b", b"x"])
    assert offsets_of(alone.take(3)) == [3, 4, 5]
    assert alone.ack((2, 5, ACCEPT)) == 0
    produce_keys(wire, unique, "y", hours_ago=0)
    assert alone.fetch().acquired() == [(6, 6, 1)]
    assert alone.ack((6, 6, ACCEPT)) == 0
    assert start_and_lag(wire, unique, unique) == (6, 0)


def produce_keys(wire: WireClient, topic: str, keys: str, *, hours_ago: int) -> None:
    """One batch of records, each with its key as its value. A later hour begins a new segment."""
    at = now_ms() - hours_ago * HOUR_MS
    produced(wire, topic, build_batch([NewRecord(key.encode(), key.encode(), (), at) for key in keys]))


def wait_until_compacted(wire: WireClient, topic: str, left: list[bytes]) -> None:
    """Waits until these values are all that is left. Apache Kafka reads but one segment for a fetch."""

    def look() -> bool:
        found: list[bytes | None] = []
        position, end = 0, end_offset(wire, topic)
        while position < end:
            data = fetch(wire, topic, position).records
            found += values(data)
            position = read_header(batches(data)[-1]).next_offset
        return found == left

    wait_for(look, every_s=0.05)
