"""The log of one topic-partition: appends, reads, and what follows from them.

Theory of operation. A log is a list of segments; the last one is active and grows. `append` judges first (framing,
checksum, the producer's sequence), writes once, and only then changes what is in memory, so that a refused or
failed append leaves nothing behind. `read` finds a position (by a remembered hint, else by the sparse index), works
out from batch headers how many whole batches fit, and returns that slice of the file as it is.

Everything here runs on the loop's thread, except `sync`, which a worker calls while the loop goes on appending:
it takes the list of what is unsynced under the store's guard and syncs without it.

Invariants: batches lie in the order of their offsets; offsets never change; `start_offset` and `end_offset` never
go back; what a client was told is durable is below `recovery_point`. What of it the next start need not check is
`trust`'s to say.
"""

import contextlib
import errno
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from headrace.log.config import LogConfig
from headrace.log.disk import write_file
from headrace.log.durable import Durable
from headrace.log.epochs import LeaderEpochs
from headrace.log.errors import REFUSALS
from headrace.log.files import LogFiles
from headrace.log.index import OFFSET_ENTRY_SIZE, AbortedTransaction, encode_aborted
from headrace.log.layout import DRAFT, LEADER_EPOCHS, TRANSACTION_INDEX, Key, directory_name, encode_epochs
from headrace.log.positions import Positions
from headrace.log.producers import (
    AppendOrigin,
    ProducerStateEntry,
    ProducerStates,
    ProducerView,
    encode_snapshot,
)
from headrace.log.segment import Placed, Segment
from headrace.log.store import Store
from headrace.log.times import Search, at_once, find_max_timestamp, find_time
from headrace.log.trust import Trust
from headrace.log.validation import Checked, Prepared, prepare
from headrace.wire.batches import FRAME_SIZE, HEADER_SIZE, place, read_header, split, stamp_append_time
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import build_marker

RELATIVE_OFFSET_MAX = 2**31 - 1
REPLAY_BYTES = 1024 * 1024


