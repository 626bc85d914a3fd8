"""What is written down about share-partitions: the five APIs of the share coordinator, and its log itself."""

import struct
from base64 import urlsafe_b64encode
from typing import Any, NamedTuple

from headrace.wire.batches import read_header
from headrace.wire.codec import read_message
from headrace.wire.ids import partition_for
from headrace.wire.messages.share_snapshot_key import ShareSnapshotKey
from headrace.wire.messages.share_snapshot_value import ShareSnapshotValue
from headrace.wire.messages.share_update_value import ShareUpdateValue
from headrace.wire.records import read_records
from tests.conformance.steps import batches, end_offset, fetch, list_offset
from tests.conformance.wire_client import WireClient

STATE_TOPIC, STATE_PARTITIONS = "__share_group_state", 50
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4
"""States of records as they are written down."""
UPDATE = 1

States = list[tuple[int, int, int, int]]
"""(first offset, last offset, state, delivery count)"""


def state_request(
    wire: WireClient, api: str, version: int, group: str, topic_id: bytes, **partition: Any
) -> Any:
    """One request about one share-partition to the share coordinator, and that partition's answer."""
    fields = {"partition": 0, **partition}
    topics = [{"topic_id": topic_id, "partitions": [fields]}]
    response = wire.ask(api, version, group_id=group, topics=topics)
    return response.results[0].partitions[0]


def read_state(wire: WireClient, group: str, topic_id: bytes, *, leader_epoch: int) -> Any:
    """ReadShareGroupState, as whoever leads the partition in that epoch."""
    return state_request(wire, "read_share_group_state", 0, group, topic_id, leader_epoch=leader_epoch)


def write_state(wire: WireClient, group: str, topic_id: bytes, **partition: Any) -> int:
    """WriteShareGroupState; its error code."""
    return int(state_request(wire, "write_share_group_state", 1, group, topic_id, **partition).error_code)


def written_state(wire: WireClient, group: str, topic_id: bytes) -> States:
    """What a new leader of partition 0 would read; the question fences nobody."""
    state = read_state(wire, group, topic_id, leader_epoch=-1)
    assert state.error_code == 0, state
    return states(state.state_batches)


def states(state_batches: Any) -> States:
    return [
        (one.first_offset, one.last_offset, one.delivery_state, one.delivery_count) for one in state_batches
    ]


class Written(NamedTuple):
    """One record of the log; `value` is None where state was deleted."""

    is_snapshot: bool
    value: Any


def written_log(wire: WireClient, group: str, topic_id: bytes, partition: int = 0) -> list[Written]:
    """Every record that the log has for one share-partition, oldest first."""
    encoded_id = urlsafe_b64encode(topic_id).decode().rstrip("=")
    home = partition_for(f"{group}:{encoded_id}:{partition}", STATE_PARTITIONS)
    found = []
    # A broker prunes this log from time to time: a long run of tests finds it begin later than at 0.
    position = list_offset(wire, STATE_TOPIC, home, -2).offset
    end = end_offset(wire, STATE_TOPIC, home)
    while position < end:
        data = batches(fetch(wire, STATE_TOPIC, position, partition=home).records)
        for record in (record for one in data for record in read_records(one)):
            assert record.key is not None
            (kind,) = struct.unpack_from(">h", record.key)
            key, _ = read_message(
                ShareSnapshotKey, 0, record.key, 2
            )  # both kinds of keys have the same fields
            if (key.group_id, bytes(key.topic_id), key.partition) == (group, topic_id, partition):
                found.append(Written(kind != UPDATE, _value(kind, record.value)))
        position = read_header(data[-1]).next_offset
    return found


def _value(kind: int, data: bytes | None) -> Any:
    if data is None:
        return None
    assert struct.unpack_from(">h", data) == (0,), "the version of the value"
    value, end = read_message(ShareUpdateValue if kind == UPDATE else ShareSnapshotValue, 0, data, 2)
    assert end == len(data)
    return value
