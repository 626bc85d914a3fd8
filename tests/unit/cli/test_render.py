"""Tables are plain columns, JSON has what a machine needs, colors are for terminals alone."""

import io
import json
from dataclasses import dataclass
from enum import Enum, IntEnum

import pytest

from headrace.cli.render import count, plain, print_json, print_table, progress, styled


class Kind(IntEnum):
    BIG = 1


class Word(Enum):
    YES = "yes"


@dataclass(frozen=True, slots=True)
class Thing:
    name: str
    kind: Kind
    word: Word
    parts: tuple[int, ...]


def test_columns_are_as_wide_as_their_widest_cell_and_lines_end_without_blanks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(("GROUP", "LAG"), [("kitchen", 12), ("x", None), ("y", "")])
    assert capsys.readouterr().out == "GROUP    LAG\nkitchen  12\nx        -\ny        -\n"


def test_a_table_without_rows_is_its_headers(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("GROUP", "LAG"), [])
    assert capsys.readouterr().out == "GROUP  LAG\n"


def test_json_turns_dataclasses_enums_and_answers_by_place_into_plain_values(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_json({"things": {("orders", 0): Thing("é", Kind.BIG, Word.YES, (1, 2))}, "by name": {"a": b"\x01"}})
    assert json.loads(capsys.readouterr().out) == {
        "things": [{"name": "é", "kind": "big", "word": "yes", "parts": [1, 2]}],
        "by name": {"a": "01"},
    }


def test_a_named_tuple_is_an_object() -> None:
    from headrace.client.delivery import TopicPartition

    assert plain([TopicPartition("orders", 1)]) == [{"topic": "orders", "partition": 1}]


def test_no_color_leaves_the_text_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert styled("x", bold=True) != "x"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("x", bold=True) == "x"


def test_counts_are_words() -> None:
    assert [count(0, "record"), count(1, "record"), count(1_200, "record")] == [
        "0 records",
        "1 record",
        "1,200 records",
    ]


def test_no_bar_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("to orders", 10) as advance:
        advance(10)
    assert capsys.readouterr() == ("", "")


def test_a_bar_is_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    with progress("to orders", 1000) as advance:
        for _ in range(1000):
            advance(1)
    assert "to orders" in shown.getvalue()
    assert "1000/1000" in shown.getvalue()
