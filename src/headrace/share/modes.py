"""The two acquire modes (KIP-1206): how much of what was read a fetch takes, and in which pieces.

batch_optimized rounds up: it takes whole record batches, and of records that came back whole in-flight batches, so that
clients can answer with few ranges. Its limit is a target. record_limit takes what was asked for and no record more; the
rest of a record batch that it cuts enters the window as AVAILABLE, for the next fetch.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import IntEnum

from headrace.share.changes import Span


class AcquireMode(IntEnum):
    """ShareAcquireMode on the wire."""

    BATCH_OPTIMIZED = 0
    RECORD_LIMIT = 1


def batch_end(batches: Sequence[Span], offset: int) -> int:
    """The last offset of the record batch that holds `offset`; the offset itself when it lies in a hole."""
    index = bisect_right(batches, (offset, _INFINITE)) - 1
    return max(offset, batches[index][1]) if index >= 0 else offset


_INFINITE = 1 << 63


def cut_new(
    mode: AcquireMode, batches: Sequence[Span], first: int, last: int, *, room: int, batch_size: int
) -> list[tuple[Span, int]]:
    """In-flight batches for records first..last that are new here, each with the last offset that is taken of it.

    `batches` are the record batches as read, `room` is how many records may be taken and `batch_size` how long an
    in-flight batch should be: the next one begins at the first record batch that begins that far behind its start.
    """
    if room <= last - first:
        last = min(last, batch_end(batches, first + room - 1))
    if mode is AcquireMode.RECORD_LIMIT:
        return [((first, last), min(last, first + room - 1))]
    cuts: list[tuple[Span, int]] = []
    while True:
        index = bisect_left(batches, (first + max(1, batch_size), -1))
        if index == len(batches) or batches[index][0] > last:
            cuts.append(((first, last), last))
            return cuts
        begin = batches[index][0]
        cuts.append(((first, begin - 1), begin - 1))
        first = begin
