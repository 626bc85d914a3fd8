"""Foreign clients against our broker, as users run it: a real `headrace serve` process with its data on disk."""

import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.testing import ApacheKafka, KafkaTools
from headrace.testing.child_process import ChildProcess

START_TIMEOUT_S = 20
LISTENING = re.compile(r"listening on (\S+:\d+)")


@dataclass(frozen=True, slots=True)
class HeadraceServer:
    """A running `headrace serve`."""

    bootstrap_servers: str
    data: Path
    process: ChildProcess


def start_server(folder: Path, *settings: str) -> HeadraceServer:
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
    for setting in settings:
        command += ["--set", setting]
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
    server = start_server(tmp_path_factory.mktemp("headrace"), "group.initial.rebalance.delay.ms=0")
    yield server
    assert server.process.is_running, f"headrace serve ended by itself:\n{server.process.output_tail()}"
    assert server.process.stop() == 0, server.process.output_tail()


@pytest.fixture(scope="session")
def bootstrap_servers(headrace_server: HeadraceServer) -> str:
    """Where the foreign client connects: our broker, or the cluster named in HEADRACE_COMPAT_SERVERS.

    Pointing these tests at Apache Kafka shows whether a failing test or our broker is wrong.
    """
    return os.environ.get("HEADRACE_COMPAT_SERVERS") or headrace_server.bootstrap_servers


@pytest.fixture(scope="session")
def apache() -> Iterator[ApacheKafka]:
    """Apache Kafka, for what its own tools print against it."""
    with ApacheKafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def tools(headrace_server: HeadraceServer) -> KafkaTools:
    """Apache's command-line tools, pointed at our broker."""
    return KafkaTools(headrace_server.bootstrap_servers)


@pytest.fixture(scope="session")
def apache_tools(apache: ApacheKafka) -> KafkaTools:
    """The same tools, pointed at Apache Kafka."""
    return KafkaTools(apache.bootstrap_servers)
