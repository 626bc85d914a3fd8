"""The metadata store: topics, their ids and settings, altered broker and group settings, ACLs, ids handed out.

Theory of operation. One SQLite database in the data directory, in WAL mode. A method that changes something runs on
the event loop and only writes to the operating system: when it returns, the change survives the end of the process;
when it raises, nothing has changed. What survives a power cut is what had been committed when the last `sync` began,
and of later changes the first few, never a later one without those before it. `sync` and `checkpoint` are for a worker
thread; all other use is from one thread.

The loop's connection has synchronous=NORMAL and makes no checkpoints: a commit syncs nothing, with one exception. The
first commit after a checkpoint writes a new WAL header, and SQLite syncs that, because old frames behind a lost header
could be replayed over a newer database. `checkpoint` therefore makes that first commit itself.

Deleting a topic takes two steps because directories cannot be part of a transaction: `delete_topic` moves it to the
deleted topics, whoever owns the directories removes them once that is durable, `forget_deleted` ends it. A crash in
between leaves the topic in `deleted_topics()`, and the next start finishes the work.
"""

import contextlib
import os
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.log.disk import File, OsDisk
from headrace.wire.acls import Acl, acl_of
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import uuid_text

FORMAT_VERSION = 1
MEMORY = ":memory:"
WAL_BYTES_MAX = 4 * 1024 * 1024
"""A larger WAL is due for a checkpoint."""

