"""A copy of a data directory while a broker uses it: as a clean stop at one moment would have left it.

Theory of operation. Everything that decides runs on the loop's thread, so between two turns of the loop all logs, the
coordinators' journals among them, and the metadata agree. `take_cut` (on the loop) writes down how long every segment
is and what a clean stop would say of every log. Segments only grow, and nothing is removed or rewritten while a backup
runs (see `Housekeeping.hold`); so `Copying` (on a worker, in slices) can copy these bytes afterward. The copy gets a
clean-shutdown file of that moment, and starts without a recovery.

Until it is whole, the copy's meta.properties cannot be read, and no broker starts from it.
"""

import json
import os
import shutil
import sqlite3
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from headrace.log.disk import FILE_MODE, FOLDER_MODE, Folder, OsDisk
from headrace.log.layout import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    DELETED_DIRECTORY,
    FORMAT_VERSION,
    INCOMPLETE,
    INDEXES,
    LEADER_EPOCHS,
    LOG,
    META,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SNAPSHOT,
    START_OFFSETS,
    Key,
    encode_checkpoint,
    encode_epochs,
    encode_partition_metadata,
    encode_properties,
    file_name,
    parse_partition_metadata,
)
from headrace.log.manager import LogManager
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import summary_of
from headrace.wire.batches import crc32c_of

METADATA = "metadata.sqlite"
CHUNK = 1024 * 1024
SLICE_S = 0.05


class Canceled(Exception):
    """The backup was given up; the text says why."""


class LogCut(NamedTuple):
    directory: str
    discarded_as: str
    """Its name if the topic is deleted meanwhile."""
    topic_id: bytes
    segments: list[tuple[int, int]]
    snapshots: list[int]
    epochs: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class BackupCut:
    leader_epoch: int
    logs: list[LogCut]
    summaries: dict[str, Any]
    start_offsets: dict[Key, int]
    recovery_points: dict[Key, int]
    cleaner_offsets: dict[Key, int]
    metadata: sqlite3.Connection
    """In memory."""

    @property
    def size(self) -> int:
        return sum(size for log in self.logs for _, size in log.segments)


def take_cut(logs: LogManager, metadata: sqlite3.Connection) -> BackupCut:
    """On the loop's thread, in one turn."""
    written = [log for log in logs.logs.values() if log.segments]
    store = logs.store
    return BackupCut(
        leader_epoch=store.leader_epoch,
        logs=[_cut_of(log) for log in written],
        summaries={log.name: summary_of(log) for log in written if log.damage is None},
        start_offsets={log.key: log.start_offset for log in written if log.start_offset},
        recovery_points=dict(store.recovery_points.saved),
        cleaner_offsets=dict(store.cleaner_offsets.saved),
        metadata=metadata,
    )


def _cut_of(log: PartitionLog) -> LogCut:
    return LogCut(
        log.name,
        f"{log.topic[:180]}-{log.partition}.{log.topic_id.hex()}{DELETED_DIRECTORY}",
        log.topic_id,
        [(segment.base_offset, segment.size) for segment in log.segments],
        list(log.files.snapshots),
        list(log.epochs.entries),
    )


def check_target(target: Path, data: Path) -> None:
    """ValueError for a place where no backup can be made."""
    if not target.is_absolute():
        raise ValueError(f"{target} is not an absolute path")
    if target.resolve().is_relative_to(data.resolve()):
        raise ValueError(f"{target} is inside the data directory; name a place outside")
    if target.exists() and not target.is_dir():
        raise ValueError(f"{target} is a file; name a directory that does not exist yet")
    if target.is_dir() and any(target.iterdir()):
        raise ValueError(f"{target} is not empty; name a directory that does not exist yet, or an empty one")
    if not target.parent.is_dir():
        raise ValueError(f"there is no directory {target.parent}")


