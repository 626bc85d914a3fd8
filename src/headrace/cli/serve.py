"""`headrace serve`: a broker as a process of its own."""

import errno
import gc
import logging
import os
import resource
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.broker.embedded import Broker
from headrace.broker.security.listeners import without_controllers
from headrace.broker.security.users import NewScramUser, parse_new_user
from headrace.broker.settings import parse_assignments, read_properties, resolve_references, unknown_settings
from headrace.cli.failures import Refused
from headrace.cli.logs import LogFormat, LogLevel, configure
from headrace.cli.private_listener import PrivateListener, add_private_listener
from headrace.cli.stopping import Stopping
from headrace.cli.systemd import notify
from headrace.cli.web import Access, check_options, names_of, open_dashboard
from headrace.log.disk import DirectoryLocked
from headrace.log.manager import UnknownFormat
from headrace.log.metadata import MetadataError
from headrace.wire.errors import KafkaError

if TYPE_CHECKING:
    from headrace.web.server import WebServer

logger = logging.getLogger("headrace.web")

DEFAULT_ADDRESS = "localhost:9092"
DEFAULT_DATA = "./headrace-data"
USERS_VARIABLE = "HEADRACE_ADD_SCRAM"
COLLECT_RARELY = (100_000, 50, 50)
"""Thresholds of the garbage collector while the broker starts."""
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
    add_scram: Sequence[str] = (),
    http: str | None = None,
    command_config: Path | None = None,
    access: Access | None = None,
    force: bool = False,
    log_level: LogLevel = LogLevel.INFO,
    log_format: LogFormat = LogFormat.TEXT,
) -> int:
    configure(log_level, log_format)
    allow_open_files()
    stopping = Stopping()
    try:
        typed = parse_assignments(assignments)
        _require_known(typed, force=force)
        if http is not None:
            check_options(http, access or Access())
        settings = resolve_references({**_read(config), **typed})
        settings["listeners"] = listen or ",".join(without_controllers(settings)) or DEFAULT_ADDRESS
        private = add_private_listener(settings) if http is not None and command_config is None else None
        data_dir = data or _first(settings, "log.dirs") or _first(settings, "log.dir") or DEFAULT_DATA
        broker = Broker(
            data_dir=data_dir,
            settings=settings,
            users=_new_users(add_scram),
            on_failure=lambda _: stopping.set(),
        )
    except (OSError, ValueError, Refused) as error:
        return _refuse(str(error))
    try:
        with few_collections():
            broker.start()
    except (ValueError, DirectoryLocked, UnknownFormat, MetadataError, KafkaError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(_explain(error, settings["listeners"], data_dir))
    except KeyboardInterrupt:
        return _refuse("interrupted while starting; nothing is lost")
    stopping.listen()
    dashboard: WebServer | None = None
    where = ""
    if http is not None:
        try:
            login = _read_login(command_config)
            dashboard, where = _open_dashboard(broker, http, login, access or Access(), private)
        except (OSError, ValueError, KafkaError, Refused) as error:
            broker.stop()
            return _refuse(error.strerror if isinstance(error, OSError) and error.strerror else str(error))
    keep_from_collections()
    print(f"listening on {broker.bootstrap_servers}", flush=True)
    if dashboard is not None:
        print(f"dashboard on {where}", flush=True)
    notify("READY=1")
    stopping.wait()
    notify("STOPPING=1")
    if dashboard is not None:
        dashboard.stop()
    broker.stop()
    return 0 if broker.failure is None else 1


def allow_open_files() -> None:
    """As many as the system lets this process have, as Java does: each connection needs one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS has no limit here, and refuses to set none
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


@contextmanager
def few_collections() -> Iterator[None]:
    """What a start reads stays. Searching all of it for garbage over and over would take a third of a long start."""
    usual = gc.get_threshold()
    gc.set_threshold(*COLLECT_RARELY)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def keep_from_collections() -> None:
    """What a start has read stays for good, and with thousands of partitions a full collection over all of it would
    stop the event loop for a tenth of a second and more."""
    gc.collect()
    gc.freeze()


def _new_users(add_scram: Sequence[str]) -> list[NewScramUser]:
    """Those of the option and of the environment, which other users of the machine cannot read."""
    return [parse_new_user(text) for text in [*add_scram, *os.environ.get(USERS_VARIABLE, "").splitlines()]]


def _read_login(command_config: Path | None) -> dict[str, str]:
    try:
        return read_properties(command_config) if command_config is not None else {}
    except OSError as error:
        raise ValueError(f"--command-config {command_config} cannot be read: {error.strerror}") from None


def _address_for(broker: Broker, login: Mapping[str, str]) -> str:
    """Of the listener that the dashboard's login is for."""
    protocol = login.get("security.protocol", "PLAINTEXT").upper()
    for listener in broker.listeners:
        if listener.protocol.value == protocol:
            return broker.address_of(listener.name)
    raise Refused(
        f"--http: the broker has no {protocol} listener for the dashboard. Give its login with --command-config FILE, "
        "with security.protocol and the other settings of a client"
    )


def _open_dashboard(
    broker: Broker,
    http: str,
    login: Mapping[str, str],
    access: Access,
    private: PrivateListener | None,
) -> "tuple[WebServer, str]":
    """With a login of its own, the dashboard may do what that user may; without, it has its private listener."""
    from headrace.web.embedded import EmbeddedView

    if private is not None:
        login = private.client_settings(broker)
    own = {"bootstrap.servers": _address_for(broker, login), "client.id": "headrace-dashboard"}
    settings = {**own, **login}
    is_guarded = private is not None or bool(login)
    for name in sorted(names_of(access.viewers) | names_of(access.operators)):
        if name != "*" and not broker.core.users.credentials(name):
            logger.warning(
                "user %s cannot log in to the dashboard: it has no SCRAM credentials. Add them: headrace user add %s",
                name,
                name,
            )
    return open_dashboard(settings, http, access, detail=EmbeddedView(broker), is_guarded=is_guarded)


def _require_known(typed: Mapping[str, str], *, force: bool) -> None:
    """What was typed by hand is a mistake if no setting has that name; a file may be meant for another broker."""
    unknown = [] if force else unknown_settings(typed)
    if unknown:
        said = "\n".join(f"--set: {one}" for one in unknown)
        raise ValueError(f"{said}\nCorrect the name, or use --force to ignore it.")


def _read(config: Path | None) -> dict[str, str]:
    if config is None:
        return {}
    try:
        return read_properties(config)
    except OSError as error:
        raise ValueError(f"--config {config} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"--config {config} cannot be read: {error}") from None


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
