"""`PostgresDatabase` by psycopg, and `AsyncpgDatabase` by asyncpg: once in PostgreSQL."""

import contextlib
import re
import sys
from collections.abc import AsyncIterator, Iterator
from functools import lru_cache
from typing import Any, ClassVar

from headrace.worker.errors import QueueError
from headrace.worker.transactions.database import Database, IdleConnections, LoopConnections
from headrace.worker.transactions.statements import Rows, Statement

_PARAMETER = re.compile(r":([a-z_]+)")
KEEPALIVE = {"tcp_keepalives_idle": "10", "tcp_keepalives_interval": "5", "tcp_keepalives_count": "3"}
"""A server that does not notice a dead worker keeps its transaction open, and the next run of its record waiting."""
KEEPALIVE_OPTIONS = " ".join(f"-c {name}={value}" for name, value in KEEPALIVE.items())


class PostgresDatabase(Database):
    """PostgreSQL by psycopg 3. Functions get a `psycopg.Connection`, coroutines a `psycopg.AsyncConnection`.

    `conninfo` is a connection string or URL; keyword arguments go to `psycopg.connect`. Transactions are READ
    COMMITTED.
    """

    dialect = "postgresql"
    connection_types: ClassVar[dict[bool, tuple[str, ...]]] = {
        False: ("psycopg.Connection",),
        True: ("psycopg.AsyncConnection",),
    }

    def __init__(self, conninfo: str = "", **kwargs: Any) -> None:
        try:
            import psycopg
        except ImportError as error:
            raise _missing("PostgresDatabase", "psycopg", "postgres", error) from error
        if "autocommit" in kwargs:
            raise QueueError(
                "PostgresDatabase does not take autocommit: the worker begins and commits transactions"
            )
        parsed = psycopg.conninfo.conninfo_to_dict(conninfo, **kwargs_of_conninfo(kwargs))
        self._name = f"{parsed.get('host') or 'localhost'}/{parsed.get('dbname') or ''}"
        options = f"{KEEPALIVE_OPTIONS} {parsed.get('options') or ''}".strip()
        self._conninfo = conninfo
        self._kwargs = {**kwargs, "autocommit": True, "options": options}
        self._idle: IdleConnections[psycopg.Connection[Any]] = IdleConnections()
        self._async_idle: LoopConnections[psycopg.AsyncConnection[Any]] = LoopConnections()

    @property
    def name(self) -> str:
        return self._name

    @contextlib.contextmanager
    def begin(self) -> Iterator["PsycopgTransaction"]:
        connection, transaction = self._begun()
        try:
            yield PsycopgTransaction(connection)
            transaction.__exit__(None, None, None)
        except BaseException:
            try:
                transaction.__exit__(*sys.exc_info())
                self._idle.give(connection)
            except Exception:
                connection.close()
            raise
        self._idle.give(connection)

    def _begun(self) -> tuple[Any, Any]:
        """A connection whose transaction has begun. One that was lost while it was idle is replaced."""
        import psycopg

        while (idle := self._idle.take()) is not None:
            try:
                return idle, _entered(idle)
            except psycopg.Error:
                idle.close()
        connection = psycopg.connect(self._conninfo, **self._kwargs)
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        return connection, _entered(connection)

    @contextlib.asynccontextmanager
    async def begin_async(self) -> AsyncIterator["AsyncPsycopgTransaction"]:
        connection, transaction = await self._begun_async()
        try:
            yield AsyncPsycopgTransaction(connection)
            await transaction.__aexit__(None, None, None)
        except BaseException:
            try:
                await transaction.__aexit__(*sys.exc_info())
                self._async_idle.give(connection)
            except BaseException:
                await connection.close()
            raise
        self._async_idle.give(connection)

    async def _begun_async(self) -> tuple[Any, Any]:
        import psycopg

        while (idle := self._async_idle.take()) is not None:
            try:
                return idle, await _entered_async(idle)
            except psycopg.Error:
                await idle.close()
        connection = await psycopg.AsyncConnection.connect(self._conninfo, **self._kwargs)
        await connection.set_isolation_level(psycopg.IsolationLevel.READ_COMMITTED)
        return connection, await _entered_async(connection)

    def close(self) -> None:
        for connection in self._idle.take_all():
            connection.close()

    async def close_async(self) -> None:
        for connection in self._async_idle.take_all():
            await connection.close()


def _entered(connection: Any) -> Any:
    transaction = connection.transaction()
    transaction.__enter__()
    return transaction


async def _entered_async(connection: Any) -> Any:
    transaction = connection.transaction()
    await transaction.__aenter__()
    return transaction


