"""`Database`: runs steps and tasks in transactions; what all drivers have in common."""

import asyncio
import contextlib
import os
import queue
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from headrace.worker.errors import QueueError
from headrace.worker.outcomes import AlreadyDoneError
from headrace.worker.transactions.statements import (
    RecordPlace,
    Rows,
    Statement,
    Steps,
    check_tables,
    claim,
    create_tables,
    is_claimed,
)

T = TypeVar("T")
C = TypeVar("C")
THREADS_MAX = 32
"""For transactions of coroutines, in all databases of a process. Each takes a connection."""
IDLE_S = 10.0
"""After so long without a transaction, a thread ends."""


class OpenTransaction(Protocol):
    """A transaction that is committed when its block ends, and undone when that raises."""

    connection: Any
    """What the task's function gets."""

    def execute(self, statement: Statement) -> Rows: ...

    def flush(self) -> None:
        """Writes what the connection still keeps in memory."""


class OpenAsyncTransaction(Protocol):
    connection: Any

    async def execute(self, statement: Statement) -> Rows: ...

    async def flush(self) -> None: ...


class TaskTransactionError(QueueError):
    """A task has ended the transaction that is the worker's to commit, or has undone it."""


class Database:
    """A database of yours, in which the effects of tasks happen once: SqliteDatabase, PostgresDatabase and others."""

    dialect: str = ""
    connection_types: ClassVar[dict[bool, tuple[str, ...]]] = {}
    """The classes that functions may name for their connection, by whether they are async."""
    is_async: bool = False
    """There is no way to use it without an event loop."""

    @property
    def name(self) -> str:
        """For people; without a password."""
        raise NotImplementedError

    def begin(self) -> AbstractContextManager[OpenTransaction]:
        raise NotImplementedError

    def begin_async(self) -> AbstractAsyncContextManager[OpenAsyncTransaction]:
        raise NotImplementedError

    def close(self) -> None:
        """Closes connections that are not in use."""

    async def close_async(self) -> None:
        """Closes connections of this event loop that are not in use."""

    def create_tables(self) -> None:
        """Creates the tables of inbox and outbox that do not exist. A worker does it by itself when it starts."""
        try:
            self.transact(check_tables)  # enough for a user who may not create tables
        except Exception:
            self.transact(lambda: create_tables(self.dialect))

    async def create_tables_async(self) -> None:
        """`create_tables` for asyncio."""
        try:
            await self.transact_async(check_tables)
        except Exception:
            await self.transact_async(lambda: create_tables(self.dialect))

    def transact(self, steps: Callable[[], Steps[T]]) -> T:
        with self.begin() as transaction:
            return run_steps(transaction.execute, steps())

    async def transact_async(self, steps: Callable[[], Steps[T]]) -> T:
        if not self.is_async:
            return await _THREADS.run(lambda: self.transact(steps))
        async with self.begin_async() as transaction:
            return await run_steps_async(transaction.execute, steps())

    def run_once(self, place: RecordPlace, now_ms: int, call: Callable[[Any], None]) -> None:
        """Runs a function in a transaction. AlreadyDoneError: the record is finished, the function was not called."""
        with self.begin() as transaction:
            if not run_steps(transaction.execute, claim(place, now_ms)):
                raise AlreadyDoneError
            call(transaction.connection)
            with _explained():
                transaction.flush()
                is_whole = run_steps(transaction.execute, is_claimed(place, self.dialect))
            _require_whole(is_whole)

    async def run_once_async(
        self, place: RecordPlace, now_ms: int, call: Callable[[Any], Awaitable[None]]
    ) -> None:
        async with self.begin_async() as transaction:
            if not await run_steps_async(transaction.execute, claim(place, now_ms)):
                raise AlreadyDoneError
            await call(transaction.connection)
            with _explained():
                await transaction.flush()
                is_whole = await run_steps_async(transaction.execute, is_claimed(place, self.dialect))
            _require_whole(is_whole)


@contextlib.contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(
            "The task has returned, but its transaction cannot be committed. If a statement failed in the task, let "
            "its exception out, or run the statement in a savepoint."
        )
        raise


def _require_whole(is_whole: bool) -> None:
    if not is_whole:
        raise TaskTransactionError(
            "the task has ended its transaction: do not use COMMIT and ROLLBACK; the worker commits when the function "
            "returns, and rolls back when it raises an exception"
        )


