"""The metadata store: topics, their ids and settings, altered broker and group settings, ids handed out.

Theory of operation. One SQLite database in the data directory, in WAL mode with synchronous=FULL: when a
method that changes something returns, the change survives a power cut; when it raises, nothing has changed.
All use is from one thread. Deleting a topic takes two steps because directories cannot be part of a
transaction: `delete_topic` moves it to the deleted topics, whoever owns the directories removes them,
`forget_deleted` ends it. A crash in between leaves the topic in `deleted_topics()`, and the next start
finishes the work.
"""

import sqlite3
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import uuid_text

FORMAT_VERSION = 1
MEMORY = ":memory:"

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


class MetadataError(Exception):
    """The store cannot be used; the text says what to do about it."""


@dataclass(frozen=True, slots=True)
class TopicRow:
    name: str
    id: bytes
    partitions: int
    configs: dict[str, str] = field(default_factory=dict)


class MetadataStore:
    def __init__(self, path: Path | str = MEMORY) -> None:
        """Opens or makes the store: a file, or MEMORY for a broker that keeps nothing."""
        self._path = str(path)
        self._depth = 0
        # The thread that opens it may not be the one that runs the event loop afterwards.
        self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            self._database.execute("PRAGMA journal_mode=WAL")
            self._database.execute("PRAGMA synchronous=FULL")
            self._prepare()
        except (sqlite3.DatabaseError, KafkaError) as error:
            self._database.close()
            raise MetadataError(
                f"{self._path} cannot be read as metadata of a broker: {error}. "
                "Bring it back from a backup, or use another directory"
            ) from error
        except MetadataError:
            self._database.close()
            raise
        self.cluster_id = self._fact("cluster_id")

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

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside become durable together, or none does. May be nested: the outermost decides.

        A disk that is full or fails is KAFKA_STORAGE_ERROR, and nothing has changed.
        """
        if self._depth:
            yield
            return
        self._depth += 1
        try:
            self._database.execute("BEGIN IMMEDIATE")
            yield
            self._database.execute("UPDATE facts SET value = value + 1 WHERE name = 'changes'")
            self._database.execute("COMMIT")
        except BaseException as error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            if isinstance(error, sqlite3.OperationalError):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._path}: {error}") from error
            raise
        finally:
            self._depth -= 1

    @property
    def changes(self) -> int:
        """How many transactions this store has seen since it was made."""
        return int(self._fact("changes"))

    def close(self) -> None:
        self._database.close()

    def topics(self) -> list[TopicRow]:
        configs = self.configs("topic")
        rows = self._database.execute("SELECT name, id, partitions FROM topics ORDER BY name")
        return [TopicRow(name, id, partitions, configs.get(name, {})) for name, id, partitions in rows]

    def add_topic(self, topic: TopicRow) -> None:
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

    def deleted_topics(self) -> list[TopicRow]:
        """Topics whose directories may still be there."""
        rows = self._database.execute("SELECT name, id, partitions FROM deleted_topics ORDER BY name")
        return [TopicRow(*row) for row in rows]

    def forget_deleted(self, topic_id: bytes) -> None:
        with self.transaction():
            self._database.execute("DELETE FROM deleted_topics WHERE id = ?", (topic_id,))

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

    def allocate_producer_ids(self, count: int) -> range:
        """Producer ids that no one has had and no one will have again, even after a crash."""
        assert count > 0
        with self.transaction():
            first = int(self._fact("next_producer_id"))
            self._set_fact("next_producer_id", str(first + count))
        return range(first, first + count)

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
