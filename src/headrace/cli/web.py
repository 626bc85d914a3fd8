"""`headrace web`: the dashboard for any Kafka; and what `headrace serve --http` shares with it."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.failures import Refused
from headrace.cli.logs import Form, Level, LogFormat, LogLevel, configure
from headrace.cli.options import CommandConfig, Server, Settings, client_settings, require_listener
from headrace.cli.stopping import Stopping

if TYPE_CHECKING:
    from headrace.web.embedded import EmbeddedView
    from headrace.web.options import WebOptions
    from headrace.web.server import WebServer

DEFAULT_LISTEN = "localhost:8080"
TOKEN_VARIABLE = "HEADRACE_WEB_TOKEN"
METRICS_TOKEN_VARIABLE = "HEADRACE_METRICS_TOKEN"

Token = Annotated[
    str | None,
    typer.Option(
        "--token",
        metavar="TOKEN",
        envvar=TOKEN_VARIABLE,
        help="Require this token, of at least 16 characters. Default: none on loopback, otherwise a random "
        "one, which is printed.",
        show_default=False,
    ),
]


_ACCESS = "Access to the dashboard"
Certificate = Annotated[
    Path | None,
    typer.Option(
        "--certificate",
        metavar="FILE",
        dir_okay=False,
        help="A PEM file with a certificate and its chain: the dashboard uses HTTPS.",
        rich_help_panel=_ACCESS,
    ),
]
CertificateKey = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        dir_okay=False,
        help="The private key, if it is not in the file of the certificate.",
        rich_help_panel=_ACCESS,
    ),
]
Viewers = Annotated[
    list[str] | None,
    typer.Option(
        "--viewer",
        metavar="NAME",
        help="A user who may log in and view the dashboard; * stands for every user of the cluster. Can be repeated.",
        rich_help_panel=_ACCESS,
    ),
]
Operators = Annotated[
    list[str] | None,
    typer.Option(
        "--operator",
        metavar="NAME",
        help="A user who may log in and make changes. Can be repeated.",
        rich_help_panel=_ACCESS,
    ),
]
SessionMinutes = Annotated[
    int,
    typer.Option(
        "--session-timeout",
        metavar="MINUTES",
        min=1,
        help="Log users out after this time without a request.",
        rich_help_panel=_ACCESS,
    ),
]
MetricsToken = Annotated[
    str | None,
    typer.Option(
        "--metrics-token",
        metavar="TOKEN",
        envvar=METRICS_TOKEN_VARIABLE,
        help="Require this token for /metrics. It gives access to nothing else.",
        show_default=False,
        rich_help_panel=_ACCESS,
    ),
]


TrustedProxies = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS",
        help="A reverse proxy (an address or a network) whose X-Forwarded-For and X-Forwarded-Proto headers are "
        "used. Can be repeated.",
        rich_help_panel=_ACCESS,
    ),
]
Watch = Annotated[
    list[str] | None,
    typer.Option(
        "--watch",
        metavar="HOST:PORT",
        help="Show this worker (`headrace worker --http`) or Spark program in the dashboard; for a name of several "
        "hosts, each of them. Can be repeated.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Who may use a dashboard."""

    token: str | None = field(default=None, repr=False)
    read_only: bool = False
    certificate: Path | None = None
    key: Path | None = None
    viewers: list[str] | None = None
    operators: list[str] | None = None
    session_minutes: int = 60
    metrics_token: str | None = field(default=None, repr=False)
    trusted_proxies: list[str] | None = None
    watch: list[str] | None = None


def web(
    listen: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="The address of the dashboard. Port 0 chooses a free port."),
    ] = DEFAULT_LISTEN,
    token: Token = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Do not allow changes.")] = False,
    certificate: Certificate = None,
    key: CertificateKey = None,
    viewers: Viewers = None,
    operators: Operators = None,
    session_minutes: SessionMinutes = 60,
    metrics_token: MetricsToken = None,
    trusted_proxies: TrustedProxies = None,
    watch: Watch = None,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    log_level: Level = LogLevel.INFO,
    log_format: Form = LogFormat.TEXT,
) -> None:
    """Serve a dashboard of a cluster: groups, in-flight records, topics, dead letters. Ctrl+C stops it.

    For a Headrace broker, `headrace serve --http` also shows the member that holds each record and the end of its lock.

    \b
    headrace web -b localhost:9092
    headrace web -b kafka:9092 --listen 0.0.0.0:8080 --read-only
    headrace web --certificate web.pem --operator alice --viewer '*'
    """
    from headrace.client.settings import ClientSettings

    configure(log_level, log_format)
    given = client_settings(server, settings, command_config)
    parsed = ClientSettings.parse(given)
    require_listener(parsed.bootstrap_servers)
    stopping = Stopping()
    stopping.listen()
    access = Access(
        token=token,
        read_only=read_only,
        certificate=certificate,
        key=key,
        viewers=viewers,
        operators=operators,
        session_minutes=session_minutes,
        metrics_token=metrics_token,
        trusted_proxies=trusted_proxies,
        watch=watch,
    )
    dashboard, address = open_dashboard(given, listen, access)
    try:
        typer.echo(f"dashboard on {address}")
        stopping.wait()
    finally:
        dashboard.stop()


def open_dashboard(
    settings: Mapping[str, str],
    listen: str,
    access: Access,
    *,
    detail: "EmbeddedView | None" = None,
    is_guarded: bool = False,
) -> "tuple[WebServer, str]":
    """The running dashboard, and the address to print: with its token, if that was made up here.

    `is_guarded`: the cluster knows its users, so the dashboard is not open to whoever is on this machine, either.
    """
    options, made_up = check_options(listen, access, is_guarded=is_guarded)
    from headrace.cli.web_schedule import schedules_of
    from headrace.client.settings import ClientSettings
    from headrace.web.server import WebServer

    dashboard = WebServer(ClientSettings.parse(settings), options, detail, schedules_of(settings)).start()
    return dashboard, dashboard.url + (f"/?token={made_up}" if made_up else "")


def check_options(
    listen: str, access: Access, *, is_guarded: bool = False
) -> "tuple[WebOptions, str | None]":
    """How the dashboard is run, and its token if that was made up here. ValueError says what is wrong with it."""
    from headrace.broker.addresses import parse_address

    for process in access.watch or ():
        parse_address(process)
    host, port = parse_address(listen)
    try:
        import headrace.web.server  # noqa: F401
        from headrace.web.options import WebOptions, is_loopback
    except ModuleNotFoundError as error:
        raise Refused(
            f"the dashboard needs {error.name}, which is not installed: pip install 'headrace[web]'"
        ) from None
    is_open = access.token is None and not access.viewers and not access.operators
    made_up = secrets.token_urlsafe(24) if is_open and (is_guarded or not is_loopback(host)) else None
    options = WebOptions(
        host=host,
        port=port,
        token=access.token or made_up,
        is_read_only=access.read_only,
        certificate=access.certificate,
        key=access.key,
        viewers=names_of(access.viewers),
        operators=names_of(access.operators),
        session_s=access.session_minutes * 60.0,
        metrics_token=access.metrics_token,
        trusted_proxies=tuple(access.trusted_proxies or ()),
        processes=tuple(access.watch or ()),
    )
    return options, made_up


def names_of(given: list[str] | None) -> frozenset[str]:
    """With or without the type of the principal."""
    return frozenset(name.removeprefix("User:") for name in given or ())
