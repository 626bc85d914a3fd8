"""`headrace top`: groups and topics of a cluster, with lag and rates, as they are now and a moment later."""

import contextlib
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.base.text import printable
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
from headrace.cli.top_view import KEYS, TopView, split_keys

if TYPE_CHECKING:
    import asyncio

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from headrace.web.model import GroupRow, Overview, TopicRow
    from headrace.web.sampler import Sampler

BARS = "▁▂▃▄▅▆▇█"
TREND_LENGTH = 24
PAGE = 10
REDRAW_S = 5.0
"""So often without any news: the terminal may have another size, and the sampler sees that somebody is there."""
WIDE = 120
"""A terminal with so many columns shows all of a table's."""
WIDE_ONLY = ("TYPE", "STATE")
GROUP_HEADERS = ("GROUP", "TYPE", "STATE", "#MEMBERS", "LAG", "OLDEST", "DONE/S")
STYLES = {"critical": "red", "warning": "yellow"}
TOPIC_HEADERS = ("TOPIC", "PARTITIONS", "RECORDS", "IN/S")
Lags = dict[str, "deque[int]"]


def top(
    once: Annotated[bool, typer.Option("--once", help="Print one snapshot and exit. For scripts.")] = False,
    interval: Annotated[
        float,
        typer.Option("--interval", "-i", metavar="SECONDS", min=0.2, max=60, help="The refresh interval."),
    ] = 2.0,
    server: Server = None,
    settings: Settings = None,
    command_config: CommandConfig = None,
    json: Json = False,
) -> None:
    """Watch groups and topics, the groups in trouble first. q stops it.

    OLDEST is the age of the oldest record that a group has not settled,
    DONE/S the number of records per second that it completes, and IN/S the
    number of records per second that are written to a topic.

    \b
    s        sort by trouble, lag, oldest, rate or name
    /        show groups whose name contains a text; Esc shows all
    j k      scroll, as do the arrows, PgUp and PgDn

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
    print_table(
        (*GROUP_HEADERS, "WHAT IS WRONG"),
        [(*_group_row(group), "; ".join(group.reasons)) for group in overview.groups],
    )
    typer.echo()
    print_table(TOPIC_HEADERS, [_topic_row(topic) for topic in overview.topics if not topic.is_internal])


async def _watch(given: Mapping[str, str], interval: float) -> None:
    import asyncio

    from rich.live import Live

    lags: Lags = {}
    view, pressed = TopView(), asyncio.Event()
    async with _sampling(given, interval) as sampler:
        with _no_log(), Live(screen=True, auto_refresh=False) as live, _keyboard(view, pressed):
            tasks = [asyncio.create_task(sampler.run()), asyncio.create_task(_follow(sampler, lags, pressed))]
            try:
                while not view.is_done:
                    pressed.clear()
                    width, height = live.console.size
                    shown = frame(sampler.look(), lags, view, height=height, width=width)
                    live.update(shown, refresh=True)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(REDRAW_S):
                            await pressed.wait()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)


async def _follow(sampler: "Sampler", lags: Lags, news: "asyncio.Event") -> None:
    sampled_at = None
    while True:
        overview = await sampler.news()
        if overview.sampled_at != sampled_at:  # else only what is said of the cluster is new
            sampled_at = overview.sampled_at
            for group in overview.groups:
                lags.setdefault(group.group_id, deque(maxlen=TREND_LENGTH)).append(group.lag or 0)
        news.set()


@contextlib.contextmanager
def _no_log() -> Iterator[None]:
    """What is worth a line in a log is shown in the view: a line would be written into the middle of it."""
    import logging

    nowhere = logging.NullHandler()
    logging.getLogger().addHandler(nowhere)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(nowhere)


@contextlib.contextmanager
def _keyboard(view: TopView, pressed: "asyncio.Event") -> Iterator[None]:
    """Keys go to the view as they are pressed, where there is a keyboard."""
    import asyncio
    import os

    if not sys.stdin.isatty():
        yield
        return
    import termios
    import tty

    def read() -> None:
        for key in split_keys(os.read(fd, 1024).decode(errors="replace")):
            view.press(key, page=PAGE)
        pressed.set()

    fd, loop = sys.stdin.fileno(), asyncio.get_running_loop()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd, termios.TCSANOW)
        loop.add_reader(fd, read)
        yield
    finally:
        loop.remove_reader(fd)
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


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


def frame(
    overview: "Overview", lags: Lags, view: TopView | None = None, *, height: int = 50, width: int = 120
) -> "RenderableType":
    """Fits into the terminal: two thirds of its height for groups, the rest for topics."""
    from rich.console import Group
    from rich.text import Text

    view = view or TopView()
    rows = max(3, height - 8)
    shown, total = view.page(overview.groups, max(2, rows * 2 // 3))
    groups = _group_table(shown, lags, width)
    topics = [one for one in overview.topics if not one.is_internal][: max(1, rows - len(shown))]
    lines: list[RenderableType] = [
        Text(_headline(overview), style="bold"),
        Text(_position(view, len(shown), total), style="dim"),
        groups,
        "",
        _topic_table(topics, width),
    ]
    if overview.error is not None:
        lines.insert(1, Text(printable(overview.error), style="red"))
    elif overview.sampled_at is None:
        return Text("Reading the groups and topics of the cluster. q stops.")
    if not overview.groups:
        lines[lines.index(groups)] = Text("No groups yet: `headrace consume TOPIC --group NAME` creates one.")
    return Group(*lines)


def _group_table(groups: "Iterable[GroupRow]", lags: Lags, width: int) -> "Table":
    """Figures are never cut, long names and reasons are. A narrow terminal shows fewer columns."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False, expand=True)
    is_wide = width >= WIDE
    headers = [name for name in GROUP_HEADERS if is_wide or name not in WIDE_ONLY]
    for name in headers:
        widest = max(12, width // 4) if name == "GROUP" else None
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=widest)
    if is_wide:
        table.add_column("LAG BEFORE", no_wrap=True)
    table.add_column("WHAT IS WRONG", no_wrap=True, overflow="ellipsis", ratio=1)
    for group in groups:
        row = dict(zip(GROUP_HEADERS, _group_row(group), strict=True))
        cells = [_shown(row[name]) for name in headers]
        if is_wide:
            cells.append(Text(sparkline(lags.get(group.group_id, ()))))
        reasons = Text(printable("; ".join(group.reasons)))
        table.add_row(*cells, reasons, style=STYLES.get(group.level, ""))
    return table


