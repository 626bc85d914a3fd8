"""`SqliteDatabase`: once in an SQLite file, by Python's own sqlite3."""

import asyncio
import contextlib
import random
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

from headrace.base.backoff import RetryBackoff
from headrace.worker.errors import QueueError
from headrace.worker.transactions.database import (
    Database,
    IdleConnections,
    LoopConnections,
    TaskTransactionError,
)
from headrace.worker.transactions.statements import Rows, Statement

VERSION_MIN = (3, 35, 0)
"""The first with RETURNING."""
WAIT_S, WAIT_S_MAX = 0.002, 0.1
"""How often a coroutine tries to get the lock that another process has."""


class TaskCursor(sqlite3.Cursor):
    def executescript(self, script: str, /) -> Any:
        if self.connection.in_transaction:  # else it is called by `on_connect`
            raise TaskTransactionError(
                "executescript() commits before it runs, but the worker commits when the task returns: call "
                "execute() for each statement"
            )
        return super().executescript(script)


class TaskConnection(sqlite3.Connection):
    """What the function gets: a connection whose transaction is the worker's to end."""

    def cursor(self, factory: Any = TaskCursor) -> Any:
        return super().cursor(factory)

    def executescript(self, script: str, /) -> Any:
        return TaskCursor(self).executescript(script)

    def commit(self) -> None:
        raise TaskTransactionError("a task must not call commit(): the worker commits when the task returns")

    def rollback(self) -> None:
        raise TaskTransactionError(
            "a task must not call rollback(): raise an exception, and the worker rolls back"
        )

    def close(self) -> None:
        raise TaskTransactionError("a task must not call close(): the worker uses the connection again")

    def __exit__(self, *_: Any) -> Any:
        return False  # `with connection:` ends a block here, not the transaction

    def really_close(self) -> None:
        super().close()


class SqliteDatabase(Database):
    """An SQLite file. Functions get a `sqlite3.Connection`.

    `on_connect` is called with each new connection, for PRAGMAs and row factories. SQLite has one writer at a time:
    tasks wait for each other, for `timeout` seconds at most.
    """

    dialect = "sqlite"
    connection_types: ClassVar[dict[bool, tuple[str, ...]]] = {
        False: ("sqlite3.Connection",),
        True: ("sqlite3.Connection",),
    }

    def __init__(
        self,
        path: str | Path,
        *,
        timeout: float = 30.0,
        on_connect: Callable[[sqlite3.Connection], object] | None = None,
    ) -> None:
        if not str(path) or str(path) == ":memory:":
            raise QueueError(f"SqliteDatabase needs a file, got {str(path)!r}: it opens several connections")
        if not timeout > 0:
            raise QueueError(f"SqliteDatabase: timeout must be > 0 seconds, got {timeout}")
        if sqlite3.sqlite_version_info < VERSION_MIN:
            raise QueueError(f"SQLite {sqlite3.sqlite_version} is too old: 3.35 or newer is needed")
        self._path = str(path)
        self._timeout = timeout
        self._on_connect = on_connect
        self._idle: IdleConnections[TaskConnection] = IdleConnections()
        self._async_idle: LoopConnections[TaskConnection] = LoopConnections()
        self._lock: asyncio.Lock | None = None
        self._lock_loop: asyncio.AbstractEventLoop | None = None

    @property
    def name(self) -> str:
        return self._path

    @contextlib.contextmanager
    def begin(self) -> Iterator["SqliteTransaction"]:
        connection = self._idle.take() or self._connect(self._timeout)
        try:
            connection.execute("BEGIN IMMEDIATE")
            yield SqliteTransaction(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.really_close()  # which undoes it
            raise
        self._idle.give(connection)

    @contextlib.asynccontextmanager
    async def begin_async(self) -> AsyncIterator["AsyncSqliteTransaction"]:
        """One at a time on an event loop: a second one that waited for the first's lock would block the loop."""
        async with self._loop_lock():
            connection = self._async_idle.take() or self._connect(0)
            try:
                await self._when_free(connection, "BEGIN IMMEDIATE")
                yield AsyncSqliteTransaction(connection)
                await self._when_free(connection, "COMMIT")
            except BaseException:
                connection.really_close()
                raise
            self._async_idle.give(connection)

    def close(self) -> None:
        for connection in self._idle.take_all():
            connection.really_close()

    async def close_async(self) -> None:
        for connection in self._async_idle.take_all():
            connection.really_close()

    def _connect(self, timeout: float) -> TaskConnection:
        try:
            connection = sqlite3.connect(
                self._path,
                timeout=timeout,
                isolation_level=None,
                check_same_thread=False,
                factory=TaskConnection,
            )
        except sqlite3.OperationalError as error:
            raise QueueError(f"the database {self._path} cannot be opened: {error}") from error
        if self._on_connect is not None:
            self._on_connect(connection)
        return connection

    def _loop_lock(self) -> asyncio.Lock:
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock_loop is not loop:
            self._lock, self._lock_loop = asyncio.Lock(), loop
        return self._lock

    async def _when_free(self, connection: sqlite3.Connection, text: str) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout
        waits = RetryBackoff(1_000 * WAIT_S, 1_000 * WAIT_S_MAX, random.random)
        while True:
            try:
                connection.execute(text)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or loop.time() > deadline:
                    raise
            await asyncio.sleep(waits.after_failure() / 1000)


class SqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    def execute(self, statement: Statement) -> Rows:
        return execute(self.connection, statement)

    def flush(self) -> None:
        pass


class AsyncSqliteTransaction:
    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    async def execute(self, statement: Statement) -> Rows:
        return execute(self.connection, statement)

    async def flush(self) -> None:
        pass


def execute(connection: sqlite3.Connection, statement: Statement) -> Rows:
    cursor = connection.cursor()
    cursor.row_factory = None  # a row of the user's factory may have no order
    try:
        return cursor.execute(statement.text, dict(statement.parameters)).fetchall()
    finally:
        cursor.close()
