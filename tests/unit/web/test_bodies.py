"""Keys and values for people: text as text, JSON laid out, the rest in hexadecimal, never too much."""

import pytest

from headrace.web.bodies import body_of
from headrace.web.model import Body


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, Body(kind="null", text="", size=0)),
        (b"", Body(kind="empty", text="", size=0)),
        (b"hello", Body(kind="text", text="hello", size=5)),
        ("grüß".encode(), Body(kind="text", text="grüß", size=6)),
        (b'{"a":1}', Body(kind="json", text='{"a":1}', size=7)),
        (b"{not json", Body(kind="text", text="{not json", size=9)),
        (b"\x00\xff", Body(kind="hex", text="00 ff", size=2)),
        (b"bell\x07", Body(kind="hex", text="62 65 6c 6c 07", size=5)),
    ],
)
def test_data_is_shown_as_what_it_is(data: bytes | None, shown: Body) -> None:
    assert body_of(data, length_max=100) == shown


def test_json_is_laid_out_where_it_is_shown_whole() -> None:
    assert body_of(b'{"a":[1]}', length_max=100, laid_out=True).text == '{\n  "a": [\n    1\n  ]\n}'


def test_long_text_is_cut_and_says_so() -> None:
    body = body_of(b"x" * 1000, length_max=10)
    assert (body.text, body.size, body.is_cut) == ("x" * 10, 1000, True)


def test_a_cut_in_the_middle_of_a_character_does_not_make_it_binary() -> None:
    body = body_of(b"a" + "ä".encode() * 1000, length_max=10)
    assert (body.kind, body.text) == ("text", "a" + "ä" * 9)


def test_long_binary_is_cut() -> None:
    body = body_of(bytes(1000), length_max=30)
    assert (body.text, body.is_cut) == (" ".join(["00"] * 10), True)


def test_json_that_is_nested_too_deep_is_shown_as_text() -> None:
    assert body_of(b"[" * 100_000 + b"]" * 100_000, length_max=100_000).kind == "text"
