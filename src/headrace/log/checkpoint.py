"""Offsets that belong to partitions, all in one file: start offsets, recovery points, how far compaction got.

Theory of operation. Entries are keyed by topic id and partition. A topic that takes a deleted one's name has another
id, so nothing that was said of the old one can ever be applied to it. The loop's thread (or a log's sync) changes
entries in memory; `sync`, from a worker, replaces the file with what they are then. Nothing is promised by an entry
before it is saved.
"""

import logging
import threading
from collections.abc import Collection

from headrace.log.disk import Disk, replace_file
from headrace.log.errors import REFUSALS
from headrace.log.layout import Key, Unreadable, encode_checkpoint, parse_checkpoint
from headrace.log.reserve import Reserve
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("headrace.log")


class Checkpoint:
    def __init__(self, disk: Disk, name: str, reserve: Reserve) -> None:
        self._disk = disk
        self._name = name
        self._reserve = reserve
        self._guard = threading.Lock()
        """Over the entries; held for moments only."""
        self._saving = threading.Lock()
        """Of workers: the file is replaced by one at a time."""
        self._entries: dict[Key, int] = {}
        self._version = self._saved_version = 0
        self.saved: dict[Key, int] = {}
        """As the next start would find it. Replaced, never changed."""
        self.is_lost = False
        """There was a file that could not be read, or there should have been one."""

    def load(self, data: bytes | None) -> None:
        """The content of the file; None if there is none."""
        if data is None:
            self.is_lost = True
            return
        try:
            self.saved = parse_checkpoint(data)
        except Unreadable as error:
            logger.warning("%s in %s cannot be read: %s", self._name, self._disk.name, error)
            self.is_lost = True
        self._entries = dict(self.saved)

    @property
    def is_saved(self) -> bool:
        return self._saved_version == self._version

    def get(self, key: Key) -> int | None:
        return self._entries.get(key)

    def put(self, key: Key, offset: int) -> None:
        with self._guard:
            if self._entries.get(key, 0) != offset:
                self._entries[key] = offset
                self._version += 1

    def is_entry_saved(self, key: Key) -> bool:
        return self.saved.get(key, 0) == self._entries.get(key, 0)

    def forget(self, keys: Collection[Key]) -> None:
        """Of a deleted topic. Its entries do no harm in the file; the next save leaves them out."""
        with self._guard:
            for key in keys:
                self._entries.pop(key, None)

    def drop(self, keys: Collection[Key]) -> None:
        """Others will have these keys: the entries must be gone from the file before."""
        with self._guard:
            for key in keys:
                self._version += self._entries.pop(key, None) is not None

    def replace_all(self, entries: dict[Key, int]) -> None:
        with self._guard:
            self._entries = dict(entries)
            self._version += 1

    def sync(self) -> None:
        """Saves what has changed. KafkaError: a full disk has no room for it, and the file is as it was."""
        with self._guard:
            wanted = self._version
        with self._saving:
            if self._saved_version >= wanted:
                return  # somebody else's save came after the change
            with self._guard:
                version, entries = self._version, dict(self._entries)
            data = encode_checkpoint(entries)
            try:
                self._reserve.with_room(lambda: replace_file(self._disk, self._name, data))
            except OSError as error:
                if error.errno not in REFUSALS:
                    raise
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{self._name} in {self._disk.name} cannot be saved: {error}",
                ) from error
            self.saved, self._saved_version = entries, version


class RecoveryPoints(Checkpoint):
    """How much of each log recovery may trust: see `trust`."""

    def sync(self) -> None:
        """On a full disk the old points stay: then recovery checks more than it needs to, and nothing is lost."""
        try:
            super().sync()
        except KafkaError as error:
            logger.warning("recovery points cannot be saved now: %s", error.message)


class Root:
    """The data directory itself: which partitions' directories there are, and their names."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._saving = threading.Lock()
        self._version = self._synced_version = 0

    def note_changed(self) -> int:
        """From the loop's thread, after a directory was made or renamed. The number of this change."""
        self._version += 1
        return self._version

    def is_synced(self, change: int) -> bool:
        return self._synced_version >= change

    def sync(self) -> None:
        wanted = self._version
        with self._saving:
            if self._synced_version < wanted:
                version = self._version
                self._disk.sync_directory()
                self._synced_version = version
