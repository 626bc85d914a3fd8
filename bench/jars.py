"""Jars of a contender: in the per-user cache, fetched by Ivy as Apache Kafka's are, each named with its version."""

from collections.abc import Sequence
from pathlib import Path

from headrace.testing.kafka_jars import fetch_by_ivy
from headrace.testing.user_cache import filled

Jar = tuple[str, str, str]
"""Organization, name and version."""


def cached_jars(name: str, version: str, jars: Sequence[Jar]) -> list[Path]:
    """These jars and no others; raises JarsUnavailable of headrace.testing.kafka_jars."""
    modules = _modules(name, jars)

    def is_current(folder: Path) -> bool:
        kept = folder / "ivy.xml"
        return kept.is_file() and kept.read_text() == modules

    folder = filled(
        f"{name}-{version}", is_current=is_current, fill=lambda folder: fetch_by_ivy(folder, modules)
    )
    return [folder / f"{name}-{version}.jar" for _, name, version in jars]


def _modules(name: str, jars: Sequence[Jar]) -> str:
    dependencies = "\n".join(
        f'    <dependency org="{org}" name="{jar}" rev="{version}" transitive="false"/>'
        for org, jar, version in jars
    )
    return f"""\
<ivy-module version="2.0">
  <info organisation="headrace" module="{name}"/>
  <configurations><conf name="run"/></configurations>
  <dependencies defaultconf="run->default">
{dependencies}
  </dependencies>
</ivy-module>
"""
