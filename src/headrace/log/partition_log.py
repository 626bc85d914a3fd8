"""The log of one topic-partition: what moves its two ends, and what has to be safe before that is promised.

Theory of operation. A log is a list of segments (`files`); the last one is active and grows. `append` judges first
(framing, checksum, the producer's sequence), writes once, and only then changes what is in memory, so that a refused or
failed append leaves nothing behind. `roll` closes the active segment, `drop_oldest` takes segments off the start, and
`replace_segments` puts a compacted one in the place of others. Readers have a face of their own, `reader`.

Everything here runs on the loop's thread, except `sync`, which a worker calls while the loop goes on appending:
it takes the list of what is unsynced under the store's guard and syncs without it.

Invariants: batches lie in the order of their offsets; offsets never change; `start_offset` and `end_offset` never
go back; what a client was told is durable is below `recovery_point`. What of it the next start need not check is
`trust`'s to say.
"""

import contextlib
import errno
import os
from collections.abc import Container
from typing import NamedTuple

from headrace.log.config import LogConfig
from headrace.log.durable import Durable
from headrace.log.epochs import LeaderEpochs
from headrace.log.errors import Damage, deleted, out_of_range, storage_error
from headrace.log.files import LogFiles
from headrace.log.index import OFFSET_ENTRY_SIZE
from headrace.log.layout import Key, directory_name
from headrace.log.producers import AppendOrigin, ProducerStateEntry, ProducerStates
from headrace.log.reading import LogReader
from headrace.log.segment import Placed, Segment
from headrace.log.store import Store
from headrace.log.transactions import EndedTransactions
from headrace.log.trust import Trust
from headrace.log.validation import Prepared, prepare
from headrace.wire.batches import FRAME_SIZE, place, read_header, stamp_append_time
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import build_marker

RELATIVE_OFFSET_MAX = 2**31 - 1


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int = -1
    """-1 unless the topic uses LogAppendTime."""
    is_duplicate: bool = False


