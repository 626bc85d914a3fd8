"""Tasks with `batch`: what one call gets, what becomes of each of its records, and how it ends."""

import asyncio
import os
import threading
from contextlib import contextmanager

import pytest

from headrace.client.delivery import Delivery
from headrace.worker import Backoff, Batch, DeliveryFacts, Middleware, Queue, Reject, Retry, current_run
from headrace.worker.testing import QueueTest
from tests.conformance.steps import wait_for

STEADY = Backoff(first=100, factor=1, most=100, jitter=0)
LONG = Batch(max=4, wait=1_000)
"""It starts when it is full, or when the test turns the clock."""


@pytest.fixture
def queue():
    with Queue("localhost:1", group_id="bulk", drain_timeout=1.0, hold_max=10_000) as queue:
        yield queue


def only(test: QueueTest):
    (metrics,) = test.metrics().values()
    return metrics


def send(test: QueueTest, *bodies: int) -> None:
    for body in bodies:
        test.send("numbers", body)


class TestCalls:
    def test_a_full_batch_runs_at_once_and_the_rest_when_it_has_waited(self, queue):
        seen = []

        @queue.task("numbers", batch=LONG)
        async def add(numbers: list[int], deliveries: list[Delivery]) -> None:
            seen.append((numbers, [each.offset for each in deliveries]))

        with QueueTest(queue) as test:
            send(test, *range(6))
            test.run_until_idle()
            assert seen == [([0, 1, 2, 3], [0, 1, 2, 3])]
            assert only(test).held == 2
            test.advance(1_000)
            test.run_until_idle()

            assert seen[1:] == [([4, 5], [4, 5])]
            assert (only(test).succeeded, only(test).runs, only(test).lost, only(test).held) == (6, 2, 0, 0)

    def test_locks_are_renewed_while_a_batch_runs(self, queue):
        go_on = threading.Event()

        @queue.task("numbers", batch=LONG)
        def wait(numbers: list[int]) -> None:
            go_on.wait(60)

        with QueueTest(queue) as test:
            send(test, *range(4))
            wait_for(lambda: only(test).running == 4)
            test.advance(300)
            go_on.set()
            test.run_until_idle()

            assert (only(test).succeeded, only(test).received, only(test).lost) == (4, 4, 0)

    def test_a_body_that_cannot_be_read_does_not_reach_the_function(self, queue):
        seen = []

        @queue.task("numbers", batch=LONG, dead_letter="dead")
        async def add(numbers: list[int]) -> None:
            seen.append(numbers)

        with QueueTest(queue) as test:
            for body in (0, b"garbage", 2, 3):
                test.send("numbers", body)
            test.run_until_idle()

            assert seen == [[0, 2, 3]]
            assert [each.value for each in test.dead_letters("dead")] == [b"garbage"]
            assert (only(test).succeeded, only(test).unreadable) == (3, 1)

    def test_a_batch_of_nothing_but_garbage_calls_nothing_and_frees_its_slot(self, queue):
        seen = []

        @queue.task("numbers", batch=LONG, dead_letter="dead", concurrency=1)
        async def add(numbers: list[int]) -> None:
            seen.append(numbers)

        with QueueTest(queue) as test:
            for body in [b"garbage"] * 4 + [1] * 4:
                test.send("numbers", body)
            test.run_until_idle()

            assert seen == [[1] * 4]
            assert len(test.dead_letters("dead")) == 4


