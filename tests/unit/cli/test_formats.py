"""Format strings print what kcat's would, and name what they cannot understand."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cli.formats import VERBOSE, Shown, json_line, parse_format

RECORD = Shown(
    topic="orders",
    partition=3,
    offset=42,
    timestamp=1_700_000_000_000,
    key=b"k",
    value=b"two coffees",
    headers=[("source", b"web"), ("empty", None)],
    delivery_count=2,
    lock_deadline_ms=1_700_000_030_000,
)
BARE = Shown(topic="t", partition=0, offset=0, timestamp=0, key=None, value=None, headers=[])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t[%p] %o", b"orders[3] 42"),
        ("%T", b"1700000000000"),
        ("%k=%s", b"k=two coffees"),
        ("%h", b"source=web,empty="),
        ("%K %S", b"1 11"),
        ("%R", b"\x00\x00\x00\x0b"),
        ("delivery %D until %A", b"delivery 2 until 1700000030000"),
        ("100%%", b"100%"),
        (r"a\tb\n\r\\\0", b"a\tb\n\r\\\0"),
        (r"\x41\xff", b"A\xff"),
        ("", b""),
        ("é", "é".encode()),
    ],
)
def test_each_part_of_a_format_prints_its_field(text: str, expected: bytes) -> None:
    assert parse_format(text)(RECORD) == expected


def test_what_is_absent_is_empty_and_has_length_minus_one() -> None:
    assert parse_format("[%k|%s|%h|%K|%S|%D]")(BARE) == b"[|||-1|-1|]"
    assert parse_format("%R")(BARE) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("%z", "%z is not a valid format specifier"),
        ("50%", "% is not a valid format specifier"),
        (r"\q", r"\q is not a valid escape"),
    ],
)
def test_what_is_no_part_of_a_format_is_named_with_what_is(text: str, named: str) -> None:
    with pytest.raises(ValueError, match="expected one of") as caught:
        parse_format(text)
    assert named in str(caught.value)


@pytest.mark.parametrize("text", ["%D", "%A"])
def test_deliveries_and_locks_are_refused_outside_of_share_groups(text: str) -> None:
    with pytest.raises(ValueError, match="omit it with --consumer-group"):
        parse_format(text, is_share=False)


def test_the_verbose_format_names_what_apache_s_consumer_names() -> None:
    line = parse_format(VERBOSE)(RECORD)
    assert (
        line
        == b"CreateTime:1700000000000\tPartition:3\tOffset:42\tDelivery:2\tsource=web,empty=\tk\ttwo coffees\n"
    )


@given(st.binary(), st.binary())
def test_keys_and_values_pass_through_byte_for_byte(key: bytes, value: bytes) -> None:
    record = Shown(topic="t", partition=0, offset=0, timestamp=0, key=key, value=value, headers=[])
    assert parse_format(r"%k\0%s")(record) == key + b"\0" + value


def test_a_json_line_holds_everything() -> None:
    line = json_line(RECORD)
    assert line.endswith(b"\n")
    assert json.loads(line) == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": "two coffees",
        "headers": [{"name": "source", "value": "web"}, {"name": "empty", "value": None}],
        "delivery_count": 2,
        "lock_deadline": 1_700_000_030_000,
    }


@given(st.one_of(st.none(), st.binary()))
def test_no_value_is_lost_in_json(value: bytes | None) -> None:
    record = Shown(topic="t", partition=0, offset=0, timestamp=0, key=None, value=value, headers=[])
    line = json_line(record)
    assert line.count(b"\n") == 1
    said = json.loads(line)
    if "value_base64" in said:
        assert (said["value"], base64.b64decode(said["value_base64"])) == (None, value)
    else:
        assert said["value"] == (None if value is None else value.decode())