class PartitionLog:
    __slots__ = (
        "config",
        "damage",
        "end_offset",
        "epochs",
        "files",
        "is_deleted",
        "is_discarded",
        "name",
        "next_horizon_ms",
        "partition",
        "producer_states",
        "reader",
        "recovery_point",
        "segments",
        "start_offset",
        "store",
        "topic",
        "topic_id",
        "transactions",
        "trust",
    )

    def __init__(self, store: Store, topic: str, partition: int, config: LogConfig, topic_id: bytes) -> None:
        self.store = store
        self.topic = topic
        self.partition = partition
        self.config = config
        self.topic_id = topic_id
        self.name = directory_name(topic, partition)
        """Of its directory, too."""
        self.start_offset = 0
        self.end_offset = 0
        self.recovery_point = 0
        """Below it everything is synced."""
        self.trust = Trust(store.recovery_points, self.key)
        self.is_deleted = False
        """Nobody reads or writes it any more; a power cut may still bring its topic back."""
        self.is_discarded = False
        """Its topic is gone for good, and its directory has another name, or soon will have."""
        self.files = LogFiles(store, self.name, topic_id)
        self.segments = self.files.segments
        """The very list of `files`, which alone changes it."""
        self.epochs = LeaderEpochs()
        self.producer_states = ProducerStates()
        self.transactions = EndedTransactions()
        self.damage: Damage | None = None
        self.next_horizon_ms: int | None = None
        """When the next tombstones may go."""
        self.reader = LogReader(self)

    def blank(self) -> "PartitionLog":
        """The same log before anything was read from the disk."""
        return PartitionLog(self.store, self.topic, self.partition, self.config, self.topic_id)

    def __repr__(self) -> str:
        return f"PartitionLog({self.name!r}, {self.start_offset}..{self.end_offset})"

    @property
    def key(self) -> Key:
        return self.topic_id, self.partition

    @property
    def leader_epoch(self) -> int:
        return self.store.leader_epoch

    @property
    def stable_offset(self) -> int:
        """Below it every transaction is decided."""
        first = self.producer_states.first_open_offset()
        return self.end_offset if first is None else max(first, self.start_offset)

    @property
    def decided_offset(self) -> int:
        """Below it every transaction is decided for good: its marker is synced."""
        unsynced = self.transactions.first_unsynced(self.recovery_point)
        return self.stable_offset if unsynced is None else min(self.stable_offset, unsynced)

    @property
    def size(self) -> int:
        """Bytes of record batches on the disk."""
        return self.files.size

    def append(
        self,
        data: bytes,
        *,
        now_ms: int,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        prepared: Prepared | None = None,
    ) -> Appended:
        """Writes one or more batches at the end, or raises KafkaError and leaves everything as it was.

        Whoever has had the data prepared (validation.py) gives the result, and nothing is opened here.
        """
        config = self.config
        if prepared is None:
            prepared = prepare(data, config, now_ms=now_ms, origin=origin, at_leisure=True)
        data, checked = prepared
        if len(data) > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(data)} bytes do not fit in a segment of {config.segment_bytes}.",
            )
        append_time_ms = now_ms if config.has_append_time else -1
        if origin is AppendOrigin.CLIENT:
            sent = self.producer_states.duplicate_among(checked)
            if sent is not None:
                time_ms = sent.timestamp if append_time_ms >= 0 else -1
                return Appended(sent.first_offset, sent.last_offset, time_ms, is_duplicate=True)
            if self.store.reserve.is_out:
                full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                raise storage_error(self, "cannot be written", full)
        base_offset = next_offset = self.end_offset
        buffer = bytearray(data)
        placed: list[Placed] = []
        producers: dict[int, ProducerStateEntry] = {}
        for position, header in checked:
            if append_time_ms >= 0:
                stamp_append_time(buffer, position, append_time_ms)
                header = read_header(buffer, position)
            if header.producer_id >= 0:
                producers[header.producer_id] = self.producer_states.decide(
                    header,
                    next_offset,
                    origin=origin,
                    now_ms=now_ms,
                    pending=producers.get(header.producer_id),
                )
            place(
                buffer,
                position,
                base_offset=next_offset,
                length=header.length,
                leader_epoch=self.store.leader_epoch,
            )
            next_offset += header.last_offset_delta + 1
            placed.append((header.length + FRAME_SIZE, next_offset - 1, header.max_timestamp))
        self._write(buffer, placed, next_offset, now_ms)
        for producer in producers.values():
            self.producer_states.apply(producer)
        return Appended(base_offset, next_offset - 1, append_time_ms)

    def append_marker(
        self, *, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> Appended:
        """Ends the producer's transaction with a control batch."""
        offset = self.end_offset
        producer = self.producer_states.decide_marker(
            producer_id, producer_epoch, coordinator_epoch, timestamp=now_ms, now_ms=now_ms
        )
        batch = build_marker(
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
            base_offset=offset,
            leader_epoch=self.store.leader_epoch,
        )
        first_offset = self.producer_states.open_transactions.get(producer_id, -1)
        self._write(batch, [(len(batch), offset, now_ms)], offset + 1, now_ms)
        self.producer_states.apply(producer)
        if first_offset >= 0:
            self.transactions.note(first_offset, offset, synced_to=self.recovery_point)
            if not commit:
                first_open = self.producer_states.first_open_offset()
                self.transactions.note_aborted(producer_id, first_offset, offset, first_open=first_open)
        is_append_time = self.config.has_append_time
        return Appended(offset, offset, now_ms if is_append_time else -1)

    def _write(self, data: bytes | bytearray, placed: list[Placed], next_offset: int, now_ms: int) -> None:
        """The one place where bytes enter the log."""
        if self.is_deleted:
            raise deleted(self)
        if self.damage is not None:
            raise self.damage.error(self, ErrorCode.KAFKA_STORAGE_ERROR)
        while True:
            try:
                segment = self._segment_for(len(data), placed, now_ms)
                self._enter_epoch()
                segment.append(data, placed, interval=self.config.index_interval_bytes)
                break
            except OSError as error:
                if not self.store.open_files.make_room(error):
                    raise storage_error(self, "cannot be written", error) from error
        if not segment.is_dirty:
            self.files.note_dirty(segment)
        self.end_offset = next_offset

    @property
    def makes_files(self) -> bool:
        """The next append has to make files before it writes: it takes several times as long as others."""
        return not self.segments or self.epochs.latest < self.store.leader_epoch

    def _enter_epoch(self) -> None:
        """Before the first batch of a leader epoch is written."""
        if self.epochs.latest < self.store.leader_epoch:
            self.epochs.assign(self.store.leader_epoch, self.end_offset)
            with contextlib.suppress(OSError):  # the next roll insists on it
                self.files.note_written(self.epochs.save(self.store.disk, self.name))

    def _segment_for(self, size: int, placed: list[Placed], now_ms: int) -> Segment:
        """The active segment, or a new one if these bytes do not belong in it any more."""
        if not self.segments:
            self.files.make()
            return self.files.start_segment(self.end_offset, now_ms)
        active = self.segments[-1]
        if active.size and _is_roll_due(active, self.config, size, placed, now_ms):
            return self.roll(now_ms)
        return active

    def roll(self, now_ms: int) -> Segment:
        """Closes the active segment and starts the next at the log's end. OSError leaves the old one active."""
        active, end_offset = self.segments[-1], self.end_offset
        if not active.size:
            return active
        written = [
            *active.save_indexes(),
            *self.transactions.save(active, end_offset),
            *self.epochs.save(self.store.disk, self.name),
            *self.files.save_snapshot(end_offset, self.producer_states),
        ]
        segment = self.files.start_segment(end_offset, now_ms, written)
        self.files.know_snapshot(end_offset)
        self.files.forget_snapshots(self.trust.saved)
        return segment

    def drop_oldest(self, count: int, *, now_ms: int) -> list[Segment]:
        """Takes segments out of the log, not off the disk. An active one remains, so that the end is known."""
        if count == len(self.segments):
            self.roll(now_ms)
        dropped = self.files.drop_oldest(count)
        first_offset = self.segments[0].base_offset
        if first_offset > self.start_offset:
            self.move_start(first_offset)
        self.transactions.forget_before(first_offset)
        self.reader.forget()
        return dropped

    def replace_segments(
        self, old: list[Segment], new: Segment, end_offset: int, *, without: Container[int]
    ) -> bool:
        """Puts a compacted segment in the place of its sources, which end there. It is without these markers of theirs.

        False if a full disk refuses it: the log is as it was.
        """
        if not self.files.swap_in(old, new, end_offset):
            return False
        self.reader.forget()
        self.transactions.forget(without, within=range(new.base_offset, end_offset))
        # Indexes are made again when needed, and no records of aborted transactions are left.
        with contextlib.suppress(OSError):
            self.files.note_written([*new.save_indexes(), *self.transactions.save(new, end_offset)])
        return True

    def end_after(self, segment: Segment) -> int:
        """Where the offsets of a segment end: at the next one's base, or at the log's end."""
        following = self.files.after(segment)
        return self.end_offset if following is None else following.base_offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset); (-1, -1) if the epoch is not known."""
        return self.epochs.end_offset(
            epoch, leader_epoch=self.store.leader_epoch, log_end_offset=self.end_offset
        )

    def trim(self, before: int) -> int:
        """Moves the start to `before` (-1: to the end), for readers at once. The new start offset.

        It is safe when the store's `start_offsets` have been synced.
        """
        if "delete" not in self.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.name} cannot be deleted: its cleanup.policy is compact.",
            )
        target = self.end_offset if before == -1 else before
        if not 0 <= target <= self.end_offset:
            raise out_of_range(self, target)
        if target > self.start_offset:
            self.move_start(target)
        return self.start_offset

    def move_start(self, offset: int) -> None:
        """Only in memory, until the start offsets are saved: nothing that earlier records need may go before."""
        self.start_offset = offset
        self.epochs.cut_before(offset)
        if not self.is_deleted:
            self.store.start_offsets.put(self.key, offset)

    def refuse_from(self, offset: int, reason: str) -> None:
        """A reader has found damage: nothing from there on is served, and nothing is appended."""
        segment = self.segments[self.files.index_at(offset)]
        try:
            found = segment.find(offset)
        except (KafkaError, OSError):
            found = None
        self.damage = Damage(offset, segment.path, found[0] if found is not None else 0, reason)

    @property
    def has_rolled(self) -> bool:
        """A segment has closed that the next start would check all the same."""
        return len(self.segments) > 1 and self.trust.saved < self.segments[-1].base_offset

    def sync(self) -> list[Durable]:
        """Makes everything appended so far safe, together with what it returns. From a worker; raises OSError."""
        end_offset = self.end_offset
        try:
            active = self.files.sync()
        except FileNotFoundError:
            if not self.is_discarded:
                raise
            return []
        if self.is_discarded:
            return []
        self.recovery_point = max(self.recovery_point, end_offset)
        if active is not None:
            self.trust.raise_to(active)
        rest: list[Durable] = []
        if not self.files.is_in_root:
            rest.append(self.store.root)
        if not self.trust.is_saved:
            rest.append(self.trust.points)
        return rest

    @property
    def is_synced(self) -> bool:
        """There is nothing for `sync` to do."""
        return self.files.is_synced and self.trust.is_saved and not self.has_rolled


def _is_roll_due(active: Segment, config: LogConfig, size: int, placed: list[Placed], now_ms: int) -> bool:
    if active.size + size > config.segment_bytes:
        return True
    if placed[-1][1] - active.base_offset > RELATIVE_OFFSET_MAX:
        return True
    if active.index_entries * OFFSET_ENTRY_SIZE >= config.segment_index_bytes:
        return True
    segment_ms = config.segment_ms
    if "compact" in config.cleanup_policy:
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    if active.first_timestamp >= 0:
        return placed[-1][2] - active.first_timestamp > segment_ms
    return now_ms - active.created_ms > segment_ms
