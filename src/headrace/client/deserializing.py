"""Deserializers: functions of bytes, or of bytes and a context, as those of schema registries are."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from headrace.client.decoding import Damaged
from headrace.client.delivery import AcknowledgeType, Delivery
from headrace.client.errors import RecordDeserializationError

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


class RecordDeserializer:
    """What a consumer makes of keys and values. `on_error`: how a record is answered that cannot be deserialized."""

    def __init__(
        self, key: Deserializer | None, value: Deserializer | None, on_error: AcknowledgeType
    ) -> None:
        if on_error == AcknowledgeType.RENEW:
            raise ValueError("on_deserialization_error=RENEW; choose ACCEPT, RELEASE or REJECT")
        self.is_plain = key is None and value is None
        """Keys and values stay bytes."""
        self._key = key, takes_context(key)
        self._value = value, takes_context(value)
        self._on_error = on_error

    def deserialize(self, delivery: Delivery) -> tuple[Any, Any]:
        """Its key and value."""
        key = self._through(*self._key, delivery, delivery.key, "key")
        return key, self._through(*self._value, delivery, delivery.value, "value")

    def failed(self, delivery: Delivery, error: Exception) -> Damaged:
        """For a record whose deserializer has raised."""
        raised = RecordDeserializationError(
            f"cannot deserialize the record at {delivery.topic}-{delivery.partition}, offset {delivery.offset}: "
            f"{type(error).__name__}: {error}. It is answered with {self._on_error.name}; "
            "acknowledge_offset may say otherwise before the next poll.",
            delivery,
        )
        raised.__cause__ = error
        return Damaged(delivery._grant.acquired, delivery.offset, delivery.offset, self._on_error, raised)

    def _through(
        self,
        deserializer: Any,
        has_context: bool,
        delivery: Delivery,
        data: bytes | None,
        field: str,
    ) -> Any:
        """No bytes stay None: there is nothing to deserialize."""
        if deserializer is None or data is None:
            return data
        if not has_context:
            return deserializer(data)
        return deserializer(data, DeserializationContext(delivery.topic, field, delivery.headers))
