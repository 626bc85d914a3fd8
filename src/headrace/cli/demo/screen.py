"""What the audience sees while an act is played: moving on a terminal, a plain line every now and then elsewhere."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from headrace.cli.demo.world import World

LINE_EVERY_S = 2.0
BAR_WIDTH = 26
Row = tuple[str, float, str]
"""A label, how far it is (0 to 1), and what there is to say."""


class Moving:
    """Draws rows again and again: `with Moving(world, rows) as show: ... show()`. The last frame stays."""

    def __init__(self, world: "World", rows: Callable[[], list[Row]]) -> None:
        self._world = world
        self._rows = rows
        self._live = Live(console=world.console, refresh_per_second=10) if world.is_live else None
        self._next_line = time.monotonic() + LINE_EVERY_S

    def __enter__(self) -> Callable[[], None]:
        if self._live is not None:
            self._live.start()
        self.show()
        return self.show

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.update(frame(self._rows()))
            self._live.stop()
        elif kind is None:
            self._world.console.print(frame(self._rows()))

    def show(self) -> None:
        if self._live is not None:
            self._live.update(frame(self._rows()))
        elif not self._world.console.record and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + LINE_EVERY_S
            self._world.say("   " + " | ".join(f"{label.strip()}: {text}" for label, _, text in self._rows()))


def frame(rows: list[Row]) -> Table:
    """Fits into 80 columns."""
    table = Table.grid(padding=(0, 1))
    for label, share, text in rows:
        table.add_row("  ", Text(label), bar(share), Text(text))
    return table


def bar(share: float) -> Text:
    filled = round(BAR_WIDTH * min(1.0, max(0.0, share)))
    return Text.assemble(("█" * filled, "green"), ("░" * (BAR_WIDTH - filled), "dim"))
