"""One segment of a log: a file of record batches and its two sparse indexes.

Segments know bytes and batch headers, nothing of producers or transactions. The indexes live in memory while a
segment grows, are written when it closes, and are made again from the batches when they are missing or do not fit
them. An entry is compared with its batch whenever it is used: a damaged index file misleads nobody. The open files of
all segments share one bounded pool.
"""

import logging
import resource
import struct
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from headrace.log.disk import Disk, File, FileClosed, sync_file, write_file
from headrace.log.errors import FILES_USED_UP
from headrace.log.index import OffsetIndex, TimeIndex
from headrace.log.layout import INDEX, INDEXES, LOG, TIME_INDEX, file_name
from headrace.wire.batches import FRAME_SIZE, HEADER_SIZE, LENGTH_MIN, BatchHeader, read_header
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("headrace.log")
T = TypeVar("T")

OPEN_FILES_MAX = 400
"""A quarter of what the process may open, if that is less: connections and the rest of the process need some, too."""
_EXTENT = struct.Struct(">qi11xi")
"""Base offset, length, last offset delta: enough to walk from batch to batch."""
_CHUNK = 4096

_NOTES = (
    "_are_indexes_read", "_index", "_time_index", "_unindexed",
    "first_timestamp", "max_timestamp", "max_timestamp_offset",
)  # fmt: skip
"""What `rebuild` finds in the batches."""

Placed = tuple[int, int, int]
"""Size, last offset and largest timestamp of a batch that is about to be written."""


class OpenFiles:
    """Keeps the files that were used last open, up to a bound; the loop's thread alone opens and closes here."""

    __slots__ = ("_limit", "_segments")

    def __init__(self, limit: int | None = None) -> None:
        self._limit = open_files_max() if limit is None else limit
        self._segments: deque[Segment] = deque()

    def __len__(self) -> int:
        return len(self._segments)

    def opened(self, segment: "Segment") -> None:
        self._segments.append(segment)
        while len(self._segments) > self._limit:
            oldest = self._segments.popleft()
            if oldest.is_recent and oldest is not segment:
                oldest.is_recent = False  # a second chance
                self._segments.append(oldest)
            elif oldest is not segment:
                oldest.put_away()
            else:
                self._segments.append(oldest)

    def closed(self, segment: "Segment") -> None:
        self._segments.remove(segment)

    def with_room(self, attempt: Callable[[], T]) -> T:
        """Does what opens a file; where the process has used up its descriptors, once more without most of these."""
        try:
            return attempt()
        except OSError as error:
            if not self.make_room(error):
                raise
        return attempt()

    def make_room(self, error: OSError) -> bool:
        """Closes most of them, if the error is that there is no descriptor left; whether that may help."""
        if error.errno not in FILES_USED_UP or not self._segments:
            return False
        kept = len(self._segments) // 4
        while len(self._segments) > kept:
            self._segments.popleft().put_away()
        return True


