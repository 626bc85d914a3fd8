"""A log's directory: its segments, its snapshots, and what of them is not yet synced.

The loop's thread makes, drops and swaps files here and notes what it wrote; a worker's `sync` takes the notes under
the store's guard and syncs without it. What is written meanwhile is noted again and belongs to the next sync.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Iterable

from headrace.log.disk import Disk, sync_file, write_file
from headrace.log.layout import (
    INDEXES,
    PARTITION_METADATA,
    SNAPSHOT,
    encode_partition_metadata,
    file_name,
    parse_partition_metadata,
)
from headrace.log.segment import Segment
from headrace.log.store import Store


def read_topic_id(disk: Disk, directory: str) -> bytes | None:
    """Whose directory it is; None where that is lost or torn."""
    with contextlib.suppress(FileNotFoundError):
        return parse_partition_metadata(disk.read(f"{directory}/{PARTITION_METADATA}"))
    return None


class LogFiles:
    __slots__ = (
        "_is_directory_unsynced",
        "_unsynced_files",
        "_unsynced_segments",
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
        self._is_directory_unsynced = False
        self._unsynced_segments: list[Segment] = []
        self._unsynced_files: list[str] = []

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def make(self) -> None:
        if not self.is_made:
            self.store.disk.make_directory(self.directory)
            self.adopt(is_synced=False)

    def adopt(self, *, is_synced: bool) -> None:
        """There is a directory. Unless a clean stop has left it, nobody knows whether it is safe on the disk."""
        self.is_made = True
        if is_synced:
            return
        disk, path = self.store.disk, f"{self.directory}/{PARTITION_METADATA}"
        if read_topic_id(disk, self.directory) is None:
            write_file(disk, path, encode_partition_metadata(self.topic_id))
        self.note_written([path, *map(self.snapshot_path, self.snapshots)])
        with self.store.guard:
            self._is_directory_unsynced = self.store.unsynced_root = True

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

    def start_segment(self, base_offset: int, now_ms: int) -> Segment:
        segment = self.new_segment(base_offset, created_ms=now_ms)
        segment.create()
        self.put(segment)
        with self.store.guard:
            self._is_directory_unsynced = True
        self.note_dirty(segment)
        return segment

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

    def swap_in(self, old: list[Segment], new: Segment, swap: str) -> None:
        """Puts a compacted segment, which waits under the name `swap`, in the place of its sources."""
        disk = self.store.disk
        for segment in old[1:]:
            segment.remove_files()
        old[0].close()
        for suffix in INDEXES:
            disk.remove(old[0].path_of(suffix))
        disk.rename(swap, new.path)
        at = self.segments.index(old[0])
        self.segments[at : at + len(old)] = [new]
        self.bases[at : at + len(old)] = [new.base_offset]

    def snapshot_path(self, offset: int) -> str:
        return f"{self.directory}/{file_name(offset, SNAPSHOT)}"

    def save_snapshot(self, offset: int, data: bytes) -> str:
        write_file(self.store.disk, self.snapshot_path(offset), data)
        if offset not in self.snapshots:
            self.snapshots.append(offset)
        return self.snapshot_path(offset)

    def keep_snapshots(self, offsets: Iterable[int]) -> None:
        """And remove the others."""
        kept = set(offsets)
        for offset in [offset for offset in self.snapshots if offset not in kept]:
            self.store.disk.remove(self.snapshot_path(offset))
            self.snapshots.remove(offset)

    def note_dirty(self, segment: Segment) -> None:
        with self.store.guard:
            segment.is_dirty = True
            self._unsynced_segments.append(segment)

    def note_written(self, paths: Iterable[str]) -> None:
        with self.store.guard:
            self._unsynced_files += paths
            self._is_directory_unsynced = True

    def sync(self) -> None:
        """From a worker's thread. A file that has been removed meanwhile needs no sync."""
        with self.store.guard:
            segments, self._unsynced_segments = self._unsynced_segments, []
            files, self._unsynced_files = self._unsynced_files, []
            is_directory_unsynced, self._is_directory_unsynced = self._is_directory_unsynced, False
            for segment in segments:
                segment.is_dirty = False
        for segment in segments:
            segment.sync()
        for path in files:
            sync_file(self.store.disk, path)
        if is_directory_unsynced:
            self.store.disk.sync_directory(self.directory)

    def close(self) -> None:
        for segment in self.segments:
            segment.close()
