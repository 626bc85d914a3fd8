"""`headrace serve`: a broker as a process of its own."""

import errno
import gc
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.broker.addresses import first_listener, parse_address
from headrace.broker.embedded import Broker
from headrace.broker.logs import configure
from headrace.broker.settings import parse_assignments, read_properties
from headrace.cli.failures import Refused
from headrace.log.disk import DirectoryLocked
from headrace.log.manager import UnknownFormat
from headrace.log.metadata import MetadataError
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.web.server import WebServer

DEFAULT_ADDRESS = "localhost:9092"
DEFAULT_DATA = "./headrace-data"
ADDRESS_CURES = {
    errno.EADDRINUSE: "another program listens there; stop it, or choose another port with --listen HOST:PORT",
    errno.EADDRNOTAVAIL: "this machine does not have that address; --listen 0.0.0.0:PORT takes all it has",
    errno.EACCES: "ports below 1024 need special rights; choose a higher one with --listen HOST:PORT",
}


def run(
    listen: str | None,
    data: str | None,
    assignments: list[str],
    config: Path | None,
    *,
    http: str | None = None,
    token: str | None = None,
    read_only: bool = False,
) -> int:
    configure()
    stopping = threading.Event()
    try:
        settings = {**_read(config), **parse_assignments(assignments)}
        address = listen or first_listener(settings) or DEFAULT_ADDRESS
        host, port = parse_address(address)
        settings["listeners"] = f"PLAINTEXT://{host}:{port}"
        data_dir = data or _first(settings, "log.dirs") or _first(settings, "log.dir") or DEFAULT_DATA
        broker = Broker(
            data_dir=data_dir,
            host=host,
            port=port,
            settings=settings,
            on_failure=lambda _: stopping.set(),
        )
    except (OSError, ValueError) as error:
        return _refuse(str(error))
    try:
        broker.start()
    except (ValueError, DirectoryLocked, UnknownFormat, MetadataError, KafkaError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(_explain(error, f"{host}:{port}", data_dir))
    except KeyboardInterrupt:
        return _refuse("interrupted while starting; nothing is lost")
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopping.set())
    dashboard: WebServer | None = None
    where = ""
    if http is not None:
        try:
            dashboard, where = _open_dashboard(broker, http, token=token, read_only=read_only)
        except (OSError, ValueError, KafkaError, Refused) as error:
            broker.stop()
            return _refuse(error.strerror if isinstance(error, OSError) and error.strerror else str(error))
    # What a start has read stays for good, and with thousands of partitions a full collection over all of it would
    # stop the event loop for a tenth of a second and more.
    gc.collect()
    gc.freeze()
    print(f"listening on {broker.bootstrap_servers}", flush=True)
    if dashboard is not None:
        print(f"dashboard on {where}", flush=True)
    stopping.wait()
    if dashboard is not None:
        dashboard.stop()
    broker.stop()
    return 0 if broker.failure is None else 1


def _open_dashboard(
    broker: Broker, http: str, *, token: str | None, read_only: bool
) -> "tuple[WebServer, str]":
    from headrace.cli.web import open_dashboard
    from headrace.client.settings import ClientSettings
    from headrace.web.embedded import Detail

    settings = ClientSettings.parse(
        bootstrap_servers=broker.bootstrap_servers, client_id="headrace-dashboard"
    )
    return open_dashboard(settings, http, token=token, read_only=read_only, detail=Detail(broker))


def _read(config: Path | None) -> dict[str, str]:
    if config is None:
        return {}
    try:
        return read_properties(config)
    except OSError as error:
        raise ValueError(f"--config {config} cannot be read: {error.strerror}") from None


def _first(settings: dict[str, str], name: str) -> str:
    """One disk is all we use: of several directories the first."""
    return settings.get(name, "").split(",")[0].strip()


def _explain(error: OSError, address: str, data_dir: str) -> str:
    """What to do about it, as far as the error says whether it is the address or the directory."""
    if isinstance(error, socket.gaierror):
        return f"cannot listen on {address}: no such host; use a name or address of this machine"
    if error.filename is None and error.errno in ADDRESS_CURES:
        return f"cannot listen on {address}: {ADDRESS_CURES[error.errno]}"
    if error.filename is not None:
        where = f" ({error.filename})" if str(error.filename) != data_dir else ""
        return (
            f"cannot use the data directory {data_dir}: {error.strerror}{where}; "
            "choose one that this user may write with --data DIR"
        )
    return str(error)


def _refuse(why: str) -> int:
    print(f"headrace serve: {why}", file=sys.stderr)
    return 1
