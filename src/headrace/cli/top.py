"""`headrace top`: groups and topics of a cluster, with lag and rates, as they are now and a moment later."""

import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.failures import Refused
from headrace.cli.options import (
    CommandConfig,
    Json,
    Server,
    Settings,
    client_settings,
    require_listener,
)
from headrace.cli.render import UNKNOWN, count, print_json, print_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from headrace.web.model import GroupRow, Overview, TopicRow
    from headrace.web.sampler import Sampler

BARS = "▁▂▃▄▅▆▇█"
TREND_LENGTH = 24
GROUPS_SHOWN, TOPICS_SHOWN = 20, 15
GROUP_HEADERS = ("GROUP", "TYPE", "STATE", "#MEMBERS", "LAG", "DONE/S")
TOPIC_HEADERS = ("TOPIC", "PARTITIONS", "RECORDS", "IN/S")
Lags = dict[str, "deque[int]"]


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit. For scripts.")] = False,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.2, max=60, help="The refresh interval in seconds.")
    ] = 2.0,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Watch the lag and the rates of groups and topics. Ctrl+C stops it.

    DONE/S is the number of records per second that a group completes, IN/S
    the number of records per second that are written to a topic.

    \b
    headrace top
    headrace top --once --json -b kafka:9092
    """
    from headrace.client.settings import ClientSettings

    given = client_settings(server, settings, command_config)
    require_listener(ClientSettings.parse(given).bootstrap_servers)
    is_single = once or json or not sys.stdout.isatty()
    import asyncio

    # Ctrl+C is the way to end it, and no failure.
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_once(given, interval, json) if is_single else _watch(given, interval))


async def _once(given: Mapping[str, str], interval: float, json: bool) -> None:
    import asyncio

    async with _sampling(given, interval) as sampler:
        await sampler.sample()
        await asyncio.sleep(interval)
        await sampler.sample()
        overview = sampler.overview
    if overview.error is not None:
        raise Refused(overview.error)
    if json:
        print_json(overview)
        return
    typer.echo(_headline(overview))
    typer.echo()
    print_table(GROUP_HEADERS, [_group_row(group) for group in overview.groups])
    typer.echo()
    print_table(TOPIC_HEADERS, [_topic_row(topic) for topic in overview.topics if not topic.is_internal])


async def _watch(given: Mapping[str, str], interval: float) -> None:
    import asyncio

    from rich.live import Live

    lags: Lags = {}
    async with _sampling(given, interval) as sampler:
        with Live(screen=True, auto_refresh=False) as live:
            while True:
                await sampler.sample()
                for group in sampler.overview.groups:
                    lags.setdefault(group.group_id, deque(maxlen=TREND_LENGTH)).append(group.lag or 0)
                live.update(frame(sampler.overview, lags), refresh=True)
                await asyncio.sleep(interval)


@contextlib.asynccontextmanager
async def _sampling(given: Mapping[str, str], interval: float) -> AsyncIterator["Sampler"]:
    """The dashboard's own sampler: both show the same figures."""
    from headrace.client.settings import ClientSettings
    from headrace.web.history import History
    from headrace.web.options import WebOptions
    from headrace.web.sampler import Sampler
    from headrace.web.source import open_source

    async with open_source(ClientSettings.parse(given)) as source:
        yield Sampler(source, History(), WebOptions(sample_s=interval))


def frame(overview: "Overview", lags: Lags) -> "RenderableType":
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    groups = Table(*GROUP_HEADERS, "LAG BEFORE", box=None, header_style="bold", pad_edge=False)
    for group in overview.groups[:GROUPS_SHOWN]:
        style = "yellow" if group.lag else ""
        groups.add_row(*map(_shown, _group_row(group)), sparkline(lags.get(group.group_id, ())), style=style)
    topics = Table(*TOPIC_HEADERS, box=None, header_style="bold", pad_edge=False)
    for topic in [one for one in overview.topics if not one.is_internal][:TOPICS_SHOWN]:
        topics.add_row(*map(_shown, _topic_row(topic)))
    lines: list[RenderableType] = [Text(_headline(overview), style="bold"), "", groups, "", topics]
    if overview.error is not None:
        lines[1] = Text(overview.error, style="red")
    if not overview.groups:
        lines[2] = Text("No groups yet: `headrace consume TOPIC --group NAME` makes one.")
    return Group(*lines)


def sparkline(values: Iterable[int]) -> str:
    given = list(values)
    most = max(given, default=0)
    if not most:
        return BARS[0] * len(given)
    return "".join(BARS[value * (len(BARS) - 1) // most] for value in given)


def _headline(overview: "Overview") -> str:
    return (
        f"Cluster {overview.cluster_id}: {count(len(overview.brokers), 'broker')}, "
        f"{count(len(overview.groups), 'group')} · {overview.lag:,} left to do in share groups · "
        f"{overview.rate_in:,.0f} in/s · {overview.rate_done:,.0f} done/s"
    )


def _group_row(group: "GroupRow") -> tuple[object, ...]:
    return (
        group.group_id,
        group.type.capitalize(),
        group.state,
        group.members,
        group.lag,
        None if group.rate_done is None else f"{group.rate_done:.1f}",
    )


def _topic_row(topic: "TopicRow") -> tuple[object, ...]:
    return (
        topic.name,
        topic.partitions,
        topic.records,
        None if topic.rate_in is None else f"{topic.rate_in:.1f}",
    )


def _shown(cell: object) -> str:
    return UNKNOWN if cell is None else str(cell)
