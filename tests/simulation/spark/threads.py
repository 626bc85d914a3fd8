"""Threads of a node's process, as greenlets: where they wait, everything else goes on, and the process may die.

Spark's driver and its tasks call without asyncio. Such a call waits for a coroutine on the node's loop, for some time,
or for the disk; then the thread gives way, and the loop resumes it. A process that dies takes its threads with it: they
end where they are (`Killed`), and nothing that they do on their way out reaches the disk.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from greenlet import getcurrent, greenlet

from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.spark.node import SparkNode


class Killed(BaseException):
    """The process has died under this thread."""


class _Greenlet(greenlet):
    thread: "Thread"


class Thread:
    def __init__(self, node: "SparkNode", function: Callable[[], Any]) -> None:
        self.node = node
        self.value: Any = None
        self.error: BaseException | None = None
        self.is_done = False
        self.on_end: Callable[[Thread], None] | None = None
        """Called when it has ended, also by the end of its process."""
        self._function = function
        self._interruption: BaseException | None = None
        self._greenlet = _Greenlet(self._main)
        self._greenlet.thread = self
        node.threads[self] = None
        node.loop.call_soon(self._resume)

    def _main(self) -> None:
        try:
            self.value = self._function()
        except Killed as killed:
            self.error = killed
        except Violation as violation:
            self.node.world.report(violation)
        except BaseException as error:
            self.error = error
        self.is_done = True

    def _resume(self) -> None:
        if not self.is_done and not self.node.is_dead:
            self._greenlet.parent = getcurrent()
            self._greenlet.switch()
            self._look()

    def kill(self) -> None:
        if self._greenlet:
            self._greenlet.parent = getcurrent()
            self._greenlet.throw(Killed)
        else:  # it has not begun
            self.is_done, self.error = True, Killed()
        self._look()

    def _look(self) -> None:
        if self.is_done:
            self.node.threads.pop(self, None)
            if self.on_end is not None:
                self.on_end(self)

    def interrupt(self, error: BaseException) -> None:
        """Raises in it where it waits, as the handler of a signal does."""
        self._interruption = error
        self.node.loop.call_soon(self._resume)

    # What the thread itself calls

    def wait(self, awaitable: Awaitable[Any]) -> Any:
        """The result of a coroutine or future of the node's loop."""
        if self.node.is_dead:
            raise Killed
        future = asyncio.ensure_future(awaitable, loop=self.node.loop)
        future.add_done_callback(lambda _: self._resume())
        try:
            while not future.done():
                self._give_way()
        except BaseException:
            if not self.node.is_dead:
                future.cancel()
            raise
        return future.result()

    def _give_way(self) -> None:
        self._greenlet.parent.switch()
        if self.node.is_dead:
            raise Killed
        if self._interruption is not None:
            error, self._interruption = self._interruption, None
            raise error

    def sleep(self, seconds: float) -> None:
        self.wait(asyncio.sleep(seconds))

    def pause(self) -> None:
        """Before an operation of the disk: others may come first, and it may take its time."""
        node = self.node
        if node.is_dead:
            raise Killed
        if getcurrent() is not self._greenlet:
            return
        ms = node.world.disk_ms()
        if ms is not None:
            self.sleep(ms / 1000)


def current() -> Thread | None:
    """The thread that runs, if it is one of a node."""
    found = getcurrent()
    return found.thread if isinstance(found, _Greenlet) else None
