"""Deciding an acquisition: which of the records just read from the log a member gets.

Theory of operation. The caller read the log from `next_fetch_offset()` and says which record batches came back. Records
that are in the window and AVAILABLE again are taken first, in order; then, if there is room left, records that are new.
Three rules make it more than that:

- The window is bounded (`Limits.window_max`), but a full one still hands out again what came back.
- What the log no longer has (the read began behind the offset asked for) is archived, so that the start can pass it.
- Records that keep coming back are isolated: from `Limits.isolation_count` deliveries on, an in-flight
  batch is handed out alone and in pieces that halve with every further delivery, and a record on its last delivery is
  handed out alone, so that one bad record does not take its neighbors to the delivery limit with it
  ("Isolating bad records" in docs/concepts/share-semantics.md).
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter

from headrace.share.changes import AcquiredRecords, Acquisition, Change, Span
from headrace.share.holds import Hold
from headrace.share.limits import Limits
from headrace.share.modes import AcquireMode, cut_new
from headrace.share.offsets import OffsetRange
from headrace.share.states import TRANSITIONS, Cause, RecordState
from headrace.share.window import Window

AVAILABLE = RecordState.AVAILABLE
TAKEN = TRANSITIONS[AVAILABLE, Cause.ACQUIRE]
LEFT = TRANSITIONS[AVAILABLE, Cause.READ]
ABORTED = TRANSITIONS[AVAILABLE, Cause.ABORT]
COMPACTED = TRANSITIONS[AVAILABLE, Cause.COMPACT]
UNREAD = -1


def acquire(
    window: Window,
    member: str,
    *,
    mode: AcquireMode,
    batch_size: int,
    records_max: int,
    fetch_offset: int,
    batches: Sequence[Span],
    limits: Limits,
    aborted: Sequence[Span],
    now_ms: int,
) -> Acquisition:
    """See `SharePartition.acquire`."""
    if records_max <= 0 or not batches or batches[-1][1] < window.start_offset:
        return Acquisition([], [])
    base, last = batches[0][0], batches[-1][1]
    room = min(records_max, limits.window_max - window.size)
    if room <= 0:
        if fetch_offset >= window.next_offset:
            return Acquisition([], [])
        room = min(records_max, window.next_offset - fetch_offset)
        last = min(last, window.next_offset - 1)
    hold = Hold(member, now_ms)
    taking = _Taking(hold, now_ms + limits.lock_ms, room, mode, batch_size, batches, aborted)
    if fetch_offset < base:
        _archive_missing(window, taking.changes, fetch_offset, base - 1)
    if window.next_fetch_offset() < window.next_offset and not _take_again(
        window, taking, base, last, limits
    ):
        return Acquisition(taking.changes, taking.acquired)
    first = max(base, window.next_offset)
    if first <= last and taking.room > 0:
        taking.take_new(first, last)
    return Acquisition(taking.changes, taking.acquired)


def _archive_missing(window: Window, changes: list[Change], first: int, last: int) -> None:
    """What could be acquired in first..last, but is not in the log any more."""
    for entry in window.ranges.available_over(first, last):
        span = max(first, entry.first), min(last, entry.last)
        changes.append(Change(*span, COMPACTED, entry.delivery_count, Cause.COMPACT, None, None, entry.batch))
    for span in window.unread(first, last):
        changes.append(Change(*span, COMPACTED, 0, Cause.COMPACT, None, None, span))


def _take_again(window: Window, taking: "_Taking", base: int, last: int, limits: Limits) -> bool:
    """Takes records of the window that are AVAILABLE or unread. False when nothing may follow them."""
    any_needs_isolation = any(count >= limits.isolation_count for count in window.ranges.available_counts)
    entries = window.ranges.available_over(base, last)
    batch: Span | None = None
    for entry in entries if window.gap_offset is None else _with_unread(window, entries, base, last):
        if taking.room <= 0 and (taking.is_strict or entry.batch != batch):
            return False
        if entry.batch != batch:
            batch = entry.batch
            if entry.delivery_count == UNREAD:
                taking.take_new(entry.first, entry.last)
                continue
            if any_needs_isolation and _needs_isolation(window, batch, max(base, entry.first), last, limits):
                if not taking.has_taken:
                    _take_isolated(window, taking, batch, max(base, entry.first), last, limits)
                return False
        taking.take(max(base, entry.first), min(last, entry.last), entry.delivery_count, batch)
    return True


def _with_unread(
    window: Window, available: Iterator[OffsetRange], base: int, last: int
) -> Iterator[OffsetRange]:
    """AVAILABLE ranges, and between them what is still unread after a restart: ranges with a count of UNREAD."""
    entry = next(available, None)
    for first, end in window.unread(base, last):
        while entry is not None and entry.first < first:
            yield entry
            entry = next(available, None)
        yield OffsetRange(first, end, AVAILABLE, UNREAD, None, (first, end))
    while entry is not None:
        yield entry
        entry = next(available, None)


def _needs_isolation(window: Window, batch: Span, first: int, last: int, limits: Limits) -> bool:
    """Whether a record of this batch, among those that could be acquired now, came back too often."""
    for entry in window.ranges.available_over(first, min(last, batch[1])):
        if entry.delivery_count >= limits.isolation_count:
            return True
    return False


def _take_isolated(
    window: Window, taking: "_Taking", batch: Span, first: int, last: int, limits: Limits
) -> None:
    """Takes a part of one in-flight batch only: see "isolated" in the module's docstring."""
    part_max: int | None = None
    taken = 0
    for entry in window.ranges.available_over(first, min(last, batch[1])):
        begin, end = max(first, entry.first), min(last, entry.last)
        is_last_delivery = limits.delivery_limit > 2 and entry.delivery_count == limits.delivery_limit - 1
        if is_last_delivery:
            if taken:
                return
            end = begin
        if part_max is None and entry.delivery_count >= limits.isolation_count:
            halvings = entry.delivery_count - limits.isolation_count + 1
            part_max = max(1, (batch[1] - batch[0] + 1) >> halvings)
        if part_max is not None:
            end = min(end, begin + part_max - taken - 1)
            if end < begin:
                return
        end = taking.take(begin, end, entry.delivery_count, batch)
        taken += end - begin + 1
        if is_last_delivery or taken == part_max or (taking.is_strict and taking.room <= 0):
            return


