"""The processes of a Spark application: its driver, and its executors."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar, copy_context
from typing import IO, TYPE_CHECKING, Any, cast

from tests.simulation.path.apps import Application
from tests.simulation.path.node import Node
from tests.simulation.path.node_loop import NodeLoop, NumberedTask
from tests.simulation.spark.files import close_all
from tests.simulation.spark.threads import Killed, Thread, current

if TYPE_CHECKING:
    from tests.simulation.spark.world import SparkWorld

OWNER: "ContextVar[object]" = ContextVar("owner", default=None)
"""Which of the loops of a process a task runs on: there is one for each source, and they share the node's."""
CLOSE_S = 2.5


class SparkLoop(NodeLoop):
    node: "SparkNode"

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **named: Any
    ) -> NumberedTask:
        task = super()._make_task(loop, coroutine, **named)
        context = named.get("context")
        task.owner = OWNER.get() if context is None else context.get(OWNER)  # type: ignore[attr-defined]
        return task

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, function: Callable[..., Any], *arguments: Any
    ) -> "asyncio.Future[Any]":
        future = self.create_future()

        def work() -> None:
            try:
                value = function(*arguments)
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(value)

        Thread(self.node, work)
        return future


class Process(Application):
    """Ends when it is told to."""

    async def main(self) -> None:
        await cast("SparkNode", self.node).over


class SparkNode(Node):
    world: "SparkWorld"
    loop: SparkLoop
    loop_class = SparkLoop

    def __init__(self, world: "SparkWorld", name: str) -> None:
        self.threads: dict[Thread, None] = {}
        self.workers: list[Any] = []
        """Python workers that wait for a task."""
        self.locked: list[IO[str]] = []
        """Files that it has locks on."""
        super().__init__(world, name, Process)
        self.loop.node = self

    @property
    def over(self) -> "asyncio.Future[None]":
        if not hasattr(self, "_over"):
            self._over = self.loop.create_future()
        return self._over

    def end(self) -> None:
        """The process ends in order."""
        if not self.is_dead and not self.over.done():
            self.over.set_result(None)

    def die(self) -> None:
        if self.is_dead:
            return
        super().die()
        close_all(self.locked)
        for thread in list(self.threads):
            thread.kill()


class Background:
    """Stands for `BackgroundLoop`: the node's loop takes the place of one on a thread."""

    def __init__(self, name: str = "") -> None:
        self._is_closed = False

    def run(self, coroutine: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        thread = _thread()
        if thread.node.is_dead or self._is_closed:
            coroutine.close()
            raise Killed
        context = copy_context()
        context.run(OWNER.set, self)
        task = thread.node.loop.create_task(coroutine, context=context)
        return thread.wait(task)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        thread = _thread()
        tasks = [task for task in thread.node.loop.tasks if getattr(task, "owner", None) is self]
        for task in tasks:
            task.cancel()
        if tasks:
            thread.wait(asyncio.wait(tasks, timeout=CLOSE_S))


class SyncLoop:
    """Stands for the event loop of an executor's worker, which runs only while a task waits for it."""

    def __init__(self) -> None:
        self._is_closed = False

    def run_until_complete(self, awaitable: Any) -> Any:
        return _thread().wait(awaitable)

    def is_closed(self) -> bool:
        return self._is_closed

    def close(self) -> None:
        self._is_closed = True


def _thread() -> Thread:
    thread = current()
    if thread is None or thread.node.is_dead:
        raise Killed
    return thread
