"""Draws a share-partition's window: a strip with a sign for each piece of it, and a line for each run of records.

    orders-0  from 26 to 29: 4 records · 1 left to do · the log ends at 30
      x■■□
      26       archived      1 record   delivered 5 times
      27-28    acknowledged  2 records  delivered once
      29       available     1 record   delivered once

Pure: state in, lines out. What is written down knows no locks of now, so offsets that no run covers are shown as open:
a member has them, or they wait for one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum

from headrace.cli.render import count, styled
from headrace.client.admin.explain import past_member_name
from headrace.share.holds import PastHold
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun, WindowPiece

RUNS_MAX = 20


@dataclass(frozen=True, slots=True)
class Look:
    sign: str
    color: str
    text: str
    """In the legend."""


class Kind(Enum):
    """In order of notice: of several in one piece of the strip, the first is shown."""

    ACQUIRED = Look("▒", "yellow", "acquired: a member has it")
    ARCHIVING = Look("X", "red", "archiving: on its way to the dead letters")
    OPEN = Look("·", "white", "open: with a member, or waiting for one")
    AVAILABLE = Look("□", "cyan", "available: to be delivered again")
    ARCHIVED = Look("x", "red", "archived: given up")
    ACKNOWLEDGED = Look("■", "green", "acknowledged: done")


NOTICE = {kind: rank for rank, kind in enumerate(Kind)}


def pieces_of(state: SharePartitionState) -> list[WindowPiece]:
    """The window without holes, in order. Where nothing live is known it ends with what is open behind it."""
    return list(state.pieces(state.next_offset if state.is_live else state.log_end_offset))


def kind_of(piece: WindowPiece) -> Kind:
    return Kind.OPEN if piece.run is None else Kind[piece.run.state.name]


def strip(pieces: Sequence[WindowPiece], width: int) -> str:
    """At most `width` signs; each stands for as many offsets as it takes."""
    if not pieces:
        return ""
    start, total = pieces[0].first, pieces[-1].last - pieces[0].first + 1
    cells = min(width, total)
    shown: list[Kind | None] = [None] * cells
    for piece in pieces:
        kind = kind_of(piece)
        first = (piece.first - start) * cells // total
        last = (piece.last - start) * cells // total
        for cell in range(first, last + 1):
            before = shown[cell]
            if before is None or NOTICE[kind] < NOTICE[before]:
                shown[cell] = kind
    return "".join(styled(kind.value.sign, fg=kind.value.color) for kind in shown if kind)


def endings(state: SharePartitionState, ended_max: int) -> Iterator[str]:
    """Who had let go of what by a time in the past; the newest first."""
    for hold in state.ended[:ended_max]:
        when = datetime.fromtimestamp((hold.ended_at or 0) / 1000, UTC).strftime("%H:%M:%S")
        yield f"  {when}  {_span(hold.first, hold.last + 1)}  {_ended(hold)}"


def draw(
    state: SharePartitionState, *, lag: int | None, width: int, runs_max: int = RUNS_MAX
) -> Iterator[str]:
    name = styled(f"{state.topic}-{state.partition}", bold=True)
    if state.start_offset is None:
        what = (
            "nothing was delivered yet"
            if state.is_live
            else "no state is written: nothing was fetched, or nothing is settled"
        )
        yield f"{name}  {what} · the log has {_span(state.log_start_offset, state.log_end_offset)}"
        return
    pieces = pieces_of(state)
    yield f"{name}  {_headline(state, pieces, lag)}"
    if not pieces:
        return
    # What is written down ends with the last record somebody has answered for; what comes behind may be millions.
    has_more = not state.is_live and pieces[-1].run is None
    window = pieces[:-1] if has_more else pieces
    if window:
        yield f"  {strip(window, width - 1)}{'…' if has_more else ''}"
    spans = [_span(piece.first, piece.last + 1) for piece in pieces]
    counts = [count(piece.last - piece.first + 1, "record") for piece in pieces]
    widths = max(map(len, spans[:runs_max])), max(map(len, counts[:runs_max]))
    for piece, span, records in list(zip(pieces, spans, counts, strict=True))[:runs_max]:
        kind = kind_of(piece)
        label = styled(f"{kind.name.lower():<12}", fg=kind.value.color)
        yield f"  {span:<{widths[0]}}  {label}  {records:<{widths[1]}}  {_details(piece.run)}".rstrip()
    if len(pieces) > runs_max:
        yield f"  ... and {count(len(pieces) - runs_max, 'more run')} (--runs {len(pieces)} shows them all)"


def legend(states: Sequence[SharePartitionState]) -> str:
    used = {kind_of(piece) for state in states for piece in pieces_of(state)}
    return "\n".join(
        f"{styled(kind.value.sign, fg=kind.value.color)} {kind.value.text}" for kind in Kind if kind in used
    )


def _headline(state: SharePartitionState, pieces: Sequence[WindowPiece], lag: int | None) -> str:
    parts = [f"starts at {state.start_offset}"]
    if state.is_live:
        limit = "" if state.window_max is None else f" of at most {state.window_max:,}"
        parts.append(f"{count(state.in_flight, 'record')}{limit} in the window")
    if lag is not None:
        parts.append("nothing left to do" if lag == 0 else f"{count(lag, 'record')} left to do")
    parts.append(f"the log ends at {state.log_end_offset}")
    return " · ".join(parts)


def _span(first: int, end: int) -> str:
    """`end` is the first offset that is not in it."""
    if end <= first:
        return "no records"
    return str(first) if end == first + 1 else f"{first}-{end - 1}"


def _details(run: StateRun | None) -> str:
    if run is None:
        return ""
    parts = []
    if run.delivery_count:
        times = "once" if run.delivery_count == 1 else f"{run.delivery_count} times"
        parts.append(f"delivered {times}")
    if run.past is not None:
        parts.append(_ended(run.past) if run.held_ms is None else _held(run.past, run.held_ms))
    elif run.holder:
        parts.append(f"by {run.holder}")
    if run.lock_ms_left is not None:
        parts.append(f"lock ends in {run.lock_ms_left / 1000:.1f} s")
    return ", ".join(parts)


def _held(hold: PastHold, held_ms: int) -> str:
    return f"held by {past_member_name(hold)} for {held_ms / 1000:.1f} s by then"


def _ended(hold: PastHold) -> str:
    return f"{hold.words} ({past_member_name(hold)}, after {(hold.held_ms or 0) / 1000:.1f} s)"


assert {kind.name for kind in Kind} == {state.name for state in RecordState} | {"OPEN"}
