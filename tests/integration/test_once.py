"""Tasks with `once=`: their effects in the user's database happen exactly once, whatever is delivered again."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from headrace.client.admin import Admin
from headrace.client.delivery import Delivery
from headrace.worker import (
    Backoff,
    PostgresDatabase,
    Queue,
    QueueError,
    Reject,
    Retry,
    SqlAlchemyDatabase,
    SqliteDatabase,
    TaskRun,
    TaskTransactionError,
)
from headrace.worker.outcomes import AlreadyDoneError
from headrace.worker.testing import QueueTest
from headrace.worker.transactions.database import WorkerDatabase
from headrace.worker.transactions.pruning import REMEMBER_MS, InboxPruner
from headrace.worker.transactions.statements import forget_gone, inbox_topic_ids, note_existing, prune
from tests.databases import KINDS, Kind, Site, make_site

NOWHERE = "127.0.0.1:1"
DISCONNECT = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"


@pytest.fixture
def queue(unique: str) -> Iterator[Queue]:
    with Queue(NOWHERE, group_id=unique) as queue:
        yield queue


@pytest.fixture(
    params=[
        pytest.param(kind, id=name, marks=[pytest.mark.needs_postgres] if kind.is_postgres else [])
        for name, kind in KINDS.items()
    ]
)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    kind: Kind = request.param
    site = make_site(kind, tmp_path, lambda: request.getfixturevalue("postgres"))
    yield site
    site.close()


@pytest.fixture(params=["sqlite", pytest.param("asyncpg-async", marks=pytest.mark.needs_postgres)])
def worker_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    """One that runs on threads, and one that has to run on the event loop of the tasks."""
    site = make_site(KINDS[request.param], tmp_path, lambda: request.getfixturevalue("postgres"))
    yield site
    site.close()


@pytest.fixture
def sqlite_site(tmp_path: Path) -> Iterator[Site]:
    site = Site(KINDS["sqlite"], str(tmp_path / "app.db"))
    yield site
    site.close()


def run_of(offset: int = 7, topic_id: str = "id", **changes: Any) -> TaskRun:
    facts: dict[str, Any] = {
        "task": "t", "group_id": "g", "topic": "orders", "partition": 0, "offset": offset, "key": None,
        "headers": (), "delivery_count": 1, "attempt": 1, "topic_id": topic_id,
    }  # fmt: skip
    return TaskRun(**{**facts, **changes})


def invoke(task: Any, run: TaskRun, body: str = "a") -> bool:
    """True when the function was called."""

    async def invoke_async() -> None:
        try:
            await task.invoke_async(run, body)
        finally:
            await task.once.database.close_async()

    try:
        if task.once.is_async:
            asyncio.run(invoke_async())
        else:
            task.invoke(run, body)
    except AlreadyDoneError:
        return False
    return True


class TestRunning:
    def test_a_record_that_comes_again_is_not_run_again(self, site: Site, queue: Queue) -> None:
        task = site.declare(queue, "orders")
        assert invoke(task, run_of())
        assert not invoke(task, run_of())
        assert site.effects() == ["a"]

    def test_another_offset_partition_topic_or_group_is_another_record(
        self, site: Site, queue: Queue
    ) -> None:
        task = site.declare(queue, "orders")
        runs = [
            run_of(),
            run_of(8),
            run_of(partition=1),
            run_of(topic_id="made anew"),
            run_of(group_id="other"),
        ]
        assert all(invoke(task, run) for run in runs)
        assert len(site.effects()) == len(runs)

    def test_a_failed_run_leaves_nothing_and_can_be_run_again(self, site: Site, queue: Queue) -> None:
        failures = [RuntimeError("late"), Retry(after=5), Reject("never")]

        def fail(body: str) -> None:
            if failures:
                raise failures.pop()

        task = site.declare(queue, "orders", fail)
        for _ in range(3):
            with contextlib.suppress(RuntimeError, Retry, Reject):
                invoke(task, run_of())
            assert site.effects() == []
            assert site.count("headrace_inbox") == 0
        assert invoke(task, run_of())
        assert site.effects() == ["a"]

    def test_a_second_run_at_the_same_time_waits_and_is_not_run(self, site: Site, queue: Queue) -> None:
        entered, go_on = threading.Event(), threading.Event()

        def wait(body: str) -> None:
            entered.set()
            assert go_on.wait(30)

        results: list[bool] = []
        task = site.declare(queue, "orders", wait)
        twin = make_twin(site)
        other = twin.declare(Queue(NOWHERE, group_id="g"), "orders")
        first = threading.Thread(target=lambda: results.append(invoke(task, run_of())))
        second = threading.Thread(target=lambda: results.append(invoke(other, run_of())))
        first.start()
        assert entered.wait(30)
        second.start()
        second.join(0.2)
        assert second.is_alive(), "it must wait until it is known how the first one ends"
        go_on.set()
        first.join(30)
        second.join(30)
        twin.close()
        assert sorted(results) == [False, True]
        assert site.effects() == ["a"]

    def test_a_worker_that_was_suspended_does_not_run_a_record_whose_row_was_pruned(
        self, site: Site, queue: Queue
    ) -> None:
        task = site.declare(queue, "orders")
        assert invoke(task, run_of(7))
        transact(site, lambda: prune("g", "id", {0: 8}, 0))
        assert site.count("headrace_inbox") == 0
        assert not invoke(task, run_of(7))
        assert invoke(task, run_of(8))
        assert invoke(task, run_of(7, topic_id="made anew"))

    def test_a_topic_that_is_gone_for_long_is_forgotten(self, site: Site, queue: Queue) -> None:
        task = site.declare(queue, "orders")
        for topic_id in ("gone", "seen", "there"):
            assert invoke(task, run_of(7, topic_id=topic_id))
            transact(site, lambda topic_id=topic_id: prune("g", topic_id, {0: 3}, 0))
        assert transact(site, lambda: inbox_topic_ids("g")) == {"gone", "seen", "there"}
        for topic_id in ("gone", "seen"):
            assert not transact(site, lambda topic_id=topic_id: forget_gone("g", topic_id, 100, 0))
        transact(site, lambda: note_existing("g", "seen"))
        assert not transact(site, lambda: forget_gone("g", "seen", 200, 150))
        assert transact(site, lambda: forget_gone("g", "gone", 200, 150))
        assert transact(site, lambda: inbox_topic_ids("g")) == {"seen", "there"}

    def test_the_start_never_moves_back(self, site: Site, queue: Queue) -> None:
        for start in (8, 3):
            transact(site, lambda start=start: prune("g", "id", {0: start}, 0))
        assert not invoke(site.declare(queue, "orders"), run_of(7))

    def test_a_message_that_was_sent_twice_is_run_once(self, site: Site, queue: Queue) -> None:
        task = site.declare(queue, "orders")
        headers = (("headrace.id", b"m1"),)
        assert invoke(task, run_of(7, headers=headers))
        assert not invoke(task, run_of(9, headers=headers))
        assert invoke(task, run_of(9, headers=headers, topic="other"))
        transact(site, lambda: prune("g", "id", {}, 2**62))
        assert site.count("headrace_inbox_message") == 0

    @pytest.mark.needs_postgres
    @pytest.mark.parametrize("name", ["psycopg", "psycopg-async", "asyncpg-async"])
    def test_a_connection_that_was_lost_while_it_was_idle_is_replaced(
        self, postgres: Any, queue: Queue, name: str
    ) -> None:
        site = make_site(KINDS[name], Path(), lambda: postgres)
        task = site.declare(queue, "orders")

        async def run_async() -> None:
            await task.invoke_async(run_of(1), "a")
            site.execute(DISCONNECT)
            await task.invoke_async(run_of(2), "b")
            await site.database.close_async()

        if site.kind.is_async:
            asyncio.run(run_async())
        else:
            task.invoke(run_of(1), "a")
            site.execute(DISCONNECT)
            task.invoke(run_of(2), "b")
        site.close()
        assert site.effects() == ["a", "b"]


def make_twin(site: Site) -> Site:
    """Another worker's objects for the same database."""
    twin = object.__new__(Site)
    twin.kind, twin.place, twin.database = site.kind, site.place, site.kind.open(site.place)
    return twin


