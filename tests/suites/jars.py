"""Apache Kafka's own tests and what they need, in the per-user cache, fetched by Ivy as the broker's jars are."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from headrace.testing.kafka_jars import KAFKA_VERSION, fetch_by_ivy
from headrace.testing.user_cache import filled


class Module(NamedTuple):
    """A jar, alone unless it `brings` what it depends on."""

    organization: str
    name: str
    version: str
    classifier: str = ""
    brings: bool = False


KAFKA = "org.apache.kafka"
TESTED = (
    "kafka-clients",
    "kafka-clients-integration-tests",
    "kafka-group-coordinator",
    "kafka-metadata",
    "kafka-raft",
    "kafka-server",
    "kafka-server-common",
    "kafka-storage",
    "kafka-tools",
    "kafka_2.13",
)
TEST_JARS: tuple[Module, ...] = (
    *(Module(KAFKA, name, KAFKA_VERSION, "test") for name in TESTED),
    Module(KAFKA, "kafka-test-common-internal-api", KAFKA_VERSION),
    Module(KAFKA, "kafka-test-common-runtime", KAFKA_VERSION),
    Module(KAFKA, "kafka-test-common-util", KAFKA_VERSION),
    Module("org.junit.platform", "junit-platform-console-standalone", "1.13.1"),
    Module("org.mockito", "mockito-core", "5.20.0"),
    Module("org.mockito", "mockito-junit-jupiter", "5.20.0"),
    Module("net.bytebuddy", "byte-buddy", "1.17.7"),
    Module("net.bytebuddy", "byte-buddy-agent", "1.17.7"),
    Module("org.objenesis", "objenesis", "3.4"),
    Module("org.hamcrest", "hamcrest", "3.0"),
    Module("org.bouncycastle", "bcpkix-jdk18on", "1.81"),
    Module("org.bouncycastle", "bcprov-jdk18on", "1.81"),
    Module("org.bouncycastle", "bcutil-jdk18on", "1.81"),
)
LOGGING = Module("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4", brings=True)
CONNECT_JARS = (
    Module(KAFKA, "connect-mirror", KAFKA_VERSION, brings=True),
    LOGGING,
)
STREAMS_JARS = (Module(KAFKA, "kafka-streams", KAFKA_VERSION, brings=True),)
STREAMS_TEST_JARS = (
    Module(KAFKA, "kafka-streams", KAFKA_VERSION, "test"),
    Module(KAFKA, "kafka-clients", KAFKA_VERSION, "test"),
)
"""In a folder of their own: Ivy takes one jar of a module."""
TROGDOR_JARS = (Module(KAFKA, "trogdor", KAFKA_VERSION, brings=True), LOGGING)


def test_jars() -> Path:
    """The folder with Apache Kafka's tests, 20 MB. Takes a minute the first time; raises JarsUnavailable."""
    return jars(f"kafka-{KAFKA_VERSION}-tests", TEST_JARS)


def connect_jars() -> Path:
    """The folder with Kafka Connect and MirrorMaker 2, 40 MB; raises JarsUnavailable."""
    return jars(f"kafka-connect-{KAFKA_VERSION}", CONNECT_JARS)


def streams_jars() -> list[Path]:
    """The folders with Kafka Streams and its system tests, 80 MB; raises JarsUnavailable."""
    name = f"kafka-streams-{KAFKA_VERSION}"
    return [jars(name, STREAMS_JARS), jars(f"{name}-tests", STREAMS_TEST_JARS)]


def trogdor_jars() -> Path:
    """The folder with Trogdor; raises JarsUnavailable."""
    return jars(f"trogdor-{KAFKA_VERSION}", TROGDOR_JARS)


def jars(name: str, modules: Iterable[Module]) -> Path:
    """The cache's folder of that name with exactly these jars."""
    text = ivy_module(name, modules)
    return filled(
        name,
        is_current=lambda folder: (folder / "ivy.xml").is_file() and (folder / "ivy.xml").read_text() == text,
        fill=lambda folder: fetch_by_ivy(folder, text),
    )


def ivy_module(name: str, modules: Iterable[Module]) -> str:
    lines = [
        '<ivy-module version="2.0" xmlns:m="ivy:maven">',
        f'  <info organisation="headrace" module="{name}"/>',
        '  <configurations><conf name="run"/></configurations>',
        '  <dependencies defaultconf="run->default">',
    ]
    for one in modules:
        name = f'org="{one.organization}" name="{one.name}" rev="{one.version}"'
        classifier = f' m:classifier="{one.classifier}"' if one.classifier else ""
        lines += [
            f'    <dependency {name} transitive="{str(one.brings).lower()}">',
            f'      <artifact name="{one.name}" type="jar" ext="jar"{classifier}/>',
            "    </dependency>",
        ]
    return "\n".join([*lines, "  </dependencies>", "</ivy-module>", ""])
