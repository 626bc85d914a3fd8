"""A loop on a thread of its own: results and errors come back, Ctrl+C is heard at once, and it ends when told to."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.client.background import BackgroundLoop
from headrace.client.errors import IllegalStateError

WAIT_S = 60.0


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop()
    yield loop
    loop.close()


async def name_of_thread() -> str:
    return threading.current_thread().name


async def fail() -> None:
    raise ValueError("as it should")


def test_a_result_comes_back_from_another_thread() -> None:
    loop = BackgroundLoop("my-loop")
    assert loop.run(name_of_thread()) == "my-loop"
    loop.close()


def test_an_error_comes_back(loop: BackgroundLoop) -> None:
    with pytest.raises(ValueError, match="as it should"):
        loop.run(fail())


def test_a_coroutine_that_takes_too_long_is_canceled(loop: BackgroundLoop) -> None:
    canceled = threading.Event()

    async def wait() -> None:
        try:
            await asyncio.sleep(600)  # until it is canceled
        except asyncio.CancelledError:
            canceled.set()
            raise

    with pytest.raises(TimeoutError):
        loop.run(wait(), timeout=0.05)
    assert canceled.wait(WAIT_S)


def test_ctrl_c_is_heard_at_once_and_cancels_what_runs(loop: BackgroundLoop) -> None:
    canceled = threading.Event()

    async def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(600)  # until it is canceled
        except asyncio.CancelledError:
            canceled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        loop.run(interrupted())
    assert canceled.wait(WAIT_S)
    assert loop.run(name_of_thread()) == "headrace-client"  # and it can be used again


def test_a_function_is_called_on_the_loops_thread(loop: BackgroundLoop) -> None:
    seen = []
    done = threading.Event()
    loop.call_soon(lambda word: (seen.append((word, threading.current_thread().name)), done.set()), "hello")
    assert done.wait(WAIT_S)
    assert seen == [("hello", "headrace-client")]


def test_several_threads_may_use_one_loop(loop: BackgroundLoop) -> None:
    results: list[int] = []

    async def double(number: int) -> int:
        await asyncio.sleep(0)
        return 2 * number

    threads = [threading.Thread(target=lambda n=n: results.append(loop.run(double(n)))) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 2, 4, 6, 8, 10, 12, 14]


def test_closing_cancels_what_runs_and_ends_the_thread() -> None:
    loop = BackgroundLoop("to-be-closed")
    ended = threading.Event()
    running = threading.Event()

    async def work() -> None:
        running.set()
        try:
            await asyncio.sleep(600)  # until it is canceled
        finally:
            ended.set()

    loop.call_soon(lambda: loop.loop.create_task(work()))
    assert running.wait(WAIT_S)
    loop.close()
    loop.close()
    assert ended.is_set()
    assert "to-be-closed" not in {thread.name for thread in threading.enumerate()}


def test_a_closed_loop_says_so() -> None:
    loop = BackgroundLoop()
    loop.close()
    with pytest.raises(IllegalStateError, match="this client is closed; make a new one"):
        loop.run(name_of_thread())


def test_a_call_from_the_loops_own_thread_is_refused_instead_of_waiting_for_ever(
    loop: BackgroundLoop,
) -> None:
    async def nested() -> None:
        loop.run(name_of_thread())

    with pytest.raises(IllegalStateError, match="its own callback"):
        loop.run(nested())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_is_told_to_make_its_own(loop: BackgroundLoop) -> None:
    child = os.fork()
    if child == 0:
        try:
            loop.run(name_of_thread())
        except IllegalStateError as error:
            os._exit(0 if "before a fork" in str(error) else 1)
        os._exit(2)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_thread_that_threading_believes_to_have_ended_is_used_as_long_as_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception from a signal handler within `Thread.is_alive` makes that say False for good."""
    background = BackgroundLoop()
    try:
        monkeypatch.setattr(background._thread, "is_alive", lambda: False)
        assert background.run(asyncio.sleep(0, "done")) == "done"
    finally:
        background.close()


class _LoopThatClosesLate(asyncio.SelectorEventLoop):
    """Between its last turn and its close it still takes calls, which nobody runs."""

    def __init__(self) -> None:
        super().__init__()
        self.has_stopped, self.may_close = threading.Event(), threading.Event()

    def call_soon_threadsafe(self, *arguments: Any, **options: Any) -> asyncio.Handle:
        handle = super().call_soon_threadsafe(*arguments, **options)
        if self.has_stopped.is_set():
            self.may_close.set()
        return handle

    def run_until_complete(self, future: Any) -> Any:
        result = super().run_until_complete(future)
        self.has_stopped.set()
        assert self.may_close.wait(WAIT_S)
        return result


def test_a_call_that_comes_while_the_loop_ends_is_told_so_and_does_not_wait_forever() -> None:
    inner = _LoopThatClosesLate()
    loop = BackgroundLoop(make_loop=lambda: inner)
    inner.call_soon_threadsafe(inner.stop)
    assert inner.has_stopped.wait(WAIT_S)
    with pytest.raises(IllegalStateError, match="closed"):
        loop.run(name_of_thread(), timeout=WAIT_S)
    assert inner.may_close.is_set()


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_an_exception_that_would_end_the_loop_ends_neither_it_nor_the_calls_to_it(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    background = BackgroundLoop()

    def raise_it() -> None:
        raise kind("from a callback")

    try:
        background.call_soon(raise_it)
        assert background.run(asyncio.sleep(0.01, "done"), timeout=WAIT_S) == "done"
        assert "from a callback" in caplog.text
    finally:
        background.close()
    with pytest.raises(IllegalStateError, match="closed"):
        background.run(name_of_thread())
