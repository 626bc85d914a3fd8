"""`Task`: a function with the topic it works on. Everything that can be wrong with it is found when it is declared."""

import inspect
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from headrace.worker.backoff import Backoff
from headrace.worker.bodies import BodyCodec, ContentType

if TYPE_CHECKING:
    from headrace.worker.queue import Queue, Sent

P = ParamSpec("P")
R = TypeVar("R")
CONCURRENCY_MAX = 10_000
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
    pool: Pool
    waiting_max: int


class Task(Generic[P, R]):
    """What `@queue.task` makes of a function. Called, it is still that function, so tests can call it directly."""

    def __init__(
        self, queue: "Queue", function: Callable[P, R], options: TaskOptions, content_type: ContentType
    ) -> None:
        self.function = function
        self.options = options
        self.name = f"{function.__module__}.{function.__qualname__}"
        self._queue = queue
        body_type, self.takes_delivery = read_signature(function)
        self.codec = BodyCodec(body_type, content_type)
        self.__doc__ = function.__doc__
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__module__ = function.__module__
        self.__wrapped__ = function

    @property
    def topic(self) -> str:
        return self.options.topic

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def send(
        self, body: Any, *, key: str | bytes | None = None, headers: Mapping[str, str | bytes] | None = None
    ) -> "Sent":
        """Sends a record to this task's topic; returns when the broker has it for sure."""
        return self._queue.send(self.topic, body, key=key, headers=headers)

    async def send_async(
        self, body: Any, *, key: str | bytes | None = None, headers: Mapping[str, str | bytes] | None = None
    ) -> "Sent":
        return await self._queue.send_async(self.topic, body, key=key, headers=headers)

    def __repr__(self) -> str:
        return f"<Task {self.name} on topic {self.topic!r}>"


def build_options(
    function: Callable[..., Any],
    topic: str,
    *,
    concurrency: int,
    retries: Backoff | None,
    dead_letter: str | None,
    timeout: float | None,
    key_order: bool,
    pool: str | Pool | None,
    waiting: int,
) -> TaskOptions:
    name = function.__qualname__
    _require(bool(topic) and isinstance(topic, str), name, "topic", topic, "the name of a topic")
    _require(
        _is_int(concurrency) and 1 <= concurrency <= CONCURRENCY_MAX,
        name, "concurrency", concurrency, f"a whole number from 1 to {CONCURRENCY_MAX}",
    )  # fmt: skip
    _require(
        _is_int(waiting) and 0 <= waiting <= WAITING_MAX,
        name, "waiting", waiting, f"a whole number from 0 to {WAITING_MAX}",
    )  # fmt: skip
    _require(retries is None or isinstance(retries, Backoff), name, "retries", retries, "a Backoff or None")
    _require(
        timeout is None or (math.isfinite(timeout) and timeout > 0),
        name, "timeout", timeout, "seconds above 0, or None",
    )  # fmt: skip
    _require(
        dead_letter is None or (isinstance(dead_letter, str) and dead_letter not in ("", topic)),
        name, "dead_letter", dead_letter, "the name of another topic, or None",
    )  # fmt: skip
    return TaskOptions(
        topic, concurrency, retries, dead_letter, timeout, key_order, choose_pool(function, pool), waiting
    )


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


def read_signature(function: Callable[..., Any]) -> tuple[Any, bool]:
    """The body's type, and whether the function wants the delivery too."""
    name = function.__qualname__
    shape = "declare it as (body: Type) or (body: Type, delivery: Delivery)"
    parameters = list(inspect.signature(function).parameters.values())
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
            "dataclass, dict, str, or bytes for the raw value"
        )
    takes_delivery = len(positional) > 1 and positional[1].default is inspect.Parameter.empty
    return _resolve(function, body), takes_delivery


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
        raise ValueError(f"task {function}: {name}={value!r} is not possible; it must be {wanted}")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
