"""`headrace read`: looks at the records of a topic outside any group. Nothing is acquired or committed."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.consume import Output, chosen_format
from headrace.cli.failures import Refused
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    TopicName,
    client_settings,
    find_topic,
    open_admin,
)
from headrace.cli.starting_points import OLDEST, StartingPoint, parse_start

if TYPE_CHECKING:
    from headrace.client.admin.results import TopicDescription

LAST = StartingPoint(last=10)


def read(
    topic: TopicName,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition. Can be repeated."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--offset",
            "-o",
            metavar="START",
            help="An offset, -N for the last N records of each partition, @TIME, beginning or end. "
            "Default: -10, or beginning with --key or --grep.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", metavar="KEY", help="Only records with this key.")
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="REGEX", help="Only records whose value matches this pattern."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for new records. Ctrl+C stops it.")
    ] = False,
    maximum: Annotated[
        int | None, typer.Option("--max", "-n", metavar="N", min=1, help="Stop after this number of records.")
    ] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Include records of open and aborted transactions.")
    ] = False,
    format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="TEXT", help="As kcat's: %t %p %o %T %k %s %h %K %S %R, \\n \\t \\xNN."
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also print the timestamp, partition, offset, headers and key."),
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Print records of a topic without joining a group.

    No group loses or gains a record. TIME in --offset is a time in UTC
    (2026-11-15T12:30), milliseconds since 1970, or a time ago (-15m, -2h).

    \b
    headrace read orders
    headrace read orders -p 0 -o 17 -n 1 --json
    headrace read orders -o @-15m --grep '"status": *"failed"'
    headrace read orders --key customer-7 -f
    """
    from headrace.cli.reading import RecordFilter, print_records

    has_filter = key is not None or grep is not None
    point = parse_start(start) if start is not None else OLDEST if has_filter else LAST
    wanted = RecordFilter(
        key=None if key is None else key.encode(),
        pattern=None if grep is None else _compile(grep),
        follow=follow,
        committed=not uncommitted,
    )
    out = Output(
        chosen_format(format, verbose=verbose, json=json, is_share=False), perf=False, maximum=maximum
    )
    given = client_settings(server, settings, command_config)
    with open_admin(given) as admin:
        places = _places(find_topic(admin, topic), partitions)
    print_records(given, places, point, wanted, out, grows=topic if not partitions else None)


def _compile(grep: str) -> "re.Pattern[bytes]":
    try:
        return re.compile(grep.encode())
    except re.error as error:
        raise typer.BadParameter(
            f"{grep!r} is not a regular expression: {error}", param_hint="--grep"
        ) from None


def _places(topic: "TopicDescription", partitions: list[int] | None) -> list[tuple[str, int]]:
    known = [one.partition for one in topic.partitions]
    for index in partitions or ():
        if index not in known:
            raise Refused(f"topic {topic.name!r} has no partition {index}; it has 0 to {len(known) - 1}.")
    return [(topic.name, index) for index in sorted(set(partitions or known))]
