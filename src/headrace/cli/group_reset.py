"""`headrace group reset`: move where a group stands. It shows what it would do; --execute does it."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.failures import Refused, say
from headrace.cli.group_reset_plans import export as print_plan
from headrace.cli.group_reset_plans import offsets_of_group, read_plan
from headrace.cli.moments import parse_moment
from headrace.cli.options import (
    CommandConfig,
    GroupName,
    Json,
    Server,
    Settings,
    client_settings,
    complete_topic,
    find_group,
    find_topic,
    open_admin,
)
from headrace.cli.plain_clients import for_admin
from headrace.cli.render import print_json, print_table
from headrace.wire.ids import TopicAndPartition

if TYPE_CHECKING:
    from headrace.client.admin import Admin
    from headrace.client.admin.share_offsets import To


def reset(
    group: GroupName,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="A topic, or some of its partitions. Can be repeated. Default: all topics of the group.",
            autocompletion=complete_topic,
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest record.")] = False,
    to_latest: Annotated[
        bool, typer.Option("--to-latest", help="To the end: skip all existing records.")
    ] = False,
    to_datetime: Annotated[
        str | None,
        typer.Option(
            "--to-datetime",
            metavar="TIME",
            help="To the first record at or after this time, for example 2026-11-15T12:30 (UTC) or -15m.",
        ),
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this offset. Requires --topic.")
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            help="To the offsets in a CSV file with the columns topic, partition and offset; - is the standard input.",
        ),
    ] = None,
    from_group: Annotated[
        str | None,
        typer.Option(
            "--from-group",
            metavar="GROUP",
            help="To the offsets of another group, for example of a consumer group that a share group replaces.",
        ),
    ] = None,
    export: Annotated[bool, typer.Option("--export", help="Print the plan as CSV, for --from-file.")] = False,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Make the changes, or only show them.")
    ] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Reset the offsets of a group. The group must have no members.

    A share group loses its acknowledgements in these partitions: all records
    from the new start offset are delivered, even if they were before.

    \b
    headrace group reset mailers --to-earliest
    headrace group reset mailers --topic emails:0 --to-offset 42 --execute
    headrace group reset mailers --to-datetime 2026-11-15T12:30:00+01:00 --execute
    headrace group reset mailers --from-group old-mailers --execute
    """
    targets = (to_datetime, to_offset, from_file, from_group)
    if to_earliest + to_latest + sum(target is not None for target in targets) != 1:
        raise typer.BadParameter(
            "choose one of --to-earliest, --to-latest, --to-datetime, --to-offset, --from-file and --from-group"
        )
    if from_file is not None and topics:
        raise typer.BadParameter("--from-file names the topics; leave out --topic")
    if to_offset is not None and not topics:
        raise typer.BadParameter("--to-offset needs --topic TOPIC[:PARTITIONS]")
    moment = None if to_datetime is None else parse_moment(to_datetime, "--to-datetime")
    wanted = [place for text in topics or () for place in parse_topic(text)] or None
    kept = None if from_file is None else read_plan(from_file, group)
    given = client_settings(server, settings, command_config)
    with open_admin(for_admin(given)) as admin:
        for name in {place if isinstance(place, str) else place[0] for place in wanted or ()}:
            find_topic(admin, name)
        if from_group is not None:
            kept = _only(wanted, offsets_of_group(admin, from_group), from_group)
        to = kept or _target(admin, wanted, earliest=to_earliest, moment=moment, offset=to_offset)
        if _is_consumer_group(admin, group):
            from headrace.cli import group_reset_plain

            changes = group_reset_plain.plan(admin, group, to, wanted)
            if execute and changes:
                after = {place: change.after for place, change in changes.items()}
                admin.alter_consumer_group_offsets(group, after)
        else:
            if wanted is None and kept is None:
                find_group(admin, group)  # a group that is not there yet has no topics of its own
            changes = admin.alter_share_group_offsets(
                group, to=to, topics=None if isinstance(to, Mapping) else wanted, dry_run=not execute
            )
    if json:
        print_json(list(changes.values()))
    elif export:
        print_plan(changes.values())
    elif not changes:
        say(f"Group '{group}' has no topics to reset; name some with --topic.")
    else:
        rows = [(group, one.topic, one.partition, one.before, one.after) for one in changes.values()]
        print_table(("GROUP", "TOPIC", "PARTITION", "OLD-OFFSET", "NEW-OFFSET"), rows)
    if changes and not execute:
        say("Dry run: nothing was changed. Use --execute to apply it.")


def _only(
    wanted: "list[str | TopicAndPartition] | None", offsets: dict[TopicAndPartition, int], source: str
) -> dict[TopicAndPartition, int]:
    """The offsets of the topics and partitions that were named; all, if none was."""
    if wanted is None:
        return offsets
    found = {key: offset for key, offset in offsets.items() if key in wanted or key[0] in wanted}
    if not found:
        raise Refused(f"group {source!r} has no offsets in the topics that --topic names.")
    return found


def parse_topic(text: str) -> list[str | TopicAndPartition]:
    """`emails` or `emails:0,1`."""
    topic, colon, numbers = text.rpartition(":")
    if not colon:
        return [text]
    try:
        return [(topic, int(number)) for number in numbers.split(",")]
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not TOPIC or TOPIC:0,1", param_hint="--topic") from None


def _is_consumer_group(admin: "Admin", group: str) -> bool:
    """A group need not exist: a reset makes a share group, at the place where it should begin."""
    found = [one.type.value for one in admin.list_groups() if one.group_id == group]
    if found and found[0] not in ("share", "consumer", "classic"):
        raise Refused(f"{group!r} is a {found[0]} group; only share groups and consumer groups can be reset.")
    return bool(found) and found[0] != "share"


def _target(
    admin: "Admin",
    wanted: list[str | TopicAndPartition] | None,
    *,
    earliest: bool,
    moment: datetime | None,
    offset: int | None,
) -> "To":
    from headrace.client.admin import EARLIEST, LATEST

    if moment is not None:
        return moment
    if offset is None:
        return EARLIEST if earliest else LATEST
    places: dict[TopicAndPartition, int] = {}
    for one in wanted or ():
        if isinstance(one, str):
            places |= {(one, each.partition): offset for each in find_topic(admin, one).partitions}
        else:
            places[one] = offset
    return places
