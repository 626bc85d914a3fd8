"""`headrace dlq`: dead letters by cause, one with all it says, and the way back (redrive)."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from headrace.base.text import printable_lines
from headrace.cli.failures import Refused, say
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    client_settings,
    complete_group,
    complete_topic,
    open_admin,
)
from headrace.cli.render import count, print_json, print_table

if TYPE_CHECKING:
    from headrace.client.admin import Admin
    from headrace.client.dead_letters import DeadLetter, DeadLetterCause, Listing, RedriveResult
    from headrace.wire.records import Record

app = typer.Typer(help="List dead letters and send them back to their original topics.", no_args_is_help=True)
TOPIC_CONFIG = "errors.deadletterqueue.topic.name"
TRACEBACK = "headrace.dlq.traceback"
LETTERS_SHOWN_MAX = 50


def _complete(ctx: typer.Context, incomplete: str) -> list[str]:
    return complete_group(ctx, incomplete) + complete_topic(ctx, incomplete)


Name = Annotated[
    str,
    typer.Argument(
        metavar="GROUP|TOPIC", help="A share group, or a dead-letter topic.", autocompletion=_complete
    ),
]


class DlqSelection(NamedTuple):
    """Where dead letters lie, and whose are meant; None for everybody's."""

    topic: str
    group_id: str | None


