"""Opening a log: at once after a clean stop, by scanning what may be torn after any other end.

Theory of operation. Segments below the recovery point are trusted (see `trust`) and taken as they are. From the
segment that starts there on, every batch is checked. The first bytes that are
no batch end the log, if nothing follows them: a torn tail, which is cut. If batches follow in the same segment, there
are two cases. Where sectors of the file were never written (they are zeros), power was lost while the system wrote
the unsynced tail back out of order: that is a torn tail, too. Otherwise something that was written is damaged: the
bytes stay, and the log refuses to serve from there on. What is cut with batches in it, and segments after a cut,
were never synced (a log's recovery point is recorded before anything in a new segment is acknowledged), so nobody
was promised them; they are set aside under another name, not deleted.

Segments before the start offset are removed in any order, once what follows them is synced: where one of them is
missing and an earlier one is not, the scan goes on after the hole.

Producers and open transactions come from the snapshot at the recovery point and the batch headers after it. Those of
later segments are made again as the scan passes, so that what the next sync makes trusted is complete.
"""

import contextlib
import logging
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from headrace.log.disk import Disk, sync_file
from headrace.log.epochs import LeaderEpochs
from headrace.log.errors import REFUSALS, Damage
from headrace.log.index import AbortedTransaction, decode_aborted
from headrace.log.layout import (
    CLEANED,
    DELETED,
    DRAFT,
    INDEXES,
    LEADER_EPOCHS,
    LOG,
    MERGED,
    SNAPSHOT,
    SWAP,
    TRANSACTION_INDEX,
    Unreadable,
    file_name,
    parse_epochs,
    parse_file_name,
    parse_range_name,
    range_name,
)
from headrace.log.partition_log import RELATIVE_OFFSET_MAX, PartitionLog
from headrace.log.producers import decode_snapshot, encode_snapshot
from headrace.log.segment import Segment
from headrace.log.trust import UNKNOWN
from headrace.wire.batches import (
    FRAME_SIZE,
    HEADER_SIZE,
    LENGTH_MIN,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    is_intact,
    read_header,
)
from headrace.wire.records import read_marker

logger = logging.getLogger("headrace.log")

UNSYNCED = ".unsynced"
"""Suffix of a segment that was set aside."""
SCAN_BYTES = 4 * 1024 * 1024
MEGABYTE = 1_000_000
PROGRESS_BYTES = 10 * MEGABYTE
"""After so many it says how far it has come."""
SECTOR = 512
"""The least that a disk writes as a whole."""
OFFSET_SIZE = 8
"""Of a batch's first field; its length follows and is never zero."""


def summary_of(log: PartitionLog) -> dict[str, Any]:
    """All that the next start needs to know about a log that was closed cleanly."""
    return {
        "topic_id": log.topic_id.hex(),
        "start_offset": log.start_offset,
        "end_offset": log.end_offset,
        "segments": [
            [
                segment.base_offset,
                segment.size,
                segment.first_timestamp,
                segment.max_timestamp,
                segment.max_timestamp_offset,
            ]
            for segment in log.segments
        ],
        "epochs": log.epochs.entries,
        "snapshots": log.files.snapshots,
        "aborted": [list(entry) for entry in log.transactions.aborted],
        "producers": b64encode(encode_snapshot(log.producer_states.entries.values())).decode(),
    }


