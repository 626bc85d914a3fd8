"""A reader that stops without its connections ending: paused, cut off, or its machine gone. Its locks stay.

They last an hour here, so whoever gets the records has not waited for the locks' end. Spark's calls are made by hand;
whole queries that are killed so are in test_crash.py.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from headrace.spark.driver import Driver
from headrace.spark.offset import AcquiredOffset
from headrace.wire.ids import TopicAndPartition
from tests.spark.conftest import Queue, wait_for
from tests.spark.test_driver import Open, drained, hold_all, initial, opened, queue

__all__ = ["opened", "queue"]
pytestmark = pytest.mark.timeout(180)
LOCK_MS = 3_600_000
MODES = pytest.mark.parametrize("acknowledge", ["commit", "handoff"])


@pytest.fixture(autouse=True)
def _long_locks(queue: Queue) -> None:
    with queue.admin() as admin:
        admin.set_group_config(queue.group, {"share.record.lock.duration.ms": LOCK_MS})
    queue.send(100)


@contextmanager
def paused(driver: Driver) -> Iterator[None]:
    """Its loop does nothing meanwhile, so neither do its connections."""
    is_paused, may_go_on = threading.Event(), threading.Event()

    def pause() -> None:
        is_paused.set()
        may_go_on.wait(60)

    driver._loop.loop.call_soon_threadsafe(pause)
    assert is_paused.wait(10)
    time.sleep(
        0.5
    )  # the fetch that it left at the broker has ended by the time that a process can start anew
    try:
        yield
    finally:
        may_go_on.set()


def holding_all(driver: Driver, queue: Queue) -> Driver:
    hold_all(driver, queue)
    return driver


def places(offset: dict[str, Any]) -> list[tuple[TopicAndPartition, int]]:
    batch = AcquiredOffset.from_json(offset).batch
    return [(place, at) for place, run in batch for at in range(run.first, run.last + 1)]


def is_each_once(offsets: list[dict[str, Any]], queue: Queue) -> bool:
    found = [each for offset in offsets for each in places(offset)]
    return len(found) == len(set(found)) == queue.sent


@MODES
def test_a_restarted_reader_gets_what_its_paused_self_still_holds(
    opened: Open, queue: Queue, acknowledge: str
) -> None:
    old = holding_all(opened(acknowledge=acknowledge), queue)
    end = old.latest(initial(queue), 60)  # logged by Spark; the other 40 are held and in no micro-batch
    with paused(old):
        new = opened(acknowledge=acknowledge, drain=True)
        new.log(end)
        assert is_each_once([end, *drained(new, end)], queue)
        assert queue.lag() == 0


@MODES
def test_a_reader_that_wakes_and_closes_after_its_successor_began_harms_nothing(
    opened: Open, queue: Queue, acknowledge: str
) -> None:
    """It closes a session and leaves a group under the member id that its successor works under."""
    old = holding_all(opened(acknowledge=acknowledge), queue)
    end = old.latest(initial(queue), 60)
    new = opened(acknowledge=acknowledge, pollTimeoutMs=500)
    with paused(old):
        new.log(end)
    old.close()
    offsets = [end]

    def work() -> bool:
        following = new.latest(offsets[-1], 10)
        if following != offsets[-1]:
            new.log(following)
            offsets.append(following)
        return sum(len(places(each)) for each in offsets) >= queue.sent and queue.lag() == 0

    wait_for(work)
    assert is_each_once(offsets, queue)
