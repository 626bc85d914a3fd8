"""`headrace serve` as a process of its own, to be killed at any moment and started again on the same directory."""

import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def choose_seed() -> int:
    """HEADRACE_SEED repeats the choices of an earlier run."""
    return int(os.environ.get("HEADRACE_SEED", "0")) or random.randrange(1, 2**31)


class ServerProcess:
    """On a fixed port and directory."""

    def __init__(self, data: Path, log: Path, settings: Mapping[str, object]) -> None:
        self.address = f"127.0.0.1:{free_port()}"
        self.began_at: list[float] = []
        """When each of its lives began, in the seconds of `time.monotonic`."""
        self._data = data
        self.log = log
        self._stderr = log.open("ab")
        self._settings = [f"--set={name}={value}" for name, value in settings.items()]
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.began_at.append(time.monotonic())
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "headrace", "serve", *self._settings),
                *("--listen", self.address, "--data", str(self._data)),
            ],
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().decode()
        assert line.startswith("listening on "), f"the server did not start: {self.log}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_dead(self) -> bool:
        """Somebody else has killed it."""
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def close(self) -> None:
        self.kill()
        self._stderr.close()
