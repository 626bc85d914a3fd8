"""The share coordinator: what share-partitions have settled, kept in `__share_group_state`.

Theory of operation. Each share-partition has a key in one partition of the topic, by the hash of
`group:topicId:partition`. Initializing writes a snapshot; each later write an update; after so many updates a snapshot
again, with everything merged. What has been merged is a snapshot behind, so records before the oldest snapshot that is
still needed can be deleted (pruning.py). Merging waits until somebody reads or a snapshot is due: writing stays cheap.

State is written before an acknowledgement is answered and synced with the next group commit:
a power cut between the two redelivers, and loses nothing. The reverse can happen too: state was synced and the records
that it speaks of were not (acks=1). Then the records at these offsets are other ones from now on, and the start cuts
the state off where the log ends.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from headrace.broker.later import Later
from headrace.broker.share.pruning import Pruning
from headrace.share.changes import StateBatch
from headrace.share.states import FINAL
from headrace.wire.codec import MalformedMessage
from headrace.wire.error_groups import TOO_LARGE
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import read_records
from headrace.wire.share_replay import UNKNOWN, ReplayedState, replay
from headrace.wire.share_state import (
    STATE_TOPIC,
    ShareKey,
    Snapshot,
    Update,
    decode,
    encode_snapshot,
    encode_update,
    snapshot_key,
    update_key,
)

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic

logger = logging.getLogger("headrace.share")

KEYS_PER_BATCH = 100
"""Snapshots without records, or tombstones, that are written in one batch."""
NOT_INITIALIZED_WRITE = "Write operation on uninitialized share partition not allowed."
NOT_INITIALIZED_READ = "Read operation on uninitialized share partition not allowed."


@dataclass(slots=True)
class StoredState(ReplayedState):
    """The state of one share-partition, and where it is kept."""

    _: KW_ONLY
    partition: int
    """Of the state topic."""
    snapshot_at: int
    """The offset of its snapshot in the topic: nothing from there on may be pruned."""
    update_count: int = 0
    update_key: bytes = b""
    """Of the topic's records; made with the first one."""

    def not_lower(self, start_offset: int, complete_count: int) -> tuple[int, int]:
        """The start offset and the count of completed records after a write with these.

        A write that was overtaken by a later one does not move the start back. The count is of the records from the
        start on, so that of the higher start counts.
        """
        if start_offset == UNKNOWN or start_offset > self.start_offset:
            return start_offset, complete_count
        if start_offset < self.start_offset:
            return self.start_offset, self.complete_count
        return start_offset, max(complete_count, self.complete_count)

    def apply(self, update: Update) -> None:
        ReplayedState.apply(self, update)
        self.update_count += 1


def _stored(snapshot: Snapshot, partition: int, offset: int) -> StoredState:
    return StoredState(*snapshot[:8], partition=partition, snapshot_at=offset)