@app.command("list")
def list_letters(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[GROUP|TOPIC]",
            help="A share group or a dead-letter topic. Default: all dead-letter topics.",
            autocompletion=_complete,
        ),
    ] = None,
    letters: Annotated[
        bool, typer.Option("--letters", help="List every dead letter, not only the causes.")
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """List the causes of dead letters, the most frequent first.

    WAITING dead letters can be sent back. CLAIMED ones may already have been
    sent back by a redrive that was interrupted.

    \b
    headrace dlq list
    headrace dlq list mailers
    headrace dlq list dlq.emails --letters
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        boxes = (
            [_box(admin, name)]
            if name
            else [DlqSelection(topic, None) for topic in admin.dead_letter_topics()]
        )
        if not boxes:
            say(
                "There are no dead-letter topics: no share group names one, and no topic's name looks like one."
            )
        listings = [_of_group(admin.dead_letters(box.topic), box.group_id) for box in boxes]
    if json:
        print_json([_as_json(one, letters) for one in listings])
        return
    for number, listing in enumerate(listings):
        if number:
            typer.echo()
        _print_listing(listing, letters)


@app.command()
def show(
    name: Name,
    letter: Annotated[
        str | None,
        typer.Argument(
            metavar="[PARTITION@OFFSET]",
            help="The position, as shown by `dlq list --letters`. Default: the newest dead letter.",
        ),
    ] = None,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show one dead letter: its original position, its cause, its headers and its value.

    \b
    headrace dlq show mailers
    headrace dlq show mailers 0@17
    """
    place = None if letter is None else _parse_place(letter)
    with open_admin(client_settings(server, settings, command_config)) as admin:
        box = _box(admin, name)
        listing = _of_group(admin.dead_letters(box.topic), box.group_id)
        if place is None:
            found = max(listing.letters, key=lambda one: one.timestamp, default=None)
        else:
            found = next((one for one in listing.letters if (one.partition, one.offset) == place), None)
        if found is None:
            if letter is None:
                raise Refused(f"there are no dead letters in {box.topic}.")
            raise Refused(
                f"there is no dead letter {letter} in {box.topic}; `headrace dlq list {name} --letters` shows all."
            )
        record = admin.dead_letter(box.topic, found.partition, found.offset)
    if json:
        print_json(
            {
                "letter": found,
                "key": _body(record.key),
                "value": _body(record.value),
                "headers": [{"name": key, "value": _body(value)} for key, value in record.headers],
            }
        )
    else:
        _print_letter(found, record)


@app.command()
def redrive(
    name: Name,
    cause: Annotated[
        str | None,
        typer.Option(
            "--cause", metavar="ID", help="Only dead letters with this cause, as shown by `dlq list`."
        ),
    ] = None,
    maximum: Annotated[
        int | None,
        typer.Option(
            "--max", "-n", metavar="N", min=1, help="Only this number of dead letters, oldest first."
        ),
    ] = None,
    letter: Annotated[
        str | None,
        typer.Option("--letter", metavar="PARTITION@OFFSET", help="Only this dead letter."),
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Include dead letters whose redrive was interrupted. They may be sent twice."
        ),
    ] = False,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Make the changes, or only show them.")
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Send dead letters back to their original partitions. Each is sent once: the redrive marks it.

    \b
    headrace dlq redrive mailers
    headrace dlq redrive mailers --cause 3f2a91c4 --execute
    headrace dlq redrive dlq.emails --max 10 --execute
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        box = _box(admin, name)
        result = admin.redrive(
            box.topic,
            group_id=box.group_id,
            cause=cause,
            limit=maximum,
            letters=None if letter is None else [_parse_place(letter)],
            again=again,
            dry_run=not execute,
        )
    if json:
        print_json(result)
    else:
        _print_result(result, box.topic)
    if result.gone or result.refused or result.uncertain:
        raise Refused("not every letter was sent back. " + " ".join(result.errors))


@app.command()
def discard(
    name: Name,
    cause: Annotated[
        str | None,
        typer.Option(
            "--cause", metavar="ID", help="Only dead letters with this cause, as shown by `dlq list`."
        ),
    ] = None,
    letter: Annotated[
        str | None,
        typer.Option("--letter", metavar="PARTITION@OFFSET", help="Only this dead letter."),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Make the changes, or only show them.")
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Mark dead letters as discarded: they no longer wait. Nothing is deleted.

    \b
    headrace dlq discard mailers --cause 3f2a91c4 --execute
    headrace dlq discard mailers --letter 0@17 --execute
    """
    with open_admin(client_settings(server, settings, command_config)) as admin:
        box = _box(admin, name)
        result = admin.discard(
            box.topic,
            group_id=box.group_id,
            cause=cause,
            letters=None if letter is None else [_parse_place(letter)],
            dry_run=not execute,
        )
    if json:
        print_json(result)
    elif result.is_dry_run:
        typer.echo(f"{count(result.chosen, 'dead letter')} of {box.topic} would be discarded")
        if result.chosen:
            say("Dry run: nothing was changed. Use --execute to apply it.")
    else:
        typer.echo(f"{count(result.discarded, 'dead letter')} of {box.topic} discarded")


def _box(admin: "Admin", name: str) -> DlqSelection:
    """A topic by its name, or that of a group: its setting says where its dead letters go."""
    if any(topic.name == name for topic in admin.list_topics()):
        return DlqSelection(name, None)
    topic = _topic_of(admin, name)
    if topic:
        return DlqSelection(topic, name)
    others = ", ".join(admin.dead_letter_topics()) or "none"
    raise Refused(
        f"{name!r} is neither a topic nor a group whose {TOPIC_CONFIG} is set; name the topic where dead letters go. "
        f"Dead-letter topics here: {others}."
    )


def _topic_of(admin: "Admin", group_id: str) -> str:
    entry = admin.group_config(group_id).get(TOPIC_CONFIG)
    return "" if entry is None else entry.value or ""


def _of_group(listing: "Listing", group_id: str | None) -> "Listing":
    from dataclasses import replace

    if group_id is None:
        return listing
    return replace(listing, letters=tuple(one for one in listing.letters if one.group_id == group_id))


def _parse_place(text: str) -> tuple[int, int]:
    partition, at, offset = text.partition("@")
    if not (at and partition.isdecimal() and offset.isdecimal()):
        raise typer.BadParameter(f"{text!r} is not PARTITION@OFFSET, such as 0@17")
    return int(partition), int(offset)


def _as_json(listing: "Listing", letters: bool) -> dict[str, object]:
    shown: dict[str, object] = {"topic": listing.topic, "causes": listing.causes()}
    if letters:
        shown["letters"] = listing.letters
    return shown


def _print_listing(listing: "Listing", letters: bool) -> None:
    total = count(len(listing.letters), "dead letter")
    causes = listing.causes()
    typer.echo(f"{listing.topic}: {total}" + (f" of {count(len(causes), 'cause')}" if causes else ""))
    if listing.passed_over:
        say(f"{listing.passed_over:,} older records were not read.")
    if not causes:
        return
    if not letters:
        print_table(
            ("CAUSE", "LETTERS", "WAITING", "CLAIMED", "REDRIVEN", "DISCARDED", "GROUP", "NEWEST", "WHY"),
            map(_row, causes),
        )
        return
    newest = sorted(listing.letters, key=lambda one: -one.timestamp)[:LETTERS_SHOWN_MAX]
    print_table(
        ("LETTER", "STATUS", "WHEN", "CAUSE", "CAME-FROM", "ATTEMPTS", "WHY"),
        [
            (
                f"{one.partition}@{one.offset}",
                one.status,
                moment(one.timestamp),
                one.cause,
                _source(one),
                one.attempts or one.delivery_count,
                _short(one.message or one.kind),
            )
            for one in newest
        ],
    )
    if len(listing.letters) > LETTERS_SHOWN_MAX:
        say(f"The newest {LETTERS_SHOWN_MAX}; --json has them all.")


def _row(cause: "DeadLetterCause") -> tuple[object, ...]:
    return (
        cause.id,
        cause.count,
        cause.waiting,
        cause.claimed,
        cause.redriven,
        cause.discarded,
        cause.group_id,
        moment(cause.last_timestamp),
        _short(cause.text),
    )


def _print_letter(letter: "DeadLetter", record: "Record") -> None:
    from headrace.wire.dead_letter import read_facts

    facts = {
        "letter": f"{letter.topic} {letter.partition}@{letter.offset}, {letter.status}",
        "when": moment(letter.timestamp),
        "came from": _source(letter),
        "group": letter.group_id or "-",
        "deliveries": str(letter.delivery_count or "-"),
        "attempts": str(letter.attempts or "-"),
        "cause": f"{letter.cause} {letter.message or letter.kind}",
    }
    for name, text in facts.items():
        typer.echo(printable_lines(f"{name + ':':<12}{text}"))
    known = read_facts(record.headers)
    if known is not None and known.traceback:
        typer.echo(printable_lines(f"traceback:\n{known.traceback}"))
    typer.echo("headers:")
    for name, value in record.headers:
        if name == TRACEBACK:
            continue
        typer.echo(printable_lines(f"  {name} = {_body(value)}"))
    if letter.is_copied:
        typer.echo(printable_lines(f"key:        {_body(record.key)}"))
        typer.echo(printable_lines(f"value:\n{_body(record.value)}"))
    else:
        typer.echo("It holds no copy of the record: that is at its old place, as long as the topic keeps it.")


def _print_result(result: "RedriveResult", topic: str) -> None:
    targets = ", ".join(f"{number:,} to {name}" for name, number in sorted(result.targets.items()))
    targets = f": {targets}" if targets else ""
    if result.passed_over:
        say(f"{result.passed_over:,} older records were not read.")
    if result.is_dry_run:
        typer.echo(f"{count(result.chosen, 'dead letter')} of {topic} would go back{targets}")
        if result.chosen:
            say("Dry run: nothing was sent. Use --execute to apply it.")
        return
    typer.echo(f"{count(result.redriven, 'dead letter')} of {topic} went back{targets}")
    for number, what in (
        (result.taken, "taken by another redrive"),
        (result.gone, "gone: no copy, and the topic does not keep the record any more"),
        (result.refused, "refused by the topic; they wait as before"),
        (result.uncertain, "perhaps sent: the answer was lost; --again would send them once more"),
    ):
        if number:
            say(f"{number:,} {what}")


def moment(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _source(letter: "DeadLetter") -> str:
    if letter.source_topic is None:
        return "-"
    return f"{letter.source_topic} {letter.source_partition}@{letter.source_offset}"


def _short(text: str) -> str:
    line = text.strip().splitlines()[0] if text.strip() else "-"
    return line if len(line) <= 80 else line[:77] + "..."


def _body(data: bytes | None) -> str | None:
    """Text where it is text; else bytes in hexadecimal."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
