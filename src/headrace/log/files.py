"""A log's directory: its segments, its snapshots, and what of them is not yet synced.

The loop's thread makes, drops and swaps files here and notes what it wrote; a worker's `sync` takes the notes under
the store's guard and syncs without it. What is written meanwhile is noted again and belongs to the next sync. A
segment is closed in one step under the guard: all its files are noted, and the next one is active. So a sync that
sees the next one has the notes of all files before it, or an earlier sync had.
"""

import contextlib
import threading
from bisect import bisect_right
from collections.abc import Iterable
from functools import partial

from headrace.log.disk import Disk, sync_file, write_file
from headrace.log.errors import REFUSALS
from headrace.log.layout import (
    INDEXES,
    LOG,
    MERGED,
    PARTITION_METADATA,
    SNAPSHOT,
    SWAP,
    encode_partition_metadata,
    file_name,
    parse_file_name,
    parse_partition_metadata,
    range_name,
)
from headrace.log.producers import ProducerStates, encode_snapshot
from headrace.log.segment import Segment
from headrace.log.store import Store


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """Whose directory it is; None where that is lost or torn."""
    with contextlib.suppress(FileNotFoundError):
        return parse_partition_metadata(disk.read(f"{directory}/{PARTITION_METADATA}"))
    return None


def holds_records(disk: Disk, directory: str) -> bool:
    for name in disk.list(directory):
        parsed = parse_file_name(name)
        if parsed is not None and parsed[1] == LOG and disk.size(f"{directory}/{name}"):
            return True
    return False


class _Notes:
    """What has been written and not synced."""

    __slots__ = ("files", "is_directory_changed", "segments")

    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.files: list[str] = []
        self.is_directory_changed = False


