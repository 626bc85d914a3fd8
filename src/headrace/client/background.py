"""An asyncio loop on a thread of its own, for clients that are called without asyncio.

`run` hands a coroutine over and waits for its result. The waiting thread stays open to signals: Ctrl+C raises
KeyboardInterrupt at once in the main thread, and the coroutine is canceled. The thread is a daemon, so a program
that forgets `close` still ends.
"""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from headrace.base.loops import new_event_loop
from headrace.client.errors import IllegalStateError

logger = logging.getLogger("headrace.client")
T = TypeVar("T")
CLOSED = "this client is closed; make a new one"
STOP_S_MAX = 5.0
WAKE_S = 0.1 if sys.platform == "win32" else 0.5
"""The main thread's longest wait in one piece. On Windows it hears Ctrl+C only between two waits. Elsewhere the wait
itself ends, but for a signal that comes in the moment before it begins: Python sees that one afterward."""


class _Call(Generic[T]):
    """A coroutine that a thread waits for.

    The loop takes no lock to end the wait: a signal handler may have interrupted the thread that holds it, and may
    itself wait for the loop.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        self._task: asyncio.Task[T] | None = None
        self._bell = threading.Lock()
        self._bell.acquire()

    def begin(self) -> None:
        """On the loop."""
        self._task = asyncio.get_running_loop().create_task(self._coroutine)
        self._task.add_done_callback(self.end)

    def end(self, task: "asyncio.Task[T] | None" = None) -> None:
        """The result is there, or there will be none: the loop has ended."""
        if task is not None and not task.cancelled():
            task.exception()  # nobody may be left who asks for it
        with contextlib.suppress(RuntimeError):  # it has rung
            self._bell.release()

    def cancel(self) -> None:
        """On the loop."""
        if self._task is not None:
            self._task.cancel()

    def wait(self, timeout: float | None) -> bool:
        """Whether it is over."""
        return wait_for_bell(self._bell, timeout)

    def result(self) -> T:
        """IllegalStateError if the loop has ended before it."""
        if self._task is None:
            self._coroutine.close()
        if self._task is None or not self._task.done() or self._task.cancelled():
            raise IllegalStateError(CLOSED)
        return self._task.result()


class BackgroundLoop:
    """A running loop. `loop` is for `call_soon_threadsafe` and the like; it is not to be stopped from outside."""

    def __init__(
        self,
        name: str = "headrace-client",
        make_loop: Callable[[], asyncio.AbstractEventLoop] = new_event_loop,
    ) -> None:
        self.loop = make_loop()
        self._pid = os.getpid()
        self._is_closed = False
        self._has_ended = False
        """Set by the thread itself: Thread.is_alive says so of a running thread, too, once an exception from a signal
        handler has interrupted it."""
        self._calls: set[_Call[Any]] = set()
        self._waiting: set[Future[Any]] = set()
        """Of `submit`. A loop that ends drops what it has not begun, and nobody else would end the wait for it."""
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """The coroutine's result. TimeoutError after `timeout` seconds, and the coroutine is canceled then."""
        try:
            self.require_usable()
        except BaseException:
            coroutine.close()
            raise
        call = _Call(coroutine)
        self._calls.add(call)
        try:
            with contextlib.suppress(RuntimeError):  # the loop was closed in this moment
                self.loop.call_soon_threadsafe(call.begin)
            if self._has_ended:
                call.end()
            if not call.wait(timeout):
                raise TimeoutError
        except BaseException:
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(call.cancel)
            raise
        finally:
            self._calls.discard(call)
        return call.result()

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Runs a function on the loop's thread, soon, without waiting for it."""
        self.require_usable()
        self.loop.call_soon_threadsafe(function, *arguments)

    def submit(self, coroutine: Coroutine[Any, Any, T]) -> "Future[T]":
        """Runs a coroutine without waiting for it. The future is canceled if the loop ends first."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self.loop)
        except RuntimeError:  # the loop was closed in this moment
            coroutine.close()
            raise IllegalStateError(CLOSED) from None
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        if self._has_ended:
            self._give_up()
        return future

    def stop(self) -> None:
        """`close` without waiting for the thread's end."""
        if self._is_closed or not self.is_own_process:
            return
        self._is_closed = True
        self.loop.call_soon_threadsafe(self.loop.stop)

    def close(self) -> None:
        """Cancels what still runs, and ends the thread. Does nothing the second time."""
        if self._is_closed or not self.is_own_process:
            return
        self.stop()
        if not self.is_this_thread:
            self._thread.join(STOP_S_MAX)

    @property
    def is_own_process(self) -> bool:
        return os.getpid() == self._pid

    def require_own_process(self) -> None:
        """A fork copies a client's memory, but not its thread: nothing in the child would ever be answered."""
        if not self.is_own_process:
            raise IllegalStateError(
                "this client was made in another process (before a fork); make a new one in this process"
            )

    @property
    def is_this_thread(self) -> bool:
        return threading.current_thread() is self._thread

    def require_usable(self) -> None:
        self.require_own_process()
        if self._is_closed or self._has_ended:
            raise IllegalStateError(CLOSED)
        if self.is_this_thread:
            raise IllegalStateError(
                "a synchronous client was called from its own callback; use the asyncio client there"
            )

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self._run_until_stopped()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            with contextlib.suppress(Exception):
                self.loop.run_until_complete(_gather_tasks(self.loop))
            self._has_ended = True
            self.loop.close()
            self._give_up()

    def _run_until_stopped(self) -> None:
        """SystemExit and KeyboardInterrupt pass through an event loop. Raised on this thread, they end no program: they
        would only leave every call to this client without a result."""
        while True:
            try:
                self.loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                logger.exception("a callback tried to end the thread of a client; the thread continues")
            else:
                return

    def _give_up(self) -> None:
        for future in tuple(self._waiting):
            future.cancel()
        for call in tuple(self._calls):
            call.end()


async def _gather_tasks(loop: asyncio.AbstractEventLoop) -> None:
    others = asyncio.all_tasks(loop) - {asyncio.current_task()}
    if others:
        await asyncio.wait(others, timeout=STOP_S_MAX / 2)


def wait_for_bell(bell: Any, timeout: float | None) -> bool:
    """Acquires a lock that another thread will release; on the main thread open to signals. False: not in time."""
    if threading.current_thread() is not threading.main_thread():
        acquired: bool = bell.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        return acquired
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        left = WAKE_S if until is None else min(WAKE_S, until - time.monotonic())
        if bell.acquire(timeout=max(0.0, left)):
            return True
        if left <= 0:
            return False


def wait(future: "Future[T]", timeout: float | None) -> T:
    """A future's result; on the main thread open to signals."""
    if threading.current_thread() is not threading.main_thread():
        return future.result(timeout)
    waited = 0.0
    while True:
        slice_s = WAKE_S if timeout is None else min(WAKE_S, max(0.0, timeout - waited))
        with contextlib.suppress(TimeoutError):
            return future.result(slice_s)
        waited += slice_s
        if future.done() or (timeout is not None and waited >= timeout):
            return future.result(0)
