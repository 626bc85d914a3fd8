"""`headrace group describe`: where groups stand, who is in them, how they are. Columns are those of Apache's tools."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headrace.cli.failures import say
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    client_settings,
    complete_group,
    find_group,
    open_admin,
)
from headrace.cli.render import UNKNOWN, plain, print_json, print_table

if TYPE_CHECKING:
    from headrace.client.admin import Admin
    from headrace.client.admin.results import (
        ConsumerGroupDescription,
        GroupMember,
        ShareGroupDescription,
        ShareGroupOffset,
    )
    from headrace.client.delivery import TopicPartition

Table = tuple[tuple[str, ...], list[Sequence[object]]]
READS_MAX = 64
"""Partitions of a group whose oldest record is looked at."""


def describe(
    groups: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[GROUP]...", help="Groups. Default: all groups.", autocompletion=complete_group
        ),
    ] = None,
    members: Annotated[
        bool, typer.Option("--members", help="Show the members and their partitions.")
    ] = False,
    state: Annotated[
        bool, typer.Option("--state", help="Show the state of the group and its coordinator.")
    ] = False,
    offsets: Annotated[
        bool,
        typer.Option(
            "--offsets", help="Show the start offset and the lag of each partition. This is the default."
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also show epochs.")] = False,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show the offsets, the members or the state of groups.

    LAG is the number of records that are neither accepted nor archived. The
    columns are those of kafka-share-groups.sh and kafka-consumer-groups.sh.

    \b
    headrace group describe mailers
    headrace group describe mailers --members --verbose
    headrace group describe --state
    """
    if members + state + offsets > 1:
        raise typer.BadParameter("choose one of --offsets, --members and --state")
    found: list[Any] = []
    with open_admin(client_settings(server, settings, command_config)) as admin:
        listings = [find_group(admin, group_id) for group_id in groups] if groups else admin.list_groups()
        for listing in listings:
            if listing.type.value == "share":
                found.append(_share(admin, listing.group_id, members, state, verbose, json))
            else:
                found.append(_consumer(admin, listing.group_id, members, state, verbose, json))
    if json:
        print_json(found)
        return
    if not found:
        typer.echo("There are no groups. A group exists once a consumer has joined it.", err=True)
    for number, (table, remark) in enumerate(found):
        if number:
            typer.echo()
        if remark:
            say(remark)
        if table[1]:
            print_table(*table)


def _share(
    admin: "Admin", group_id: str, members: bool, state: bool, verbose: bool, json: bool
) -> tuple[Table, str] | dict[str, Any]:
    group = admin.describe_share_group(group_id)
    is_offsets = not (members or state)
    offsets = list(admin.share_group_offsets(group_id).values()) if json or is_offsets else []
    if json:
        return {**plain(group), "type": "share", "offsets": plain(offsets)}
    if members:
        return _members_table(group, verbose), _no_members("Share", group)
    if state:
        return _state_table(group, verbose, ""), _no_members("Share", group)
    headers = ["GROUP", "TOPIC", "PARTITION", "START-OFFSET", "LAG"]
    rows: list[list[object]] = [
        [group_id, one.topic, one.partition, one.start_offset, one.lag] for one in offsets
    ]
    if verbose:
        headers.insert(3, "LEADER-EPOCH")
        for row, one in zip(rows, offsets, strict=True):
            row.insert(3, one.leader_epoch)
    remark = "" if rows else f"Share group '{group_id}' has no offset information."
    remark = remark or unknown_text(group_id, offsets) or _oldest(admin, group_id, offsets)
    return (tuple(headers), list(rows)), remark


