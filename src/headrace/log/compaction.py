"""Compaction: keeps the last record of each key, at its offset, in segments that are closed.

Theory of operation. `plan` (loop's thread) chooses the segments: closed, trusted, wholly below the first transaction
that a power cut could leave undecided, and old enough; from the first one that the next start would find.
`Compaction.run` (a worker) reads them through files of its own: first the dirty ones, to learn the last offset of each
key, then all of them, writing what stays into new files beside the old; by the directory itself and not by its name,
which a new topic may have taken when this one is deleted meanwhile. `finish` (loop's thread) swaps them in by renames.
A crash in between is finished or forgotten by recovery: a file is named `.cleaned` until it is whole and synced, then
`.swap`, with the range of offsets it stands for. Before its rename to `.log` there is a `.merged` file of this range,
which goes when nothing is left of the segments that it replaces.

What stays: a record that is the last of its key; a tombstone until `delete.retention.ms` after its batch was first
compacted (the time is kept in the batch, KIP-534); a transaction's marker while records of it stay, and as long again;
every producer's last batch, as a bare header if need be, because it holds the last sequence number; and the last
batch of all, so that a reader at the end of the compacted part finds its way. Records of aborted transactions go.
"""

import hashlib
import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from headrace.log.disk import File
from headrace.log.index import AbortedTransaction
from headrace.log.layout import CLEANED, LOG, MERGED, SWAP, file_name, range_name
from headrace.log.partition_log import RELATIVE_OFFSET_MAX, PartitionLog
from headrace.log.segment import Segment
from headrace.wire.batches import HEADER_SIZE, TRANSACTIONAL, BatchHeader, is_intact, read_header
from headrace.wire.errors import KafkaError
from headrace.wire.records import Record, empty_batch, keep_records, read_records

logger = logging.getLogger("headrace.log")

KEYS_MAX = 500_000
"""Of one pass; at about 150 bytes each. What does not fit is compacted by the next."""
SOURCES_MAX = 16
"""Segments that become one: their files are removed in one turn of the loop."""
_CHUNK = 1024 * 1024
_DIGEST_SIZE = 16


class Plan(NamedTuple):
    segments: list[Segment]
    """All that are rewritten, from the log's first on."""
    dirty_from: int
    """Below it keys are already unique."""
    end_offset: int
    """Of the last segment."""
    dirty_bytes: int
    is_due: bool


def plan(log: PartitionLog, *, cleaned_to: int, now_ms: int) -> Plan:
    """What could be compacted now, and whether it should be."""
    config, bases = log.config, log.files.bases
    limit = min(log.decided_offset, log.trust.saved)
    if bases and log.store.start_offsets.saved.get(log.key, 0) < bases[0]:
        limit = 0  # segments that were dropped could come back, with aborted records that only a marker here tells of
    segments: list[Segment] = []
    for segment in log.segments[:-1]:
        is_too_young = now_ms - segment.newest_ms() < config.min_compaction_lag_ms
        if log.end_after(segment) > limit or (config.min_compaction_lag_ms and is_too_young):
            break
        segments.append(segment)
    end_offset = log.end_after(segments[-1]) if segments else 0
    dirty_from = max(cleaned_to, bases[0] if bases else 0)
    dirty = [segment for segment in segments if log.end_after(segment) > dirty_from]
    dirty_bytes = sum(segment.size for segment in dirty)
    total_bytes = sum(segment.size for segment in segments)
    is_due = bool(dirty_bytes) and dirty_bytes >= config.min_cleanable_dirty_ratio * total_bytes
    if dirty and now_ms - dirty[0].newest_ms() > config.max_compaction_lag_ms:
        is_due = True
    if segments and log.next_horizon_ms is not None and now_ms >= log.next_horizon_ms:
        is_due = True
    if log.damage is not None or log.is_deleted:
        is_due = False
    return Plan(segments, dirty_from, end_offset, dirty_bytes, is_due)


