"""Where reading starts: `17`, `-10`, `@2026-11-15T12:30`, `@-15m`, `beginning`, `end`. Text in, a point out."""

from dataclasses import dataclass

import typer

from headrace.cli.moments import EPOCH, MS, parse_moment

CURE = "write an offset, -N for the last N records, @TIME, beginning or end"


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Exactly one is given; none is the end."""

    offset: int | None = None
    last: int | None = None
    """So many records before the end of each partition. Which offset that is, only reading tells: transactions,
    compaction and records that were aborted leave gaps.
    """
    time_ms: int | None = None

    def resolve(self, first: int, end: int, at_time: int) -> int:
        """The offset to begin with, in a log from `first` to `end`; `at_time` is -1 if no record is so young."""
        if self.time_ms is not None:
            return end if at_time < 0 else at_time
        return end if self.offset is None else min(max(first, self.offset), end)


OLDEST, NEWEST = StartingPoint(offset=0), StartingPoint()


def parse_start(text: str) -> StartingPoint:
    match text:
        case "beginning" | "earliest":
            return OLDEST
        case "end" | "latest":
            return NEWEST
    if text.startswith("@"):
        return StartingPoint(time_ms=(parse_moment(text[1:], "--offset") - EPOCH) // MS)
    try:
        number = int(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not an offset; {CURE}", param_hint="--offset") from None
    return StartingPoint(last=-number) if text.startswith("-") else StartingPoint(offset=number)
