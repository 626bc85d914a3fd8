"""Settings from outside: properties files (`--config server.properties`), KEY=VALUE words, keyword arguments."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.base.properties import parse_properties


def read_properties(path: Path) -> dict[str, str]:
    """The settings of a properties file; OSError or ValueError when it cannot be read."""
    return parse_properties(path.read_bytes().decode(errors="surrogateescape"))


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
        values[key if "." in key else key.replace("_", ".")] = text
    return values
