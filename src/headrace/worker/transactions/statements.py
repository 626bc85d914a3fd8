"""The tables and every statement on them, as steps that drivers run.

Steps are generators: they yield a `Statement`, get its rows, and return their result. So the same rules run on sqlite3,
psycopg, asyncpg and SQLAlchemy, with and without asyncio. Parameters are written as `:name`.
"""

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from headrace.base.ranges import consecutive
from headrace.wire.dead_letter import MESSAGE_ID
from headrace.worker.bodies import Header

TABLES = (
    "headrace_inbox",
    "headrace_inbox_start",
    "headrace_inbox_message",
    "headrace_outbox",
    "headrace_relay",
    "headrace_unique",
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS headrace_inbox (
    group_id TEXT NOT NULL, topic_id TEXT NOT NULL, topic_partition INTEGER NOT NULL, record_offset BIGINT NOT NULL,
    PRIMARY KEY (group_id, topic_id, topic_partition, record_offset));
CREATE TABLE IF NOT EXISTS headrace_inbox_start (
    group_id TEXT NOT NULL, topic_id TEXT NOT NULL, topic_partition INTEGER NOT NULL, start_offset BIGINT NOT NULL,
    PRIMARY KEY (group_id, topic_id, topic_partition));
CREATE TABLE IF NOT EXISTS headrace_inbox_message (
    group_id TEXT NOT NULL, topic TEXT NOT NULL, message_id TEXT NOT NULL, done_ms BIGINT NOT NULL,
    PRIMARY KEY (group_id, topic, message_id));
CREATE TABLE IF NOT EXISTS headrace_outbox (
    seq {serial}, group_id TEXT NOT NULL, topic TEXT NOT NULL, topic_partition INTEGER,
    message_key {bytes}, message_value {bytes}, headers {bytes} NOT NULL);
CREATE INDEX IF NOT EXISTS headrace_outbox_topic ON headrace_outbox (group_id, topic, seq);
CREATE TABLE IF NOT EXISTS headrace_relay (
    group_id TEXT NOT NULL PRIMARY KEY, relay TEXT NOT NULL, until_ms BIGINT NOT NULL);
CREATE TABLE IF NOT EXISTS headrace_unique (
    group_id TEXT NOT NULL, topic TEXT NOT NULL, unique_key TEXT NOT NULL, until_ms BIGINT NOT NULL,
    PRIMARY KEY (group_id, topic, unique_key));
CREATE INDEX IF NOT EXISTS headrace_unique_until ON headrace_unique (until_ms)
"""
_TYPES = {
    "sqlite": {"serial": "INTEGER PRIMARY KEY AUTOINCREMENT", "bytes": "BLOB"},
    "postgresql": {"serial": "BIGSERIAL PRIMARY KEY", "bytes": "BYTEA"},
}
_OF_THIS = {
    "sqlite": "",  # where a second COMMIT fails
    "postgresql": " AND CAST(xmin AS TEXT) = CAST(mod(txid_current(), 4294967296) AS TEXT)",
}
"""That a row was inserted by this transaction."""
_CREATE_LOCK = 0x48656164
"""Two sessions of PostgreSQL that create the same table at once disturb each other, even with IF NOT EXISTS."""
GONE_PARTITION = -1
"""Of the row that says since when (ms) a topic does not exist, in place of a start offset."""
_HEADERS = msgspec.msgpack.Decoder(list[tuple[str, bytes | None]])

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Statement:
    text: str
    parameters: Mapping[str, Any]


Rows = Sequence[Sequence[Any]]
Steps = Generator[Statement, Rows, T]


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A delivered record, as its group's inbox knows it."""

    group_id: str
    topic: str
    topic_id: str
    partition: int
    offset: int
    message_id: str | None
    """From its header `headrace.id`."""


@dataclass(frozen=True, slots=True)
class OutboxRecord:
    group_id: str
    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    seq: int = 0


def message_id_of(headers: Iterable[Header]) -> str | None:
    """The last one; None for a record that was not sent by a relay."""
    values = [value for name, value in headers if name == MESSAGE_ID and value]
    return values[-1].decode("utf-8", "replace") if values else None


def without_message_id(headers: Iterable[Header]) -> tuple[Header, ...]:
    return tuple(header for header in headers if header[0] != MESSAGE_ID)


def with_message_id(headers: Iterable[Header], message_id: str) -> tuple[Header, ...]:
    return (*without_message_id(headers), (MESSAGE_ID, message_id.encode()))


def schema(dialect: str) -> list[str]:
    """The statements that create what is missing."""
    return [text.strip() for text in _SCHEMA.format(**_TYPES[dialect]).split(";")]


def create_tables(dialect: str) -> Steps[None]:
    if dialect == "postgresql":
        yield Statement("SELECT pg_advisory_xact_lock(:number)", {"number": _CREATE_LOCK})
    for text in schema(dialect):
        yield Statement(text, {})


def check_tables() -> Steps[None]:
    """Raises the driver's error if a table is missing."""
    for table in TABLES:
        yield Statement(f"SELECT 1 FROM {table} LIMIT 1", {})


def claim(place: RecordPlace, now_ms: int) -> Steps[bool]:
    """The first statements of a run. False: the record is finished, whether its row is still there or not.

    In this order. If the insertion finds no row because pruning has deleted it, the start that pruning has written is
    there as well: it is the same transaction, and the insertion waits for it.
    """
    where = _where(place)
    if not (yield Statement(
        "INSERT INTO headrace_inbox (group_id, topic_id, topic_partition, record_offset) "
        "VALUES (:group_id, :topic_id, :topic_partition, :record_offset) "
        "ON CONFLICT DO NOTHING RETURNING record_offset",
        where,
    )):  # fmt: skip
        return False
    del where["record_offset"]
    started = yield Statement(
        "SELECT start_offset FROM headrace_inbox_start "
        "WHERE group_id = :group_id AND topic_id = :topic_id AND topic_partition = :topic_partition",
        where,
    )
    if started and place.offset < started[0][0]:
        return False
    if place.message_id is None:
        return True
    return bool((yield Statement(
        "INSERT INTO headrace_inbox_message (group_id, topic, message_id, done_ms) "
        "VALUES (:group_id, :topic, :message_id, :done_ms) ON CONFLICT DO NOTHING RETURNING done_ms",
        {"group_id": place.group_id, "topic": place.topic, "message_id": place.message_id, "done_ms": now_ms},
    )))  # fmt: skip


def is_claimed(place: RecordPlace, dialect: str) -> Steps[bool]:
    """The last statement before the commit. It fails, or finds nothing, if the transaction has been ended."""
    rows = yield Statement(
        "SELECT record_offset FROM headrace_inbox WHERE group_id = :group_id AND topic_id = :topic_id "
        f"AND topic_partition = :topic_partition AND record_offset = :record_offset{_OF_THIS[dialect]}",
        _where(place),
    )
    return bool(rows)


def replace_by_copy(place: RecordPlace, now_ms: int, copy: OutboxRecord) -> Steps[bool]:
    """Finishes a record and writes its copy into the outbox. False: the record is finished already."""
    if not (yield from claim(place, now_ms)):
        return False
    yield from write_record(copy)
    return True


def prune(group_id: str, topic_id: str, starts: Mapping[int, int], messages_before_ms: int) -> Steps[None]:
    """Forgets what the group is past. `starts` are its start offsets by partition."""
    for partition, start in sorted(starts.items()):
        where = {
            "group_id": group_id,
            "topic_id": topic_id,
            "topic_partition": partition,
            "start_offset": start,
        }
        yield Statement(
            "INSERT INTO headrace_inbox_start (group_id, topic_id, topic_partition, start_offset) "
            "VALUES (:group_id, :topic_id, :topic_partition, :start_offset) "
            "ON CONFLICT (group_id, topic_id, topic_partition) DO UPDATE SET start_offset = excluded.start_offset "
            "WHERE headrace_inbox_start.start_offset < excluded.start_offset",
            where,
        )
        yield Statement(
            "DELETE FROM headrace_inbox WHERE group_id = :group_id AND topic_id = :topic_id "
            "AND topic_partition = :topic_partition AND record_offset < :start_offset",
            where,
        )
    yield Statement(
        "DELETE FROM headrace_inbox_message WHERE group_id = :group_id AND done_ms < :before",
        {"group_id": group_id, "before": messages_before_ms},
    )


def inbox_topic_ids(group_id: str) -> Steps[set[str]]:
    """The topics of which the inbox knows something. Each costs one look at the index, however many rows it has."""
    rows = yield Statement(
        "WITH RECURSIVE ids(topic_id) AS ("
        "SELECT MIN(topic_id) FROM headrace_inbox WHERE group_id = :group_id "
        "UNION ALL SELECT (SELECT MIN(topic_id) FROM headrace_inbox WHERE group_id = :group_id "
        "AND topic_id > ids.topic_id) FROM ids WHERE ids.topic_id IS NOT NULL) "
        "SELECT topic_id FROM ids WHERE topic_id IS NOT NULL",
        {"group_id": group_id},
    )
    starts = yield Statement(
        "SELECT DISTINCT topic_id FROM headrace_inbox_start WHERE group_id = :group_id",
        {"group_id": group_id},
    )
    return {row[0] for row in (*rows, *starts)}


def forget_gone(group_id: str, topic_id: str, now_ms: int, before_ms: int) -> Steps[bool]:
    """A topic does not exist: notes since when, and forgets it when that was before the given time."""
    where = {"group_id": group_id, "topic_id": topic_id}
    yield Statement(
        "INSERT INTO headrace_inbox_start (group_id, topic_id, topic_partition, start_offset) "
        f"VALUES (:group_id, :topic_id, {GONE_PARTITION}, :now_ms) ON CONFLICT DO NOTHING",
        {**where, "now_ms": now_ms},
    )
    if not (yield Statement(
        "SELECT start_offset FROM headrace_inbox_start WHERE group_id = :group_id AND topic_id = :topic_id "
        f"AND topic_partition = {GONE_PARTITION} AND start_offset < :before_ms",
        {**where, "before_ms": before_ms},
    )):  # fmt: skip
        return False
    for table in ("headrace_inbox", "headrace_inbox_start"):
        yield Statement(f"DELETE FROM {table} WHERE group_id = :group_id AND topic_id = :topic_id", where)
    return True


def note_existing(group_id: str, topic_id: str) -> Steps[None]:
    yield Statement(
        "DELETE FROM headrace_inbox_start WHERE group_id = :group_id AND topic_id = :topic_id "
        f"AND topic_partition = {GONE_PARTITION}",
        {"group_id": group_id, "topic_id": topic_id},
    )


def write_record(record: OutboxRecord) -> Steps[None]:
    yield Statement(
        "INSERT INTO headrace_outbox (group_id, topic, topic_partition, message_key, message_value, headers) "
        "VALUES (:group_id, :topic, :topic_partition, :message_key, :message_value, :headers)",
        {
            "group_id": record.group_id,
            "topic": record.topic,
            "topic_partition": record.partition,
            "message_key": record.key,
            "message_value": record.value,
            "headers": msgspec.msgpack.encode(list(record.headers)),
        },
    )


def write_unique(record: OutboxRecord, topic: str, key: str, now_ms: int, until_ms: int) -> Steps[bool]:
    """Writes the record unless one of this key was written for `topic`, and its time is not over."""
    names = {
        "group_id": record.group_id,
        "topic": topic,
        "unique_key": key,
        "now_ms": now_ms,
        "until_ms": until_ms,
    }
    if not (yield Statement(
        "INSERT INTO headrace_unique (group_id, topic, unique_key, until_ms) "
        "VALUES (:group_id, :topic, :unique_key, :until_ms) "
        "ON CONFLICT (group_id, topic, unique_key) DO UPDATE SET until_ms = excluded.until_ms "
        "WHERE headrace_unique.until_ms <= :now_ms RETURNING until_ms",
        names,
    )):  # fmt: skip
        return False
    yield from write_record(record)
    return True


def lead(group_id: str, relay: str, now_ms: int, until_ms: int) -> Steps[bool]:
    """Makes this relay the group's only one until then, or says that another one is."""
    rows = yield Statement(
        "INSERT INTO headrace_relay (group_id, relay, until_ms) VALUES (:group_id, :relay, :until_ms) "
        "ON CONFLICT (group_id) DO UPDATE SET relay = excluded.relay, until_ms = excluded.until_ms "
        "WHERE headrace_relay.relay = excluded.relay OR headrace_relay.until_ms <= :now_ms RETURNING until_ms",
        {"group_id": group_id, "relay": relay, "now_ms": now_ms, "until_ms": until_ms},
    )
    return bool(rows)


def resign(group_id: str, relay: str) -> Steps[None]:
    yield Statement(
        "DELETE FROM headrace_relay WHERE group_id = :group_id AND relay = :relay",
        {"group_id": group_id, "relay": relay},
    )


def next_topics(group_id: str, after: str, limit: int) -> Steps[list[str]]:
    """Topics of the records in the outbox, in order. Each costs one look at the index, however many records it has."""
    rows = yield Statement(
        "WITH RECURSIVE topics(topic) AS ("
        "SELECT MIN(topic) FROM headrace_outbox WHERE group_id = :group_id AND topic > :after "
        "UNION ALL SELECT (SELECT MIN(topic) FROM headrace_outbox WHERE group_id = :group_id "
        "AND topic > topics.topic) FROM topics WHERE topics.topic IS NOT NULL) "
        "SELECT topic FROM topics WHERE topic IS NOT NULL LIMIT :limit",
        {"group_id": group_id, "after": after, "limit": limit},
    )
    return [row[0] for row in rows]


def next_records(group_id: str, limits: Mapping[str, int]) -> Steps[list[OutboxRecord]]:
    """The first records of each topic, at most so many."""
    records: list[OutboxRecord] = []
    for topic, limit in limits.items():
        rows = yield Statement(
            "SELECT seq, topic, topic_partition, message_key, message_value, headers FROM headrace_outbox "
            "WHERE group_id = :group_id AND topic = :topic ORDER BY seq LIMIT :limit",
            {"group_id": group_id, "topic": topic, "limit": limit},
        )
        records += [_read(group_id, row) for row in rows]
    return records


def delete_records(group_id: str, seqs: Iterable[int]) -> Steps[None]:
    for first, last in consecutive(sorted(seqs)):
        yield Statement(
            "DELETE FROM headrace_outbox WHERE group_id = :group_id AND seq BETWEEN :first AND :last",
            {"group_id": group_id, "first": first, "last": last},
        )


def forget_unique(now_ms: int) -> Steps[None]:
    yield Statement("DELETE FROM headrace_unique WHERE until_ms <= :now_ms", {"now_ms": now_ms})


def count_records(group_id: str) -> Steps[int]:
    rows = yield Statement(
        "SELECT COUNT(*) FROM headrace_outbox WHERE group_id = :group_id", {"group_id": group_id}
    )
    return int(rows[0][0])


def _where(place: RecordPlace) -> dict[str, Any]:
    return {
        "group_id": place.group_id,
        "topic_id": place.topic_id,
        "topic_partition": place.partition,
        "record_offset": place.offset,
    }


def _read(group_id: str, row: Sequence[Any]) -> OutboxRecord:
    seq, topic, partition, key, value, headers = row
    return OutboxRecord(
        group_id,
        topic,
        partition,
        None if key is None else bytes(key),
        None if value is None else bytes(value),
        _HEADERS.decode(bytes(headers)),
        seq,
    )
