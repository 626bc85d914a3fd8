"""Transactions of version 2 (KIP-890): partitions join by being written to, and every transaction has its own epoch."""

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.steps import (
    READ_COMMITTED,
    add_partitions,
    batch,
    batches,
    commit_in_transaction,
    committed,
    describe_transaction,
    end_offset,
    end_transaction,
    fetch,
    init_producer,
    new_topic,
    produce,
    produced,
    transactional_batch,
    values,
    wait_for,
    wait_for_state,
)
from tests.conformance.wire_client import WireClient

Producer = tuple[int, int]


@pytest.fixture
def topic(wire: WireClient, unique: str) -> str:
    new_topic(wire, unique, partitions=2)
    return unique


@pytest.fixture
def producer(wire: WireClient, unique: str) -> Producer:
    return init_producer(wire, unique)


def write(wire: WireClient, name: str, producer: Producer, topic: str, sequence: int, *records: str) -> int:
    return produced(wire, topic, transactional_batch(producer, sequence, *records), transactional_id=name)


def end(wire: WireClient, name: str, producer: Producer, *, commit: bool) -> Producer:
    """Ends the transaction, waits for its markers, and returns the producer for the next one."""
    response = end_transaction(wire, name, producer, commit=commit, version=5)
    assert response.error_code == 0, response
    wait_for_state(wire, name, "CompleteCommit" if commit else "CompleteAbort")
    return response.producer_id, response.producer_epoch