def open_clean(log: PartitionLog, summary: Mapping[str, Any], *, now_ms: int) -> None:
    """Reads nothing from the disk, unless an earlier version has left the summary: then the producers' snapshot."""
    log.start_offset, log.end_offset = summary["start_offset"], summary["end_offset"]
    log.recovery_point = log.end_offset
    for base_offset, size, first_timestamp, max_timestamp, max_timestamp_offset in summary["segments"]:
        segment = log.files.new_segment(base_offset, created_ms=now_ms, size=size)
        segment.first_timestamp = first_timestamp
        segment.max_timestamp, segment.max_timestamp_offset = max_timestamp, max_timestamp_offset
        log.files.put(segment)
    log.move_start(log.start_offset)
    log.epochs = LeaderEpochs([(epoch, start) for epoch, start in summary["epochs"]])
    log.epochs.is_changed = True  # their file is as old as the last roll
    log.files.snapshots += summary["snapshots"]
    log.transactions.aborted = [AbortedTransaction(*row) for row in summary["aborted"]]
    if "producers" in summary:
        data = b64decode(summary["producers"])
    else:
        data = log.store.disk.read(log.files.snapshot_path(log.end_offset))
    states = decode_snapshot(data, now_ms=now_ms)
    if states is None:
        raise Unreadable("the producer snapshot is incomplete")
    log.producer_states = states
    log.files.adopt(is_synced=True)


def recover(
    log: PartitionLog,
    *,
    recovery_point: int | None,
    start_offset: int,
    now_ms: int,
    may_start_over: bool = True,
) -> None:
    """Opens a log that was not closed cleanly. Without a recovery point (their file is lost) all is scanned.

    A start offset beyond the log's end means that the end was lost; it may be wrong unless `may_start_over`.
    """
    _Recovery(log, recovery_point, now_ms).run(start_offset, may_start_over=may_start_over)


