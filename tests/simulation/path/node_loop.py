"""An asyncio event loop without sockets and without a clock of its own: the scheduler turns it."""

import asyncio
import contextlib
import heapq
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any

EPSILON_S = 1e-7
"""So that a whole number of milliseconds, divided and multiplied by 1000, is still that number."""


class NumberedTask(asyncio.Task[Any]):
    """Sets of tasks have the same order in every process."""

    number = 0

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class NodeLoop(asyncio.BaseEventLoop):
    _ready: Any
    _scheduled: list[Any]

    def __init__(self, now_ms: Callable[[], int], connect: Callable[..., Any]) -> None:
        super().__init__()
        self._now_ms = now_ms
        self._connect = connect
        self._numbers = count(1)
        self.tasks: dict[NumberedTask, None] = {}
        """Those that have not ended."""
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        return self._now_ms() / 1000 + EPSILON_S

    def _make_task(
        self, loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **named: Any
    ) -> NumberedTask:
        # A task begins to run, and may be put into sets, in later turns only.
        task = NumberedTask(coroutine, loop=loop, **named)
        task.number = next(self._numbers)
        self.tasks[task] = None
        task.add_done_callback(lambda task: self.tasks.pop(task, None))
        return task

    async def create_connection(
        self, make_protocol: Any, host: Any = None, port: Any = None, **_: Any
    ) -> Any:
        await asyncio.sleep(0)
        return self._connect(make_protocol, host, port)

    def _write_to_self(self) -> None:
        """Nobody waits in a select call."""

    def _process_events(self, event_list: list[Any]) -> None: ...

    # What the scheduler uses

    @property
    def has_ready(self) -> bool:
        return bool(self._ready)

    def deadline_ms(self) -> int | None:
        """When the next timer is due, in this node's time."""
        timers = self._scheduled
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
        if not timers:
            return None
        return -int(-(timers[0]._when - EPSILON_S) * 1000 // 1)

    def turn(self) -> bool:
        """One round, as `BaseEventLoop._run_once` does it; False when there was nothing to do."""
        end = self.time() + EPSILON_S
        while (self.deadline_ms() is not None) and self._scheduled[0]._when <= end:
            timer = heapq.heappop(self._scheduled)
            timer._scheduled = False
            self._ready.append(timer)
        if not self._ready:
            return False
        asyncio._set_running_loop(self)
        try:
            for _ in range(len(self._ready)):
                handle = self._ready.popleft()
                if not handle._cancelled:
                    handle._run()
        finally:
            asyncio._set_running_loop(None)
        return True

    def abandon(self) -> None:
        """The process is gone: nothing of this runs any more, and nobody complains about it."""
        for task in self.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        self._ready.clear()
        self._scheduled.clear()
        self.set_exception_handler(lambda loop, context: None)
        self.close()

    def close_tasks(self) -> None:
        """What is left of them must not run when it is collected, in the middle of another life."""
        asyncio._set_running_loop(self)
        for task in list(self.tasks):
            with contextlib.suppress(BaseException):
                task.get_coro().close()  # type: ignore[union-attr]
        asyncio._set_running_loop(None)
        self.tasks.clear()
