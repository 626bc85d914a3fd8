"""`headrace group scale`: how many members a share group needs to finish its lag in time."""

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.options import (
    CommandConfig,
    GroupName,
    Json,
    Server,
    Settings,
    client_settings,
    find_share_group,
    open_admin,
)
from headrace.cli.render import print_json

if TYPE_CHECKING:
    from headrace.client.admin import Admin
    from headrace.client.admin.scaling import GroupLoad


def scale(
    group: GroupName,
    drain: Annotated[
        float,
        typer.Option("--drain", metavar="SECONDS", help="The time in which to finish the lag."),
    ] = 60.0,
    least: Annotated[int, typer.Option("--min", metavar="N", help="Never fewer members.")] = 0,
    most: Annotated[int, typer.Option("--max", metavar="N", help="Never more members.")] = 100,
    rate: Annotated[
        float | None,
        typer.Option("--rate", metavar="N", help="Records a second of one member. Default: measured."),
    ] = None,
    measure: Annotated[
        float,
        typer.Option("--measure", metavar="SECONDS", min=0.1, max=600, help="How long the rate is measured."),
    ] = 5.0,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Show how many members a share group needs to finish its lag in time.

    The rate of a member is the rate of the group divided by its members. The
    dashboard has the same number at /api/v1/group/scale, for autoscalers.

    \b
    headrace group scale mailers --drain 60
    headrace group scale mailers --rate 50 --max 20
    """
    from headrace.client.admin import scaling

    members_for = partial(scaling.scale, drain_s=drain, least=least, most=most, rate_per_member=rate)
    try:
        members_for(scaling.GroupLoad())
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    with open_admin(client_settings(server, settings, command_config)) as admin:
        find_share_group(admin, group)
        found = members_for(_load(admin, group, None if rate is not None else measure))
    if json:
        print_json(found)
    else:
        typer.echo(f"{found.desired_members} ({found.members} now): {found.reason}")


@dataclass(frozen=True, slots=True)
class _Progress:
    time_s: float
    lag: int | None
    """Of the partitions that the group has begun, as in the dashboard."""
    done: int | None
    """Grows by one with each record that the group settles."""


def _load(admin: "Admin", group_id: str, measure_s: float | None) -> "GroupLoad":
    """With the rate of the next `measure_s` seconds."""
    from headrace.client.admin.scaling import GroupLoad

    first = _progress(admin, group_id)
    rate = None
    last = first
    if measure_s is not None and first.lag:
        time.sleep(measure_s)
        last = _progress(admin, group_id)
        if first.done is not None and last.done is not None:
            rate = (last.done - first.done) / (last.time_s - first.time_s)
    members = len(admin.describe_share_group(group_id).members)
    return GroupLoad(members=members, lag=last.lag, rate_done=rate)


def _progress(admin: "Admin", group_id: str) -> _Progress:
    offsets = list(admin.share_group_offsets(group_id).values())
    now_s = time.monotonic()
    lags = [one.lag for one in offsets if one.lag is not None]
    ends = [one.end_offset for one in offsets if one.end_offset is not None]
    is_whole = len(lags) == len(ends) == len(offsets)
    lag = sum(lags) if lags or not offsets else None
    return _Progress(now_s, lag, sum(ends) - sum(lags) if is_whole else None)
