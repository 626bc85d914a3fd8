"""SharePartition: one group's view of one topic partition. The face of the engine toward the broker.

Decide, journal, apply:

    acquisition = partition.acquire("m1", ..., now_ms=now_ms)   # may refuse; nothing has moved
    write = partition.write_for(changes)                        # what to journal; may fail; nothing has moved
    partition.apply(changes)                                    # never refuses; recovery does the same

Nothing may happen between deciding and applying, so one thread owns a share-partition. Between the calls the broker
calls `expire` when `deadline_ms()` has come. All offsets are inclusive at both ends.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.share import acknowledge, acquire, release
from headrace.share.changes import (
    AckBatch,
    Acquisition,
    AnyChange,
    Change,
    Span,
    StateBatch,
    StateWrite,
    state_batches,
)
from headrace.share.limits import Limits
from headrace.share.modes import AcquireMode
from headrace.share.states import Cause, RecordState
from headrace.share.window import RangeView, Window


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionSnapshot:
    """Everything that is true of a share-partition, for views and for comparing a replay with what it replays."""

    start_offset: int
    end_offset: int
    next_offset: int
    gap_offset: int | None  # the first offset that is still to be read again after a restart
    records: tuple[int, ...]  # how many records are in each state, by RecordState
    ranges: tuple[RangeView, ...]


class SharePartition:
    __slots__ = ("_window",)

    def __init__(self, start_offset: int) -> None:
        self._window = Window(start_offset)

    @classmethod
    def recover(cls, start_offset: int, batches: Sequence[StateBatch]) -> "SharePartition":
        """From persisted state, sorted and disjoint as `merge` leaves it; raises CorruptState if it is not.

        Offsets between the batches are read again: they may have been acquired and never answered for.
        """
        partition = cls(start_offset)
        partition._window.recover(batches)
        return partition

    @property
    def start_offset(self) -> int:
        """SPSO: everything below is settled, deleted or never existed."""
        return self._window.start_offset

    @property
    def end_offset(self) -> int:
        """SPEO: the last offset of the window; equal to the start offset when the window is empty."""
        window = self._window
        return max(window.start_offset, window.next_offset - 1)

    @property
    def window_size(self) -> int:
        """In-flight records, as a distance of offsets: settled ones and holes in the middle count."""
        return self._window.size

    @property
    def delivery_complete_count(self) -> int:
        """How many records at or above the start offset are settled (KIP-1226)."""
        return self._window.final_count

    @property
    def range_count(self) -> int:
        return len(self._window.ranges)

    @property
    def holders(self) -> list[str]:
        """The members that hold records."""
        return self._window.locks.holders()

    def count_of(self, state: RecordState) -> int:
        return self._window.ranges.records[state]

    def near_limit(self, limits: Limits) -> int:
        """Records that wait for their last delivery."""
        return self._window.ranges.available_records(max(1, limits.delivery_limit - 1))

    def next_fetch_offset(self) -> int:
        """Where the next read of the log should begin."""
        return self._window.next_fetch_offset()

    def can_acquire(self, limits: Limits) -> bool:
        """Whether there may be anything to acquire: something came back, or the window has room."""
        window = self._window
        return window.size < limits.window_max or window.next_fetch_offset() != window.next_offset

    def acquire(
        self,
        member: str,
        *,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        batch_size: int,
        records_max: int,
        fetch_offset: int,
        batches: Sequence[Span],
        limits: Limits,
        aborted: Sequence[Span] = (),
        now_ms: int,
    ) -> Acquisition:
        """Decides which of the records just read go to a member.

        `batches` are the record batches that reading from `fetch_offset` gave, `aborted` those among them that
        belong to aborted transactions (read_committed only), both in order. Never refuses; may acquire nothing and
        still archive records that the log does not have any more.
        """
        return acquire.acquire(
            self._window,
            member,
            mode=mode,
            batch_size=batch_size,
            records_max=records_max,
            fetch_offset=fetch_offset,
            batches=batches,
            limits=limits,
            aborted=aborted,
            now_ms=now_ms,
        )

    def acknowledge(
        self,
        member: str,
        batches: Sequence[AckBatch],
        *,
        limits: Limits,
        allows_renew: bool = False,
        now_ms: int,
    ) -> list[Change]:
        """Decides on a member's answers: all of them, or InvalidRequest or InvalidRecordState and none.

        `allows_renew`: the request is one that may renew locks (IsRenewAck).
        """
        return acknowledge.acknowledge(
            self._window, member, batches, limits=limits, allows_renew=allows_renew, now_ms=now_ms
        )

    def release_member(self, member: str, *, limits: Limits) -> list[Change]:
        """Gives back everything a member holds: its session was closed, or its connection."""
        locks = self._window.locks.of(member)
        return release.give_back(self._window, locks, Cause.CLOSE, limits)

    def expire(self, now_ms: int, *, limits: Limits) -> list[Change]:
        """Gives back everything whose lock has run out."""
        locks = self._window.locks.due(now_ms)
        return release.give_back(self._window, locks, Cause.EXPIRE, limits)

    def deadline_ms(self) -> int | None:
        """When to call `expire` next; None while nothing is held."""
        return self._window.locks.deadline_ms()

    def archive_before(self, log_start: int) -> list[AnyChange]:
        """The log begins at `log_start` now: what could be acquired below is archived and the start offset moves
        there.

        Records that are held stay so until they are answered for, which is then ignored, or their lock ends.
        """
        return release.archive_before(self._window, log_start)

    def archiving(self) -> list[StateBatch]:
        """Records that wait for their copy in the dead-letter topic; after `recover`, those to copy once more."""
        if not self.count_of(RecordState.ARCHIVING):
            return []
        return [
            StateBatch(entry.first, entry.last, entry.state, entry.delivery_count)
            for entry in self._window.ranges
            if entry.state is RecordState.ARCHIVING
        ]

    def dead_lettered(self, first: int, last: int) -> list[Change]:
        """The copies of first..last are safe in the dead-letter topic (or given up): archives them."""
        return release.dead_lettered(self._window, first, last)

    def write_for(self, changes: Sequence[AnyChange], *, is_ahead: bool = False) -> StateWrite | None:
        """What to persist for a decision, before it is applied; None if nothing.

        Kafka writes the start offset as it is *before* the decision and the new one only with the next write: after
        all is accepted, an offsets listing may show the old start and a lag of 0. `is_ahead` writes where the start
        will be.
        """
        batches = state_batches(changes, start_offset=self.start_offset)
        if not batches:
            return None
        if not is_ahead:
            return StateWrite(self.start_offset, self._window.final_count_after(changes), batches)
        start_offset, final_count = self._window.start_after(changes)
        return StateWrite(start_offset, final_count, state_batches(changes, start_offset=start_offset))

    def apply(self, changes: Iterable[AnyChange]) -> bool:
        """Makes decided changes so. True if that may serve a parked fetch: records came back, or room is free."""
        return self._window.apply(changes)

    def snapshot(self) -> SharePartitionSnapshot:
        window = self._window
        return SharePartitionSnapshot(
            start_offset=window.start_offset,
            end_offset=self.end_offset,
            next_offset=window.next_offset,
            gap_offset=window.gap_offset,
            records=tuple(window.ranges.records),
            ranges=window.views(),
        )
