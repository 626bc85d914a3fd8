"""A share-partition's window as the dashboard draws it: runs in order, without holes, and not too many of them.

What is written down says nothing of locks: offsets in the window that no run covers are shown as `unknown`. More than
RUNS_MAX runs are gathered into as many pieces of equal length, each with the state that a watcher should see first. A
window may have a hundred thousand runs, so nothing is made for each of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun
from headrace.web.model import Run, Window

RUNS_MAX = 400
UNKNOWN = "unknown"
NAMES = {state: state.name.lower() for state in RecordState}
TELLING = {
    name: rank
    for rank, name in enumerate(("acquired", "archiving", UNKNOWN, "available", "archived", "acknowledged"))
}
"""The state of a piece that holds several is the first of these."""


class WindowRange(NamedTuple):
    """A run, cut to the window; `run` is None for a hole."""

    first: int
    last: int
    state: str
    run: StateRun | None

    @property
    def delivery_count(self) -> int:
        return self.run.delivery_count if self.run is not None else 0


def window_of(
    view: SharePartitionState, *, lag: int | None, lock_timeouts: int | None = None, runs_max: int = RUNS_MAX
) -> Window:
    whole = list(_pieces(view))
    states: dict[str, int] = {}
    deliveries: dict[int, int] = {}
    for piece in whole:
        count = piece.last - piece.first + 1
        states[piece.state] = states.get(piece.state, 0) + count
        deliveries[piece.delivery_count] = deliveries.get(piece.delivery_count, 0) + count
    return Window(
        topic=view.topic,
        partition=view.partition,
        start_offset=view.start_offset,
        next_offset=view.next_offset,
        log_start_offset=view.log_start_offset,
        log_end_offset=view.log_end_offset,
        lag=lag,
        in_flight=view.in_flight,
        window_max=view.window_max,
        is_live=view.is_live,
        states=states,
        deliveries=dict(sorted(deliveries.items())),
        lock_timeouts=lock_timeouts,
        runs=tuple(_gathered(whole, runs_max)),
        runs_total=len(whole),
    )


def run_at(view: SharePartitionState, offset: int) -> Run | None:
    """The run that holds an offset; None outside of the window."""
    return next((_run(piece) for piece in _pieces(view) if piece.first <= offset <= piece.last), None)


def _pieces(view: SharePartitionState) -> Iterator[WindowRange]:
    if view.start_offset is None or view.next_offset is None:
        return
    due = view.start_offset
    for run in view.runs:
        if run.last < due or run.first >= view.next_offset:
            continue
        if run.first > due:
            yield WindowRange(due, run.first - 1, UNKNOWN, None)
        yield WindowRange(max(run.first, due), run.last, NAMES[run.state], run)
        due = run.last + 1
    if due < view.next_offset:
        yield WindowRange(due, view.next_offset - 1, UNKNOWN, None)


def _run(piece: WindowRange) -> Run:
    run = piece.run
    return Run(
        first=piece.first,
        last=piece.last,
        state=piece.state,
        delivery_count=piece.delivery_count,
        holder=run.holder if run is not None else None,
        lock_ms_left=run.lock_ms_left if run is not None else None,
    )


def _gathered(pieces: Sequence[WindowRange], runs_max: int) -> Iterable[Run]:
    if len(pieces) <= runs_max:
        return map(_run, pieces)
    first, last = pieces[0].first, pieces[-1].last
    length = -(-(last - first + 1) // runs_max)
    gathered: list[Run] = []
    position = 0
    for begin in range(first, last + 1, length):
        end = min(last, begin + length - 1)
        while pieces[position].last < begin:
            position += 1
        beyond = position + 1
        while beyond < len(pieces) and pieces[beyond].first <= end:
            beyond += 1
        inside = pieces[position:beyond]
        telling = _run(min(inside, key=lambda piece: (TELLING[piece.state], -piece.delivery_count)))
        gathered.append(
            Run(
                first=begin,
                last=end,
                state=telling.state,
                delivery_count=max(piece.delivery_count for piece in inside),
                holder=telling.holder,
                lock_ms_left=telling.lock_ms_left,
                is_mixed=len(inside) > 1,
            )
        )
    return gathered
