"""`HeadraceBackend`: Django's tasks as records of a queue. Each queue name is a topic, `GROUP.NAME`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.utils import timezone
from django.utils.asyncio import async_unsafe
from django.utils.crypto import get_random_string

from headrace.adapters.django.interface import BaseTaskBackend, base, signals
from headrace.adapters.django.messages import TASK_HEADER, TaskMessage, write_message
from headrace.adapters.django.options import (
    OUTBOX,
    QUEUE_OPTIONS,
    OptionProblem,
    problems_of,
    task_options,
    topic_of,
)
from headrace.adapters.django.running import QueuedTasks
from headrace.client.forks import ForkSafeLock
from headrace.worker.bodies import CONTENT_TYPE, ContentType
from headrace.worker.errors import QueueError
from headrace.worker.queue import Queue

ID_LENGTH = 32
IN_A_LOOP = "enqueue() waits for the broker, and the event loop with it; use: await task.aenqueue(...)"


class HeadraceBackend(BaseTaskBackend):  # type: ignore[misc]
    """`OPTIONS` needs `bootstrap_servers` and `group_id`; the others are in docs/how-to/django.md.

    Results cannot be retrieved: a topic is no place to look up one record by its id. Priorities cannot be set, because
    a share group delivers in the order of the log; give urgent tasks a queue of their own.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = False
    supports_priority = False

    def __init__(self, alias: str, params: Mapping[str, Any]) -> None:
        super().__init__(alias, params)
        self._params = params

    @property
    def queue(self) -> Queue:
        """The queue behind it, the same for all threads. `headrace worker` runs it like any other."""
        return _queue_of(self)

    @async_unsafe(IN_A_LOOP)  # type: ignore[untyped-decorator]
    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Returns when the broker has stored the task.

        With the option `outbox` and within a transaction of that database, the task is stored there instead, and is
        sent if the transaction is committed.
        """
        result, value = self._prepare(task, args, kwargs)
        transaction = self._transaction()
        self.queue.send(
            self._topic(task), value, headers=_headers(task), at=_moment(task), transaction=transaction
        )
        signals.task_enqueued.send_robust(type(self), task_result=result)
        return result

    async def aenqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if OUTBOX in self.options:
            return await super().aenqueue(task, args, kwargs)  # Django's transactions belong to threads
        result, value = self._prepare(task, args, kwargs)
        await self.queue.send_async(self._topic(task), value, headers=_headers(task), at=_moment(task))
        await signals.task_enqueued.asend_robust(type(self), task_result=result)
        return result

    def check(self, **kwargs: Any) -> Iterable[checks.CheckMessage]:
        """System checks: what is wrong with QUEUES and OPTIONS. No broker is asked."""
        problems = list(problems_of(self._params, self.queues))
        if not problems:
            try:
                self._build_queue()
            except (QueueError, TypeError, ValueError) as error:
                problems = [OptionProblem(f"OPTIONS cannot be used: {error}", "Correct the option.")]
        return [
            checks.Error(f"TASKS[{self.alias!r}]: {problem.text}", hint=problem.hint, id="headrace.E001")
            for problem in problems
        ]

    def build_queue(self, queue_names: Iterable[str] | None = None, **options: Any) -> Queue:
        """A queue of its own for a worker: of these queues (None: all), with other options for their tasks."""
        names = sorted(self.queues) if queue_names is None else list(dict.fromkeys(queue_names))
        for name in names:
            if name not in self.queues:
                raise ImproperlyConfigured(
                    f"Queue {name!r} is not in QUEUES of TASKS[{self.alias!r}]: {', '.join(sorted(self.queues))}"
                )
        for problem in problems_of(self._params, self.queues):
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: {problem.text} {problem.hint}")
        try:
            return self._build_queue(names, options)
        except (QueueError, TypeError, ValueError) as error:
            raise ImproperlyConfigured(f"TASKS[{self.alias!r}]: OPTIONS cannot be used: {error}") from error

    def _build_queue(
        self, names: Iterable[str] | None = None, changes: Mapping[str, Any] | None = None
    ) -> Queue:
        given = self.options
        options = {name: given[name] for name in QUEUE_OPTIONS if name in given}
        queue = Queue(given["bootstrap_servers"], group_id=given["group_id"], **options)
        for name in sorted(self.queues) if names is None else names:
            chosen = {**task_options(given, name), **(changes or {})}
            QueuedTasks(self, name).declare(queue, topic_of(queue.group_id, name), chosen)
        return queue

    def _transaction(self) -> Any:
        """The database driver's connection, within a transaction that the option `outbox` is about; else None."""
        connection = connections[self.options[OUTBOX]] if OUTBOX in self.options else None
        return connection.connection if connection is not None and connection.in_atomic_block else None

    def _topic(self, task: Any) -> str:
        return topic_of(self.queue.group_id, task.queue_name)

    def _prepare(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, bytes]:
        """The result as of now, and the value of the record."""
        self.validate_task(task)
        now = timezone.now()
        result = base.TaskResult(
            task=task,
            id=get_random_string(ID_LENGTH),
            status=base.TaskResultStatus.READY,
            enqueued_at=now,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        message = TaskMessage(
            id=result.id,
            module=task.func.__module__,
            function=task.func.__qualname__,
            args=result.args,
            kwargs=result.kwargs,
            enqueued_at=_aware(now),
            run_after=_moment(task),
        )
        return result, write_message(message)


_QUEUES: dict[str, tuple[Mapping[str, Any], Queue]] = {}
"""One for each alias: Django makes a back end for every thread, and in async code for every task."""
_LOCK = ForkSafeLock()


def _queue_of(backend: HeadraceBackend) -> Queue:
    with _LOCK:
        params, queue = _QUEUES.get(backend.alias, (None, None))
        if queue is None or params != backend._params:
            queue = backend.build_queue()
            _QUEUES[backend.alias] = (backend._params, queue)
        return queue


def _headers(task: Any) -> dict[str, str]:
    return {CONTENT_TYPE: ContentType.JSON.value, TASK_HEADER: task.module_path}


def _moment(task: Any) -> datetime | None:
    return None if task.run_after is None else _aware(task.run_after)


def _aware(moment: datetime) -> datetime:
    """Without USE_TZ, Django's times are naive, and in its default time zone."""
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment)
