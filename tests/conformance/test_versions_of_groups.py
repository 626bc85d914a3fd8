"""The APIs of groups and their offsets, in every version: one request and its whole response."""

from typing import Any

from headrace.wire.errors import ErrorCode
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import ANY, expect
from tests.conformance.steps import (
    METADATA,
    commit,
    committed,
    describe_group,
    join_named,
    join_request,
    new_topic,
    stable_group,
    wait_for,
)
from tests.conformance.versions import every_version
from tests.conformance.wire_client import WireClient

MEMBER_ID_REQUIRED_SINCE = 4


@every_version("find_coordinator")
def test_find_coordinator(broker: BrokerUnderTest, wire: WireClient, unique: str, version: int) -> None:
    here = {"node_id": broker.node_id, "host": broker.host, "port": broker.port}
    for key_type in (0, 1) if version >= 1 else (0,):
        keys: dict[str, Any] = {"coordinator_keys": [unique]} if version >= 4 else {"key": unique}
        response = wire.ask("find_coordinator", version, key_type=key_type, **keys)
        expect(
            response,
            version,
            error_message="NONE",
            **here,
            coordinators=[{"key": unique, "error_message": "", **here}],
        )


@every_version("join_group")
def test_join_group(wire: WireClient, unique: str, version: int) -> None:
    member_id = ""
    if version >= MEMBER_ID_REQUIRED_SINCE:
        first = wire.ask("join_group", version, **join_request(unique))
        expect(
            first,
            version,
            error_code=ErrorCode.MEMBER_ID_REQUIRED,
            generation_id=-1,
            protocol_name=None if version >= 7 else "",
            member_id=ANY,
        )
        member_id = first.member_id
    joined = wire.ask("join_group", version, **join_request(unique, member_id))
    assert joined.member_id.startswith("conformance-")
    assert member_id in ("", joined.member_id)
    expect(
        joined,
        version,
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=joined.member_id,
        member_id=joined.member_id,
        members=[{"member_id": joined.member_id, "metadata": METADATA}],
    )


@every_version("sync_group")
def test_sync_group(wire: WireClient, unique: str, version: int) -> None:
    joined = join_named(wire, unique)
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    response = wire.ask(
        "sync_group",
        version,
        group_id=unique,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
        assignments=[{"member_id": joined.member_id, "assignment": b"yours"}],
        **names,
    )
    expect(response, version, protocol_type="consumer", protocol_name="range", assignment=b"yours")


@every_version("heartbeat")
def test_heartbeat(wire: WireClient, unique: str, version: int) -> None:
    joined = stable_group(wire, unique)
    response = wire.ask(
        "heartbeat",
        version,
        group_id=unique,
        generation_id=joined.generation_id,
        member_id=joined.member_id,
    )
    expect(response, version)


@every_version("leave_group")
def test_leave_group(wire: WireClient, unique: str, version: int) -> None:
    member_id = stable_group(wire, unique).member_id
    who: dict[str, Any] = (
        {"members": [{"member_id": member_id}]} if version >= 3 else {"member_id": member_id}
    )
    response = wire.ask("leave_group", version, group_id=unique, **who)
    expect(response, version, members=[{"member_id": member_id, "group_instance_id": None}])
    assert describe_group(wire, unique).group_state == "Empty"


@every_version("describe_groups")
def test_describe_groups(wire: WireClient, unique: str, version: int) -> None:
    joined = stable_group(wire, unique)
    response = wire.ask("describe_groups", version, groups=[unique])
    member = {
        "member_id": joined.member_id,
        "client_id": "conformance",
        "client_host": "/127.0.0.1",
        "member_metadata": METADATA,
        "member_assignment": b"all",
    }
    expect(
        response,
        version,
        groups=[
            {
                "group_id": unique,
                "group_state": "Stable",
                "protocol_type": "consumer",
                "protocol_data": "range",
                "members": [member],
            }
        ],
    )


@every_version("list_groups")
def test_list_groups(wire: WireClient, unique: str, version: int) -> None:
    stable_group(wire, unique)
    response = wire.ask("list_groups", version)
    expect(response, version, groups=ANY)
    (listed,) = [group for group in response.groups if group.group_id == unique]
    assert listed.protocol_type == "consumer"
    assert listed.group_state == ("Stable" if version >= 4 else "")
    assert listed.group_type == ("classic" if version >= 5 else "")


