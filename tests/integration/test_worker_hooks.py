"""Hooks of a queue: middleware, errors, log context, lifespans (in processes, too), and a worker beside a program."""

import asyncio
import logging
import sqlite3
import subprocess
import sys
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace import Broker
from headrace.worker import (
    Backoff,
    Batch,
    Middleware,
    Queue,
    Reject,
    SqliteDatabase,
    TaskLogFilter,
    current_run,
)
from headrace.worker.testing import QueueTest
from tests.conformance.steps import wait_for
from tests.integration import worker_lifespan

TENANT: ContextVar[str] = ContextVar("tenant", default="nobody")


@dataclass
class Email:
    to: str


@pytest.fixture
def queue():
    with Queue("localhost:1", group_id="mailers") as queue:
        yield queue


class Tenants(Middleware):
    @contextmanager
    def around_send(self, outgoing):
        outgoing.headers["tenant"] = TENANT.get().encode()
        yield

    @contextmanager
    def around_run(self, run):
        token = TENANT.set(run.header("tenant"))
        try:
            yield
        finally:
            TENANT.reset(token)


class TestMiddleware:
    def test_headers_go_from_send_to_the_context_of_each_run(self, queue):
        seen = []
        queue.use(Tenants())

        @queue.task("coroutines")
        async def coroutine(body: str) -> None:
            await asyncio.sleep(0)
            seen.append((body, TENANT.get(), current_run().topic, current_run().attempt))

        @queue.task("threads")
        def thread(body: str) -> None:
            seen.append((body, TENANT.get(), current_run().topic, current_run().attempt))

        with QueueTest(queue) as test:
            token = TENANT.set("ada")
            coroutine.send("one")
            queue.send_many("threads", ["two", "three"])
            asyncio.run(thread.send_async("four"))
            thread.send("five", delay=30)
            TENANT.reset(token)
            test.run_until_idle()
            test.advance(31)
            test.run_until_idle()
        assert sorted(seen) == [
            ("five", "ada", "threads", 1),
            ("four", "ada", "threads", 1),
            ("one", "ada", "coroutines", 1),
            ("three", "ada", "threads", 1),
            ("two", "ada", "threads", 1),
        ]
        assert current_run() is None

    def test_the_error_hook_hears_of_failures_and_not_of_what_the_function_asks_for(self, queue, caplog):
        reported = []

        @queue.on_error
        def report(run, error):
            reported.append((run.task.rpartition(".")[2], run.attempt, repr(error)))
            raise RuntimeError("a broken hook breaks no worker")

        @queue.task("emails", retries=Backoff(first=1, most=1, tries=2), dead_letter="emails.dead")
        def send(email: Email) -> None:
            if email.to == "nobody":
                raise Reject("no such address")
            raise ValueError("broken")

        with QueueTest(queue) as test:
            test.send("emails", Email("nobody"))
            test.send("emails", Email("ada"))
            test.run_until_idle()
            test.advance(2)
            test.run_until_idle()
            assert len(test.dead_letters("emails.dead")) == 2
        assert reported == [("send", 1, "ValueError('broken')"), ("send", 2, "ValueError('broken')")]
        assert "the error hook has failed" in caplog.text

    @pytest.mark.parametrize("kind", ["coroutine", "thread", "once"])
    def test_a_failure_that_middleware_does_not_let_through_is_one_all_the_same(self, queue, kind, tmp_path):
        class LogsOnly(Middleware):
            @contextmanager
            def around_run(self, run):
                with suppress(ConnectionError):
                    yield

        queue.use(LogsOnly())
        dead = {"retries": None, "dead_letter": "emails.dead"}

        def thread(body: str) -> None:
            raise ConnectionError("away")

        def once(body: str, connection: sqlite3.Connection) -> None:
            raise ConnectionError("away")

        async def coroutine(body: str) -> None:
            raise ConnectionError("away")

        if kind == "once":
            queue.task("emails", once=SqliteDatabase(tmp_path / "app.db"), **dead)(once)
        else:
            queue.task("emails", **dead)(thread if kind == "thread" else coroutine)
        with QueueTest(queue) as test:
            test.send("emails", "ada")
            wait_for(lambda: test.dead_letters("emails.dead"))  # with once=, by the outbox

    def test_middleware_may_replace_an_exception(self, queue):
        class Translates(Middleware):
            @contextmanager
            def around_run(self, run):
                try:
                    yield
                except ValueError as error:
                    raise Reject("translated") from error

        queue.use(Translates())

        @queue.task("emails", dead_letter="emails.dead")
        def send(email: str) -> None:
            raise ValueError("broken")

        with QueueTest(queue) as test:
            test.send("emails", "ada")
            test.run_until_idle()
            (letter,) = test.dead_letters("emails.dead")
        assert letter.headers["headrace.dlq.cause"] == "rejected"

    def test_middleware_that_fails_to_hear_of_a_returned_error_runs_no_record_again(self, queue, caplog):
        class Breaks(Middleware):
            def returned_error(self, run, error):
                raise RuntimeError("broken hook")

        queue.use(Breaks())
        calls = []

        @queue.task("emails", batch=Batch(max=2, wait=60), dead_letter="emails.dead")
        def send(emails: list[str]) -> list[Exception | None]:
            calls.append(sorted(emails))
            return [Reject("no") if email == "ada" else None for email in emails]

        with QueueTest(queue) as test:
            queue.send_many("emails", ["ada", "bob"])
            test.run_until_idle()
            assert len(test.dead_letters("emails.dead")) == 1
        assert calls == [["ada", "bob"]]
        assert "Breaks.returned_error has failed" in caplog.text

    def test_log_records_of_a_task_say_which_it_is(self, queue):
        lines = []
        handler = logging.Handler()
        handler.addFilter(TaskLogFilter())
        handler.emit = lambda record: lines.append((record.record, record.attempt, record.getMessage()))
        logger = logging.getLogger("test_worker_hooks")
        logger.addHandler(handler)

        @queue.task("emails")
        async def send(email: Email) -> None:
            logger.warning("inside")

        try:
            with QueueTest(queue) as test:
                test.send("emails", Email("ada"))
                test.run_until_idle()
            logger.warning("outside")
        finally:
            logger.removeHandler(handler)
        assert lines == [("emails-0@0", 1, "inside"), ("-", "-", "outside")]


