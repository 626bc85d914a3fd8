"""Looks through a data directory that no broker uses: is everything in it as a broker has left it?

Theory of operation. The batches are the truth: framing, checksums and offsets of every one are checked. Everything
beside them (indexes, aborted transactions, snapshots, checkpoints) is compared with them; what is wrong there costs
nothing, because a start without it makes it again. After an unclean end the tail of a log may be torn and the files
beside it unfinished: the next start deals with that, so it is noted and is no damage.
"""

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from headrace.base.properties import parse_properties
from headrace.log.disk import OsDisk
from headrace.log.files import read_topic_id
from headrace.log.index import OffsetIndex, TimeIndex, decode_aborted
from headrace.log.layout import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    FORMAT_VERSION,
    INCOMPLETE,
    INDEX,
    LEADER_EPOCHS,
    LOG,
    META,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SNAPSHOT,
    START_OFFSETS,
    SWAP,
    TIME_INDEX,
    TRANSACTION_INDEX,
    Key,
    Unreadable,
    directory_name,
    file_name,
    is_by_name,
    parse_checkpoint,
    parse_directory_name,
    parse_epochs,
    parse_file_name,
    parse_offsets,
    parse_range_name,
    range_name,
)
from headrace.log.producers import decode_snapshot
from headrace.log.recovery import next_valid, replaced_files, valid_batches, was_never_written
from headrace.log.segment import OpenFiles, Segment
from headrace.wire.batches import BatchHeader, crc32c_of, read_header
from headrace.wire.errors import KafkaError
from headrace.wire.records import read_marker

METADATA = "metadata.sqlite"
ABORTED_SIZE = 34
LOST_WITH = {
    START_OFFSETS: "; without it, records that were deleted from segments that are still there can be read again",
    RECOVERY_POINTS: "; without it, the next start checks all segments",
}


class Cure(Enum):
    """What a repair does about a finding."""

    NONE = "nothing: the next start deals with it"
    CUT = "the damaged bytes are taken out; an empty batch keeps their offsets"
    STAND_IN = "an empty batch keeps its offsets; a backup may still have the file"
    SET_ASIDE = "the file is set aside; the next start makes it again"
    NAME_OWNER = "the file is written again from the metadata"
    BACKUP = "a repair cannot help: bring it back from a backup"


class Cut(NamedTuple):
    """Bytes of a segment that are no batches, and the offsets that were in them."""

    start: int
    end: int
    first_offset: int
    next_offset: int


@dataclass(frozen=True, slots=True)
class Finding:
    path: str
    what: str
    cure: Cure
    partition: str | None = None
    cut: Cut | None = None

    @property
    def is_damage(self) -> bool:
        return self.cure is not Cure.NONE


@dataclass(slots=True)
class Report:
    directory: str
    was_clean: bool = False
    has_metadata: bool = False
    partitions: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    size: int = 0
    findings: list[Finding] = field(default_factory=list)
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    """Of each partition's directory, as the metadata has it."""

    @property
    def damages(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_damage]


class NoDataDirectory(Exception):
    """There is no data directory of a broker at that place. Name the one that `headrace serve --data` was given."""


def check(disk: OsDisk) -> Report:
    """The disk must be locked by the caller. NoDataDirectory where nothing looks like one."""
    return _Check(disk).run()


