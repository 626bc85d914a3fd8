"""Runs enqueued tasks on the threads of a worker, with signals and clean database connections around each."""

import importlib
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from operator import attrgetter
from traceback import format_exception
from typing import Any

from django.conf import settings
from django.db import close_old_connections, reset_queries
from django.utils import timezone

from headrace.adapters.django.interface import base, normalize_json, signals
from headrace.adapters.django.messages import TaskMessage, read_message
from headrace.worker.backoff import Backoff
from headrace.worker.hooks import current_run
from headrace.worker.outcomes import Reject, Retry
from headrace.worker.queue import Queue
from headrace.worker.task import TaskOptions

UNKNOWN_WORKER = "unknown"
"""Stands for the worker of an earlier attempt, which a record does not name."""


class QueuedTasks:
    """The tasks of one of Django's queues: one function for the worker, whatever the record names."""

    def __init__(self, backend: Any, queue_name: str) -> None:
        self._alias: str = backend.alias
        self._sender = type(backend)
        self._queue_name = queue_name

    def declare(self, queue: Queue, topic: str, options: Mapping[str, Any]) -> None:
        def run(value: bytes) -> None:
            self._run(value, declared.options)

        run.__module__, run.__qualname__ = "django", self._queue_name  # its name in logs and metrics
        declared = queue.task(topic, batch=None, **options)(run)

    def _run(self, value: bytes, options: TaskOptions) -> None:
        run = current_run()
        assert run is not None
        message = read_message(value)
        with database_connections():
            result = self._started(message, run.attempt)
            signals.task_started.send_robust(self._sender, task_result=result)
            try:
                returned = _call(result)
            except BaseException as error:
                if is_final(error, run.attempt, options):
                    self._failed(result, error)
                raise
            _set(result, _return_value=returned, status=base.TaskResultStatus.SUCCESSFUL)
            self._finished(result)

    def _started(self, message: TaskMessage, attempt: int) -> Any:
        now = timezone.now()
        return base.TaskResult(
            task=self._task_of(message),
            id=message.id,
            status=base.TaskResultStatus.RUNNING,
            enqueued_at=_as_django(message.enqueued_at),
            started_at=now,
            last_attempted_at=now,
            finished_at=None,
            args=message.args,
            kwargs=message.kwargs,
            backend=self._alias,
            errors=[],
            worker_ids=[*[UNKNOWN_WORKER] * (attempt - 1), worker_id()],
        )

    def _task_of(self, message: TaskMessage) -> Any:
        task = find_task(message)
        after = _as_django(message.run_after)
        return task.using(backend=self._alias, queue_name=self._queue_name, run_after=after)

    def _failed(self, result: Any, error: BaseException) -> None:
        kind = type(error)
        result.errors.append(
            base.TaskError(
                exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
                traceback="".join(format_exception(error)),
            )
        )
        _set(result, status=base.TaskResultStatus.FAILED)
        self._finished(result)

    def _finished(self, result: Any) -> None:
        """Robust: a receiver that fails must not make a task run again that is done."""
        _set(result, finished_at=timezone.now())
        signals.task_finished.send_robust(self._sender, task_result=result)


def find_task(message: TaskMessage) -> Any:
    """The task that a record names. It may be in code that this worker does not have yet, so another try may help."""
    found = attrgetter(message.function)(importlib.import_module(message.module))
    if not isinstance(found, base.Task):
        raise TypeError(
            f"{message.module}.{message.function} is {found!r}, not a task; declare it with @task"
        )
    return found


def is_final(error: BaseException, attempt: int, options: TaskOptions) -> bool:
    """Whether the worker gives the task up after this failure. A task that is tried again has not finished."""
    if isinstance(error, Reject):
        return True
    retries = options.retries
    if retries is None and isinstance(error, Retry):
        retries = Backoff()  # it has asked for another try
    if retries is None:
        return True
    return options.dead_letter is not None and retries.tries is not None and attempt >= retries.tries


def worker_id() -> str:
    return f"{socket.gethostname()[:50]}-{os.getpid()}"


@contextmanager
def database_connections() -> Iterator[None]:
    """As around a request: connections that are broken or too old are closed, before and after."""
    close_old_connections()
    reset_queries()
    try:
        yield
    finally:
        close_old_connections()


def _call(result: Any) -> Any:
    task, context = result.task, base.TaskContext(task_result=result)
    first = (context,) if task.takes_context else ()
    returned = task.call(*first, *result.args, **result.kwargs)
    try:
        return normalize_json(returned)
    except (TypeError, ValueError) as error:
        # By the interface it has failed. Another run would return the same, and do everything twice.
        raise Reject(f"the task returned {returned!r:.200}, which is not JSON: {error}") from error


def _as_django(moment: datetime | None) -> datetime | None:
    """Without USE_TZ, Django's times are naive, and in its default time zone."""
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment)


def _set(result: Any, **values: Any) -> None:
    """Results are frozen for everyone but their back end."""
    for name, value in values.items():
        object.__setattr__(result, name, value)
