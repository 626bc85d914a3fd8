"""Deciding how holds end without an answer: locks that ran out, sessions that closed, a log whose start moved.

And the end of dead-lettering: once its copy is safe, a record is archived.
"""

from collections.abc import Iterable

from headrace.share.acknowledge import exhausted_or, let_go
from headrace.share.changes import AnyChange, Change, StartMoved
from headrace.share.limits import Limits
from headrace.share.locks import Lock
from headrace.share.offsets import OffsetRange
from headrace.share.states import Cause, RecordState
from headrace.share.window import Window


def give_back(window: Window, locks: Iterable[Lock], cause: Cause, limits: Limits) -> list[Change]:
    """Takes everything these locks hold from their holders, in order of offset. Below the start it is archived."""
    held: dict[int, OffsetRange] = {}
    for lock in locks:
        for first, last in lock.spans:
            for entry in window.ranges.over(first, last):
                if entry.lock is lock:
                    held[entry.first] = entry
    changes = []
    start = window.start_offset
    for _, entry in sorted(held.items()):
        first = entry.first
        if first < start:
            changes.append(let_go(entry, first, min(entry.last, start - 1), Cause.TRIM))
            first = start
        if first <= entry.last:
            changes.append(let_go(entry, first, entry.last, exhausted_or(entry, cause, limits)))
    return changes


def archive_before(window: Window, log_start: int) -> list[AnyChange]:
    """The log's start moved: see `SharePartition.archive_before`."""
    if log_start <= window.start_offset:
        return []
    changes: list[AnyChange] = [
        let_go(entry, entry.first, min(entry.last, log_start - 1), Cause.TRIM)
        for entry in window.ranges.available_over(window.start_offset, log_start - 1)
    ]
    return [*changes, StartMoved(log_start)]


def dead_lettered(window: Window, first: int, last: int) -> list[Change]:
    """See `SharePartition.dead_lettered`."""
    changes = []
    for entry in window.ranges.over(first, last):
        if entry.state is RecordState.ARCHIVING:
            begin, end = max(first, entry.first), min(last, entry.last)
            if (
                begin < window.start_offset <= end
            ):  # the log's start moved meanwhile; what is below it is forgotten
                changes.append(let_go(entry, begin, window.start_offset - 1, Cause.DEAD_LETTER))
                begin = window.start_offset
            changes.append(let_go(entry, begin, end, Cause.DEAD_LETTER))
    return changes