class _Check:
    def __init__(self, disk: OsDisk) -> None:
        self.disk = disk
        self.report = Report(disk.name)
        self.summaries: Mapping[str, Any] = {}
        self.ends: dict[str, int] = {}
        self.points: dict[Key, int] | None = None
        self.starts: dict[Key, int] = {}
        self.compacted: set[Key] = set()
        self.known: set[bytes] = set()
        """Ids of topics, deleted ones too. A directory can have no other: an id that nobody knows is damaged."""

    def run(self) -> Report:
        names = set(self.disk.list())
        if METADATA not in names and META not in names:
            raise NoDataDirectory(
                f"{self.disk.name} is not a data directory of a broker: it has neither {META} nor {METADATA}."
            )
        self._check_meta(names)
        self._check_clean_shutdown(names)
        self._check_checkpoints(names)
        topics = self._check_metadata(names)
        owners = {
            directory_name(name, index): (id, index) for name, id, total in topics for index in range(total)
        }
        self.report.topic_ids = {directory: key[0] for directory, key in owners.items()}
        for name in sorted(names):
            if parse_directory_name(name) is not None and (Path(self.disk.name) / name).is_dir():
                if name in owners:
                    self._check_partition(name, owners[name])
                elif topics:
                    self._note(name, "a directory of no topic; the next start renames it", Cure.NONE)
        for name in sorted(set(self.summaries) & set(owners) - names):
            what = "the directory is missing, and held records when the broker stopped"
            self._note(f"{name}/{PARTITION_METADATA}", what, Cure.NAME_OWNER, name)
            _PartitionCheck(self, name, owners[name], []).run([])
        return self.report

    def _note(
        self, path: str, what: str, cure: Cure, partition: str | None = None, cut: Cut | None = None
    ) -> None:
        self.report.findings.append(Finding(path, what, cure, partition, cut))

    def _check_meta(self, names: set[str]) -> None:
        if META not in names:
            self._note(META, "missing", Cure.NONE)
            return
        data = self.disk.read(META)
        if data == INCOMPLETE:
            raise NoDataDirectory(
                f"{self.disk.name} is an incomplete backup; remove it, and use a complete one"
            )
        try:
            properties = parse_properties(data.decode())
            version = int(properties["headrace.format"])
            int(properties["leader.epoch"])
        except (KeyError, ValueError) as error:
            self._note(META, f"cannot be read: {error}", Cure.SET_ASIDE)
            return
        if version > FORMAT_VERSION:
            raise NoDataDirectory(
                f"{self.disk.name} has format {version}; this version of Headrace reads up to {FORMAT_VERSION}. "
                "Use the newer version."
            )

    def _check_clean_shutdown(self, names: set[str]) -> None:
        if CLEAN_SHUTDOWN not in names:
            return
        crc, _, content = self.disk.read(CLEAN_SHUTDOWN).partition(b"\n")
        if crc != f"{crc32c_of(content):08x}".encode():
            self._note(CLEAN_SHUTDOWN, "its checksum is wrong", Cure.SET_ASIDE)
            return
        self.report.was_clean = True
        self.summaries = json.loads(content)["logs"]

    def _check_checkpoints(self, names: set[str]) -> None:
        for name in (RECOVERY_POINTS, START_OFFSETS, CLEANER_OFFSETS):
            if name not in names:
                continue
            data = self.disk.read(name)
            try:
                if is_by_name(data):
                    parse_offsets(data)
                    continue
                offsets = parse_checkpoint(data)
            except Unreadable as error:
                self._note(name, f"cannot be read: {error}{LOST_WITH.get(name, '')}", Cure.SET_ASIDE)
                continue
            if name == RECOVERY_POINTS:
                self.points = offsets
            if name == START_OFFSETS:
                self.starts = offsets
            if name == CLEANER_OFFSETS:
                self.compacted = set(offsets)

    def _check_metadata(self, names: set[str]) -> list[tuple[str, bytes, int]]:
        if METADATA not in names:
            self._note(METADATA, "missing: the topics are unknown", Cure.BACKUP)
            return []
        try:
            with self._metadata_copy(names) as path, closing(sqlite3.connect(path)) as database:
                problems = [str(row[0]) for row in database.execute("PRAGMA integrity_check(5)")]
                topics = database.execute("SELECT name, id, partitions FROM topics").fetchall()
                deleted = database.execute("SELECT id FROM deleted_topics").fetchall()
                database.execute("SELECT count(*) FROM configs, facts").fetchone()
                compacted = database.execute(
                    "SELECT resource FROM configs WHERE name = 'cleanup.policy' AND value LIKE '%compact%'"
                ).fetchall()
        except sqlite3.DatabaseError as error:
            self._note(METADATA, f"cannot be read: {error}", Cure.BACKUP)
            return []
        if problems != ["ok"]:
            self._note(METADATA, f"damaged: {'; '.join(problems)}", Cure.BACKUP)
        self.report.has_metadata = True
        self.known = {id for _, id, _ in topics} | {id for (id,) in deleted}
        policies = {name for (name,) in compacted}
        self.compacted |= {
            (id, index) for name, id, total in topics if name in policies for index in range(total)
        }
        return [(name, id, total) for name, id, total in topics]

    @contextmanager
    def _metadata_copy(self, names: set[str]) -> Iterator[Path]:
        """SQLite makes files beside a database that it only reads, which a check must not and may be unable to do."""
        with tempfile.TemporaryDirectory() as folder:
            for name in (METADATA, f"{METADATA}-wal"):
                if name in names:
                    shutil.copyfile(Path(self.disk.name) / name, Path(folder) / name)
            yield Path(folder) / METADATA

    def _check_partition(self, directory: str, key: Key) -> None:
        owner = read_topic_id(self.disk, directory)
        files = []
        names = self.disk.list(directory)
        replaced: set[str] = set()
        for found in map(parse_range_name, names):
            if found is not None and range_name(*found, SWAP) not in names:
                replaced.update(replaced_files(names, *found))
        for name in names:
            parsed = parse_file_name(name)
            if name in replaced:
                what = "a compacted segment has replaced it; the next start removes it"
                self._note(f"{directory}/{name}", what, Cure.NONE, directory)
            elif parsed is not None and (Path(self.disk.name) / directory / name).is_dir():
                self._note(
                    f"{directory}/{name}", "a directory with the name of a file", Cure.SET_ASIDE, directory
                )
            else:
                files.append((name, parsed))
        bases = sorted(parsed[0] for _, parsed in files if parsed is not None and parsed[1] == LOG)
        is_known = owner in self.known
        if (owner is None or not is_known) and bases:
            path = f"{directory}/{PARTITION_METADATA}"
            self._note(path, "does not say whose records these are", Cure.NAME_OWNER, directory)
        elif is_known and owner != key[0]:
            self._note(directory, "holds records of another topic; the next start renames it", Cure.NONE)
            return
        self.report.partitions += 1
        _PartitionCheck(self, directory, key, bases).run([name for name, _ in files])


