"""An enqueued task as the value of a record: JSON with the function's place and its arguments."""

import json
from datetime import datetime
from typing import Any

import msgspec

from headrace.worker.outcomes import BodyError

TASK_HEADER = "django.task"
"""The function, for those who look at the topic."""


class TaskMessage(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    module: str
    function: str
    """Its `__qualname__`."""
    args: list[Any]
    kwargs: dict[str, Any]
    enqueued_at: datetime
    run_after: datetime | None = None


def write_message(message: TaskMessage) -> bytes:
    """By the standard library, as Django does: integers of any size stay exact, and NaN is refused."""
    try:
        return json.dumps(msgspec.to_builtins(message), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise type(error)(f"{message.function} cannot be enqueued with these arguments: {error}") from error


def read_message(value: bytes) -> TaskMessage:
    try:
        return msgspec.convert(json.loads(value), TaskMessage)
    except (ValueError, RecursionError) as error:  # msgspec's ValidationError is a ValueError
        raise BodyError(f"the value is not a Django task: {error}") from error
