"""`Task`: a function and the topic whose records it processes. Its declaration checks the function and all options."""

import collections.abc
import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypedDict, TypeVar

from headrace.client.arguments import is_int
from headrace.worker.backoff import Backoff
from headrace.worker.batch import Batch
from headrace.worker.bodies import BodyCodec, BodyReader, ContentType, Header
from headrace.worker.circuit import Breaker
from headrace.worker.hooks import Middleware, TaskRun, finish_run, running
from headrace.worker.outcomes import AlreadyDoneError, BodyError, TaskOutcome
from headrace.worker.rate import Rate
from headrace.worker.transactions.database import Database
from headrace.worker.transactions.once import Once

if TYPE_CHECKING:
    from headrace.worker.queue import Queue, Sent
    from headrace.worker.schedule import Scheduled

B = TypeVar("B")
P = ParamSpec("P")
R = TypeVar("R")
DELIVERIES = ("Delivery", "DeliveryFacts", "Any", "object")
"""How the second parameter may be annotated. By name, because annotations may exist for type checkers alone."""
BODIES = (list, typing.Sequence, collections.abc.Sequence)
"""What the bodies of a batch may be annotated with."""
TYPE_HEADER = "headrace.type"
"""The header that says which task of its topic a record is for."""
CONCURRENCY_MAX = 10_000
LIMIT_MAX = 1_000
"""Of a group: each is a partition."""
RECORDS_MAX = 100_000
"""Of all calls at a time, with batches."""
WAITING_MAX = 100_000


class Pool(Enum):
    """Where a task's function runs."""

    LOOP = "loop"
    THREAD = "thread"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class TaskOptions:
    topic: str
    concurrency: int
    retries: Backoff | None
    dead_letter: str | None
    timeout: float | None
    key_order: bool
    """Of a worker, or of the whole group."""
    pool: Pool
    waiting_max: int
    breaker: Breaker | None = None
    batch: Batch | None = None
    type: str | None = None
    limit: int | None = None
    rate: Rate | None = None
    group_rate: Rate | None = None
    once: Database | None = None
    is_strict: bool = False
    """The order of a key is kept in the whole group: the task has a consumer group."""

    @property
    def records_max(self) -> int:
        """Records that run at a time."""
        return self.concurrency * (self.batch.max if self.batch is not None else 1)


class TaskSettings(TypedDict, total=False):
    """What `Queue.task` takes for every kind of task."""

    concurrency: int
    retries: Backoff | None
    dead_letter: str | None
    timeout: float | None
    key_order: bool | Literal["strict"]
    pool: Literal["thread", "process"] | None
    waiting: int
    breaker: Breaker | None
    type: str | None
    limit: int | None
    rate: str | None
    group_rate: str | None
    once: Database | None


