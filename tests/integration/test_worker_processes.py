"""The pool of processes: it ends a call as far as it can be ended, and gives back what the function raised."""

import os
import signal
import threading
import time

import pytest

from headrace.worker.outcomes import DONE, Retry, TaskResult
from headrace.worker.pools import ProcessPool
from tests.unit.worker.test_pools import done, on_a_loop

WAIT_S = 60.0


def in_another_process(number: int) -> None:
    """What the process pool's tests run over there."""
    if number == 0:
        raise Retry(after=2.5, reason="asked for it")
    if number < 0:
        os.kill(os.getpid(), -number)
    if number > 1:
        time.sleep(WAIT_S)  # until it is killed


@on_a_loop
async def test_processes_return_raise_die_and_are_killed():
    pool = ProcessPool(__name__, "in_another_process")
    try:
        assert await done(pool.start((1,))) == DONE
        asked = await done(pool.start((0,)))
        assert (asked.result, asked.retry_after_s) == (TaskResult.RETRY_ASKED, 2.5)

        died = await done(pool.start((-signal.SIGSEGV,)))
        assert (died.exception, died.message) == (
            "ProcessDied",
            "the process that ran it was ended by SIGSEGV",
        )

        call = pool.start((2,))
        assert call.stop() is True
        assert (await done(call)).exception == "ProcessDied"
    finally:
        pool.close()


@on_a_loop
async def test_a_function_that_is_not_there_in_the_other_process_fails_the_call():
    pool = ProcessPool(__name__, "no_such_function")
    try:
        assert (await done(pool.start((1,)))).exception == "AttributeError"
    finally:
        pool.close()


@on_a_loop
async def test_a_body_that_cannot_be_pickled_fails_the_call():
    pool = ProcessPool(__name__, "in_another_process")
    try:
        outcome = await done(pool.start((threading.Lock(),)))
        assert outcome.exception == "TypeError"
        assert "pickle" in outcome.message
    finally:
        pool.close()


@pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="there are no real-time signals here")
@on_a_loop
async def test_a_process_that_is_ended_by_a_signal_without_a_name_has_died_too():
    pool = ProcessPool(__name__, "in_another_process")
    try:
        died = await done(pool.start((-(signal.SIGRTMIN + 1),)))
        assert died.exception == "ProcessDied"
        assert died.message.endswith(f"was ended by signal {signal.SIGRTMIN + 1}")
    finally:
        pool.close()
