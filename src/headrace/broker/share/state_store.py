"""The share coordinator: what share-partitions have settled, kept in `__share_group_state`.

Theory of operation. Each share-partition has a key in one partition of the topic, by the hash of
`group:topicId:partition`. Initialising writes a snapshot; each later write an update; after so many updates a snapshot
again, with everything merged. What has been merged is a snapshot behind, so records before the oldest snapshot that is
still needed can be deleted (`prune`). Merging waits until somebody reads or a snapshot is due: writing stays cheap.

State is written before an acknowledgement is answered and synced with the next group commit (design.md, decision 7):
a power cut between the two redelivers, and loses nothing.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.broker.groups.hashing import partition_for
from headrace.broker.later import Later
from headrace.broker.share.state_records import (
    ShareKey,
    Snapshot,
    Update,
    decode,
    encode_snapshot,
    encode_update,
    snapshot_key,
    update_key,
)
from headrace.log.metadata import uuid_text
from headrace.share.changes import StateBatch
from headrace.share.merge import merge
from headrace.wire.codec import MalformedMessage
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import read_records

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

logger = logging.getLogger("headrace.share")

STATE_TOPIC = "__share_group_state"
UNKNOWN = -1
NOT_INITIALISED_WRITE = "Write operation on uninitialized share partition not allowed."
NOT_INITIALISED_READ = "Read operation on uninitialized share partition not allowed."


@dataclass(slots=True)
class StoredState:
    """The state of one share-partition. `updates` are not merged into `batches` yet."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    create_timestamp: int
    write_timestamp: int
    batches: Sequence[StateBatch]
    partition: int
    """Of the state topic."""
    snapshot_at: int
    """The offset of its snapshot in the topic: nothing from there on may be pruned."""
    update_key: bytes
    updates: list[Sequence[StateBatch]] = field(default_factory=list)
    update_count: int = 0
    is_hot: bool = True
    """Written since the last pruning."""

    def merged(self) -> Sequence[StateBatch]:
        if self.updates or (self.batches and self.batches[0].first < self.start_offset):
            pending, self.updates = self.updates, []
            flat = [batch for batches in pending for batch in batches]
            self.batches = merge([*self.batches, *flat], start_offset=self.start_offset)
        return self.batches

    def apply(self, update: Update) -> None:
        if update.start_offset != UNKNOWN:
            self.start_offset = update.start_offset
        if update.leader_epoch != UNKNOWN:
            self.leader_epoch = update.leader_epoch
        self.complete_count = update.complete_count
        if update.batches:
            self.updates.append(update.batches)
        self.update_count += 1
        self.is_hot = True


