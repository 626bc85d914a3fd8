"""A task with `once=`: how its function gets the connection, and how its record is known again."""

import inspect
import re
import typing
from collections.abc import Callable
from typing import Any

from headrace.worker.hooks import TaskRun
from headrace.worker.outcomes import AlreadyDoneError
from headrace.worker.transactions.database import Database
from headrace.worker.transactions.statements import RecordPlace, message_id_of

_CONNECTIONS = ("Connection", "AsyncConnection", "PoolConnectionProxy", "Session", "AsyncSession")
_NAMED_PARTS = re.compile(r"[A-Za-z_][A-Za-z_0-9.]*")


class Once:
    """What a task needs to run in a transaction. Unsuitable declarations are refused here, with TypeError."""

    def __init__(self, function: Callable[..., Any], database: Database) -> None:
        self.database = database
        self.is_async = inspect.iscoroutinefunction(function)
        self.parameter = _connection_parameter(function, database, self.is_async)
        self._function = function
        self._index = _positional_index(function, self.parameter)

    def run(self, run: TaskRun, now_ms: int, arguments: tuple[Any, ...]) -> bool:
        """True: the function was not called, because the record was finished before."""
        try:
            self.database.run_once(
                place_of(run), now_ms, lambda connection: self._call(arguments, connection)
            )
        except AlreadyDoneError:
            return True
        return False

    async def run_async(self, run: TaskRun, now_ms: int, arguments: tuple[Any, ...]) -> bool:
        try:
            await self.database.run_once_async(
                place_of(run), now_ms, lambda connection: self._call(arguments, connection)
            )
        except AlreadyDoneError:
            return True
        return False

    def _call(self, arguments: tuple[Any, ...], connection: Any) -> Any:
        if self._index is None:
            return self._function(*arguments, **{self.parameter: connection})
        return self._function(*arguments[: self._index], connection, *arguments[self._index :])


def place_of(run: TaskRun) -> RecordPlace:
    return RecordPlace(
        run.group_id, run.topic, run.topic_id, run.partition, run.offset, message_id_of(run.headers)
    )


def _connection_parameter(function: Callable[..., Any], database: Database, is_async: bool) -> str:
    name, kind = function.__qualname__, type(database).__name__
    wanted = database.connection_types.get(is_async)
    if wanted is None:
        other = "async def" if not is_async else "def"
        raise TypeError(f"{name} cannot be a task with this {kind}: it is for {other} functions")
    shape = f"{'async def' if is_async else 'def'} {function.__name__}(body: Type, connection: {wanted[0]})"
    found = [
        (parameter.name, text)
        for parameter in list(inspect.signature(function).parameters.values())[1:]
        if (text := _type_name(function, parameter)).rpartition(".")[2] in _CONNECTIONS
    ]
    if len(found) != 1:
        what = "no parameter for the connection" if not found else f"{len(found)} parameters for connections"
        raise TypeError(f"{name} cannot be a task with once=: it has {what}; declare it as {shape}")
    ((parameter, text),) = found
    if not any(_is_same(text, each) for each in wanted):
        raise TypeError(
            f"{name} cannot be a task with once={kind}(...): its parameter {parameter} is annotated with {text}, but "
            f"it gets a {wanted[0]}; declare it as {shape}"
        )
    return parameter


def _positional_index(function: Callable[..., Any], name: str) -> int | None:
    """None: it is passed by its name."""
    names = list(inspect.signature(function).parameters)
    parameter = inspect.signature(function).parameters[name]
    return None if parameter.kind is parameter.KEYWORD_ONLY else names.index(name)


def _type_name(function: Callable[..., Any], parameter: inspect.Parameter) -> str:
    """By name, because the annotation may exist for type checkers alone. With the package if that is known."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ""
    if isinstance(annotation, str):
        found = _NAMED_PARTS.search(annotation)
        text = found[0] if found else ""
        head, _, rest = text.partition(".")
        known = function.__globals__.get(head)
        if known is None:
            return text
        if not rest:
            annotation = known
        else:
            return f"{getattr(known, '__name__', head)}.{rest}"
    annotation = typing.get_origin(annotation) or annotation
    module = getattr(annotation, "__module__", "").partition(".")[0]
    return f"{module}.{getattr(annotation, '__name__', '')}"


def _is_same(text: str, wanted: str) -> bool:
    """A name without a package can be any."""
    package, _, kind = text.rpartition(".")
    wanted_package, _, wanted_kind = wanted.rpartition(".")
    if kind == "PoolConnectionProxy":
        kind = "Connection"
    return kind == wanted_kind and package.partition(".")[0] in ("", wanted_package, "sqlalchemy")