def _topic_table(topics: "Iterable[TopicRow]", width: int) -> "Table":
    from rich.table import Table

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in TOPIC_HEADERS:
        widest = max(12, width // 2) if name == "TOPIC" else None
        table.add_column(name, no_wrap=True, overflow="ellipsis", max_width=widest)
    for topic in topics:
        table.add_row(*map(_shown, _topic_row(topic)))
    return table


def _position(view: TopView, shown: int, total: int) -> str:
    if view.is_typing:
        return f"filter: {view.filter}_"
    filtered = f", filter {view.filter!r}" if view.filter else ""
    where = f"groups {view.first + 1}-{view.first + shown} of {total}" if shown else "no groups"
    return f"{where} by {view.order}{filtered}   {KEYS}"


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
    from headrace.client.admin.health import duration

    return (
        group.group_id,
        group.type.capitalize(),
        group.state,
        group.members,
        group.lag,
        None if group.oldest_age_s is None else duration(group.oldest_age_s),
        None if group.rate_done is None else f"{group.rate_done:.1f}",
    )


def _topic_row(topic: "TopicRow") -> tuple[object, ...]:
    return (
        topic.name,
        topic.partitions,
        topic.records,
        None if topic.rate_in is None else f"{topic.rate_in:.1f}",
    )


def _shown(cell: object) -> "Text":
    """Names are no markup, whatever is in them."""
    from rich.text import Text

    return Text(UNKNOWN if cell is None else printable(str(cell)))
