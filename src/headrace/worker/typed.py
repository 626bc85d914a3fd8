"""Several tasks on one topic: each gets the records of its type, which a header of the record says.

    @queue.task("orders", type="created")
    async def created(order: Order) -> None: ...

    @queue.task("orders", type="canceled")
    async def canceled(order: Canceled) -> None: ...

    created.send(Order(...))              # sets the header `headrace.type: created`

A topic has one share consumer and one scheduler in a worker, whatever the number of its types: a record's type is not
known before it is fetched. So the tasks of a topic share their options; only `pool` is each task's own. The task
without a `type` gets every record that no other task of the topic is for. Without such a task, a record of unknown type
counts as unreadable.
"""

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from headrace.worker.bodies import Header
from headrace.worker.delivery_facts import facts_of_delivery
from headrace.worker.errors import QueueError
from headrace.worker.outcomes import BodyError
from headrace.worker.pools import CallPool, TaskCall
from headrace.worker.task import TYPE_HEADER, Pool, Task, TaskOptions

if TYPE_CHECKING:
    from headrace.worker.queue import Queue

OWN_OPTIONS = ("pool", "type")
"""What tasks of one topic need not have in common."""


class TypedTasks(Task[Any, Any, Any]):
    """All tasks of one topic, as one task for the runner. Its body is a pair: the task of the record, and its body."""

    def __init__(self, queue: "Queue", first: Task[Any, Any, Any]) -> None:
        self._queue = queue
        self.options = first.options
        self.name = f"{first.topic}.types"
        self.takes_delivery = True
        self.by_type: dict[str | None, Task[Any, Any, Any]] = {}
        self.codec = _TypedBodies(self)
        self.add(first)

    @property
    def members(self) -> tuple[Task[Any, Any, Any], ...]:
        return tuple(self.by_type.values())

    def add(self, task: Task[Any, Any, Any]) -> None:
        _require_same(self.options, task)
        self.by_type[task.options.type] = task
        pools = {each.options.pool for each in self.members}
        if len(pools) > 1:  # those that can be stopped at once, or a thread, which cannot
            pool = Pool.THREAD if Pool.THREAD in pools else Pool.LOOP
            self.options = replace(self.options, pool=pool)

    def find(self, headers: Iterable[Header]) -> Task[Any, Any, Any] | None:
        return self.by_type.get(type_of(headers)) or self.by_type.get(None)

    def name_for(self, headers: Iterable[Header]) -> str:
        task = self.find(headers)
        return self.name if task is None else task.name

    def __repr__(self) -> str:
        return f"<TypedTasks of topic {self.topic!r}: {', '.join(task.name for task in self.members)}>"


class _TypedBodies:
    """Stands where a single task has its codec."""

    def __init__(self, tasks: TypedTasks) -> None:
        self._tasks = tasks

    def read(self, value: bytes | None, headers: Iterable[Header] = ()) -> tuple[Task[Any, Any, Any], Any]:
        headers = tuple(headers)
        task = self._tasks.find(headers)
        if task is None:
            kind = type_of(headers)
            what = f"no header {TYPE_HEADER}" if kind is None else f"the type {kind!r}"
            known = ", ".join(repr(each) for each in self._tasks.by_type)
            raise BodyError(
                f"the record has {what}, and topic {self._tasks.topic!r} has no task for it; its types are {known}"
            )
        return task, task.codec.read(value, headers)


class TypedPool:
    """Runs each record in the pool of its task."""

    def __init__(self, pools: "Mapping[str, CallPool]") -> None:
        self._pools = pools
        """By the names of tasks."""

    def start(self, arguments: tuple[Any, ...]) -> TaskCall:
        run, (task, body), delivery = arguments
        run = replace(run, task=task.name)
        pool = self._pools[task.name]
        if not task.takes_delivery:
            return pool.start((run, body))
        is_process = task.options.pool is Pool.PROCESS
        return pool.start((run, body, facts_of_delivery(delivery) if is_process else delivery))

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()


def type_of(headers: Iterable[Header]) -> str | None:
    """The last one counts, as everywhere with headers of one name."""
    values = [value for name, value in headers if name == TYPE_HEADER and value is not None]
    return values[-1].decode("utf-8", "replace") if values else None


def _require_same(shared: TaskOptions, task: Task[Any, Any, Any]) -> None:
    for each in fields(TaskOptions):
        wanted, given = getattr(shared, each.name), getattr(task.options, each.name)
        if each.name not in OWN_OPTIONS and wanted != given:
            raise QueueError(
                f"task {task.name}: {each.name} must be "
                f"{wanted!r} as in another task of topic {task.topic!r}, got {given!r}; tasks of one topic share a "
                "consumer and all options except pool"
            )