_LOGIN_SECRET = "login_secret"
_SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE topics (
    name TEXT PRIMARY KEY, id BLOB NOT NULL UNIQUE, partitions INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE deleted_topics (
    id BLOB PRIMARY KEY, name TEXT NOT NULL, partitions INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE configs (
    kind TEXT NOT NULL, resource TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL,
    PRIMARY KEY (kind, resource, name)
) WITHOUT ROWID;
"""
_ADDED = (
    """CREATE TABLE IF NOT EXISTS acls (
    resource_type INTEGER NOT NULL, resource_name TEXT NOT NULL, pattern_type INTEGER NOT NULL,
    principal TEXT NOT NULL, host TEXT NOT NULL, operation INTEGER NOT NULL, permission INTEGER NOT NULL,
    PRIMARY KEY (resource_type, resource_name, pattern_type, principal, host, operation, permission)
) WITHOUT ROWID""",
    f"INSERT OR IGNORE INTO facts (name, value) VALUES ('{_LOGIN_SECRET}', hex(randomblob(32)))",
)
"""What came later: a store that was made without it gets it when it is opened."""
_ACL_COLUMNS = "resource_type, resource_name, pattern_type, principal, host, operation, permission"
_TOUCH = """
INSERT INTO facts (name, value) VALUES ('checkpoints', '1') ON CONFLICT (name) DO UPDATE SET value = value + 1
"""
"""A commit that nobody reads. It has to change something: SQLite does not write a page that stays the same."""


class MetadataError(Exception):
    """The store cannot be used; the text says what to do about it."""


@dataclass(frozen=True, slots=True)
class StoredTopic:
    name: str
    id: bytes
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)


class WriteAheadLog:
    """SQLite's WAL as a file: only to sync it and to know its size. It is there while a database is open."""

    def __init__(self, database_path: str) -> None:
        self._folder, name = os.path.split(database_path)
        self._name = name + "-wal"
        self._guard = threading.Lock()
        self._file: File | None = None

    def sync(self) -> None:
        """Makes every commit so far durable. From any thread."""
        with self._guard:
            if self._file is None:
                disk = OsDisk(self._folder or ".")
                self._file = disk.open(self._name)
                disk.sync_directory()
            file = self._file
        file.sync()

    def size(self) -> int:
        try:
            return os.stat(os.path.join(self._folder, self._name)).st_size
        except FileNotFoundError:
            return 0

    def close(self) -> None:
        with self._guard:
            if self._file is not None:
                self._file.close()
                self._file = None


class MetadataStore:
    def __init__(self, path: Path | str = MEMORY) -> None:
        """Opens or makes the store: a file, or MEMORY for a broker that keeps nothing."""
        self._path = str(path)
        self._depth = 0
        self._commits = self._synced = 0
        self._wal = WriteAheadLog(self._path)
        self._guard = threading.Lock()
        """Held by whoever writes, and by a checkpoint while it starts the WAL over."""
        self.on_commit: Callable[[], None] | None = None
        """Called on the loop after each commit."""
        # The thread that opens it may not be the one that runs the event loop afterward.
        self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._prepare()
            self._begin()
        except (sqlite3.DatabaseError, KafkaError) as error:
            self._database.close()
            raise MetadataError(
                f"{self._path} cannot be read as metadata of a broker: {error}. "
                "Restore it from a backup, or use another directory"
            ) from error
        except MetadataError:
            self._database.close()
            raise
        self.cluster_id = self._fact("cluster_id")
        self.login_secret = bytes.fromhex(self._fact(_LOGIN_SECRET))
        """Random, the same for the life of the store, and shown to nobody."""

    def _begin(self) -> None:
        """Makes everything found or made so far durable; from here on commits of this connection do not sync."""
        if self._path == MEMORY:
            return
        with contextlib.suppress(sqlite3.OperationalError):  # a full disk: the WAL stays as it is
            self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._database.execute(_TOUCH)
        self._wal.sync()
        self._synced = self._commits
        self._database.execute("PRAGMA wal_autocheckpoint=0")
        self._database.execute("PRAGMA synchronous=NORMAL")

    def _prepare(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version > FORMAT_VERSION:
            raise MetadataError(
                f"{self._path} has format {version}, written by a newer Headrace; "
                f"this one reads up to {FORMAT_VERSION}. Use the newer version, or another directory"
            )
        if version == 0:
            with self.transaction():
                for statement in _SCHEMA.split(";"):
                    self._database.execute(statement)
                self._set_fact("cluster_id", new_cluster_id())
                self._set_fact("next_producer_id", "0")
                self._set_fact("changes", "0")
                self._database.execute(f"PRAGMA user_version={FORMAT_VERSION}")
        if self._missing():
            with self.transaction():
                for statement in _ADDED:
                    self._database.execute(statement)

    def _missing(self) -> bool:
        rows = self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        has_acls = "acls" in {name for (name,) in rows}
        return not has_acls or not self._has_fact(_LOGIN_SECRET)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside are made together, or none is. May be nested: the outermost decides.

        A disk that is full or fails is KAFKA_STORAGE_ERROR, and nothing has changed.
        """
        if self._depth:
            yield
            return
        self._depth += 1
        try:
            with self._guard:
                yield from self._attempt()
        finally:
            self._depth -= 1
        self._commits += 1
        if self.on_commit is not None:
            self.on_commit()

    def _attempt(self) -> Iterator[None]:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("UPDATE facts SET value = value + 1 WHERE name = 'changes'")
            self._database.execute("COMMIT")
        except BaseException as error:
            if self._database.in_transaction:
                with contextlib.suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._path}: {error}") from error
            raise

    @property
    def commits(self) -> int:
        """Since it was opened."""
        return self._commits

    @property
    def is_dirty(self) -> bool:
        """Whether there are commits that a power cut could still take back."""
        return self._synced < self._commits and self._path != MEMORY

    def sync(self) -> None:
        """Makes every commit so far durable. From a worker's thread; raises OSError."""
        commits = self._commits
        if self.is_dirty:
            self._wal.sync()
            self._synced = max(self._synced, commits)

    @property
    def wants_checkpoint(self) -> bool:
        return self._path != MEMORY and self._wal.size() > WAL_BYTES_MAX

    def checkpoint(self) -> None:
        """Moves the WAL into the database and starts it over. From a worker's thread; OSError if it fails.

        Writers wait only for the last part, which is short because the first has moved nearly all.
        """
        try:
            with contextlib.closing(sqlite3.connect(self._path, isolation_level=None)) as database:
                database.execute("PRAGMA synchronous=FULL")
                database.execute("PRAGMA wal_checkpoint(PASSIVE)")
                with self._guard:
                    (is_busy, *_) = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    database.execute(_TOUCH)
                    if not is_busy:
                        self._synced = self._commits
        except sqlite3.Error as error:
            raise OSError(f"{self._path} cannot be checkpointed: {error}") from error

    @property
    def changes(self) -> int:
        """How many transactions this store has seen since it was made."""
        return int(self._fact("changes"))

    def copied(self) -> sqlite3.Connection:
        """All of it as it is now, in memory; another thread may use and close it."""
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.backup(copy)
        return copy

    def close(self) -> None:
        """The last one to close moves the WAL into the database, with syncs as for any other checkpoint."""
        with contextlib.suppress(sqlite3.Error):  # closed before
            self._database.execute("PRAGMA synchronous=FULL")
        self._database.close()
        self._wal.close()

    def topics(self) -> list[StoredTopic]:
        configs = self.configs("topic")
        rows = self._database.execute("SELECT name, id, partitions FROM topics ORDER BY name")
        return [StoredTopic(name, id, partitions, configs.get(name, {})) for name, id, partitions in rows]

    def add_topic(self, topic: StoredTopic) -> None:
        with self.transaction():
            self._database.execute(
                "INSERT INTO topics (name, id, partitions) VALUES (?, ?, ?)",
                (topic.name, topic.id, topic.partitions),
            )
            self.set_configs("topic", topic.name, topic.configs)

    def set_partitions(self, name: str, partitions: int) -> None:
        with self.transaction():
            self._database.execute("UPDATE topics SET partitions = ? WHERE name = ?", (partitions, name))

    def delete_topic(self, name: str) -> None:
        with self.transaction():
            self._database.execute(
                "INSERT INTO deleted_topics (id, name, partitions) "
                "SELECT id, name, partitions FROM topics WHERE name = ?",
                (name,),
            )
            self._database.execute("DELETE FROM topics WHERE name = ?", (name,))
            self.set_configs("topic", name, {})

    def deleted_topics(self) -> list[StoredTopic]:
        """Topics whose directories may still be there."""
        rows = self._database.execute("SELECT name, id, partitions FROM deleted_topics ORDER BY name")
        return [StoredTopic(*row) for row in rows]

    def forget_deleted(self, *topic_ids: bytes) -> None:
        with self.transaction():
            self._database.executemany(
                "DELETE FROM deleted_topics WHERE id = ?", [(topic_id,) for topic_id in topic_ids]
            )

    def configs(self, kind: str) -> dict[str, dict[str, str]]:
        """All settings of one kind of resource (topic, broker, group), by the resource's name."""
        found: dict[str, dict[str, str]] = {}
        rows = self._database.execute("SELECT resource, name, value FROM configs WHERE kind = ?", (kind,))
        for resource, name, value in rows:
            found.setdefault(resource, {})[name] = value
        return found

    def set_configs(self, kind: str, name: str, configs: Mapping[str, str]) -> None:
        """Replaces all settings of one resource."""
        with self.transaction():
            self._database.execute("DELETE FROM configs WHERE kind = ? AND resource = ?", (kind, name))
            self._database.executemany(
                "INSERT INTO configs (kind, resource, name, value) VALUES (?, ?, ?, ?)",
                [(kind, name, key, value) for key, value in configs.items()],
            )

    def acls(self) -> list[Acl]:
        rows = self._database.execute(f"SELECT {_ACL_COLUMNS} FROM acls")
        return [acl_of(*row) for row in rows]

    def change_acls(self, *, add: Iterable[Acl] = (), remove: Iterable[Acl] = ()) -> None:
        places = ", ".join("?" * len(Acl._fields))
        with self.transaction():
            self._database.executemany(
                f"DELETE FROM acls WHERE ({_ACL_COLUMNS}) = ({places})", [tuple(acl) for acl in remove]
            )
            self._database.executemany(
                f"INSERT OR IGNORE INTO acls ({_ACL_COLUMNS}) VALUES ({places})",
                [tuple(acl) for acl in add],
            )

    def allocate_producer_ids(self, count: int) -> range:
        """Producer ids that no one has had and no one will have again, even after a crash."""
        assert count > 0
        with self.transaction():
            first = int(self._fact("next_producer_id"))
            self._set_fact("next_producer_id", str(first + count))
        return range(first, first + count)

    def _has_fact(self, name: str) -> bool:
        return self._database.execute("SELECT 1 FROM facts WHERE name = ?", (name,)).fetchone() is not None

    def _fact(self, name: str) -> str:
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return str(row[0])

    def _set_fact(self, name: str, value: str) -> None:
        self._database.execute("INSERT OR REPLACE INTO facts (name, value) VALUES (?, ?)", (name, value))


def new_uuid() -> bytes:
    """A random id: never one of Kafka's reserved ones (0 and 1), nor one whose text begins with a dash.

    Kafka draws again for the dash too, because its tools would take such an id for an option.
    """
    while True:
        candidate = uuid.uuid4().bytes
        if not uuid_text(candidate).startswith("-"):
            return candidate


def new_cluster_id() -> str:
    return uuid_text(new_uuid())
