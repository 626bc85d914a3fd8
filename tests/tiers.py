"""Which tests `make test` leaves to `make verify`: those that `verify.txt` names have the marker `verify`.

A line of that file is a folder, a file, a test or a test with its parameters, as pytest writes them; `*` stands for
anything. A line that names no test is an error, so the list cannot outlive what it names.
"""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

LIST = Path(__file__).with_name("verify.txt")


def patterns() -> list[str]:
    lines = (line.strip() for line in LIST.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def mark(items: Iterable[pytest.Item], *, is_whole: bool) -> None:
    """`is_whole`: these are all tests of their folders."""
    items = list(items)
    anything = re.compile("|".join(rule(pattern).pattern for pattern in patterns()))
    for item in items:
        if anything.match(item.nodeid):
            item.add_marker(pytest.mark.verify)
    stale = unused(item.nodeid for item in items) if is_whole else []
    if stale:
        raise pytest.UsageError(f"{LIST.name} names tests that do not exist: {', '.join(stale)}")


def unused(ids: Iterable[str]) -> list[str]:
    """The lines that name none of these tests although they are about their files."""
    found = list(ids)
    files = {one.partition("::")[0] for one in found}
    return [
        pattern
        for pattern in patterns()
        if _is_about(pattern, files) and not any(map(rule(pattern).match, found))
    ]


def _is_about(pattern: str, files: set[str]) -> bool:
    where = pattern.partition("*")[0].partition("::")[0]
    return any(file.startswith(where) for file in files)


def rule(pattern: str) -> re.Pattern[str]:
    """Matches what it names, and what is inside it."""
    text = ".*".join(map(re.escape, pattern.split("*")))
    return re.compile(rf"(?:{text})(?=$|/|::|\[)")
