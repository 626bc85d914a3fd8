"""Settings tables as dataclasses: each field is a row, so that its value has a type where it is used.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class LinkSettings:
        client_id: str = setting("headrace", "A name for this client in the brokers' logs.")
        linger_ms: int = setting(0, "How long a batch waits for more records.", minimum=0, maximum=INT_MAX)

The clients, the worker and the Spark formats have such tables. They take Python's values as well as text, and are
less strict than a broker: `yes` is true, and choices may be in any case.
"""

from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from headrace.base.settings import ConfigType, Setting, SettingError, Value

_FLAGS = {"yes": "true", "1": "true", "no": "false", "0": "false"}
_NUMBERS = (ConfigType.INT, ConfigType.LONG)
_TEXTS = (ConfigType.STRING, ConfigType.PASSWORD)


class FieldError(SettingError):
    """A refused value. The text is the same for clients, workers and Spark: what it is, and what is allowed."""

    def __init__(self, row: "FieldSetting", value: object) -> None:
        shown = "(hidden)" if row.is_sensitive else repr(value)
        super().__init__(row, value, "", f"{row.name}={shown}; allowed are {row.expected}")


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSetting(Setting):
    enum: type[Enum] | None = None
    """Of a choice: the type of its value. Members with numbers are known by their names."""
    default_text: str = ""
    """For the docs: what holds where nothing is given."""

    @property
    def expected(self) -> str:
        if self.type is ConfigType.BOOLEAN:
            return "true and false"
        return f"whole numbers from {self.allowed}" if self.type in _NUMBERS else self.allowed

    def read(self, value: object) -> Any:
        """The value that the field gets; FieldError for one that it cannot take."""
        if self.enum is not None:
            return self._read_choice(value)
        if self.type in _TEXTS:
            return self._read_text(value)
        text = str(value).strip()
        try:
            return self.parse(_FLAGS.get(text.lower(), text) if self.type is ConfigType.BOOLEAN else text)
        except SettingError:
            raise FieldError(self, value) from None

    def _read_choice(self, value: object) -> Enum:
        assert self.enum is not None
        if isinstance(value, self.enum):
            return value
        wanted = str(value).strip().lower()
        for member in self.enum:
            if _choice(member).lower() == wanted:
                return member
        raise FieldError(self, value)

    def _read_text(self, value: object) -> str:
        if not isinstance(value, str):
            raise FieldError(self, value)
        return value if self.is_sensitive else value.strip()


def setting(
    default: Any, doc: str, *, kind: ConfigType | None = None, is_secret: bool = False, **row: Any
) -> Any:
    """A field of a settings table. `name` is the field's name with dots for underscores, unless it is given."""
    kind = ConfigType.PASSWORD if is_secret else kind or _kind(default)
    metadata = {"row": {"doc": doc, "type": kind, "name": None, **row}}
    return field(default=default, repr=not is_secret, metadata=metadata)


def rows(table: Any) -> dict[str, FieldSetting]:
    """The rows of a settings table, by the names of its fields."""
    return {each.name: _row(each) for each in fields(table) if "row" in each.metadata}


def _row(each: Any) -> FieldSetting:
    known = each.metadata["row"]
    default: Any = each.default
    enum = type(default) if isinstance(default, Enum) else None
    choices = tuple(_choice(member) for member in enum) if enum is not None else ()
    shown: Value | None = default if enum is None else _choice(default)
    name = known["name"] or each.name.replace("_", ".")
    return FieldSetting(**{**known, "name": name}, default=shown, choices=choices, enum=enum)


def _choice(member: Enum) -> str:
    return member.value if isinstance(member.value, str) else member.name.lower()


def _kind(default: object) -> ConfigType:
    if isinstance(default, bool):
        return ConfigType.BOOLEAN
    if isinstance(default, int) and not isinstance(default, Enum):
        return ConfigType.LONG
    return ConfigType.LIST if isinstance(default, tuple) else ConfigType.STRING
