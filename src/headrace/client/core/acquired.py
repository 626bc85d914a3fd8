"""What a member holds: ranges of offsets that one broker has locked for it, and what is to become of each offset.

Theory of operation. An `Acquired` is one entry of a ShareFetch answer's AcquiredRecords. Every offset in it carries a
mark, which moves one way only:

    OPEN -> chosen (ACCEPT, RELEASE, REJECT, RENEW, GAP) -> SENT -> DONE
    RENEW -> RENEWING -> OPEN again, or LOST
    OPEN -> LOST, chosen -> LATE when the lock goes; LOST -> LATE when it is acknowledged all the same;
    LATE -> LOST once that has been reported as failed

A chosen mark may be chosen anew until it is swept, that is, handed to a request; from then on nothing brings it back,
so that no acknowledgement is ever made twice for one acquisition.

As long as all offsets carry the same mark, `marks` is None and the mark is in `uniform`: accepting a whole range costs
the same for one record and for a million. Otherwise there is one byte for each offset, and runs of equal bytes are
found by compiled code.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

OPEN: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
GAP: Final = 5
SENT: Final = 6
RENEWING: Final = 7
DONE: Final = 8
LOST: Final = 9
LATE: Final = 10

_RUN = re.compile(rb"(.)\1*", re.DOTALL)
_FINISHED = bytes([DONE, LOST])
_UNSENT = range(OPEN, SENT)


def _table(changes: dict[int, int]) -> bytes:
    return bytes(changes.get(mark, mark) for mark in range(256))


_SWEPT = _table({ACCEPT: SENT, RELEASE: SENT, REJECT: SENT, RENEW: RENEWING, GAP: SENT, LATE: LOST})
_LOSING = _table({OPEN: LOST, ACCEPT: LATE, RELEASE: LATE, REJECT: LATE, RENEW: LATE, GAP: DONE})
"""What is on its way (SENT, RENEWING) is not touched: its answer, or that there is none, decides."""


class Span(NamedTuple):
    """Neighbouring offsets of one `Acquired` that carry the same mark."""

    first: int
    last: int
    mark: int


class Acquired:
    """A range of offsets this member has locked. `keeper` belongs to whoever handed its records out."""

    __slots__ = (
        "delivery_count",
        "first",
        "keeper",
        "last",
        "later",
        "lock_ms",
        "lock_until_ms",
        "marks",
        "node_id",
        "partition",
        "renewals",
        "renewing",
        "taken_ms",
        "topic",
        "topic_id",
        "uniform",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        first: int,
        last: int,
        delivery_count: int,
        topic_id: bytes,
        node_id: int,
        lock_ms: int,
        lock_until_ms: int,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.partition = partition
        self.first = first
        self.last = last
        self.delivery_count = delivery_count
        self.node_id = node_id
        self.lock_ms = lock_ms
        self.lock_until_ms = lock_until_ms
        """When the first of its locks ends, on the clock of whoever drives the core, in milliseconds."""
        self.later: list[tuple[int, int, int]] = []
        """Parts that were renewed by themselves (first, last, until when)."""
        self.uniform = OPEN
        self.marks: bytearray | None = None
        self.taken_ms: int | None = None
        """When it was handed out; None while it waits in the buffer."""
        self.renewing = False
        """A renewal of the member's own (not a RENEW mark) is on its way."""
        self.renewals: list[Any] | None = None
        self.keeper: Any = None

    def __repr__(self) -> str:
        where = f"{self.topic}-{self.partition} {self.first}-{self.last}"
        return f"Acquired({where}, delivery_count={self.delivery_count})"

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, offset: int) -> bool:
        return self.first <= offset <= self.last

    def mark_of(self, offset: int) -> int:
        return self.uniform if self.marks is None else self.marks[offset - self.first]

    def choose(self, offset: int, mark: int) -> bool:
        """Decides about one offset; False when that is too late (it was sent) or was never asked for."""
        marks = self.marks
        if marks is None:
            marks = self._spread()
        index = offset - self.first
        old = marks[index]
        if old < SENT:
            marks[index] = mark
            return True
        if old == LOST:
            marks[index] = LATE
        return old >= LOST

    def choose_range(self, first: int, last: int, mark: int) -> bool:
        """The same for a range; nothing changes unless all of it may."""
        if first <= self.first and last >= self.last and self.marks is None:
            if self.uniform < SENT:
                self.uniform = mark
            elif self.uniform == LOST:
                self.uniform = LATE
            else:
                return self.uniform > LOST
            return True
        spans = list(self.spans(first, last))
        if any(SENT <= span.mark <= DONE for span in spans):
            return False
        for span in spans:
            if span.mark < SENT:
                self._set(span.first, span.last, mark)
            elif span.mark == LOST:
                self._set(span.first, span.last, LATE)
        return True

    def choose_open(self, mark: int) -> None:
        """Decides about every offset that nobody has decided about."""
        if self.marks is None:
            if self.uniform == OPEN:
                self.uniform = mark
        else:
            self.marks = self.marks.replace(b"\0", bytes([mark]))

    def answer_open(self, mark: int) -> None:
        """The same as an answer of the application: what was lost meanwhile is to be reported as too late."""
        self.choose_open(mark)
        if self.marks is None:
            if self.uniform == LOST:
                self.uniform = LATE
        elif LOST in self.marks:
            self.marks = self.marks.replace(bytes([LOST]), bytes([LATE]))

    def sweep(self) -> list[Span]:
        """Takes everything that is chosen, to be sent now. `LATE` spans are not to be sent but to be reported."""
        if self.marks is not None:
            self._replace(self.marks)  # record by record, all may have got the same answer
        if self.marks is None:
            mark = self.uniform
            swept = _SWEPT[mark]
            if swept == mark:
                return []
            self.uniform = swept
            return [Span(self.first, self.last, mark)]
        spans = [span for span in self.spans() if _SWEPT[span.mark] != span.mark]
        if spans:
            self._replace(self.marks.translate(_SWEPT))
        return spans

    def finish(self, first: int, last: int) -> int:
        """The broker has answered for good. Returns how many offsets that ends."""
        return self._move(first, last, SENT, DONE)

    def renewed(self, first: int, last: int) -> int:
        """A RENEW mark's answer: the records are the user's again."""
        return self._move(first, last, RENEWING, OPEN)

    def lock_until_ms_of(self, offset: int) -> int:
        return next(
            (until for first, last, until in self.later if first <= offset <= last), self.lock_until_ms
        )

    def extend(self, until_ms: int, first: int | None = None, last: int | None = None) -> None:
        """The lock of all that is held lives on, or of a part of it."""
        low = self.first if first is None else first
        high = self.last if last is None else last
        if any(span.first < low or span.last > high for span in self.held()):
            self.later = [one for one in self.later if one[1] < low or one[0] > high]
            self.later.append((low, high, until_ms))
            return
        self.later.clear()
        self.lock_until_ms = max(self.lock_until_ms, until_ms)

    def expired(self, now_ms: int) -> list[tuple[int, int]]:
        """Ranges whose locks have ended; the next lock to end, if there is one, becomes `lock_until_ms`."""
        alive = sorted(one for one in self.later if one[2] > now_ms)
        self.later = []
        if not alive:
            return [(self.first, self.last)]
        gone, following = [], self.first
        for first, last, _ in alive:
            if first > following:
                gone.append((following, first - 1))
            following = last + 1
        if following <= self.last:
            gone.append((following, self.last))
        self.lock_until_ms = min(until for _, _, until in alive)
        self.later = [one for one in alive if one[2] > self.lock_until_ms]
        return gone

    def not_renewed(self, first: int, last: int) -> int:
        """A RENEW mark was refused, or its answer is unknown: the records are taken for lost."""
        return self._move(first, last, RENEWING, LOST)

    def lose(self, first: int | None = None, last: int | None = None) -> list[Span]:
        """The lock is gone. Returns what it took, with the marks as they were before."""
        low = self.first if first is None else first
        high = self.last if last is None else last
        taken = [span for span in self.spans(low, high) if _LOSING[span.mark] != span.mark]
        if low == self.first and high == self.last:
            if self.marks is None:
                self.uniform = _LOSING[self.uniform]
            else:
                self._replace(self.marks.translate(_LOSING))
        else:
            for span in taken:
                self._set(span.first, span.last, _LOSING[span.mark])
        return taken

    def held(self) -> list[Span]:
        """Offsets not yet handed to a request: what can still be renewed, released or lost."""
        if self.marks is None:
            return [Span(self.first, self.last, self.uniform)] if self.uniform in _UNSENT else []
        return [span for span in self.spans() if span.mark in _UNSENT]

    @property
    def is_finished(self) -> bool:
        if self.marks is None:
            return self.uniform in _FINISHED
        return not self.marks.translate(None, _FINISHED)

    @property
    def open_count(self) -> int:
        """Offsets that nobody has decided about."""
        if self.marks is None:
            return self.count if self.uniform == OPEN else 0
        return self.marks.count(OPEN)

    @property
    def unsettled_count(self) -> int:
        """Offsets that count against what a member may hold: everything but done and lost."""
        if self.marks is None:
            return 0 if self.uniform >= DONE else self.count
        return len(self.marks.translate(None, bytes([DONE, LOST, LATE])))

    def spans(self, first: int | None = None, last: int | None = None) -> Iterator[Span]:
        """The marks, run by run, of all offsets or of some."""
        low = self.first if first is None else max(first, self.first)
        high = self.last if last is None else min(last, self.last)
        if self.marks is None:
            if low <= high:
                yield Span(low, high, self.uniform)
            return
        base = self.first
        found = _RUN.finditer(bytes(self.marks), low - base, high - base + 1)
        for run in found:
            yield Span(base + run.start(), base + run.end() - 1, run[1][0])

    def _move(self, first: int, last: int, old: int, new: int) -> int:
        if self.marks is None:
            if self.uniform != old:
                return 0
            if first <= self.first and last >= self.last:
                self.uniform = new
                return self.count
        moved = 0
        for span in list(self.spans(first, last)):
            if span.mark == old:
                self._set(span.first, span.last, new)
                moved += span.last - span.first + 1
        return moved

    def _set(self, first: int, last: int, mark: int) -> None:
        if first == self.first and last == self.last:
            self.uniform, self.marks = mark, None
            return
        marks = self._spread() if self.marks is None else self.marks
        marks[first - self.first : last - self.first + 1] = bytes([mark]) * (last - first + 1)

    def _spread(self) -> bytearray:
        self.marks = bytearray([self.uniform]) * self.count
        return self.marks

    def _replace(self, marks: bytearray) -> None:
        """A range whose offsets agree again goes back to one mark."""
        if marks.count(marks[0]) == len(marks):
            self.uniform, self.marks = marks[0], None
        else:
            self.marks = marks
