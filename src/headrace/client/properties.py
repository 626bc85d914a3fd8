"""Reads Java's properties files, the form in which client settings are handed to Kafka's tools."""

import re
from collections.abc import Iterator
from pathlib import Path

from headrace.client.errors import ConfigError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY_AND_VALUE = re.compile(r"((?:\\.|[^=:\s\\])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)


def read_properties(path: Path) -> dict[str, str]:
    """The settings of a properties file. ConfigError when it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the settings file {str(path)!r} cannot be read: {error}") from None
    settings = {}
    for line in _logical_lines(text):
        found = _KEY_AND_VALUE.match(line)
        assert found is not None  # every part of the pattern may be empty
        settings[_unescape(found[1])] = _unescape(found[2]).strip()
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    """Lines without comments and blank ones; a backslash at the end of a line joins the next one to it."""
    joined = ""
    for raw in text.splitlines():
        line = raw.lstrip()
        if not joined and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
        else:
            yield joined + line
            joined = ""
    if joined:
        yield joined


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replaced, text, flags=re.DOTALL)
