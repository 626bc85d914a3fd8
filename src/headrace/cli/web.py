"""`headrace web`: the dashboard for any Kafka; and what `headrace serve --http` shares with it."""

import secrets
import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.failures import Refused
from headrace.cli.options import CommandConfig, Server, Settings, client_settings, require_listener

if TYPE_CHECKING:
    from headrace.client.settings import ClientSettings
    from headrace.web.embedded import Detail
    from headrace.web.server import WebServer

DEFAULT_LISTEN = "localhost:8080"
TOKEN_VARIABLE = "HEADRACE_WEB_TOKEN"

Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar=TOKEN_VARIABLE,
        help="Require this token. Default: none on loopback, otherwise a random one, which is printed.",
        show_default=False,
    ),
]


def web(
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="The address of the dashboard. Port 0 chooses a free port."),
    ] = DEFAULT_LISTEN,
    token: Token = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Do not allow changes.")] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
) -> None:
    """Serve a dashboard of a cluster: groups, in-flight records, topics, dead letters. Ctrl+C stops it.

    For a Headrace broker, `headrace serve --http` also shows the member that holds each record and the end of its lock.

    \b
    headrace web -b localhost:9092
    headrace web -b kafka:9092 --listen 0.0.0.0:8080 --read-only
    """
    from headrace.client.settings import ClientSettings

    parsed = ClientSettings.parse(client_settings(server, settings, command_config))
    require_listener(parsed.bootstrap_servers)
    stopping = threading.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, lambda *_: stopping.set())
    dashboard, address = open_dashboard(parsed, listen, token=token, read_only=read_only)
    try:
        typer.echo(f"dashboard on {address}")
        stopping.wait()
    finally:
        dashboard.stop()


def open_dashboard(
    settings: "ClientSettings",
    listen: str,
    *,
    token: str | None,
    read_only: bool,
    detail: "Detail | None" = None,
) -> "tuple[WebServer, str]":
    """The running dashboard, and the address to print: with its token, if that was made up here."""
    from headrace.broker.addresses import parse_address

    try:
        from headrace.web.options import WebOptions, is_loopback
        from headrace.web.server import WebServer
    except ModuleNotFoundError as error:
        raise Refused(
            f"the dashboard needs {error.name}, which is not installed: pip install 'headrace[web]'"
        ) from None
    host, port = parse_address(listen)
    made_up = None if token is not None or is_loopback(host) else secrets.token_urlsafe(24)
    options = WebOptions(host=host, port=port, token=token or made_up, is_read_only=read_only)
    dashboard = WebServer(settings, options, detail).start()
    return dashboard, dashboard.url + (f"/?token={made_up}" if made_up else "")
