"""The control socket of a broker: commands of its operator, from the same machine.

It is a socket in the data directory that only the broker's user can open. What it does (a backup writes files where the
command says) must not be open to everybody who can reach the Kafka port. A request is one line of JSON, the answer
several: how far it is, and at last what came of it.
"""

import asyncio
import json
import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

from headrace.broker.backups import Backup, BackupResult

if TYPE_CHECKING:
    from headrace.broker.server import Server

logger = logging.getLogger("headrace.broker")

CONTROL = "control.sock"
LINE_BYTES_MAX = 64 * 1024


class ControlSocket:
    def __init__(self, path: Path, listener: asyncio.AbstractServer) -> None:
        self._path = path
        self._listener = listener

    @classmethod
    async def open(cls, server: "Server", data: Path) -> "ControlSocket | None":
        """None where the system cannot do it (a path of more than about 100 bytes): then there are no backups."""
        path = data / CONTROL
        try:
            path.unlink(missing_ok=True)  # of a broker that was killed; the directory is locked by this one
            accepting = _bind(path)
            listener = await server.loop.create_unix_server(lambda: _Control(server), sock=accepting)
        except OSError as error:
            logger.warning("%s cannot be opened, so `headrace backup` will not work: %s", path, error)
            return None
        return cls(path, listener)

    def close(self) -> None:
        self._listener.close()
        with suppress(OSError):
            self._path.unlink()


def _bind(path: Path) -> socket.socket:
    """Private before anybody can connect: until it listens, it refuses."""
    made = socket.socket(socket.AF_UNIX)
    try:
        made.bind(str(path))
        os.chmod(path, 0o600)
    except OSError:
        made.close()
        raise
    return made


class _Control(asyncio.Protocol):
    def __init__(self, server: "Server") -> None:
        self._server = server
        self._buffer = b""
        self._backup: Backup | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._backup is not None:
            self._backup.cancel("the command that asked for it has ended")

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        line, end, self._buffer = self._buffer.partition(b"\n")
        if not end:
            self._buffer = line
            if len(line) > LINE_BYTES_MAX:
                self._end(error="the request is too long")
            return
        try:
            request = json.loads(line)
            if request["command"] != "backup":
                raise ValueError(f"no such command: {request['command']}")
            self._start(Path(request["target"]))
        except (ValueError, KeyError, TypeError, OSError) as error:
            self._end(error=str(error))
        self._server.settle()

    def _start(self, target: Path) -> None:
        def progress(copied: int, size: int) -> None:
            self._tell(copied=copied, of=size)

        def done(result: BackupResult | Exception) -> None:
            self._backup = None
            if isinstance(result, BackupResult):
                self._end(partitions=result.partitions, bytes=result.bytes)
            else:
                text = result.strerror if isinstance(result, OSError) and result.strerror else str(result)
                self._end(error=f"{text}; what was copied to {target} is removed again")

        self._backup = self._server.core.backups.start(target, progress=progress, done=done)

    def _tell(self, **answer: object) -> None:
        if self._transport is not None:
            self._transport.write(json.dumps(answer).encode() + b"\n")

    def _end(self, **answer: object) -> None:
        self._tell(**answer)
        if self._transport is not None:
            self._transport.close()
