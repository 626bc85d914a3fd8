"""What clients choose as names cannot take over the terminal that prints them."""

import json

import pytest

from headrace.base.text import printable, printable_json, printable_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("orders", "orders"),
        ("größe-注文", "größe-注文"),
        ("\x1b]0;pwned\x07", r"\x1b]0;pwned\x07"),
        ("a\nb\tc", r"a\nb\tc"),
        ("\x9b31m", r"\x9b31m"),
        ("abc\u202edef", r"abc\u202edef"),
    ],
)
def test_control_characters_are_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_json_stays_json() -> None:
    name = "a\x9b\u202e\n"
    text = printable_json(json.dumps({"name": name}, ensure_ascii=False, indent=2))
    assert "\x9b" not in text
    assert json.loads(text) == {"name": name}


def test_lines_stay_lines() -> None:
    assert printable_lines("one\n\ttwo\x1b[2J\r") == "one\n\ttwo\\x1b[2J\\r"