def test_a_partition_joins_the_transaction_by_being_written_to(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    assert write(wire, unique, producer, topic, 0, "a") == 0
    found = describe_transaction(wire, unique)
    assert found.transaction_state == "Ongoing"
    assert [(one.topic, list(one.partitions)) for one in found.topics] == [(topic, [0])]


def test_the_first_batch_in_a_partition_has_sequence_number_0(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    """As in a topic that was deleted and created again within the transaction: what came before is gone."""
    late = transactional_batch(producer, 1, "b")
    refused = produce(wire, topic, late, transactional_id=unique)
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert write(wire, unique, producer, topic, 0, "a") == 0
    assert produced(wire, topic, late, transactional_id=unique) == 1


def test_each_transaction_has_an_epoch_of_its_own(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    for number, is_commit in enumerate([True, False, True]):
        # Sequence numbers begin again with each epoch.
        assert write(wire, unique, producer, topic, 0, str(number)) == 2 * number
        later = end(wire, unique, producer, commit=is_commit)
        assert later == (producer[0], producer[1] + 1)
        producer = later
    answer = fetch(wire, topic, 0, isolation=READ_COMMITTED)
    assert [(one.producer_id, one.first_offset) for one in answer.aborted_transactions] == [(producer[0], 2)]
    assert len(batches(answer.records)) == 6


def test_a_late_batch_of_an_ended_transaction_is_refused(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    # What KIP-890 is for: without it, the batch would begin a transaction that nobody ends.
    write(wire, unique, producer, topic, 0, "in time")
    end(wire, unique, producer, commit=True)
    late = produce(wire, topic, transactional_batch(producer, 1, "late"), transactional_id=unique)
    assert late.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert end_offset(wire, topic) == 2


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
def test_an_end_may_be_sent_again(
    wire: WireClient, unique: str, topic: str, producer: Producer, is_commit: bool
) -> None:
    write(wire, unique, producer, topic, 0, "value")
    later = end(wire, unique, producer, commit=is_commit)
    again = end_transaction(wire, unique, producer, commit=is_commit, version=5)
    assert (again.error_code, again.producer_id, again.producer_epoch) == (0, *later)
    assert end_offset(wire, topic) == 2


def test_the_other_end_is_refused(wire: WireClient, unique: str, topic: str, producer: Producer) -> None:
    write(wire, unique, producer, topic, 0, "value")
    end(wire, unique, producer, commit=True)
    other = end_transaction(wire, unique, producer, commit=False, version=5)
    assert (other.error_code, other.producer_id, other.producer_epoch) == (
        ErrorCode.INVALID_TXN_STATE,
        -1,
        -1,
    )


def test_an_empty_transaction_may_be_aborted_but_not_committed(
    wire: WireClient, unique: str, producer: Producer
) -> None:
    committing = end_transaction(wire, unique, producer, commit=True, version=5)
    assert committing.error_code == ErrorCode.INVALID_TXN_STATE
    aborting = end_transaction(wire, unique, producer, commit=False, version=5)
    assert (aborting.error_code, aborting.producer_epoch) == (0, producer[1] + 1)


def test_a_fenced_producer_cannot_end(wire: WireClient, unique: str, topic: str, producer: Producer) -> None:
    init_producer(wire, unique)
    init_producer(wire, unique)
    fenced = end_transaction(wire, unique, producer, commit=True, version=5)
    assert fenced.error_code == ErrorCode.PRODUCER_FENCED
    refused = produce(wire, topic, transactional_batch(producer, 0, "late"), transactional_id=unique)
    assert refused.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_unknown_transactional_id_cannot_write(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    data = transactional_batch(producer, 0, "value")
    answer = produce(wire, topic, data, transactional_id=f"{unique}-not")
    assert answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert end_offset(wire, topic) == 0


def test_offsets_join_the_transaction_by_being_committed(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    assert commit_in_transaction(wire, unique, producer, unique, topic, 5) == 0
    found = describe_transaction(wire, unique)
    assert [one.topic for one in found.topics] == ["__consumer_offsets"]
    assert committed(wire, unique, topic).committed_offset == -1
    later = end(wire, unique, producer, commit=True)
    wait_for(lambda: committed(wire, unique, topic).committed_offset == 5)
    late = commit_in_transaction(wire, unique, producer, unique, topic, 9)
    assert late == ErrorCode.INVALID_PRODUCER_EPOCH
    assert commit_in_transaction(wire, unique, later, unique, topic, 6) == 0


def test_records_and_offsets_end_together(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    write(wire, unique, producer, topic, 0, "out")
    assert commit_in_transaction(wire, unique, producer, unique, topic, 1) == 0
    assert end_offset(wire, topic, isolation=READ_COMMITTED) == 0
    end(wire, unique, producer, commit=True)
    assert end_offset(wire, topic, isolation=READ_COMMITTED) == 2
    wait_for(lambda: committed(wire, unique, topic).committed_offset == 1)
    assert values(batches(fetch(wire, topic, 0, isolation=READ_COMMITTED).records)[0]) == [b"out"]


def test_a_transaction_that_takes_too_long_is_aborted(wire: WireClient, unique: str, topic: str) -> None:
    producer = init_producer(wire, unique, timeout_ms=200)
    write(wire, unique, producer, topic, 0, "too slow")
    wait_for_state(wire, unique, "CompleteAbort")
    assert end_offset(wire, topic, isolation=READ_COMMITTED) == 2
    late = end_transaction(wire, unique, producer, commit=True, version=5)
    assert late.error_code == ErrorCode.INVALID_TXN_STATE


def test_old_and_new_clients_use_one_id_in_turn(wire: WireClient, unique: str, topic: str) -> None:
    # A client that is upgraded finds its transactional id as the old one has left it, and the other way round.
    old = init_producer(wire, unique)
    assert add_partitions(wire, unique, old, topic) == 0
    produced(wire, topic, transactional_batch(old, 0, "old"), transactional_id=unique, version=11)
    assert end_transaction(wire, unique, old, commit=True, version=4).error_code == 0
    wait_for_state(wire, unique, "CompleteCommit")
    new = init_producer(wire, unique)
    write(wire, unique, new, topic, 0, "new")
    end(wire, unique, new, commit=True)
    old_again = init_producer(wire, unique)
    assert add_partitions(wire, unique, old_again, topic) == 0
    assert [old[0], old[0]] == [new[0], old_again[0]]
    assert old[1] < new[1] < old_again[1]


def test_a_plain_idempotent_producer_needs_no_coordinator(wire: WireClient, topic: str) -> None:
    producer = init_producer(wire)
    data = batch("value", producer_id=producer[0], producer_epoch=producer[1], base_sequence=0)
    assert produced(wire, topic, data) == 0