class TestOutcomes:
    def test_each_record_has_its_own_outcome(self, queue):
        seen = []

        @queue.task("numbers", batch=LONG, retries=STEADY, dead_letter="dead")
        async def judge(numbers: list[int]) -> list[Exception | None]:
            seen.append(numbers)
            if len(seen) > 1:
                return [None for _ in numbers]
            return [None, Reject("never"), Retry(after=50), ValueError("broken")]

        with QueueTest(queue) as test:
            send(test, *range(4))
            test.run_until_idle()
            assert [each.value for each in test.dead_letters("dead")] == [b"1"]
            assert (only(test).succeeded, only(test).waiting, only(test).failed) == (1, 2, 2)
            test.advance(1_100)  # both delays, and the batch's wait
            test.run_until_idle()

            assert sorted(number for numbers in seen[1:] for number in numbers) == [2, 3]
            assert (only(test).succeeded, only(test).retried, only(test).held) == (3, 2, 0)

    @pytest.mark.parametrize("wrong", [[None], [None] * 5, [None, None, None, "ok"], "abcd", 7])
    def test_a_wrong_return_value_settles_nothing(self, queue, wrong, caplog):
        seen = []

        @queue.task("numbers", batch=LONG, retries=STEADY, dead_letter="dead")
        async def forget(numbers: list[int]) -> object:
            seen.append(numbers)
            return wrong if len(seen) == 1 else None

        with QueueTest(queue) as test:
            send(test, *range(4))
            test.run_until_idle()
            assert (only(test).succeeded, only(test).waiting, only(test).failed) == (0, 4, 4)
            assert test.dead_letters("dead") == []
            assert "BatchResultError" in caplog.text
            assert "return a list of 4 outcomes" in caplog.text
            test.advance(101)
            test.run_until_idle()

            assert only(test).succeeded == 4

    def test_a_record_that_fails_its_batch_does_not_fail_its_neighbors_for_good(self, queue):
        seen = []

        @queue.task(
            "numbers", batch=LONG, retries=Backoff(first=10, most=10, jitter=0, tries=2), dead_letter="dead"
        )
        async def insert(numbers: list[int]) -> None:
            seen.append(numbers)
            if 2 in numbers:
                raise ValueError("a bulk insert fails as a whole")

        with QueueTest(queue) as test:
            send(test, *range(4))
            test.run_until_idle()
            test.advance(11)
            test.run_until_idle()

            assert seen[0] == [0, 1, 2, 3]
            assert sorted(seen[1:]) == [[0], [1], [2], [3]]
            assert [each.value for each in test.dead_letters("dead")] == [b"2"]
            assert only(test).succeeded == 3

    def test_a_raised_reject_rejects_only_the_record_that_raises_it_alone(self, queue):
        @queue.task("numbers", batch=LONG, dead_letter="dead")
        async def check(numbers: list[int]) -> None:
            if 2 in numbers:
                raise Reject("2 is not allowed")

        with QueueTest(queue) as test:
            send(test, *range(4))
            test.run_until_idle()

            assert [each.value for each in test.dead_letters("dead")] == [b"2"]
            assert only(test).succeeded == 3

    def test_one_failed_batch_does_not_pause_the_task_but_failures_of_many_do(self, queue):
        @queue.task("numbers", batch=Batch(max=30, wait=1_000), retries=STEADY, concurrency=1)
        async def fail(numbers: list[int]) -> None:
            raise ConnectionError("away")

        with QueueTest(queue) as test:
            send(test, *range(30))
            test.run_until_idle()
            assert (only(test).waiting, only(test).paused) == (30, 0)
            test.advance(101)
            test.run_until_idle()
            assert only(test).paused == 1


