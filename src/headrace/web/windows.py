"""A share-partition's window as the dashboard draws it: runs in order, without holes, and not too many of them.

What is written down says nothing of the locks of now: offsets in the window that no run covers are shown as
`unknown`. More than RUNS_MAX runs are gathered into as many pieces of equal length, each with the state that a watcher
should see first. A window may have a hundred thousand runs, so nothing is made for each of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from headrace.client.admin.explain import past_member_name, why_full
from headrace.share.holds import PastHold
from headrace.share.states import RecordState
from headrace.share.view import SharePartitionState, WindowPiece
from headrace.web.model import PartitionWindow, PastHoldRow, WindowRun

RUNS_MAX = 400
UNKNOWN = "unknown"
NAMES = {state: state.name.lower() for state in RecordState}
TELLING = {
    name: rank
    for rank, name in enumerate(("acquired", "archiving", UNKNOWN, "available", "archived", "acknowledged"))
}
"""The state of a piece that holds several is the first of these."""


def window_of(
    view: SharePartitionState,
    *,
    lag: int | None,
    lock_timeouts: int | None = None,
    names: Mapping[str, str] | None = None,
    members: int | None = None,
    runs_max: int = RUNS_MAX,
) -> PartitionWindow:
    whole = list(view.pieces(view.next_offset))
    states: dict[str, int] = {}
    deliveries: dict[int, int] = {}
    for piece in whole:
        count = piece.last - piece.first + 1
        state, delivery_count = _state(piece), _delivery_count(piece)
        states[state] = states.get(state, 0) + count
        deliveries[delivery_count] = deliveries.get(delivery_count, 0) + count
    return PartitionWindow(
        topic=view.topic,
        partition=view.partition,
        start_offset=view.start_offset,
        next_offset=view.next_offset,
        log_start_offset=view.log_start_offset,
        log_end_offset=view.log_end_offset,
        lag=lag,
        in_flight=view.in_flight,
        window_max=view.window_max,
        full_since=view.full_since,
        blocked=why_full(view, names=names, members=members),
        is_live=view.is_live,
        states=states,
        deliveries=dict(sorted(deliveries.items())),
        lock_timeouts=lock_timeouts,
        runs=tuple(_named(run, names or {}) for run in _gathered(whole, runs_max)),
        runs_total=len(whole),
    )


def _named(run: WindowRun, names: Mapping[str, str]) -> WindowRun:
    return run if run.holder is None else replace(run, holder_name=names.get(run.holder, run.holder))


def run_at(view: SharePartitionState, offset: int) -> WindowRun | None:
    """The run that holds an offset; None outside of the window."""
    return next(
        (_run(piece) for piece in view.pieces(view.next_offset) if piece.first <= offset <= piece.last), None
    )


def _state(piece: WindowPiece) -> str:
    return UNKNOWN if piece.run is None else NAMES[piece.run.state]


def _delivery_count(piece: WindowPiece) -> int:
    return 0 if piece.run is None else piece.run.delivery_count


def _run(piece: WindowPiece) -> WindowRun:
    run = piece.run
    return WindowRun(
        first=piece.first,
        last=piece.last,
        state=_state(piece),
        delivery_count=_delivery_count(piece),
        holder=run.holder if run is not None else None,
        lock_ms_left=run.lock_ms_left if run is not None else None,
        held_ms=run.held_ms if run is not None else None,
        renewals=run.renewals if run is not None else None,
        past=past_row(run.past) if run is not None and run.past is not None else None,
    )


def past_row(*holds: PastHold) -> PastHoldRow:
    """Holds of one member that began together."""
    one = holds[0]
    last_end = max((hold.ended_at for hold in holds if hold.ended_at is not None), default=None)
    is_over = all(hold.ended_at is not None for hold in holds)
    return PastHoldRow(
        first=min(hold.first for hold in holds),
        last=max(hold.last for hold in holds),
        count=sum(hold.last - hold.first + 1 for hold in holds),
        ranges=len(holds),
        member_id=one.member_id,
        name=past_member_name(one),
        acquired_at=one.acquired_at,
        ended_at=last_end if is_over else None,
        ends=tuple(dict.fromkeys(hold.end.name.lower() for hold in holds if hold.end is not None)),
        words=", ".join(dict.fromkeys(hold.words for hold in holds if hold.ended_at is not None)),
        held_ms=last_end - one.acquired_at if is_over and last_end is not None else None,
    )


def _gathered(pieces: Sequence[WindowPiece], runs_max: int) -> Iterable[WindowRun]:
    if len(pieces) <= runs_max:
        return map(_run, pieces)
    first, last = pieces[0].first, pieces[-1].last
    length = -(-(last - first + 1) // runs_max)
    gathered: list[WindowRun] = []
    position = 0
    for begin in range(first, last + 1, length):
        end = min(last, begin + length - 1)
        while pieces[position].last < begin:
            position += 1
        beyond = position + 1
        while beyond < len(pieces) and pieces[beyond].first <= end:
            beyond += 1
        inside = pieces[position:beyond]
        telling = _run(min(inside, key=lambda piece: (TELLING[_state(piece)], -_delivery_count(piece))))
        gathered.append(
            WindowRun(
                first=begin,
                last=end,
                state=telling.state,
                delivery_count=max(_delivery_count(piece) for piece in inside),
                holder=telling.holder,
                lock_ms_left=telling.lock_ms_left,
                is_mixed=len(inside) > 1,
            )
        )
    return gathered
