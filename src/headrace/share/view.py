"""What an onlooker is told of a share-partition: by the embedded broker, live, or by the admin client, as written down.

Both give the same shapes. What is written down knows nothing of the locks of now: offsets inside the window that no
run covers have perhaps been acquired, and were not answered for yet. The live view shows those as ACQUIRED, with who
holds them and for how long; the view of a time in the past does so for holds that have ended since.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.base.ranges import joined
from headrace.share.changes import StateBatch
from headrace.share.holds import PastHold
from headrace.share.states import RecordState
from headrace.share.window import RangeView


@dataclass(frozen=True, slots=True)
class StateRun:
    """Neighboring offsets, first and last included, whose records are alike."""

    first: int
    last: int
    state: RecordState
    delivery_count: int
    holder: str | None = None
    """The id of the member that has acquired them; in the live view, and in the past if it is known."""
    lock_ms_left: int | None = None
    held_ms: int | None = field(default=None, compare=False)
    """How long the holder has had them, renewals included."""
    renewals: int | None = field(default=None, compare=False)
    """Only in the live view."""
    past: PastHold | None = field(default=None, compare=False)
    """Only in the past: the hold at that time if ACQUIRED, else the one that ended with this state, if known."""

    @property
    def count(self) -> int:
        return self.last - self.first + 1


class WindowPiece(NamedTuple):
    """A run, cut to the window; or a hole in it, of which nothing is known."""

    first: int
    last: int
    run: StateRun | None


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
    full_since: int | None = None
    """When the window became full, in milliseconds since 1970; only in the live view."""
    created_ms: int | None = None
    """When the state was created, in milliseconds since 1970. Apache Kafka sets it anew with each snapshot."""
    snapshot_ms: int | None = None
    """When the last snapshot was written, in milliseconds since 1970."""
    stable_offset: int | None = None
    """Where the oldest open transaction begins, if the group reads only committed records; only in the live view."""
    seen_at: int | None = None
    """When the live view was taken, in milliseconds since 1970."""
    names_holders: bool | None = None
    """In the past: whether what is written names members, if there is any. Apache Kafka writes none."""
    ended: tuple[PastHold, ...] = ()
    """In the past: the holds that had ended last, the newest first."""

    @property
    def in_flight(self) -> int:
        """The size of the window: settled records and holes in its middle count, as they do for the limit."""
        if self.start_offset is None or self.next_offset is None:
            return 0
        return self.next_offset - self.start_offset

    @property
    def lag(self) -> int | None:
        """Records of the log that are not settled; None where the view does not tell."""
        if self.start_offset is None or self.delivery_complete_count is None:
            return None
        return max(0, self.log_end_offset - self.start_offset - self.delivery_complete_count)

    def pieces(self, end: int | None) -> Iterator[WindowPiece]:
        """From the start offset to before `end`, in order and without holes."""
        if self.start_offset is None or end is None:
            return
        due = self.start_offset
        for run in self.runs:
            if run.last < due:
                continue
            if run.first > due:
                yield WindowPiece(due, run.first - 1, None)
            yield WindowPiece(max(run.first, due), run.last, run)
            due = run.last + 1
        if due < end:
            yield WindowPiece(due, end - 1, None)

    def count_of(self, state: RecordState) -> int:
        return sum(run.count for run in self.runs if run.state is state)


def live_holds(view: SharePartitionState) -> Iterator[PastHold]:
    """What is held in a live view, as a view of the past knows holds."""
    for run in view.runs:
        if run.holder is not None and run.held_ms is not None and view.seen_at is not None:
            acquired_at = view.seen_at - run.held_ms
            yield PastHold(run.first, run.last, run.delivery_count, run.holder, "", "", acquired_at)


def live_runs(ranges: Iterable[RangeView], *, now_ms: int) -> tuple[StateRun, ...]:
    """The engine's ranges, without the borders of batches."""

    def kind(
        entry: RangeView,
    ) -> tuple[RecordState, int, str | None, int | None, int | None, int | None]:
        if entry.hold is None or entry.deadline_ms is None:
            return entry.state, entry.delivery_count, None, None, None, None
        member, since_ms, renewals = entry.hold
        ms_left, held_ms = max(0, entry.deadline_ms - now_ms), max(0, now_ms - since_ms)
        return entry.state, entry.delivery_count, member, ms_left, held_ms, renewals

    return tuple(StateRun(each.first, each.last, *kind(each)) for each in joined(ranges, kind))


def written_runs(batches: Iterable[StateBatch]) -> tuple[StateRun, ...]:
    """State batches as `merge` leaves them."""
    return tuple(StateRun(*batch) for batch in batches)
