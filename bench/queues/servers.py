"""The peers' servers: each one of our own on a free port of the loopback interface, with its files in one folder.

All make a message durable before they confirm it, unless a server's name says otherwise.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from bench.queues import peers
from headrace.testing.apache_kafka import free_ports
from headrace.testing.child_process import ChildProcess

START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 15
REDIS_DURABILITY = {
    "memory only": ["--appendonly", "no"],
    "fsync": ["--appendonly", "yes", "--appendfsync", "always"],
}


class Server(Protocol):
    """Where a queue keeps its messages."""

    address: str

    @property
    def pid(self) -> int: ...

    def stop(self) -> None: ...


class Program:
    """A server that runs as a process; `is_up` says whether it answers."""

    address: str

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        output: Path,
        is_up: Callable[[], bool],
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._process = ChildProcess(command, output=output, env=env, cwd=Path("/"))
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_up():
            if time.monotonic() > deadline or not self._process.is_running:
                tail = self._process.output_tail()
                self.stop()
                raise peers.Missing(f"{Path(command[0]).name} does not answer:\n{tail}")
            time.sleep(0.02)

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        self._process.stop(STOP_TIMEOUT_S)


class Redis(Program):
    """Without snapshots; the append-only file is synced before a command is answered, or there is none."""

    def __init__(self, folder: Path, *, durability: str) -> None:
        folder.mkdir(parents=True)
        self._port = free_ports(1)[0]
        place = ["--port", str(self._port), "--bind", "127.0.0.1", "--dir", str(folder)]
        self.address = f"redis://127.0.0.1:{self._port}/0"
        super().__init__(
            [peers.redis_server(), *place, "--save", "", *REDIS_DURABILITY[durability]],
            output=folder / "redis.log",
            is_up=lambda: self._ask("PING") == b"+PONG\r\n",
        )

    def empty(self) -> None:
        if self._ask("FLUSHALL") != b"+OK\r\n":
            raise peers.Missing("redis-server did not empty itself")

    def _ask(self, command: str) -> bytes:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", self._port), timeout=5) as connection,
        ):
            connection.sendall(f"{command}\r\n".encode())
            return connection.recv(100)
        return b""


class Nats(Program):
    """`sync` is its `sync_interval`: "always" is before each acknowledgement, the default every two minutes."""

    def __init__(self, folder: Path, *, sync: str | None) -> None:
        folder.mkdir(parents=True)
        port = free_ports(1)[0]
        interval = f"sync_interval: {sync}" if sync else ""
        settings = folder / "nats.conf"
        settings.write_text(f'jetstream {{ store_dir: "{folder}/data"\n{interval} }}\n')
        self.address = f"nats://127.0.0.1:{port}"
        super().__init__(
            [peers.nats_server(), "-a", "127.0.0.1", "-p", str(port), "-c", settings],
            output=folder / "nats.log",
            is_up=lambda: _greets(port),
        )


class RabbitMq(Program):
    """One node. Its name server, epmd, is one of our own too, or it would stay behind on its usual port."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        port, distribution, names = free_ports(3)
        settings = folder / "rabbitmq.conf"
        settings.write_text(
            f"listeners.tcp.1 = 127.0.0.1:{port}\nlog.console = true\nlog.console.level = warning\n"
        )
        plugins = folder / "enabled_plugins"
        plugins.write_text("[].\n")
        env = {
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(names),
            "HOME": str(folder),
            "RABBITMQ_CONFIG_FILE": str(settings),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_NODENAME": f"bench-{names}@localhost",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
            # The script is then replaced by the server, so that signals reach it.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        script = peers.rabbitmq_server()
        self._names = ChildProcess(["epmd"], output=folder / "epmd.log", env=env)
        self.address = f"amqp://guest:guest@127.0.0.1:{port}/%2F"
        try:
            super().__init__([script], output=folder / "rabbitmq.log", is_up=lambda: _is_open(port), env=env)
        except BaseException:
            self._names.kill()
            raise

    def stop(self) -> None:
        super().stop()
        self._names.stop()


class Postgres(Program):
    """It refuses to run as root: then it runs as Debian's user `postgres`, in a folder that this user may enter."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._programs = programs = peers.postgres().parent
        as_user: dict[str, Any] = {}
        command: list[str | Path] = []
        self._folder = folder
        if os.getuid() == 0:
            # The folder of the bench is closed to other users; this one stands beside it, on the same disk.
            self._folder = Path(tempfile.mkdtemp(prefix="headrace-bench-postgres-", dir=_bench_home(folder)))
            shutil.chown(self._folder, "postgres", "postgres")
            as_user = {"user": "postgres", "group": "postgres", "extra_groups": []}
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        data = self._folder / "data"
        make = [programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C"]
        subprocess.run(make, check=True, capture_output=True, cwd="/", timeout=START_TIMEOUT_S, **as_user)
        command += [programs / "postgres", "-D", data, "-k", self._folder, "-c", "listen_addresses="]
        ready = [programs / "pg_isready", "-q", "-h", self._folder]
        self.address = f"postgresql://postgres@/postgres?host={self._folder}"
        super().__init__(
            [*command, "-c", "fsync=on", "-c", "synchronous_commit=on"],
            output=folder / "postgres.log",
            is_up=lambda: subprocess.run(ready, cwd="/", timeout=START_TIMEOUT_S).returncode == 0,
        )

    def empty(self) -> None:
        drop = "DROP SCHEMA public CASCADE; CREATE SCHEMA public"
        psql = [self._programs / "psql", "-q", "-h", self._folder, "-U", "postgres", "-c", drop]
        subprocess.run(psql, check=True, capture_output=True, cwd="/", timeout=START_TIMEOUT_S)

    def stop(self) -> None:
        super().stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _bench_home(folder: Path) -> Path:
    """Where the folder of this run of the bench stands."""
    return next(parent.parent for parent in folder.parents if parent.name.startswith("headrace-bench-"))


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5):
        return True
    return False


def _greets(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        return connection.recv(4) == b"INFO"
    return False