class Compaction:
    """One pass over one log. `run` and then `finish`; the result is `cleaned_to`."""

    def __init__(self, log: PartitionLog, chosen: Plan, *, now_ms: int, keys_max: int = KEYS_MAX) -> None:
        """OSError if the log's directory cannot be opened."""
        self.log = log
        self._folder = log.store.disk.open_folder(log.name)
        self.cleaned_to = chosen.dirty_from
        self._plan = chosen
        self._now_ms = now_ms
        self._keys_max = keys_max
        self._config = log.config
        self._end_of = {segment.base_offset: log.end_after(segment) for segment in chosen.segments}
        self._aborted = _AbortedRanges(log.transactions.aborted)
        self._last_of_producer = {
            producer.producer_id: producer.batches[-1].last_offset
            for producer in log.producer_states.entries.values()
            if producer.batches
        }
        self._latest: dict[bytes, int] = {}
        self._has_kept_records: set[int] = set()
        self._dropped_markers: set[int] = set()
        self._next_horizon_ms: int | None = None
        self._outputs: list[tuple[list[Segment], Segment, int]] = []
        """Sources, the new segment, and where they end."""
        self._drafts: list[str] = []
        self._steps: Iterator[None] | None = None
        """Of `finishing`."""
        self._is_done = False
        self._is_canceled = False

    def run(self) -> None:
        """On a worker's thread. Never raises: the log stays as it is. `finish` must be called, or the log is never
        compacted again, nor does anything of it expire.
        """
        try:
            self._run()
        except _Canceled:
            pass
        except Exception as error:
            if not self.log.is_deleted:
                is_known = isinstance(error, (OSError, KafkaError))
                logger.warning(
                    "%s could not be compacted: %s",
                    self.log.name,
                    error,
                    exc_info=None if is_known else error,
                )

    def _run(self) -> None:
        if self._is_canceled:
            return
        mapped_to = self._map_keys()
        left = deque(self._plan.segments)
        while left:
            self._rewrite(left)
        self._folder.sync()
        self.cleaned_to = mapped_to
        self._is_done = True

    def cancel(self) -> None:
        """The broker is stopping: `run` ends soon. `finish` is still to be called."""
        self._is_canceled = True

    def finish(self) -> None:
        """On the loop's thread: the new segments take the old ones' places, unless those are gone."""
        for _ in self.finishing():
            pass

    def finishing(self) -> Iterator[None]:
        """`finish` in steps, one new segment in each. The same iterator each time: a stop cancels the rest of it."""
        if self._steps is None:
            self._steps = self._finish()
        return self._steps

    def _finish(self) -> Iterator[None]:
        try:
            while self._is_usable():
                if not self._outputs:
                    self.log.next_horizon_ms = self._next_horizon_ms
                    return
                if not self._swap_in():
                    logger.warning(
                        "%s is not compacted: the disk is full. It is tried again later.", self.log.name
                    )
                    break
                if self._outputs:
                    yield
            self._abandon()
        finally:
            self._folder.close()

    def _is_usable(self) -> bool:
        current = set(map(id, self.log.segments))
        next_ones = self._outputs[0][0] if self._outputs else ()
        is_current = all(id(segment) in current for segment in next_ones)
        return self._is_done and is_current and not self._is_canceled and not self.log.is_deleted

    def _swap_in(self) -> bool:
        """The first of the outputs. False if a full disk refuses it: it and those after it stay as they are."""
        if not self.log.replace_segments(*self._outputs[0], without=self._dropped_markers):
            return False
        self._outputs.pop(0)
        return True

    def _abandon(self) -> None:
        """Leaves nothing behind that a later start could take for unfinished work, and the log to the next pass."""
        self.cleaned_to = self._plan.dirty_from
        for _, new, end_offset in self._outputs:
            for suffix in (MERGED, SWAP):  # in this order: a start must not take the swap for done
                self._folder.remove(range_name(new.base_offset, end_offset, suffix))
        for draft in self._drafts:
            self._folder.remove(draft)
        if not self.log.is_deleted:
            self.log.files.note_written()

    def _map_keys(self) -> int:
        """Learns the last offset of each key; returns the offset up to which that is known."""
        for segment in self._plan.segments:
            if self._end_of[segment.base_offset] <= self._plan.dirty_from:
                continue
            for header, batch in self._batches(segment):
                if header.last_offset < self._plan.dirty_from or header.is_control:
                    continue
                if not header.record_count or self._aborted.holds(header):
                    continue
                if len(self._latest) + header.record_count > self._keys_max and self._latest:
                    return header.base_offset
                for record in read_records(batch):
                    if record.key is not None:
                        self._latest[_short(record.key)] = record.offset
        return self._plan.end_offset

    def _rewrite(self, left: deque[Segment]) -> None:
        """Takes segments from the left for as long as they fit into one new file."""
        first = left[0]
        draft = file_name(first.base_offset, LOG) + CLEANED
        new = self.log.files.new_segment(first.base_offset, created_ms=first.created_ms)
        group: list[Segment] = []
        self._drafts.append(draft)
        file = self._folder.open(draft, create=True)
        try:
            file.truncate(0)
            while left and len(group) < SOURCES_MAX and (not group or self._fits(new, left[0])):
                self._copy(left[0], new, file)
                group.append(left.popleft())
            file.sync()
        finally:
            file.close()
        end_offset = self._end_of[group[-1].base_offset]
        self._outputs.append((group, new, end_offset))
        self._folder.rename(draft, range_name(first.base_offset, end_offset, SWAP))
        self._folder.open(range_name(first.base_offset, end_offset, MERGED), create=True).close()

    def _fits(self, new: Segment, segment: Segment) -> bool:
        offsets = self._end_of[segment.base_offset] - new.base_offset
        return new.size + segment.size <= self._config.segment_bytes and offsets <= RELATIVE_OFFSET_MAX

    def _copy(self, segment: Segment, new: Segment, file: File) -> None:
        """What stays of one segment, to the end of the new one."""
        pending = bytearray()
        for header, batch in self._batches(segment):
            kept = self._kept(header, batch)
            if not kept:
                continue
            header = read_header(kept)
            interval = self._config.index_interval_bytes
            new.note(new.size, header.size, header.last_offset, header.max_timestamp, interval)
            new.size += len(kept)
            pending += kept
            if len(pending) >= _CHUNK:
                file.write(new.size - len(pending), pending)
                pending.clear()
        if pending:
            file.write(new.size - len(pending), pending)

    def _kept(self, header: BatchHeader, batch: bytes) -> bytes:
        """What stays of a batch; nothing, if none of it does."""
        kept = self._kept_marker(header, batch) if header.is_control else self._kept_data(header, batch)
        if kept:
            return kept
        is_last = header.last_offset == self._plan.end_offset - 1
        if is_last or self._last_of_producer.get(header.producer_id) == header.last_offset:
            # Without its records it must not look like the beginning of a transaction.
            return empty_batch(header._replace(attributes=header.attributes & ~TRANSACTIONAL))
        return b""

    def _kept_data(self, header: BatchHeader, batch: bytes) -> bytes:
        if not header.record_count or self._aborted.holds(header):
            return b""
        records = read_records(batch)
        horizon_ms = header.delete_horizon_ms
        is_past_horizon = horizon_ms is not None and self._now_ms >= horizon_ms
        kept = {
            record.offset
            for record in records
            if self._is_latest(record) and (record.value is not None or not is_past_horizon)
        }
        if not kept:
            return b""
        if header.is_transactional:
            self._has_kept_records.add(header.producer_id)
        has_tombstone = any(record.value is None and record.offset in kept for record in records)
        if has_tombstone and horizon_ms is None:
            return keep_records(
                batch, lambda record: record.offset in kept, delete_horizon_ms=self._horizon(None)
            )
        if has_tombstone:
            self._horizon(horizon_ms)
        if len(kept) == len(records):
            return batch
        return keep_records(batch, lambda record: record.offset in kept)

    def _kept_marker(self, header: BatchHeader, batch: bytes) -> bytes:
        if header.producer_id in self._has_kept_records:
            self._has_kept_records.discard(header.producer_id)
            return batch
        horizon_ms = header.delete_horizon_ms
        if not header.record_count or (horizon_ms is not None and self._now_ms >= horizon_ms):
            self._dropped_markers.add(header.last_offset)
            return b""
        if horizon_ms is not None:
            self._horizon(horizon_ms)
            return batch
        return keep_records(batch, lambda record: True, delete_horizon_ms=self._horizon(None))

    def _horizon(self, known_ms: int | None) -> int:
        horizon_ms = self._now_ms + self._config.delete_retention_ms if known_ms is None else known_ms
        self._next_horizon_ms = min(horizon_ms, self._next_horizon_ms or horizon_ms)
        return horizon_ms

    def _is_latest(self, record: Record) -> bool:
        # A record without a key is of the time before the topic was compacted; there is no key to keep it for.
        return record.key is not None and self._latest.get(_short(record.key), -1) <= record.offset

    def _batches(self, segment: Segment) -> Iterator[tuple[BatchHeader, bytes]]:
        """Through a file of our own: the segment's belongs to the loop's thread.

        Each is checked: a batch that is written anew gets a new checksum, which must not vouch for damage. Offsets are
        outside the checksum.
        """
        next_offset, end_offset = segment.base_offset, self._end_of[segment.base_offset]
        file = self._folder.open(file_name(segment.base_offset, LOG))
        try:
            position = 0
            while position < segment.size:
                if self._is_canceled:
                    raise _Canceled
                chunk = file.read(position, min(_CHUNK, segment.size - position))
                if len(chunk) < HEADER_SIZE:
                    raise segment.damaged(position, "the file ends within a batch")
                size = read_header(chunk).size
                if size > len(chunk):
                    chunk = file.read(position, min(size, segment.size - position))
                at = 0
                while len(chunk) - at >= HEADER_SIZE:
                    header = read_header(chunk, at)
                    if header.size < HEADER_SIZE or position + at + header.size > segment.size:
                        raise segment.damaged(position + at, "not a record batch")
                    if at + header.size > len(chunk):
                        break
                    if not is_intact(chunk, at, header):
                        raise segment.damaged(position + at, "a batch does not match its checksum")
                    if header.base_offset < next_offset or header.last_offset >= end_offset:
                        raise segment.damaged(position + at, f"a batch of offset {header.base_offset}")
                    next_offset = header.next_offset
                    yield header, chunk[at : at + header.size]
                    at += header.size
                position += at
        finally:
            file.close()


class _Canceled(Exception):
    """Not an error: see `Compaction.cancel`."""


class _AbortedRanges:
    """Which batches belong to aborted transactions."""

    def __init__(self, aborted: list[AbortedTransaction]) -> None:
        self._by_producer: dict[int, list[AbortedTransaction]] = {}
        for entry in aborted:
            self._by_producer.setdefault(entry.producer_id, []).append(entry)

    def holds(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.producer_id not in self._by_producer:
            return False
        entries = self._by_producer[header.producer_id]
        at = bisect_right(entries, header.base_offset, key=lambda entry: entry.first_offset) - 1
        return at >= 0 and header.base_offset <= entries[at].last_offset


def _short(key: bytes) -> bytes:
    """Long keys by their digest; a short one is never as long as a digest."""
    return key if len(key) < _DIGEST_SIZE else hashlib.blake2b(key, digest_size=_DIGEST_SIZE).digest()
