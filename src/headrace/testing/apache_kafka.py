"""Runs a real Apache Kafka: the reference of the conformance tests, and the comparison of the benchmarks.

Each node is a broker and a controller in one process (KRaft), with its own folder, on free ports. Settings that default
to three replicas are lowered to the number of nodes.
"""

import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType

from headrace.log.metadata import new_cluster_id
from headrace.testing.child_process import ChildProcess
from headrace.testing.kafka_tools import fast_start, java_command

STARTED = re.compile(r"Kafka Server started")
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30
STOP_TOGETHER_TIMEOUT_S = 5


class StartFailed(Exception):
    """A node did not start. The message ends with the last lines of its log."""


class ApacheKafka:
    """A new cluster of `nodes` Apache Kafka processes on this machine.

    `settings`: added to the server.properties of every node; they replace the defaults.
    `folder`: where the data is kept. By default it is in a temporary folder, which is removed at the end.
    `fast_groups`: sets the initial rebalance delay of classic groups to 0, instead of three seconds.
    `java_options`: options of the JVM, besides the heap. The default options make it start fast.
    `listeners`: further listeners, as names and security protocols; `address_of(name)` returns their addresses.
    `scram_users`: created before the first start.
    """

    def __init__(
        self,
        *,
        nodes: int = 1,
        settings: Mapping[str, object] | None = None,
        folder: Path | None = None,
        heap: str = "512m",
        java_options: Sequence[str] | None = None,
        fast_groups: bool = True,
        listeners: Mapping[str, str] | None = None,
        scram_users: Mapping[str, str] | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        self._listeners = {"PLAINTEXT": "PLAINTEXT", **(listeners or {})}
        self._scram_users = dict(scram_users or {})
        self._nodes = nodes
        self._heap = (f"-Xmx{heap}", f"-Xms{heap}")
        self._java_options = java_options
        self._fast_groups = fast_groups
        self._is_temporary = folder is None
        self._given_folder = folder
        self._folder: Path | None = None
        self._ports: list[dict[str, int]] = []
        self._processes: list[ChildProcess] = []

    @property
    def bootstrap_servers(self) -> str:
        return self.address_of("PLAINTEXT")

    def address_of(self, listener: str) -> str:
        """The bootstrap servers of a listener."""
        return ",".join(f"127.0.0.1:{ports[listener]}" for ports in self._ports)

    @property
    def folder(self) -> Path:
        """Has a folder for each node: `node-1/` with `data/`, `server.properties` and `server.log`."""
        assert self._folder is not None, "not started"
        return self._folder

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def start(self) -> "ApacheKafka":
        """Creates and formats the folders, starts every node and returns when all of them are ready."""
        assert not self._processes, "already started"
        if self._folder is None:
            self._folder = self._given_folder or Path(tempfile.mkdtemp(prefix="headrace-apache-kafka-"))
        try:
            if not self._ports:
                self._prepare()
            self._processes = [self._launch(node) for node in self._node_ids()]
            deadline = time.monotonic() + START_TIMEOUT_S
            for process in self._processes:
                _wait_until_started(process, deadline)
        except BaseException:
            self.kill()
            self._remove()
            raise
        return self

    def stop(self) -> None:
        """Stops all nodes (SIGTERM) and removes a temporary folder."""
        # The last nodes of several wait for a quorum that is gone, in vain; they are killed before long.
        timeout_s = STOP_TIMEOUT_S if self._nodes == 1 else STOP_TOGETHER_TIMEOUT_S
        with ThreadPoolExecutor(self._nodes) as together:
            list(together.map(lambda process: process.stop(timeout_s), self._processes))
        self._processes = []
        self._remove()

    def kill(self) -> None:
        """Kills every node (SIGKILL). The folder is kept, so `start()` starts the same cluster again."""
        for process in self._processes:
            process.kill()
        self._processes = []

    def stop_node(self, node: int) -> None:
        """Stops one node (SIGTERM), counted from 1. It first transfers its partition leadership to other nodes."""
        self._processes[node - 1].stop(STOP_TIMEOUT_S)

    def kill_node(self, node: int) -> None:
        """Kills one node (SIGKILL)."""
        self._processes[node - 1].kill()

    def start_node(self, node: int) -> None:
        """Starts a node that was stopped or killed, and returns when it is ready."""
        assert not self._processes[node - 1].is_running, f"node {node} runs"
        self._processes[node - 1] = self._launch(node)
        _wait_until_started(self._processes[node - 1], time.monotonic() + START_TIMEOUT_S)

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the log of every node, for the message of a failing test."""
        files = [self.folder / f"node-{node}" / "server.log" for node in self._node_ids()]
        return "\n".join("\n".join(file.read_text().splitlines()[-lines:]) for file in files if file.exists())

    def __enter__(self) -> "ApacheKafka":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _node_ids(self) -> range:
        return range(1, self._nodes + 1)

    def _prepare(self) -> None:
        free = iter(free_ports((1 + len(self._listeners)) * self._nodes))
        self._ports = [{name: next(free) for name in self._listeners} for _ in self._node_ids()]
        controller_ports = list(free)
        controllers = zip(self._node_ids(), controller_ports, strict=True)
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers)
        cluster_id = new_cluster_id()  # never begins with a dash, which the tool would take for an option
        for node, ports, controller_port in zip(self._node_ids(), self._ports, controller_ports, strict=True):
            home = self.folder / f"node-{node}"
            (home / "data").mkdir(parents=True)
            advertised = ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
            properties = {
                **self._settings_of_every_node(),
                "node.id": node,
                "listeners": f"{advertised},CONTROLLER://127.0.0.1:{controller_port}",
                "advertised.listeners": advertised,
                "controller.quorum.voters": voters,
                "log.dirs": home / "data",
                **self.settings,
            }
            lines = [f"{name}={value}\n" for name, value in properties.items()]
            (home / "server.properties").write_text("".join(lines))
            self._format(home, cluster_id)

    def _settings_of_every_node(self) -> dict[str, object]:
        protocols = ",".join(f"{name}:{protocol}" for name, protocol in self._listeners.items())
        replicas = min(self._nodes, 3)
        in_sync = min(self._nodes, 2)
        return {
            "process.roles": "broker,controller",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": f"{protocols},CONTROLLER:PLAINTEXT",
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
            **({"group.initial.rebalance.delay.ms": 0} if self._fast_groups else {}),
        }

    def _format(self, home: Path, cluster_id: str) -> None:
        command = java_command("kafka.tools.StorageTool", "-Xmx256m", *fast_start())
        command += ["format", "--cluster-id", cluster_id, "--config", str(home / "server.properties")]
        for name, password in self._scram_users.items():
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                command += ["--add-scram", f"{mechanism}=[name={name},password={password}]"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=START_TIMEOUT_S)
        if answer.returncode != 0:
            raise StartFailed(f"formatting {home / 'data'} failed:\n{answer.stdout}\n{answer.stderr}")

    def _launch(self, node: int) -> ChildProcess:
        home = self.folder / f"node-{node}"
        (home / "server.log").unlink(missing_ok=True)
        options = fast_start() if self._java_options is None else self._java_options
        command = java_command("kafka.Kafka", *self._heap, *options, log_level="INFO")
        return ChildProcess([*command, home / "server.properties"], output=home / "server.log", cwd=home)

    def _remove(self) -> None:
        if self._is_temporary and self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
            self._ports = []


def _wait_until_started(process: ChildProcess, deadline: float) -> None:
    while not STARTED.search(process.output_text()):
        if not process.is_running:
            raise StartFailed(f"the node ended with status {process.returncode}:\n{process.output_tail()}")
        if time.monotonic() > deadline:
            raise StartFailed(f"the node did not start within {START_TIMEOUT_S} s:\n{process.output_tail()}")
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Unused ports. All are bound until the last one is found, so that they differ."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(held.getsockname()[1]) for held in sockets]
    for held in sockets:
        held.close()
    return ports
