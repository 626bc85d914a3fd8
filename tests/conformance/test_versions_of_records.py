"""The APIs that move records, in every version: one request and its whole response."""

from headrace.wire.batches import place
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.plain import ANY, expect
from tests.conformance.steps import batch, new_topic, now_ms, produced
from tests.conformance.versions import every_version
from tests.conformance.wire_client import WireClient


def placed(records: bytes, offset: int) -> bytes:
    """The batch as it comes back from a log whose leader has epoch 0."""
    stored = bytearray(records)
    place(stored, 0, base_offset=offset, length=len(stored) - 12, leader_epoch=0)
    return bytes(stored)


@every_version("api_versions")
def test_api_versions(wire: WireClient, version: int) -> None:
    response = wire.ask(
        "api_versions", version, client_software_name="conformance", client_software_version="1.0"
    )
    expect(
        response,
        version,
        api_keys=ANY,
        supported_features=ANY,
        finalized_features=ANY,
        finalized_features_epoch=ANY,
    )
    assert response.api_keys
    assert bool(response.finalized_features) is (version >= 3)


@every_version("metadata")
def test_metadata(broker: BrokerUnderTest, wire: WireClient, unique: str, version: int) -> None:
    topic_id = new_topic(wire, unique, partitions=2)
    response = wire.ask("metadata", version, topics=[{"name": unique}])
    partition = {"leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1]}
    expect(
        response,
        version,
        brokers=[{"node_id": broker.node_id, "host": broker.host, "port": broker.port, "rack": None}],
        cluster_id=ANY,
        controller_id=broker.node_id,
        topics=[
            {
                "name": unique,
                "topic_id": topic_id,
                "is_internal": False,
                "partitions": [{"partition_index": index, **partition} for index in range(2)],
            }
        ],
    )
    assert version < 2 or len(response.cluster_id) == 22


@every_version("produce")
def test_produce(wire: WireClient, unique: str, version: int) -> None:
    topic_id = new_topic(wire, unique)
    topic = {"name": unique, "topic_id": topic_id}
    for base_offset, records in ((0, batch("one", "two")), (2, batch("three"))):
        response = wire.ask(
            "produce",
            version,
            acks=-1,
            timeout_ms=5000,
            topic_data=[{**topic, "partition_data": [{"index": 0, "records": records}]}],
        )
        partition = {"index": 0, "base_offset": base_offset, "log_append_time_ms": -1, "log_start_offset": 0}
        expect(response, version, responses=[{**topic, "partition_responses": [partition]}])


@every_version("fetch")
def test_fetch(wire: WireClient, unique: str, version: int) -> None:
    topic = {"topic": unique, "topic_id": new_topic(wire, unique)}
    first, second = batch("one", "two"), batch("three")
    assert [produced(wire, unique, first), produced(wire, unique, second)] == [0, 2]
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    response = wire.ask(
        "fetch",
        version,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[{**topic, "partitions": [wanted]}],
    )
    partition = {
        "partition_index": 0,
        "high_watermark": 3,
        "last_stable_offset": 3,
        "log_start_offset": 0,
        "aborted_transactions": None,
        "records": placed(first, 0) + placed(second, 2),
    }
    expect(response, version, responses=[{**topic, "partitions": [partition]}])


@every_version("list_offsets")
def test_list_offsets(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique)
    noon = now_ms() - 5000
    for step in range(3):
        produced(wire, unique, batch("value", timestamp=noon + 1000 * step))

    def offset(timestamp: int) -> dict[str, int]:
        asked = {"partition_index": 0, "timestamp": timestamp}
        response = wire.ask(
            "list_offsets", version, replica_id=-1, topics=[{"name": unique, "partitions": [asked]}]
        )
        partition = response.topics[0].partitions[0]
        expect(
            response,
            version,
            topics=[
                {
                    "name": unique,
                    "partitions": [
                        {
                            "partition_index": 0,
                            "timestamp": partition.timestamp,
                            "offset": partition.offset,
                            "leader_epoch": 0,
                        }
                    ],
                }
            ],
        )
        return partition.timestamp, partition.offset

    assert offset(-1) == (-1, 3)
    assert offset(-2) == (-1, 0)
    assert offset(noon + 1) == (noon + 1000, 1)


@every_version("offset_for_leader_epoch")
def test_offset_for_leader_epoch(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("one", "two"))
    asked = {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}
    response = wire.ask(
        "offset_for_leader_epoch",
        version,
        replica_id=-1,
        topics=[{"topic": unique, "partitions": [asked]}],
    )
    partition = {"partition": 0, "leader_epoch": 0, "end_offset": 2}
    expect(response, version, topics=[{"topic": unique, "partitions": [partition]}])


@every_version("delete_records")
def test_delete_records(wire: WireClient, unique: str, version: int) -> None:
    new_topic(wire, unique)
    produced(wire, unique, batch("one", "two", "three"))
    asked = {"partition_index": 0, "offset": 2}
    response = wire.ask(
        "delete_records", version, timeout_ms=5000, topics=[{"name": unique, "partitions": [asked]}]
    )
    partition = {"partition_index": 0, "low_watermark": 2}
    expect(response, version, topics=[{"name": unique, "partitions": [partition]}])
