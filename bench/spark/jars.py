"""Spark's own Kafka source: four jars in the per-user cache, fetched by Ivy as Apache Kafka's are.

The set is not an official one. The connector's newest release that can be had is 4.2.0, and the token provider that it
asks for in its own version cannot: 4.1.0-preview1 stands in for it. Reading works with it, on Spark 4.3 too.
"""

from pathlib import Path

from headrace.testing.kafka_jars import fetch_by_ivy
from headrace.testing.user_cache import filled

CONNECTOR = "4.2.0"
JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", CONNECTOR),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1"),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)
_DEPENDENCIES = "\n".join(
    f'    <dependency org="{org}" name="{name}" rev="{version}" transitive="false"/>'
    for org, name, version in JARS
)
MODULES = f"""\
<ivy-module version="2.0">
  <info organisation="headrace" module="spark-kafka"/>
  <configurations><conf name="run"/></configurations>
  <dependencies defaultconf="run->default">
{_DEPENDENCIES}
  </dependencies>
</ivy-module>
"""


def connector_jars() -> list[Path]:
    """The jars; raises JarsUnavailable of headrace.testing.kafka_jars."""
    folder = filled(f"spark-kafka-{CONNECTOR}", is_current=_is_current, fill=_fetch)
    return [folder / f"{name}-{version}.jar" for _, name, version in JARS]


def _is_current(folder: Path) -> bool:
    modules = folder / "ivy.xml"
    return modules.is_file() and modules.read_text() == MODULES


def _fetch(folder: Path) -> None:
    fetch_by_ivy(folder, MODULES)
