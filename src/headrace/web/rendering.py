"""Templates and the small words they use: numbers, times, sizes, links. All pure but for reading templates."""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2

from headrace.version import __version__
from headrace.web.model import Run, Window

FOLDER = Path(__file__).parent
DASH = "–"  # noqa: RUF001
STRIP_WIDTH = 1000
HEAT_MAX = 5
ROWS_MAX = 300
"""A table that is kept live has no more rows."""


def number(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}".replace(",", "\u202f")


def rate(value: float | None) -> str:
    if value is None:
        return DASH
    return number(value) if value >= 100 else f"{value:.1f}".removesuffix(".0")


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} GB"


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


def strip(window: Window) -> list[dict[str, Any]]:
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


def run_title(run: Run) -> str:
    place = f"{run.first}" if run.first == run.last else f"{run.first} to {run.last}"
    words = [f"{place}: {'mostly ' if run.is_mixed else ''}{run.state}"]
    if run.delivery_count:
        words.append(f"delivered {plural(run.delivery_count, 'time')}")
    if run.holder is not None:
        left = f", lock ends in {seconds(run.lock_ms_left)}" if run.lock_ms_left is not None else ""
        words.append(f"held by {run.holder}{left}")
    return "; ".join(words)


@cache
def environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        number=number, rate=rate, size=size, clock=clock, seconds=seconds, short=short, plural=plural
    )
    made.globals.update(
        link=link, strip=strip, version=__version__, strip_width=STRIP_WIDTH, rows_max=ROWS_MAX
    )
    return made


def render(template: str, context: Mapping[str, Any]) -> str:
    return environment().get_template(template).render(context)
