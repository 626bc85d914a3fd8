"""Apache Kafka's own integration tests, unmodified from its test jars, each with a Headrace broker of its own.

The classes in `java/` come first on the class path. One of them takes the place of the class by which these tests start
Apache Kafka in their JVM; it starts `headrace serve` instead. They are compiled at run time, so a JDK is needed.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.testing import child_process
from headrace.testing.child_process import ChildProcess
from headrace.testing.java import JavaNotFound, find_java
from headrace.testing.java_sources import compiled, find_compiler
from headrace.testing.kafka_jars import KAFKA_VERSION, JarsUnavailable, kafka_jars
from tests.suites.jars import streams_jars, test_jars
from tests.suites.results import Outcome, Result, SuiteRun, read_lines

SOURCES = Path(__file__).with_name("java")
TEST_S_MAX = 90
"""How long one test may take."""
RESULTS = "results.tsv"
LOGGING = '<Configuration status="OFF"><Loggers><Root level="OFF"/></Loggers></Configuration>\n'


@dataclass(frozen=True, slots=True)
class Selection:
    """Classes of one suite; `CLASS#method` selects one method. `minutes` bounds the whole run."""

    suite: str
    tests: tuple[str, ...]
    minutes: float


def _in(package: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{package}.{name}" for name in names)


CLIENTS = "org.apache.kafka.clients"
CONSUMER = f"{CLIENTS}.consumer"
TOOLS = "org.apache.kafka.tools"
REQUESTS = "kafka.server"
SELECTIONS = (
    Selection("apache-share", _in(CONSUMER, "ShareConsumerTest"), 20),
    Selection(
        "apache-consumer",
        _in(
            CONSUMER,
            "ConsumerTopicCreationTest",
            "PlaintextConsumerAssignTest",
            "PlaintextConsumerCommitTest",
            "PlaintextConsumerFetchTest",
            "PlaintextConsumerSubscriptionTest",
        ),
        25,
    ),
    Selection(
        "apache-clients",
        _in(
            CLIENTS,
            "ClientRebootstrapTest",
            "consumer.ConsumerIntegrationTest",
            "consumer.PlaintextConsumerCallbackTest",
            "consumer.PlaintextConsumerCloseTest",
            "consumer.PlaintextConsumerPollTest",
            "consumer.PlaintextConsumerTest",
        ),
        40,
    ),
    Selection(
        "apache-requests",
        _in(
            REQUESTS,
            "ApiVersionsRequestTest",
            "ConsumerGroupDescribeRequestTest",
            "ConsumerGroupHeartbeatRequestTest",
            "ConsumerProtocolMigrationTest",
            "DeleteGroupsRequestTest",
            "DescribeGroupsRequestTest",
            "HeartbeatRequestTest",
            "JoinGroupRequestTest",
            "LeaveGroupRequestTest",
            "ListGroupsRequestTest",
            "OffsetCommitRequestTest",
            "OffsetDeleteRequestTest",
            "OffsetFetchRequestTest",
            "ShareFetchAcknowledgeRequestTest",
            "ShareGroupDescribeRequestTest",
            "ShareGroupHeartbeatRequestTest",
            "ShareGroupHeartbeatRequestTest$WithAssignmentBatchingDisabledTest",
            "SyncGroupRequestTest",
            "TxnOffsetCommitRequestTest",
            "WriteTxnMarkersRequestTest",
        ),
        40,
    ),
    Selection(
        "apache-tools",
        _in(
            TOOLS,
            "DeleteRecordsCommandTest",
            "FeatureCommandTest",
            "GetOffsetShellTest",
            "consumer.group.DeleteConsumerGroupsTest",
            "consumer.group.DeleteOffsetsConsumerGroupCommandIntegrationTest",
        ),
        20,
    ),
    Selection(
        "apache-commands",
        _in(
            TOOLS,
            "BrokerApiVersionsCommandTest",
            "ClusterToolTest",
            "ConfigCommandIntegrationTest",
            "GroupsCommandTest",
            "LeaderElectionCommandTest",
            "LogDirsCommandTest",
            "MetadataQuorumCommandTest",
            "TopicCommandTest",
            "consumer.ConsoleConsumerTest",
            "consumer.group.DescribeConsumerGroupTest",
            "consumer.group.ListConsumerGroupTest",
            "consumer.group.ResetConsumerGroupOffsetTest",
        ),
        60,
    ),
    Selection(
        "apache-producer",
        _in(
            f"{CLIENTS}.producer",
            "ProducerCompressionTest",
            "ProducerFailureHandlingTest",
            "ProducerIdExpirationTest",
            "ProducerIntegrationTest",
            "ProducerSendWhileDeletionTest",
        ),
        20,
    ),
    Selection(
        "apache-transactions",
        _in(CLIENTS, "TransactionsExpirationTest", "TransactionsWithMaxInFlightOneTest"),
        10,
    ),
    Selection(
        "apache-admin",
        _in(
            CLIENTS,
            "admin.AdminFenceProducersTest",
            "admin.AutoTopicCreationTest",
            "admin.ConcurrentListOffsetsRequestTest",
            "admin.DeleteTopicTest",
            "admin.DescribeAuthorizedOperationsTest",
            "admin.DescribeFeaturesTest",
            "admin.DescribeProducersWithBrokerIdTest",
            "admin.DynamicGroupConfigIntegrationTest",
            "admin.ListOffsetsIntegrationTest",
            "admin.StaticBrokerConfigTest",
            "security.GroupAuthorizerIntegrationTest",
        ),
        30,
    ),
    Selection(
        "apache-security",
        (
            *_in(TOOLS, "AclCommandTest", "UserScramCredentialsCommandTest"),
            *_in(TOOLS, "consumer.group.AuthorizerIntegrationTest"),
            *_in(CONSUMER, "SaslPlainPlaintextConsumerTest"),
        ),
        20,
    ),
)


def why_not() -> str | None:
    """Why these tests cannot run on this machine."""
    try:
        find_compiler()
        kafka_jars()
        test_jars()
        streams_jars()
    except (JavaNotFound, JarsUnavailable) as error:
        return str(error)
    return None


def run(selection: Selection) -> SuiteRun:
    """Runs the tests. If they do not end in time, that is one more failure."""
    version = f"Apache Kafka {KAFKA_VERSION}"
    reason = why_not()
    if reason is not None:
        return SuiteRun(selection.suite, version, left_out=reason)
    with tempfile.TemporaryDirectory(prefix="suites-") as name:
        folder = Path(name)
        (folder / "tmp").mkdir()
        command = _command(folder, selection.tests)
        jvm = ChildProcess(command, output=folder / "output.txt", env=_environment())
        late: list[Result] = []
        try:
            jvm.wait(selection.minutes * 60)
        except subprocess.TimeoutExpired:
            reason = f"did not end within {selection.minutes:g} minutes"
            late = [Result(selection.suite, "the rest", Outcome.FAILED, selection.minutes * 60, reason)]
        finally:
            jvm.stop()
        results = read_lines(folder / RESULTS) + late
        if not results:
            raise RuntimeError(f"JUnit ran no test: {jvm.output_tail()}")
        return SuiteRun(selection.suite, version, tuple(results))


def _environment() -> dict[str, str]:
    guarded = [
        sys.executable,
        "-S",
        "-E",
        child_process.__file__,
        "1",
        sys.executable,
        "-m",
        "headrace",
        "serve",
    ]
    return {"HEADRACE_SUITE_COMMAND": "\n".join(guarded), "PATH": os.environ["PATH"]}


def _command(folder: Path, tests: Sequence[str]) -> list[str | Path]:
    (folder / "log4j2.xml").write_text(LOGGING)
    command: list[str | Path] = [
        find_java().executable,
        "-Xmx1g",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}",
        f"-Dheadrace.suite.results={folder / RESULTS}",
        f"-Djunit.jupiter.execution.timeout.default={TEST_S_MAX} s",
        "-cp",
        os.pathsep.join(
            # JUnit finds no test in a class with a method that returns what is missing (GroupsCommandTest).
            [
                str(_classes()),
                str(SOURCES),
                *(f"{jars}/*" for jars in (test_jars(), kafka_jars(), streams_jars()[0])),
            ]
        ),
        "org.junit.platform.console.ConsoleLauncher",
        "execute",
        "--disable-banner",
        "--details=none",
    ]
    for test in tests:
        command += ["--select-method" if "#" in test else "--select-class", test]
    return command


def _classes() -> Path:
    """The compiled shim."""
    jars = [f"{test_jars()}/*", f"{kafka_jars()}/*"]
    return compiled("suites-shim", sorted(SOURCES.rglob("*.java")), jars)
