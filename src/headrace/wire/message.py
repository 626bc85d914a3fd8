"""What every generated message class is made of: fields with their versions, equality, a readable repr."""

from typing import Any, ClassVar

ZERO_UUID = bytes(16)
NEWEST = 32767
"""Stands for "and every later version" in a version interval."""


class F:
    """One field of a message: in which versions it is there, may be null, or travels as a tagged field."""

    __slots__ = ("default", "ignorable", "kind", "name", "nullable", "struct", "tag", "tagged", "versions")

    def __init__(
        self,
        name: str,
        kind: str,
        versions: tuple[int, int],
        *,
        nullable: tuple[int, int] | None = None,
        tagged: tuple[int, int] | None = None,
        tag: int = -1,
        ignorable: bool = False,
        struct: "type[Message] | None" = None,
        default: object = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.versions = versions
        self.nullable = nullable
        self.tagged = tagged
        self.tag = tag
        self.ignorable = ignorable
        self.struct = struct
        self.default = default


class Message:
    """A message or a struct inside one. Topic ids are 16 raw bytes; arrays read from the wire are lists."""

    __slots__ = ()
    SCHEMA: ClassVar[tuple[F, ...]] = ()
    API_KEY: ClassVar[int] = -1
    VERSIONS: ClassVar[tuple[int, int]] = (0, 0)
    FLEXIBLE_FROM: ClassVar[int] = NEWEST

    def __init__(self, **_: Any) -> None:
        """Replaced in every message that has fields."""

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(
            _plain(getattr(self, field.name)) == _plain(getattr(other, field.name)) for field in self.SCHEMA
        )

    def __repr__(self) -> str:
        fields = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in self.SCHEMA)
        return f"{type(self).__name__}({fields})"


def replaced(message: Message, field: str, value: object) -> Message:
    """A copy with another value in one field."""
    copy = type(message)(**{each.name: getattr(message, each.name) for each in message.SCHEMA})
    setattr(copy, field, value)
    return copy


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
