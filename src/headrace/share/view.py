"""What an onlooker is told of a share-partition: by the embedded broker, live, or by the admin client, as written down.

Both give the same shapes. What is written down knows nothing of locks: offsets inside the window that no run covers
have perhaps been acquired, and were not answered for yet. The live view shows those as ACQUIRED, with who holds them
and for how long.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.share.window import RangeView


@dataclass(frozen=True, slots=True)
class StateRun:
    """Neighbouring offsets, first and last included, whose records are alike."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    holder: str | None = None
    """The id of the member that has acquired them; only in the live view."""
    lock_ms_left: int | None = None

    @property
    def count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionState:
    """One group's window on one topic partition."""

    group_id: str
    topic: str
    topic_id: str
    partition: int
    start_offset: int | None
    """SPSO: everything below is settled. None until it is decided, by the first acknowledgement at the latest."""
    next_offset: int | None
    """The first offset after the window."""
    state_epoch: int
    leader_epoch: int
    snapshot_epoch: int
    delivery_complete_count: int | None
    """How many records at or above the start offset are settled (KIP-1226)."""
    runs: tuple[StateRun, ...]
    log_start_offset: int
    log_end_offset: int
    is_live: bool
    """As it is in the serving broker's memory, not as last written to `__share_group_state`."""
    window_max: int | None = None
    """`share.partition.max.record.locks`; only in the live view."""

    @property
    def in_flight(self) -> int:
        """The size of the window: settled records and holes in its middle count, as they do for the limit."""
        if self.start_offset is None or self.next_offset is None:
            return 0
        return self.next_offset - self.start_offset

    def count_of(self, state: RecordState) -> int:
        return sum(run.count for run in self.runs if run.state is state)


def live_runs(ranges: Iterable[RangeView], *, now_ms: int) -> tuple[StateRun, ...]:
    """The engine's ranges, without the borders of batches."""
    return tuple(
        _joined(
            StateRun(
                entry.first,
                entry.last,
                entry.state,
                entry.delivery_count,
                entry.holder,
                None if entry.deadline_ms is None else max(0, entry.deadline_ms - now_ms),
            )
            for entry in ranges
        )
    )


def written_runs(batches: Iterable[StateBatch]) -> tuple[StateRun, ...]:
    """State batches as `merge` leaves them."""
    return tuple(StateRun(*batch) for batch in batches)


def _joined(runs: Iterable[StateRun]) -> Iterator[StateRun]:
    before: StateRun | None = None
    for run in runs:
        if before is not None and before.last + 1 == run.first and _kind(before) == _kind(run):
            before = StateRun(before.first, run.last, *_kind(run))
            continue
        if before is not None:
            yield before
        before = run
    if before is not None:
        yield before


def _kind(run: StateRun) -> tuple[RecordState, int, str | None, int | None]:
    return run.state, run.delivery_count, run.holder, run.lock_ms_left
