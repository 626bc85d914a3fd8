"""Pools: each ends a call as far as it can be ended, and gives back what the function raised."""

import asyncio
import functools
import os
import threading
from functools import partial

import pytest

from headrace.worker.outcomes import DONE, Reject, TaskResult
from headrace.worker.pools import LoopPool, ThreadPool, find_object, run

WAIT_S = 60.0


def on_a_loop(test):
    @functools.wraps(test)
    def runs(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return runs


async def done(call):
    return await asyncio.wait_for(call.future, WAIT_S)


@on_a_loop
async def test_a_coroutine_returns_or_raises():
    async def work(number: int) -> None:
        if number:
            raise Reject("no")

    pool = LoopPool(work)

    assert await done(pool.start((0,))) is DONE
    assert (await done(pool.start((1,)))).result is TaskResult.REJECTED


@on_a_loop
async def test_a_coroutine_is_canceled():
    async def work() -> None:
        await asyncio.sleep(WAIT_S)  # until it is canceled

    call = LoopPool(work).start(())

    assert call.stop() is True
    with pytest.raises(asyncio.CancelledError):
        await done(call)


@on_a_loop
async def test_threads_are_made_for_calls_at_the_same_time_and_used_again():
    names = []
    barrier = threading.Barrier(3)

    def work() -> None:
        names.append(threading.current_thread().name)
        barrier.wait(WAIT_S)

    pool = ThreadPool(partial(run, work))
    for _ in range(4):
        await asyncio.gather(*(done(pool.start(())) for _ in range(3)))
    pool.close()

    assert len(names) == 12
    assert len(set(names)) == 3


@on_a_loop
async def test_a_thread_cannot_be_stopped_and_its_result_still_comes():
    go_on = threading.Event()
    pool = ThreadPool(partial(run, lambda: go_on.wait(WAIT_S)))
    call = pool.start(())

    assert call.stop() is False
    go_on.set()
    assert await done(call) is DONE
    pool.close()


@on_a_loop
async def test_an_exit_in_a_thread_is_a_failure_of_the_task_not_the_end_of_the_thread():
    def work(number: int) -> None:
        if number:
            raise SystemExit(3)

    pool = ThreadPool(partial(run, work))

    assert (await done(pool.start((1,)))).exception == "SystemExit"
    assert await done(pool.start((0,))) is DONE
    pool.close()


def test_a_function_is_found_by_its_name_through_the_task_that_stands_for_it():
    assert find_object("os.path", "join") is os.path.join
