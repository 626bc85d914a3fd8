"""Connections: requests are answered in their order, and none waits for another connection's."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.steps import (
    batch,
    describe_group,
    fetch_request,
    join,
    join_request,
    leave,
    new_topic,
    produced,
    stable_group,
    values,
    wait_for,
)
from tests.conformance.wire_client import WireClient

Connect = Callable[[], WireClient]


def test_many_requests_of_all_kinds_are_answered_in_order(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    record = {"name": unique, "partition_data": [{"index": 0, "records": batch("value")}]}
    end = {"name": unique, "partitions": [{"partition_index": 0, "timestamp": -1}]}
    sent: list[str] = []
    for _ in range(25):
        wire.post_ask("produce", 12, acks=-1, topic_data=[record])
        wire.post_ask("metadata", 12, topics=[{"name": unique}])
        wire.post_ask("list_offsets", 11, replica_id=-1, topics=[end])
        wire.post_ask("fetch", 12, **fetch_request(unique, 0))
        sent += ["ProduceResponse", "MetadataResponse", "ListOffsetsResponse", "FetchResponse"]
    answers = [wire.receive() for _ in sent]
    assert [type(answer).__name__ for answer in answers] == sent
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers[::4]]
    assert offsets == list(range(25))
    # A request sees what those before it on its connection have done.
    ends = [answer.topics[0].partitions[0].offset for answer in answers[2::4]]
    assert ends == list(range(1, 26))


def test_requests_without_an_answer_keep_their_place(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    for number in range(10):
        record = {
            "name": unique,
            "partition_data": [{"index": 0, "records": batch(str(number))}],
        }
        wire.post_ask("produce", 12, acks=-1 if number % 2 else 0, topic_data=[record])
    offsets = [wire.receive().responses[0].partition_responses[0].base_offset for _ in range(5)]
    assert offsets == [1, 3, 5, 7, 9]


def test_a_client_that_does_not_read_holds_back_nobody(
    wire: WireClient, connect: Connect, unique: str
) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch(b"x" * 500_000))
    lazy = connect()
    for _ in range(60):  # 30 MB of answers, far more than fit into the sockets
        lazy.post_ask("fetch", 12, **fetch_request(unique, 0))
    for _ in range(5):
        assert produced(wire, unique, batch("news")) > 0
    # And when it reads at last, everything is there.
    for _ in range(60):
        assert len(lazy.receive().responses[0].partitions[0].records) > 500_000


def test_a_client_that_leaves_with_its_answers_unread_disturbs_nobody(
    wire: WireClient, connect: Connect, unique: str
) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch(b"x" * 500_000))
    for _ in range(3):
        rude = connect()
        for _ in range(20):
            rude.post_ask("fetch", 12, **fetch_request(unique, 0))
        rude.close()
    assert produced(wire, unique, batch("news")) == 1


def test_nothing_is_kept_of_clients_that_left_while_they_waited(
    broker: BrokerUnderTest,
    request: pytest.FixtureRequest,
    wire: WireClient,
    connect: Connect,
    unique: str,
) -> None:
    new_topic(wire, unique)
    for _ in range(20):
        waiting = connect()
        waiting.post_ask("fetch", 12, **fetch_request(unique, 0, max_wait_ms=20_000))
        waiting.close()
    assert produced(wire, unique, batch("news")) == 0
    if not broker.is_apache:
        ours = request.getfixturevalue("headrace")
        wait_for(lambda: ours.call(lambda: len(ours.core.parked) == 0))


def test_a_hundred_connections_are_served(connect: Connect, unique: str) -> None:
    clients = [connect() for _ in range(100)]
    new_topic(clients[0], unique)
    for client in clients:
        client.post_ask("metadata", 12, topics=[{"name": unique}])
    answers: list[Any] = [client.receive() for client in clients]
    assert {answer.topics[0].name for answer in answers} == {unique}


def test_a_large_request_is_taken(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique, configs={"max.message.bytes": str(16 << 20)})
    value = b"x" * (10 << 20)
    assert produced(wire, unique, batch(value)) == 0
    wire.post_ask("fetch", 12, **fetch_request(unique, 0, max_bytes=32 << 20, partition_max_bytes=32 << 20))
    assert values(wire.receive().responses[0].partitions[0].records) == [value]


def test_a_waiting_join_of_a_client_that_left_is_forgotten(
    wire: WireClient, connect: Connect, unique: str
) -> None:
    member_id = stable_group(wire, unique).member_id
    leaver = connect()
    newcomer = join(leaver, unique).member_id
    leaver.post_ask("join_group", 9, **join_request(unique, newcomer, rebalance_ms=2000, session_ms=500))
    wait_for(lambda: describe_group(wire, unique).group_state == "PreparingRebalance")
    leaver.close()
    # It never comes back to sync: the one that stays goes on without it in the end.
    rejoined = join(wire, unique, member_id)
    assert rejoined.error_code == 0
    leave(wire, unique, member_id)
    wait_for(lambda: describe_group(wire, unique).group_state == "Empty")
