"""`headrace state`: a share group's windows, drawn; or the records of `__share_group_state` themselves."""

import json as json_module
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.failures import say
from headrace.cli.moments import parse_moment
from headrace.cli.options import (
    CommandConfig,
    GroupName,
    Json,
    Server,
    Settings,
    client_settings,
    complete_topic,
    find_share_group,
    find_topic,
    open_admin,
)
from headrace.cli.render import count, plain, print_json
from headrace.wire.ids import TopicAndPartition

if TYPE_CHECKING:
    from headrace.client.admin.results import ShareStateRecord
    from headrace.share.view import SharePartitionState

WIDTH_MAX = 100
ENDED_MAX = 5


def state(
    group: GroupName,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:0,1]",
            help="Only this topic, or some of its partitions. Can be repeated.",
            autocompletion=complete_topic,
        ),
    ] = None,
    raw: Annotated[
        bool,
        typer.Option(
            "--raw", help="Print the records of __share_group_state in the format of Apache Kafka's tools."
        ),
    ] = False,
    http: Annotated[
        str | None,
        typer.Option(
            "--http",
            metavar="HOST:PORT",
            help="Ask the dashboard of a broker (`headrace serve --http`) for holders and lock times, too.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            "--token",
            metavar="TOKEN",
            envvar="HEADRACE_WEB_TOKEN",
            help="The token of the dashboard, if it requires one.",
            show_default=False,
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at",
            metavar="TIME",
            help="The state at this time and who held what, such as 2026-11-15T12:30 (UTC) or -5m.",
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            metavar="N",
            min=1,
            help="The maximum number of offset ranges to list for each partition.",
        ),
    ] = 20,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the state of each share-partition of a share group: its in-flight records.

    All records before the in-flight window are processed. Each record within
    it has a state and a delivery count.

    \b
    headrace state mailers
    headrace state mailers --topic emails:0 --runs 100
    headrace state mailers --http localhost:8080
    headrace state mailers --raw
    headrace state mailers --at -5m
    """
    from headrace.cli.group_reset import parse_topic

    if raw and http:
        raise typer.BadParameter("--raw reads the stored state and cannot be combined with --http")
    if at and (raw or http):
        raise typer.BadParameter("--at reads the stored state and cannot be combined with --raw or --http")
    moment = None if at is None else parse_moment(at, "--at")
    if moment is not None and moment > datetime.now(UTC):
        raise typer.BadParameter(f"{moment.isoformat()} is in the future", param_hint="--at")
    wanted = [place for text in topics or () for place in parse_topic(text)] or None
    with open_admin(client_settings(server, settings, command_config)) as admin:
        listing = find_share_group(admin, group)
        for place in wanted or ():
            find_topic(admin, place if isinstance(place, str) else place[0])
        if raw:
            _print_records(admin.share_state_records(group, wanted))
            return
        if http:
            states, lags = _live(http, group, token, wanted)
        else:
            states = admin.share_state(group, wanted, at=moment)
            lags = {}
            if moment is None:
                lags = {place: one.lag for place, one in admin.share_group_offsets(group, wanted).items()}
        members = len(admin.describe_share_group(group).members)
    if json:
        print_json([{**plain(one), "lag": lags.get(place)} for place, one in states.items()])
        return
    if moment is None:
        typer.echo(f"Share group {group}: {listing.state}, {count(members, 'member')}")
    else:
        typer.echo(f"Share group {group} at {moment.isoformat(timespec='seconds')}")
        if not states:
            say(
                "No state of the group is known for that time: `__share_group_state` does not go back that far."
            )
            return
    if not states:
        say(f"Share group '{group}' has no written state yet: no record was acknowledged.")
        return
    _draw(list(states.values()), lags, runs)


def _live(
    http: str, group: str, token: str | None, wanted: "list[str | TopicAndPartition] | None"
) -> "tuple[dict[TopicAndPartition, SharePartitionState], dict[TopicAndPartition, int | None]]":
    from headrace.cli.state_live import live_state

    states, lags = live_state(http, group, token)
    if wanted is not None:
        states = {place: one for place, one in states.items() if place in wanted or place[0] in wanted}
    return states, lags


def _draw(
    states: "list[SharePartitionState]", lags: "dict[TopicAndPartition, int | None]", runs: int
) -> None:
    from headrace.cli.state_drawing import draw, endings, legend

    width = min(WIDTH_MAX, shutil.get_terminal_size().columns - 2)
    for one in states:
        typer.echo()
        for line in draw(one, lag=lags.get((one.topic, one.partition)), width=width, runs_max=runs):
            typer.echo(line)
        if one.ended:
            typer.echo("  Ended before:")
            for line in endings(one, ENDED_MAX):
                typer.echo(line)
    told = legend(states)
    if told:
        typer.echo(f"\n{told}")
    if any(one.names_holders for one in states):
        say(
            "Who held records is written when the hold ends:"
            " what is available or open may have been with a member that still holds it."
        )
    elif any(one.names_holders is False for one in states):
        say(
            "Who held records is unknown: `__share_group_state` names no members."
            " Apache Kafka and older versions of Headrace write states and delivery counts only."
        )
    elif not all(one.is_live for one in states):
        say(
            "This is the written state, which does not contain locks: "
            "a member may hold records that are shown as available or open."
        )


def _print_records(records: "list[ShareStateRecord]") -> None:
    for record in records:
        typer.echo(json_module.dumps(as_formatted(record)))


def as_formatted(record: "ShareStateRecord") -> dict[str, Any]:
    """In the shape of Apache's ShareGroupStateMessageFormatter."""
    from headrace.wire.share_state import Snapshot

    data = {"groupId": record.group_id, "topicId": record.topic_id, "partition": record.partition}
    key = {"type": 1 if record.kind.value == "update" else 0, "data": data}
    value = record.value
    if value is None:
        return {"key": key, "value": None}
    batches = [
        {
            "firstOffset": batch.first,
            "lastOffset": batch.last,
            "deliveryState": int(batch.state),
            "deliveryCount": batch.delivery_count,
        }
        for batch in value.batches
    ]
    said: dict[str, Any] = {"snapshotEpoch": value.snapshot_epoch}
    if isinstance(value, Snapshot):
        said["stateEpoch"] = value.state_epoch
    said |= {"leaderEpoch": value.leader_epoch, "startOffset": value.start_offset}
    if value.complete_count >= 0:
        said["deliveryCompleteCount"] = value.complete_count
    if isinstance(value, Snapshot):
        said |= {"createTimestamp": value.create_timestamp, "writeTimestamp": value.write_timestamp}
    said["stateBatches"] = batches
    return {"key": key, "value": {"version": 0, "data": said}}