class _PartitionCheck:
    def __init__(self, whole: _Check, directory: str, key: Key, bases: list[int]) -> None:
        self.whole = whole
        self.disk = whole.disk
        self.report = whole.report
        self.directory = directory
        self.bases = bases
        self.is_compacted = key in whole.compacted
        self.may_have_gaps = self.is_compacted
        """Where the walk is: only what is trusted is ever compacted."""
        self.summary = whole.summaries.get(directory)
        self.sizes = {row[0]: row[1] for row in self.summary["segments"]} if self.summary is not None else {}
        self.trusted_to = whole.points.get(key, 0) if whole.points is not None else 0
        self.start_offset = whole.starts.get(key, 0)
        self.end = min([*bases, *self.sizes], default=0)
        self.previous = ("", 0)
        """The segment before the one that is looked at, and its size: a gap between the two is filled there."""
        self.open: dict[int, int] = {}
        self.epochs: list[tuple[int, int]] = []

    def run(self, names: list[str]) -> None:
        present = set(self.bases)
        for base in sorted(present | set(self.sizes)):
            if base in present:
                self._check_segment(base, is_last=base == self.bases[-1])
            else:
                self._note_missing(base)
        self._check_epochs()
        for name in names:
            parsed = parse_file_name(name)
            if parsed is not None and parsed[1] == SNAPSHOT:
                path = f"{self.directory}/{name}"
                if decode_snapshot(self.disk.read(path), now_ms=0) is None:
                    self._note_side_file(path, "torn", is_trusted=parsed[0] <= self.trusted_to)

    def _note(self, path: str, what: str, cure: Cure, cut: Cut | None = None) -> None:
        self.whole._note(path, what, cure, self.directory, cut)

    def _note_side_file(self, path: str, what: str, *, is_trusted: bool) -> None:
        """What a start after an unclean end makes again anyway is no damage."""
        is_damage = is_trusted or self.report.was_clean
        self._note(path, what, Cure.SET_ASIDE if is_damage else Cure.NONE)

    def _lost(self, cut: Cut) -> str:
        """With a transaction's marker its outcome is lost, and records outside the damage with it."""
        if cut.next_offset == cut.first_offset:
            return "no offsets are lost"
        lost = f"offsets {cut.first_offset} to {cut.next_offset - 1} are lost"
        if self.open:
            first = min(self.open.values())
            lost += f"; a transaction that is open there (from offset {first} on) may be aborted instead of committed"
        return lost

    def _note_missing(self, base: int) -> None:
        """After a clean stop it is known what there was."""
        assert self.summary is not None
        after = [other for other in {*self.bases, *self.sizes} if other > base]
        cut = Cut(0, 0, base, min(after, default=max(base, int(self.summary["end_offset"]))))
        path = f"{self.directory}/{file_name(base, LOG)}"
        self._note(
            path, f"missing, and was there when the broker stopped; {self._lost(cut)}", Cure.STAND_IN, cut
        )
        self.end = cut.next_offset
        self.previous = (path, 0)

    def _check_segment(self, base: int, *, is_last: bool) -> None:
        path = f"{self.directory}/{file_name(base, LOG)}"
        size = self.disk.size(path)
        segment = Segment(self.disk, self.directory, base, open_files=OpenFiles(), created_ms=0, size=size)
        self.report.segments += 1
        self.report.size += size
        if base > self.end and base > self.start_offset and not self.may_have_gaps:
            before, before_size = self.previous
            what = f"offsets {self.end} to {base - 1} after it are missing"
            self._note(before, what, Cure.STAND_IN, Cut(before_size, before_size, self.end, base))
        elif base < self.end:
            self._note(path, f"its first offset is not above {self.end - 1}", Cure.BACKUP)
            return
        self.end = max(self.end, base)
        self.previous = (path, size)
        is_trusted = self.whole.points is None or base < self.trusted_to
        self.may_have_gaps = self.is_compacted and is_trusted
        batches: dict[int, BatchHeader] = {}
        aborted: list[tuple[int, int]] = []
        position = 0
        try:
            while position < size:
                position = self._walk(segment, position, batches, aborted)
                if position < size:
                    position = self._skip(segment, position, is_last=is_last)
            self._check_end(segment, is_last=is_last)
            self._check_indexes(segment, batches)
            self._check_aborted(segment, batches, aborted)
        finally:
            segment.close()

    def _walk(
        self,
        segment: Segment,
        position: int,
        batches: dict[int, BatchHeader],
        aborted: list[tuple[int, int]],
    ) -> int:
        """Over good batches; where they end."""
        for at, header in valid_batches(segment, position, self.end):
            if header.base_offset != self.end and not self.may_have_gaps:
                return at
            batches[at] = header
            self.report.batches += 1
            self.report.records += 0 if header.is_control else header.record_count
            self._follow(segment, at, header, aborted)
            if not self.epochs or header.leader_epoch != self.epochs[-1][0]:
                self.epochs.append((header.leader_epoch, header.base_offset))
            self.end = header.next_offset
            position = at + header.size
        return position

    def _follow(self, segment: Segment, at: int, header: BatchHeader, aborted: list[tuple[int, int]]) -> None:
        if not header.is_transactional or not header.record_count:
            return
        if not header.is_control:
            self.open.setdefault(header.producer_id, header.base_offset)
            return
        try:
            marker = read_marker(segment.read(at, header.size))
        except KafkaError:
            return
        began = self.open.pop(header.producer_id, None)
        if marker is not None and not marker.is_commit and began is not None:
            aborted.append((header.producer_id, header.last_offset))

    def _skip(self, segment: Segment, position: int, *, is_last: bool) -> int:
        """Over bytes that are no batch; where the next good one starts."""
        follower = next_valid(segment, position, self.end)
        is_trusted = segment.base_offset < self.trusted_to or self.report.was_clean
        if follower is None and is_last and not is_trusted:
            lost = segment.size - position
            self._note(segment.path, f"the tail is torn: {lost} bytes after offset {self.end - 1}", Cure.NONE)
            return segment.size
        if (
            follower is not None
            and not is_trusted
            and was_never_written(segment, position, follower, self.end)
        ):
            self._note(segment.path, f"the tail has a hole at byte {position}", Cure.NONE)
            return segment.size
        stop = segment.size if follower is None else follower
        next_offset = self._next_offset(segment, follower)
        cut = Cut(position, stop, self.end, max(next_offset, self.end))
        what = f"no record batch at byte {position}; {self._lost(cut)}"
        self._note(segment.path, what, Cure.CUT, cut)
        self.end = max(next_offset, self.end)
        return stop

    def _next_offset(self, segment: Segment, follower: int | None) -> int:
        """The first offset after a damaged place that is known to be there."""
        if follower is not None:
            return read_header(segment.read(follower, 61)).base_offset
        after = [base for base in {*self.bases, *self.sizes} if base > segment.base_offset]
        if after:
            return int(min(after))
        if self.summary is not None:
            return max(int(self.summary["end_offset"]), self.end)
        return self.end

    def _check_end(self, segment: Segment, *, is_last: bool) -> None:
        """A file that is cut between two batches looks whole: the next segment, or the clean stop, tells."""
        expected = self.sizes.get(segment.base_offset)
        has_cut = any(one.path == segment.path and one.cut is not None for one in self.report.findings)
        is_last = is_last and segment.base_offset == max(self.sizes, default=segment.base_offset)
        if is_last and self.summary is not None and self.end < self.summary["end_offset"] and not has_cut:
            end = int(self.summary["end_offset"])
            what = f"offsets {self.end} to {end - 1} at its end are missing"
            self._note(segment.path, what, Cure.CUT, Cut(segment.size, segment.size, self.end, end))
            self.end = end
        elif expected is not None and expected != segment.size and not has_cut and self.may_have_gaps:
            what = f"{segment.size} bytes, and {expected} when the broker stopped"
            self._note(segment.path, what, Cure.CUT, Cut(segment.size, segment.size, self.end, self.end))

    def _check_indexes(self, segment: Segment, batches: Mapping[int, BatchHeader]) -> None:
        is_trusted = segment.base_offset < self.trusted_to
        base = segment.base_offset
        ends = {header.last_offset - base for header in batches.values()}
        path = segment.path_of(INDEX)
        if self.disk.exists(path):
            index = OffsetIndex.decode(self.disk.read(path))
            fits = index is not None and all(
                position in batches and batches[position].last_offset - base == offset
                for offset, position in zip(index.offsets, index.positions, strict=True)
            )
            if not fits:
                self._note_side_file(path, "does not fit the batches", is_trusted=is_trusted)
        path = segment.path_of(TIME_INDEX)
        if self.disk.exists(path):
            times = TimeIndex.decode(self.disk.read(path))
            newest = {header.last_offset - base: header.max_timestamp for header in batches.values()}
            if times is None or any(
                offset not in ends or newest[offset] != time
                for time, offset in zip(times.times, times.offsets, strict=True)
            ):
                self._note_side_file(path, "does not fit the batches", is_trusted=is_trusted)

    def _check_aborted(
        self, segment: Segment, batches: Mapping[int, BatchHeader], aborted: list[tuple[int, int]]
    ) -> None:
        path = segment.path_of(TRANSACTION_INDEX)
        is_trusted = segment.base_offset < self.trusted_to
        if not self.disk.exists(path):
            if aborted and is_trusted:
                self._note(path, f"missing, with {len(aborted)} aborted transactions", Cure.SET_ASIDE)
            return
        data = self.disk.read(path)
        found = decode_aborted(data)
        markers = {
            (header.producer_id, header.last_offset) for header in batches.values() if header.is_control
        }
        entries = {(entry.producer_id, entry.last_offset) for entry in found}
        is_whole = len(data) % ABORTED_SIZE == 0 and all(
            entry.first_offset <= entry.last_offset < entry.last_stable_offset + 2**62 for entry in found
        )
        if not is_whole or not entries <= markers or not set(aborted) <= entries:
            self._note_side_file(path, "does not fit the transactions", is_trusted=is_trusted)

    def _check_epochs(self) -> None:
        path = f"{self.directory}/{LEADER_EPOCHS}"
        if not self.disk.exists(path):
            return
        try:
            entries = parse_epochs(self.disk.read(path))
        except Unreadable as error:
            self._note_side_file(path, f"cannot be read: {error}", is_trusted=True)
            return
        rises = all(one[0] < two[0] and one[1] <= two[1] for one, two in pairwise(entries))
        latest = self.epochs[-1][0] if self.epochs else -1
        fits = all(epoch <= _epoch_at(entries, offset, latest) for epoch, offset in self.epochs if entries)
        if not rises or not fits:
            self._note_side_file(path, "does not fit the batches", is_trusted=True)


def _epoch_at(entries: list[tuple[int, int]], offset: int, default: int) -> int:
    """The epoch of an offset; the file may be older than the newest batches."""
    if offset > entries[-1][1]:
        return max(default, entries[-1][0])
    return max((epoch for epoch, start in entries if start <= offset), default=default)