def run_steps(execute: Callable[[Statement], Rows], steps: Steps[T]) -> T:
    rows: Rows | None = None
    try:
        while True:
            statement = next(steps) if rows is None else steps.send(rows)
            rows = execute(statement)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_steps_async(execute: Callable[[Statement], Awaitable[Rows]], steps: Steps[T]) -> T:
    rows: Rows | None = None
    while True:
        try:
            statement = next(steps) if rows is None else steps.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result
        rows = await execute(statement)


class DaemonThreads:
    """Runs calls for coroutines on at most `most` threads.

    They are daemons, unlike those of `asyncio.to_thread`: a program that ends does not wait for a database that does
    not answer.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.forked()

    def forked(self) -> None:
        """In a child: the threads are the parent's."""
        self._lock = threading.Lock()
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._threads = self._busy = 0

    async def run(self, call: Callable[[], T]) -> T:
        future: Future[T] = Future()
        with self._lock:
            self._calls.put((future, call))
            self._busy += 1
            if self._busy > self._threads and self._threads < self._most:
                self._threads += 1
                threading.Thread(target=self._work, name="headrace-database", daemon=True).start()
        return await asyncio.wrap_future(future)

    def _work(self) -> None:
        while (given := self._next()) is not None:
            future, call = given
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                except BaseException as error:
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del given, future, call  # nothing of it is kept while the thread waits
            with self._lock:
                self._busy -= 1

    def _next(self) -> "tuple[Future[Any], Callable[[], Any]] | None":
        """None: nothing has come for a while, and this thread ends."""
        with contextlib.suppress(queue.Empty):
            return self._calls.get(timeout=IDLE_S)
        with self._lock:
            with contextlib.suppress(queue.Empty):  # it came in between
                return self._calls.get_nowait()
            self._threads -= 1
            return None


class IdleConnections(Generic[C]):
    """Connections to use again, for threads. As many are open as are in use at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[C] = []
        self._of_parent: list[C] = []
        _KEPT.add(self)

    def forked(self) -> None:
        """In a child: the connections are the parent's. They are kept, because to close them would end them there."""
        self._lock = threading.Lock()
        self._of_parent, self._idle = [*self._of_parent, *self._idle], []

    def take(self) -> C | None:
        with self._lock:
            return self._idle.pop() if self._idle else None

    def give(self, connection: C) -> None:
        with self._lock:
            self._idle.append(connection)

    def take_all(self) -> list[C]:
        with self._lock:
            taken, self._idle = self._idle, []
        return taken


class LoopConnections(Generic[C]):
    """The same for connections that belong to one event loop. Those of a loop that has ended are dropped."""

    def __init__(self) -> None:
        self._idle: list[C] = []
        self._of_parent: list[C] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        _KEPT.add(self)

    def forked(self) -> None:
        self._of_parent, self._idle = [*self._of_parent, *self._idle], []

    def take(self) -> C | None:
        self._follow()
        return self._idle.pop() if self._idle else None

    def give(self, connection: C) -> None:
        self._follow()
        self._idle.append(connection)

    def take_all(self) -> list[C]:
        self._follow()
        taken, self._idle = self._idle, []
        return taken

    def _follow(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._idle = loop, []


_THREADS = DaemonThreads(THREADS_MAX)
_KEPT: "weakref.WeakSet[IdleConnections[Any] | LoopConnections[Any]]" = weakref.WeakSet()


def _forked() -> None:
    _THREADS.forked()
    for connections in list(_KEPT):
        connections.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


class WorkerDatabase:
    """A database as the worker's own event loop uses it: what needs an event loop runs on the user's."""

    def __init__(self, database: Database, user_loop: asyncio.AbstractEventLoop) -> None:
        self.database = database
        self._user_loop = user_loop

    async def transact(self, steps: Callable[[], Steps[T]]) -> T:
        result: T = await self._there(self.database.transact_async(steps))
        return result

    async def create_tables(self) -> None:
        try:
            await self._there(self.database.create_tables_async())
        except Exception as error:
            raise QueueError(
                f"the tables for once= and transaction= cannot be used in {self.database.name}: {error}; a user with "
                "permission to create tables can run the statements that `headrace outbox schema` prints"
            ) from error

    async def _there(self, work: Coroutine[Any, Any, Any]) -> Any:
        if not self.database.is_async:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._user_loop))
