"""Hooks around sending and running: middleware, errors, log context, and a lifespan with shared resources.

    class Tenants(Middleware):
        @contextmanager
        def around_send(self, outgoing):
            outgoing.headers["tenant"] = current_tenant().encode()
            yield

        @contextmanager
        def around_run(self, run):
            with tenant(run.header("tenant")):
                yield

    queue.use(Tenants())

`around_run` is entered where the function runs: in its coroutine, on its thread or in its process, so that context
variables reach the function, and it sees the exception that the function raises.
"""

import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from headrace.worker.batch import batch_outcome
from headrace.worker.bodies import Header
from headrace.worker.outcomes import DONE, Reject, Retry, TaskOutcome

logger = logging.getLogger("headrace.worker")


@dataclass(slots=True)
class OutgoingTask:
    """A record that is about to be sent. Middleware may change its headers."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes | None]
    group_id: str | None
    """The queue's; None for a queue that only sends."""


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One run of a task's function."""

    task: str
    group_id: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    headers: Sequence[Header]
    delivery_count: int
    attempt: int
    """1 for the first run of a record."""
    topic_id: str = ""
    batch: "tuple[TaskRun, ...] | None" = None
    """For a task with `batch`: a TaskRun for each record of the call. The other fields are those of the first one."""

    def outcome_of(self, returned: object) -> TaskOutcome:
        """What the function returned, as an outcome. Only tasks with `batch` return something that counts."""
        return DONE if self.batch is None else batch_outcome(returned, len(self.batch), self.task)

    def header(self, name: str) -> str | None:
        """The last header of this name, as text."""
        values = [value for each, value in self.headers if each == name and value is not None]
        return values[-1].decode("utf-8", "replace") if values else None


class Middleware:
    """Override the methods that you need. Middleware that was added first is entered first."""

    def around_send(self, outgoing: OutgoingTask) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def around_run(self, run: TaskRun) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def returned_error(self, run: TaskRun, error: BaseException) -> None:
        """Called for each exception that the function of a task with `batch` has returned as a record's outcome."""


class ErrorHook(Middleware):
    """Calls a function with every run that fails, and its exception; not for `Retry` and `Reject`."""

    def __init__(self, function: Callable[[TaskRun, BaseException], object]) -> None:
        self._function = function

    @contextmanager
    def around_run(self, run: TaskRun) -> Iterator[None]:
        try:
            yield
        except (Retry, Reject):
            raise
        except Exception as error:
            self._call(run, error)
            raise

    def returned_error(self, run: TaskRun, error: BaseException) -> None:
        if not isinstance(error, (Retry, Reject)):
            self._call(run, error)

    def _call(self, run: TaskRun, error: BaseException) -> None:
        try:
            self._function(run, error)
        except Exception:
            logger.exception("the error hook has failed for %s", run.task)


_CURRENT: ContextVar[TaskRun | None] = ContextVar("headrace_task_run", default=None)


def current_run() -> TaskRun | None:
    """The run that this code is part of; None outside of tasks."""
    return _CURRENT.get()


class TaskLogFilter(logging.Filter):
    """Gives log records of a task its name and place: `%(task)s`, `%(record)s` ("emails-0@17"), `%(attempt)s`.

    handler.addFilter(TaskLogFilter())
    """

    def filter(self, record: logging.LogRecord) -> bool:
        run = _CURRENT.get()
        record.task = run.task if run is not None else "-"
        record.record = f"{run.topic}-{run.partition}@{run.offset}" if run is not None else "-"
        record.attempt = run.attempt if run is not None else "-"
        return True


@contextmanager
def running(run: TaskRun, middleware: Sequence[Middleware]) -> Iterator[None]:
    """Around one run of a function. Middleware may raise another exception, but a failure stays one: a record whose
    exception is only logged must not be accepted."""
    token, failure = _CURRENT.set(run), None
    try:
        with ExitStack() as stack:
            for each in middleware:
                stack.enter_context(each.around_run(run))
            try:
                yield
            except BaseException as error:
                failure = error
                raise
        if failure is not None:
            raise failure
    finally:
        _CURRENT.reset(token)


def finish_run(run: TaskRun, returned: Any, middleware: Sequence[Middleware]) -> TaskOutcome:
    """The outcome of a run that returned. Middleware gets the errors that a batch returned."""
    outcome = run.outcome_of(returned)
    if outcome.each is not None and run.batch is not None:
        errors = ((each, error) for each, error in zip(run.batch, returned, strict=True) if error is not None)
        for each, error in errors:
            for one in middleware:
                _tell(one, each, error)
    return outcome


def _tell(middleware: Middleware, run: TaskRun, error: BaseException) -> None:
    """The function has done its work: what goes wrong here must not make its records run again."""
    try:
        middleware.returned_error(run, error)
    except Exception:
        logger.exception("%s.returned_error has failed for %s", type(middleware).__name__, run.task)


@contextmanager
def sending(outgoing: OutgoingTask, middleware: Sequence[Middleware]) -> Iterator[None]:
    with ExitStack() as stack:
        for each in middleware:
            stack.enter_context(each.around_send(outgoing))
        yield


Lifespan = Callable[[], AsyncIterator[Any] | Iterator[Any]]


@asynccontextmanager
async def lifespan_of(function: Lifespan | None) -> AsyncIterator[Any]:
    """Runs a generator, async or not, up to its yield and to its end."""
    if function is None:
        yield None
    elif inspect.isasyncgenfunction(function):
        async with asynccontextmanager(function)() as state:
            yield state
    elif inspect.isgeneratorfunction(function):
        with contextmanager(function)() as state:
            yield state
    else:
        raise TypeError(f"{function!r} is not a lifespan: declare a generator with one yield, async or not")
