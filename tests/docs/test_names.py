"""Settings and files of the repository that the pages name exist."""

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from headrace.broker.settings import BY_NAME
from headrace.client.settings import ShareSettings
from headrace.client.settings_refused import NO_EFFECT, REFUSED, REFUSED_FOR_SHARE_GROUPS
from tests.docs.pages import REPOSITORY

PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
CODE = re.compile(r"`([^`\n]+)`")
SETTING = re.compile(
    r"^((?:group\.)?share\.[a-z.]+|errors\.deadletterqueue\.[a-z.]+|headrace\.share\.[a-z.]+)(?:=.*)?$"
)
FILE = re.compile(r"^(?:src|tests|tools|deploy|docs|examples|bench)/[\w./*-]*$")
FEATURES = {"share.version"}


def known_settings() -> set[str]:
    broker = {name for settings in BY_NAME.values() for name in settings}
    client = {each.name.replace("_", ".") for each in fields(ShareSettings)}
    return broker | client | set(REFUSED_FOR_SHARE_GROUPS) | set(REFUSED) | set(NO_EFFECT) | FEATURES


def spans(page: Path) -> Iterator[str]:
    """What stands between backticks in the prose and the tables."""
    return (found[1] for found in CODE.finditer(page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_settings_exist(page: Path) -> None:
    known = known_settings()
    named = {found[1] for span in spans(page) if (found := SETTING.match(span))}
    assert sorted(name for name in named if name.rstrip(".") not in known) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_exist(page: Path) -> None:
    named = {span for span in spans(page) if FILE.match(span)}
    assert sorted(name for name in named if not list(REPOSITORY.glob(name.rstrip("/") or name))) == []


def test_names_are_found_at_all() -> None:
    page = REPOSITORY / "docs" / "how-to" / "grow-to-a-cluster.md"
    assert "group.share.max.size" in {found[1] for span in spans(page) if (found := SETTING.match(span))}
    assert "deploy/app/orders_pipeline.py" in {span for span in spans(page) if FILE.match(span)}
