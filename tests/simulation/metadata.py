"""SQLite for a simulated machine: databases live in memory, across restarts, and a power cut loses what was not
synced.

`MetadataStore` opens its database through the `sqlite3` module that it imported, and syncs it through a
`WriteAheadLog`; in a simulation these are the ones here. Each COMMIT leaves an image of the database. An image is
safe once it was synced; a power cut leaves the last safe one or a later one.
"""

import random
import sqlite3
from typing import Any

from headrace.log.memory_disk import SYNC, WRITE
from tests.simulation.disk import SimulatedDisk


class MetadataDisk:
    """What of the database is on the simulated machine's disk."""

    def __init__(self) -> None:
        self.synced: bytes | None = None
        self.newer: list[bytes] = []
        """Images of later commits, which a power cut may lose."""

    @property
    def newest(self) -> bytes | None:
        return self.newer[-1] if self.newer else self.synced

    def commit(self, image: bytes, *, is_synced: bool) -> None:
        if is_synced:
            self.synced = image
            self.newer.clear()
        else:
            self.newer.append(image)

    def sync(self, count: int | None = None) -> None:
        """The first `count` newer images (all) are safe."""
        count = len(self.newer) if count is None else count
        if count:
            self.synced = self.newer[count - 1]
            del self.newer[:count]

    def power_cycle(self, survival: random.Random | None) -> None:
        kept = survival.randint(0, len(self.newer)) if survival else 0
        self.sync(kept)
        self.newer.clear()


class SimulatedSqlite:
    """Stands for the module `sqlite3` where the broker has imported it."""

    def __init__(self, machine_disk: SimulatedDisk, metadata_disk: MetadataDisk) -> None:
        self._disk = machine_disk
        self._metadata = metadata_disk

    def connect(self, path: str, **options: Any) -> "SimulatedDatabase":
        return SimulatedDatabase(self._disk, self._metadata, options)

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)


class SimulatedWriteAheadLog:
    """Stands for the write-ahead log as a file."""

    def __init__(self, machine_disk: SimulatedDisk, metadata_disk: MetadataDisk) -> None:
        self._disk = machine_disk
        self._metadata = metadata_disk

    def sync(self) -> None:
        count = len(self._metadata.newer)
        self._disk.before("sync", "metadata.sqlite-wal", 0)
        self._disk.operation(kind=SYNC)
        self._metadata.sync(count)

    def size(self) -> int:
        return 0

    def close(self) -> None:
        pass


class SimulatedDatabase:
    def __init__(self, disk: SimulatedDisk, metadata: MetadataDisk, options: dict[str, Any]) -> None:
        self._disk = disk
        self._metadata = metadata
        self._is_full = True
        """synchronous=FULL: a commit is safe when it returns."""
        options = {key: value for key, value in options.items() if key != "uri"}
        self._database = sqlite3.connect(":memory:", **options)
        if metadata.newest is not None:
            self._database.deserialize(metadata.newest)

    def execute(self, statement: str, parameters: Any = ()) -> Any:
        word = statement.lstrip()[:6].upper()
        if word == "COMMIT":
            return self._commit(statement)
        if word == "PRAGMA":
            lowered = statement.lower().replace(" ", "")
            if "synchronous=" in lowered:
                self._is_full = lowered.rpartition("=")[2] in ("full", "extra", "2", "3")
            if "wal_checkpoint" in lowered:
                self.sync()
        return self._database.execute(statement, parameters)

    def _commit(self, statement: str) -> Any:
        try:
            self._disk.before("sync" if self._is_full else "write", "metadata.sqlite", 0)
            self._disk.operation(kind=SYNC if self._is_full else WRITE)
        except OSError as error:
            raise sqlite3.OperationalError("database or disk is full") from error
        result = self._database.execute(statement)
        self._metadata.commit(self._database.serialize(), is_synced=self._is_full)
        return result

    def sync(self) -> None:
        count = len(self._metadata.newer)
        self._disk.before("sync", "metadata.sqlite", 0)
        self._disk.operation(kind=SYNC)
        self._metadata.sync(count)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)
