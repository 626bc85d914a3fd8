"""Settings tables as dataclasses: values of Python and texts become the fields' values, or are refused in one voice."""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

import pytest

from headrace.base.settings import ConfigType
from headrace.base.tables import FieldError, rows, setting


class Codec(Enum):
    NONE = "none"
    GZIP = "GZIP"


class Mode(IntEnum):
    ALL_AT_ONCE = 0
    ONE_BY_ONE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    linger_ms: int = setting(5, "How long.", minimum=0, maximum=10, aliases=("linger",))
    is_on: bool = setting(True, "Whether.")
    codec: Codec = setting(Codec.NONE, "Which.")  # noqa: RUF009
    mode: Mode = setting(Mode.ALL_AT_ONCE, "How.")  # noqa: RUF009
    client_id: str = setting("me", "Who.")
    password: str = setting("", "A secret.", is_secret=True)
    records: int | None = setting(
        None, "How many.", kind=ConfigType.LONG, name="maxRecords", minimum=1, maximum=9
    )


ROWS = rows(Table)


def test_a_row_has_the_fields_name_with_dots_unless_it_has_its_own() -> None:
    assert [row.name for row in ROWS.values()] == [
        "linger.ms",
        "is.on",
        "codec",
        "mode",
        "client.id",
        "password",
        "maxRecords",
    ]
    assert ROWS["linger_ms"].aliases == ("linger",)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("linger_ms", 3, 3),
        ("linger_ms", " 10 ", 10),
        ("is_on", "Yes", True),
        ("is_on", 0, False),
        ("is_on", False, False),
        ("codec", "gzip", Codec.GZIP),
        ("codec", Codec.GZIP, Codec.GZIP),
        ("mode", "One_By_One", Mode.ONE_BY_ONE),
        ("mode", Mode.ONE_BY_ONE, Mode.ONE_BY_ONE),
        ("client_id", " you ", "you"),
        ("password", " secret ", " secret "),
        ("records", "7", 7),
    ],
)
def test_a_value_is_read(field: str, value: Any, expected: Any) -> None:
    assert ROWS[field].read(value) == expected


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("linger_ms", 11, "linger.ms=11; allowed are whole numbers from 0 to 10"),
        ("linger_ms", 1.5, "linger.ms=1.5; allowed are whole numbers from 0 to 10"),
        ("linger_ms", True, "linger.ms=True; allowed are whole numbers from 0 to 10"),
        ("linger_ms", [1], "linger.ms=[1]; allowed are whole numbers from 0 to 10"),
        ("is_on", "maybe", "is.on='maybe'; allowed are true and false"),
        ("codec", "zip", "codec='zip'; allowed are none, GZIP"),
        ("mode", "0", "mode='0'; allowed are all_at_once, one_by_one"),
        ("client_id", 5, "client.id=5; allowed are any text"),
        ("password", 5, "password=(hidden); allowed are any text"),
        ("records", "0", "maxRecords='0'; allowed are whole numbers from 1 to 9"),
    ],
)
def test_a_value_is_refused_with_what_is_allowed(field: str, value: Any, message: str) -> None:
    with pytest.raises(FieldError) as refusal:
        ROWS[field].read(value)
    assert str(refusal.value) == message


def test_secrets_are_not_in_the_representation() -> None:
    assert "hush" not in repr(Table(password="hush"))