def open_files_max() -> int:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return OPEN_FILES_MAX if files == resource.RLIM_INFINITY else max(1, min(OPEN_FILES_MAX, files // 4))


class Segment:
    __slots__ = (
        "_are_indexes_read",
        "_file",
        "_index",
        "_open_files",
        "_time_index",
        "_unindexed",
        "base_offset",
        "created_ms",
        "directory",
        "disk",
        "first_timestamp",
        "is_closed",
        "is_dirty",
        "is_recent",
        "max_timestamp",
        "max_timestamp_offset",
        "size",
    )

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        *,
        open_files: OpenFiles,
        created_ms: int,
        size: int = 0,
        first_timestamp: int = -1,
        max_timestamp: int = -1,
        max_timestamp_offset: int = -1,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.size = size
        self.first_timestamp = first_timestamp
        """Of its first batch: what `segment.ms` counts from."""
        self.max_timestamp = max_timestamp
        self.max_timestamp_offset = max_timestamp_offset
        """Last offset of the (first) batch that holds it."""
        self.is_dirty = False
        """Written to since the last sync."""
        self.is_closed = False
        """Another segment has followed: its indexes are on the disk."""
        self.is_recent = False
        self._open_files = open_files
        self._file: File | None = None
        self._index: OffsetIndex | None = None if size else OffsetIndex()
        self._time_index: TimeIndex | None = None if size else TimeIndex()
        self._are_indexes_read = False
        """They come from files, which may be damaged."""
        self._unindexed = 0

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, size={self.size})"

    @property
    def path(self) -> str:
        return self.path_of(LOG)

    def path_of(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    def create(self) -> None:
        file = self.disk.open(self.path, create=True)
        try:
            if file.size():
                file.truncate(0)
        except OSError:
            file.close()
            raise
        self._use(file)

    def _use(self, file: File) -> File:
        self._file = file
        self._open_files.opened(self)
        return file

    def file(self) -> File:
        self.is_recent = True
        return self._file or self._reopen()

    def _reopen(self) -> File:
        file = self._open_files.with_room(lambda: self.disk.open(self.path))
        if file.size() < self.size:
            size = file.size()
            file.close()
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.path} in {self.disk.name} has {size} bytes and had {self.size}: another process changed it.",
            )
        return self._use(file)

    def put_away(self) -> None:
        """Closes the file and drops what can be read again."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.is_closed:
            self._index = self._time_index = None

    def close(self) -> None:
        if self._file is not None:
            self._open_files.closed(self)
            self.put_away()

    def sync(self) -> None:
        """From any thread."""
        file = self._file
        try:
            if file is None:
                raise FileClosed
            file.sync()
        except FileClosed:
            sync_file(self.disk, self.path)

    def append(self, data: bytes | bytearray, batches: list[Placed], *, interval: int) -> None:
        """Bytes that hold exactly these batches. On OSError the segment is as it was."""
        if self._index is None:
            self._load_indexes(interval)
        position = self.size
        try:
            self.file().write(position, data)
        except OSError:
            self._undo_write()
            raise
        self.size = position + len(data)
        for size, last_offset, max_timestamp in batches:
            self.note(position, size, last_offset, max_timestamp, interval)
            position += size

    def _undo_write(self) -> None:
        """What stays behind if even this fails is overwritten by the next write, or cut by recovery."""
        try:
            self.file().truncate(self.size)
        except OSError:
            return

    def note(self, position: int, size: int, last_offset: int, max_timestamp: int, interval: int) -> None:
        """Takes one batch into the indexes and the times."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if not position:
            self.first_timestamp = max_timestamp
        if self._unindexed > interval:
            assert self._index is not None
            assert self._time_index is not None
            self._index.add(last_offset - self.base_offset, position)
            self._time_index.add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
            self._unindexed = 0
        self._unindexed += size

    def truncate(self, size: int) -> None:
        self.file().truncate(size)
        self.size = size

    def save_indexes(self) -> list[str]:
        """Writes both; returns their paths, for whoever syncs them."""
        index, time_index = self.indexes()
        time_index.add(self.max_timestamp, self.max_timestamp_offset - self.base_offset)
        write_file(self.disk, self.path_of(INDEX), index.encode())
        write_file(self.disk, self.path_of(TIME_INDEX), time_index.encode())
        return [self.path_of(INDEX), self.path_of(TIME_INDEX)]

    def remove_indexes(self) -> bool:
        """Removes the files that `save_indexes` has written; whether there were any."""
        saved = [path for path in map(self.path_of, (INDEX, TIME_INDEX)) if self.disk.exists(path)]
        for path in saved:
            self.disk.remove(path)
        return bool(saved)

    def remove_files(self) -> None:
        self.close()
        for suffix in (LOG, *INDEXES):
            self.disk.remove(self.path_of(suffix))

    def indexes(self, interval: int = _CHUNK) -> tuple[OffsetIndex, TimeIndex]:
        if self._index is None or self._time_index is None:
            self._load_indexes(interval)
        assert self._index is not None
        assert self._time_index is not None
        return self._index, self._time_index

    @property
    def is_indexed(self) -> bool:
        """Its indexes are in memory."""
        return self._index is not None

    @property
    def is_dated(self) -> bool:
        """The largest timestamp is known, and need not be read from the indexes."""
        return self.max_timestamp >= 0 or not self.size or self._index is not None

    def newest_ms(self) -> int:
        """The largest timestamp; without any, the time since which the segment has been known."""
        if not self.is_dated:
            self.indexes()
        return self.max_timestamp if self.max_timestamp >= 0 else self.created_ms

    @property
    def index_entries(self) -> int:
        return len(self._index.offsets) if self._index is not None else 0

    def _load_indexes(self, interval: int) -> None:
        try:
            index = OffsetIndex.decode(self.disk.read(self.path_of(INDEX)))
            time_index = TimeIndex.decode(self.disk.read(self.path_of(TIME_INDEX)))
        except FileNotFoundError:
            index = time_index = None
        if index is None or time_index is None or not self._fits(index, time_index):
            self.rebuild(interval)
            return
        self._index, self._time_index, self._are_indexes_read = index, time_index, True
        self.max_timestamp = time_index.times[-1]
        self.max_timestamp_offset = time_index.offsets[-1] + self.base_offset
        self._unindexed = self.size - (index.positions[-1] if index.positions else 0)

    def _fits(self, index: OffsetIndex, time_index: TimeIndex) -> bool:
        """Their last entries must say what the batches do. Without entries they are made again at little cost.

        A crash may have cut the time index at any entry, and then there are younger batches behind its last one.
        """
        if not index.positions or not time_index.times:
            return False
        if self.max_timestamp not in (-1, time_index.times[-1]):
            return False  # saved before the last batches were written
        position = index.positions[-1]
        if position + HEADER_SIZE > self.size:
            return False
        base_offset, length, delta = _EXTENT.unpack(self.file().read(position, _EXTENT.size))
        is_there: bool = base_offset + delta - self.base_offset == index.offsets[-1]
        if not is_there or not LENGTH_MIN <= length <= self.size - position - FRAME_SIZE:
            return False
        newest_ms = time_index.times[-1]
        try:
            newest_at = self._position_of(index, newest_ms, time_index.offsets[-1])
            return all(header.max_timestamp <= newest_ms for _, header in self.headers(newest_at))
        except KafkaError:
            return False

    def _position_of(self, index: OffsetIndex, timestamp: int, relative_offset: int) -> int:
        """Of the batch that an entry of the time index names; KafkaError if there is none."""
        found = self._first_ending_at(index, self.base_offset + relative_offset)
        if found is not None:
            header = read_header(self.read(found[0], HEADER_SIZE))
            if (header.max_timestamp, header.last_offset - self.base_offset) == (timestamp, relative_offset):
                return found[0]
        raise self.damaged(0, f"no batch ends at offset {self.base_offset + relative_offset}, {timestamp}")

    def _remake_indexes(self) -> bool:
        """After an error on the way from an index to its batches: whether it was the index's, which is mended now."""
        if not self._are_indexes_read:
            return False
        before = self._notes()
        try:
            self.rebuild(_CHUNK)
        except KafkaError:  # the batches are damaged: the files know more than can be read
            self._put_notes(before)
            self._are_indexes_read = False
            return False
        logger.warning("the indexes of %s did not fit its batches and were made again", self.path)
        return True

    def rebuild(self, interval: int) -> None:
        """Indexes and times from the batches themselves."""
        before = self._notes()
        self.reset_notes()
        try:
            for position, header in self.headers():
                self.note(position, header.size, header.last_offset, header.max_timestamp, interval)
        except OSError:  # retention must not take the newest time so far for the newest of all
            self._put_notes(before)
            raise

    def _notes(self) -> list[Any]:
        return [getattr(self, name) for name in _NOTES]

    def _put_notes(self, notes: list[Any]) -> None:
        for name, value in zip(_NOTES, notes, strict=True):
            setattr(self, name, value)

    def reset_notes(self) -> None:
        self._index, self._time_index, self._unindexed = OffsetIndex(), TimeIndex(), 0
        self.first_timestamp = self.max_timestamp = self.max_timestamp_offset = -1
        self._are_indexes_read = False

    def read(self, position: int, size: int) -> bytes:
        if position + size > self.size:  # a damaged length must not ask for memory
            raise self.damaged(position, f"{size} bytes are wanted and {self.size - position} are left")
        data = self.file().read(position, size)
        if len(data) != size:
            raise self.damaged(position, f"{len(data)} bytes where {size} were written")
        return data

    def headers(self, position: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of every batch from a batch's start on."""
        end = self.size if end is None else end
        chunk, chunk_start = b"", 0
        while position < end:
            if position + HEADER_SIZE > chunk_start + len(chunk):
                chunk, chunk_start = self.file().read(position, _CHUNK), position
                if len(chunk) < HEADER_SIZE:
                    raise self.damaged(position, "the file ends within a batch header")
            header = read_header(chunk, position - chunk_start)
            if header.length < LENGTH_MIN:
                raise self.damaged(position, f"a batch of length {header.length}")
            yield position, header
            position += header.length + FRAME_SIZE

    def _extents(self, position: int, relative_offset: int = -1) -> Iterator[tuple[int, int, int, int]]:
        """Position, end, base offset and next offset of every batch from a batch's start on.

        With an index's entry: KafkaError unless the first one ends at this relative offset.
        """
        file, size = self.file(), self.size
        chunk, chunk_start, chunk_end = b"", 0, 0
        while position < size:
            if position + _EXTENT.size > chunk_end:
                chunk, chunk_start = file.read(position, _CHUNK), position
                chunk_end = chunk_start + len(chunk)
                if len(chunk) < _EXTENT.size:
                    raise self.damaged(position, "the file ends within a batch header")
            base_offset, length, delta = _EXTENT.unpack_from(chunk, position - chunk_start)
            if length < LENGTH_MIN:
                raise self.damaged(position, f"a batch of length {length}")
            if relative_offset >= 0:
                if base_offset + delta != self.base_offset + relative_offset:
                    raise self.damaged(position, "no batch starts where the index has one")
                relative_offset = -1
            end = position + length + FRAME_SIZE
            yield position, end, base_offset, base_offset + delta + 1
            position = end

    def find(self, offset: int) -> tuple[int, int] | None:
        """Position and base offset of the first batch that ends at or after `offset`."""
        try:
            return self._first_ending_at(self.indexes()[0], offset)
        except KafkaError:
            if not self._remake_indexes():
                raise
        return self._first_ending_at(self.indexes()[0], offset)

    def _first_ending_at(self, index: OffsetIndex, offset: int) -> tuple[int, int] | None:
        for position, _, base_offset, next_offset in self._extents(
            *index.entry_before(offset - self.base_offset)
        ):
            if next_offset > offset:
                return position, base_offset
        return None

    def position_before_time(self, timestamp: int) -> int:
        """Where to start looking for a timestamp: at a batch before which every record is older."""
        try:
            return self._position_before_time(timestamp)
        except KafkaError:
            if not self._remake_indexes():
                raise
        return self._position_before_time(timestamp)

    def _position_before_time(self, timestamp: int) -> int:
        index, time_index = self.indexes()
        entry = time_index.entry_before(timestamp)
        return 0 if entry is None else self._position_of(index, *entry)

    def extent(self, start: int, limit: int) -> tuple[int, int]:
        """How far whole batches go from `start` without passing `limit`, and the offset that follows them.

        If not even the first one fits: its end and what follows it; the caller sees that it is past `limit`.
        """
        try:
            return self._extent(start, limit)
        except KafkaError:
            if not self._remake_indexes():
                raise
        return self._extent(start, limit)

    def _extent(self, start: int, limit: int) -> tuple[int, int]:
        index, _ = self.indexes()
        boundary = index.boundary_before(limit)
        reached, reached_offset = start, -1
        for position, end, base_offset, next_offset in self._extents(
            *(boundary if boundary[0] > start else (start,))
        ):
            if end > limit and position > start:
                return position, reached_offset if reached_offset >= 0 else base_offset
            reached, reached_offset = end, next_offset
            if end > limit:
                break
        return reached, reached_offset

    def damaged(self, position: int, what: str) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{self.path} in {self.disk.name} is damaged at byte {position}: {what}.",
        )
