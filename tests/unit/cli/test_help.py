"""`--help` in a terminal of 80 columns: nothing is cut, broken in the middle of a word, or taken for markup."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from rich.markup import render
from typer.main import get_command
from typer.testing import CliRunner

from headrace.cli.app import app


def commands(command: Any, words: Sequence[str] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield tuple(words), command
    for name, sub in getattr(command, "commands", {}).items():
        yield from commands(sub, (*words, name))


COMMANDS = dict(commands(get_command(app)))
NAMES = pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words) or "headrace")


def shown(words: Sequence[str]) -> str:
    terminal = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}
    return CliRunner(env=terminal).invoke(app, [*words, "--help"]).stdout


@NAMES
def test_no_line_is_wider_than_the_terminal_and_none_is_cut(words: tuple[str, ...]) -> None:
    text = shown(words)
    assert [line for line in text.splitlines() if len(line.rstrip()) > 80] == []
    assert "…" not in text


@NAMES
def test_every_example_is_on_one_line(words: tuple[str, ...]) -> None:
    _, *examples = (COMMANDS[words].help or "").split("\b\n")
    lines = [line.strip() for line in shown(words).splitlines()]
    for example in "\n".join(examples).splitlines():
        if example.strip():
            assert example.strip() in lines


@NAMES
def test_choices_are_not_broken_in_the_middle_of_a_word(words: tuple[str, ...]) -> None:
    for line in shown(words).splitlines():
        assert line.count("<") == line.count(">") or "|" not in line.partition("<")[2]


@NAMES
def test_every_option_says_what_its_value_is(words: tuple[str, ...]) -> None:
    for option in COMMANDS[words].params:
        if option.param_type_name == "option" and not option.is_flag:
            assert option.metavar, f"{option.opts} would show the type of a Python parameter"


@NAMES
def test_nothing_in_a_help_text_is_taken_for_markup(words: tuple[str, ...]) -> None:
    for option in COMMANDS[words].params:
        text = getattr(option, "help", None) or ""
        assert render(text).plain == text.replace("\\[", "[")


def test_the_user_to_add_is_shown_with_name_and_password() -> None:
    assert "[name=ann,password=pw]" in "".join(shown(["serve"]).replace("│", " ").split())
