"""The command's table of contents: what each subcommand takes. What it does is in its own file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli import (
    acl,
    backup,
    bench,
    consume,
    dlq,
    explain,
    group,
    log,
    outbox,
    produce,
    read,
    schedule,
    state,
    top,
    topic,
    user,
    web,
)
from headrace.cli.demo.command import demo
from headrace.cli.environment import name_variables
from headrace.cli.failures import CommandGroup
from headrace.cli.logs import Form, Level, LogFormat, LogLevel
from headrace.version import __version__

RUN, RECORDS, LOOK = "Run", "Produce and consume", "Manage topics and groups"
HELP = """Kafka as a queue, in Python, processed on Spark.

A topic holds records. The members of a share group process them like jobs
from a queue: each record goes to one member, which accepts it, releases it
for another delivery, or rejects it.

\b
headrace serve                                       # on localhost:9092
headrace topic create orders --partitions 2
headrace produce orders < orders.txt                 # one record per line
headrace consume orders -g kitchen --from-beginning  # in several terminals
headrace group describe kitchen                      # shows the lag
"""
ORDER = (
    *("serve", "worker", "web", "demo", "backup", "log", "bench"),
    *("produce", "consume", "read", "dlq", "schedule", "outbox"),
    *("topic", "group", "user", "acl", "top", "state", "explain"),
)


class _InOrder(CommandGroup):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        name_variables(self)

    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    name="headrace", cls=_InOrder, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False
)
app.command(rich_help_panel=RECORDS)(produce.produce)
app.command(rich_help_panel=RECORDS)(consume.consume)
app.command(rich_help_panel=RECORDS)(read.read)
app.add_typer(dlq.app, name="dlq", rich_help_panel=RECORDS)
app.add_typer(schedule.app, name="schedule", rich_help_panel=RECORDS)
app.add_typer(outbox.app, name="outbox", rich_help_panel=RECORDS)
app.add_typer(topic.app, name="topic", rich_help_panel=LOOK)
app.add_typer(group.app, name="group", rich_help_panel=LOOK)
app.add_typer(user.app, name="user", rich_help_panel=LOOK)
app.add_typer(acl.app, name="acl", rich_help_panel=LOOK)
app.command(rich_help_panel=RUN)(backup.backup)
app.add_typer(log.app, name="log", rich_help_panel=RUN)
app.command(rich_help_panel=LOOK)(state.state)
app.command(rich_help_panel=LOOK)(explain.explain)
app.command(rich_help_panel=LOOK)(top.top)
app.command(rich_help_panel=RUN)(demo)
app.command(rich_help_panel=RUN)(web.web)
app.command(rich_help_panel=RUN, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(
    bench.bench
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"headrace {__version__}")
        raise typer.Exit


def _print_settings(wanted: bool) -> None:
    if wanted:
        from headrace.broker.settings import render_help

        typer.echo(render_help())
        raise typer.Exit


@app.callback()
def headrace(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(rich_help_panel=RUN)
def serve(
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="The address to listen on. Port 0 chooses a free port. Overrides `listeners`.",
            show_default="localhost:9092",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The data directory. `:memory:` stores nothing on disk. Overrides `log.dirs`.",
            show_default="./headrace-data",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A broker setting. Can be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A server.properties file. --set overrides it.", dir_okay=False),
    ] = None,
    add_scram: Annotated[
        list[str] | None,
        typer.Option(
            "--add-scram",
            metavar="USER",
            help="Add a user unless it exists: 'SCRAM-SHA-512=\\[name=ann,password=pw]'. Can be repeated. "
            "The environment variable HEADRACE_ADD_SCRAM has users, too, one per line.",
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Also serve the dashboard, /metrics, /healthz and /readyz at this address.",
        ),
    ] = None,
    command_config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            dir_okay=False,
            help="With --http: a properties file with client settings, for the dashboard's own login.",
        ),
    ] = None,
    token: web.Token = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="With --http: do not allow changes in the dashboard.")
    ] = False,
    certificate: web.Certificate = None,
    key: web.CertificateKey = None,
    viewers: web.Viewers = None,
    operators: web.Operators = None,
    session_minutes: web.SessionMinutes = 60,
    metrics_token: web.MetricsToken = None,
    trusted_proxies: web.TrustedProxies = None,
    watch: web.Watch = None,
    log_level: Level = LogLevel.INFO,
    log_format: Form = LogFormat.TEXT,
    force: Annotated[
        bool, typer.Option("--force", help="Start even if a name in --set is not that of a setting.")
    ] = False,
    help_settings: Annotated[
        bool,
        typer.Option("--help-settings", callback=_print_settings, is_eager=True, help="List every setting."),
    ] = False,
) -> None:
    """Run a broker until it is stopped (Ctrl+C or SIGTERM).

    Every option can be set in the environment: --log-level is
    HEADRACE_SERVE_LOG_LEVEL.

    \b
    headrace serve
    headrace serve --config /etc/headrace/server.properties
    headrace serve --data ./orders --set num.partitions=3 --http localhost:8080
    """
    from headrace.cli.serve import run

    code = run(
        listen,
        data,
        settings or [],
        config,
        add_scram=add_scram or [],
        http=http,
        command_config=command_config,
        access=web.Access(
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
        ),
        force=force,
        log_level=log_level,
        log_format=log_format,
    )
    raise typer.Exit(code)


@app.command(rich_help_panel=RUN)
def worker(
    queues: Annotated[
        list[str],
        typer.Argument(
            metavar="MODULE:QUEUE...", help="The module and the name of each Queue, for example mail:queue."
        ),
    ],
    servers: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--bootstrap-server",
            metavar="HOST:PORT",
            envvar="HEADRACE_BOOTSTRAP_SERVER",
            help="Use these brokers instead of those of the queue.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("-X", "--setting", metavar="KEY=VALUE", help="A client setting. Can be repeated."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="A properties file with client settings. -X overrides it.",
            dir_okay=False,
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Serve /metrics (Prometheus), /api/v1/worker (JSON) and /healthz at this address. Of several "
            "processes, each uses the next port.",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option("--processes", metavar="N", min=1, max=1_000, help="How many workers to run.")
    ] = 1,
    reload: Annotated[
        bool,
        typer.Option("--reload", help="Restart when Python files below this folder change. For development."),
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log every task run.")] = False,
    log_level: Level = LogLevel.WARNING,
    log_format: Form = LogFormat.TEXT,
) -> None:
    """Run the tasks of one or more queues until they are stopped.

    Ctrl+C or SIGTERM finishes the tasks that run. A second one stops at once.

    \b
    headrace worker mail:queue -b localhost:9092
    headrace worker mail:queue images:queue --processes 4
    headrace worker mail:queue --reload
    """
    from headrace.cli.worker import run, supervise

    if processes > 1 or reload:
        options = [
            *(["-b", servers] if servers is not None else []),
            *(part for each in settings or [] for part in ("-X", each)),
            *(["--command-config", str(config)] if config is not None else []),
            *(["-v"] if verbose else []),
            *("--log-level", log_level.value, "--log-format", log_format.value),
        ]
        raise typer.Exit(supervise(queues, options, processes=processes, reload=reload, http=http))
    code = run(
        queues,
        servers,
        settings or [],
        config,
        verbose=verbose,
        http=http,
        log_level=log_level,
        log_format=log_format,
    )
    raise typer.Exit(code)
