"""`send(transaction=...)`, `send(unique=...)` and the relay: records are sent if and only if the user commits."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import headrace.worker.transactions.relay as relay_module
from headrace import Admin, Broker, ShareConsumer
from headrace.wire.enums import OffsetSpec
from headrace.worker import AsyncpgDatabase, Queue, QueueError, SqliteDatabase, Stored
from headrace.worker.later import STEPS, later_topic, step_of
from headrace.worker.outbox import Outbox, settings_for
from headrace.worker.transactions.database import WorkerDatabase
from headrace.worker.transactions.relay import OutboxRelay
from headrace.worker.transactions.statements import (
    OutboxRecord,
    Rows,
    Statement,
    next_records,
    next_topics,
    write_record,
)
from tests.databases import KINDS, Site, make_site

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(KINDS["sqlite"], str(tmp_path / "app.db"))
    yield site
    site.close()


@pytest.fixture
def queue(site: Site, unique: str) -> Iterator[Queue]:
    with (
        Broker() as broker,
        Queue(broker.bootstrap_servers, group_id=unique, database=site.database) as queue,
    ):
        yield queue


def values(queue: Queue, topic: str) -> list[bytes]:
    """All that a topic holds, by a group of its own."""
    with Admin(bootstrap_servers=queue.bootstrap_servers) as admin:
        admin.set_group_config("reader", {"share.auto.offset.reset": "earliest"})
        (end,) = admin.list_offsets({(topic, 0): OffsetSpec.LATEST}).values()
    found = []
    with ShareConsumer(bootstrap_servers=queue.bootstrap_servers, group_id="reader") as consumer:
        consumer.subscribe([topic])
        while len(found) < end.offset:
            found += [(each.value, dict(each.headers)) for each in consumer.poll(timeout=1.0)]
    assert all(headers["headrace.id"] for _, headers in found)
    return [value for value, _ in found]


def relay(queue: Queue) -> int:
    return asyncio.run(queue.relay_outbox(seconds=30))


async def relay_all(relay: OutboxRelay, count: int = 1) -> None:
    """Until it has sent so many."""
    async with asyncio.timeout(60):
        while relay.sent < count:
            await relay.relay()


class TestSending:
    def test_what_is_committed_is_sent_in_order_and_what_is_rolled_back_is_not(
        self, site: Site, queue: Queue
    ) -> None:
        for number in range(20):
            with contextlib.closing(site.connect()) as connection:
                connection.execute("INSERT INTO effects (body) VALUES ('x')")
                sent = queue.send("orders", f"{number}", transaction=connection)
                assert (sent.topic, sent.offset) == ("orders", -1)
                if number % 4 == 3:
                    connection.rollback()
                else:
                    connection.commit()
        assert site.count("headrace_outbox") == 15
        assert relay(queue) == 0
        assert values(queue, "orders") == [str(n).encode() for n in range(20) if n % 4 != 3]
        assert site.count("headrace_outbox") == 0

    def test_no_broker_is_needed_to_store(self, site: Site) -> None:
        with Queue(NOWHERE, group_id="g") as queue, contextlib.closing(site.connect()) as connection:
            queue.send(
                "orders", "a", transaction=connection, key="k", headers={"headrace.id": "copied", "a": "b"}
            )
            connection.commit()
        ((headers,),) = site.execute("SELECT headers FROM headrace_outbox")
        assert b"copied" not in headers

    @pytest.mark.needs_postgres
    @pytest.mark.parametrize(
        "name", ["psycopg", "psycopg-async", "asyncpg-async", "sqlalchemy-asyncpg-async"]
    )
    def test_connections_of_postgres(self, name: str, postgres: Any, tmp_path: Path) -> None:
        import asyncpg
        import psycopg
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        site = make_site(KINDS[name], tmp_path, lambda: postgres)
        queue = Queue(NOWHERE, group_id="g")

        async def store() -> None:
            if name == "psycopg-async":
                async with await psycopg.AsyncConnection.connect(site.place) as connection:
                    await queue.send_async("orders", "a", transaction=connection)
            elif name == "asyncpg-async":
                plain = await asyncpg.connect(site.place)
                with pytest.raises(QueueError, match="without a transaction"):
                    await queue.send_async("orders", "a", transaction=plain)
                async with plain.transaction():
                    await queue.send_async("orders", "a", transaction=plain)
                await plain.close()
            else:
                engine = create_async_engine(site.place.replace("postgresql:", "postgresql+asyncpg:"))
                async with AsyncSession(engine) as session, session.begin():
                    await queue.send_async("orders", "a", key=None, transaction=session)
                await engine.dispose()

        if name == "psycopg":
            with psycopg.connect(site.place) as connection:
                queue.send("orders", "a", transaction=connection)
            with (
                psycopg.connect(site.place, autocommit=True) as connection,
                pytest.raises(QueueError, match="without a transaction"),
            ):
                queue.send("orders", "a", transaction=connection)
        else:
            asyncio.run(store())
        assert site.count("headrace_outbox") == 1
        site.close()

    def test_what_is_no_transaction_is_refused(self, site: Site) -> None:
        queue = Queue(NOWHERE, group_id="g")
        with pytest.raises(TypeError, match="give a connection of sqlite3"):
            queue.send("orders", "a", transaction="app.db")
        with (
            contextlib.closing(sqlite3.connect(site.place, isolation_level=None)) as connection,
            pytest.raises(QueueError, match="without a transaction"),
        ):
            queue.send("orders", "a", transaction=connection)
        assert site.count("headrace_outbox") == 0


class TestUnique:
    def test_a_key_is_stored_once_in_its_time(self, site: Site, queue: Queue) -> None:
        now_ms = 1_000_000
        queue.now_ms = lambda: now_ms
        for wait_ms, is_duplicate in ((0, False), (0, True), (9_999, True), (1, False), (0, True)):
            now_ms += wait_ms
            sent = queue.send("orders", "a", unique="k", for_=10)
            assert isinstance(sent, Stored)
            assert sent.is_duplicate is is_duplicate
        other = queue.send("others", "a", unique="k", for_=10)
        assert isinstance(other, Stored)
        assert not other.is_duplicate
        assert site.count("headrace_outbox") == 3

    def test_a_key_that_is_rolled_back_is_free_again(self, site: Site, queue: Queue) -> None:
        for _ in range(2):
            with contextlib.closing(site.connect()) as connection:
                sent = queue.send("orders", "a", unique="k", for_=10, transaction=connection)
                assert isinstance(sent, Stored)
                assert not sent.is_duplicate
                connection.rollback()

    @pytest.mark.parametrize(
        "options",
        [
            {"unique": "k"},
            {"for_": 5},
            {"unique": "", "for_": 1},
            {"unique": "k", "for_": -1},
            {"unique": "k", "for_": 1e300},
        ],
    )
    def test_what_makes_no_sense_is_refused(self, queue: Queue, options: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"for_=.* needs unique=|(unique|for_) must be .*, got"):
            queue.send("orders", "a", **options)

    def test_it_needs_a_database(self) -> None:
        with pytest.raises(QueueError, match="needs a database"):
            Queue(NOWHERE, group_id="g").send("orders", "a", unique="k", for_=5)


def watched_begin(begin: Any, read: list[str]) -> Any:
    """Transactions of a database that note the topics of the records that they read."""

    @contextlib.contextmanager
    def watched() -> Iterator[Any]:
        with begin() as transaction:
            execute = transaction.execute

            def noting(statement: Statement) -> Rows:
                rows = execute(statement)
                if "message_value" in statement.text and statement.text.startswith("SELECT"):
                    read.extend(row[1] for row in rows)
                return rows

            transaction.execute = noting
            yield transaction

    return watched


class TestStatements:
    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=pytest.mark.needs_postgres if kind.is_postgres else ())
            for name, kind in KINDS.items()
        ],
    )
    def test_the_first_records_of_each_topic(
        self, name: str, request: pytest.FixtureRequest, tmp_path: Path
    ) -> None:
        site = make_site(KINDS[name], tmp_path, lambda: request.getfixturevalue("postgres"))

        async def work() -> None:
            database = WorkerDatabase(site.database, asyncio.get_running_loop())
            for number in range(4):
                for group, topic in (("g", "b"), ("g", "a"), ("other", "c")):
                    record = OutboxRecord(group, topic, None, None, b"%d" % number, ())
                    await database.transact(partial(write_record, record))
            topics = partial(next_topics, "g")
            assert await database.transact(partial(topics, "", 9)) == ["a", "b"]
            assert await database.transact(partial(topics, "", 1)) == ["a"]
            assert await database.transact(partial(topics, "a", 9)) == ["b"]
            assert await database.transact(partial(topics, "b", 9)) == []
            found = await database.transact(partial(next_records, "g", {"b": 2, "a": 1, "none": 5}))
            assert [(each.topic, each.value) for each in found] == [("b", b"0"), ("b", b"1"), ("a", b"0")]
            await site.database.close_async()

        asyncio.run(work())
        site.close()


class TestRelay:
    def test_of_several_relays_one_leads_and_the_next_takes_over(self, site: Site, queue: Queue) -> None:
        async def work() -> None:
            loop = asyncio.get_running_loop()
            now_ms = 0
            first, second = (
                OutboxRelay(
                    WorkerDatabase(site.database, loop), queue._outbox, queue.group_id, lambda: now_ms
                )
                for _ in range(2)
            )
            await queue.send_async("orders", "a", unique="a", for_=1)
            await relay_all(first)
            await queue.send_async("orders", "b", unique="b", for_=1)
            await second.relay()
            assert (first.sent, second.sent) == (1, 0)
            now_ms = 15_001  # the first one was killed, and its lease is over
            await relay_all(second)

        asyncio.run(work())
        assert values(queue, "orders") == [b"a", b"b"]

    def test_a_topic_that_refuses_holds_up_its_own_records_only(self, site: Site, queue: Queue) -> None:
        with Admin(bootstrap_servers=queue.bootstrap_servers) as admin:
            admin.create_topic("small", configs={"max.message.bytes": "1000"})
        for topic, body in (("small", "x" * 5_000), ("small", "behind it"), ("orders", "a")):
            queue.send(topic, body, unique=body[:9], for_=1)

        async def work() -> None:
            database = WorkerDatabase(site.database, asyncio.get_running_loop())
            await relay_all(OutboxRelay(database, queue._outbox, queue.group_id, queue.now_ms))

        asyncio.run(work())
        assert values(queue, "orders") == [b"a"]
        assert site.execute("SELECT topic FROM headrace_outbox ORDER BY seq") == [("small",), ("small",)]

    def test_of_a_topic_that_refuses_only_the_first_record_is_read_and_tried_again(
        self, site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Else the whole outbox is read again and again, and what is behind the first one is sent each time."""

        class Counting(Outbox):
            async def send_async(self, topic: str, *arguments: Any, **keywords: Any) -> Any:
                tried.append(topic)
                return await super().send_async(topic, *arguments, **keywords)

        tried: list[str] = []
        monkeypatch.setattr(relay_module, "BLOCKED_S", 0.0)
        with Admin(bootstrap_servers=queue.bootstrap_servers) as admin:
            admin.create_topic("small", configs={"max.message.bytes": "1000"})
        for number in range(30):
            queue.send("small", f"{number}".ljust(1 if number else 5_000), unique=f"{number}", for_=1)

        async def work() -> None:
            database = WorkerDatabase(site.database, asyncio.get_running_loop())
            sender = Counting(settings_for({"bootstrap.servers": queue.bootstrap_servers}))
            relay = OutboxRelay(database, sender, queue.group_id, queue.now_ms)
            for _ in range(4):
                await relay.relay()
            assert tried == ["small"] * (30 + 3)
            with Admin(bootstrap_servers=queue.bootstrap_servers) as admin:
                admin.set_topic_config("small", {"max.message.bytes": "100000"})
            await relay_all(relay, 30)
            await relay.close()
            await asyncio.to_thread(sender.close)

        asyncio.run(work())
        assert [int(value) for value in values(queue, "small")][-30:] == [*range(30)]

    def test_a_topic_that_is_blocked_is_not_read(self, site: Site, queue: Queue) -> None:
        with Admin(bootstrap_servers=queue.bootstrap_servers) as admin:
            admin.create_topic("small", configs={"max.message.bytes": "1000"})
        queue.send("small", "x" * 5_000, unique="x", for_=1)
        read: list[str] = []

        async def work() -> None:
            database = WorkerDatabase(site.database, asyncio.get_running_loop())
            relay = OutboxRelay(database, queue._outbox, queue.group_id, queue.now_ms)
            await relay.relay()
            site.database.begin = watched_begin(site.database.begin, read)  # type: ignore[method-assign]
            await queue.send_async("orders", "a", unique="a", for_=1)
            await relay_all(relay)
            await relay.close()

        asyncio.run(work())
        assert {*read} == {"orders"}

    def test_a_topic_that_does_not_answer_holds_up_no_other(self, site: Site, queue: Queue) -> None:
        class Silent(Outbox):
            """One topic is without a leader."""

            async def send_async(self, topic: str, *arguments: Any, **keywords: Any) -> Any:
                if topic == "silent":
                    silent.set()
                    await asyncio.Event().wait()
                return await super().send_async(topic, *arguments, **keywords)

        silent = asyncio.Event()
        for topic, body in (("silent", "x"), ("orders", "a")):
            queue.send(topic, body, unique=body, for_=1)

        async def work() -> None:
            sender = Silent(settings_for({"bootstrap.servers": queue.bootstrap_servers}))
            database = WorkerDatabase(site.database, asyncio.get_running_loop())
            relay = OutboxRelay(database, sender, queue.group_id, queue.now_ms)
            await relay_all(relay, 1)
            assert silent.is_set()
            await queue.send_async("orders", "b", unique="b", for_=1)
            await relay_all(relay, 2)
            await relay.close()
            await asyncio.to_thread(sender.close)

        asyncio.run(work())
        assert values(queue, "orders") == [b"a", b"b"]
        assert site.execute("SELECT topic FROM headrace_outbox") == [("silent",)]

    def test_a_scheduled_record_that_was_stored_for_long_goes_to_the_step_for_what_is_left(
        self, site: Site, queue: Queue
    ) -> None:
        queue.send("orders", "a", delay=3600, unique="a", for_=1)

        async def work() -> None:
            database = WorkerDatabase(site.database, asyncio.get_running_loop())
            later_ms = queue.now_ms() + 3_590_000
            await relay_all(OutboxRelay(database, queue._outbox, queue.group_id, lambda: later_ms))

        asyncio.run(work())
        topic = later_topic(queue.group_id)
        with Admin(bootstrap_servers=queue.bootstrap_servers) as admin:
            ends = admin.list_offsets(
                dict.fromkeys([(topic, step) for step in range(STEPS)], OffsetSpec.LATEST)
            )
        assert [step for (_, step), end in ends.items() if end.offset] == [step_of(10_000)]

    def test_the_command_relays_and_says_what_is_wrong(
        self, tmp_path: Path, queue: Queue, site: Site
    ) -> None:
        queue.send("orders", "a", unique="a", for_=1)
        (tmp_path / "shop.py").write_text(
            "from headrace.worker import Queue, SqliteDatabase\n"
            f"queue = Queue('{NOWHERE}', group_id='{queue.group_id}', database=SqliteDatabase('app.db'))\n"
            f"plain = Queue('{NOWHERE}', group_id='g')\n"
        )

        def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                [sys.executable, "-m", "headrace", "outbox", *arguments],
                cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip

        done = run("relay", "shop:queue", "-b", queue.bootstrap_servers, "--until-empty")
        assert (done.returncode, done.stderr.strip()) == (0, "the outbox is empty"), done.stderr
        assert values(queue, "orders") == [b"a"]
        refused = run("relay", "shop:plain")
        assert refused.returncode == 1
        assert "has no database" in refused.stderr
        with contextlib.closing(sqlite3.connect(":memory:")) as empty:
            empty.executescript(run("schema", "sqlite").stdout)

    def test_an_async_database_is_relayed_on_its_own_loop(
        self, postgres: Any, queue: Queue, tmp_path: Path
    ) -> None:
        site = make_site(KINDS["asyncpg-async"], tmp_path, lambda: postgres)
        queue.database = AsyncpgDatabase(site.place)

        async def work() -> int:
            await queue.send_async("orders", "a", unique="a", for_=1)
            return await queue.relay_outbox(seconds=30)

        assert asyncio.run(work()) == 0
        assert values(queue, "orders") == [b"a"]


@pytest.mark.parametrize("name", ["sqlite", pytest.param("psycopg", marks=pytest.mark.needs_postgres)])
def test_the_child_of_a_fork_does_not_use_the_connections_of_its_parent(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    site = make_site(KINDS[name], tmp_path, lambda: request.getfixturevalue("postgres"))
    with site.database.begin() as transaction:
        of_parent = id(transaction.connection)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads and fork: that is what is tested
        child = os.fork()
    if not child:
        try:
            with site.database.begin() as transaction:
                os._exit(2 if id(transaction.connection) == of_parent else 0)
        except BaseException:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with site.database.begin() as transaction:
        assert id(transaction.connection) == of_parent, "the parent goes on with it"
    site.close()


def test_nothing_is_imported_unless_it_is_used() -> None:
    program = (
        "import sys; from headrace.worker import Queue, SqliteDatabase; Queue('x:1', group_id='g'); "
        "print({'psycopg', 'asyncpg', 'sqlalchemy'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "set()"
    assert SqliteDatabase
