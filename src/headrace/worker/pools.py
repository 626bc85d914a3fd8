"""Where functions run: on the event loop, on threads, or in other processes.

Each pool starts a call and returns a `TaskCall`, whose future gets the `TaskOutcome`. `stop` ends it as far as that
can be done: a coroutine is canceled, a process is killed and replaced, a thread goes on until its function returns
(Python cannot end it). Threads and processes are daemons, so a worker that must go does not wait for them for ever.
The number of calls at a time is the caller's affair; a pool makes as many threads or processes as it is asked for at
once.
"""

import asyncio
import contextlib
import importlib
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from headrace.worker.hooks import TaskRun, lifespan_of
from headrace.worker.outcomes import DONE, TaskOutcome, TaskResult, ended_with, outcome_of

STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class TaskCall:
    future: "asyncio.Future[TaskOutcome]"
    stop: Callable[[], bool]
    """Ends the call; False where it cannot be ended."""


class CallPool(Protocol):
    def start(self, arguments: tuple[Any, ...]) -> TaskCall: ...

    def close(self) -> None:
        """Ends threads and processes that have nothing to do, and kills processes that have."""


class LoopPool:
    def __init__(self, function: Callable[..., Coroutine[Any, Any, Any]]) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()

    def start(self, arguments: tuple[Any, ...]) -> TaskCall:
        task = self._loop.create_task(run_coroutine(self._function, arguments))
        return TaskCall(task, task.cancel)

    def close(self) -> None:
        pass


async def run_coroutine(
    function: Callable[..., Coroutine[Any, Any, Any]], arguments: tuple[Any, ...]
) -> TaskOutcome:
    """Like `run`, for coroutines. A cancellation is raised: whoever cancels it knows why."""
    try:
        return ended_with(await function(*arguments))
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except BaseException as error:  # a SystemExit in a task would end the loop with all others on it
        return outcome_of(error)


class ThreadPool:
    """Threads for calls that give their own Outcome: `ThreadPool(partial(run, function))` for a task's function."""

    def __init__(self, call: Callable[[tuple[Any, ...]], TaskOutcome], name: str = "headrace-task") -> None:
        self._call = call
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._calls: queue.SimpleQueue[tuple[tuple[Any, ...], asyncio.Future[TaskOutcome]] | None] = (
            queue.SimpleQueue()
        )
        self._threads = 0
        self._busy = 0

    def start(self, arguments: tuple[Any, ...]) -> TaskCall:
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            name = f"{self._name}-{self._threads}"
            threading.Thread(target=self._work, name=name, daemon=True).start()
        future: asyncio.Future[TaskOutcome] = self._loop.create_future()
        self._calls.put((arguments, future))
        return TaskCall(future, lambda: False)

    def close(self) -> None:
        for _ in range(self._threads):
            self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            arguments, future = call
            try:
                outcome = self._call(arguments)
            except Exception as error:  # a body that cannot be pickled
                outcome = outcome_of(error)
            with contextlib.suppress(RuntimeError):  # the loop has gone, and with it everyone who would care
                self._loop.call_soon_threadsafe(self._ended, future, outcome)

    def _ended(self, future: "asyncio.Future[TaskOutcome]", outcome: TaskOutcome) -> None:
        self._busy -= 1
        if not future.done():
            future.set_result(outcome)


class ProcessPool:
    """Processes that each run one call at a time, and are used again. The function is found by its name over there."""

    def __init__(self, module: str, qualname: str) -> None:
        self._place = (module, qualname)
        self._threads = ThreadPool(_call_child, name="headrace-process")
        self._idle: list[_Child] = []
        self._all: set[_Child] = set()

    def start(self, arguments: tuple[Any, ...]) -> TaskCall:
        child = self._idle.pop() if self._idle else _Child(*self._place)
        self._all.add(child)
        call = self._threads.start((child, arguments))
        call.future.add_done_callback(lambda _: self._give_back(child))
        return TaskCall(call.future, child.kill)

    def _give_back(self, child: "_Child") -> None:
        if child.is_usable:
            self._idle.append(child)
        else:
            self._all.discard(child)

    def close(self) -> None:
        """Idle processes may end by themselves, with their lifespan; those at work are killed."""
        idle = set(self._idle)
        for child in list(self._all):
            if child in idle:
                child.leave()
            else:
                child.kill()
        for child in idle:
            child.join()
        self._threads.close()


def _call_child(arguments: tuple[Any, ...]) -> TaskOutcome:
    child: _Child = arguments[0]
    return child.call(arguments[1])


