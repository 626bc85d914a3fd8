"""What the peers need and we do not: a Python environment with them in it, and a Redis server.

Both are set up at first use where that is possible; where it is not, `Missing` says what to do.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

from bench.tasks import ROOT
from headrace.testing.apache_kafka import free_ports
from headrace.testing.child_process import ChildProcess

REQUIREMENTS = ROOT / "requirements" / "peers.txt"
INSTALL_TIMEOUT_S = 300
START_TIMEOUT_S = 10
DURABILITY = {
    "memory only": ["--appendonly", "no"],
    "fsync": ["--appendonly", "yes", "--appendfsync", "always"],
}


class Missing(Exception):
    """Something of the peers' is not here and could not be installed; the rest of the bench goes on without them."""


def environment() -> Path:
    """The folder of the peers' commands, inside our own environment so that `make clean` finds it."""
    folder = Path(sys.prefix) / "peers"
    stamp = folder / ".set-up"
    if not stamp.exists() or stamp.stat().st_mtime < REQUIREMENTS.stat().st_mtime:
        venv.create(folder, with_pip=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        hashed = ["install", "--quiet", "--require-hashes", "-r", str(REQUIREMENTS)]
        _install([*pip, *hashed], f"installing {REQUIREMENTS.name}")
        stamp.touch()
    return folder / "bin"


def redis_server() -> str:
    """The command; installed by apt-get where there is none and we may."""
    found = shutil.which("redis-server")
    if found is None:
        sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
        install = [*sudo, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "redis-server"]
        try:
            _install(install, "installing redis-server")
        except Missing:
            _install([*sudo, "apt-get", "update", "-qq"], "looking for redis-server")
            _install(install, "installing redis-server")
        found = shutil.which("redis-server")
    if found is None:
        raise Missing("redis-server is not on the path (Debian: apt install redis-server)")
    return found


def _install(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{what} failed: {error}") from error
    if done.returncode:
        raise Missing(f"{what} failed: {done.stderr.strip()[-500:]}")


class Redis:
    """A server of our own on a free port; what it keeps, it keeps in `folder`."""

    def __init__(self, folder: Path, *, durability: str) -> None:
        folder.mkdir(parents=True)
        self._port = free_ports(1)[0]
        place = ["--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self._process = ChildProcess(
            [redis_server(), *place, "--save", "", *DURABILITY[durability]], output=folder / "redis.log"
        )
        self.address = f"redis://127.0.0.1:{self._port}/0"
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._ask("PING") != b"+PONG\r\n":
            if time.monotonic() > deadline or not self._process.is_running:
                raise Missing(f"redis-server does not answer:\n{self._process.output_tail()}")
            time.sleep(0.01)

    @property
    def pid(self) -> int:
        return self._process.pid

    def empty(self) -> None:
        if self._ask("FLUSHALL") != b"+OK\r\n":
            raise Missing("redis-server did not empty itself")

    def _ask(self, command: str) -> bytes:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection,
        ):
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(100)
        return b""

    def stop(self) -> None:
        self._process.stop()
