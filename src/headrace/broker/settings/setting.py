"""What one setting is: its name, type, default and range; how its text is read, checked and shown again.

The texts of refusals are Kafka's, so that its tools and clients show what their users know. `allowed` says
the whole range in words; the broker adds it where it refuses to start, and the docs page prints it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum

Value = bool | int | float | str | tuple[str, ...]


class Type(IntEnum):
    """With the numbers that DescribeConfigs uses."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Scope(Enum):
    BROKER = "broker"
    TOPIC = "topic"
    GROUP = "group"


LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
_BITS = {Type.SHORT: 16, Type.INT: 32, Type.LONG: 64}


class SettingError(ValueError):
    """A value that a setting cannot take. The text names the setting, the value and what is allowed."""

    def __init__(self, setting: "Setting", text: object, reason: str, message: str | None = None) -> None:
        super().__init__(message or f"Invalid value {text} for configuration {setting.name}: {reason}")
        self.setting = setting
        self.text = text
        self.reason = reason

    def explain(self) -> str:
        return f"{self.setting.name}={self.text}: {self.reason} (allowed: {self.setting.allowed})"


@dataclass(frozen=True, slots=True)
class Synonym:
    """A broker setting that gives a topic or group setting its default; `factor` turns its unit into ours."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    scope: Scope
    type: Type
    default: Value | None
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """For a list: what each of its items may be."""
    is_dynamic: bool = False
    """May be altered while the broker runs. Topic and group settings always may."""
    is_internal: bool = False
    """Works when set, but is not shown: Kafka keeps such settings for its tests."""
    has_effect: bool = True
    """False: taken and shown because Kafka's tools set it, but there is nothing here that it could change."""
    share_version: int = 0
    """The `share.version` from which it is known (headrace.share.version)."""
    synonyms: tuple[Synonym, ...] = ()
    bounds: tuple[str, str] | None = None
    """The broker settings that say how small and how large a group may set it."""
    check: Callable[[Value], str | None] | None = None
    """What ranges cannot say: returns the reason of a refusal."""
    allowed_text: str = ""

    @property
    def is_sensitive(self) -> bool:
        return self.type is Type.PASSWORD

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if self.allowed_text:
            return self.allowed_text
        if self.choices:
            return ("any of " if self.type is Type.LIST else "") + ", ".join(self.choices)
        if self.type is Type.BOOLEAN:
            return "true, false"
        if self.type in (Type.STRING, Type.CLASS, Type.PASSWORD):
            return "any text"
        if self.type is Type.LIST:
            return "a list with commas"
        return self._range()

    def _range(self) -> str:
        low, high = self.minimum, self.maximum
        if low is not None and high is not None:
            return (
                f"only {_number_text(low)}" if low == high else f"{_number_text(low)} to {_number_text(high)}"
            )
        if low is not None:
            return f"{_number_text(low)} or more"
        return f"at most {_number_text(high)}" if high is not None else "any number"

    def parse(self, text: object) -> Value:
        """The value of a text as written in a file, on a command line or in a request; or SettingError."""
        value = self._read(text)
        self._check_choices(text, value)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise SettingError(self, text, f"Value must be at least {_number_text(self.minimum)}")
            if self.maximum is not None and value > self.maximum:
                raise SettingError(self, text, f"Value must be no more than {_number_text(self.maximum)}")
        reason = self.check(value) if self.check is not None else None
        if reason is not None:
            shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else text
            raise SettingError(self, shown, reason)
        return value

    def _read(self, text: object) -> Value:
        if isinstance(text, (list, tuple, set, frozenset)):
            text = ",".join(str(item) for item in text)
        trimmed = str(text).strip()
        match self.type:
            case Type.BOOLEAN:
                if trimmed.lower() not in ("true", "false"):
                    raise SettingError(self, text, "Expected value to be either true or false")
                return trimmed.lower() == "true"
            case Type.SHORT | Type.INT | Type.LONG:
                return self._read_number(text, trimmed)
            case Type.DOUBLE:
                return self._read_double(text, trimmed)
            case Type.LIST:
                return self._read_list(text, trimmed)
            case _:
                return trimmed

    def _read_list(self, text: object, trimmed: str) -> tuple[str, ...]:
        items = tuple(item.strip() for item in trimmed.split(",")) if trimmed else ()
        if not self.choices:
            return items
        if "" in items:
            reason = "values must not be empty."
            raise SettingError(self, text, reason, f"Configuration '{self.name}' {reason}")
        # Kafka takes a choice that is named twice as named once.
        return tuple(dict.fromkeys(items))

    def _read_number(self, text: object, trimmed: str) -> int:
        limit = 1 << (_BITS[self.type] - 1)
        # Java reads an optional sign and digits, nothing else: no underscores, no spaces inside.
        digits = trimmed[1:] if trimmed[:1] in ("+", "-") else trimmed
        if not (digits.isascii() and digits.isdigit()) or not -limit <= int(trimmed) < limit:
            raise SettingError(self, text, f"Not a number of type {self.type.name}")
        return int(trimmed)

    def _read_double(self, text: object, trimmed: str) -> float:
        try:
            number = float(trimmed)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise SettingError(self, text, "Not a number of type DOUBLE")
        return number

    def _check_choices(self, text: object, value: Value) -> None:
        if not self.choices:
            return
        for item in value if isinstance(value, tuple) else (str(value),):
            if item not in self.choices:
                shown = item if isinstance(value, tuple) else text
                raise SettingError(self, shown, "String must be one of: " + ", ".join(self.choices))

    def render(self, value: Value | None) -> str | None:
        """The value as Kafka shows it: what `parse` would read to the same value."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return _double_text(value)
        if isinstance(value, tuple):
            return ",".join(value)
        return str(value)


def _number_text(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _double_text(number: float) -> str:
    """As Java writes a double: 0.5, 1.0E10, 1.7976931348623157E308."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    text = "".join(map(str, digits))
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{int(exponent) + len(text) - 1}"
