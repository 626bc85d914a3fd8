"""Foreign clients against our broker, as users run it: a real `headrace serve` process with its data on disk."""

import re
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.testing import ApacheKafka, KafkaTools
from headrace.testing.child_process import ChildProcess
from tests.compat.both import Both

START_TIMEOUT_S = 60
# Both brokers get the same: groups that form and follow at once.
QUICK_GROUPS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "300",
    "group.share.assignment.interval.ms": "0",
    "group.share.min.record.lock.duration.ms": "1000",
}
LISTENING = re.compile(r"listening on (\S+:\d+)")


@dataclass(frozen=True, slots=True)
class HeadraceServer:
    """A running `headrace serve`."""

    bootstrap_servers: str
    data: Path
    process: ChildProcess


def start_server(folder: Path, settings: Mapping[str, str]) -> HeadraceServer:
    """Starts `headrace serve` with its data in `folder/data`, and waits until it says that it listens."""
    command = [
        sys.executable,
        "-m",
        "headrace",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data",
        str(folder / "data"),
    ]
    for name, value in settings.items():
        command += ["--set", f"{name}={value}"]
    process = ChildProcess(command, output=folder / "headrace.log", env={"PYTHONUNBUFFERED": "1"})
    deadline = time.monotonic() + START_TIMEOUT_S
    while not (found := LISTENING.search(process.output_text())):
        if not process.is_running or time.monotonic() > deadline:
            process.kill()
            pytest.fail(f"headrace serve did not start:\n{process.output_tail()}", pytrace=False)
        time.sleep(0.01)
    return HeadraceServer(found.group(1), folder / "data", process)


@pytest.fixture(scope="session")
def headrace_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HeadraceServer]:
    """One server for all compat tests: use `unique` for names. Its log is shown when it ended by itself."""
    server = start_server(tmp_path_factory.mktemp("headrace"), QUICK_GROUPS)
    yield server
    assert server.process.is_running, f"headrace serve ended by itself:\n{server.process.output_tail()}"
    assert server.process.stop() == 0, server.process.output_tail()


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """One Apache Kafka for all compat tests, to hold ours against."""
    with ApacheKafka(settings=QUICK_GROUPS) as cluster:
        yield cluster


@pytest.fixture(params=["headrace_server", pytest.param("apache", marks=pytest.mark.needs_kafka)])
def bootstrap_servers(request: pytest.FixtureRequest) -> str:
    """Where a foreign client connects: our server, then Apache Kafka, to show that the test asks rightly."""
    running = request.getfixturevalue(request.param)
    return str(running.bootstrap_servers)


@pytest.fixture(scope="session")
def both(headrace_server: HeadraceServer, apache: ApacheKafka) -> Both:
    """Apache's command-line tools, run against our server and Apache Kafka at the same time."""
    return Both(KafkaTools(headrace_server.bootstrap_servers), KafkaTools(apache.bootstrap_servers))
