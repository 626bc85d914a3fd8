"""Deserializers: functions of bytes, or of bytes and a context, as those of schema registries are."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Deserializer = Callable[[bytes], Any] | Callable[[bytes, Any], Any]
CONTEXT_NAMES = ("ctx", "context")


class DeserializationContext(NamedTuple):
    """Where the bytes come from, with the names of confluent-kafka's SerializationContext."""

    topic: str
    field: str
    """"key" or "value"."""
    headers: Sequence[tuple[str, bytes | None]]


def takes_context(deserializer: Deserializer | None) -> bool:
    """Whether its second parameter is the context: one without a default, or one of that name."""
    if deserializer is None:
        return False
    try:
        parameters = list(inspect.signature(deserializer).parameters.values())
    except (TypeError, ValueError):  # some built-in functions do not tell
        return False
    positional = [
        each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    if len(positional) < 2:
        return False
    second = positional[1]
    return second.default is second.empty or second.name in CONTEXT_NAMES
