"""`headrace produce`: lines, files or made-up records into a topic, as fast as they come or at a rate."""

import sys
from collections.abc import AsyncIterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.failures import INTERRUPTED, Refused, say
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    TopicName,
    client_settings,
    find_topic,
    open_admin,
    pairs,
)
from headrace.cli.render import count, print_json, progress

if TYPE_CHECKING:
    from headrace.cli.inputs import Input
    from headrace.cli.sending import Tally

PERF_COUNT, PERF_SIZE = 100_000, 100
REQUEST_BYTES_MAX = 100 * 1024 * 1024
"""Above what brokers take, so that they decide (`max.message.bytes`)."""


class CompressionChoice(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: TopicName,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[FILE]...",
            help="Read these files instead of standard input.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator",
            "-K",
            metavar="TEXT",
            help="The text that separates the key from the value in each line.",
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option(
            "--header", "-H", metavar="NAME=VALUE", help="A header to add to each record. Can be repeated."
        ),
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option(
            "--partition",
            "-p",
            metavar="N",
            min=0,
            help="Send all records to this partition.",
            show_default="by key, otherwise random",
        ),
    ] = None,
    compression: Annotated[
        CompressionChoice | None,
        typer.Option(
            "--compression",
            "-z",
            metavar="CODEC",
            help="The compression of record batches: none, gzip, snappy, lz4 or zstd.",
        ),
    ] = None,
    whole: Annotated[
        bool, typer.Option("--whole", help="Send each file as one record instead of one record per line.")
    ] = False,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", metavar="N", help="The maximum number of records per second.", show_default="no limit"
        ),
    ] = None,
    number: Annotated[
        int | None,
        typer.Option("--count", "-c", metavar="N", min=1, help="Stop after this number of records."),
    ] = None,
    perf: Annotated[
        bool,
        typer.Option("--perf", help=f"Send made-up records ({PERF_COUNT:,}, or --count) and print how fast."),
    ] = False,
    size: Annotated[
        int,
        typer.Option("--size", metavar="BYTES", min=0, help="The size of each value in bytes, with --perf."),
    ] = PERF_SIZE,
    create: Annotated[bool, typer.Option("--create", help="Create the topic if it does not exist.")] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Send records to a topic: the lines of standard input or of files.

    \b
    echo "two coffees" | headrace produce orders
    headrace produce orders orders.txt --key-separator : --header source=web
    headrace produce orders --perf --count 10000 --size 10
    headrace produce orders --perf --count 1000 --rate 50
    """
    from headrace.cli import inputs
    from headrace.cli.plain_clients import for_admin
    from headrace.cli.sending import Tally, Target, send
    from headrace.client.settings import ProducerSettings

    if rate is not None and rate <= 0:
        raise typer.BadParameter(
            f"{rate:g} records per second is not a rate; it must be more than 0", param_hint="--rate"
        )
    if key_separator == "":
        raise typer.BadParameter(
            "the separator between key and value must not be empty", param_hint="--key-separator"
        )
    if perf and (files or whole):
        raise typer.BadParameter("--perf generates its records; omit the files")
    if whole and not files:
        raise typer.BadParameter("--whole sends files; give at least one")
    given = client_settings(server, settings, command_config)
    fixed = [(name, value.encode()) for name, value in pairs(headers, "--header")]
    if compression is not None:
        given = {name: value for name, value in given.items() if name != "compression.codec"}
        given["compression.type"] = compression.value
    options = ProducerSettings.parse({"max.request.size": REQUEST_BYTES_MAX, **given})
    if options.transactional_id:
        raise Refused("`headrace produce` sends without transactions; leave transactional.id out")
    with open_admin(for_admin(given)) as admin:
        if create and all(one.name != topic for one in admin.list_topics()):
            admin.create_topic(topic, -1)
        partitions = len(find_topic(admin, topic).partitions)
    if partition is not None and partition >= partitions:
        raise Refused(f"topic {topic!r} has no partition {partition}, only 0 to {partitions - 1}.")
    if perf:
        number = number or PERF_COUNT
    elif not files and sys.stdin.isatty():
        say(f"Type records for {topic}, one per line; Ctrl+D ends.")
    total = number if perf else sum(file.stat().st_size for file in files or ()) or None
    with progress(f"to {topic}", total, in_bytes=not perf) as advance:
        source: AsyncIterator[Input]
        if perf:
            source = inputs.made_up(number or PERF_COUNT, size)
        elif whole:
            source = inputs.whole(files or [])
        else:
            separator = key_separator.encode() if key_separator is not None else None
            source = inputs.lines(files or [], key_separator=separator, advance=advance)
        tally = Tally(advance if perf else _not_shown, report=_say_line if perf and not json else None)
        target = Target(topic, partition, fixed)
        was_interrupted = send(options, source, tally, target, rate=rate, number=number)
    _tell(tally, topic, perf=perf, json=json)
    if tally.error is not None:
        raise Refused(_failure(tally, topic))
    if was_interrupted:
        raise typer.Exit(INTERRUPTED)


def _not_shown(_: int) -> None: ...


def _say_line(text: str) -> None:
    typer.echo(text)


def _tell(tally: "Tally", topic: str, *, perf: bool, json: bool) -> None:
    if json:
        print_json({"topic": topic, **tally.figures()})
    elif perf:
        typer.echo(tally.line())
    else:
        say(f"Produced {count(tally.acknowledged, 'record')} to {topic}.")


def _failure(tally: "Tally", topic: str) -> str:
    from headrace.cli.failures import explain

    assert isinstance(tally.error, Exception)
    lost = tally.sent - tally.acknowledged
    return f"{count(lost, 'record')} of {tally.sent:,} for topic {topic!r} not acknowledged: {explain(tally.error)}"
