"""Idempotent producers: each batch once and in order, by producer id, epoch and sequence number (KIP-98)."""

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.steps import (
    batch,
    end_offset,
    fetch,
    init_producer,
    new_topic,
    produce,
    produced,
    values,
)
from tests.conformance.wire_client import WireClient

LAST_SEQUENCE = 2**31 - 1


def numbered(producer: tuple[int, int], sequence: int, *values: str) -> bytes:
    return batch(*values, producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence)


@pytest.fixture
def producer(wire: WireClient) -> tuple[int, int]:
    return init_producer(wire)


def test_a_batch_sent_again_has_its_old_offset(
    wire: WireClient, unique: str, producer: tuple[int, int]
) -> None:
    new_topic(wire, unique)
    first, second = numbered(producer, 0, "a", "b"), numbered(producer, 2, "c")
    assert [produced(wire, unique, one) for one in (first, second)] == [0, 2]
    assert [produced(wire, unique, one) for one in (first, second)] == [0, 2]
    assert values(fetch(wire, unique, 0).records) == [b"a", b"b", b"c"]


def test_the_last_five_batches_are_remembered(
    wire: WireClient, unique: str, producer: tuple[int, int]
) -> None:
    new_topic(wire, unique)
    sent = [numbered(producer, number, str(number)) for number in range(6)]
    assert [produced(wire, unique, one) for one in sent] == list(range(6))
    assert [produced(wire, unique, one) for one in sent[1:]] == list(range(1, 6))
    # The one before those is known to be old, but not where it lies.
    assert produce(wire, unique, sent[0]).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_is_refused(wire: WireClient, unique: str, producer: tuple[int, int]) -> None:
    new_topic(wire, unique)
    assert produced(wire, unique, numbered(producer, 0, "a")) == 0
    answer = produce(wire, unique, numbered(producer, 2, "c"))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert produced(wire, unique, numbered(producer, 1, "b")) == 1


def test_a_batch_that_overlaps_the_last_is_refused(
    wire: WireClient, unique: str, producer: tuple[int, int]
) -> None:
    new_topic(wire, unique)
    assert produced(wire, unique, numbered(producer, 0, "a", "b")) == 0
    answer = produce(wire, unique, numbered(producer, 1, "b", "c"))
    assert answer.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_nobody_has_heard_of_may_begin_anywhere(
    wire: WireClient, unique: str, producer: tuple[int, int]
) -> None:
    # The partition's memory of a producer ends some day, and the producer goes on where it was (KIP-360).
    new_topic(wire, unique)
    assert produced(wire, unique, numbered(producer, 100, "a")) == 0
    assert produced(wire, unique, numbered(producer, 101, "b")) == 1


def test_a_new_epoch_begins_at_0(wire: WireClient, unique: str, producer: tuple[int, int]) -> None:
    new_topic(wire, unique)
    later = (producer[0], producer[1] + 1)
    assert produced(wire, unique, numbered(producer, 0, "a")) == 0
    assert produce(wire, unique, numbered(later, 1, "b")).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert produced(wire, unique, numbered(later, 0, "b")) == 1


def test_an_old_epoch_is_fenced(wire: WireClient, unique: str, producer: tuple[int, int]) -> None:
    new_topic(wire, unique)
    later = (producer[0], producer[1] + 1)
    assert produced(wire, unique, numbered(later, 0, "a")) == 0
    answer = produce(wire, unique, numbered(producer, 0, "b"))
    assert (answer.error_code, answer.base_offset) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)
    assert end_offset(wire, unique) == 1


@pytest.mark.parametrize("split", [True, False], ids=["between batches", "within a batch"])
def test_sequence_numbers_begin_again_after_the_largest(
    wire: WireClient, unique: str, producer: tuple[int, int], split: bool
) -> None:
    new_topic(wire, unique)
    assert produced(wire, unique, numbered(producer, LAST_SEQUENCE - 1, "a")) == 0
    if split:
        assert produced(wire, unique, numbered(producer, LAST_SEQUENCE, "b")) == 1
        assert produced(wire, unique, numbered(producer, 0, "c")) == 2
    else:
        assert produced(wire, unique, numbered(producer, LAST_SEQUENCE, "b", "c")) == 1
    assert produced(wire, unique, numbered(producer, 1, "d")) == 3


def test_partitions_count_for_themselves(wire: WireClient, unique: str, producer: tuple[int, int]) -> None:
    new_topic(wire, unique, partitions=2)
    for partition in (0, 1):
        assert produced(wire, unique, numbered(producer, 0, "a"), partition=partition) == 0
        assert produced(wire, unique, numbered(producer, 0, "a"), partition=partition) == 0


def test_a_duplicate_is_told_with_acks_1_too(
    wire: WireClient, unique: str, producer: tuple[int, int]
) -> None:
    new_topic(wire, unique)
    records = numbered(producer, 0, "a")
    assert [produced(wire, unique, records, acks=1) for _ in range(3)] == [0, 0, 0]
    assert end_offset(wire, unique) == 1


def test_producer_ids_are_never_given_twice(wire: WireClient) -> None:
    given = [init_producer(wire) for _ in range(20)]
    assert len(set(given)) == 20
    assert {epoch for _, epoch in given} == {0}
