"""A real PostgreSQL for tests: Debian's server in a temporary folder, as a user without rights."""

import contextlib
import glob
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

READY_S = 60.0


def find_programs() -> Path | None:
    """The folder with initdb and postgres of the newest version."""
    found = glob.glob("/usr/lib/postgresql/*/bin/postgres")
    named = shutil.which("postgres")
    newest = max(found, key=lambda path: int(path.split("/")[4].split(".")[0]), default=named)
    return Path(newest).parent if newest else None


class PostgresServer:
    """The server refuses to run as root; then it runs as Debian's user `postgres`."""

    def __init__(self) -> None:
        programs = find_programs()
        assert programs is not None
        self._programs = programs
        self._folder = tempfile.mkdtemp(prefix="headrace-postgres-")
        self._as_user: dict[str, Any] = {}
        if os.getuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
            self._as_user = {"user": "postgres", "group": "postgres", "extra_groups": []}
        self._databases: set[str] = set()
        self._data = f"{self._folder}/data"
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        self.start()

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def empty_database(self, name: str) -> str:
        """One without tables. Returns its URL."""
        if name not in self._databases:
            self._run("createdb", "-h", self._folder, "-U", "postgres", name)
            self._databases.add(name)
        empty = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        self._run("psql", "-q", "-h", self._folder, "-U", "postgres", "-c", empty, name)
        return self.url(name)

    def start(self) -> None:
        # Without fsync: tests kill the server, not the machine.
        command = [
            self._programs / "postgres", "-D", self._data, "-k", self._folder, "-c", "listen_addresses=", "-F",
            "-c", "max_connections=200",
        ]  # fmt: skip
        with open(f"{self._folder}/log", "ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", start_new_session=True, **self._as_user
            )
        deadline = time.monotonic() + READY_S
        while not self._is_ready():
            assert time.monotonic() < deadline, Path(self._folder, "log").read_text()[-2000:]
            assert self._process.poll() is None, Path(self._folder, "log").read_text()[-2000:]
            time.sleep(0.02)  # the pace of looking: another process starts

    @property
    def pid(self) -> int:
        """Also that of its process group."""
        assert self._process is not None
        return self._process.pid

    @property
    def is_dead(self) -> bool:
        """Somebody else has killed it."""
        return self._process is not None and self._process.poll() is not None

    def kill(self) -> None:
        """kill -9 of the server and all its sessions."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _is_ready(self) -> bool:
        asked = subprocess.run(
            [self._programs / "pg_isready", "-q", "-h", self._folder], cwd="/", check=False, timeout=READY_S
        )
        return asked.returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._programs / program, *arguments], check=True, capture_output=True, cwd="/", timeout=120,
            **self._as_user,
        )  # fmt: skip
