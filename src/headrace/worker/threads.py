"""The worker's own thread: consumers, locks and timers live on its event loop, functions of the user do not.

A coroutine that blocks its event loop therefore costs no lock: records stay locked, heartbeats go on. `LoopPool` hands
coroutines over to the user's loop and brings their outcomes back; `LoopWatch` notices a loop that stands still and says
which task it stands in.
"""

import asyncio
import contextlib
import logging
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from types import CodeType
from typing import Any

from headrace.client.background import BackgroundLoop
from headrace.worker.outcomes import TaskOutcome, outcome_of
from headrace.worker.pools import TaskCall, run_coroutine

logger = logging.getLogger("headrace.worker")

WATCH_S = 0.5
BLOCKED_S = 2.0
"""A loop that stands still for so long is worth a warning: all its other coroutines wait."""


async def run_on_thread(background: BackgroundLoop, work: Coroutine[Any, Any, None]) -> None:
    """Runs a coroutine on another thread's loop and waits for its end, also when the caller is canceled."""
    ended: Future[None] = Future()
    ended.set_running_or_notify_cancel()  # a second cancellation ends the wait, not the future
    tasks: list[asyncio.Task[None]] = []

    def begin() -> None:
        task = background.loop.create_task(work)
        tasks.append(task)
        task.add_done_callback(finish)

    def finish(task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            ended.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            ended.set_exception(error)
        else:
            ended.set_result(None)

    background.loop.call_soon_threadsafe(begin)
    waiting = asyncio.wrap_future(ended)
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        if not ended.done():
            background.loop.call_soon_threadsafe(lambda: tasks[0].cancel())
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        raise


class _Letterbox:
    """Calls for another thread's loop, in order, with one wake-up for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def put(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        if not self._is_woken:
            self._is_woken = True
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it everyone who would care
                self._loop.call_soon_threadsafe(self._open)

    def _open(self) -> None:
        self._is_woken = False  # before the calls are taken: one that is put from now on wakes again
        while self._calls:
            self._calls.popleft()()


class OtherLoopPool:
    """Runs coroutines on the user's loop; called on the worker's own."""

    def __init__(
        self, function: Callable[..., Coroutine[Any, Any, Any]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._function = function
        self._there = _Letterbox(loop)
        self._loop = loop
        self._home = asyncio.get_running_loop()
        self._here = _Letterbox(self._home)

    def start(self, arguments: tuple[Any, ...]) -> TaskCall:
        call = _LoopCall(self._home.create_future())
        self._there.put(lambda: self._begin(call, arguments))
        return TaskCall(call.future, lambda: self._stop(call))

    def close(self) -> None:
        pass

    def _begin(self, call: "_LoopCall", arguments: tuple[Any, ...]) -> None:
        task = call.task = self._loop.create_task(run_coroutine(self._function, arguments))
        task.add_done_callback(lambda _: self._here.put(call.ended))
        if call.is_stopped:
            task.cancel()

    def _stop(self, call: "_LoopCall") -> bool:
        call.is_stopped = True
        self._there.put(call.cancel)
        return True


class _LoopCall:
    """A coroutine on the user's loop, and the future of its outcome on the worker's."""

    def __init__(self, future: "asyncio.Future[TaskOutcome]") -> None:
        self.future = future
        self.task: asyncio.Task[TaskOutcome] | None = None
        self.is_stopped = False

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()

    def ended(self) -> None:
        assert self.task is not None
        if self.future.done():
            return
        if self.task.cancelled():
            self.future.cancel()
        elif (error := self.task.exception()) is not None:  # a GeneratorExit
            self.future.set_result(outcome_of(error))
        else:
            self.future.set_result(self.task.result())


class LoopWatch:
    """Asks the user's loop for a sign of life again and again. Runs on the worker's own loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, thread_id: int, tasks: Mapping[CodeType, str]
    ) -> None:
        self._loop = loop
        self._thread_id = thread_id
        self._tasks = tasks
        self._asked_s = 0.0
        self._is_answered = True
        self._is_told = False

    async def run(self) -> None:
        while True:
            await asyncio.sleep(WATCH_S)
            now_s = time.monotonic()  # not the loop's time, which a test may turn
            if self._is_answered:
                self._ask(now_s)
            elif not self._is_told and now_s - self._asked_s >= BLOCKED_S:
                self._is_told = True
                self._tell(now_s - self._asked_s)

    def _ask(self, now_s: float) -> None:
        if self._is_told:
            logger.warning("the event loop continues after %.1f s", now_s - self._asked_s)
        self._asked_s, self._is_answered, self._is_told = now_s, False, False
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._answer)

    def _answer(self) -> None:
        self._is_answered = True

    def _tell(self, seconds: float) -> None:
        name, place = self._find()
        logger.warning(
            "%s has blocked the event loop for %.1f s (%s): nothing else runs on it. Await what takes long, or declare "
            "the task with def instead of async def. Locks are still renewed",
            name, seconds, place,
        )  # fmt: skip

    def _find(self) -> tuple[str, str]:
        """The task that the loop's thread is in, and the line."""
        frame = sys._current_frames().get(self._thread_id)
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "unknown"
        while frame is not None:
            if frame.f_code in self._tasks:
                return self._tasks[frame.f_code], f"{frame.f_code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return "a function that is not a task", place
