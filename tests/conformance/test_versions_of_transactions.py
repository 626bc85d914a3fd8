"""The APIs of producers and transactions, in every version: one request and its whole response."""

from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from tests.conformance.plain import ANY, expect
from tests.conformance.steps import (
    add_partitions,
    batch,
    commit_in_transaction,
    committed,
    end_offset,
    end_transaction,
    init_producer,
    new_topic,
    produced,
    transactional_batch,
    wait_for,
    wait_for_state,
)
from tests.conformance.versions import every_version
from tests.conformance.wire_client import WireClient

BUMPS_EPOCH_SINCE = 5


@pytest.fixture
def producer(wire: WireClient, unique: str) -> tuple[int, int]:
    return init_producer(wire, unique)


@pytest.fixture
def topic(wire: WireClient, unique: str) -> str:
    new_topic(wire, unique)
    return unique


@every_version("init_producer_id")
def test_init_producer_id(wire: WireClient, unique: str, version: int) -> None:
    for transactional_id in (None, unique):
        response = wire.ask(
            "init_producer_id", version, transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        expect(response, version, producer_id=ANY, producer_epoch=0)
        assert response.producer_id >= 0


@every_version("add_partitions_to_txn")
def test_add_partitions_to_txn(
    wire: WireClient, unique: str, producer: tuple[int, int], topic: str, version: int
) -> None:
    topics = [{"name": topic, "partitions": [0]}]
    results = [{"name": topic, "results_by_partition": [{"partition_index": 0}]}]
    # v4 and v5 are for brokers that ask for many producers at once; the rest is for clients.
    fields: dict[str, Any]
    if version >= 4:
        transaction = {
            "transactional_id": unique,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "topics": topics,
        }
        fields = {"transactions": [transaction]}
    else:
        fields = {
            "v3_and_below_transactional_id": unique,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": topics,
        }
    response = wire.ask("add_partitions_to_txn", version, **fields)
    expect(
        response,
        version,
        results_by_transaction=[{"transactional_id": unique, "topic_results": results}],
        results_by_topic_v3_and_below=results,
    )
    assert wait_for_state(wire, unique, "Ongoing").topics[0].topic == topic


@every_version("add_offsets_to_txn")
def test_add_offsets_to_txn(wire: WireClient, unique: str, producer: tuple[int, int], version: int) -> None:
    response = wire.ask(
        "add_offsets_to_txn",
        version,
        transactional_id=unique,
        producer_id=producer[0],
        producer_epoch=producer[1],
        group_id=unique,
    )
    expect(response, version)
    assert wait_for_state(wire, unique, "Ongoing").topics[0].topic == "__consumer_offsets"


@every_version("txn_offset_commit")
def test_txn_offset_commit(
    wire: WireClient, unique: str, producer: tuple[int, int], topic: str, version: int
) -> None:
    if version < BUMPS_EPOCH_SINCE:
        added = wire.ask(
            "add_offsets_to_txn",
            3,
            transactional_id=unique,
            producer_id=producer[0],
            producer_epoch=producer[1],
            group_id=unique,
        )
        assert added.error_code == 0
    assert commit_in_transaction(wire, unique, producer, unique, topic, 7, version=version) == 0
    assert committed(wire, unique, topic).committed_offset == -1
    ended = end_transaction(
        wire, unique, producer, commit=True, version=5 if version >= BUMPS_EPOCH_SINCE else 4
    )
    assert ended.error_code == 0
    wait_for(lambda: committed(wire, unique, topic).committed_offset == 7)


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@every_version("end_txn")
def test_end_txn(
    wire: WireClient, unique: str, producer: tuple[int, int], topic: str, version: int, is_commit: bool
) -> None:
    if version >= BUMPS_EPOCH_SINCE:
        produce_version = 12
    else:
        assert add_partitions(wire, unique, producer, topic) == 0
        produce_version = 11
    records = transactional_batch(producer, 0, "value")
    assert produced(wire, topic, records, transactional_id=unique, version=produce_version) == 0
    response = wire.ask(
        "end_txn",
        version,
        transactional_id=unique,
        producer_id=producer[0],
        producer_epoch=producer[1],
        committed=is_commit,
    )
    # Transaction version 2 gives the producer a new epoch with every transaction (KIP-890).
    expect(response, version, producer_id=producer[0], producer_epoch=producer[1] + 1)
    wait_for_state(wire, unique, "CompleteCommit" if is_commit else "CompleteAbort")
    assert end_offset(wire, topic) == 2


@every_version("write_txn_markers")
def test_write_txn_markers(wire: WireClient, unique: str, topic: str, version: int) -> None:
    # Coordinators of other brokers send this one; `kafka-transactions abort` does too, for hanging transactions.
    producer = init_producer(wire, unique)
    assert add_partitions(wire, unique, producer, topic) == 0
    produced(wire, topic, transactional_batch(producer, 0, "value"), transactional_id=unique, version=11)
    marker = {
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "transaction_result": False,
        "topics": [{"name": topic, "partition_indexes": [0]}],
        "coordinator_epoch": 0,
    }
    response = wire.ask("write_txn_markers", version, markers=[marker])
    partitions = [{"partition_index": 0}]
    expect(
        response,
        version,
        markers=[{"producer_id": producer[0], "topics": [{"name": topic, "partitions": partitions}]}],
    )
    assert end_offset(wire, topic, isolation=1) == 2


@every_version("describe_producers")
def test_describe_producers(wire: WireClient, topic: str, version: int) -> None:
    producer_id, epoch = init_producer(wire)
    timestamp = 1_700_000_000_000
    produced(
        wire,
        topic,
        batch("a", "b", producer_id=producer_id, producer_epoch=epoch, base_sequence=0, timestamp=timestamp),
    )
    response = wire.ask("describe_producers", version, topics=[{"name": topic, "partition_indexes": [0]}])
    state = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "last_sequence": 1,
        "last_timestamp": timestamp,
        "coordinator_epoch": -1,
        "current_txn_start_offset": -1,
    }
    expect(
        response,
        version,
        topics=[{"name": topic, "partitions": [{"partition_index": 0, "active_producers": [state]}]}],
    )


@every_version("describe_transactions")
def test_describe_transactions(
    wire: WireClient, unique: str, producer: tuple[int, int], topic: str, version: int
) -> None:
    add_partitions(wire, unique, producer, topic)
    response = wire.ask("describe_transactions", version, transactional_ids=[unique, "nobody"])
    ongoing = {
        "transactional_id": unique,
        "transaction_state": "Ongoing",
        "transaction_timeout_ms": 60_000,
        "transaction_start_time_ms": ANY,
        "producer_id": producer[0],
        "producer_epoch": producer[1],
        "topics": [{"topic": topic, "partitions": [0]}],
    }
    unknown = {
        "transactional_id": "nobody",
        "error_code": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    }
    expect(response, version, transaction_states=[ongoing, unknown])


@every_version("list_transactions")
def test_list_transactions(wire: WireClient, unique: str, producer: tuple[int, int], version: int) -> None:
    response = wire.ask(
        "list_transactions", version, state_filters=["Empty"], producer_id_filters=[producer[0]]
    )
    listed = {"transactional_id": unique, "producer_id": producer[0], "transaction_state": "Empty"}
    expect(response, version, transaction_states=[listed])
