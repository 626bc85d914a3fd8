"""`headrace outbox`: the records that programs have stored with `send(transaction=...)`."""

import contextlib
import signal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from headrace.cli.failures import Refused, say
from headrace.cli.options import CommandConfig, Server, Settings

app = typer.Typer(help="Send the records of a transactional outbox.", no_args_is_help=True)


class Dialect(StrEnum):
    POSTGRESQL = "postgresql"
    SQLITE = "sqlite"


@app.command()
def relay(
    queue: Annotated[str, typer.Argument(metavar="MODULE:QUEUE", help="A Queue(..., database=...).")],
    until_empty: Annotated[
        bool,
        typer.Option("--until-empty", help="Stop when the outbox is empty, instead of waiting for more."),
    ] = False,
    timeout: Annotated[
        float,
        typer.Option(
            "--timeout", metavar="SECONDS", min=0, help="With --until-empty: fail after this many seconds."
        ),
    ] = 60.0,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
) -> None:
    """Send the records in the outbox of a queue until Ctrl+C or SIGTERM.

    Workers of the queue do this by themselves. Use it where no worker runs.
    Several relays can run: one sends, and the others take over when it ends.

    \b
    headrace outbox relay shop:queue -b localhost:9092
    headrace outbox relay shop:queue --until-empty
    """
    import asyncio

    found = _open(queue, server, settings, command_config)
    left = asyncio.run(_relay(found, timeout if until_empty else None))
    if until_empty and left:
        raise Refused(f"{left} records are still in the outbox after {timeout:g} s")
    say("the outbox is empty" if until_empty else "stopped")


@app.command()
def schema(
    dialect: Annotated[Dialect, typer.Argument(help="The kind of database.")] = Dialect.POSTGRESQL,
) -> None:
    """Print the statements that create the tables of inbox and outbox, for your migrations.

    \b
    headrace outbox schema postgresql
    headrace outbox schema sqlite > migrations/0007_outbox.sql
    """
    from headrace.worker.transactions.statements import schema as statements

    typer.echo("".join(f"{text};\n" for text in statements(dialect.value)).rstrip())


def _open(place: str, server: str | None, settings: list[str] | None, command_config: Path | None) -> Any:
    from headrace.cli.options import client_settings
    from headrace.cli.worker import find_queue
    from headrace.worker.errors import QueueError

    try:
        queue = find_queue(place)
        if server or settings or command_config:
            given = client_settings(server, settings, command_config)
            queue.configure(bootstrap_servers=given.pop("bootstrap.servers", None), settings=given)
    except QueueError as error:
        raise Refused(str(error)) from None
    if queue.database is None:
        raise Refused(f"{place} has no database: declare Queue(..., database=...)")
    return queue


async def _relay(queue: Any, seconds: float | None) -> int:
    import asyncio

    relaying = asyncio.ensure_future(queue.relay_outbox(seconds=seconds))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, relaying.cancel)
    if seconds is None:
        say(
            f"relaying the outbox of group {queue.group_id} in {queue.database.name} to {queue.bootstrap_servers}"
        )
    with contextlib.suppress(asyncio.CancelledError):
        left: int = await relaying
        return left
    return 0
