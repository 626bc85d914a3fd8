"""A database server, and the `Database` by which the workers of a node use it.

Transactions run one after another, as those of SQLite. A transaction ends with its process: the server notices that,
rolls it back, and lets the next one begin. What tasks and workers commit here, the model (`model.py`) hears.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from headrace.wire.dead_letter import MESSAGE_ID
from headrace.worker.transactions.database import Database, run_steps, run_steps_async
from headrace.worker.transactions.sqlite import execute
from headrace.worker.transactions.statements import _HEADERS, Rows, Statement, Steps, create_tables

if TYPE_CHECKING:
    from tests.simulation.jobs.world import JobsWorld
    from tests.simulation.path.node import Node

LOCK_S = 20.0
"""How long a transaction waits for the others."""
WAIT_S = 0.02
INBOX, OUTBOX, FORGET = (
    "INSERT INTO headrace_inbox (",
    "INSERT INTO headrace_outbox ",
    "DELETE FROM headrace_outbox ",
)


class Effect(NamedTuple):
    """One row of the table that tasks write to."""

    group_id: str
    topic_id: str
    partition: int
    offset: int
    message_id: str | None


class Server:
    def __init__(self, world: "JobsWorld") -> None:
        self.world = world
        self.connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.active: Transaction | None = None
        self.down_until_ms = 0
        run_steps(lambda statement: execute(self.connection, statement), create_tables("sqlite"))

    def kill(self, down_ms: int) -> None:
        """kill -9: what is not committed is gone."""
        if self.active is not None:
            self.active.roll_back()
        self.down_until_ms = self.world.clock.monotonic_ms() + down_ms

    @property
    def is_down(self) -> bool:
        return not self.world.is_calm and self.world.clock.monotonic_ms() < self.down_until_ms

    def rows(self, text: str) -> Rows:
        """What is committed."""
        assert self.active is None
        return execute(self.connection, Statement(text, {}))


class Transaction:
    """Also what functions get as their connection."""

    def __init__(self, server: Server, node: "Node") -> None:
        self.connection = self
        self.node = node
        self.is_over = False
        self.claimed: tuple[str, str, int, int] | None = None
        self.effects: list[Effect] = []
        self.copies = 0
        self.forgotten: list[str] = []
        """Message ids of records that are deleted from the outbox."""
        self._server = server
        server.active = self
        server.connection.execute("BEGIN")

    async def execute(self, statement: Statement) -> Rows:
        await self._travel()
        text, given = statement.text, statement.parameters
        if text.startswith(FORGET):
            self.forgotten += self._message_ids(given)
        rows = execute(self._server.connection, statement)
        if text.startswith(INBOX) and rows:
            self.claimed = (
                given["group_id"], given["topic_id"], given["topic_partition"], given["record_offset"]
            )  # fmt: skip
        elif text.startswith(OUTBOX):
            self.copies += 1
        return rows

    async def write(self, effect: Effect) -> None:
        """Of the task."""
        await self._travel()
        self.effects.append(effect)

    async def flush(self) -> None:
        pass

    async def commit(self) -> None:
        await self._travel()
        world = self._server.world
        is_lost = not world.is_calm and world.rng.random() < world.scenario.lost_commits
        if is_lost and world.rng.random() < 0.5:
            self.roll_back()
        else:
            self._server.connection.execute("COMMIT")
            self._end()
            self.node.app.guard(world.jobs.committed, self)
        if is_lost:
            world.stats.faults["answer to a COMMIT lost"] += 1
            raise sqlite3.OperationalError("the server closed the connection")

    def roll_back(self) -> None:
        if not self.is_over:
            self._server.connection.execute("ROLLBACK")
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self._server.active = None

    async def _travel(self) -> None:
        """To the server, which may not be there any more."""
        world = self._server.world
        await asyncio.sleep(0 if world.is_calm else world.rng.choice((0, 0, 0.001, 0.01, 0.2)))
        if self.is_over or self._server.is_down:
            raise sqlite3.OperationalError("the server closed the connection")

    def _message_ids(self, given: Any) -> list[str]:
        rows = self._server.connection.execute(
            "SELECT headers FROM headrace_outbox WHERE group_id = :group_id AND seq BETWEEN :first AND :last",
            given,
        ).fetchall()
        return [
            value.decode() for (headers,) in rows for name, value in _HEADERS.decode(headers)
            if name == MESSAGE_ID and value
        ]  # fmt: skip


class JobsDatabase(Database):
    """As one node sees it."""

    dialect = "sqlite"
    connection_types: ClassVar[dict[bool, tuple[str, ...]]] = {True: ("sqlite3.Connection",)}

    def __init__(self, node: "Node", server: Server) -> None:
        self._node, self._server = node, server

    @property
    def name(self) -> str:
        return "the database"

    @asynccontextmanager
    async def begin_async(self) -> AsyncIterator[Transaction]:
        transaction = await self._begun()
        try:
            yield transaction
            await transaction.commit()
        except BaseException:
            transaction.roll_back()
            raise

    async def _begun(self) -> Transaction:
        deadline_s = asyncio.get_running_loop().time() + LOCK_S
        while True:
            if self._server.is_down:
                raise sqlite3.OperationalError("the server does not answer")
            active = self._server.active
            if active is not None and active.node.is_dead:
                active.roll_back()
            if self._server.active is None:
                return Transaction(self._server, self._node)
            if asyncio.get_running_loop().time() > deadline_s:
                raise sqlite3.OperationalError("the database is locked")
            await asyncio.sleep(WAIT_S)

    async def create_tables_async(self) -> None:
        pass

    async def transact_async(self, steps: Callable[[], Steps[Any]]) -> Any:
        async with self.begin_async() as transaction:
            return await run_steps_async(transaction.execute, steps())