class LogFiles:
    __slots__ = (
        "_left",
        "_made_in_root",
        "_notes",
        "_syncing",
        "bases",
        "directory",
        "is_made",
        "segments",
        "snapshots",
        "store",
        "topic_id",
    )

    def __init__(self, store: Store, directory: str, topic_id: bytes) -> None:
        self.store = store
        self.directory = directory
        self.topic_id = topic_id
        self.segments: list[Segment] = []
        """By base offset; the last one is active."""
        self.bases: list[int] = []
        """Their base offsets."""
        self.snapshots: list[int] = []
        """Offsets of the snapshots on the disk, rising."""
        self.is_made = False
        """There is a directory that says whose it is."""
        self._made_in_root = 0
        self._left: tuple[int, int] | None = None
        """Base offset and size of the active segment when its indexes were left for the next start."""
        self._notes = _Notes()
        self._syncing = threading.Lock()
        """Of workers: who finds nothing noted must know that it is synced, not that another is about to."""

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def is_synced(self) -> bool:
        notes = self._notes
        return not (notes.segments or notes.files or notes.is_directory_changed) and self.is_in_root

    @property
    def is_in_root(self) -> bool:
        """The data directory was synced since the log's directory was made."""
        return self.store.root.is_synced(self._made_in_root)

    def make(self) -> None:
        """OSError leaves it to the next attempt, as if nothing had been made."""
        if not self.is_made:
            self.store.disk.make_directory(self.directory)
            self.adopt(is_synced=False)

    def adopt(self, *, is_synced: bool) -> None:
        """There is a directory. Unless a clean stop has left it, nobody knows whether it is safe on the disk."""
        if not is_synced:
            disk, path = self.store.disk, f"{self.directory}/{PARTITION_METADATA}"
            if read_topic_id(disk, self.directory) is None:
                write_file(disk, path, encode_partition_metadata(self.topic_id))
            self.note_written([path, *map(self.snapshot_path, self.snapshots)])
            self._made_in_root = self.store.root.note_changed()
        elif self.segments:
            self._left = self.bases[-1], self.segments[-1].size
        self.is_made = True

    def new_segment(self, base_offset: int, *, created_ms: int, size: int = 0) -> Segment:
        """One that is not part of the log yet."""
        return Segment(
            self.store.disk,
            self.directory,
            base_offset,
            open_files=self.store.open_files,
            created_ms=created_ms,
            size=size,
        )

    def put(self, segment: Segment) -> None:
        """Makes it the active one."""
        if self.segments:
            self.segments[-1].is_closed = True
        self.segments.append(segment)
        self.bases.append(segment.base_offset)

    def start_segment(self, base_offset: int, now_ms: int, written: Iterable[str] = ()) -> Segment:
        """Makes a new active segment; `written` are the files of the one that closes. OSError: nothing changes."""
        segment = self.new_segment(base_offset, created_ms=now_ms)
        segment.create()
        with self.store.guard:
            self._notes.files += written
            self._notes.segments.append(segment)
            self._notes.is_directory_changed = True
            segment.is_dirty = True
            self.put(segment)
        return segment

    def index_at(self, offset: int) -> int:
        """Of the segment that holds the offset, or else of the first one."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def after(self, segment: Segment) -> Segment | None:
        at = bisect_right(self.bases, segment.base_offset)
        return self.segments[at] if at < len(self.segments) else None

    def drop_oldest(self, count: int) -> list[Segment]:
        """Out of the log, not off the disk."""
        dropped = self.segments[:count]
        del self.segments[:count], self.bases[:count]
        for segment in dropped:
            segment.close()
        return dropped

    def cut(self, first: int) -> list[Segment]:
        """Takes the segments from this one on out of the log: recovery has not found them to be a part of it."""
        dropped = self.segments[first:]
        del self.segments[first:], self.bases[first:]
        if self.segments:
            self.segments[-1].is_closed = False
        return dropped

    def swap_in(self, old: list[Segment], new: Segment, end_offset: int) -> bool:
        """Puts a compacted segment, which waits as a swap file, in the place of its sources, which end there.

        False if a full disk refuses it although the reserve was given up: then nothing has changed. One rename decides.
        What is left to do after it takes no room, and the next start does it if it finds the file that says so.
        """
        disk = self.store.disk
        swap, merged = (
            f"{self.directory}/{range_name(new.base_offset, end_offset, suffix)}" for suffix in (SWAP, MERGED)
        )
        old[0].close()
        try:
            self.store.reserve.with_room(partial(disk.rename, swap, new.path))
        except OSError as error:
            if error.errno not in REFUSALS:
                raise
            return False
        for segment in old[1:]:
            segment.remove_files()
        for suffix in INDEXES:
            disk.remove(old[0].path_of(suffix))
        disk.remove(merged)
        at = self.segments.index(old[0])
        self.segments[at : at + len(old)] = [new]
        self.bases[at : at + len(old)] = [new.base_offset]
        new.is_closed = True
        self.note_written()
        return True

    def leave_indexes(self) -> None:
        """Of the active segment: what the next start reads instead of the batches, if it is worth a file.

        One of an earlier stop is outdated.
        """
        active = self.segments[-1]
        left = active.base_offset, active.size
        if left != self._left:
            try:
                if active.index_entries:
                    self.note_written(active.save_indexes())
                elif active.remove_indexes():
                    self.note_written()
            except OSError as error:
                if error.errno not in REFUSALS:
                    raise
        self._left = left

    def snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, SNAPSHOT)}"

    def save_snapshot(self, offset: int, states: ProducerStates) -> list[str]:
        """The path to note, or none if there is one already: what it says of an offset does not change."""
        if offset in self.snapshots:
            return []
        path = self.snapshot_path(offset)
        write_file(self.store.disk, path, encode_snapshot(states.entries.values()))
        return [path]

    def know_snapshot(self, offset: int) -> None:
        if offset not in self.snapshots:
            self.snapshots.append(offset)

    def keep_snapshots(self, offsets: Iterable[int]) -> None:
        """And remove the others, unless a backup may still need them."""
        if self.store.is_held:
            return
        kept = set(offsets)
        for offset in [offset for offset in self.snapshots if offset not in kept]:
            self.snapshots.remove(offset)
            with contextlib.suppress(OSError):  # a recovery removes it
                self.store.disk.remove(self.snapshot_path(offset))

    def forget_snapshots(self, trusted: int) -> None:
        """Recovery starts from the newest one that is trusted, or a later one."""
        oldest = max((offset for offset in self.snapshots if offset <= trusted), default=0)
        self.keep_snapshots([offset for offset in self.snapshots if offset >= oldest])

    def note_dirty(self, segment: Segment) -> None:
        with self.store.guard:
            segment.is_dirty = True
            self._notes.segments.append(segment)

    def note_written(self, paths: Iterable[str] = ()) -> None:
        """And that names in the directory may have changed."""
        with self.store.guard:
            self._notes.files += paths
            self._notes.is_directory_changed = True

    def sync(self) -> int | None:
        """From a worker's thread. A file that has been removed meanwhile needs no sync.

        Returns the base offset of the active segment when it began: all files of those before it are synced.
        """
        with self._syncing:
            with self.store.guard:
                notes, self._notes = self._notes, _Notes()
                active = self.bases[-1] if self.bases else None
                for segment in notes.segments:
                    segment.is_dirty = False
            try:
                for segment in notes.segments:
                    segment.sync()
                for path in notes.files:
                    sync_file(self.store.disk, path)
                if notes.is_directory_changed:
                    self.store.disk.sync_directory(self.directory)
            except BaseException:
                self._take_back(notes)
                raise
        return active

    def _take_back(self, notes: _Notes) -> None:
        """They are not synced."""
        with self.store.guard:
            self._notes.segments = notes.segments + self._notes.segments
            self._notes.files = notes.files + self._notes.files
            self._notes.is_directory_changed |= notes.is_directory_changed
            for segment in notes.segments:
                segment.is_dirty = True

    def close(self) -> None:
        for segment in self.segments:
            segment.close()
