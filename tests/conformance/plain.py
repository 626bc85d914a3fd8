"""Messages as plain dictionaries, so that a test states a request or whole response in the words of Kafka's schema."""

from collections.abc import Mapping
from typing import Any

from headrace.wire.message import Message


class Anything:
    """Equal to whatever it meets: for the ids, times and addresses that no test can know."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "..."


ANY = Anything()
_MISSING = object()


def build(kind: type[Message], fields: Mapping[str, Any]) -> Message:
    """The message with these fields; what is left out is at its default."""
    structs = {field.name: field.struct for field in kind.SCHEMA if field.struct is not None}
    return kind(**{name: _build_value(structs.get(name), value) for name, value in fields.items()})


def _build_value(struct: type[Message] | None, value: Any) -> Any:
    if struct is None:
        return value
    if isinstance(value, Mapping):
        return build(struct, value)
    if isinstance(value, list | tuple):
        return [_build_value(struct, element) for element in value]
    return value


def plain(value: Any) -> Any:
    """The message as dictionaries, lists and plain values."""
    if isinstance(value, Message):
        return {field.name: plain(getattr(value, field.name)) for field in value.SCHEMA}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    return value


def carried(kind: type[Message], version: int, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same message as a client of that version sees it: what the version cannot carry is at its default."""
    unknown = set(fields) - {field.name for field in kind.SCHEMA}
    assert not unknown, f"{kind.__name__} has no {sorted(unknown)}"
    defaults = kind()
    seen = {}
    for field in kind.SCHEMA:
        low, high = field.versions
        value = fields.get(field.name, _MISSING) if low <= version <= high else _MISSING
        if value is _MISSING:
            seen[field.name] = plain(getattr(defaults, field.name))
        else:
            seen[field.name] = _carried_value(field.struct, version, value)
    return seen


def _carried_value(struct: type[Message] | None, version: int, value: Any) -> Any:
    if struct is not None and isinstance(value, Mapping):
        return carried(struct, version, value)
    if isinstance(value, list | tuple):
        return [_carried_value(struct, version, element) for element in value]
    return value


def expect(response: Message, version: int, **fields: Any) -> None:
    """Asserts the whole response: these fields as far as the version carries them, the rest at its defaults."""
    assert plain(response) == carried(type(response), version, fields)
