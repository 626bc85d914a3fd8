"""Settings from outside: properties files (`--config server.properties`), KEY=VALUE words, keyword arguments."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def read_properties(path: Path) -> dict[str, str]:
    """The settings of a properties file; OSError when it cannot be read."""
    return parse_properties(path.read_text(encoding="utf-8", errors="surrogateescape"))


def parse_properties(text: str) -> dict[str, str]:
    """Java's rules: `#` and `!` begin comments; `=`, `:` or blank ends a key; a backslash joins lines."""
    values: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        if key:
            values[_unescape(key)] = _unescape(value).strip()
    return values


def parse_assignments(words: Iterable[str]) -> dict[str, str]:
    """`--set KEY=VALUE` words; ValueError for one without an equals sign."""
    values = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise ValueError(f"expected KEY=VALUE, got {word!r}")
        values[key.strip()] = value.strip()
    return values


def from_keywords(keywords: Mapping[str, object]) -> dict[str, str]:
    """Keyword arguments with underscores, or a dict of Kafka's names: num_partitions=3 is num.partitions."""
    values = {}
    for key, value in keywords.items():
        if isinstance(value, bool):
            text = "true" if value else "false"
        elif isinstance(value, (list, tuple, set, frozenset)):
            text = ",".join(str(item) for item in value)
        else:
            text = str(value)
        values[key.replace("_", ".")] = text
    return values


def _logical_lines(text: str) -> Iterable[str]:
    joined = ""
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip(" \t\f")
        if not joined and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            joined += line[:-1]
            continue
        yield joined + line
        joined = ""
    if joined:
        yield joined


def _split(line: str) -> tuple[str, str]:
    is_escaped = False
    for index, character in enumerate(line):
        if is_escaped:
            is_escaped = False
        elif character == "\\":
            is_escaped = True
        elif character in "=: \t\f":
            rest = line[index:].lstrip(" \t\f")
            if rest[:1] in ("=", ":"):
                rest = rest[1:].lstrip(" \t\f")
            return line[:index], rest
    return line, ""


def _unescape(text: str) -> str:
    def replaced(match: re.Match[str]) -> str:
        code, character = match.groups()
        return chr(int(code, 16)) if code else _ESCAPES.get(character, character)

    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|(.))", replaced, text, flags=re.DOTALL)
