"""Every way in which a task can run once: the database, and a task that writes its body into the table `effects`."""

import asyncio
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from headrace.worker import (
    AsyncpgDatabase,
    Database,
    PostgresDatabase,
    Queue,
    SqlAlchemyDatabase,
    SqliteDatabase,
    Task,
)
from tests.postgres import PostgresServer

Before = Callable[[str], None]
"""Called in the function, between its statements and its end."""
INSERT = "INSERT INTO effects (body) VALUES ('{}')"


@dataclass(frozen=True)
class Kind:
    name: str
    is_postgres: bool
    open: Callable[[str], Database]
    declare: Callable[..., Task[Any, Any, Any]]

    @property
    def is_async(self) -> bool:
        return "async" in self.name


class Site:
    """A fresh database of one kind, with its table."""

    def __init__(self, kind: Kind, place: str) -> None:
        self.kind = kind
        self.place = place
        self.database = kind.open(place)
        self.execute("CREATE TABLE effects (body TEXT NOT NULL)")
        if kind.is_async:
            asyncio.run(self._create_async())
        else:
            self.database.create_tables()

    async def _create_async(self) -> None:
        await self.database.create_tables_async()
        await self.database.close_async()

    def connect(self) -> Any:
        if self.kind.is_postgres:
            return psycopg.connect(self.place)
        return sqlite3.connect(self.place, timeout=30)

    def execute(self, statement: str) -> list[Any]:
        connection = self.connect()
        try:
            cursor = connection.execute(statement)
            rows = cursor.fetchall() if cursor.description is not None else []
            connection.commit()
            return list(rows)
        finally:
            connection.close()

    def effects(self) -> list[str]:
        return sorted(body for (body,) in self.execute("SELECT body FROM effects"))

    def count(self, table: str) -> int:
        return int(self.execute(f"SELECT COUNT(*) FROM {table}")[0][0])

    def declare(self, queue: Queue, topic: str, inside: Before = lambda body: None, **options: Any) -> Any:
        return self.kind.declare(queue, topic, self.database, inside, **options)

    def close(self) -> None:
        self.database.close()
        engine = getattr(self.database, "_engine", None)
        if engine is not None and not self.kind.is_async:
            engine.dispose()


def declare_sqlite(queue: Queue, topic: str, once: Database, inside: Before, **options: Any) -> Any:
    @queue.task(topic, once=once, **options)
    def run(body: str, connection: sqlite3.Connection) -> None:
        connection.execute(INSERT.format(body))
        inside(body)

    return run


def declare_async_sqlite(queue: Queue, topic: str, once: Database, inside: Before, **options: Any) -> Any:
    @queue.task(topic, once=once, **options)
    async def run(body: str, connection: sqlite3.Connection) -> None:
        connection.execute(INSERT.format(body))
        await asyncio.sleep(0)
        inside(body)

    return run


def declare_psycopg(queue: Queue, topic: str, once: Database, inside: Before, **options: Any) -> Any:
    @queue.task(topic, once=once, **options)
    def run(body: str, connection: psycopg.Connection[Any]) -> None:
        connection.execute(INSERT.format(body))  # type: ignore[arg-type]
        inside(body)

    return run


def declare_async_psycopg(queue: Queue, topic: str, once: Database, inside: Before, **options: Any) -> Any:
    @queue.task(topic, once=once, **options)
    async def run(body: str, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute(INSERT.format(body))  # type: ignore[arg-type]
        inside(body)

    return run


def declare_asyncpg(queue: Queue, topic: str, once: Database, inside: Before, **options: Any) -> Any:
    @queue.task(topic, once=once, **options)
    async def run(body: str, connection: asyncpg.Connection) -> None:
        await connection.execute(INSERT.format(body))
        inside(body)

    return run


def declare_session(queue: Queue, topic: str, once: Database, inside: Before, **options: Any) -> Any:
    @queue.task(topic, once=once, **options)
    def run(body: str, session: Session) -> None:
        session.execute(text(INSERT.format(body)))
        inside(body)

    return run


def declare_async_session(queue: Queue, topic: str, once: Database, inside: Before, **options: Any) -> Any:
    @queue.task(topic, once=once, **options)
    async def run(body: str, session: AsyncSession) -> None:
        await session.execute(text(INSERT.format(body)))
        inside(body)

    return run


def _sqlalchemy_url(place: str, driver: str) -> str:
    return place.replace("postgresql:", f"postgresql+{driver}:")


def _open_sqlalchemy_sqlite(place: str) -> Database:
    return SqlAlchemyDatabase(create_engine(f"sqlite:///{place}"))


KINDS = {
    kind.name: kind
    for kind in (
        Kind("sqlite", False, SqliteDatabase, declare_sqlite),
        Kind("sqlite-async", False, SqliteDatabase, declare_async_sqlite),
        Kind("sqlalchemy-sqlite", False, _open_sqlalchemy_sqlite, declare_session),
        Kind("psycopg", True, PostgresDatabase, declare_psycopg),
        Kind("psycopg-async", True, PostgresDatabase, declare_async_psycopg),
        Kind("asyncpg-async", True, AsyncpgDatabase, declare_asyncpg),
        Kind(
            "sqlalchemy-psycopg", True,
            lambda place: SqlAlchemyDatabase(create_engine(_sqlalchemy_url(place, "psycopg"))), declare_session,
        ),
        Kind(
            "sqlalchemy-asyncpg-async", True,
            lambda place: SqlAlchemyDatabase(create_async_engine(_sqlalchemy_url(place, "asyncpg"))),
            declare_async_session,
        ),
    )
}  # fmt: skip


def make_site(kind: Kind, folder: Path, find_server: Callable[[], PostgresServer]) -> Site:
    if not kind.is_postgres:
        return Site(kind, str(folder / "app.db"))
    return Site(kind, find_server().empty_database("app"))