def transact(site: Site, steps: Callable[[], Any]) -> Any:
    async def work() -> Any:
        result = await site.database.transact_async(steps)
        await site.database.close_async()
        return result

    return asyncio.run(work())


class TestTransactionsThatCannotBeCommitted:
    @pytest.mark.needs_postgres
    def test_a_swallowed_error_of_postgres_does_not_count_as_done(self, queue: Queue, postgres: Any) -> None:
        import psycopg

        site = make_site(KINDS["psycopg"], Path(), lambda: postgres)

        @queue.task("orders", once=site.database)
        def swallow(body: str, connection: psycopg.Connection) -> None:
            connection.execute("INSERT INTO effects (body) VALUES ('a')")
            with contextlib.suppress(psycopg.Error):
                connection.execute("SELECT 1 FROM no_such_table")

        with pytest.raises(psycopg.Error, match="aborted") as failure:
            invoke(swallow, run_of())
        assert "savepoint" in str(failure.value.__notes__)
        assert site.effects() == []
        site.close()

    @pytest.mark.parametrize("way", ["commit", "rollback", "close"])
    def test_the_connection_refuses_to_end_the_transaction(
        self, sqlite_site: Site, queue: Queue, way: str
    ) -> None:
        @queue.task("orders", once=sqlite_site.database)
        def end(body: str, connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO effects (body) VALUES ('a')")
            getattr(connection, way)()

        with pytest.raises(TaskTransactionError):
            invoke(end, run_of())
        assert sqlite_site.effects() == []

    @pytest.mark.parametrize("is_cursor", [True, False])
    def test_a_script_of_sqlite_would_commit_and_is_refused(
        self, sqlite_site: Site, queue: Queue, is_cursor: bool
    ) -> None:
        @queue.task("orders", once=sqlite_site.database)
        def run_script(body: str, connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO effects (body) VALUES ('a')")
            (connection.cursor() if is_cursor else connection).executescript("SELECT 1; SELECT 2")

        with pytest.raises(TaskTransactionError, match=r"executescript\(\) commits"):
            invoke(run_script, run_of())
        assert sqlite_site.effects() == []

    def test_on_connect_may_run_a_script(self, tmp_path: Path) -> None:
        script = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL"
        database = SqliteDatabase(
            tmp_path / "app.db", on_connect=lambda connection: connection.executescript(script)
        )
        database.create_tables()
        with contextlib.closing(sqlite3.connect(tmp_path / "app.db")) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        database.close()

    @pytest.mark.needs_postgres
    @pytest.mark.parametrize("name", ["psycopg", "asyncpg-async", "sqlalchemy-psycopg"])
    def test_a_commit_in_sql_is_found_out(self, postgres: Any, queue: Queue, name: str) -> None:
        """The rest of the function was not in the transaction. It cannot be undone, but somebody must hear of it."""
        site = make_site(KINDS[name], Path(), lambda: postgres)

        def by_psycopg(body: str, connection: psycopg.Connection) -> None:
            connection.execute("COMMIT")

        async def by_asyncpg(body: str, connection: asyncpg.Connection) -> None:
            await connection.execute("COMMIT")

        def by_session(body: str, session: Session) -> None:
            session.execute(text("COMMIT"))

        functions = {
            "psycopg": by_psycopg,
            "asyncpg-async": by_asyncpg,
            "sqlalchemy-psycopg": by_session,
        }
        task = queue.task("orders", once=site.database)(functions[name])
        with pytest.raises(TaskTransactionError, match="has ended its transaction"):
            invoke(task, run_of())
        site.close()

    def test_a_with_block_of_sqlite_does_not_end_the_transaction(
        self, sqlite_site: Site, queue: Queue
    ) -> None:
        @queue.task("orders", once=sqlite_site.database)
        def use(body: str, connection: sqlite3.Connection) -> None:
            with connection:
                connection.execute("INSERT INTO effects (body) VALUES ('a')")
            raise RuntimeError("after the block")

        with pytest.raises(RuntimeError, match="after the block"):
            invoke(use, run_of())
        assert sqlite_site.effects() == []

    def test_a_rollback_by_sql_is_noticed(self, sqlite_site: Site, queue: Queue) -> None:
        @queue.task("orders", once=sqlite_site.database)
        def undo(body: str, connection: sqlite3.Connection) -> None:
            connection.execute("ROLLBACK")

        with pytest.raises(TaskTransactionError, match="has ended its transaction"):
            invoke(undo, run_of())

    def test_a_commit_of_a_session_does_not_end_the_transaction(self, tmp_path: Path, queue: Queue) -> None:
        from sqlalchemy import text
        from sqlalchemy.orm import Session

        site = make_site(KINDS["sqlalchemy-sqlite"], tmp_path, lambda: None)  # type: ignore[arg-type,return-value]

        @queue.task("orders", once=site.database)
        def run(body: str, session: Session) -> None:
            session.execute(text("INSERT INTO effects (body) VALUES ('a')"))
            session.commit()
            if body == "fails":
                raise RuntimeError

        with pytest.raises(RuntimeError):
            invoke(run, run_of(), "fails")
        assert site.effects() == []
        assert invoke(run, run_of())
        assert site.effects() == ["a"]


class TestDeclarations:
    def test_the_connection_may_stand_anywhere_behind_the_body(self, sqlite_site: Site, queue: Queue) -> None:
        seen: list[Any] = []

        @queue.task("one", once=sqlite_site.database)
        def one(body: str, connection: sqlite3.Connection, delivery: Delivery) -> None:
            seen.append((body, type(connection).__name__, delivery))

        @queue.task("two", once=sqlite_site.database)
        def two(body: str, delivery: Delivery, *, connection: "sqlite3.Connection") -> None:
            seen.append((body, type(connection).__name__, delivery))

        for number, task in enumerate((one, two)):
            assert task.takes_delivery
            task.invoke(run_of(number), "a", "the delivery")
        assert seen == [("a", "TaskConnection", "the delivery")] * 2

    def test_what_does_not_fit_is_refused(self, tmp_path: Path, queue: Queue) -> None:
        import psycopg

        once = SqliteDatabase(tmp_path / "app.db")
        with pytest.raises(TypeError, match="no parameter for the connection; declare it as def nothing"):

            @queue.task("a", once=once)
            def nothing(body: str) -> None: ...

        with pytest.raises(TypeError, match=r"annotated with psycopg.Connection, but it gets a sqlite3.Conn"):

            @queue.task("b", once=once)
            def other(body: str, connection: psycopg.Connection) -> None: ...

        with pytest.raises(TypeError, match="2 parameters for connections"):

            @queue.task("c", once=once)
            def several(body: str, one: sqlite3.Connection, two: sqlite3.Connection) -> None: ...

        with pytest.raises(
            TypeError, match=r"annotated with psycopg.Connection, but it gets a psycopg.Async"
        ):

            @queue.task("d", once=PostgresDatabase("host=x"))
            async def wrong(body: str, connection: psycopg.Connection) -> None: ...

        with pytest.raises(ValueError, match=r"once must be a database .*, got 'app.db'"):
            queue.task("e", once="app.db")(lambda body: None)  # type: ignore[arg-type]
        assert queue.tasks == {}

    def test_an_async_database_is_for_coroutines(self, queue: Queue) -> None:
        import asyncpg

        from headrace.worker import AsyncpgDatabase

        with pytest.raises(TypeError, match="it is for async def functions"):

            @queue.task("a", once=AsyncpgDatabase("postgresql://x"))
            def run(body: str, connection: asyncpg.Connection) -> None: ...

    def test_databases_that_cannot_work_are_refused(self) -> None:
        with pytest.raises(QueueError, match="SqliteDatabase needs a file, got ':memory:'"):
            SqliteDatabase(":memory:")
        with pytest.raises(QueueError, match="does not take autocommit"):
            PostgresDatabase("host=x", autocommit=True)
        with pytest.raises(QueueError, match="needs an engine from create_engine"):
            SqlAlchemyDatabase("sqlite:///x")

    def test_names_of_databases_have_no_password(self) -> None:
        from headrace.worker import AsyncpgDatabase

        for kind in (PostgresDatabase, AsyncpgDatabase):
            assert "secret" not in kind("postgresql://me:secret@db/app").name


class TestWorker:
    def test_a_failing_record_is_dead_lettered_once_by_the_outbox(
        self, worker_site: Site, queue: Queue
    ) -> None:
        def fail(body: str) -> None:
            if body == "bad":
                raise Reject("bad body")

        worker_site.declare(queue, "orders", fail, dead_letter="orders.dead")
        with QueueTest(queue) as test:
            for body in ("good", "bad", "fine"):
                test.send("orders", body)
            test.run_until_idle(30)
            wait_until(lambda: len(test.dead_letters("orders.dead")) == 1)
            (letter,) = test.dead_letters("orders.dead")
            assert letter.value == b"bad"
            assert letter.headers["headrace.dlq.cause"] == "rejected"
            assert letter.headers["headrace.id"]
        assert worker_site.effects() == ["fine", "good"]
        assert worker_site.count("headrace_outbox") == 0

    def test_a_record_that_was_done_is_only_accepted_even_if_it_would_be_given_up(
        self, worker_site: Site, queue: Queue
    ) -> None:
        task = worker_site.declare(queue, "orders", dead_letter="orders.dead")
        with QueueTest(queue, settings={"group.share.delivery.count.limit": 2}) as test:
            topic_id = test.broker.call(lambda: test.broker.core.topics.get("orders").id)
            twin = make_twin(worker_site)
            other = twin.declare(Queue(NOWHERE, group_id="x"), "orders")
            for offset in (0, 1):
                place = run_of(offset, topic_id=_text(topic_id), group_id=queue.group_id)
                assert invoke(other, place)
            twin.close()
            test.send("orders", "a")
            test.send("orders", b"\xff is no text")
            test.run_until_idle(30)
            assert test.metrics()[task.name].duplicates == 2
            assert test.metrics()[task.name].succeeded == 2
            assert test.dead_letters("orders.dead") == []
        assert worker_site.effects() == ["a", "a"]

    def test_a_long_retry_is_scheduled_by_the_outbox_and_runs_once(
        self, sqlite_site: Site, queue: Queue
    ) -> None:
        runs: list[str] = []

        def once_later(body: str) -> None:
            runs.append(body)
            if len(runs) == 1:
                raise Retry(after=600)

        sqlite_site.declare(queue, "orders", once_later)
        with QueueTest(queue) as test:
            test.send("orders", "a")
            test.run_until_idle(30)
            wait_until(lambda: sqlite_site.count("headrace_outbox") == 0)
            assert sqlite_site.count("headrace_inbox") == 1, "the record is finished: its copy takes over"
            test.advance(601)
            test.run_until_idle(30)
        assert runs == ["a", "a"]
        assert sqlite_site.effects() == ["a"]

    def test_the_inbox_is_pruned_by_the_start_offset(
        self, worker_site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headrace.worker.transactions.pruning.EVERY_S", 0.05)
        worker_site.declare(queue, "orders")
        with QueueTest(queue) as test:
            for number in range(20):
                test.send("orders", str(number))
            test.run_until_idle(30)
            wait_until(
                lambda: worker_site.count("headrace_inbox") < 20
            )  # brokers move the start with the next answers
            assert worker_site.execute("SELECT start_offset FROM headrace_inbox_start") > [(0,)]
        assert len(worker_site.effects()) == 20

    def test_the_inbox_of_a_task_with_strict_order_is_pruned_too(
        self, worker_site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has no share group whose start offset would say what is over."""
        monkeypatch.setattr("headrace.worker.transactions.pruning.EVERY_S", 0.05)
        worker_site.declare(queue, "orders", key_order="strict")
        with QueueTest(queue) as test:
            for number in range(20):
                test.send("orders", str(number))
            test.run_until_idle(30)
            wait_until(lambda: worker_site.count("headrace_inbox") == 0)
            assert worker_site.execute("SELECT start_offset FROM headrace_inbox_start") == [(20,)]
        assert len(worker_site.effects()) == 20

    def test_the_rows_of_a_topic_that_was_deleted_are_pruned_after_a_week(
        self, sqlite_site: Site, queue: Queue
    ) -> None:
        sqlite_site.declare(queue, "orders")
        sqlite_site.declare(queue, "others")
        with QueueTest(queue) as test, Admin(bootstrap_servers=test.broker.bootstrap_servers) as admin:
            for topic in ("orders", "others"):
                test.send(topic, "a")
            test.run_until_idle(30)
            gone, stays = (admin.describe_topics([topic])[topic].topic_id for topic in ("orders", "others"))
            test.queue.stop()
            admin.delete_topics(["orders"])
            now_ms = 0
            settings = {"bootstrap.servers": test.broker.bootstrap_servers}

            async def prune_at(moment_ms: int) -> set[str]:
                nonlocal now_ms
                now_ms = moment_ms
                database = WorkerDatabase(sqlite_site.database, asyncio.get_running_loop())
                pruner = InboxPruner(database, settings, queue.group_id, [], lambda: now_ms)
                await pruner.prune()
                return await database.transact(partial(inbox_topic_ids, queue.group_id))

            assert asyncio.run(prune_at(0)) == {gone, stays}
            assert asyncio.run(prune_at(REMEMBER_MS)) == {gone, stays}
            assert asyncio.run(prune_at(REMEMBER_MS + 1)) == {stays}

    def test_a_failed_run_is_tried_again(self, sqlite_site: Site, queue: Queue) -> None:
        failures = ["first"]

        def fail(body: str) -> None:
            if failures:
                raise RuntimeError(failures.pop())

        sqlite_site.declare(queue, "orders", fail, retries=Backoff(first=1.0))
        with QueueTest(queue) as test:
            test.send("orders", "a")
            test.run_until_idle(30)
            assert sqlite_site.effects() == []
            test.advance(5)
            test.run_until_idle(30)
        assert sqlite_site.effects() == ["a"]


def _text(topic_id: bytes) -> str:
    from headrace.wire.ids import uuid_text

    return uuid_text(topic_id)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = threading.Event()
    timer = threading.Timer(30, deadline.set)
    timer.start()
    try:
        while not holds():
            assert not deadline.wait(0.02), "it has not come to hold"
    finally:
        timer.cancel()
