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
        ("5\u00a0€".encode(), Body(kind="text", text="5\u00a0€", size=6)),
        ("👨\u200d👩".encode(), Body(kind="text", text="👨\u200d👩", size=11)),
        ("\u202e".encode(), Body(kind="hex", text="e2 80 ae", size=3)),
    ],
)
def test_data_is_shown_as_what_it_is(data: bytes | None, shown: Body) -> None:
    assert body_of(data, length_max=100) == shown


def test_json_is_laid_out_where_it_is_shown_whole() -> None:
    assert body_of(b'{"a":[1]}', length_max=100, laid_out=True).text == '{\n  "a": [\n    1\n  ]\n}'


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "price": 19.999999999999999999,\n  "size": 1E400,\n  "id": 12345678901234567890,\n  "zero": -0\n}',
        '{\n  "name": 1,\n  "name": 2\n}',
        '[\n  null,\n  true,\n  {},\n  [],\n  "é\\n"\n]',
        '"half of a pair: \\ud800, a mark: \\u202e"',
    ],
)
def test_json_that_is_laid_out_says_what_it_said(text: str) -> None:
    body = body_of(f"[{text}]".encode(), length_max=1000, laid_out=True)
    assert (body.kind, body.text) == ("json", "[\n  " + text.replace("\n", "\n  ") + "\n]")
    body.text.encode()


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
