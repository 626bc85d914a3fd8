"""The demo's own broker: a process, so that it can be killed with -9 in front of the audience, and started again."""

import importlib.util
import socket
import sys
import time
from pathlib import Path

from headrace.cli.demo.security import DemoSecurity
from headrace.cli.failures import Refused
from headrace.testing.child_process import ChildProcess

HOST = "127.0.0.1"
START_S_MAX = 60.0
SETTINGS = ("group.initial.rebalance.delay.ms=0",)
"""Without it, Kafka's consumer groups begin three seconds later: waiting is not what is compared."""


class BrokerProcess:
    def __init__(self, folder: Path, security: DemoSecurity | None = None) -> None:
        self._folder = folder
        self._security = security
        self._port, http_port = _free_ports(2)
        has_web = importlib.util.find_spec("uvicorn") is not None
        self.http = f"{HOST}:{http_port}" if has_web else None
        self._process: ChildProcess | None = None
        self.start_s = 0.0
        """How long the last start took."""

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._port}"

    @property
    def dashboard(self) -> str | None:
        """Its address; None where its packages are not installed."""
        if self.http is None:
            return None
        token = "" if self._security is None else f"/?token={self._security.token}"
        return f"http://{self.http}{token}"

    def start(self) -> None:
        began = time.monotonic()
        self._process = ChildProcess(
            self._command(),
            output=self._folder / "broker.log",
            env=None if self._security is None else self._security.environment(),
        )
        while not self._answers():
            if not self._process.is_running or time.monotonic() - began > START_S_MAX:
                raise Refused(f"the demo's broker did not start:\n{self._process.output_tail()}")
            time.sleep(0.02)
        self.start_s = time.monotonic() - began

    def kill(self) -> None:
        """With -9: nothing is written down, nobody is told."""
        if self._process is not None:
            self._process.kill()

    def _command(self) -> list[str]:
        command = [sys.executable, "-m", "headrace", "serve"]
        if self._security is None:
            command += ["--listen", self.bootstrap_servers]
        else:
            command += ["--config", str(self._security.configure(self.bootstrap_servers))]
        command += ["--data", str(self._folder / "broker")]
        command += [word for setting in SETTINGS for word in ("--set", setting)]
        return command if self.http is None else [*command, "--http", self.http]

    def _answers(self) -> bool:
        try:
            with socket.create_connection((HOST, self._port), timeout=1):
                return True
        except OSError:
            return False


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