class PsycopgTransaction:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def execute(self, statement: Statement) -> Rows:
        return execute(self.connection, statement)

    def flush(self) -> None:
        pass


class AsyncPsycopgTransaction:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def execute(self, statement: Statement) -> Rows:
        return await execute_async(self.connection, statement)

    async def flush(self) -> None:
        pass


def execute(connection: Any, statement: Statement) -> Rows:
    from psycopg.rows import tuple_row

    with connection.cursor(row_factory=tuple_row) as cursor:
        cursor.execute(for_psycopg(statement.text), statement.parameters)
        rows: Rows = cursor.fetchall() if cursor.description is not None else []
    return rows


async def execute_async(connection: Any, statement: Statement) -> Rows:
    from psycopg.rows import tuple_row

    async with connection.cursor(row_factory=tuple_row) as cursor:
        await cursor.execute(for_psycopg(statement.text), statement.parameters)
        rows: Rows = await cursor.fetchall() if cursor.description is not None else []
    return rows


@lru_cache(maxsize=256)
def for_psycopg(text: str) -> str:
    return _PARAMETER.sub(r"%(\1)s", text)


class AsyncpgDatabase(Database):
    """PostgreSQL by asyncpg, for coroutines. Functions get an `asyncpg.Connection`.

    `dsn` and keyword arguments go to `asyncpg.connect`. Transactions are READ COMMITTED.
    """

    dialect = "postgresql"
    connection_types: ClassVar[dict[bool, tuple[str, ...]]] = {True: ("asyncpg.Connection",)}
    is_async = True

    def __init__(self, dsn: str | None = None, **kwargs: Any) -> None:
        try:
            import asyncpg  # noqa: F401
        except ImportError as error:
            raise _missing("AsyncpgDatabase", "asyncpg", "asyncpg", error) from error
        self._dsn = dsn
        settings = {**KEEPALIVE, **kwargs.pop("server_settings", {})}
        self._kwargs = {**kwargs, "server_settings": settings}
        self._idle: LoopConnections[Any] = LoopConnections()

    @property
    def name(self) -> str:
        place = (self._dsn or "").rpartition("@")[2].partition("?")[0]
        return place or f"{self._kwargs.get('host', 'localhost')}/{self._kwargs.get('database', '')}"

    @contextlib.asynccontextmanager
    async def begin_async(self) -> AsyncIterator["AsyncpgTransaction"]:
        connection, transaction = await self._begun()
        try:
            yield AsyncpgTransaction(connection)
            await transaction.commit()
        except BaseException as error:
            await self._undo(connection, transaction, is_cut=not isinstance(error, Exception))
            raise
        self._idle.give(connection)

    async def _undo(self, connection: Any, transaction: Any, *, is_cut: bool) -> None:
        try:
            if is_cut or connection.is_closed():
                raise ConnectionError
            await transaction.rollback()
            self._idle.give(connection)
        except Exception:
            connection.terminate()

    async def _begun(self) -> tuple[Any, Any]:
        import asyncpg

        while (connection := self._idle.take()) is not None:
            transaction = connection.transaction(isolation="read_committed")
            try:
                await transaction.start()
                return connection, transaction
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
                connection.terminate()
        connection = await asyncpg.connect(self._dsn, **self._kwargs)
        transaction = connection.transaction(isolation="read_committed")
        await transaction.start()
        return connection, transaction

    async def close_async(self) -> None:
        for connection in self._idle.take_all():
            await connection.close()


class AsyncpgTransaction:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def execute(self, statement: Statement) -> Rows:
        return await execute_asyncpg(self.connection, statement)

    async def flush(self) -> None:
        pass


async def execute_asyncpg(connection: Any, statement: Statement) -> Rows:
    text, names = for_asyncpg(statement.text)
    rows: Rows = await connection.fetch(text, *(statement.parameters[name] for name in names))
    return rows


@lru_cache(maxsize=256)
def for_asyncpg(text: str) -> tuple[str, tuple[str, ...]]:
    names = tuple(dict.fromkeys(_PARAMETER.findall(text)))
    return _PARAMETER.sub(lambda found: f"${names.index(found[1]) + 1}", text), names


def kwargs_of_conninfo(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Those that are part of a connection string: the others are psycopg's own."""
    own = ("row_factory", "cursor_factory", "prepare_threshold", "context", "autocommit")
    return {name: value for name, value in kwargs.items() if name not in own}


def _missing(name: str, package: str, extra: str, error: ImportError) -> QueueError:
    return QueueError(
        f"{name} needs {package}, which cannot be imported ({error}): pip install 'headrace[{extra}]'"
    )
