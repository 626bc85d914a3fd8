"""`SqlAlchemyDatabase`: once in a database that an engine of SQLAlchemy reaches: PostgreSQL or SQLite."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, ClassVar

from headrace.worker.errors import QueueError
from headrace.worker.transactions.database import Database
from headrace.worker.transactions.statements import Rows, Statement

DIALECTS = ("postgresql", "sqlite")


class SqlAlchemyDatabase(Database):
    """The database of an Engine or AsyncEngine. Functions get a `Session`, coroutines an `AsyncSession`.

    Keyword arguments go to the sessions (`expire_on_commit=False`). `session.commit()` in a task flushes; the worker
    commits when the function returns.
    """

    connection_types: ClassVar[dict[bool, tuple[str, ...]]] = {
        False: ("sqlalchemy.Session",),
        True: ("sqlalchemy.AsyncSession",),
    }

    def __init__(self, engine: Any, **session_options: Any) -> None:
        try:
            from sqlalchemy import Engine
            from sqlalchemy.ext.asyncio import AsyncEngine
        except ImportError as error:
            raise QueueError(
                f"SqlAlchemyDatabase needs SQLAlchemy, which cannot be imported ({error}): "
                "pip install 'headrace[sqlalchemy]'"
            ) from error
        if not isinstance(engine, Engine | AsyncEngine):
            raise QueueError(
                f"SqlAlchemyDatabase needs an engine from create_engine or create_async_engine, got {engine!r}"
            )
        if engine.dialect.name not in DIALECTS:
            raise QueueError(
                f"SqlAlchemyDatabase does not support {engine.dialect.name}: use PostgreSQL or SQLite"
            )
        self.is_async = isinstance(engine, AsyncEngine)
        self.dialect = engine.dialect.name
        self.connection_types = {self.is_async: SqlAlchemyDatabase.connection_types[self.is_async]}  # type: ignore[misc]
        options = {"isolation_level": "READ COMMITTED"} if self.dialect == "postgresql" else {}
        self._engine: Any = engine.execution_options(**options)
        self._options = {**session_options, "join_transaction_mode": "rollback_only"}

    @property
    def name(self) -> str:
        return str(self._engine.url.render_as_string(hide_password=True))

    @contextlib.contextmanager
    def begin(self) -> Iterator["SqlAlchemyTransaction"]:
        from sqlalchemy.orm import Session

        with self._engine.begin() as connection, Session(connection, **self._options) as session:
            yield SqlAlchemyTransaction(session)

    @contextlib.asynccontextmanager
    async def begin_async(self) -> AsyncIterator["AsyncSqlAlchemyTransaction"]:
        from sqlalchemy.ext.asyncio import AsyncSession

        async with self._engine.begin() as connection, AsyncSession(connection, **self._options) as session:
            yield AsyncSqlAlchemyTransaction(session)

    async def close_async(self) -> None:
        if self.is_async:
            await self._engine.dispose()


class SqlAlchemyTransaction:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def execute(self, statement: Statement) -> Rows:
        return execute(self.connection, statement)

    def flush(self) -> None:
        self.connection.commit()


class AsyncSqlAlchemyTransaction:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def execute(self, statement: Statement) -> Rows:
        return await execute_async(self.connection, statement)

    async def flush(self) -> None:
        await self.connection.commit()


def execute(session: Any, statement: Statement) -> Rows:
    from sqlalchemy import text

    result = session.execute(text(statement.text), dict(statement.parameters))
    return list(result) if result.returns_rows else []


async def execute_async(session: Any, statement: Statement) -> Rows:
    from sqlalchemy import text

    result = await session.execute(text(statement.text), dict(statement.parameters))
    return list(result) if result.returns_rows else []
