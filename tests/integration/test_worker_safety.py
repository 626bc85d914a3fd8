"""What a queue does by default when things go wrong: nothing is lost, and nothing happens in silence."""

import asyncio
import threading
import time
from dataclasses import dataclass
from datetime import timedelta

import pytest

from headrace.worker import Backoff, Breaker, Queue, Reject, Retry
from headrace.worker.testing import QueueTest
from tests.conformance.steps import wait_for


@dataclass
class Email:
    to: str


@pytest.fixture
def queue():
    with Queue("localhost:1", group_id="mailers") as queue:
        yield queue


def only(test: QueueTest):
    (metrics,) = test.metrics().values()
    return metrics


class TestWithoutDeadLetters:
    def test_a_record_that_has_used_up_its_attempts_is_held_until_it_succeeds(self, queue, caplog):
        runs = []

        @queue.task("emails", retries=Backoff(first=1, most=10, jitter=0, tries=2))
        async def send(email: Email) -> None:
            runs.append(email)
            if len(runs) < 5:
                raise ValueError("broken")

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            test.run_until_idle()
            test.advance(1)
            test.run_until_idle()
            assert (len(runs), only(test).stuck, only(test).held) == (2, 1, 1)
            assert "is held after 2 attempts, because the task has no dead_letter topic" in caplog.text

            for _ in range(3):
                test.advance(10)
                test.run_until_idle()
            assert (only(test).succeeded, only(test).stuck, only(test).discarded) == (1, 0, 0)

    def test_a_record_that_cannot_be_read_is_held(self, queue):
        @queue.task("emails")
        async def send(email: Email) -> None: ...

        with QueueTest(queue) as test:
            test.send("emails", b"\xff not json")
            test.run_until_idle()

            assert (only(test).stuck, only(test).held, only(test).discarded) == (1, 1, 0)

    def test_a_record_on_its_last_delivery_is_replaced_by_a_copy_that_knows_its_attempts(self, queue):
        begun = []

        @queue.task("emails", concurrency=1)
        async def send(email: Email) -> None:
            begun.append(email)
            if len(begun) == 1:
                await asyncio.sleep(1e6)  # until it is canceled

        with QueueTest(queue, settings={"group.share.delivery.count.limit": 2}) as test:
            test.send("emails", Email("ada"), key="k", headers={"trace": "7"})
            wait_for(lambda: len(begun) == 1)
            test.broker.release_record("mailers", "emails", 0, 0)  # as if this worker had died
            test.advance(30)
            test.run_until_idle()

            original, copy = test.records("emails")
            assert (copy.key, copy.value) == (original.key, original.value)
            assert (copy.headers["trace"], copy.headers["headrace.attempts"]) == ("7", "1")
            assert (only(test).requeued, only(test).succeeded) == (1, 1)

    def test_what_the_function_rejects_is_gone_as_it_said(self, queue):
        @queue.task("emails")
        async def send(email: Email) -> None:
            raise Reject("no such mailbox")

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            test.run_until_idle()
            assert (only(test).rejected, only(test).discarded) == (1, 1)

    @pytest.mark.parametrize("attempts", [b"9" * 5_000, b"-1", b"many", b""])
    def test_a_header_that_is_no_number_of_attempts_is_ignored(self, queue, attempts):
        @queue.task("emails")
        async def send(email: Email) -> None: ...

        with QueueTest(queue) as test:
            queue.send("emails", Email("ada"), headers={"headrace.attempts": attempts})
            test.run_until_idle()
            assert only(test).succeeded == 1


class TestOutage:
    def test_records_that_always_fail_do_not_keep_the_task_paused(self, queue):
        @queue.task("emails", concurrency=4, breaker=Breaker(failures=4, first=30, most=30))
        async def send(email: Email) -> None:
            if email.to == "poison":
                raise ValueError("no")

        with QueueTest(queue) as test:
            for _ in range(4):
                test.send("emails", Email("poison"))
            wait_for(lambda: only(test).paused)
            for name in ("ada", "bob"):
                test.send("emails", Email(name))
            test.advance(31)
            wait_for(lambda: only(test).succeeded == 2)

    def test_records_that_ask_for_another_try_at_their_own_time_do_not_pause_the_task(self, queue):
        asked = []

        @queue.task("emails", breaker=Breaker(failures=5, first=10, most=40))
        async def send(body: int) -> None:
            asked.append(body)
            raise Retry(after=timedelta(days=1))

        with QueueTest(queue) as test:
            queue.send_many("emails", range(20))
            test.run_until_idle()
            (metrics,) = test.metrics().values()
            assert (sorted(asked), metrics.pauses) == ([*range(20)], 0)

    def test_an_outage_pauses_the_task_and_costs_no_record(self, queue, caplog):
        runs, is_away = [], True

        @queue.task("emails", breaker=Breaker(failures=5, first=10, most=40))
        async def send(email: Email) -> None:
            runs.append(email)
            if is_away:
                raise ConnectionError("away")

        with QueueTest(queue) as test:
            test.queue.send_many("emails", [Email(str(number)) for number in range(200)])
            wait_for(lambda: only(test).paused)
            wait_for(lambda: "paused, because the last 5 records have failed" in caplog.text)
            assert next(iter(queue.status()["tasks"].values()))["state"] == "paused"
            for _ in range(30):  # five minutes
                test.advance(10)
                test.run_until_idle()
            assert len(runs) < 40, "it probes, and does not try all records"

            is_away = False
            test.advance(60)
            test.run_until_idle()
            for _ in range(20):  # what waits out its back-off
                test.advance(30)
                test.run_until_idle()
            metrics = only(test)
            assert (metrics.succeeded, metrics.paused, metrics.pauses, metrics.discarded) == (200, 0, 1, 0)
            assert "the task is resumed" in caplog.text


class TestBlockedLoop:
    def test_a_task_that_blocks_the_event_loop_keeps_its_locks(self, queue):
        runs, is_blocked, may_go = [], threading.Event(), threading.Event()

        @queue.task("emails")
        async def send(email: Email) -> None:
            runs.append(email)
            is_blocked.set()
            may_go.wait(60)

        with QueueTest(queue) as test:
            test.queue.send_many("emails", [Email(str(number)) for number in range(3)])
            assert is_blocked.wait(60)
            test.advance(300)  # ten times the lock: it waits for the renewals
            may_go.set()
            test.run_until_idle()
            assert (len(runs), only(test).succeeded, only(test).lost) == (3, 3, 0)

    def test_a_warning_names_the_task(self, queue, monkeypatch, caplog):
        monkeypatch.setattr("headrace.worker.threads.WATCH_S", 0.02)
        monkeypatch.setattr("headrace.worker.threads.BLOCKED_S", 0.1)

        @queue.task("emails")
        async def send(email: Email) -> None:
            deadline = time.monotonic() + 60
            while "has blocked the event loop" not in caplog.text and time.monotonic() < deadline:
                time.sleep(0.01)  # noqa: ASYNC251 - it blocks the event loop on purpose

        with QueueTest(queue) as test:
            test.send("emails", Email("ada"))
            test.run_until_idle(timeout=90)
            warning = next(each for each in caplog.messages if "has blocked the event loop" in each)
            assert "<locals>.send has blocked the event loop" in warning
            assert "test_worker_safety.py" in warning
            wait_for(lambda: "the event loop continues" in caplog.text)
