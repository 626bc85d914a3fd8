"""Tables for people, JSON for machines: what commands print.

Tables are plain columns, as Apache's tools print them: they can be read, cut and searched. What nobody knows is `-`.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum, IntEnum
from typing import Any

import typer

from headrace.base.text import printable, printable_json

UNKNOWN = "-"
GAP = "  "
BAR_STEPS = 500


def print_table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *texts, strict=True)]
    typer.echo(styled(_line(headers, widths), bold=True))
    for row in texts:
        typer.echo(_line(row, widths))


def print_json(value: object) -> None:
    typer.echo(printable_json(json.dumps(plain(value), indent=2, ensure_ascii=False)))


def styled(text: str, **style: Any) -> str:
    """As `typer.style`; plain where the user wants no colors. `typer.echo` leaves it out where nobody looks."""
    return text if os.environ.get("NO_COLOR") else typer.style(text, **style)


def plain(value: object) -> Any:
    """What JSON can hold: a dataclass is an object, an answer by topic and partition a list of its values."""
    match value:
        case IntEnum():
            return value.name.lower()
        case Enum():
            return value.value
        case bytes() | bytearray() | memoryview():
            return bytes(value).hex()
        case Mapping():
            if any(not isinstance(key, str) for key in value):
                return [plain(one) for one in value.values()]
            return {key: plain(one) for key, one in value.items()}
        case tuple() if hasattr(value, "_asdict"):
            return {key: plain(one) for key, one in value._asdict().items()}
        case list() | tuple() | set() | frozenset():
            return [plain(one) for one in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in fields(value)}
    return value


def count(number: int, noun: str) -> str:
    """`1 record`, `2 records`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size_text(size: int | None) -> str | None:
    """Bytes for people: 512 B, 1.5 KB, 3.2 GB (powers of 1,024)."""
    if size is None or size < 1024:
        return None if size is None else f"{size} B"
    value = float(size)
    for unit in ("KB", "MB", "GB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TB"


def _text(cell: object) -> str:
    if cell is None or cell == "":
        return UNKNOWN
    return printable(cell.value if isinstance(cell, Enum) and isinstance(cell.value, str) else str(cell))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


@contextmanager
def progress(text: str, total: int | None, *, in_bytes: bool = False) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while something long runs, where somebody looks; yields how to move it on."""
    if total is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as parts
    from rich.console import Console

    step = max(1, total // BAR_STEPS)
    how_far = parts.DownloadColumn() if in_bytes else parts.MofNCompleteColumn()
    columns = (
        parts.TextColumn("{task.description}"),
        parts.BarColumn(),
        how_far,
        parts.TimeRemainingColumn(),
    )
    with parts.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        done = shown = 0

        def advance(number: int) -> None:
            nonlocal done, shown
            done += number
            if done - shown >= step:  # records come faster than a bar can be told of each
                bar.update(task, completed=done)
                shown = done

        yield advance
