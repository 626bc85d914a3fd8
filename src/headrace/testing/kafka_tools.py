"""Apache Kafka's command-line tools by the names of their scripts, run from the jars in the per-user cache.

    tools = KafkaTools(bootstrap_servers)
    tools.run("kafka-topics", "--list").lines

A tool that fails raises `ToolFailed` with its output.
"""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.testing.class_archive import archive_options, class_path
from headrace.testing.java import find_java
from headrace.testing.user_cache import filled

TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-consumer-perf-test": "org.apache.kafka.tools.ShareConsumerPerformance",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-storage": "kafka.tools.StorageTool",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
    "kafka-verifiable-share-consumer": "org.apache.kafka.tools.VerifiableShareConsumer",
}
WITHOUT_SERVER = frozenset({"kafka-dump-log", "kafka-storage"})
SUBCOMMAND_FIRST = frozenset({"kafka-cluster"})
LOGGING = """\
<Configuration status="ERROR">
  <Appenders>
    <Console name="stderr" target="SYSTEM_ERR"><PatternLayout pattern="[%d] %p %m (%c)%n"/></Console>
  </Appenders>
  <Loggers><Root level="{level}"><AppenderRef ref="stderr"/></Root></Loggers>
</Configuration>
"""


class ToolFailed(Exception):
    """A tool exited with a status other than 0. The message has its command line and output."""


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The output and exit status of a tool."""

    status: int
    stdout: str
    stderr: str

    @property
    def lines(self) -> list[str]:
        """The lines of the standard output, without empty ones."""
        return [line.rstrip() for line in self.stdout.splitlines() if line.strip()]


def fast_start() -> tuple[str, ...]:
    """The C1 compiler and the serial collector: better optimization does not pay off in a process of seconds."""
    return ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", *archive_options())


def java_command(main_class: str, *options: str, log_level: str = "WARN") -> list[str]:
    """The start of a command line that runs a class from Kafka's jars; `options` are the JVM's."""
    return [
        str(find_java().executable),
        *options,
        f"-Dlog4j2.configurationFile={_logging_file(log_level)}",
        "-cp",
        class_path(),
        main_class,
    ]


def _logging_file(level: str) -> Path:
    text = LOGGING.format(level=level)

    def is_current(folder: Path) -> bool:
        return (folder / "log4j2.xml").read_text() == text

    def write(folder: Path) -> None:
        (folder / "log4j2.xml").write_text(text)

    return filled(f"log4j-{level.lower()}", is_current=is_current, fill=write) / "log4j2.xml"


class KafkaTools:
    """Runs Apache's tools against one cluster."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def run(
        self, tool: str, *arguments: str | Path, stdin: str = "", timeout_s: float = 90, check: bool = True
    ) -> ToolOutput:
        """Runs a tool to its end, with `--bootstrap-server` added; a failure raises ToolFailed if `check`."""
        command = self.command(tool, *arguments)
        answer = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s)
        output = ToolOutput(answer.returncode, answer.stdout, answer.stderr)
        if check and output.status != 0:
            shown = " ".join([tool, *map(str, arguments)])
            raise ToolFailed(f"{shown}\nstatus {output.status}\n{output.stdout}\n{output.stderr}")
        return output

    def start(self, tool: str, *arguments: str | Path) -> "subprocess.Popen[str]":
        """Starts a tool that runs until it is stopped; the caller ends it."""
        return subprocess.Popen(
            self.command(tool, *arguments),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def command(self, tool: str, *arguments: str | Path) -> Sequence[str]:
        """The whole command line of a tool, by its script's name without `.sh`."""
        server = [] if tool in WITHOUT_SERVER else ["--bootstrap-server", self.bootstrap_servers]
        given = [str(argument) for argument in arguments]
        ordered = given + server if tool in SUBCOMMAND_FIRST else server + given
        return [*java_command(TOOLS[tool], "-Xmx256m", *fast_start()), *ordered]