class Task(Generic[B, P, R]):
    """The result of `@queue.task`. Calling it calls the function, so tests can call it directly."""

    def __init__(
        self,
        queue: "Queue",
        function: Callable[..., R],
        options: TaskOptions,
        content_type: ContentType,
    ) -> None:
        self.function = function
        self.options = options
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._queue = queue
        self.once = Once(function, options.once) if options.once is not None else None
        body_type, self.takes_delivery = read_signature(
            function,
            is_batch=options.batch is not None,
            connection=self.once.parameter if self.once is not None else None,
        )
        self.codec: BodyReader = BodyCodec(body_type, content_type)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    @property
    def topic(self) -> str:
        return self.options.topic

    @property
    def members(self) -> "tuple[Task[Any, Any, Any], ...]":
        """The tasks of the topic: only this one, unless the tasks have types."""
        return (self,)

    def name_for(self, headers: Iterable[Header]) -> str:
        """The name of the task that processes a record with these headers."""
        return self.name

    def headers_for(self, headers: Mapping[str, str | bytes] | None) -> "Mapping[str, str | bytes] | None":
        """The sender's headers with the type of this task."""
        return headers if self.options.type is None else {**(headers or {}), TYPE_HEADER: self.options.type}

    @property
    def queue(self) -> "Queue":
        return self._queue

    @property
    def middleware(self) -> "Sequence[Middleware]":
        return self._queue.middleware if self._queue is not None else ()

    def invoke(self, run: TaskRun, *arguments: Any) -> TaskOutcome:
        """Calls the function inside the queue's middleware."""
        function: Callable[..., Any] = self.function
        with running(run, self.middleware):
            if self.once is None:
                return finish_run(run, function(*arguments), self.middleware)
            was_done = self.once.run(run, self._queue.now_ms(), arguments)
            if not was_done:
                return finish_run(run, None, self.middleware)
        raise AlreadyDoneError  # out here, so that middleware does not take it for a failure

    async def invoke_async(self, run: TaskRun, *arguments: Any) -> TaskOutcome:
        """Like `invoke`, for coroutine functions."""
        function: Callable[..., Any] = self.function
        with running(run, self.middleware):
            if self.once is None:
                return finish_run(run, await function(*arguments), self.middleware)
            was_done = await self.once.run_async(run, self._queue.now_ms(), arguments)
            if not was_done:
                return finish_run(run, None, self.middleware)
        raise AlreadyDoneError

    def __call__(self, body: B, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(body, *args, **kwargs)

    def send(
        self,
        body: B,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        timeout: float | None = None,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        transaction: Any = None,
        unique: str | None = None,
        for_: float | timedelta | None = None,
    ) -> "Sent":
        """Sends a record to the topic of this task, and returns when the broker has stored it.

        Raises TypeError if the task could not decode the body. The arguments are those of `Queue.send`.
        """
        headers = self.headers_for(headers)
        self.check(body, headers)
        return self._queue.send(
            self.topic,
            body,
            key=key,
            headers=headers,
            timeout=timeout,
            delay=delay,
            at=at,
            transaction=transaction,
            unique=unique,
            for_=for_,
        )

    async def send_async(
        self,
        body: B,
        *,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        transaction: Any = None,
        unique: str | None = None,
        for_: float | timedelta | None = None,
    ) -> "Sent":
        """Like `send`, for coroutines."""
        headers = self.headers_for(headers)
        self.check(body, headers)
        return await self._queue.send_async(
            self.topic,
            body,
            key=key,
            headers=headers,
            timeout=timeout,
            delay=delay,
            at=at,
            transaction=transaction,
            unique=unique,
            for_=for_,
        )

    def schedule(
        self,
        body: B,
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        key: str | bytes | None = None,
        headers: Mapping[str, str | bytes] | None = None,
    ) -> "Scheduled":
        """Like `send` with `delay` or `at`, but returns a `Scheduled`, which `Queue.cancel` takes."""
        headers = self.headers_for(headers)
        self.check(body, headers)
        return self._queue.schedule(self.topic, body, delay=delay, at=at, key=key, headers=headers)

    def check(self, body: B, headers: Mapping[str, str | bytes] | None = None) -> None:
        """Encodes and decodes the body. Raises TypeError if a worker could not decode it."""
        value, encoded, _ = self._queue.encode(body, b"", headers)
        try:
            self.codec.read(value, encoded)
        except BodyError as error:
            raise TypeError(f"{self.name} does not take this body: {error}") from error

    def __repr__(self) -> str:
        return f"<Task {self.name} on topic {self.topic!r}>"


class BatchTask(Task[B, P, R]):
    """A task with `batch`: called, its function gets a list of bodies. `send` takes one body, as for every task."""

    def __call__(self, bodies: list[B], /, *args: P.args, **kwargs: P.kwargs) -> R:  # type: ignore[override]
        return self.function(bodies, *args, **kwargs)


def build_options(
    function: Callable[..., Any],
    topic: str,
    *,
    concurrency: int,
    retries: Backoff | None,
    dead_letter: str | None,
    timeout: float | None,
    key_order: bool | Literal["strict"],
    pool: str | Pool | None,
    waiting: int,
    breaker: Breaker | None = None,
    batch: Batch | None = None,
    type: str | None = None,
    limit: int | None = None,
    rate: str | None = None,
    group_rate: str | None = None,
    once: Database | None = None,
) -> TaskOptions:
    name = function.__qualname__
    _require(bool(topic) and isinstance(topic, str), name, "topic", topic, "the name of a topic")
    _require(
        is_int(concurrency) and 1 <= concurrency <= CONCURRENCY_MAX,
        name, "concurrency", concurrency, f"a whole number from 1 to {CONCURRENCY_MAX}",
    )  # fmt: skip
    _require(
        is_int(waiting) and 0 <= waiting <= WAITING_MAX,
        name, "waiting", waiting, f"a whole number from 0 to {WAITING_MAX}",
    )  # fmt: skip
    _require(retries is None or isinstance(retries, Backoff), name, "retries", retries, "a Backoff or None")
    _require(breaker is None or isinstance(breaker, Breaker), name, "breaker", breaker, "a Breaker or None")
    _require(
        timeout is None or (math.isfinite(timeout) and timeout > 0),
        name, "timeout", timeout, "> 0 seconds, or None",
    )  # fmt: skip
    _require(
        dead_letter is None or (isinstance(dead_letter, str) and dead_letter not in ("", topic)),
        name, "dead_letter", dead_letter, "the name of another topic, or None",
    )  # fmt: skip
    _require(batch is None or isinstance(batch, Batch), name, "batch", batch, "a Batch or None")
    _check_type(name, type, batch)
    _check_limit(name, limit)
    _check_once(name, once, batch)
    is_strict = _check_order(name, key_order, batch=batch, limit=limit, group_rate=group_rate)
    options = TaskOptions(
        topic=topic,
        concurrency=concurrency,
        retries=retries,
        dead_letter=dead_letter,
        timeout=timeout,
        key_order=bool(key_order),
        pool=choose_pool(function, pool),
        waiting_max=waiting,
        breaker=breaker,
        batch=batch,
        type=type,
        limit=limit,
        rate=_rate_of(name, "rate", rate),
        group_rate=_rate_of(name, "group_rate", group_rate),
        once=once,
        is_strict=is_strict,
    )
    _require(
        options.records_max <= RECORDS_MAX,
        name, "concurrency", concurrency, f"at most {RECORDS_MAX} divided by the records of a batch",
    )  # fmt: skip
    return options


def _check_type(name: str, type: str | None, batch: Batch | None) -> None:
    _require(
        type is None or (isinstance(type, str) and type != ""),
        name,
        "type",
        type,
        "a non-empty string or None",
    )
    _require(
        type is None or batch is None,
        name,
        "type",
        type,
        "omitted with batch=, which needs a topic of its own",
    )


def _check_order(name: str, key_order: object, **others: object) -> bool:
    """Whether it is strict. Options that would give records back for others to run cannot keep the order."""
    is_known = isinstance(key_order, bool) or key_order == "strict"
    _require(is_known, name, "key_order", key_order, "True, False or 'strict'")
    is_strict = key_order == "strict"
    for option, value in others.items():
        wanted = "omitted with key_order='strict'"
        _require(not is_strict or value is None, name, option, value, wanted)
    return is_strict


def _check_limit(name: str, limit: int | None) -> None:
    _require(
        limit is None or (is_int(limit) and 1 <= limit <= LIMIT_MAX),
        name, "limit", limit, f"a whole number from 1 to {LIMIT_MAX}, or None",
    )  # fmt: skip


def _rate_of(function: str, name: str, rate: str | None) -> Rate | None:
    try:
        return None if rate is None else Rate.parse(rate)
    except ValueError as error:
        raise ValueError(f"task {function}: {name} is wrong: {error}") from None


def _check_once(name: str, once: object, batch: Batch | None) -> None:
    wanted = "a database such as SqliteDatabase('app.db'), or None"
    _require(once is None or isinstance(once, Database), name, "once", once, wanted)
    wanted = "None with once=, which has a transaction for each record"
    _require(batch is None or once is None, name, "batch", batch, wanted)


def choose_pool(function: Callable[..., Any], pool: str | Pool | None) -> Pool:
    name = function.__qualname__
    wanted = None if pool is None else pool.value if isinstance(pool, Pool) else pool
    _require(wanted in (None, "thread", "process"), name, "pool", pool, "'thread', 'process' or None")
    if inspect.iscoroutinefunction(function):
        _require(wanted is None, name, "pool", pool, "left out: an async function runs on the event loop")
        return Pool.LOOP
    if wanted != "process":
        return Pool.THREAD
    if "<locals>" in name or "<lambda>" in name:
        raise ValueError(
            f"{name} cannot run in a process pool: the other process finds it by its name, so it must stand at the "
            "top level of a module"
        )
    return Pool.PROCESS


def read_signature(
    function: Callable[..., Any], *, is_batch: bool = False, connection: str | None = None
) -> tuple[Any, bool]:
    """The type of one body, and whether the function wants the delivery too. `connection` is neither."""
    name = function.__qualname__
    shape = (
        "declare it as (bodies: list[Type]) or (bodies: list[Type], deliveries: list[Delivery])"
        if is_batch
        else "declare it as (body: Type) or (body: Type, delivery: Delivery)"
    )
    parameters = [each for each in inspect.signature(function).parameters.values() if each.name != connection]
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    needed = [each for each in parameters if each.default is each.empty and each not in positional[:2]]
    unusable = [each.name for each in needed if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if not positional or unusable:
        what = f"it needs {', '.join(unusable)}" if unusable else "it takes no body"
        raise TypeError(f"{name} cannot be a task: {what}; {shape}")
    body = positional[0]
    if body.annotation is body.empty:
        raise TypeError(
            f"{name} cannot be a task: its body {body.name!r} has no type; annotate it with a msgspec.Struct, a "
            f"dataclass, dict, str, or bytes for the raw value{', in a list' if is_batch else ''}"
        )
    takes_delivery = len(positional) > 1 and positional[1].default is inspect.Parameter.empty
    if takes_delivery:
        _require_delivery(name, positional[1], shape, is_batch)
    body_type = _resolve(function, body)
    return (_element_of(name, body_type, shape) if is_batch else body_type), takes_delivery


def _element_of(name: str, bodies: Any, shape: str) -> Any:
    """`list[X]` -> X."""
    arguments = typing.get_args(bodies)
    if typing.get_origin(bodies) not in BODIES or len(arguments) != 1:
        raise TypeError(
            f"{name} cannot be a task with batch=: its first parameter is {bodies!r}, not a list; {shape}"
        )
    return arguments[0]


def _require_delivery(name: str, parameter: inspect.Parameter, shape: str, is_batch: bool) -> None:
    """The second parameter gets the delivery: one that is meant for something else would get it, too."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        is_delivery = "deliver" in parameter.name or parameter.name.startswith("_")
    else:
        text = annotation if isinstance(annotation, str) else _text_of(annotation)
        text = text.strip("'\"")
        if is_batch and text.endswith("]"):
            text = text.partition("[")[2][:-1].strip("'\"")
        is_delivery = text.rpartition(".")[2] in DELIVERIES
    if not is_delivery:
        raise TypeError(
            f"{name} cannot be a task: its second parameter, {parameter}, is not a delivery; a task has one body: put "
            f"several values into a dataclass, and {shape}"
        )


def _text_of(annotation: Any) -> str:
    if typing.get_args(annotation):
        return str(annotation)
    return getattr(annotation, "__name__", str(annotation))


def _resolve(function: Callable[..., Any], body: inspect.Parameter) -> Any:
    """The annotation as a type; only the body's, since others may exist for type checkers alone."""
    holder = types.SimpleNamespace(__annotations__={"body": body.annotation})
    names = {**vars(sys.modules["builtins"]), **function.__globals__}
    try:
        return typing.get_type_hints(holder, globalns=names, include_extras=True)["body"]
    except NameError as error:
        raise TypeError(
            f"{function.__qualname__} cannot be a task: the type of its body, {body.annotation!r}, cannot be found "
            f"({error}); define it at the top level of the module, before the task"
        ) from None


def _require(holds: bool, function: str, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise ValueError(f"task {function}: {name} must be {wanted}, got {value!r}")
