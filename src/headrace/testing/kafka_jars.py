"""Apache Kafka's jars in the per-user cache, fetched by Ivy, whose own jar is inside PySpark.

To use another registry than Ivy's default, set HEADRACE_IVY_SETTINGS to an Ivy settings file.
"""

import importlib.util
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from headrace.testing.java import JavaNotFound, find_java
from headrace.testing.user_cache import filled

KAFKA_VERSION = "4.3.1"
DEFINITIONS_VERSION = "4.4.0"
"""The newest release whose message definitions are published (the jar of its clients)."""
FETCH_TIMEOUT_S = 900
# kafka-tools wants Connect's runtime for one tool that we do not run; it would double the download.
MODULES = f"""\
<ivy-module version="2.0">
  <info organisation="headrace" module="apache-kafka"/>
  <configurations><conf name="run"/></configurations>
  <dependencies defaultconf="run->default">
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="2.25.4"/>
    <exclude org="org.apache.kafka" module="connect-runtime"/>
  </dependencies>
</ivy-module>
"""

DEFINITIONS = f"""\
<ivy-module version="2.0">
  <info organisation="headrace" module="kafka-definitions"/>
  <configurations><conf name="run"/></configurations>
  <dependencies defaultconf="run->default">
    <dependency org="org.apache.kafka" name="kafka-clients" rev="{DEFINITIONS_VERSION}" transitive="false"/>
  </dependencies>
</ivy-module>
"""


class JarsUnavailable(Exception):
    """Apache Kafka's jars are not in the cache and could not be fetched; `make kafka-jars` tries again."""


def kafka_jars() -> Path:
    """The folder with Apache Kafka's jars. Takes a minute the first time; raises JarsUnavailable."""
    return filled(f"kafka-{KAFKA_VERSION}", is_current=partial(_is_current, MODULES), fill=_fetch)


def definitions_jar() -> Path:
    """The jar with the newest message definitions; raises JarsUnavailable."""
    folder = filled(
        f"kafka-definitions-{DEFINITIONS_VERSION}",
        is_current=partial(_is_current, DEFINITIONS),
        fill=partial(fetch_by_ivy, modules=DEFINITIONS),
    )
    return folder / f"kafka-clients-{DEFINITIONS_VERSION}.jar"


def _is_current(modules: str, folder: Path) -> bool:
    kept = folder / "ivy.xml"
    return kept.is_file() and kept.read_text() == modules


def _fetch(folder: Path) -> None:
    print(f"fetching Apache Kafka {KAFKA_VERSION} (45 MB, once per user)", file=sys.stderr)
    fetch_by_ivy(folder, MODULES)
    if not (folder / f"kafka_2.13-{KAFKA_VERSION}.jar").is_file():
        raise JarsUnavailable("Ivy did not fetch Kafka's own jar")


def fetch_by_ivy(folder: Path, modules: str) -> None:
    """Puts the jars that an Ivy module file names, and the file itself, into a folder; JarsUnavailable."""
    (folder / "ivy.xml").write_text(modules)
    try:
        java = find_java().executable
    except JavaNotFound as error:
        raise JarsUnavailable(f"Ivy needs Java: {error}") from error
    scratch = folder.parent / "ivy"
    pattern = folder / "[artifact]-[revision](-[classifier]).[ext]"
    command: list[str | Path] = [
        java,
        "-jar",
        _ivy_jar(),
        "-warn",
        "-ivy",
        folder / "ivy.xml",
        "-cache",
        scratch,
    ]
    command += ["-confs", "run", "-types", "jar", "bundle", "-retrieve", pattern]
    if os.environ.get("HEADRACE_IVY_SETTINGS"):
        command += ["-settings", os.environ["HEADRACE_IVY_SETTINGS"]]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise JarsUnavailable(f"Ivy did not finish within {FETCH_TIMEOUT_S} s") from None
    if answer.returncode != 0:
        complaints = [
            line.strip() for line in answer.stdout.splitlines() if "error" in line or "not found" in line
        ]
        raise JarsUnavailable(
            f"Ivy could not fetch the jars: {complaints[0] if complaints else answer.stdout}"
        )


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    if pyspark is None or pyspark.origin is None:
        raise JarsUnavailable("PySpark, which brings Ivy, is not installed")
    found = sorted((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar"))
    if not found:
        raise JarsUnavailable(f"no Ivy jar in {Path(pyspark.origin).parent / 'jars'}")
    return found[-1]
