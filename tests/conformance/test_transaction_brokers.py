"""What brokers say to each other about transactions, and `kafka-transactions` to them: verify, and write markers."""

from typing import Any

import pytest

from headrace.wire.batches import read_header
from headrace.wire.errors import ErrorCode
from tests.conformance.steps import (
    READ_COMMITTED,
    add_partitions,
    batches,
    end_offset,
    fetch,
    init_producer,
    new_topic,
    produced,
    transactional_batch,
)
from tests.conformance.wire_client import WireClient

Producer = tuple[int, int]


@pytest.fixture
def topic(wire: WireClient, unique: str) -> str:
    new_topic(wire, unique)
    return unique


@pytest.fixture
def producer(wire: WireClient, unique: str) -> Producer:
    return init_producer(wire, unique)


def ask_for(
    wire: WireClient, version: int, *transactions: tuple[str, Producer, str], verify_only: bool
) -> dict[str, int]:
    """AddPartitionsToTxn for partition 0 of a topic each: the error code by transactional id."""
    asked = [
        {
            "transactional_id": name,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "verify_only": verify_only,
            "topics": [{"name": topic, "partitions": [0]}],
        }
        for name, producer, topic in transactions
    ]
    response = wire.ask("add_partitions_to_txn", version, transactions=asked)
    assert response.error_code == 0
    return {
        one.transactional_id: one.topic_results[0].results_by_partition[0].partition_error_code
        for one in response.results_by_transaction
    }


def write_marker(wire: WireClient, producer: Producer, topic: str, **fields: Any) -> int:
    marker = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "transaction_result": False,
        "coordinator_epoch": 0,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        **fields,
    }
    response = wire.ask("write_txn_markers", 1, markers=[marker])
    return int(response.markers[0].topics[0].partitions[0].error_code)


@pytest.mark.parametrize("version", [4, 5])
def test_a_partition_is_looked_up_without_being_added(
    wire: WireClient, unique: str, topic: str, producer: Producer, version: int
) -> None:
    transaction = (unique, producer, topic)
    for _ in range(2):
        answer = ask_for(wire, version, transaction, verify_only=True)
        assert answer == {unique: ErrorCode.TRANSACTION_ABORTABLE}
    assert add_partitions(wire, unique, producer, topic) == 0
    assert ask_for(wire, version, transaction, verify_only=True) == {unique: 0}


def test_many_transactions_are_asked_for_at_once(wire: WireClient, unique: str, topic: str) -> None:
    names = [f"{unique}-{number}" for number in range(3)]
    producers = [init_producer(wire, name) for name in names]
    asked = [(name, producer, topic) for name, producer in zip(names, producers, strict=True)]
    stranger = (f"{unique}-not", producers[0], topic)
    nowhere = (names[2], producers[2], f"{topic}-not")
    answers = ask_for(wire, 4, *asked[:2], stranger, nowhere, verify_only=False)
    assert answers == {
        names[0]: 0,
        names[1]: 0,
        f"{unique}-not": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        names[2]: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_an_old_epoch_is_told_to_be_old(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    init_producer(wire, unique)
    code = ask_for(wire, 4, (unique, producer, topic), verify_only=True)[unique]
    assert code == ErrorCode.PRODUCER_FENCED


def test_a_marker_ends_a_transaction_that_hangs(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    add_partitions(wire, unique, producer, topic)
    produced(wire, topic, transactional_batch(producer, 0, "stuck"), transactional_id=unique, version=11)
    assert end_offset(wire, topic, isolation=READ_COMMITTED) == 0
    assert write_marker(wire, producer, topic) == 0
    assert end_offset(wire, topic, isolation=READ_COMMITTED) == 2
    answer = fetch(wire, topic, 0, isolation=READ_COMMITTED)
    assert read_header(batches(answer.records)[1]).is_control
    assert len(answer.aborted_transactions) == 1


def test_a_marker_for_an_unknown_partition_is_refused(wire: WireClient, unique: str) -> None:
    assert write_marker(wire, (4711, 0), unique) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("nobody", [(-1, 0), (4711, -1)], ids=["producer", "epoch"])
def test_a_marker_of_nobody_is_refused(wire: WireClient, topic: str, nobody: Producer) -> None:
    assert write_marker(wire, nobody, topic) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert end_offset(wire, topic) == 0


def test_a_marker_of_an_old_epoch_is_refused(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    later = (producer[0], producer[1] + 1)
    assert write_marker(wire, later, topic) == 0
    assert write_marker(wire, producer, topic) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_of_a_former_coordinator_is_refused(
    wire: WireClient, unique: str, topic: str, producer: Producer
) -> None:
    assert write_marker(wire, producer, topic, coordinator_epoch=5) == 0
    code = write_marker(wire, producer, topic, coordinator_epoch=4)
    assert code == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_producer_without_a_transactional_id_gets_a_new_id_each_time(wire: WireClient) -> None:
    first = init_producer(wire)
    second = init_producer(wire, producer_id=first[0], producer_epoch=first[1])
    assert second[0] != first[0]
    assert (first[1], second[1]) == (0, 0)