def _consumer(
    admin: "Admin", group_id: str, members: bool, state: bool, verbose: bool, json: bool
) -> tuple[Table, str] | dict[str, Any]:
    group = admin.describe_consumer_group(group_id)
    if json:
        return dict(plain(group))
    remark = _no_members("Consumer", group)
    if members:
        return _members_table(group, verbose), remark
    if state:
        return _state_table(group, verbose, "ASSIGNMENT-STRATEGY"), remark
    headers = (
        "GROUP",
        "TOPIC",
        "PARTITION",
        *(("LEADER-EPOCH",) if verbose else ()),
        "CURRENT-OFFSET",
        "LOG-END-OFFSET",
        "LAG",
        "CONSUMER-ID",
        "HOST",
        "CLIENT-ID",
    )
    by_id = {member.member_id: member for member in group.members}
    rows: list[Sequence[object]] = []
    for one in group.offsets.values():
        member = by_id.get(one.member_id or "")
        rows.append(
            (
                group_id,
                one.topic,
                one.partition,
                *((one.leader_epoch,) if verbose else ()),
                one.offset,
                one.end_offset,
                one.lag,
                one.member_id,
                member and member.host,
                member and member.client_id,
            )
        )
    return (headers, rows), remark


def unknown_text(group_id: str, offsets: "Sequence[ShareGroupOffset]") -> str:
    """Says what the dashes mean, if nothing but dashes is known."""
    if any(one.start_offset is not None for one in offsets):
        return ""
    return (
        f"No state is written for group '{group_id}': no member has fetched, or members hold records and have "
        "settled none."
    )


def _oldest(admin: "Admin", group_id: str, offsets: "Sequence[ShareGroupOffset]") -> str:
    """How long the oldest record has waited: the figure that tells whether work is done in time."""
    from headrace.client.admin.health import duration

    left = [one for one in offsets if one.lag and one.start_offset is not None][:READS_MAX]
    times = [admin.record_time(one.topic, one.partition, one.start_offset or 0) for one in left]
    known = [came for came in times if came is not None]
    if not known:
        return ""
    age_s = max(0.0, time.time() - min(known) / 1000)
    return f"The oldest record that group '{group_id}' has not settled has waited {duration(age_s)}."


def _members_table(group: "ShareGroupDescription | ConsumerGroupDescription", verbose: bool) -> Table:
    last = ("MEMBER-EPOCH", "ASSIGNMENT") if verbose else ("ASSIGNMENT",)
    headers = ("GROUP", "CONSUMER-ID", "HOST", "CLIENT-ID", "#PARTITIONS", *last)
    return headers, [_member_row(group.group_id, member, verbose) for member in group.members]


def _member_row(group_id: str, member: "GroupMember", verbose: bool) -> Sequence[object]:
    return (
        group_id,
        member.member_id,
        member.host,
        member.client_id,
        len(member.assignment),
        *((member.member_epoch,) if verbose else ()),
        assignment_text(member.assignment),
    )


def assignment_text(places: "Sequence[TopicPartition]") -> str:
    """As Apache's tools write it: `orders:0,1;emails:0`."""
    topics: dict[str, list[str]] = {}
    for place in places:
        topics.setdefault(place.topic, []).append(str(place.partition))
    return ";".join(f"{topic}:{','.join(partitions)}" for topic, partitions in topics.items()) or UNKNOWN


def _state_table(
    group: "ShareGroupDescription | ConsumerGroupDescription", verbose: bool, strategy: str
) -> Table:
    node = group.coordinator
    headers = (
        "GROUP",
        "COORDINATOR (ID)",
        *((strategy,) if strategy else ()),
        "STATE",
        *(("GROUP-EPOCH", "ASSIGNMENT-EPOCH") if verbose else ()),
        "#MEMBERS",
    )
    row = (
        group.group_id,
        f"{node.host}:{node.port}  ({node.node_id})",
        *((group.assignor,) if strategy else ()),
        group.state,
        *((group.group_epoch, group.assignment_epoch) if verbose else ()),
        len(group.members),
    )
    return headers, [row]


def _no_members(kind: str, group: "ShareGroupDescription | ConsumerGroupDescription") -> str:
    return "" if group.members else f"{kind} group '{group.group_id}' has no active members."
