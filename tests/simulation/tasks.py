"""Worker threads as greenlets: each stops before every disk operation, and the scheduler says who goes on.

The broker's server makes `ThreadPoolExecutor`s; here it gets `SimulatedPool`s. What is submitted becomes a
task. Of one pool as many tasks run at once as it has threads. A task that needs a lock that another one holds
waits; if the event loop needs it, the holder is run until it lets go, and every disk operation it does
meanwhile counts as the loop's own: in production the loop would stand still for them.
"""

import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

from greenlet import getcurrent, greenlet

from tests.simulation.violation import Violation

PATIENCE = 100_000
"""Resumptions after which a task that does not end is taken for one that never will."""


class Killed(BaseException):
    """The process has died under this task."""


class Future:
    def __init__(self) -> None:
        self.is_done = False
        self.error: BaseException | None = None
        self.value: Any = None
        self._callbacks: list[Callable[[Any], None]] = []

    def done(self) -> bool:
        return self.is_done

    def cancel(self) -> bool:
        return False

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        if self.is_done:
            callback(self)
        else:
            self._callbacks.append(callback)

    def result(self, timeout: float | None = None) -> Any:
        TASKS.wait_until(lambda: self.is_done)
        if self.error is not None:
            raise self.error
        return self.value

    def exception(self, timeout: float | None = None) -> BaseException | None:
        TASKS.wait_until(lambda: self.is_done)
        return self.error

    def finish(self, value: Any, error: BaseException | None) -> None:
        self.value, self.error, self.is_done = value, error, True
        for callback in self._callbacks:
            callback(self)


class Task:
    def __init__(self, pool: "SimulatedPool", number: int, work: Callable[[], Any]) -> None:
        self.pool = pool
        self.name = f"{pool.name}#{number}"
        self.future = Future()
        self._work = work
        self.greenlet = greenlet(self._run)

    def _run(self) -> None:
        try:
            value = self._work()
        except Exception as error:
            self.future.finish(None, error)
        else:
            self.future.finish(value, None)


class Tasks:
    """All worker threads of the one broker process that is alive."""

    def __init__(self) -> None:
        self.main = getcurrent()
        self.pools: list[SimulatedPool] = []
        self._numbers = 0
        self._has_died = False
        self.loop_waits = 0
        """How often the loop had to wait for a lock that a task held across a disk operation."""

    def start_process(self) -> None:
        self.main = getcurrent()
        self.pools = []
        self._numbers = 0
        self._has_died = False

    def number(self) -> int:
        self._numbers += 1
        return self._numbers

    @property
    def is_on_loop(self) -> bool:
        return getcurrent() is self.main

    def pause(self) -> None:
        """Before each disk operation: a task gives way here."""
        if self._has_died and getcurrent() is not self.main:
            raise Killed
        if getcurrent() is not self.main:
            self.main.switch()

    def runnable(self) -> list[Task]:
        return [task for pool in self.pools for task in pool.running()]

    def resume(self, task: Task) -> None:
        """Lets the task go on to its next disk operation, or to its end."""
        try:
            task.greenlet.switch()
        finally:
            if task.greenlet.dead:
                task.pool.tasks.remove(task)

    def resume_greenlet(self, owner: greenlet) -> None:
        for task in self.runnable():
            if task.greenlet is owner:
                self.resume(task)
                return
        raise Violation("lock never released", "it is held by a task that has ended, or by the loop itself")

    def run_all(self) -> None:
        """Until nothing is left to do."""
        for _ in range(PATIENCE):
            runnable = self.runnable()
            if not runnable:
                return
            for task in runnable:
                if not task.greenlet.dead:
                    self.resume(task)
        raise Violation("task never ends", ", ".join(task.name for task in self.runnable()))

    def wait_until(self, is_true: Callable[[], bool]) -> None:
        for _ in range(PATIENCE):
            if is_true():
                return
            if not self.is_on_loop:
                self.main.switch()
                continue
            if not self.runnable():
                break
            for task in self.runnable():
                if not task.greenlet.dead:
                    self.resume(task)
        raise Violation("waits for ever", "for a task that does not end")

    def kill(self) -> None:
        """The process is gone: what the tasks were doing ends where they are."""
        self._has_died = True
        for pool in self.pools:
            for task in pool.tasks:
                if task.greenlet and not task.greenlet.dead:
                    with contextlib.suppress(BaseException):
                        task.greenlet.throw(Killed)
            pool.tasks.clear()
        self.pools = []


TASKS = Tasks()
"""Of the process that is being simulated. The locks and pools that the broker makes find it here."""


class SimulatedPool:
    """Stands for `ThreadPoolExecutor`."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "", **_: Any) -> None:
        self.size = max_workers or 4
        self.name = thread_name_prefix.removeprefix("headrace-")
        self.tasks: deque[Task] = deque()
        self._is_shut = False
        TASKS.pools.append(self)

    def submit(self, work: Callable[..., Any], *arguments: Any, **named: Any) -> Future:
        if self._is_shut:
            raise RuntimeError("cannot schedule new futures after shutdown")
        task = Task(self, TASKS.number(), lambda: work(*arguments, **named))
        self.tasks.append(task)
        return task.future

    def running(self) -> list[Task]:
        return [task for _, task in zip(range(self.size), self.tasks, strict=False)]

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._is_shut = True
        if cancel_futures:
            self.tasks = deque(task for task in self.tasks if task.greenlet)
        if wait:
            TASKS.wait_until(lambda: not self.tasks)


class SimulatedLock:
    """Stands for `threading.Lock`."""

    def __init__(self) -> None:
        self.owner: greenlet | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        me = getcurrent()
        while self.owner is not None:
            if not blocking:
                return False
            if self.owner is me:
                raise Violation("deadlock", "a thread takes a lock that it holds")
            if not TASKS.is_on_loop:
                TASKS.pause()
            else:
                TASKS.loop_waits += 1
                TASKS.resume_greenlet(self.owner)
        self.owner = me
        return True

    def release(self) -> None:
        if self.owner is None:
            raise RuntimeError("release unlocked lock")
        self.owner = None

    def locked(self) -> bool:
        return self.owner is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
