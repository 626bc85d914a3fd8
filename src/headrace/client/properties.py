"""Reads Java's properties files, the form in which client settings are given to Kafka's tools."""

from pathlib import Path

from headrace.base.properties import parse_properties
from headrace.client.errors import ConfigError


def read_properties(path: Path) -> dict[str, str]:
    """The settings of a properties file. ConfigError when it cannot be read."""
    try:
        return parse_properties(path.read_bytes().decode())
    except (OSError, ValueError) as error:
        raise ConfigError(f"the settings file {str(path)!r} cannot be read: {error}") from None
