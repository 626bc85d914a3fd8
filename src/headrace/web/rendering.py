"""Templates and the small words they use: numbers, times, sizes, links. All pure but for reading templates.

Whatever a template shows has its control characters and marks of direction escaped, as on the command line: anybody may
choose a group id that reads as another one. `| as_is` is for what scripts and forms send back, and for the values of
records; `| lines` for texts of several lines.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2

from headrace.base.text import printable, printable_lines
from headrace.client.admin.health import duration
from headrace.version import __version__
from headrace.web.model import PartitionWindow, WindowRun

FOLDER = Path(__file__).parent
DASH = "–"  # noqa: RUF001
STRIP_WIDTH = 1000
HEAT_MAX = 5


def number(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    if value is None:
        return DASH
    return number(value) if value >= 100 else f"{value:.1f}".removesuffix(".0")


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def bytes_text(count: int | None) -> str:
    return DASH if count is None else size(count)


def age(seconds_old: float | None) -> str:
    return DASH if seconds_old is None else duration(seconds_old)


def choice_link(path: str, choice: Any, **changes: object) -> str:
    """The same search on another page or in another order; what is the default is left out."""
    given = {
        each.name: changes.get(each.name, getattr(choice, each.name))
        for each in fields(choice)
        if changes.get(each.name, getattr(choice, each.name)) != each.default
    }
    return link(path, **given)


def clock(timestamp_ms: int | None) -> str:
    """In UTC, as the logs are."""
    if timestamp_ms is None or timestamp_ms < 0:
        return DASH
    try:
        return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (ValueError, OverflowError, OSError):  # a producer may send any number
        return str(timestamp_ms)


def seconds(milliseconds: int | None) -> str:
    return DASH if milliseconds is None else f"{milliseconds / 1000:.1f} s".replace(".0 s", " s")


def link(path: str, **parameters: object) -> str:
    given = {name: value for name, value in parameters.items() if value is not None}
    return path + ("?" + urlencode(given) if given else "")


def short(text: str, length: int = 22) -> str:
    """Member ids are long and differ at their beginning."""
    return text if len(text) <= length else text[: length - 1] + "…"


def plural(count: int | None, one: str, many: str | None = None) -> str:
    return f"{number(count)} {one if count == 1 else many or one + 's'}"


def strip(window: PartitionWindow) -> list[dict[str, Any]]:
    """The window's runs as rectangles on a strip of STRIP_WIDTH units."""
    if not window.runs:
        return []
    first, last = window.runs[0].first, window.runs[-1].last
    scale = STRIP_WIDTH / (last - first + 1)
    return [
        {
            "x": f"{(run.first - first) * scale:.2f}",
            "width": f"{run.count * scale:.2f}",
            "state": run.state,
            "heat": min(HEAT_MAX, run.delivery_count),
            "title": run_title(run),
            "run": run,
        }
        for run in window.runs
    ]


def run_title(run: WindowRun) -> str:
    place = f"{run.first}" if run.first == run.last else f"{run.first} to {run.last}"
    words = [f"{place}: {'mostly ' if run.is_mixed else ''}{run.state}"]
    if run.delivery_count:
        words.append(f"delivered {plural(run.delivery_count, 'time')}")
    if run.holder is not None:
        left = f", lock ends in {seconds(run.lock_ms_left)}" if run.lock_ms_left is not None else ""
        since = f" since {clock(run.past.acquired_at)} UTC" if run.past is not None else ""
        words.append(f"held by {run.holder_name or run.holder}{since}{left}")
    elif run.past is not None:
        words.append(f"{run.past.words}: {run.past.name}, after {seconds(run.past.held_ms)}")
    return "; ".join(words)


class AsIs(str):
    """A text that is not escaped for the eye. For HTML, it is."""

    __slots__ = ()


def lines(text: str) -> str:
    return AsIs(printable_lines(text))


def shown(value: object) -> object:
    """HTML that a macro has made is no plain text any more."""
    return printable(value) if type(value) is str else value


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    made.filters.update(
        as_is=AsIs,
        lines=lines,
        number=number,
        rate=rate,
        size=size,
        bytes=bytes_text,
        age=age,
        clock=clock,
        seconds=seconds,
        short=short,
        plural=plural,
    )
    made.globals.update(
        link=link, choice_link=choice_link, strip=strip, version=__version__, strip_width=STRIP_WIDTH
    )
    return made


def render(template: str, context: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(context)