class _Recovery:
    def __init__(self, log: PartitionLog, recovery_point: int | None, now_ms: int) -> None:
        self.log = log
        self.disk = log.store.disk
        self.recovery_point = recovery_point or 0
        # Only trusted segments are compacted, so above the recovery point no offsets may be missing.
        self.may_have_gaps = recovery_point is None
        self.has_gap_in_last = False
        self.now_ms = now_ms
        self.start_offset = 0
        self.later: list[int] = []
        """Snapshots beyond what is trusted, up to the start offset: of use only if the log has to start over."""
        self.last_snapshot = 0

    def run(self, start_offset: int, *, may_start_over: bool) -> None:
        log, bases = self.log, self.log.files.bases
        finish_interrupted_work(self.disk, log.name)
        self._list_files()
        first_scanned = self._first_scanned()
        self._load_epochs(log.segments[:first_scanned])
        self._load_aborted(log.segments[:first_scanned])
        log.end_offset = bases[first_scanned] if bases else max(start_offset, self.recovery_point)
        if may_start_over:  # else it may be another topic's
            self.start_offset = start_offset
        self._put_later_snapshots_by(start_offset)
        snapshot_at = self._load_producers(first_scanned)
        log.files.adopt(is_synced=False)
        self._scan_from(first_scanned, snapshot_at)
        log.epochs.cut_after(log.end_offset)
        if log.segments and start_offset > log.end_offset and not may_start_over:
            logger.error("%s: its start offset %d is another topic's and is ignored", log.name, start_offset)
            start_offset = bases[0]
        log.start_offset = max(bases[0] if bases else log.end_offset, start_offset)
        if log.start_offset > start_offset:  # retention writes it down before it removes anything
            logger.error(
                "%s: offsets %d to %d are gone: their segments were removed",
                log.name,
                start_offset,
                log.start_offset - 1,
            )
        if self.may_have_gaps:
            log.trust.start_over(UNKNOWN)
        if log.start_offset > log.end_offset:
            self._start_over()
        elif self.has_gap_in_last and log.damage is None:
            log.roll(self.now_ms)  # the next start would take the gap for damage
        self._remove_later_snapshots()
        log.move_start(log.start_offset)
        log.recovery_point = min(self.recovery_point, log.end_offset)

    def _first_scanned(self) -> int:
        """The segment that starts at the recovery point. If it was lost, the log goes on there all the same."""
        log = self.log
        if log.segments and log.files.bases[-1] < self.recovery_point:
            logger.error(
                "%s: offsets from %d on had been synced and are gone: the disk lost them, or they were removed",
                log.name,
                self.recovery_point,
            )
            log.files.start_segment(self.recovery_point, self.now_ms)
        return log.files.index_at(self.recovery_point)

    def _list_files(self) -> None:
        log = self.log
        for name in self.disk.list(log.name):
            parsed = parse_file_name(name)
            if parsed is None:
                continue
            offset, suffix = parsed
            if suffix == SNAPSHOT:
                log.files.snapshots.append(offset)
            elif suffix == LOG:
                size = self.disk.size(f"{log.name}/{name}")
                log.files.put(log.files.new_segment(offset, created_ms=self.now_ms, size=size))

    def _load_epochs(self, trusted: Sequence[Segment]) -> None:
        log = self.log
        try:
            log.epochs = LeaderEpochs(parse_epochs(self.disk.read(f"{log.name}/{LEADER_EPOCHS}")))
        except (FileNotFoundError, Unreadable):
            for segment in trusted:
                for _, header in segment.headers():
                    log.epochs.assign(header.leader_epoch, header.base_offset)

    def _load_aborted(self, trusted: Sequence[Segment]) -> None:
        for segment in trusted:
            with contextlib.suppress(FileNotFoundError):
                found = decode_aborted(self.disk.read(segment.path_of(TRANSACTION_INDEX)))
                offsets = range(segment.base_offset, self.log.end_after(segment))
                self.log.transactions.aborted += [entry for entry in found if entry.last_offset in offsets]

    def _put_later_snapshots_by(self, start_offset: int) -> None:
        """They stay on the disk until it is clear that nobody needs them."""
        log = self.log
        self.last_snapshot = max(log.files.snapshots, default=0)
        self.later = [offset for offset in log.files.snapshots if log.end_offset < offset <= start_offset]
        log.files.snapshots[:] = [offset for offset in log.files.snapshots if offset not in self.later]

    def _remove_later_snapshots(self) -> None:
        log = self.log
        for offset in self.later:
            if offset not in log.files.snapshots:
                self.disk.remove(log.files.snapshot_path(offset))
        if self.last_snapshot > log.end_offset:  # other records take these offsets: it must not come back
            self.disk.sync_directory(log.name)

    def _load_producers(self, first_scanned: int) -> int:
        """As they were where the scan begins. Where the snapshot that says so was taken; -1 without one."""
        log = self.log
        from_offset = -1
        for offset in reversed([offset for offset in log.files.snapshots if offset <= log.end_offset]):
            states = decode_snapshot(self.disk.read(log.files.snapshot_path(offset)), now_ms=self.now_ms)
            if states is not None:
                log.producer_states, from_offset = states, offset
                break
        log.files.keep_snapshots([from_offset])  # torn ones, and those of segments that are not trusted
        aborted = list(log.transactions.aborted)
        for segment in log.segments[:first_scanned]:
            if log.end_after(segment) > from_offset:
                for position, header in segment.headers():
                    if header.base_offset >= from_offset:
                        self._replay(segment, position, header)
        log.transactions.aborted = aborted  # the trusted segments' own indexes have said it all
        return from_offset

    def _save_snapshot(self, segment: Segment) -> None:
        log = self.log
        try:
            log.files.note_written(log.files.save_snapshot(log.end_offset, log.producer_states))
        except OSError as error:
            self._distrust(segment, error)
        else:
            log.files.know_snapshot(log.end_offset)

    def _replay(self, segment: Segment, position: int, header: BatchHeader) -> None:
        if header.producer_id < 0:
            return
        states = self.log.producer_states
        if not header.is_control:
            states.replay(header, now_ms=self.now_ms)
            return
        if not header.record_count:
            return  # compaction kept the producer's last header, which ended no transaction by itself
        marker = read_marker(segment.read(position, header.size))
        if marker is None:
            return
        first_offset = states.replay_marker(header, marker.coordinator_epoch, now_ms=self.now_ms)
        if first_offset < 0:
            return
        transactions = self.log.transactions
        transactions.note(first_offset, header.last_offset, synced_to=self.log.recovery_point)
        if not marker.is_commit:
            transactions.note_aborted(
                header.producer_id, first_offset, header.last_offset, first_open=states.first_open_offset()
            )

    def _scan_from(self, first_scanned: int, snapshot_at: int) -> None:
        log = self.log
        for at in range(first_scanned, len(log.segments)):
            segment = log.segments[at]
            is_gap = at > first_scanned and segment.base_offset != log.end_offset and not self.may_have_gaps
            if is_gap and segment.base_offset <= self.start_offset:
                self._pass_over(segment)
                is_gap = False
            if not is_gap:
                log.end_offset = max(log.end_offset, segment.base_offset)
                if log.end_offset != snapshot_at and (at or log.producer_states.entries):
                    self._save_snapshot(segment)
            stopped_at = 0 if is_gap else self._scan(segment)
            if not is_gap and stopped_at == segment.size:
                continue
            follower = None if is_gap else self._follower(at, stopped_at)
            if follower is None:
                self._cut(at if is_gap else at + 1, segment, stopped_at)
            elif follower[0] is segment and was_never_written(
                segment, stopped_at, follower[1], log.end_offset
            ):
                self._set_tail_aside(segment, stopped_at)
                self._cut(at + 1, segment, stopped_at)
            else:
                self._refuse_from(segment, stopped_at, follower)
            break
        for segment in log.segments[first_scanned:]:
            if log.damage is None:
                self._note_recovered(segment)

    def _note_recovered(self, segment: Segment) -> None:
        """It holds bytes that may not have been synced by the process that wrote them."""
        log = self.log
        log.files.note_dirty(segment)
        if segment.is_closed:
            try:
                aborted = log.transactions.save(segment, log.end_after(segment))
                log.files.note_written([*segment.save_indexes(), *aborted])
            except OSError as error:
                self._distrust(segment, error)

    def _distrust(self, segment: Segment, error: OSError) -> None:
        """A full disk has no room for a file that recovery would need to trust this segment: it is checked again."""
        if error.errno not in REFUSALS:
            raise error
        self.log.trust.stop_at(segment.base_offset)

    def _pass_over(self, segment: Segment) -> None:
        """What lay before this segment was removed for good. The snapshot there was synced before that."""
        log, offset = self.log, segment.base_offset
        if offset in self.later:
            path = log.files.snapshot_path(offset)
            states = decode_snapshot(self.disk.read(path), now_ms=self.now_ms)
            log.producer_states = states or log.producer_states
        log.end_offset = offset

    def _follower(self, at: int, position: int) -> tuple[Segment, int] | None:
        """The first good batch after bytes that are none. Segments that were never synced do not count."""
        candidates = [(self.log.segments[at], position)]
        if self.may_have_gaps:  # nobody knows what was synced
            candidates += [(segment, 0) for segment in self.log.segments[at + 1 :]]
        for segment, start in candidates:
            found = next_valid(segment, start, self.log.end_offset)
            if found is not None:
                return segment, found
        return None

    def _scan(self, segment: Segment) -> int:
        """Checks every batch and takes it into account; where the last good one ends."""
        log = self.log
        segment.reset_notes()
        self.has_gap_in_last = False
        end = noted = 0
        for position, header in valid_batches(segment, 0, log.end_offset):
            is_next = header.base_offset == log.end_offset or self.may_have_gaps
            if not is_next or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
                break  # base offsets are outside the checksum
            self.has_gap_in_last |= header.base_offset != log.end_offset
            self._replay(segment, position, header)
            if header.leader_epoch <= log.store.leader_epoch:
                log.epochs.assign(header.leader_epoch, header.base_offset)
            segment.note(
                position,
                header.size,
                header.last_offset,
                header.max_timestamp,
                log.config.index_interval_bytes,
            )
            log.end_offset = header.next_offset
            end = position + header.size
            if end - noted >= PROGRESS_BYTES:
                noted = end
                log.store.note_progress(
                    f"checking {segment.path}", end // MEGABYTE, "MB", of=segment.size // MEGABYTE
                )
        return end

    def _cut(self, first_dropped: int, segment: Segment, position: int) -> None:
        log = self.log
        cut = 0
        if log.segments.index(segment) < first_dropped:
            cut = segment.size - position
            segment.truncate(position)
        for dropped in log.files.cut(first_dropped):
            cut += dropped.size
            dropped.close()
            if dropped.size:
                self.disk.rename(dropped.path, dropped.path + UNSYNCED)
            dropped.remove_files()
        log.files.keep_snapshots(offset for offset in log.files.snapshots if offset <= log.end_offset)
        if cut:
            # For good: after the next power cut what was cut must not come back behind what takes its place.
            log.segments[-1].sync()
            self.disk.sync_directory(log.name)
            logger.warning(
                "%s: the tail was torn: %d bytes cut after offset %d", log.name, cut, log.end_offset - 1
            )

    def _set_tail_aside(self, segment: Segment, position: int) -> None:
        """A copy of what is cut, as far as there is room for it."""
        path = f"{segment.path}.{position}{UNSYNCED}"
        try:
            copy = self.disk.open(path, create=True)
            try:
                for start in range(position, segment.size, SCAN_BYTES):
                    size = min(SCAN_BYTES, segment.size - start)
                    copy.write(start - position, segment.file().read(start, size))
            finally:
                copy.close()
        except OSError as error:
            logger.warning("%s: no copy of the torn tail is kept: %s", self.log.name, error)
            self.disk.remove(path)

    def _refuse_from(self, segment: Segment, position: int, follower: tuple[Segment, int]) -> None:
        log = self.log
        next_segment, next_position = follower
        reason = f"no record batch here, and one follows in {next_segment.path} at byte {next_position}"
        log.damage = Damage(log.end_offset, segment.path, position, reason)
        segment.is_closed = False  # so that its index, which ends before the damage, stays in memory
        for later in log.segments[log.segments.index(next_segment) :]:
            start = next_position if later is next_segment else 0
            for _, header in valid_batches(later, start, log.end_offset):
                log.end_offset = header.next_offset
        logger.error(
            "%s is damaged at offset %d (%s, byte %d: %s); nothing from there on is served",
            log.name,
            *log.damage,
        )

    def _start_over(self) -> None:
        """Records below the start offset are gone anyway, and the log's end had not reached the disk.

        Where a power cut has undone a part of this, the snapshot that it had saved knows more than what is left.
        """
        log = self.log
        written: list[str] = []
        for offset in reversed([offset for offset in self.later if offset > log.end_offset]):
            path = log.files.snapshot_path(offset)
            states = decode_snapshot(self.disk.read(path), now_ms=self.now_ms)
            if states is not None:
                log.producer_states = states
                written = [path] if offset == log.start_offset else []
                break
        log.end_offset = log.start_offset
        written = written or log.files.save_snapshot(log.end_offset, log.producer_states)
        for path in written:
            sync_file(self.disk, path)  # nothing else will know the producers when the segments are gone
        self.disk.sync_directory(log.name)
        for segment in log.files.cut(0):
            segment.remove_files()
        log.files.start_segment(log.start_offset, self.now_ms, written)
        log.files.know_snapshot(log.start_offset)


