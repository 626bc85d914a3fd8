"""Goal: the share coordinator's records are Kafka's, byte for byte. Method: bytes written by hand, and back again."""

import pytest

from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.codec import MalformedMessage, encode
from headrace.wire.ids import partition_for, uuid_text
from headrace.wire.messages.share_update_value import ShareUpdateValue
from headrace.wire.messages.share_update_value import StateBatch as UpdateBatch
from headrace.wire.share_state import (
    ShareKey,
    Snapshot,
    Update,
    decode,
    encode_snapshot,
    encode_update,
    snapshot_key,
    update_key,
)

TOPIC_ID = bytes(range(16))
AVAILABLE, ACKNOWLEDGED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED


def settled(first: int, last: int, state: RecordState = ACKNOWLEDGED, count: int = 1) -> StateBatch:
    return StateBatch(first, last, state, count)


def test_its_name_for_the_coordinator_may_hold_the_colons_of_a_group() -> None:
    assert ShareKey("a:b", bytes(16), 3).text == "a:b:AAAAAAAAAAAAAAAAAAAAAA:3"


def test_a_key_is_its_type_and_then_group_topic_and_partition() -> None:
    key = ShareKey("mailers", TOPIC_ID, 7)
    named = b"\x00\x07mailers" + TOPIC_ID + b"\x00\x00\x00\x07"
    assert snapshot_key(key) == b"\x00\x00" + named
    assert update_key(key) == b"\x00\x01" + named


def test_an_unknown_count_of_settled_records_is_left_out() -> None:
    update = Update(3, 4, 5, -1, [settled(5, 6, AVAILABLE, 2)])
    value = encode_update(update)
    batch = (5).to_bytes(8, "big") + (6).to_bytes(8, "big") + b"\x00" + b"\x00\x02" + b"\x00"
    head = b"\x00\x00" + (3).to_bytes(4, "big") + (4).to_bytes(4, "big") + (5).to_bytes(8, "big")
    assert value == head + b"\x02" + batch + b"\x00"
    counted = encode_update(update._replace(complete_count=9))
    assert counted == head + b"\x02" + batch + b"\x01\x00\x04\x00\x00\x00\x09"


@pytest.mark.parametrize("count", [0, 1, 126, 127, 128, 20_000])
def test_an_update_is_what_the_codec_makes_of_it(count: int) -> None:
    batches = [settled(2 * index, 2 * index, AVAILABLE, index % 7) for index in range(count)]
    for complete_count in (-1, 0, 5):
        value = ShareUpdateValue(
            snapshot_epoch=3,
            leader_epoch=-1,
            start_offset=1 << 40,
            delivery_complete_count=complete_count,
            state_batches=[
                UpdateBatch(
                    first_offset=batch.first,
                    last_offset=batch.last,
                    delivery_state=batch.state,
                    delivery_count=batch.delivery_count,
                )
                for batch in batches
            ],
        )
        assert encode_update(Update(3, -1, 1 << 40, complete_count, batches)) == bytes(2) + encode(value, 0)


def test_what_was_written_is_read_back() -> None:
    key = ShareKey("g", TOPIC_ID, 1)
    snapshot = Snapshot(1, 2, 3, 4, 5, 6, 7, [settled(8, 9), settled(11, 11, ARCHIVED, 5)])
    assert decode(snapshot_key(key), encode_snapshot(snapshot)) == (key, snapshot)
    update = Update(1, 2, 3, 4, [settled(8, 9)])
    assert decode(update_key(key), encode_update(update)) == (key, update)
    assert decode(snapshot_key(key), None) == (key, None)


def test_records_of_a_later_kafka_are_passed_over() -> None:
    assert decode(b"\x00\x09whatever", b"") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", b""),
        (b"\x00\x00\x00\xff", b""),
        (snapshot_key(ShareKey("g", TOPIC_ID, 0)), b"\x00"),
        (snapshot_key(ShareKey("g", TOPIC_ID, 0)), b"\x00\x01"),
        (update_key(ShareKey("g", TOPIC_ID, 0)), b"\x00\x00\x00"),
        (
            update_key(ShareKey("g", TOPIC_ID, 0)),
            encode_update(Update(0, 0, 0, 0, [StateBatch(0, 0, 9, 1)])),  # type: ignore[arg-type]
        ),
    ],
)
def test_bytes_that_are_no_state_are_malformed(key: bytes, value: bytes) -> None:
    with pytest.raises(MalformedMessage):
        decode(key, value)


@pytest.mark.parametrize("group_id", ["g", "orders-service", "Größe", "\U0001f600" * 40, "x" * 200])
def test_a_share_partition_is_kept_where_the_hash_of_its_name_says(group_id: str) -> None:
    for topic_id in (bytes(range(16)), b"\xff" * 16):
        for partition in (0, 7, 99, 12_345, 2**31 - 1):
            key = ShareKey(group_id, topic_id, partition)
            assert key.text == f"{group_id}:{uuid_text(topic_id)}:{partition}"
            assert key.kept_in(50) == partition_for(key.text, 50)
