"""Every statement of the page on Spark's guarantees names a test that shows it, and that test exists."""

import re
from pathlib import Path

import pytest

from headrace.spark.group_watch import OFFSET_POLLS_PER_STATE_READ, POLL_S
from tests.docs.pages import REPOSITORY

PAGE = REPOSITORY / "docs" / "concepts" / "spark-guarantees.md"
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
FOOTNOTES = dict(re.findall(r"^(\[\^\d+\]): (.+)$", PAGE.read_text(), re.MULTILINE))
STATEMENTS = [
    line
    for line in PAGE.read_text().splitlines()
    if line.startswith("| ") and not line.rstrip().endswith("shown by |")
]


@pytest.mark.parametrize("statement", STATEMENTS, ids=lambda line: line.strip("| ")[:40])
def test_a_statement_names_tests_that_exist(statement: str) -> None:
    shown_by = FOOTNOTES[statement.rstrip("| ").rpartition("|")[2].strip()]
    named = TEST.findall(shown_by)
    assert named, "no test is named"
    assert len(named) == shown_by.count("::"), "a test is not written as `tests/file.py::name`"
    for path, name in named:
        source = Path(REPOSITORY / path).read_text()
        assert re.search(rf"^(def {name}\(|{name} = )", source, re.MULTILINE), f"{path} has no {name}"


def test_statements_are_found_at_all() -> None:
    assert len(STATEMENTS) > 30


def test_every_footnote_belongs_to_a_statement() -> None:
    assert [statement.rstrip("| ").rpartition("|")[2].strip() for statement in STATEMENTS] == list(FOOTNOTES)


def test_the_page_has_the_times_of_the_code() -> None:
    text = PAGE.read_text()
    assert f"every {POLL_S:g} seconds" in text
    assert f"every {POLL_S * OFFSET_POLLS_PER_STATE_READ:g} seconds" in text