class _Child:
    """One other process and the pipe to it. It is started by its first call, on a thread."""

    def __init__(self, module: str, qualname: str) -> None:
        self._place = (module, qualname)
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None
        self._lock = threading.Lock()
        self.is_usable = True

    def call(self, arguments: tuple[Any, ...]) -> TaskOutcome:
        connection = self._start()
        if connection is None:
            return TaskOutcome(TaskResult.FAILED, "the process was stopped before it began", "ProcessDied")
        try:
            connection.send(arguments)
            outcome: TaskOutcome = connection.recv()
        except (EOFError, OSError):
            self.kill()
            return TaskOutcome(TaskResult.FAILED, f"the process that ran it {self._end()}", "ProcessDied")
        return outcome

    def kill(self) -> bool:
        with self._lock:
            self.is_usable = False
            if self._process is not None:
                self._process.kill()
        return True

    def leave(self) -> None:
        """Tells the process that nothing more comes."""
        with self._lock:
            self.is_usable = False
            if self._connection is not None:
                self._connection.close()

    def join(self) -> None:
        process = self._process
        if process is not None:
            process.join(STOP_S)
            process.kill()

    def _start(self) -> Connection | None:
        with self._lock:
            if not self.is_usable:
                return None
            if self._connection is None:
                # spawn: a fork would take over the locks of our threads in whatever state they are.
                context = multiprocessing.get_context("spawn")
                self._connection, theirs = context.Pipe()
                self._process = context.Process(
                    target=serve_calls, args=(theirs, *self._place), name="headrace-task", daemon=True
                )
                self._process.start()
                theirs.close()
            return self._connection

    def _end(self) -> str:
        assert self._process is not None
        assert self._connection is not None
        self._connection.close()
        self._process.join(STOP_S)
        code = self._process.exitcode
        if code is None:
            return "does not end"
        if code >= 0:
            return f"ended by itself with status {code}"
        names = {one.value: one.name for one in signal.Signals}  # most real-time signals have none
        return f"was ended by {names.get(-code, f'signal {-code}')}"


def serve_calls(connection: Connection, module: str, qualname: str) -> None:
    """The other process: runs what it is sent until the pipe ends, or the worker does."""
    threading.Thread(target=_end_with_parent, name="headrace-parent", daemon=True).start()
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl+C reaches every process; the worker decides what it means
    with ExitStack() as stack:
        call: Callable[..., Any] | None = None
        while True:
            try:
                arguments = connection.recv()
            except (EOFError, OSError):
                return
            except Exception as error:  # the body's class cannot be unpickled here
                connection.send(outcome_of(error))
                continue
            try:  # with each call until it works: what the lifespan needs may have been away
                call = call or _ready_call(stack, module, qualname)
            except Exception as error:
                connection.send(outcome_of(error))
                continue
            connection.send(run(call, arguments))


def _ready_call(stack: ExitStack, module: str, qualname: str) -> Callable[..., Any]:
    found = find_object(module, qualname)
    stack.enter_context(living(getattr(found, "queue", None)))
    return _call_of(found)


def _end_with_parent() -> None:
    """A worker that is killed runs nothing any more, in no process: others have its records, or will."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def find_object(module: str, qualname: str) -> Any:
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in qualname.split("."):
        found = getattr(found, part)
    return found


def _call_of(found: Any) -> Callable[..., Any]:
    """A Task stands where its function was, unless it was declared under another name."""
    invoke: Callable[..., Any] | None = getattr(found, "invoke", None)
    return invoke or partial(_call_plain, found)


def _call_plain(function: Callable[..., Any], *arguments: Any) -> TaskOutcome:
    returned = function(*(each for each in arguments if not isinstance(each, TaskRun)))
    run = next((each for each in arguments if isinstance(each, TaskRun)), None)
    return run.outcome_of(returned) if run is not None else DONE


@contextlib.contextmanager
def living(queue: Any) -> Iterator[None]:
    """With the lifespan of the queue around it, on an event loop of its own."""
    if queue is None or queue.lifespan_function is None:
        yield
        return
    with asyncio.Runner() as runner:
        life = lifespan_of(queue.lifespan_function)
        queue.state = runner.run(_enter(life))
        try:
            yield
        finally:
            runner.run(_leave(life))


async def _enter(life: contextlib.AbstractAsyncContextManager[Any]) -> Any:
    return await life.__aenter__()


async def _leave(life: contextlib.AbstractAsyncContextManager[Any]) -> None:
    await life.__aexit__(None, None, None)


def run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> TaskOutcome:
    try:
        return ended_with(function(*arguments))
    except BaseException as error:
        return outcome_of(error)