class TestEnds:
    def test_a_coroutine_is_canceled_after_its_timeout_and_all_its_records_are_tried_again(self, queue):
        seen = []

        @queue.task("numbers", batch=LONG, timeout=50, retries=STEADY)
        async def hang(numbers: list[int]) -> None:
            seen.append(numbers)
            if len(seen) == 1:
                await asyncio.sleep(1_000_000)

        with QueueTest(queue) as test:
            send(test, *range(4))
            wait_for(lambda: len(seen) == 1)
            test.advance(51)
            test.run_until_idle()
            assert (only(test).timed_out, only(test).waiting, only(test).runs) == (1, 4, 1)
            test.advance(101)
            test.run_until_idle()
            assert sorted(seen[1:]) == [[0], [1], [2], [3]]
            assert only(test).succeeded == 4

    def test_a_thread_keeps_its_slot_after_its_timeout(self, queue):
        go_on, seen = threading.Event(), []

        @queue.task("numbers", batch=LONG, timeout=50, retries=STEADY, concurrency=1)
        def hang(numbers: list[int]) -> None:
            seen.append(numbers)
            if len(seen) == 1:
                go_on.wait(60)

        with QueueTest(queue) as test:
            send(test, *range(4))
            wait_for(lambda: len(seen) == 1)
            test.advance(51)
            wait_for(lambda: only(test).waiting == 4)
            test.advance(101)
            assert (len(seen), only(test).abandoned) == (1, 1)
            go_on.set()
            wait_for(lambda: len(seen) == 5)  # being idle does not wait for an abandoned thread
            test.run_until_idle()
            assert sorted(seen[1:]) == [[0], [1], [2], [3]]
            assert (only(test).succeeded, only(test).lost) == (4, 0)

    def test_stopping_releases_what_gathers_and_what_does_not_end(self, queue):
        began = threading.Event()

        @queue.task("numbers", batch=LONG, concurrency=2)
        async def hang(numbers: list[int]) -> None:
            began.set()
            await asyncio.sleep(1_000_000)

        with QueueTest(queue) as test:
            send(test, *range(6))
            assert began.wait(30)
            wait_for(lambda: only(test).held == 6)
            queue.stop()
            wait_for(lambda: queue.crew is None)
            (metrics,) = queue.metrics().values()
            assert (metrics.released, metrics.succeeded, metrics.held) == (6, 0, 0)

    def test_a_batch_that_ends_while_the_worker_drains_is_accepted(self, queue):
        began, go_on = threading.Event(), threading.Event()

        @queue.task("numbers", batch=LONG)
        def work(numbers: list[int]) -> list[Exception | None]:
            began.set()
            go_on.wait(60)
            return [None, None, ValueError("no"), None]

        queue._drain_timeout = 60
        with QueueTest(queue) as test:
            send(test, *range(4))
            assert began.wait(30)
            queue.stop()
            go_on.set()
            wait_for(lambda: queue.crew is None)
            (metrics,) = queue.metrics().values()
            assert (metrics.succeeded, metrics.released) == (3, 1)


class Notes(Middleware):
    def __init__(self):
        self.runs = []

    @contextmanager
    def around_run(self, run):
        self.runs.append((run.offset, None if run.batch is None else [each.offset for each in run.batch]))
        yield


class TestHooks:
    def test_middleware_sees_one_run_with_all_records_and_errors_that_are_returned(self, queue):
        notes, errors = Notes(), []
        queue.use(notes)
        queue.on_error(lambda run, error: errors.append((run.offset, str(error))))

        @queue.task("numbers", batch=LONG, retries=STEADY)
        async def judge(numbers: list[int]) -> list[Exception | None]:
            run = current_run()
            assert run is not None
            assert run.batch is not None
            return [None, ValueError("no"), Retry(after=1_000), None]

        with QueueTest(queue) as test:
            send(test, *range(4))
            test.run_until_idle()

            assert notes.runs == [(0, [0, 1, 2, 3])]
            assert errors == [(1, "no")]
            assert only(test).succeeded == 2


in_processes = Queue("localhost:1", group_id="bulk", hold_max=10_000)


@in_processes.task("numbers", batch=LONG, pool="process", timeout=300, retries=STEADY)
def judge_in_another_process(
    numbers: list[int], deliveries: list[DeliveryFacts]
) -> list[Exception | None] | None:
    if len(numbers) > 1 and deliveries[0].offset == 4:
        os._exit(3)
    if len(numbers) > 1:
        return [Retry(after=200) if each.offset == 1 else None for each in deliveries]
    return None


class TestProcesses:
    def test_outcomes_come_back_and_a_dead_process_fails_its_batch(self):
        with QueueTest(in_processes) as test:
            send(test, *range(4))
            test.run_until_idle(60)
            assert (only(test).succeeded, only(test).waiting) == (3, 1)
            send(test, *range(4))
            test.run_until_idle(60)
            assert (only(test).succeeded, only(test).waiting) == (3, 5)
            test.advance(101)
            test.run_until_idle(60)
            assert only(test).succeeded == 7
            test.advance(1_300)
            test.run_until_idle(60)
            assert (only(test).succeeded, only(test).held) == (8, 0)


def test_a_task_called_directly_is_its_function(queue):
    @queue.task("numbers", batch=LONG)
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    assert add([1, 2, 3]) == 6

    with pytest.raises(TypeError, match="does not take this body"):
        add.send([1, 2])
