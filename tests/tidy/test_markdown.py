"""Lines of Markdown break between sentences, never inside one: a changed word changes one line."""

import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.tidy.tree import name_of, text_files

COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FENCE = re.compile(r"\s*(?:```|~~~)")
BLOCK = re.compile(r"\s*(?:$|#|>|\||[-*+] |\d+\. |<|!!!|\?\?\?|\[\^?\w+\]:|---|===)")
"""What begins a block of its own, or is no text."""
END = re.compile(r"[.!?:;][)*_`\"\]]*(?:\([^)]*\))?(?:<br>|\\|  )?$|</\w+>$")
"""The end of a sentence, or of a part of one before a list. A link may follow it."""


def wrapped(text: str) -> Iterator[int]:
    """The lines (from 1) that a sentence continues on."""
    is_code = False
    lines: list[tuple[str, bool]] = []
    for line in COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text).splitlines():
        if FENCE.match(line):
            is_code = not is_code
        lines.append((line, is_code or FENCE.match(line) is not None))
    for number, ((before, is_before_code), (line, is_line_code)) in enumerate(pairwise(lines), 2):
        if is_before_code or is_line_code or BLOCK.match(line) or _ends(before):
            continue
        yield number


def _ends(line: str) -> bool:
    text = line.rstrip("\n")
    is_text = text.strip() and not re.match(r"\s*(?:#|\||<|---|===)", text)
    return not is_text or END.search(text) is not None or text.startswith("    ")


def test_no_line_of_markdown_ends_inside_a_sentence() -> None:
    pages = [path for path in text_files() if path.suffix == ".md"]
    assert len(pages) > 50
    found = {name_of(path): [*wrapped(path.read_text())] for path in pages}
    assert {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    "text", ["A sentence that\ngoes on.", "- a list\n  that goes on", "1. It is\n   wrapped."]
)
def test_a_sentence_over_two_lines_is_found(text: str) -> None:
    assert [*wrapped(text)] == [2]


@pytest.mark.parametrize(
    "text",
    [
        "One sentence.\nAnother one.",
        "# A title\nText",
        "```\nit goes\non\n```",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "- one\n- two",
        "Text\n\nText",
        "<!--\nx = 1\ny = 2\n-->",
    ],
)
def test_whole_sentences_and_other_blocks_are_good(text: str) -> None:
    assert [*wrapped(text)] == []
