"""The command's table of contents: what each subcommand takes. What it does is in its own file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli import backup, bench, consume, dlq, group, log, produce, state, top, topic, web
from headrace.cli.demo.command import demo
from headrace.cli.failures import CommandGroup
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
    *("produce", "consume", "dlq"),
    *("topic", "group", "top", "state"),
)


class _InOrder(CommandGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(super().list_commands(ctx), key=ORDER.index)


app = typer.Typer(
    name="headrace", cls=_InOrder, help=HELP, no_args_is_help=True, pretty_exceptions_enable=False
)
app.command(rich_help_panel=RECORDS)(produce.produce)
app.command(rich_help_panel=RECORDS)(consume.consume)
app.add_typer(dlq.app, name="dlq", rich_help_panel=RECORDS)
app.add_typer(topic.app, name="topic", rich_help_panel=LOOK)
app.add_typer(group.app, name="group", rich_help_panel=LOOK)
app.command(rich_help_panel=RUN)(backup.backup)
app.add_typer(log.app, name="log", rich_help_panel=RUN)
app.command(rich_help_panel=LOOK)(state.state)
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
        Path | None, typer.Option(help="A server.properties file. --set overrides it.", dir_okay=False)
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Also serve the dashboard, /metrics, /healthz and /readyz at this address.",
        ),
    ] = None,
    token: web.Token = None,
    read_only: Annotated[
        bool, typer.Option("--read-only", help="With --http: do not allow changes in the dashboard.")
    ] = False,
    help_settings: Annotated[
        bool,
        typer.Option("--help-settings", callback=_print_settings, is_eager=True, help="List every setting."),
    ] = False,
) -> None:
    """Run a broker until it is stopped (Ctrl+C or SIGTERM).

    Example: headrace serve --listen localhost:9092 --data ./orders --set num.partitions=3 --http localhost:8080
    """
    from headrace.cli.serve import run

    raise typer.Exit(run(listen, data, settings or [], config, http=http, token=token, read_only=read_only))


@app.command(rich_help_panel=RUN)
def worker(
    queue: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:QUEUE", help="The module and the name of the Queue, for example mail:queue."
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
        list[str] | None, typer.Option("-X", metavar="KEY=VALUE", help="A client setting. Can be repeated.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--command-config",
            help="A properties file with client settings. -X overrides it.",
            dir_okay=False,
        ),
    ] = None,
    http: Annotated[
        str | None,
        typer.Option(
            "--http", metavar="HOST:PORT", help="Serve /metrics (Prometheus) and /healthz at this address."
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Log every task run.")] = False,
) -> None:
    """Run the tasks of a queue until it is stopped.

    Ctrl+C or SIGTERM finishes the tasks that run. A second one stops at once.

    Example: headrace worker mail:queue -b localhost:9092
    """
    from headrace.cli.worker import run

    raise typer.Exit(run(queue, servers, settings or [], config, verbose=verbose, http=http))
