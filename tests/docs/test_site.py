"""The documentation site builds without a warning, holds every page, and asks no other host for anything."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import REPOSITORY

pytestmark = pytest.mark.needs_docs
WAIT_S = 100


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in the repository."""
    folder = tmp_path_factory.mktemp("site")
    shutil.copy(REPOSITORY / "mkdocs.yml", folder)
    shutil.copytree(REPOSITORY / "docs", folder / "docs")
    ran = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    said = re.sub(r"\x1b\[[0-9;]*m", "", ran.stdout + ran.stderr)
    assert ran.returncode == 0, said
    assert "Warning" not in said, said
    return folder / "build" / "site"


def pages_in(entry: Any) -> list[str]:
    if isinstance(entry, str):
        return [entry]
    entries = entry.values() if isinstance(entry, dict) else entry
    return [page for each in entries for page in pages_in(each)]


def test_every_page_is_in_the_navigation() -> None:
    navigation = yaml.safe_load((REPOSITORY / "mkdocs.yml").read_text())["nav"]
    pages = {path.relative_to(REPOSITORY / "docs").as_posix() for path in (REPOSITORY / "docs").rglob("*.md")}
    assert sorted(pages_in(navigation)) == sorted(pages), "add the page to `nav` in mkdocs.yml"


def test_every_page_is_built(site: Path) -> None:
    for path in (REPOSITORY / "docs").rglob("*.md"):
        assert (site / path.relative_to(REPOSITORY / "docs").with_suffix(".html")).is_file()


class Loaded(HTMLParser):
    """Addresses that a browser fetches by itself when it shows the page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag in ("script", "img", "iframe", "source", "video"):
            self.addresses.append(given.get("src") or "")
        elif tag == "link" and given.get("rel") != "canonical":
            self.addresses.append(given.get("href") or "")


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    for path in site.rglob("*.html"):
        loaded = Loaded()
        loaded.feed(path.read_text())
        assert [each for each in loaded.addresses if re.match(r"(https?:)?//", each)] == [], path.name
    for path in (site / "stylesheets").rglob("*.css"):
        assert "http" not in path.read_text()


def test_no_diagram_needs_a_script_from_another_host(site: Path) -> None:
    """The site's script would fetch Mermaid; so diagrams are pictures, and Mermaid's text is shown as text."""
    for path in site.rglob("*.html"):
        assert 'class="mermaid"' not in path.read_text(), path.name