class ShareStateStore:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._states: dict[ShareKey, StoredState] = {}
        self._updates_max = core.settings.int("share.coordinator.snapshot.update.records.per.snapshot")
        core.topics.on_deleted.append(self._note_topic_deleted)
        self._arm_pruning()

    def load(self) -> None:
        topic = self._core.topics.get(STATE_TOPIC)
        if topic is None:
            return
        for partition in topic.partitions:
            for batch in partition.log.batches():
                for record in read_records(batch):
                    self._replay(partition.index, record.offset, record.key or b"", record.value)

    def _replay(self, partition: int, offset: int, key_bytes: bytes, value: bytes | None) -> None:
        try:
            decoded = decode(key_bytes, value)
        except MalformedMessage as error:
            logger.error("%s: record %d cannot be read and is passed over: %s", STATE_TOPIC, offset, error)
            return
        if decoded is None:
            return
        key, body = decoded
        if body is None:
            self._states.pop(key, None)
        elif isinstance(body, Snapshot):
            self._states[key] = self._from_snapshot(key, body, partition, offset)
        elif key in self._states:
            self._states[key].apply(body)

    @staticmethod
    def _from_snapshot(key: ShareKey, snapshot: Snapshot, partition: int, offset: int) -> StoredState:
        return StoredState(
            snapshot_epoch=snapshot.snapshot_epoch,
            state_epoch=snapshot.state_epoch,
            leader_epoch=snapshot.leader_epoch,
            start_offset=snapshot.start_offset,
            complete_count=snapshot.complete_count,
            create_timestamp=snapshot.create_timestamp,
            write_timestamp=snapshot.write_timestamp,
            batches=list(snapshot.batches),
            partition=partition,
            snapshot_at=offset,
            update_key=update_key(key),
        )

    def get(self, key: ShareKey) -> StoredState | None:
        return self._states.get(key)

    def keys(self) -> Iterator[ShareKey]:
        return iter(list(self._states))

    def initialize(self, key: ShareKey, *, state_epoch: int, start_offset: int) -> Later[None]:
        """Begins anew at `start_offset` (-1: decided at the first fetch), whatever was there before."""
        self._require_partition(key)
        known = self._states.get(key)
        if known is not None and state_epoch < known.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        now_ms = self._core.clock.wall_ms()
        return self._write_snapshot(
            key,
            Snapshot(
                snapshot_epoch=known.snapshot_epoch + 1 if known is not None else 0,
                state_epoch=state_epoch,
                leader_epoch=0,
                start_offset=start_offset,
                complete_count=UNKNOWN if start_offset == UNKNOWN else 0,
                create_timestamp=now_ms,
                write_timestamp=now_ms,
                batches=(),
            ),
        )

    def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """The state for a leader that begins to serve; a higher leader epoch fences the leader before it."""
        self._require_partition(key)
        state = self._require(key, NOT_INITIALISED_READ)
        if leader_epoch != UNKNOWN:
            self._check_leader_epoch(state, leader_epoch)
            if leader_epoch > state.leader_epoch:
                self._write_update(
                    key, state, Update(state.snapshot_epoch, leader_epoch, UNKNOWN, state.complete_count, ())
                )
        state.merged()
        return state

    def write(
        self,
        key: ShareKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        complete_count: int,
        batches: Sequence[StateBatch],
    ) -> Later[None]:
        """In the topic when this returns; the Later resolves when it is durable too."""
        self._require_partition(key)
        state = self._require(key, NOT_INITIALISED_WRITE)
        self._check_leader_epoch(state, leader_epoch)
        if state_epoch != UNKNOWN and state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        update = Update(state.snapshot_epoch, leader_epoch, start_offset, complete_count, batches)
        if state.update_count < self._updates_max:
            return self._write_update(key, state, update)
        state.apply(update)
        return self._renew_snapshot(key, state)

    def delete(self, key: ShareKey) -> Later[None] | None:
        """Forgets the share-partition; nothing to do for one that is not known."""
        self._require_partition(key)
        if key not in self._states:
            return None
        return self._forget(key)

    def _forget(self, key: ShareKey) -> Later[None]:
        _, index = self._place(key)
        written = self._core.append_internal(STATE_TOPIC, index, [(snapshot_key(key), None)])
        del self._states[key]
        return written

    def _write_update(self, key: ShareKey, state: StoredState, update: Update) -> Later[None]:
        record = state.update_key, encode_update(update)
        written = self._core.append_internal(STATE_TOPIC, state.partition, [record])
        state.apply(update)
        return written

    def _renew_snapshot(self, key: ShareKey, state: StoredState) -> Later[None]:
        return self._write_snapshot(
            key,
            Snapshot(
                snapshot_epoch=state.snapshot_epoch + 1,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                complete_count=state.complete_count,
                create_timestamp=state.create_timestamp,
                write_timestamp=self._core.clock.wall_ms(),
                batches=state.merged(),
            ),
        )

    def _write_snapshot(self, key: ShareKey, snapshot: Snapshot) -> Later[None]:
        topic, index = self._place(key)
        offset = topic.partitions[index].log.end_offset
        written = self._core.append_internal(
            STATE_TOPIC, index, [(snapshot_key(key), encode_snapshot(snapshot))]
        )
        self._states[key] = self._from_snapshot(key, snapshot, index, offset)
        return written

    def _place(self, key: ShareKey) -> "tuple[Topic, int]":
        topic = self._core.topics.internal(STATE_TOPIC)
        return topic, partition_for(coordinator_key(key), len(topic.partitions))

    def _require(self, key: ShareKey, message: str) -> StoredState:
        state = self._states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        return state

    def _require_partition(self, key: ShareKey) -> None:
        topic = self._core.topics.by_id(key.topic_id)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    @staticmethod
    def _check_leader_epoch(state: StoredState, leader_epoch: int) -> None:
        if leader_epoch != UNKNOWN and leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

    def _note_topic_deleted(self, topic: "Topic") -> None:
        for key in [key for key in self._states if key.topic_id == topic.id]:
            self._forget(key)

    def _arm_pruning(self) -> None:
        interval_ms = self._core.settings.int("share.coordinator.state.topic.prune.interval.ms")
        self._core.timers.at(self._core.clock.monotonic_ms() + interval_ms, self._prune_round)

    def _prune_round(self) -> None:
        self._arm_pruning()
        if self._core.failure is None:
            self.prune()

    def prune(self) -> None:
        """Renews the snapshots of keys that hold back pruning, then deletes what no snapshot needs."""
        topic = self._core.topics.get(STATE_TOPIC)
        if topic is None:
            return
        by_partition: dict[int, list[ShareKey]] = {}
        for key in self._states:
            by_partition.setdefault(self._states[key].partition, []).append(key)
        for index, keys in by_partition.items():
            if any(self._states[key].is_hot for key in keys):
                for key in keys:
                    if not self._states[key].is_hot:
                        self._renew_snapshot(key, self._states[key])
            log = topic.partitions[index].log
            log.delete_records(max(log.start_offset, min(self._states[key].snapshot_at for key in keys)))
            for key in keys:
                self._states[key].is_hot = False


def coordinator_key(key: ShareKey) -> str:
    """What FindCoordinator calls a share-partition."""
    return f"{key.group_id}:{uuid_text(key.topic_id)}:{key.partition}"
