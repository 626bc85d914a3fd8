"""The generated parts of docs/ are what `make docs` would write now."""

import runpy
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[3]
GENERATOR = runpy.run_path(str(REPOSITORY / "tools" / "generate_docs.py"))


@pytest.mark.parametrize("page", GENERATOR["PARTS"])
def test_a_page_is_current(page: str) -> None:
    assert (REPOSITORY / page).read_text() == GENERATOR["render"](page), "run make docs"


def test_every_api_says_what_it_does() -> None:
    for row in GENERATOR["api_table"]().splitlines()[2:]:
        assert row.split("|")[4].strip(), f"no purpose in {row}"
