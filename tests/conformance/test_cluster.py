"""The broker described: the cluster, partitions page by page, log directories, producers."""

from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.message import ZERO_UUID
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import plain
from tests.conformance.steps import (
    add_partitions,
    batch,
    init_producer,
    new_topic,
    produced,
    transactional_batch,
)
from tests.conformance.wire_client import WireClient

# DescribeCluster


def test_clients_may_ask_for_brokers_and_not_for_controllers(wire: WireClient) -> None:
    response = wire.ask("describe_cluster", 2, endpoint_type=2)
    assert (response.error_code, response.brokers) == (ErrorCode.MISMATCHED_ENDPOINT_TYPE, [])
    assert response.error_message
    assert wire.ask("describe_cluster", 2, endpoint_type=7).error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


def test_allowed_operations_are_told_on_request(wire: WireClient) -> None:
    response = wire.ask("describe_cluster", 2, include_cluster_authorized_operations=True)
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000


def test_fenced_brokers_are_not_there(broker: BrokerUnderTest, wire: WireClient) -> None:
    response = wire.ask("describe_cluster", 2, include_fenced_brokers=True)
    assert [(one.broker_id, one.is_fenced) for one in response.brokers] == [(broker.node_id, False)]


def test_the_cluster_has_one_id(wire: WireClient) -> None:
    assert wire.ask("describe_cluster", 2).cluster_id == wire.ask("metadata", 12, topics=[]).cluster_id


# DescribeTopicPartitions


def pages(wire: WireClient, limit: int, *topics: str) -> list[list[tuple[str, list[int]]]]:
    """Asks page after page, as `kafka-topics --describe` does, and returns what each held."""
    found, cursor = [], None
    for _ in range(20):
        response = wire.ask(
            "describe_topic_partitions",
            0,
            topics=[{"name": name} for name in topics],
            response_partition_limit=limit,
            cursor=cursor,
        )
        found.append(
            [
                (topic.name, [partition.partition_index for partition in topic.partitions])
                for topic in response.topics
            ]
        )
        if response.next_cursor is None:
            return found
        cursor = plain(response.next_cursor)
    raise AssertionError("the pages do not end")


def test_partitions_come_page_by_page(wire: WireClient, unique: str) -> None:
    first, second = f"{unique}-a", f"{unique}-b"
    new_topic(wire, first, partitions=3)
    new_topic(wire, second, partitions=2)
    assert pages(wire, 10, second, first) == [[(first, [0, 1, 2]), (second, [0, 1])]]
    assert pages(wire, 2, first, second) == [
        [(first, [0, 1])],
        [(first, [2]), (second, [0])],
        [(second, [1])],
    ]
    assert pages(wire, 3, first, second) == [[(first, [0, 1, 2])], [(second, [0, 1])]]


def test_all_topics_are_described_when_none_is_named(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    assert any((unique, [0]) in page for page in pages(wire, 2000))


def test_an_unknown_topic_is_told_to_be_so(wire: WireClient, unique: str) -> None:
    topics = [{"name": unique}, {"name": "not a name"}]
    response = wire.ask("describe_topic_partitions", 0, topics=topics)
    found = {topic.name: (topic.error_code, topic.topic_id, topic.partitions) for topic in response.topics}
    assert found == {
        unique: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ZERO_UUID, []),
        "not a name": (ErrorCode.INVALID_TOPIC_EXCEPTION, ZERO_UUID, []),
    }


def test_a_page_may_begin_anywhere(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=4)
    cursor = {"topic_name": unique, "partition_index": 2}
    response = wire.ask("describe_topic_partitions", 0, topics=[{"name": unique}], cursor=cursor)
    assert [one.partition_index for one in response.topics[0].partitions] == [2, 3]


# DescribeLogDirs


def test_one_directory_holds_everything(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, partitions=2)
    records = batch("value")
    produced(wire, unique, records, partition=1)
    (directory,) = wire.ask("describe_log_dirs", 4, topics=None).results
    (topic,) = [topic for topic in directory.topics if topic.name == unique]
    sizes = {partition.partition_index: partition.partition_size for partition in topic.partitions}
    assert sizes == {0: 0, 1: len(records)}


def test_unknown_partitions_are_in_no_directory(wire: WireClient, unique: str) -> None:
    response = wire.ask("describe_log_dirs", 4, topics=[{"topic": unique, "partitions": [0]}])
    assert (response.error_code, [one.topics for one in response.results]) == (0, [[]])


# DescribeProducers


def producers(wire: WireClient, topic: str, partition: int = 0) -> Any:
    asked = {"name": topic, "partition_indexes": [partition]}
    return wire.ask("describe_producers", 0, topics=[asked]).topics[0].partitions[0]


def test_a_partition_nobody_has_written_to_has_no_producers(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("a producer without an id leaves no trace"))
    found = producers(wire, unique)
    assert (found.error_code, found.active_producers) == (0, [])


def test_an_open_transaction_shows_where_it_began(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("before"))
    producer = init_producer(wire, unique)
    add_partitions(wire, unique, producer, unique)
    produced(wire, unique, transactional_batch(producer, 0, "open"), transactional_id=unique, version=11)
    (state,) = producers(wire, unique).active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (*producer, 0)
    assert (state.current_txn_start_offset, state.coordinator_epoch) == (1, -1)


@pytest.mark.parametrize("partition", [0, 3])
def test_producers_of_an_unknown_partition(wire: WireClient, unique: str, partition: int) -> None:
    if partition:
        new_topic(wire, unique)
    found = producers(wire, unique, partition)
    assert (found.error_code, found.active_producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])


# FindCoordinator


def test_coordinators_of_many_keys_are_found_at_once(
    broker: BrokerUnderTest, wire: WireClient, unique: str
) -> None:
    keys = [f"{unique}-{number}" for number in range(3)]
    response = wire.ask("find_coordinator", 4, key_type=0, coordinator_keys=keys)
    assert [(one.key, one.node_id, one.port, one.error_code) for one in response.coordinators] == [
        (key, broker.node_id, broker.port, 0) for key in keys
    ]


@pytest.mark.parametrize("version", [3, 4])
def test_a_kind_of_coordinator_that_does_not_exist(wire: WireClient, unique: str, version: int) -> None:
    keys: dict[str, Any] = {"coordinator_keys": [unique]} if version >= 4 else {"key": unique}
    response = wire.ask("find_coordinator", version, key_type=9, **keys)
    found = response.coordinators[0] if version >= 4 else response
    assert (found.error_code, found.node_id, found.host, found.port) == (
        ErrorCode.INVALID_REQUEST,
        -1,
        "",
        -1,
    )