class Appended(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int = -1
    """-1 unless the topic uses LogAppendTime."""
    is_duplicate: bool = False


class Read(NamedTuple):
    data: bytes
    """Whole batches; the first may begin before the offset that was asked for."""
    aborted: list[tuple[int, int]]
    """Producer id and first offset of aborted transactions in the data; for committed reads."""
    next_offset: int


class Damage(NamedTuple):
    """Bytes that are no batch although batches follow them. Nothing from `offset` on is served."""

    offset: int
    path: str
    position: int
    reason: str


class PartitionLog:
    __slots__ = (
        "_ended",
        "_positions",
        "aborted",
        "bases",
        "config",
        "damage",
        "directory",
        "end_offset",
        "epochs",
        "files",
        "is_as_left",
        "is_deleted",
        "is_discarded",
        "next_horizon_ms",
        "partition",
        "producer_states",
        "recovery_point",
        "segments",
        "start_offset",
        "store",
        "topic",
        "topic_id",
        "trust",
    )

    def __init__(self, store: Store, topic: str, partition: int, config: LogConfig, topic_id: bytes) -> None:
        self.store = store
        self.topic = topic
        self.partition = partition
        self.config = config
        self.topic_id = topic_id
        self.directory = directory_name(topic, partition)
        self.start_offset = 0
        self.end_offset = 0
        self.recovery_point = 0
        """Below it everything is synced."""
        self.trust = Trust(store.recovery_points, self.key)
        self.is_deleted = False
        """Nobody reads or writes it any more; a power cut may still bring its topic back."""
        self.is_discarded = False
        """Its topic is gone for good, and its directory has another name, or soon will have."""
        self.is_as_left = False
        """Nothing was written since a clean stop, or since all was prepared for one."""
        self.files = LogFiles(store, self.directory, topic_id)
        self.segments, self.bases = self.files.segments, self.files.bases
        self.epochs = LeaderEpochs()
        self.producer_states = ProducerStates()
        self.aborted: list[AbortedTransaction] = []
        """By last offset."""
        self._ended: deque[tuple[int, int]] = deque()
        """First offset and marker of transactions that ended lately and may not be synced, both rising; one that began
        before another and ended after it speaks for both."""
        self.damage: Damage | None = None
        self.next_horizon_ms: int | None = None
        """When the next tombstones may go."""
        self._positions = Positions(self.files)

    def blank(self) -> "PartitionLog":
        """The same log before anything was read from the disk."""
        return PartitionLog(self.store, self.topic, self.partition, self.config, self.topic_id)

    def __repr__(self) -> str:
        return f"PartitionLog({self.directory!r}, {self.start_offset}..{self.end_offset})"

    @property
    def key(self) -> Key:
        return self.topic_id, self.partition

    @property
    def saved_recovery_point(self) -> int:
        """Where the next start would begin to check."""
        return self.trust.saved

    @property
    def saved_start_offset(self) -> int:
        """Where the log would start after a crash."""
        return self.store.start_offsets.saved.get(self.key, 0)

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
        unsynced = [first for first, marker in self._ended if marker >= self.recovery_point]
        return min([self.stable_offset, *unsynced])

    @property
    def size(self) -> int:
        """Bytes of record batches on the disk."""
        return self.files.size

    @property
    def name(self) -> str:
        return self.directory

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
            duplicate = self._duplicate(checked, append_time_ms)
            if duplicate is not None:
                return duplicate
            if self.store.reserve.is_out:
                raise self._storage_error(
                    "cannot be written", OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                )
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

    def _duplicate(self, checked: Checked, append_time_ms: int) -> Appended | None:
        for _, header in checked:
            if header.producer_id >= 0:
                batch = self.producer_states.duplicate_of(header)
                if batch is not None:
                    time_ms = batch.timestamp if append_time_ms >= 0 else -1
                    return Appended(batch.first_offset, batch.last_offset, time_ms, is_duplicate=True)
        return None

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
            self.note_ended(first_offset, offset)
            if not commit:
                self.note_aborted(producer_id, first_offset, offset)
        is_append_time = self.config.has_append_time
        return Appended(offset, offset, now_ms if is_append_time else -1)

    def note_ended(self, first_offset: int, marker_offset: int) -> None:
        """A power cut may take the marker away again: then the transaction is open as before."""
        while self._ended and self._ended[0][1] < self.recovery_point:
            self._ended.popleft()
        while (
            self._ended and self._ended[-1][0] >= first_offset
        ):  # this one began before it and ends after it
            self._ended.pop()
        self._ended.append((first_offset, marker_offset))

    def note_aborted(self, producer_id: int, first_offset: int, last_offset: int) -> None:
        """After the marker has been applied: the last stable offset is what it is without this transaction."""
        first_open = self.producer_states.first_open_offset()
        stable_offset = last_offset + 1 if first_open is None else first_open
        self.aborted.append(AbortedTransaction(producer_id, first_offset, last_offset, stable_offset))

    def _write(self, data: bytes | bytearray, placed: list[Placed], next_offset: int, now_ms: int) -> None:
        """The one place where bytes enter the log."""
        if self.is_deleted:
            raise self._deleted()
        if self.damage is not None:
            raise self._damage_error(ErrorCode.KAFKA_STORAGE_ERROR)
        self.is_as_left = False
        try:
            segment = self._segment_for(len(data), placed, now_ms)
            self._enter_epoch()
            segment.append(data, placed, interval=self.config.index_interval_bytes)
        except OSError as error:
            raise self._storage_error("cannot be written", error) from error
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
                self.files.note_written(self.save_epochs())

    def _segment_for(self, size: int, placed: list[Placed], now_ms: int) -> Segment:
        """The active segment, or a new one if these bytes do not belong in it any more."""
        if not self.segments:
            self.files.make()
            return self.files.start_segment(self.end_offset, now_ms)
        active = self.segments[-1]
        if active.size and self._is_roll_due(active, size, placed, now_ms):
            return self.roll(now_ms)
        return active

    def _is_roll_due(self, active: Segment, size: int, placed: list[Placed], now_ms: int) -> bool:
        config = self.config
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

    def note_recovered(self, segment: Segment) -> None:
        """It holds bytes that may not have been synced by the process that wrote them."""
        self.files.note_dirty(segment)
        if segment.is_closed:
            try:
                self.files.note_written([*segment.save_indexes(), *self.save_aborted(segment)])
            except OSError as error:
                self.distrust(segment.base_offset, error)

    def distrust(self, base_offset: int, error: OSError) -> None:
        """A full disk has no room for a file that recovery would need to trust this segment: it is checked again."""
        if error.errno not in REFUSALS:
            raise error
        self.trust.limit = min(base_offset, base_offset if self.trust.limit is None else self.trust.limit)

    def roll(self, now_ms: int) -> Segment:
        """Closes the active segment and starts the next at the log's end. OSError leaves the old one active."""
        active, end_offset = self.segments[-1], self.end_offset
        if not active.size:
            return active
        self.is_as_left = False
        written = [
            *active.save_indexes(),
            *self.save_aborted(active),
            *self.save_epochs(),
            *self.save_snapshot(),
        ]
        segment = self.files.start_segment(end_offset, now_ms, written)
        self.files.know_snapshot(end_offset)
        self.forget_old_snapshots()
        return segment

    def drop_oldest(self, count: int, *, now_ms: int) -> list[Segment]:
        """Takes segments out of the log, not off the disk. An active one remains, so that the end is known."""
        if count == len(self.segments):
            self.roll(now_ms)
        dropped = self.files.drop_oldest(count)
        if self.bases[0] > self.start_offset:
            self.move_start(self.bases[0])
        self.aborted = [entry for entry in self.aborted if entry.last_offset >= self.bases[0]]
        self.is_as_left = False
        self._positions.forget()
        return dropped

    def replace_segments(self, old: list[Segment], new: Segment, end_offset: int) -> bool:
        """Puts a compacted segment in the place of its sources, which end there.

        False if a full disk refuses it: the log is as it was.
        """
        self.is_as_left = False
        if not self.files.swap_in(old, new, end_offset):
            return False
        self._positions.forget()
        # Indexes are made again when needed, and no records of aborted transactions are left.
        with contextlib.suppress(OSError):
            self.files.note_written([*new.save_indexes(), *self.save_aborted(new)])
        return True

    def save_aborted(self, segment: Segment) -> list[str]:
        """The aborted transactions whose markers are in this segment: a file only if there are any."""
        end = self.end_after(segment)
        entries = [entry for entry in self.aborted if segment.base_offset <= entry.last_offset < end]
        path = segment.path_of(TRANSACTION_INDEX)
        if not entries:
            self.store.disk.remove(path)  # it may be left from a tail that was lost
            return []
        write_file(self.store.disk, path, encode_aborted(entries))
        return [path]

    def save_snapshot(self) -> list[str]:
        """Of the producers as they are now. It counts once it is noted, with the segment that starts here."""
        return self.files.save_snapshot(self.end_offset, self.encoded_producers())

    def encoded_producers(self) -> bytes:
        return encode_snapshot(self.producer_states.entries.values())

    def forget_old_snapshots(self) -> None:
        """Recovery starts from the newest one that is trusted, or a later one."""
        trusted = [offset for offset in self.files.snapshots if offset <= self.trust.saved]
        oldest = trusted[-1] if trusted else 0
        self.files.keep_snapshots([offset for offset in self.files.snapshots if offset >= oldest])

    def end_after(self, segment: Segment) -> int:
        """Where the offsets of a segment end: at the next one's base, or at the log's end."""
        following = self.files.after(segment)
        return self.end_offset if following is None else following.base_offset

    def read(
        self, offset: int, *, max_bytes: int, committed: bool = False, at_least_one: bool = True
    ) -> Read:
        """Whole batches from the one that holds `offset`, of one segment, up to `max_bytes` of them.

        The first batch comes whole even if it is larger, unless `at_least_one` is false. Committed reads end before
        the first undecided transaction.
        """
        if self.is_deleted:
            raise self._deleted()
        end_offset = self.end_offset
        if offset < self.start_offset or offset > end_offset:
            raise self._out_of_range(offset)
        limit_offset = self.stable_offset if committed else end_offset
        if self.damage is not None:
            limit_offset = min(limit_offset, self.damage.offset)
            if offset >= limit_offset == self.damage.offset:
                raise self._damage_error(ErrorCode.CORRUPT_MESSAGE)
        if offset >= limit_offset:
            if offset == end_offset and self.segments:
                self._positions.remember(offset, self.segments[-1], self.segments[-1].size)
            return Read(b"", [], offset)
        try:
            found = self._positions.locate(offset)
            if found is None:
                return Read(b"", [], offset)
            segment, position = found
            end, next_offset = self._extent(segment, position, max_bytes, limit_offset)
            if end - position > max_bytes and not at_least_one:
                return Read(b"", [], offset)
            data = segment.read(position, end - position) if end > position else b""
        except OSError as error:
            raise self._storage_error("cannot be read", error) from error
        if not data:
            return Read(b"", [], offset)
        self._positions.remember(next_offset, segment, end)
        return Read(data, self.aborted_between(offset, next_offset) if committed else [], next_offset)

    def _extent(self, segment: Segment, position: int, max_bytes: int, limit_offset: int) -> tuple[int, int]:
        """Where the whole batches to return end, and the offset after them. The first batch always counts."""
        stop, stop_offset = segment.size, self.end_after(segment)
        if limit_offset < stop_offset:
            stop, stop_offset = self._stop_before(limit_offset, segment), limit_offset
        if stop - position <= max_bytes:
            return max(stop, position), stop_offset
        return segment.extent(position, position + max_bytes)

    def _stop_before(self, offset: int, segment: Segment) -> int:
        damage = self.damage
        if damage is not None and damage.offset == offset and damage.path == segment.path:
            return damage.position
        return self._positions.stop_before(offset, segment)

    def aborted_between(self, offset: int, end_offset: int) -> list[tuple[int, int]]:
        if not self.aborted:
            return []
        found = []
        at = bisect_right(self.aborted, offset - 1, key=lambda entry: entry.last_offset)
        for entry in self.aborted[at:]:
            if entry.first_offset < end_offset:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= end_offset:
                break
        return found

    def bytes_from(self, offset: int, *, limit: int, committed: bool = False) -> int:
        """About how many bytes a read would find, up to `limit`; 0 for offsets outside the log."""
        if self.damage is not None:
            return limit  # a reader that waits must wake up to hear of it
        limit_offset = self.stable_offset if committed else self.end_offset
        if not self.start_offset <= offset < limit_offset:
            return 0
        try:
            found = self._positions.locate(offset)
            if found is None:
                return 0
            segment, position = found
            self._positions.remember(offset, segment, position)
            if limit_offset < self.end_after(segment):
                stop = self._positions.stop_before(limit_offset, segment)
                return max(0, min(limit, stop - position))
        except OSError as error:
            raise self._storage_error("cannot be read", error) from error
        return self._positions.available(segment, position, before=limit_offset, limit=limit)

    def offset_for_time(self, timestamp_ms: int, *, committed: bool = False) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record that is not older than `timestamp_ms`.

        On the spot: where a batch is too large to be opened on the loop's thread, that is its first offset.
        """
        return at_once(self.search_time(timestamp_ms, committed=committed))

    def search_time(self, timestamp_ms: int, *, committed: bool = False) -> Search:
        """`offset_for_time` in steps: see `times`."""
        try:
            limit_offset = self.stable_offset if committed else self.end_offset
            return (yield from find_time(self, timestamp_ms, limit_offset))
        except OSError as error:
            raise self._storage_error("cannot be read", error) from error

    def batch_timestamp(self, offset: int) -> int | None:
        """The timestamp of the batch that holds `offset`, or of the next one; reads nothing but its header.

        None where the log has no such batch, or where it cannot be read now.
        """
        if self.is_deleted or not self.start_offset <= offset < self.end_offset:
            return None
        try:
            found = self._positions.locate(offset)
            if found is None:
                return None
            segment, position = found
            return read_header(segment.read(position, HEADER_SIZE)).record_timestamp
        except (KafkaError, OSError):
            return None

    def max_timestamp(self) -> tuple[int, int] | None:
        """(timestamp, offset) of the record with the largest timestamp, the first of several. On the spot."""
        return at_once(self.search_max_timestamp())

    def search_max_timestamp(self) -> Search:
        """`max_timestamp` in steps: see `times`."""
        try:
            return (yield from find_max_timestamp(self))
        except OSError as error:
            raise self._storage_error("cannot be read", error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset); (-1, -1) if the epoch is not known."""
        return self.epochs.end_offset(
            epoch, leader_epoch=self.store.leader_epoch, log_end_offset=self.end_offset
        )

    def delete_records(self, before: int) -> int:
        """Moves the start to `before` (-1: to the end), safely on disk when it returns. The new start offset.

        For whoever may wait for the disk; the loop's thread uses `trim`.
        """
        target = max(self._new_start(before), self.start_offset)
        starts = self.store.start_offsets
        starts.put(self.key, target)
        if not starts.is_entry_saved(self.key):
            try:
                starts.sync()
            except (KafkaError, OSError) as error:
                starts.put(self.key, self.start_offset)
                if isinstance(error, KafkaError):
                    raise
                raise self._storage_error("cannot record its start offset", error) from error
        if target > self.start_offset:
            self.move_start(target)
        return self.start_offset

    def trim(self, before: int) -> int:
        """`delete_records` for readers at once; safe when the store's `start_offsets` have been synced."""
        target = self._new_start(before)
        if target > self.start_offset:
            self.move_start(target)
        return self.start_offset

    def _new_start(self, before: int) -> int:
        if "delete" not in self.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of {self.name} cannot be deleted: its cleanup.policy is compact.",
            )
        target = self.end_offset if before == -1 else before
        if not 0 <= target <= self.end_offset:
            raise self._out_of_range(target)
        return target

    def move_start(self, offset: int) -> None:
        """Only in memory, until the start offsets are saved: nothing that earlier records need may go before."""
        self.start_offset = offset
        self.epochs.cut_before(offset)
        if not self.is_deleted:
            self.store.start_offsets.put(self.key, offset)

    def refuse_from(self, offset: int, reason: str) -> None:
        """A reader has found damage: nothing from there on is served, and nothing is appended."""
        segment = self.segments[max(0, bisect_right(self.bases, offset) - 1)]
        try:
            found = segment.find(offset)
        except (KafkaError, OSError):
            found = None
        self.damage = Damage(offset, segment.path, found[0] if found is not None else 0, reason)

    def producers(self) -> list[ProducerView]:
        return self.producer_states.views()

    def batches(self, from_offset: int | None = None) -> Iterator[bytes]:
        """Every batch in order, for whoever rebuilds its state from this log."""
        offset = self.start_offset if from_offset is None else from_offset
        while offset < self.end_offset:
            read = self.read(offset, max_bytes=REPLAY_BYTES)
            if not read.data:
                return
            for position, header in split(read.data):
                yield read.data[position : position + header.size]
            offset = read.next_offset

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

    def save_epochs(self) -> list[str]:
        """They are part of what is trusted with a segment; of segments that are not, batches say them again."""
        path = f"{self.directory}/{LEADER_EPOCHS}"
        if self.epochs.is_changed:
            write_file(self.store.disk, path + DRAFT, encode_epochs(self.epochs.entries))
            self.store.disk.rename(path + DRAFT, path)
            self.epochs.is_changed = False
        return [path]

    def save_for_restart(self) -> None:
        """What the next start reads instead of scanning, if it is worth a file; an older one is outdated."""
        active = self.segments[-1]
        if not self.is_as_left:
            try:
                if active.index_entries:
                    self.files.note_written(active.save_indexes())
                elif active.remove_indexes():
                    self.files.note_written()
            except OSError as error:
                if error.errno not in REFUSALS:
                    raise
        self.is_as_left = True

    def close(self) -> None:
        self.files.close()

    def _out_of_range(self, offset: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset {offset} of {self.name} is outside {self.start_offset} to {self.end_offset}.",
        )

    def _deleted(self) -> KafkaError:
        return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{self.name} was deleted.")

    def _storage_error(self, what: str, error: OSError) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name} in {self.store.disk.name} {what}: {error}."
        )

    def _damage_error(self, code: ErrorCode) -> KafkaError:
        """Readers get CORRUPT_MESSAGE, which their users see; a storage error they would try again for ever."""
        assert self.damage is not None
        return KafkaError(
            code,
            f"{self.name} is damaged at offset {self.damage.offset} ({self.damage.path}, byte "
            f"{self.damage.position}: {self.damage.reason}) and serves nothing from there on.",
        )
