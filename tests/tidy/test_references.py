"""A document that a file refers to is in the repository, and so is each scenario of share groups that a test cites."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import REPOSITORY, name_of, text_files

DOCUMENT = re.compile(r"(?<![\w./*{-])[\w./-]*\w\.md\b")
NUMBERED = re.compile(r"\b(?:semantics,? (?:section )?|design decision |sections? )\d[\d.]*", re.IGNORECASE)
"""A passage of a document that is named by its number only. Standards are an exception: their numbers do not change."""

SCENARIO = re.compile(r"\bscenarios? (\d+)(?: (to|and) (\d+))?", re.IGNORECASE)
RULES = REPOSITORY / "docs" / "concepts" / "share-semantics.md"
PAGES = {path.name for path in text_files() if path.suffix == ".md"}
INVENTED = {"page.md"}
"""Names that tests give to files they write themselves."""


def foreign_references(text: str, folder: Path) -> Iterator[str]:
    for line in text.splitlines():
        for name in (found.lstrip("/") for found in DOCUMENT.findall(line)):
            roots = (REPOSITORY, REPOSITORY / "docs", folder)
            if name not in PAGES | INVENTED and not any((root / name).is_file() for root in roots):
                yield name
        if "RFC" not in line:
            yield from NUMBERED.findall(line)


def scenarios_in(text: str) -> set[int]:
    cited: set[int] = set()
    for first, word, last in SCENARIO.findall(text):
        cited |= set(range(int(first), int(last) + 1)) if word == "to" else {int(first), int(last or first)}
    return cited


def test_no_file_refers_to_a_document_outside_the_repository() -> None:
    found = {
        name_of(path): sorted(set(foreign_references(path.read_text(), path.parent)))
        for path in text_files()
        if path != Path(__file__)
    }
    assert {name: foreign for name, foreign in found.items() if foreign} == {}, (
        "say it here, or refer to a page in docs/"
    )


@pytest.mark.parametrize(
    "line",
    [
        "see no-such-page.md",
        "(design decision 3)",
        "Section 2.3: when",
        "docs/how-to/no-such-page.md",
        "/tmp/notes.md",
    ],
)
def test_a_reference_to_a_document_outside_is_found(line: str) -> None:
    assert list(foreign_references(line, REPOSITORY)) != []


@pytest.mark.parametrize(
    "line", ["see docs/concepts/log.md", "RFC 7677, section 3", "[log](../concepts/log.md)"]
)
def test_a_reference_within_the_repository_is_good(line: str) -> None:
    assert list(foreign_references(line, REPOSITORY / "docs" / "how-to")) == []


def test_every_scenario_that_a_test_cites_is_in_the_page_and_every_one_in_the_page_is_tested() -> None:
    page = RULES.read_text()
    listed = {
        int(number) for number in re.findall(r"^(\d+)\. ", page.partition("## Scenarios")[2], re.MULTILINE)
    }
    folders = [
        REPOSITORY / "tests" / name for name in ("unit/share", "conformance/share", "conformance/client")
    ]
    cited: set[int] = set()
    for folder in folders:
        for path in folder.rglob("*.py"):
            cited |= scenarios_in(path.read_text())
    assert cited == listed
