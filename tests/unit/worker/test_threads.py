"""A coroutine on another thread's loop: its end is awaited, whatever becomes of the caller."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from headrace.client.background import BackgroundLoop
from headrace.worker.threads import run_on_thread

PROMPTLY_S = 30


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    running = BackgroundLoop("test")
    yield running
    running.close()


def test_what_the_coroutine_raises_reaches_the_caller(background: BackgroundLoop) -> None:
    async def work() -> None:
        raise ValueError("from the other thread")

    with pytest.raises(ValueError, match="from the other thread"):
        asyncio.run(run_on_thread(background, work()))


def test_a_canceled_caller_waits_for_the_end_and_one_canceled_twice_does_not(
    background: BackgroundLoop, caplog: pytest.LogCaptureFixture
) -> None:
    has_begun, is_canceled, may_end, has_ended = (threading.Event() for _ in range(4))

    async def work() -> None:
        has_begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_canceled.set()
            await asyncio.to_thread(may_end.wait, PROMPTLY_S)
            raise
        finally:
            has_ended.set()

    async def main() -> None:
        running = asyncio.create_task(run_on_thread(background, work()))
        assert await asyncio.to_thread(has_begun.wait, PROMPTLY_S)
        running.cancel()
        assert await asyncio.to_thread(is_canceled.wait, PROMPTLY_S)
        assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not has_ended.is_set()

    asyncio.run(main())
    may_end.set()
    assert has_ended.wait(PROMPTLY_S)
    background.close()
    assert not caplog.records
