"""`QueueTest`: how it moves the clock."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.worker import Backoff, Firing, Queue
from headrace.worker.testing import QueueTest

DAY_S = 86_400


@pytest.fixture
def queue():
    return Queue("elsewhere:9092", group_id="mailers")


@contextmanager
def counted_steps(test: QueueTest) -> Iterator[list[float]]:
    """How far each step of the clock goes."""
    steps: list[float] = []
    advance = test.broker.advance

    def counting(seconds: float) -> None:
        steps.append(seconds)
        advance(seconds)

    test.broker.advance = counting  # type: ignore[method-assign]
    try:
        yield steps
    finally:
        del test.broker.advance  # type: ignore[method-assign]


def test_days_without_work_take_few_steps(queue):
    """With steps of a sixth of a lock they were 17,280 a day, and took most of a minute."""
    ran = []

    @queue.task("emails")
    async def send(body: str) -> None:
        ran.append(body)

    with QueueTest(queue) as test, counted_steps(test) as steps:
        queue.send("emails", "now")
        queue.send("emails", "later", delay=3 * DAY_S)
        test.run_until_idle()
        test.advance(2.9 * DAY_S)
        test.run_until_idle()
        assert ran == ["now"]
        test.advance(0.2 * DAY_S)
        test.run_until_idle()
        assert ran == ["now", "later"]
    assert sum(steps) == pytest.approx(3.1 * DAY_S)
    assert len(steps) < 250


def test_every_period_of_a_long_time_is_sent(queue):
    fired = []

    @queue.every("0 * * * *")
    async def tick(firing: Firing) -> None:
        fired.append(firing.at)

    with QueueTest(queue) as test:
        test.run_until_idle()
        test.advance(2 * DAY_S)
        test.run_until_idle()
    assert len(fired) in (48, 49)


def test_what_sleeps_beside_the_tasks_is_woken_at_its_times(queue):
    woken = []

    async def look() -> None:
        while True:
            await asyncio.sleep(600)
            woken.append(True)

    @queue.lifespan
    async def resources():
        looking = asyncio.create_task(look())
        yield
        looking.cancel()

    @queue.task("emails")
    async def send(body: str) -> None: ...

    with QueueTest(queue) as test:
        test.advance(DAY_S)
    assert len(woken) in (143, 144)


def test_records_that_wait_for_a_retry_keep_their_locks(queue):
    ran = []

    @queue.task("emails", key_order=True, retries=Backoff(first=600, most=600, jitter=0, tries=7))
    async def send(body: str) -> None:
        ran.append(body)
        if len(ran) < 7:
            raise ConnectionError("away")

    with QueueTest(queue) as test:
        test.send("emails", "ada")
        test.run_until_idle()
        test.advance(3700)
        test.run_until_idle()
        (metrics,) = test.metrics().values()
        assert (len(ran), metrics.received, metrics.lost, metrics.succeeded) == (7, 1, 0, 1)
