"""The steps that tests are made of: make a topic, produce, fetch, join a group.

Each takes the connection to speak on and returns the part of the response that tests look at. Apache Kafka answers a
change before every part of the broker has heard of it, so steps that change something wait until it shows.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from headrace.wire.codec import encode
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from headrace.wire.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from headrace.wire.records import NewRecord, build_batch, read_records
from tests.conformance.wire_client import WireClient

T = TypeVar("T")

TOPIC, BROKER, GROUP = 2, 4, 32
"""Kinds of resources that have configs."""
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
"""What IncrementalAlterConfigs can do with a value."""
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
SESSION_MS = 30_000
COORDINATOR_ERRORS = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


def wait_for(look: Callable[[], T | None], *, timeout_s: float = 60.0, every_s: float = 0.01) -> T:
    """What `look` returns, as soon as that is neither None nor False."""
    deadline = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(every_s)  # the pace of looking
    return found


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def wait_until_coordinators_are_ready(wire: WireClient) -> None:
    """Makes a fresh Apache Kafka create its internal topics, and waits until each of their partitions is loaded."""
    names = [f"warm-up-{number}" for number in range(600)]  # enough to meet each of 50 partitions

    def groups_are_ready() -> bool:
        wire.ask("find_coordinator", 4, key_type=0, coordinator_keys=names[:1])
        groups = wire.ask("describe_groups", 5, groups=names).groups
        return not {group.error_code for group in groups} & COORDINATOR_ERRORS

    def transactions_are_ready() -> bool:
        wire.ask("find_coordinator", 4, key_type=1, coordinator_keys=names[:1])
        states = wire.ask("describe_transactions", 0, transactional_ids=names).transaction_states
        return not {state.error_code for state in states} & COORDINATOR_ERRORS

    def producer_ids_are_ready() -> bool:
        return bool(wire.ask("init_producer_id", 5, transactional_id=None).error_code == 0)

    wait_for(producer_ids_are_ready, timeout_s=60)
    wait_for(groups_are_ready, timeout_s=60)
    wait_for(transactions_are_ready, timeout_s=60)


# Topics


def new_topic(
    wire: WireClient, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> bytes:
    """Creates a topic, waits until it can be used, and returns its id."""
    wanted = [{"name": key, "value": value} for key, value in (configs or {}).items()]
    topic = {"name": name, "num_partitions": partitions, "replication_factor": 1, "configs": wanted}
    (created,) = wire.ask("create_topics", 7, topics=[topic], timeout_ms=10_000).topics
    assert created.error_code == 0, created
    wait_until_led(wire, name, partitions)
    return bytes(created.topic_id)


def wait_until_led(wire: WireClient, name: str, partitions: int = 1) -> None:
    wait_for(lambda: all(list_offset(wire, name, index, -1).error_code == 0 for index in range(partitions)))


def topic_id_of(wire: WireClient, name: str) -> bytes:
    (topic,) = wire.ask("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False).topics
    return bytes(topic.topic_id)


def list_offset(
    wire: WireClient, topic: str, partition: int, timestamp: int, *, isolation: int = 0, version: int = 11
) -> Any:
    asked = {"partition_index": partition, "timestamp": timestamp}
    response = wire.ask(
        "list_offsets",
        version,
        replica_id=-1,
        isolation_level=isolation,
        topics=[{"name": topic, "partitions": [asked]}],
    )
    return response.topics[0].partitions[0]


def end_offset(wire: WireClient, topic: str, partition: int = 0, *, isolation: int = 0) -> int:
    return int(list_offset(wire, topic, partition, -1, isolation=isolation).offset)


# Records


def batch(*values: bytes | str | None, **options: Any) -> bytes:
    """One batch of records with these values, made now; `key` and `timestamp` hold for all of them."""
    key, timestamp = options.pop("key", None), options.pop("timestamp", now_ms())
    return build_batch(
        [
            NewRecord(key, value.encode() if isinstance(value, str) else value, (), timestamp)
            for value in values
        ],
        **options,
    )


def produce(
    wire: WireClient,
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = -1,
    version: int = 12,
    transactional_id: str | None = None,
) -> Any:
    """Sends records to one partition and returns that partition's answer."""
    response = wire.ask(
        "produce",
        version,
        acks=acks,
        timeout_ms=10_000,
        transactional_id=transactional_id,
        topic_data=[{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    )
    return response.responses[0].partition_responses[0]


def produced(wire: WireClient, topic: str, records: bytes, **options: Any) -> int:
    """Sends records that must be taken and returns the offset of the first."""
    answer = produce(wire, topic, records, **options)
    assert answer.error_code == 0, answer
    return int(answer.base_offset)


def fetch_request(
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    partition_max_bytes: int = 1 << 20,
    isolation: int = 0,
    leader_epoch: int = -1,
    **more: Any,
) -> dict[str, Any]:
    """The fields of a fetch of one partition by name (up to v12)."""
    wanted = {
        "partition": partition,
        "fetch_offset": offset,
        "partition_max_bytes": partition_max_bytes,
        "current_leader_epoch": leader_epoch,
    }
    return {
        "max_wait_ms": max_wait_ms,
        "min_bytes": min_bytes,
        "max_bytes": max_bytes,
        "isolation_level": isolation,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        **more,
    }


def fetch(wire: WireClient, topic: str, offset: int, **options: Any) -> Any:
    """Fetches one partition and returns that partition's answer."""
    response = wire.ask("fetch", 12, **fetch_request(topic, offset, **options))
    return response.responses[0].partitions[0]


def values(data: bytes | None) -> list[bytes | None]:
    """The values of all records in these batches."""
    return [record.value for one in batches(data) for record in read_records(one)]


def batches(data: bytes | None) -> list[bytes]:
    """The whole batches in fetched bytes; a last one that is cut off is left out, as clients do."""
    found, rest = [], data or b""
    while len(rest) > 12 and len(rest) >= (size := 12 + int.from_bytes(rest[8:12], "big")):
        found.append(bytes(rest[:size]))
        rest = rest[size:]
    return found


# Configs


def alter(wire: WireClient, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    """IncrementalAlterConfigs of one resource: (setting, operation, value)."""
    configs = [{"name": key, "config_operation": how, "value": value} for key, how, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    return wire.ask("incremental_alter_configs", 1, resources=[resource]).responses[0]


def describe_configs(wire: WireClient, kind: int, name: str, *keys: str) -> dict[str, Any]:
    """The configs of a resource by name: those asked for, or all."""
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
    (result,) = wire.ask(
        "describe_configs", 4, resources=[resource], include_synonyms=True, include_documentation=True
    ).results
    assert result.error_code == 0, result
    return {config.name: config for config in result.configs}


def set_config(wire: WireClient, kind: int, name: str, setting: str, value: str) -> None:
    """Sets a config and waits until it shows."""
    answer = alter(wire, kind, name, (setting, SET, value))
    assert answer.error_code == 0, answer
    wait_for(lambda: describe_configs(wire, kind, name, setting)[setting].value == value)


# Classic groups


def subscription(*topics: str) -> bytes:
    """What a classic consumer says of itself when it joins: a version and the topics it wants."""
    return b"\x00\x00" + encode(ConsumerProtocolSubscription(topics=topics), 0)


def assignment(**partitions: list[int]) -> bytes:
    """What the leader of a classic group of consumers gives a member."""
    given = [TopicPartition(topic=topic, partitions=indexes) for topic, indexes in partitions.items()]
    return b"\x00\x00" + encode(ConsumerProtocolAssignment(assigned_partitions=given, user_data=None), 0)


METADATA = subscription("somewhere")


def join(wire: WireClient, group: str, member_id: str = "", *, version: int = 9, **fields: Any) -> Any:
    """One JoinGroup request. Protocols are given as {name: metadata}."""
    return wire.ask("join_group", version, **join_request(group, member_id, **fields))


def join_request(
    group: str,
    member_id: str = "",
    *,
    protocols: Mapping[str, bytes] | None = None,
    session_ms: int = SESSION_MS,
    rebalance_ms: int = SESSION_MS,
    instance: str | None = None,
    protocol_type: str = "consumer",
) -> dict[str, Any]:
    offered = {"range": METADATA} if protocols is None else protocols
    return {
        "group_id": group,
        "session_timeout_ms": session_ms,
        "rebalance_timeout_ms": rebalance_ms,
        "member_id": member_id,
        "group_instance_id": instance,
        "protocol_type": protocol_type,
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in offered.items()],
    }


def join_named(wire: WireClient, group: str, **fields: Any) -> Any:
    """Joins as a new member: asks for a member id first, as clients since 2.2 do (KIP-394)."""
    first = join(wire, group, **fields)
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED, first
    joined = join(wire, group, first.member_id, **fields)
    assert joined.error_code == 0, joined
    return joined


def sync(
    wire: WireClient,
    group: str,
    member_id: str,
    generation: int,
    assignments: Mapping[str, bytes] | None = None,
    *,
    version: int = 5,
    **fields: Any,
) -> Any:
    given = [{"member_id": name, "assignment": data} for name, data in (assignments or {}).items()]
    names = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return wire.ask(
        "sync_group",
        version,
        group_id=group,
        generation_id=generation,
        member_id=member_id,
        assignments=given,
        **{**names, **fields},
    )


def stable_group(wire: WireClient, group: str, **fields: Any) -> Any:
    """A group with one member that has its assignment; returns the member's JoinGroup response."""
    joined = join_named(wire, group, **fields)
    synced = sync(wire, group, joined.member_id, joined.generation_id, {joined.member_id: b"all"})
    assert (synced.error_code, synced.assignment) == (0, b"all"), synced
    return joined


def heartbeat(wire: WireClient, group: str, member_id: str, generation: int, **fields: Any) -> int:
    fields = {"group_id": group, "member_id": member_id, "generation_id": generation, **fields}
    return int(wire.ask("heartbeat", 4, **fields).error_code)


def leave(wire: WireClient, group: str, member_id: str, **fields: Any) -> Any:
    return wire.ask("leave_group", 5, group_id=group, members=[{"member_id": member_id, **fields}])


def describe_group(wire: WireClient, group: str, version: int = 6) -> Any:
    return wire.ask("describe_groups", version, groups=[group]).groups[0]


# Committed offsets


def commit(
    wire: WireClient,
    group: str,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    metadata: str | None = "",
    version: int = 9,
    **fields: Any,
) -> int:
    """Commits one offset and returns the error code. Without a member it is a commit from outside the group."""
    committed = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    response = wire.ask(
        "offset_commit",
        version,
        group_id=group,
        topics=[{"name": topic, "partitions": [committed]}],
        **fields,
    )
    return int(response.topics[0].partitions[0].error_code)


def committed(wire: WireClient, group: str, topic: str, *, partition: int = 0, **fields: Any) -> Any:
    """What the group has committed for the partition: one partition's answer of OffsetFetch."""
    require_stable = fields.pop("require_stable", False)
    wanted = {
        "group_id": group,
        "topics": [{"name": topic, "partition_indexes": [partition]}],
        **fields,
    }
    (answer,) = wire.ask("offset_fetch", 9, groups=[wanted], require_stable=require_stable).groups
    assert answer.error_code == 0, answer
    return answer.topics[0].partitions[0]


# Consumer groups (KIP-848)


def beat(wire: WireClient, group: str, member_id: str, epoch: int, *, version: int = 1, **fields: Any) -> Any:
    """One ConsumerGroupHeartbeat; a joining one (epoch 0) needs `topics`."""
    if epoch == 0:
        fields = {"rebalance_timeout_ms": SESSION_MS, "topic_partitions": [], **fields}
    if "topics" in fields:
        fields["subscribed_topic_names"] = fields.pop("topics")
    if isinstance(fields.get("topic_partitions"), dict):
        fields["topic_partitions"] = [
            {"topic_id": topic_id, "partitions": partitions}
            for topic_id, partitions in fields["topic_partitions"].items()
        ]
    return wire.ask(
        "consumer_group_heartbeat",
        version,
        group_id=group,
        member_id=member_id,
        member_epoch=epoch,
        **fields,
    )


def assigned(response: Any) -> dict[bytes, list[int]] | None:
    """The assignment in a heartbeat's response by topic id, or None when it has none."""
    if response.assignment is None:
        return None
    return {bytes(one.topic_id): sorted(one.partitions) for one in response.assignment.topic_partitions}


# Transactions


def init_producer(
    wire: WireClient, transactional_id: str | None = None, *, timeout_ms: int = 60_000, **fields: Any
) -> tuple[int, int]:
    """A producer id and epoch; waits while an older transaction of this id is being ended."""

    def ask() -> Any:
        response = wire.ask(
            "init_producer_id",
            5,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            **fields,
        )
        return None if response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS else response

    response = wait_for(ask)
    assert response.error_code == 0, response
    return int(response.producer_id), int(response.producer_epoch)


def add_partitions(
    wire: WireClient, transactional_id: str, producer: tuple[int, int], topic: str, *partitions: int
) -> int:
    """AddPartitionsToTxn as clients before transaction version 2 send it; the error code of the first partition."""

    def ask() -> Any:
        response = wire.ask(
            "add_partitions_to_txn",
            3,
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[{"name": topic, "partitions": list(partitions or (0,))}],
        )
        code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
        return None if code == ErrorCode.CONCURRENT_TRANSACTIONS else (code,)

    return int(wait_for(ask)[0])


def end_transaction(
    wire: WireClient, transactional_id: str, producer: tuple[int, int], *, commit: bool, version: int = 4
) -> Any:
    """EndTxn: v5 and later are of transaction version 2 and answer with the next epoch."""

    def ask() -> Any:
        response = wire.ask(
            "end_txn",
            version,
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )
        return None if response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS else response

    return wait_for(ask)


def transactional_batch(producer: tuple[int, int], sequence: int, *values: bytes | str) -> bytes:
    return batch(
        *values,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=sequence,
        is_transactional=True,
    )


def commit_in_transaction(
    wire: WireClient,
    transactional_id: str,
    producer: tuple[int, int],
    group: str,
    topic: str,
    offset: int,
    *,
    version: int = 5,
    **fields: Any,
) -> int:
    """TxnOffsetCommit of one partition; v5 adds the group to the transaction by itself."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    response = wire.ask(
        "txn_offset_commit",
        version,
        transactional_id=transactional_id,
        group_id=group,
        producer_id=producer[0],
        producer_epoch=producer[1],
        topics=[{"name": topic, "partitions": [partition]}],
        **fields,
    )
    return int(response.topics[0].partitions[0].error_code)


def describe_transaction(wire: WireClient, transactional_id: str) -> Any:
    response = wire.ask("describe_transactions", 0, transactional_ids=[transactional_id])
    return response.transaction_states[0]


def wait_for_state(wire: WireClient, transactional_id: str, state: str) -> Any:
    """Waits until the transaction is in this state; a coordinator writes its markers after it has answered."""

    def look() -> Any:
        found = describe_transaction(wire, transactional_id)
        return found if found.transaction_state == state else None

    return wait_for(look)
