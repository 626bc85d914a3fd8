"""Metadata (3): which topics a client is told of, and which it makes by asking."""

from collections.abc import Callable
from typing import Any

import pytest

from headrace.wire.errors import ErrorCode
from headrace.wire.message import ZERO_UUID
from tests.conformance.plain import plain
from tests.conformance.steps import commit, init_producer, new_topic, wait_for
from tests.conformance.wire_client import WireClient

NO_OPERATIONS = -(2**31)


def names(response: Any) -> list[str]:
    return [topic.name for topic in response.topics]


def ask(wire: WireClient, name: str | None, *, topic_id: bytes = ZERO_UUID, version: int = 12) -> Any:
    wanted = {"name": name, "topic_id": topic_id}
    return wire.ask("metadata", version, topics=[wanted], allow_auto_topic_creation=False).topics[0]


def refused(name: str | None, code: ErrorCode, topic_id: bytes = ZERO_UUID) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": [],
        "topic_authorized_operations": NO_OPERATIONS,
    }


def test_null_asks_for_all_topics(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    assert unique in names(wire.ask("metadata", 12, topics=None))


def test_version_0_asks_for_all_topics_with_an_empty_list(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    assert unique in names(wire.ask("metadata", 0, topics=[]))


def test_an_empty_list_asks_for_no_topics_from_version_1_on(wire: WireClient) -> None:
    response = wire.ask("metadata", 1, topics=[])
    assert names(response) == []
    assert len(response.brokers) == 1


def test_an_unknown_topic_is_not_made_unless_the_client_allows_it(wire: WireClient, unique: str) -> None:
    for _ in range(2):
        assert plain(ask(wire, unique)) == refused(unique, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_an_unknown_topic_is_made_when_the_client_allows_it(wire: WireClient, unique: str) -> None:
    def made() -> Any:
        (topic,) = wire.ask("metadata", 12, topics=[{"name": unique}], allow_auto_topic_creation=True).topics
        assert topic.error_code in (
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.LEADER_NOT_AVAILABLE,
        )
        return topic if topic.error_code == 0 else None

    assert [partition.partition_index for partition in wait_for(made).partitions] == [0]


def test_clients_before_version_4_always_allow_it(wire: WireClient, unique: str) -> None:
    wait_for(lambda: wire.ask("metadata", 3, topics=[{"name": unique}]).topics[0].error_code == 0)


def test_a_broker_may_forbid_it(broker_with: Callable[..., Any], unique: str) -> None:
    broker = broker_with({"auto.create.topics.enable": "false"})
    with WireClient(broker.bootstrap_servers) as wire:
        for _ in range(2):
            (topic,) = wire.ask(
                "metadata", 12, topics=[{"name": unique}], allow_auto_topic_creation=True
            ).topics
            assert plain(topic) == refused(unique, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("name", ["has space", "sla/sh", ".", "..", "x" * 250, ""])
@pytest.mark.parametrize("may_create", [True, False], ids=["create", "look"])
def test_a_name_that_is_no_name_is_refused(wire: WireClient, name: str, may_create: bool) -> None:
    (topic,) = wire.ask("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=may_create).topics
    assert plain(topic) == refused(name, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_a_topic_is_found_by_its_id(wire: WireClient, unique: str) -> None:
    topic_id = new_topic(wire, unique)
    found = ask(wire, None, topic_id=topic_id)
    assert (found.error_code, found.name, found.topic_id) == (0, unique, topic_id)


def test_an_unknown_id_has_an_error_of_its_own(wire: WireClient) -> None:
    nobodys = bytes(range(16))
    found = ask(wire, None, topic_id=nobodys)
    assert plain(found) == refused(None, ErrorCode.UNKNOWN_TOPIC_ID, nobodys)


def test_several_topics_are_answered_each_for_itself(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    wanted = [{"name": unique}, {"name": f"{unique}-not"}, {"name": "not a name"}]
    topics = wire.ask("metadata", 12, topics=wanted, allow_auto_topic_creation=False).topics
    assert {topic.name: topic.error_code for topic in topics} == {
        unique: 0,
        f"{unique}-not": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "not a name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


def test_a_topic_asked_for_twice_is_told_once(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    assert names(wire.ask("metadata", 12, topics=[{"name": unique}, {"name": unique}])) == [unique]


def test_allowed_operations_are_told_on_request(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    response = wire.ask(
        "metadata",
        10,
        topics=[{"name": unique}],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    # Read, write, create, delete, alter, describe, describe and alter configs; without access control, all of them.
    assert response.topics[0].topic_authorized_operations == 0b1101_1111_1000
    # Create, alter, describe, cluster action, describe and alter configs, idempotent write.
    assert response.cluster_authorized_operations == 0b1_1111_1010_0000


def test_the_topics_of_the_coordinators_are_internal(wire: WireClient, unique: str) -> None:
    new_topic(wire, unique)
    commit(wire, unique, unique, 0)
    init_producer(wire, unique)
    assert ask(wire, "__consumer_offsets").is_internal
    assert len(ask(wire, "__consumer_offsets").partitions) == 50
    assert ask(wire, "__transaction_state").is_internal


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_told_before_they_can_be_asked_for(wire: WireClient, unique: str, version: int) -> None:
    topic_id = new_topic(wire, unique)
    assert ask(wire, unique, version=version).topic_id == topic_id
    (found,) = wire.ask("metadata", version, topics=[{"name": "", "topic_id": topic_id}]).topics
    assert found.error_code == ErrorCode.INVALID_REQUEST
