"""`send(transaction=...)` and `send(unique=...)`: writes records into the outbox."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

from headrace.client.producing.record import RecordMetadata
from headrace.worker.errors import QueueError
from headrace.worker.transactions import postgres, sqlalchemy, sqlite
from headrace.worker.transactions.database import Database, run_steps, run_steps_async
from headrace.worker.transactions.statements import (
    OutboxRecord,
    Rows,
    Statement,
    Steps,
    write_record,
    write_unique,
)

T = TypeVar("T")
FOR_S_MAX = 3660 * 86_400
UNIQUE_MAX = 500
"""Characters of a unique key."""
_SYNC: dict[tuple[str, str], Callable[[Any, Statement], Rows]] = {
    ("sqlite3", "Connection"): sqlite.execute,
    ("psycopg", "Connection"): postgres.execute,
    ("sqlalchemy", "Session"): sqlalchemy.execute,
    ("sqlalchemy", "scoped_session"): sqlalchemy.execute,
    ("sqlalchemy", "Connection"): sqlalchemy.execute,
}
_ASYNC: dict[tuple[str, str], Callable[[Any, Statement], Awaitable[Rows]]] = {
    ("psycopg", "AsyncConnection"): postgres.execute_async,
    ("asyncpg", "Connection"): postgres.execute_asyncpg,
    ("asyncpg", "PoolConnectionProxy"): postgres.execute_asyncpg,
    ("sqlalchemy", "AsyncSession"): sqlalchemy.execute_async,
    ("sqlalchemy", "async_scoped_session"): sqlalchemy.execute_async,
    ("sqlalchemy", "AsyncConnection"): sqlalchemy.execute_async,
}


class Stored(RecordMetadata):
    """What `send` returns for a record that is in the outbox, from where it is sent. Its partition and offset are -1.

    `is_duplicate`: there was a record of the same unique key, and nothing was written.
    """

    is_duplicate: bool = False

    @classmethod
    def of(cls, topic: str, is_written: bool) -> "Stored":
        stored = cls(topic, -1, -1)
        stored.is_duplicate = not is_written
        return stored


def store_steps(
    record: OutboxRecord, topic: str, unique: str | None, for_: float | timedelta | None, now_ms: int
) -> Callable[[], Steps[bool]]:
    """What writes the record. `topic` is the one that the user has named. ValueError says what is wrong."""
    if unique is None:
        if for_ is not None:
            raise ValueError(f"for_={for_!r} needs unique=: give the key that must be unique")
        return lambda: _write(record)
    if not isinstance(unique, str) or not 0 < len(unique) <= UNIQUE_MAX:
        raise ValueError(f"unique must be a string of 1 to {UNIQUE_MAX} characters, got {unique!r}")
    seconds = for_.total_seconds() if isinstance(for_, timedelta) else for_
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= FOR_S_MAX:
        raise ValueError(f"for_ must be seconds or a timedelta, > 0 and at most ten years, got {for_!r}")
    until_ms = now_ms + round(seconds * 1000)
    return lambda: write_unique(record, topic, unique, now_ms, until_ms)


def _write(record: OutboxRecord) -> Steps[bool]:
    yield from write_record(record)
    return True


def store(steps: Callable[[], Steps[bool]], transaction: Any, database: Database | None) -> bool:
    if transaction is None:
        return _needed(database).transact(steps)
    execute = _SYNC.get(_kind(transaction))
    if execute is None:
        hint = "use send_async" if _kind(transaction) in _ASYNC else _POSSIBLE
        raise TypeError(f"send cannot use transaction={transaction!r}: {hint}")
    _require_transaction(transaction)
    return run_steps(lambda statement: execute(transaction, statement), steps())


async def store_async(steps: Callable[[], Steps[bool]], transaction: Any, database: Database | None) -> bool:
    if transaction is None:
        return await _needed(database).transact_async(steps)
    kind = _kind(transaction)
    if (
        kind in _SYNC
    ):  # such as a task's sqlite3.Connection; it blocks no longer than any other statement on it
        return store(steps, transaction, database)
    execute = _ASYNC.get(kind)
    if execute is None:
        raise TypeError(f"transaction={transaction!r} cannot be used: {_POSSIBLE}")
    _require_transaction(transaction)
    return await run_steps_async(lambda statement: execute(transaction, statement), steps())


_POSSIBLE = "give a connection of sqlite3, psycopg or asyncpg, or a session or connection of SQLAlchemy"


def _needed(database: Database | None) -> Database:
    if database is None:
        raise QueueError(
            "unique= needs a database: give transaction= a connection, or declare Queue(..., database=...)"
        )
    return database


def _kind(connection: Any) -> tuple[str, str]:
    """Package and class, without importing any of them."""
    kinds = [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(connection).__mro__]
    return next((kind for kind in kinds if kind in _SYNC or kind in _ASYNC), ("", ""))


def _require_transaction(connection: Any) -> None:
    """Without one, the record would be written at once, whatever becomes of the user's data."""
    package, kind = _kind(connection)
    if package == "sqlite3":
        has_none = connection.isolation_level is None and not connection.in_transaction
    elif package == "psycopg":
        has_none = connection.autocommit and connection.info.transaction_status == 0
    elif package == "asyncpg":
        has_none = not connection.is_in_transaction()
    else:
        has_none = False  # SQLAlchemy begins by itself
    if has_none:
        raise QueueError(
            f"transaction= got a {package} {kind} without a transaction: begin one before, so that the record is "
            "stored together with your data"
        )