class _Taking:
    """What one acquisition has taken so far, and how much more it may."""

    __slots__ = (
        "_aborted",
        "_batch_size",
        "_batches",
        "_deadline_ms",
        "_hold_begun",
        "_mode",
        "acquired",
        "changes",
        "has_taken",
        "is_strict",
        "room",
    )

    def __init__(
        self,
        hold: Hold,
        deadline_ms: int,
        room: int,
        mode: AcquireMode,
        batch_size: int,
        batches: Sequence[Span],
        aborted: Sequence[Span],
    ) -> None:
        self._hold_begun = hold
        self._deadline_ms = deadline_ms
        self.room = room
        self._mode = mode
        self.is_strict = mode is AcquireMode.RECORD_LIMIT
        self._batch_size = batch_size
        self._batches = batches
        self._aborted = aborted
        self.has_taken = False
        self.changes: list[Change] = []
        self.acquired: list[AcquiredRecords] = []

    def take(self, first: int, last: int, count: int, batch: Span) -> int:
        """Takes records that have been delivered `count` times; the last one that was taken, if there is a limit."""
        if self.is_strict:
            last = min(last, first + self.room - 1)
        self._take(first, last, count + 1, batch)
        return last

    def take_new(self, first: int, last: int) -> None:
        """Takes records that are new to the window, as many as there is room for."""
        cuts = cut_new(self._mode, self._batches, first, last, room=self.room, batch_size=self._batch_size)
        for batch, taken_last in cuts:
            self._take(batch[0], taken_last, 1, batch)
            if taken_last < batch[1]:
                self.changes.append(Change(taken_last + 1, batch[1], LEFT, 0, Cause.READ, None, None, batch))

    def _take(self, first: int, last: int, count: int, batch: Span) -> None:
        self.has_taken = True
        self.room -= last - first + 1
        index = bisect_left(self._aborted, first, key=itemgetter(1)) if self._aborted else 0
        for aborted_first, aborted_last in islice(self._aborted, index, None):
            if aborted_first > last:
                break
            if aborted_first > first:
                self._hold(first, aborted_first - 1, count, batch)
            span = max(first, aborted_first), min(last, aborted_last)
            self.changes.append(Change(*span, ABORTED, count, Cause.ABORT, None, None, batch))
            first = span[1] + 1
        if first <= last:
            self._hold(first, last, count, batch)

    def _hold(self, first: int, last: int, count: int, batch: Span) -> None:
        self.changes.append(
            Change(first, last, TAKEN, count, Cause.ACQUIRE, self._hold_begun, self._deadline_ms, batch)
        )
        self.acquired.append(AcquiredRecords(first, last, count))
