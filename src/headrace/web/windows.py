"""A share-partition's window as the dashboard draws it: runs in order, without holes, and not too many of them.

What is written down says nothing of locks: offsets in the window that no run covers are shown as `unknown`. More than
RUNS_MAX runs are gathered into as many pieces of equal length, each with the state that a watcher should see first.
"""

from collections.abc import Iterable, Iterator, Sequence

from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, StateRun
from headrace.web.model import Run, Window

RUNS_MAX = 400
UNKNOWN = "unknown"
TELLING = ("acquired", "archiving", UNKNOWN, "available", "archived", "acknowledged")
"""The state of a piece that holds several is the first of these."""


def window_of(
    view: SharePartitionState, *, lag: int | None, lock_timeouts: int | None = None, runs_max: int = RUNS_MAX
) -> Window:
    whole = list(_without_holes(view))
    states: dict[str, int] = {}
    deliveries: dict[int, int] = {}
    for run in whole:
        states[run.state] = states.get(run.state, 0) + run.count
        deliveries[run.delivery_count] = deliveries.get(run.delivery_count, 0) + run.count
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
    return next((run for run in _without_holes(view) if run.first <= offset <= run.last), None)


def state_name(state: RecordState) -> str:
    return state.name.lower()


def _without_holes(view: SharePartitionState) -> Iterator[Run]:
    if view.start_offset is None or view.next_offset is None:
        return
    due = view.start_offset
    for run in view.runs:
        if run.last < view.start_offset or run.first >= view.next_offset:
            continue
        if run.first > due:
            yield Run(first=due, last=run.first - 1, state=UNKNOWN, delivery_count=0)
        yield _run(run, max(run.first, view.start_offset))
        due = run.last + 1
    if due < view.next_offset:
        yield Run(first=due, last=view.next_offset - 1, state=UNKNOWN, delivery_count=0)


def _run(run: StateRun, first: int) -> Run:
    return Run(
        first=first,
        last=run.last,
        state=state_name(run.state),
        delivery_count=run.delivery_count,
        holder=run.holder,
        lock_ms_left=run.lock_ms_left,
    )


def _gathered(runs: Sequence[Run], runs_max: int) -> Iterable[Run]:
    if len(runs) <= runs_max:
        return runs
    first, last = runs[0].first, runs[-1].last
    length = -(-(last - first + 1) // runs_max)
    pieces: list[Run] = []
    position = 0
    for begin in range(first, last + 1, length):
        end = min(last, begin + length - 1)
        while runs[position].last < begin:
            position += 1
        beyond = position + 1
        while beyond < len(runs) and runs[beyond].first <= end:
            beyond += 1
        inside = runs[position:beyond]
        telling = min(inside, key=lambda run: (TELLING.index(run.state), -run.delivery_count))
        pieces.append(
            Run(
                first=begin,
                last=end,
                state=telling.state,
                delivery_count=max(run.delivery_count for run in inside),
                holder=telling.holder,
                lock_ms_left=telling.lock_ms_left,
                is_mixed=len(inside) > 1,
            )
        )
    return pieces
