"""Every version of every share API, with its whole answer: what one version carries and another does not."""

from typing import Any

import pytest

from headrace.wire.apis import NAMES
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import ANY, expect
from tests.conformance.share.share_client import ACCEPT, NewMember, either, new_queue
from tests.conformance.share.share_state import ACKNOWLEDGED
from tests.conformance.steps import new_topic, wait_for
from tests.conformance.wire_client import WireClient

ADVERTISED = {
    "share_group_heartbeat": (1, 1),
    "share_group_describe": (1, 1),
    "share_fetch": (1, 2),
    "share_acknowledge": (1, 2),
    "initialize_share_group_state": (0, 0),
    "read_share_group_state": (0, 0),
    "write_share_group_state": (0, 1),
    "delete_share_group_state": (0, 0),
    "read_share_group_state_summary": (0, 1),
    "describe_share_group_offsets": (0, 1),
    "alter_share_group_offsets": (0, 0),
    "delete_share_group_offsets": (0, 0),
}
NAMED = {"client_software_name": "conformance", "client_software_version": "1.0"}
NO_LEADER = {"leader_id": 0, "leader_epoch": 0}


def test_the_versions_are_those_that_kafka_advertises(wire: WireClient) -> None:
    """librdkafka speaks version 1 of ShareFetch and ShareAcknowledge, Java version 2."""
    ranges = {
        NAMES.get(api.api_key): (api.min_version, api.max_version)
        for api in wire.ask("api_versions", 0).api_keys
    }
    assert {name: ranges.get(name) for name in ADVERTISED} == ADVERTISED


def test_share_groups_are_a_feature(broker: BrokerUnderTest, wire: WireClient) -> None:
    """Clients and tools look at `share.version` before they try."""
    answer = wire.ask("api_versions", 4, **NAMED)
    supported = {one.name: range(one.min_version, one.max_version + 1) for one in answer.supported_features}
    finalized = {one.name: one.max_version_level for one in answer.finalized_features}
    why = "version 2 brings dead-letter queues (KIP-1191), which Apache Kafka has from 4.4 on"
    known = either(broker, apache={1}, headrace={1, 2}, because=why)
    assert finalized["share.version"] in known & set(supported["share.version"])
    assert supported["share.version"][0] == 0


def test_heartbeat_and_describe(wire: WireClient, member: NewMember, unique: str) -> None:
    topic_id = new_queue(wire, unique)
    alone = member(topic_id)
    given = [{"topic_id": topic_id, "partitions": [0]}]
    joined = alone.join(unique)
    epoch = alone.epoch  # 2, or 3 where the first member waits for others
    expect(
        joined,
        1,
        member_id=alone.member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=ANY,
        assignment={"topic_partitions": given},
    )
    expect(alone.heartbeat(), 1, member_id=alone.member_id, member_epoch=epoch, heartbeat_interval_ms=ANY)
    described = {
        "group_id": unique,
        "group_state": "Stable",
        "group_epoch": epoch,
        "assignment_epoch": epoch,
        "assignor_name": "simple",
        "members": [
            {
                "member_id": alone.member_id,
                "member_epoch": epoch,
                "client_id": "conformance",
                "client_host": "/127.0.0.1",
                "subscribed_topic_names": [unique],
                "assignment": {
                    "topic_partitions": [{"topic_id": topic_id, "topic_name": unique, "partitions": [0]}]
                },
            }
        ],
        "authorized_operations": -(1 << 31),
    }
    expect(wire.ask("share_group_describe", 1, group_ids=[unique]), 1, groups=[described])


@pytest.mark.parametrize("version", [1, 2])
def test_share_fetch_and_share_acknowledge(
    wire: WireClient, member: NewMember, unique: str, version: int
) -> None:
    topic_id = new_queue(wire, unique, 3)
    alone = member(topic_id)
    acquired = {"first_offset": 0, "last_offset": 2, "delivery_count": 1}
    found = {"records": ANY, "acquired_records": [acquired], "current_leader": NO_LEADER}
    answers = [{"topic_id": topic_id, "partitions": [found]}]
    fetched = alone.fetch(0, version=version).response
    expect(fetched, version, acquisition_lock_timeout_ms=30_000, responses=answers)
    acknowledged = alone.acknowledge({0: [(0, 1, ACCEPT)]}, version=version).response
    done = [{"topic_id": topic_id, "partitions": [{"current_leader": NO_LEADER}]}]
    expect(acknowledged, version, acquisition_lock_timeout_ms=30_000, responses=done)
    closed = alone.acknowledge({}, epoch=-1, version=version).response
    expect(closed, version, acquisition_lock_timeout_ms=ANY)


def state(wire: WireClient, api: str, version: int, group: str, topic_id: bytes, **fields: Any) -> Any:
    partitions = [{"partition": 0, **fields}]
    return wire.ask(api, version, group_id=group, topics=[{"topic_id": topic_id, "partitions": partitions}])


@pytest.mark.parametrize("version", [0, 1])
def test_the_apis_of_the_share_coordinator(wire: WireClient, unique: str, version: int) -> None:
    """Those that have but one version are asked in it."""
    topic_id = new_topic(wire, unique)

    def results(**fields: Any) -> list[dict[str, Any]]:
        return [{"topic_id": topic_id, "partitions": [fields]}]

    def initialize() -> Any:
        """Apache Kafka's coordinator hears of a new topic a little later than its clients do."""
        fresh = {"state_epoch": 3, "start_offset": 5}
        response = state(wire, "initialize_share_group_state", 0, unique, topic_id, **fresh)
        return response if response.results[0].partitions[0].error_code == 0 else None

    expect(wait_for(initialize), 0, results=results())
    batch = {"first_offset": 5, "last_offset": 6, "delivery_state": ACKNOWLEDGED, "delivery_count": 1}
    written = state(
        wire,
        "write_share_group_state",
        version,
        unique,
        topic_id,
        state_epoch=3,
        leader_epoch=0,
        start_offset=5,
        delivery_complete_count=2,
        state_batches=[batch],
    )
    expect(written, version, results=results())
    read = state(wire, "read_share_group_state", 0, unique, topic_id, leader_epoch=1)
    expect(read, 0, results=results(state_epoch=3, start_offset=5, state_batches=[batch]))
    summary = state(wire, "read_share_group_state_summary", version, unique, topic_id, leader_epoch=1)
    counted = {"delivery_complete_count": 2 if version else -1}
    expect(summary, version, results=results(state_epoch=3, leader_epoch=1, start_offset=5, **counted))
    expect(state(wire, "delete_share_group_state", 0, unique, topic_id), 0, results=results())


@pytest.mark.parametrize("version", [0, 1])
def test_the_apis_of_administrators(wire: WireClient, unique: str, version: int) -> None:
    topic_id = new_queue(wire, unique, 10)
    wanted = {"topic_name": unique, "partitions": [{"partition_index": 0, "start_offset": 4}]}
    altered = wire.ask("alter_share_group_offsets", 0, group_id=unique, topics=[wanted])
    of_topic = {"topic_name": unique, "topic_id": topic_id}
    expect(altered, 0, responses=[{**of_topic, "partitions": [{}]}])
    described = wire.ask(
        "describe_share_group_offsets", version, groups=[{"group_id": unique, "topics": None}]
    )
    found = [{"start_offset": 4, "lag": 6}]
    expect(described, version, groups=[{"group_id": unique, "topics": [{**of_topic, "partitions": found}]}])
    deleted = wire.ask("delete_share_group_offsets", 0, group_id=unique, topics=[{"topic_name": unique}])
    expect(deleted, 0, responses=[of_topic])
