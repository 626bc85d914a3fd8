"""The share coordinator's records, in Kafka's own schemas, so that Apache's formatter prints `__share_group_state`.

A key is an int16 (0 snapshot, 1 update), then group, topic id, partition; a value an int16 version, then the body. A
snapshot without a value is a tombstone. A snapshot stands for itself; an update is merged into what came before.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.codec import MalformedMessage, encode, read_message, write_uvarint
from headrace.wire.ids import java_hash, partition_of_hash, uuid_text
from headrace.wire.messages.share_snapshot_key import ShareSnapshotKey
from headrace.wire.messages.share_snapshot_value import ShareSnapshotValue
from headrace.wire.messages.share_snapshot_value import StateBatch as SnapshotBatch
from headrace.wire.messages.share_update_key import ShareUpdateKey
from headrace.wire.messages.share_update_value import ShareUpdateValue
from headrace.wire.messages.share_update_value import StateBatch as UpdateBatch

STATE_TOPIC = "__share_group_state"

_SHORT = struct.Struct(">h")
_VERSION = _SHORT.pack(0)
_SNAPSHOT = _SHORT.pack(ShareSnapshotKey.API_KEY)
_UPDATE = _SHORT.pack(ShareUpdateKey.API_KEY)
_UPDATE_HEAD = struct.Struct(">hiiq")
"""Version, snapshot epoch, leader epoch, start offset."""
_UPDATE_BATCH = struct.Struct(">qqbhx")
"""A state batch, and no tagged fields."""
_UPDATE_COUNT = struct.Struct(">bbi")
"""A tagged field: its tag, its size, the number of settled records."""
_HOLDS_TAG = b"\x90\x4e"
"""10,000."""


class ShareKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int

    @property
    def text(self) -> str:
        """What FindCoordinator calls a share-partition; its hash says where in the state topic it is kept."""
        return f"{_text_before(self.group_id, self.topic_id)}{self.partition}"

    def kept_in(self, partitions: int) -> int:
        """The partition of the state topic, which has so many."""
        begun = _hash_before(self.group_id, self.topic_id)
        return partition_of_hash(java_hash(str(self.partition), begun), partitions)


@lru_cache(maxsize=256)
def _text_before(group_id: str, topic_id: bytes) -> str:
    """What the names of a group's share-partitions of one topic have in common: there may be thousands."""
    return f"{group_id}:{uuid_text(topic_id)}:"


@lru_cache(maxsize=256)
def _hash_before(group_id: str, topic_id: bytes) -> int:
    return java_hash(_text_before(group_id, topic_id))


class Snapshot(NamedTuple):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    create_timestamp: int
    write_timestamp: int
    batches: Sequence[StateBatch]
    holds: bytes = b""
    """Those that ended with the write that it stands for; see share_holds.py."""


class Update(NamedTuple):
    snapshot_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    batches: Sequence[StateBatch]
    holds: bytes = b""


def snapshot_key(key: ShareKey) -> bytes:
    group_id, topic_id, partition = key
    return _SNAPSHOT + encode(ShareSnapshotKey(group_id=group_id, topic_id=topic_id, partition=partition), 0)


def update_key(key: ShareKey) -> bytes:
    """The same fields in the same layout."""
    return _UPDATE + snapshot_key(key)[len(_SNAPSHOT) :]


def encode_snapshot(snapshot: Snapshot) -> bytes:
    return _VERSION + encode(
        ShareSnapshotValue(
            snapshot_epoch=snapshot.snapshot_epoch,
            state_epoch=snapshot.state_epoch,
            leader_epoch=snapshot.leader_epoch,
            start_offset=snapshot.start_offset,
            delivery_complete_count=snapshot.complete_count,
            create_timestamp=snapshot.create_timestamp,
            write_timestamp=snapshot.write_timestamp,
            state_batches=[
                SnapshotBatch(
                    first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
                )
                for first, last, state, count in snapshot.batches
            ],
            holds=snapshot.holds,
        ),
        0,
    )


def encode_update(update: Update) -> bytes:
    """What `encode` makes of a ShareUpdateValue, for a third of the time: every acknowledgement writes one."""
    snapshot_epoch, leader_epoch, start_offset, complete_count, batches, holds = update
    out = bytearray(_UPDATE_HEAD.pack(0, snapshot_epoch, leader_epoch, start_offset))
    write_uvarint(out, len(batches) + 1)
    for batch in batches:
        out += _UPDATE_BATCH.pack(*batch)
    has_count = complete_count != -1
    out.append(has_count + bool(holds))
    if has_count:
        out += _UPDATE_COUNT.pack(0, 4, complete_count)
    if holds:
        value = bytearray()
        write_uvarint(value, len(holds) + 1)
        value += holds
        out += _HOLDS_TAG
        write_uvarint(out, len(value))
        out += value
    return bytes(out)


def decode(key: bytes, value: bytes | None) -> tuple[ShareKey, Snapshot | Update | None] | None:
    """What a record says; None for the body of a tombstone, None at all for a record of a later Kafka."""
    if len(key) < _SHORT.size:
        raise MalformedMessage("a key without a type")
    (kind,) = _SHORT.unpack_from(key)
    if kind == ShareSnapshotKey.API_KEY:
        named, _ = read_message(ShareSnapshotKey, 0, key, 2)
        return ShareKey(named.group_id, named.topic_id, named.partition), _read_snapshot(value)
    if kind == ShareUpdateKey.API_KEY:
        updated, _ = read_message(ShareUpdateKey, 0, key, 2)
        return ShareKey(updated.group_id, updated.topic_id, updated.partition), _read_update(value)
    return None


def _read_snapshot(value: bytes | None) -> Snapshot | None:
    if value is None:
        return None
    _require_known(value)
    body, _ = read_message(ShareSnapshotValue, 0, value, 2)
    return Snapshot(
        body.snapshot_epoch,
        body.state_epoch,
        body.leader_epoch,
        body.start_offset,
        body.delivery_complete_count,
        body.create_timestamp,
        body.write_timestamp,
        [_batch(batch) for batch in body.state_batches],
        body.holds,
    )


def _read_update(value: bytes | None) -> Update | None:
    if value is None:
        return None
    _require_known(value)
    body, _ = read_message(ShareUpdateValue, 0, value, 2)
    return Update(
        body.snapshot_epoch,
        body.leader_epoch,
        body.start_offset,
        body.delivery_complete_count,
        [_batch(batch) for batch in body.state_batches],
        body.holds,
    )


def _batch(batch: SnapshotBatch | UpdateBatch) -> StateBatch:
    try:
        state = RecordState(batch.delivery_state)
    except ValueError as error:
        raise MalformedMessage(str(error)) from error
    return StateBatch(batch.first_offset, batch.last_offset, state, batch.delivery_count)


def _require_known(value: bytes) -> None:
    if value[:2] != _VERSION:
        raise MalformedMessage(f"share state of version 0x{value[:2].hex()}; expected 0")