class TestLifespan:
    @pytest.mark.parametrize("is_async", [True, False])
    def test_it_surrounds_the_worker_and_its_value_is_the_state(self, queue, is_async):
        events = []

        async def with_await():
            events.append("begin")
            yield "pool"
            events.append("end")

        def without():
            events.append("begin")
            yield "pool"
            events.append("end")

        queue.lifespan(with_await if is_async else without)

        @queue.task("emails")
        def send(email: Email) -> None:
            events.append(queue.state)

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            test.run_until_idle()
        assert events == ["begin", "pool", "end"]

    def test_one_that_fails_ends_the_start(self, queue):
        @queue.lifespan
        def broken():
            raise OSError("no database")
            yield

        @queue.task("emails")
        def send(email: Email) -> None: ...

        with pytest.raises(OSError, match="no database"), QueueTest(queue):
            pass

    def test_each_process_of_a_pool_has_its_own(self, tmp_path, monkeypatch):
        monkeypatch.setenv("LIFESPAN_LOG", str(tmp_path / "log"))
        with QueueTest(worker_lifespan.queue) as test:
            test.send("numbers", 7)
            test.run_until_idle(timeout=60)
        wait_for(lambda: (tmp_path / "log").read_text().count("end") == 2)
        lines = (tmp_path / "log").read_text().split()
        worker, child = lines[0].split(":")[1], lines[1].split(":")[1]
        assert worker != child
        assert lines[:3] == [f"begin:{worker}", f"begin:{child}", f"run:{child}:resource-of-{child}"]
        assert sorted(lines[3:]) == sorted([f"end:{worker}", f"end:{child}"])

    def test_a_process_whose_lifespan_failed_tries_it_again_with_the_next_call(self, tmp_path, monkeypatch):
        monkeypatch.setenv("LIFESPAN_LOG", str(tmp_path / "log"))
        monkeypatch.setenv("LIFESPAN_FAILS_FIRST", str(tmp_path / "failed"))
        with QueueTest(worker_lifespan.queue) as test:
            test.send("numbers", 7)
            wait_for(lambda: next(iter(test.metrics().values())).retried == 1)
            test.advance(10)
            wait_for(lambda: next(iter(test.metrics().values())).succeeded == 1)
        assert "run:" in (tmp_path / "log").read_text()


class TestBesideAProgram:
    def test_async_with_starts_and_stops_a_worker(self):
        async def program(queue: Queue) -> list[str]:
            done = asyncio.Event()
            seen: list[str] = []

            @queue.task("emails")
            async def send(body: str) -> None:
                seen.append(body)
                done.set()

            async with queue:
                await send.send_async("ada")
                await asyncio.wait_for(done.wait(), 60)
            assert queue.crew is None
            return seen

        with Broker() as broker:
            assert asyncio.run(program(Queue(broker.bootstrap_servers, group_id="mailers"))) == ["ada"]

    def test_async_with_raises_what_makes_a_start_impossible(self):
        async def program() -> None:
            async with Queue("localhost:1", group_id="mailers"):
                raise AssertionError("it has no tasks")

        with pytest.raises(Exception, match="the queue has no tasks"):
            asyncio.run(program())

    def test_a_worker_that_ends_by_itself_says_so_while_the_program_goes_on(self, caplog):
        async def program(queue: Queue) -> None:
            @queue.lifespan
            def lifespan():
                yield
                raise OSError("the pool is broken")

            @queue.task("emails")
            async def send(body: str) -> None: ...

            async with queue:
                queue.stop()
                await asyncio.wait((queue._running,))
                await asyncio.sleep(0)
                assert "the worker has ended: the pool is broken" in caplog.text

        with Broker() as broker, pytest.raises(OSError, match="the pool is broken"):
            asyncio.run(program(Queue(broker.bootstrap_servers, group_id="mailers")))

    def test_a_start_that_is_canceled_leaves_no_worker(self):
        async def program(queue: Queue) -> None:
            @queue.task("emails")
            async def send(body: str) -> None: ...

            entering = asyncio.create_task(queue.__aenter__())
            for _ in range(3):  # turns: the task begins, and with it the worker
                await asyncio.sleep(0)
            assert queue.crew is not None
            entering.cancel()
            await asyncio.wait((entering,))
            assert entering.cancelled()
            assert queue.crew is None

        asyncio.run(program(Queue("localhost:1", group_id="mailers")))

    def test_the_example_for_web_frameworks_runs(self):
        example = Path(__file__).parents[2] / "examples" / "fastapi_queue.py"
        done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "delivered to ada" in done.stdout