def finish_interrupted_work(disk: Disk, directory: str) -> None:
    """What a compaction had begun: a whole segment takes the place of its sources, all else is removed."""
    names = disk.list(directory)
    for name in names:
        if name.endswith((DELETED, CLEANED, DRAFT)):
            disk.remove(f"{directory}/{name}")
    for base_offset, end_offset in sorted({found for found in map(parse_range_name, names) if found}):
        for name in replaced_files(names, base_offset, end_offset):
            disk.remove(f"{directory}/{name}")
        swap = range_name(base_offset, end_offset, SWAP)
        if swap in names:
            disk.rename(f"{directory}/{swap}", f"{directory}/{file_name(base_offset, LOG)}")
        disk.sync_directory(directory)
        disk.remove(f"{directory}/{range_name(base_offset, end_offset, MERGED)}")


def replaced_files(names: Iterable[str], base_offset: int, end_offset: int) -> Iterator[str]:
    """Of the segments that a compacted one stands for: all but the one whose name it takes."""
    for name in names:
        base, suffix = parse_file_name(name) or (-1, "")
        if suffix in (LOG, *INDEXES) and base_offset + (suffix == LOG) <= base < end_offset:
            yield name


def valid_batches(segment: Segment, position: int, next_offset: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each good batch, up to the first that is not."""
    end = segment.size
    while position < end:
        chunk = segment.file().read(position, min(SCAN_BYTES, end - position))
        if len(chunk) >= HEADER_SIZE:
            size = read_header(chunk).size
            if len(chunk) < size <= end - position:  # one batch larger than a chunk
                chunk = segment.file().read(position, size)
        at = 0
        while (header := _valid_header(chunk, at, next_offset)) is not None:
            yield position + at, header
            next_offset = header.next_offset
            at += header.size
        if not at:
            return
        position += at


def _valid_header(chunk: bytes, at: int, next_offset: int) -> BatchHeader | None:
    """The batch at this place, if it is whole, intact and not before `next_offset`."""
    if len(chunk) - at < HEADER_SIZE or chunk[at + MAGIC_AT] != MAGIC:
        return None
    header = read_header(chunk, at)
    if header.length < LENGTH_MIN or header.size > len(chunk) - at:
        return None
    if header.base_offset < next_offset or header.last_offset_delta < 0 or not is_intact(chunk, at, header):
        return None
    return header


def was_never_written(segment: Segment, position: int, follower: int, offset: int) -> bool:
    """Whether the bytes from `position`, where the batch of `offset` should start, to the next good batch have a hole.

    A hole is a sector of zeros, or zeros up to the end of the first sector where a batch cannot have them.
    """
    file = segment.file()
    sector_end = (position // SECTOR + 1) * SECTOR
    first = file.read(position, min(sector_end, follower) - position)
    if not any(first) and (len(first) > OFFSET_SIZE + 3 or any(offset.to_bytes(OFFSET_SIZE)[: len(first)])):
        return True
    empty = bytes(SECTOR)
    end = -(-follower // SECTOR) * SECTOR  # a batch may start with the zeros at the end of a hole
    for start in range(sector_end, end, SCAN_BYTES):
        chunk = file.read(start, min(SCAN_BYTES, end - start))
        for at in range(0, len(chunk) - SECTOR + 1, SECTOR):
            if chunk[at : at + SECTOR] == empty:
                return True
    return False


def next_valid(segment: Segment, position: int, next_offset: int) -> int | None:
    """Where the first good batch after `position` starts; None if only rubbish follows."""
    file = segment.file()
    for start in range(position + 1, segment.size, SCAN_BYTES):
        window = file.read(start, SCAN_BYTES + HEADER_SIZE)
        at = window.find(MAGIC, MAGIC_AT)
        while at >= 0 and at - MAGIC_AT + HEADER_SIZE <= len(window):
            header = read_header(window, at - MAGIC_AT)
            here = start + at - MAGIC_AT
            # Offsets a little ahead only: this spares a checksum for nearly every byte that happens to be a 2.
            is_likely = next_offset <= header.base_offset <= next_offset + RELATIVE_OFFSET_MAX
            if is_likely and LENGTH_MIN <= header.length <= segment.size - here - FRAME_SIZE:
                batch = file.read(here, header.size)
                if _valid_header(batch, 0, next_offset) is not None:
                    return here
            at = window.find(MAGIC, at + 1)
    return None
