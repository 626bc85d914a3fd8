"""One row of a settings table: name, type, default, range and text; how a value is read, refused and shown again.

The broker, the clients, the worker and the Spark formats declare their settings as rows of this kind. The texts of
refusals are Kafka's, so that its tools and clients show what their users know. `allowed` says the whole range in
words: the broker adds it where it refuses to start, clients and Spark say it instead, and the docs print it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum

Value = bool | int | float | str | tuple[str, ...]


class ConfigType(IntEnum):
    """With the numbers that DescribeConfigs uses."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


LONG_MAX = 2**63 - 1
INT_MAX = 2**31 - 1
_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


def bounded_int(digits: str) -> int | None:
    """A number without a sign; None for anything but ASCII digits, and for more than any setting can be.

    `int` raises ValueError for some thousand digits, which a client may send.
    """
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) <= len(str(LONG_MAX)) else None


class SettingError(ValueError):
    """A value that a setting cannot take. The text names the setting, the value and what is allowed."""

    def __init__(self, setting: "Setting", text: object, reason: str, message: str | None = None) -> None:
        shown = "[hidden]" if setting.is_sensitive else text
        super().__init__(message or f"Invalid value {shown} for configuration {setting.name}: {reason}")
        self.setting = setting
        self.text = shown
        self.reason = reason

    def explain(self) -> str:
        return f"{self.setting.name}={self.text}: {self.reason} (allowed: {self.setting.allowed})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    name: str
    type: ConfigType
    default: Value | None
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    """For a list: what each of its items may be."""
    aliases: tuple[str, ...] = ()
    """Other names that are understood: librdkafka's, Flink's."""
    check: Callable[[Value], str | None] | None = None
    """What ranges cannot say: returns the reason of a refusal."""
    allowed_text: str = ""

    @property
    def is_sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    @property
    def allowed(self) -> str:
        """The allowed values in words."""
        if self.allowed_text:
            return self.allowed_text
        if self.choices:
            return ("any of " if self.type is ConfigType.LIST else "") + ", ".join(self.choices)
        if self.type is ConfigType.BOOLEAN:
            return "true, false"
        if self.type in (ConfigType.STRING, ConfigType.CLASS, ConfigType.PASSWORD):
            return "any text"
        if self.type is ConfigType.LIST:
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
            case ConfigType.BOOLEAN:
                if trimmed.lower() not in ("true", "false"):
                    raise SettingError(self, text, "Expected value to be either true or false")
                return trimmed.lower() == "true"
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                return self._read_number(text, trimmed)
            case ConfigType.DOUBLE:
                return self._read_double(text, trimmed)
            case ConfigType.LIST:
                return self._read_list(text, trimmed)
            case ConfigType.PASSWORD:
                return str(text)  # which may begin or end with a blank, as in Kafka
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
        sign, digits = (trimmed[0], trimmed[1:]) if trimmed[:1] in ("+", "-") else ("", trimmed)
        number = bounded_int(digits)
        if number is not None and sign == "-":
            number = -number
        if number is None or not -limit <= number < limit:
            raise SettingError(self, text, f"Not a number of type {self.type.name}")
        return number

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
