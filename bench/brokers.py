"""The two brokers as the driver sees them: start one under a durability policy, know its process, stop it."""

import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Protocol

from bench.wire import Connection, answers
from headrace.testing import ApacheKafka
from headrace.testing.apache_kafka import free_ports
from headrace.testing.child_process import ChildProcess

START_TIMEOUT_S = 90
PROBE_EVERY_S = 0.002
# What Apache's own start scripts give the JVM where the user says nothing (kafka-server-start, kafka-run-class).
APACHE_HEAP = "1g"
APACHE_JAVA_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
# A group of one member would otherwise wait three seconds for others, on both brokers.
SAME_SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class Policy(Enum):
    """When acks=all is answered, in words; our broker's setting and the setting of Apache's topics that make it so.

    Apache's is one of topics (flush.messages, the topic's log.flush.interval.messages), so that one warm JVM serves
    under both policies.
    """

    PAGE_CACHE = ("page cache", {"headrace.flush": "os"}, dict[str, str]())
    FSYNC = ("fsync", {"headrace.flush": "fsync"}, {"flush.messages": "1"})

    def __init__(self, label: str, ours: dict[str, str], apache_topics: dict[str, str]) -> None:
        self.label = label
        self.ours = ours
        self.apache_topics = apache_topics


@dataclass(frozen=True, slots=True)
class Running:
    """A broker that serves, and the listener to use.

    `start_s` is the time from the process' start to its first answer; `tls_servers` the address of the listener with
    TLS, where there is one; `ca` what clients trust if `bootstrap_servers` is that listener.
    """

    name: str
    policy: Policy
    bootstrap_servers: str
    pid: int
    start_s: float
    tls_servers: str = ""
    ca: Path | None = None

    def over_tls(self, ca: Path) -> "Running":
        assert self.tls_servers, f"{self.name} has no listener with TLS"
        return replace(self, bootstrap_servers=self.tls_servers, ca=ca)

    def connect(self) -> Connection:
        return Connection(self.bootstrap_servers, ca=self.ca)

    @property
    def topic_configs(self) -> dict[str, str]:
        """What a topic needs, on this broker, to be under the policy."""
        return self.policy.apache_topics if self.name == Apache.name else {}


class BrokerProcess(Protocol):
    name: str

    def start(self, policy: Policy) -> Running: ...

    def start_again(self, policy: Policy) -> Running: ...

    def stop(self) -> object: ...

    def kill(self) -> None: ...


class StartFailed(Exception):
    """A broker did not answer in time; the message ends with what it printed."""


class Headrace:
    """`headrace serve` on an empty data directory. `bytecode` is where Python keeps compiled modules.

    An installed package has them compiled; a machine where Python may not write them (as some build machines are
    set up) would have every start compile two hundred files. `tls`: settings of a further listener, with TLS.
    """

    def __init__(
        self,
        folder: Path,
        *,
        bytecode: Path,
        settings: Mapping[str, str] | None = None,
        tls: Mapping[str, str] | None = None,
        name: str = "headrace",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._folder = folder / name
        self._settings = {**SAME_SETTINGS, **(settings or {}), **(tls or {})}
        self._has_tls = tls is not None
        self._env = {
            "PYTHONDONTWRITEBYTECODE": "",
            "PYTHONPYCACHEPREFIX": str(bytecode / name),
            **(env or {}),
        }
        self._starts = 0
        self._process: ChildProcess | None = None

    def start(self, policy: Policy) -> Running:
        self._starts += 1
        self.home.mkdir(parents=True)
        return self.start_again(policy)

    @property
    def home(self) -> Path:
        """Holds `data/` and `server.log` of the last start."""
        return self._folder / str(self._starts)

    def start_again(self, policy: Policy) -> Running:
        """On the data of the last start."""
        home = self.home
        address, tls_address = (f"127.0.0.1:{port}" for port in free_ports(2))
        command: list[str | Path] = [
            sys.executable,
            "-m",
            "headrace",
            "serve",
            "--listen",
            f"PLAINTEXT://{address},SSL://{tls_address}" if self._has_tls else address,
            "--data",
            home / "data",
        ]
        for name, value in {**self._settings, **policy.ours}.items():
            command += ["--set", f"{name}={value}"]
        process = self._process = ChildProcess(command, output=home / "server.log", cwd=home, env=self._env)
        started = time.perf_counter()
        while not answers(address):
            if not process.is_running or time.perf_counter() > started + START_TIMEOUT_S:
                raise StartFailed(f"headrace serve does not answer:\n{process.output_tail()}")
            time.sleep(PROBE_EVERY_S)
        start_s = time.perf_counter() - started
        return Running(self.name, policy, address, process.pid, start_s, tls_address if self._has_tls else "")

    def stop(self, timeout_s: float = START_TIMEOUT_S) -> int | None:
        """The exit status; None where nothing ran."""
        status = None
        if self._process is not None:
            status = self._process.stop(timeout_s)
            self._process = None
        return status

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None


class Apache:
    """Apache Kafka, one node in KRaft mode, on an empty and formatted folder (formatting is not timed).

    `tls`: settings of a further listener, with TLS.
    """

    name = "apache"

    def __init__(
        self,
        folder: Path,
        *,
        settings: Mapping[str, str] | None = None,
        tls: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder / self.name
        self._settings = {**SAME_SETTINGS, **(settings or {}), **(tls or {})}
        self._has_tls = tls is not None
        self._starts = 0
        self._kafka: ApacheKafka | None = None

    def start(self, policy: Policy) -> Running:
        self._starts += 1
        kafka = self._kafka = ApacheKafka(
            settings=self._settings,
            folder=self._folder / str(self._starts),
            heap=APACHE_HEAP,
            java_options=APACHE_JAVA_OPTIONS,
            listeners={"SSL": "SSL"} if self._has_tls else None,
        )
        return self._timed(kafka, policy)

    def start_again(self, policy: Policy) -> Running:
        assert self._kafka is not None, "not started"
        return self._timed(self._kafka, policy)

    def _timed(self, kafka: ApacheKafka, policy: Policy) -> Running:
        failures: list[Exception] = []

        def run() -> None:
            try:
                kafka.start()
            except Exception as error:
                failures.append(error)

        # `start` returns when the node has logged that it serves. We want the moments when its process begins and
        # when it first answers, so it runs beside us while we look for both.
        starting = threading.Thread(target=run, daemon=True)
        starting.start()
        deadline = time.perf_counter() + 2 * START_TIMEOUT_S
        while not kafka.pids and not failures and time.perf_counter() < deadline:
            time.sleep(0.001)
        started = time.perf_counter()
        while not failures and not answers(kafka.bootstrap_servers):
            if time.perf_counter() > deadline:
                raise StartFailed(f"Apache Kafka does not answer:\n{kafka.log_tail()}")
            time.sleep(PROBE_EVERY_S)
        start_s = time.perf_counter() - started
        starting.join(START_TIMEOUT_S)
        if failures:
            raise failures[0]
        tls_servers = kafka.address_of("SSL") if self._has_tls else ""
        return Running(self.name, policy, kafka.bootstrap_servers, kafka.pids[0], start_s, tls_servers)

    def stop(self) -> None:
        """The data stays: `start_again` goes on with it."""
        if self._kafka is not None:
            self._kafka.stop()

    def kill(self) -> None:
        if self._kafka is not None:
            self._kafka.kill()