@every_version("delete_groups")
def test_delete_groups(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique)
    commit(wire, unique, unique, 7)
    response = wire.ask("delete_groups", version, groups_names=[unique])
    expect(response, version, results=[{"group_id": unique}])
    assert committed(wire, unique, unique).committed_offset == -1


@every_version("offset_commit")
def test_offset_commit(wire: WireClient, unique: str, version: int) -> None:
    topic = {"name": unique, "topic_id": new_topic(wire, unique)}
    partition = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "note"}
    leader_epoch = {"committed_leader_epoch": 0} if version >= 6 else {}
    response = wire.ask(
        "offset_commit",
        version,
        group_id=unique,
        topics=[{**topic, "partitions": [partition | leader_epoch]}],
    )
    expect(response, version, topics=[{**topic, "partitions": [{"partition_index": 0}]}])
    found = committed(wire, unique, unique)
    assert (found.committed_offset, found.metadata) == (7, "note")
    assert found.committed_leader_epoch == (0 if version >= 6 else -1)


@every_version("offset_fetch")
def test_offset_fetch(wire: WireClient, unique: str, version: int) -> None:
    topic = {"name": unique, "topic_id": new_topic(wire, unique, partitions=2)}
    commit(wire, unique, unique, 7, metadata="note")
    wanted = {**topic, "partition_indexes": [0, 1]}
    if version >= 8:
        response = wire.ask("offset_fetch", version, groups=[{"group_id": unique, "topics": [wanted]}])
    else:
        del wanted["topic_id"]
        response = wire.ask("offset_fetch", version, group_id=unique, topics=[wanted])
    partitions = [
        {"partition_index": 0, "committed_offset": 7, "metadata": "note"},
        {"partition_index": 1, "committed_offset": -1, "metadata": ""},
    ]
    expect(
        response,
        version,
        topics=[{"name": unique, "partitions": partitions}],
        groups=[{"group_id": unique, "topics": [{**topic, "partitions": partitions}]}],
    )


@every_version("offset_delete")
def test_offset_delete(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique)
    commit(wire, unique, unique, 7)
    partition = {"partition_index": 0}
    response = wire.ask(
        "offset_delete", version, group_id=unique, topics=[{"name": unique, "partitions": [partition]}]
    )
    expect(response, version, topics=[{"name": unique, "partitions": [partition]}])
    assert committed(wire, unique, unique).committed_offset == -1


def join_consumer_group(wire: WireClient, group: str, member_id: str, version: int) -> Any:
    """Joins until the coordinator has heard of the topic; the response that carries the assignment."""

    def joined() -> Any:
        nonlocal member_id
        response = wire.ask(
            "consumer_group_heartbeat",
            version,
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[group],
            topic_partitions=[],
        )
        assert response.error_code == 0, response
        member_id = response.member_id
        return response if response.assignment.topic_partitions else None

    return wait_for(joined)


@every_version("consumer_group_heartbeat")
def test_consumer_group_heartbeat(wire: WireClient, unique: str, version: int) -> None:
    topic_id = new_topic(wire, unique, partitions=2)
    # From v1 on the client chooses its member id (KIP-1082); in v0 the coordinator did.
    response = join_consumer_group(wire, unique, "member" if version >= 1 else "", version)
    assert response.member_id == "member" if version >= 1 else len(response.member_id) == 22
    expect(
        response,
        version,
        member_id=response.member_id,
        member_epoch=ANY,
        heartbeat_interval_ms=5000,
        assignment={"topic_partitions": [{"topic_id": topic_id, "partitions": [0, 1]}]},
    )


@every_version("consumer_group_describe")
def test_consumer_group_describe(wire: WireClient, unique: str, version: int) -> None:
    topic_id = new_topic(wire, unique)
    joined = join_consumer_group(wire, unique, "member", 1)
    response = wire.ask("consumer_group_describe", version, group_ids=[unique])
    assignment = {"topic_partitions": [{"topic_id": topic_id, "topic_name": unique, "partitions": [0]}]}
    member = {
        "member_id": "member",
        "member_epoch": joined.member_epoch,
        "client_id": "conformance",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": [unique],
        "subscribed_topic_regex": ANY,
        "assignment": assignment,
        "target_assignment": assignment,
        "member_type": 1,
    }
    expect(
        response,
        version,
        groups=[
            {
                "group_id": unique,
                "group_state": "Stable",
                "group_epoch": joined.member_epoch,
                "assignment_epoch": joined.member_epoch,
                "assignor_name": "uniform",
                "members": [member],
            }
        ],
    )