class Copying:
    def __init__(self, disk: OsDisk, cut: BackupCut, target: Path) -> None:
        self.copied = 0
        self.is_done = False
        self.given_up: str | None = None
        """Why it is to end early."""
        self._disk = disk
        self._cut = cut
        self._target = target
        self._had_directory = target.is_dir()
        self._steps = self._all()

    def run_slice(self) -> None:
        """On a worker. OSError: the copy could not be made, and what there was of it is removed again."""
        until = time.monotonic() + SLICE_S
        try:
            for _ in self._steps:
                if self.given_up is not None:
                    raise Canceled(self.given_up)
                if time.monotonic() >= until:
                    return
        except BaseException:
            self._steps.close()
            self._remove()
            raise
        self.is_done = True

    def _remove(self) -> None:
        for path in [*self._target.iterdir()] if self._had_directory else [self._target]:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                with suppress(OSError):
                    path.unlink()

    def _all(self) -> Generator[None, None, None]:
        self._target.mkdir(FOLDER_MODE, exist_ok=True)
        self._write(META, INCOMPLETE)
        for log in self._cut.logs:
            yield from self._copy_log(log)
            yield
        for name, offsets in (
            (START_OFFSETS, self._cut.start_offsets),
            (RECOVERY_POINTS, self._cut.recovery_points),
            (CLEANER_OFFSETS, self._cut.cleaner_offsets),
        ):
            self._write(name, encode_checkpoint(offsets))
        (self._target / METADATA).touch(
            FILE_MODE
        )  # it holds credentials, and the directory may be open to others
        with closing(sqlite3.connect(self._target / METADATA)) as database:
            self._cut.metadata.backup(database)
        self._cut.metadata.close()
        content = json.dumps({"logs": self._cut.summaries}, separators=(",", ":")).encode()
        self._write(CLEAN_SHUTDOWN, f"{crc32c_of(content):08x}".encode() + b"\n" + content)
        self._sync_directory(self._target)
        properties = {
            "version": 1,
            "headrace.format": FORMAT_VERSION,
            "leader.epoch": self._cut.leader_epoch,
        }
        self._write(META + ".tmp", encode_properties(properties))
        os.replace(self._target / (META + ".tmp"), self._target / META)
        self._sync_directory(self._target)
        self._sync_directory(self._target.parent)

    def _copy_log(self, log: LogCut) -> Iterator[None]:
        (self._target / log.directory).mkdir(FOLDER_MODE)
        folder = self._open(log)
        try:
            for at, (base, size) in enumerate(log.segments):
                yield from self._copy(folder, log, file_name(base, LOG), size)
                if at < len(log.segments) - 1:
                    for suffix in INDEXES:
                        with suppress(FileNotFoundError):
                            yield from self._copy(folder, log, file_name(base, suffix), None)
            for offset in log.snapshots:
                with suppress(FileNotFoundError):  # of a segment that was started and not yet synced
                    yield from self._copy(folder, log, file_name(offset, SNAPSHOT), None)
        finally:
            folder.close()
        self._write(f"{log.directory}/{PARTITION_METADATA}", encode_partition_metadata(log.topic_id))
        self._write(f"{log.directory}/{LEADER_EPOCHS}", encode_epochs(log.epochs))
        self._sync_directory(self._target / log.directory)

    def _open(self, log: LogCut) -> Folder:
        """By its own name, or by the one that a deletion has given it; never that of another topic."""
        for name in (log.directory, log.discarded_as):
            with suppress(FileNotFoundError):
                folder = self._disk.open_folder(name)
                try:
                    if parse_partition_metadata(folder.read(PARTITION_METADATA)) == log.topic_id:
                        return folder
                except FileNotFoundError:
                    pass
                folder.close()
        raise FileNotFoundError(f"the directory of {log.directory} is gone")

    def _copy(self, folder: Folder, log: LogCut, name: str, size: int | None) -> Iterator[None]:
        source = folder.open(name)
        try:
            end = source.size() if size is None else size
            path = self._target / log.directory / name
            with os.fdopen(_create(path), "wb", buffering=0) as file:
                position = 0
                while position < end:
                    chunk = source.read(position, min(CHUNK, end - position))
                    if not chunk:
                        raise OSError(f"{log.directory}/{name} ends at byte {position} instead of {end}")
                    file.write(chunk)
                    position += len(chunk)
                    self.copied += len(chunk)
                    yield
                os.fsync(file.fileno())
        finally:
            source.close()

    def _write(self, name: str, content: bytes) -> None:
        with os.fdopen(_create(self._target / name), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    @staticmethod
    def _sync_directory(path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _create(path: Path) -> int:
    """A new file that only we can read, as in a data directory."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