class ShareStateStore:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._states: dict[ShareKey, StoredState] = {}
        self._by_partition: defaultdict[int, dict[ShareKey, StoredState]] = defaultdict(dict)
        """The same by partition of the state topic."""
        self._by_topic: defaultdict[bytes, dict[ShareKey, StoredState]] = defaultdict(dict)
        """The same by the topic that is shared."""
        self._writes = core.metrics.counter("write-total")
        self._updates_max = core.settings.get_int("share.coordinator.snapshot.update.records.per.snapshot")
        core.topics.on_deleted.append(self._note_topic_deleted)
        self.pruning = Pruning(core, self)

    def load(self) -> None:
        for partition, batches in self._core.journals.read(STATE_TOPIC):
            for batch in batches:
                for record in read_records(batch):
                    self._replay(partition, record.offset, record.key or b"", record.value)
        if not self._core.logs.was_clean:
            self._mend()
            # What the process before had written and not synced was answered: it is synced as if just written.
            topic = self._core.topics.get(STATE_TOPIC)
            if topic is not None:
                self._core.durable(partition.log for partition in topic.partitions)

    def _replay(self, partition: int, offset: int, key_bytes: bytes, value: bytes | None) -> None:
        try:
            decoded = decode(key_bytes, value)
        except MalformedMessage as error:
            logger.error("%s: record %d cannot be read and is skipped: %s", STATE_TOPIC, offset, error)
            return
        if decoded is None:
            return
        key, body = decoded
        known = self._states.get(key)
        state = replay(known, body, lambda snapshot: _stored(snapshot, partition, offset))
        if state is None:
            self._drop(key)
        elif state is not known:
            self._keep(key, state)

    def _mend(self) -> None:
        """After a crash: forgets topics that went meanwhile, and what is said of records that a log has lost.

        Must be safe before anybody produces: new records get the same offsets.
        """
        cut: dict[int, None] = {}
        for key, state in list(self._states.items()):
            topic = self._core.topics.by_id(key.topic_id)
            if topic is None or key.partition >= len(topic.partitions):
                self._forget_quietly(key)
                continue
            log = topic.partitions[key.partition].log
            if log.damage is None and state.last_offset() >= log.end_offset:
                logger.warning(
                    "group %s: the records of %s from offset %d on are lost, and their state with them",
                    key.group_id, log.name, log.end_offset,
                )  # fmt: skip
                self._cut(key, state, log.end_offset)
                cut[state.partition] = None
        if cut:
            partitions = self._core.topics.internal(STATE_TOPIC).partitions
            self._core.logs.sync([partitions[index].log for index in cut])

    def _cut(self, key: ShareKey, state: StoredState, end_offset: int) -> None:
        kept = [
            batch._replace(last=min(batch.last, end_offset - 1))
            for batch in state.merged()
            if batch.first < end_offset
        ]
        snapshot = self._next_snapshot(state)
        settled = sum(batch.last - batch.first + 1 for batch in kept if batch.state in FINAL)
        self._write_snapshot(
            key,
            snapshot._replace(
                start_offset=min(state.start_offset, end_offset), complete_count=settled, batches=kept
            ),
        )

    def prune(self) -> None:
        self.pruning.prune()

    def renew(self, key: ShareKey) -> None:
        """Writes a snapshot of what is known, so that nothing before it is needed."""
        state = self._states.get(key)
        if state is not None:
            self._write_snapshot(key, self._next_snapshot(state))

    def get(self, key: ShareKey) -> StoredState | None:
        return self._states.get(key)

    def of_partition(self, index: int) -> Iterator[tuple[ShareKey, StoredState]]:
        """The share-partitions that one partition of the state topic holds."""
        return iter(self._by_partition[index].items())

    def _keep(self, key: ShareKey, state: StoredState) -> None:
        self._states[key] = state
        self._by_partition[state.partition][key] = state
        self._by_topic[key.topic_id][key] = state

    def _drop(self, key: ShareKey) -> None:
        state = self._states.pop(key, None)
        if state is not None:
            del self._by_partition[state.partition][key]
            of_topic = self._by_topic[key.topic_id]
            del of_topic[key]
            if not of_topic:
                del self._by_topic[key.topic_id]

    def keys(self) -> Iterator[ShareKey]:
        return iter(list(self._states))

    def initialize(self, key: ShareKey, *, state_epoch: int, start_offset: int) -> Later[None]:
        """Begins anew at `start_offset` (-1: decided at the first fetch), whatever was there before."""
        self._require_partition(key)
        known = self._states.get(key)
        if known is not None and state_epoch < known.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        snapshot_epoch = known.snapshot_epoch + 1 if known is not None else 0
        return self._write_snapshot(key, self._first_snapshot(snapshot_epoch, state_epoch, start_offset))

    def initialize_new(self, keys: Iterable[ShareKey], *, state_epoch: int, start_offset: int) -> None:
        """`initialize` for many share-partitions that have no state, in few batches."""
        topic = self._core.topics.internal(STATE_TOPIC)
        by_partition: dict[int, list[ShareKey]] = {}
        for key in keys:
            self._require_partition(key)
            by_partition.setdefault(key.kept_in(len(topic.partitions)), []).append(key)
        snapshot = self._first_snapshot(0, state_epoch, start_offset)
        value = encode_snapshot(snapshot)
        for index, found in by_partition.items():
            for some in batched(found, KEYS_PER_BATCH):
                offset = topic.partitions[index].log.end_offset
                records = [(snapshot_key(key), value) for key in some]
                self._core.append_internal(STATE_TOPIC, index, records)
                for at, key in enumerate(some, offset):
                    self._keep(key, _stored(snapshot, index, at))

    def _first_snapshot(self, snapshot_epoch: int, state_epoch: int, start_offset: int) -> Snapshot:
        now_ms = self._core.clock.wall_ms()
        return Snapshot(
            snapshot_epoch=snapshot_epoch,
            state_epoch=state_epoch,
            leader_epoch=0,
            start_offset=start_offset,
            complete_count=UNKNOWN if start_offset == UNKNOWN else 0,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            batches=(),
        )

    def read(self, key: ShareKey, leader_epoch: int) -> StoredState:
        """The state for a leader that begins to serve; a higher leader epoch fences the leader before it."""
        self._require_partition(key)
        state = self._require(key, NOT_INITIALIZED_READ)
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
        holds: bytes = b"",
        may_be_late: bool = False,
    ) -> Later[None]:
        """In the topic when this returns; the Later resolves when it is durable too.

        `may_be_late`: it comes over the network, and a later one may have overtaken it. The leader here writes in
        order: where it moves the start back (another reset policy) or counts less (a restart has forgotten what was
        never written down), it means it.
        """
        self._writes.value += 1
        self._require_partition(key)
        state = self._require(key, NOT_INITIALIZED_WRITE)
        self._check_leader_epoch(state, leader_epoch)
        if state_epoch != UNKNOWN and state_epoch < state.state_epoch:
            raise KafkaError(ErrorCode.FENCED_STATE_EPOCH)
        if may_be_late:
            start_offset, complete_count = state.not_lower(start_offset, complete_count)
        update = Update(state.snapshot_epoch, leader_epoch, start_offset, complete_count, batches, holds)
        if state.update_count >= self._updates_max:
            try:
                return self._write_snapshot(key, self._next_snapshot(state, update))
            except KafkaError as error:
                if error.code not in TOO_LARGE:
                    raise
                state.update_count = 0  # the updates hold it, and so many later it may fit
        return self._write_update(key, state, update)

    def delete(self, key: ShareKey) -> Later[None] | None:
        """Forgets the share-partition; nothing to do for one that is not known."""
        self._require_partition(key)
        if key not in self._states:
            return None
        return self._forget(key)

    def delete_all(self, keys: Iterable[ShareKey]) -> list[Later[None]]:
        """`delete` for many share-partitions, in few batches."""
        known = []
        for key in keys:
            self._require_partition(key)
            if key in self._states:
                known.append(key)
        return [self._forget_together(index, some) for index, some in self._batches_of(known)]

    def _batches_of(self, keys: Iterable[ShareKey]) -> Iterator[tuple[int, Sequence[ShareKey]]]:
        """Those that can be forgotten together, with the partition of the state topic."""
        by_partition: dict[int, list[ShareKey]] = {}
        for key in keys:
            by_partition.setdefault(self._states[key].partition, []).append(key)
        for index, found in by_partition.items():
            for some in batched(found, KEYS_PER_BATCH):
                yield index, some

    def _forget_together(self, index: int, keys: Sequence[ShareKey]) -> Later[None]:
        tombstones = [(snapshot_key(key), None) for key in keys]
        written = self._core.append_internal(STATE_TOPIC, index, tombstones)
        for key in keys:
            self._drop(key)
        return written

    def _forget(self, key: ShareKey) -> Later[None]:
        index = self._states[key].partition
        written = self._core.append_internal(STATE_TOPIC, index, [(snapshot_key(key), None)])
        self._drop(key)
        return written

    def _forget_quietly(self, key: ShareKey) -> None:
        """For a topic that is gone. What cannot be written now is found again at the next start."""
        try:
            self._forget(key)
        except KafkaError as error:
            logger.warning("%s: its state cannot be deleted yet: %s", key, error)

    def _write_update(self, key: ShareKey, state: StoredState, update: Update) -> Later[None]:
        if not state.update_key:
            state.update_key = update_key(key)
        record = state.update_key, encode_update(update)
        written = self._core.append_internal(STATE_TOPIC, state.partition, [record])
        state.apply(update)
        return written

    def _next_snapshot(self, state: StoredState, update: Update | None = None) -> Snapshot:
        """All that is known, with an update that is still to be written. Nothing has changed if it cannot be."""
        if update is None:
            update = Update(state.snapshot_epoch, UNKNOWN, UNKNOWN, state.complete_count, ())
        start_offset = state.start_offset if update.start_offset == UNKNOWN else update.start_offset
        state.merged()
        return Snapshot(
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch if update.leader_epoch == UNKNOWN else update.leader_epoch,
            start_offset=start_offset,
            complete_count=update.complete_count,
            create_timestamp=state.create_timestamp,
            write_timestamp=self._core.clock.wall_ms(),
            batches=state.merged_with(update.batches, start_offset),
            holds=update.holds,
        )

    def _write_snapshot(self, key: ShareKey, snapshot: Snapshot) -> Later[None]:
        topic, index = self._place(key)
        offset = topic.partitions[index].log.end_offset
        written = self._core.append_internal(
            STATE_TOPIC, index, [(snapshot_key(key), encode_snapshot(snapshot))]
        )
        self._keep(key, _stored(snapshot, index, offset))
        return written

    def _place(self, key: ShareKey) -> "tuple[Topic, int]":
        topic = self._core.topics.internal(STATE_TOPIC)
        return topic, key.kept_in(len(topic.partitions))

    def _require(self, key: ShareKey, message: str) -> StoredState:
        state = self._states.get(key)
        if state is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, message)
        return state

    def _require_partition(self, key: ShareKey) -> None:
        topic = self._core.topics.by_id(key.topic_id)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.require_sound(key)

    def is_sound(self, key: ShareKey) -> bool:
        """False: what was known of it is in a damaged partition of the state topic."""
        journals = self._core.journals
        return journals.is_sound(STATE_TOPIC) or journals.is_sound(STATE_TOPIC, key.text)

    def require_sound(self, key: ShareKey) -> None:
        if not self.is_sound(key):
            self._core.journals.require(STATE_TOPIC, key.text)

    @staticmethod
    def _check_leader_epoch(state: StoredState, leader_epoch: int) -> None:
        if leader_epoch != UNKNOWN and leader_epoch < state.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)

    def _note_topic_deleted(self, topic: "Topic") -> None:
        for index, some in self._batches_of(self._by_topic.get(topic.id, {})):
            try:
                self._forget_together(index, some)
            except KafkaError as error:
                logger.warning(
                    "%s and %d others: their state cannot be deleted yet: %s", some[0], len(some) - 1, error
                )


def batched(keys: Sequence[ShareKey], size: int) -> Iterator[Sequence[ShareKey]]:
    for begin in range(0, len(keys), size):
        yield keys[begin : begin + size]
