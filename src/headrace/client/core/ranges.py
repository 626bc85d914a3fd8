"""The life of an acquired range: every legal change of state in one table, and the ranges that obey it.

An `AcquiredRange` is one entry of a ShareFetch response's AcquiredRecords: offsets that one broker has locked for this
member with one delivery count. Each offset is in one `RangeState`. A pair of (state, cause) that TRANSITIONS does not
name is not legal: nothing becomes legal by falling through. The usual life is

    BUFFERED --take--> TAKEN --hand out--> HANDED --accept--> ACCEPT --send--> SENT --confirm--> DONE

An answer may be replaced by another one until it is sent. From then on nothing brings it back, so no acquisition is
ever acknowledged twice. A record that is answered while its renewal is on its way (RENEWING_ACCEPT and the like) is
acknowledged as soon as the broker has answered the renewal. A record that is to be released later (DELAYED) is held
and renewed until its time, falls due and is released like any other. What is on its way is left alone when the lock is
lost: its response, or that there is none, decides. An answer for a lost record is LATE: it is not sent, but reported as
failed.

The table is compiled to byte tables: while all offsets of a range agree, their state is one number, and accepting a
million records costs as much as accepting one. Otherwise there is one byte for each offset.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum, auto
from heapq import heappop, heappush
from operator import attrgetter
from typing import Final, NamedTuple

from headrace.base.ranges import Ranged, consecutive, minus, within


class RangeState(IntEnum):
    """ACCEPT to RENEW have the numbers of the acknowledge types on the wire."""

    BUFFERED = 0
    """Arrived; no poll has taken it."""
    ACCEPT = 1
    """Answered, and not sent yet; so are the next four."""
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    GAP = 5
    """There is no record at this offset."""
    TAKEN = 6
    """A poll has taken it and has not handed it out."""
    HANDED = 7
    """The application has it, and has not answered."""
    SENT = 8
    """Its acknowledgement is with the broker, or waits for a request to go with."""
    RENEWING = 9
    """The same for a renewal. The next three, and RENEWING_DELAYED: answered meanwhile."""
    RENEWING_ACCEPT = 10
    RENEWING_RELEASE = 11
    RENEWING_REJECT = 12
    DONE = 13
    """The broker has responded for good, or never will."""
    LOST = 14
    """The lock is gone."""
    LATE = 15
    """Answered after the lock was gone: to be reported."""
    DELAYED = 16
    """To be released at a later time, and kept locked until then."""
    RENEWING_DELAYED = 17


class RangeCause(IntEnum):
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    DELAY = auto()  # the application's answer as well: release it later
    FALL_DUE = auto()  # the time of a delayed release has come
    TAKE = auto()
    HAND_OUT = auto()
    PUT_BACK = auto()  # the poll that took it was broken off
    GIVE_BACK = auto()  # nobody will take or answer it: it goes back to the group
    MISS = auto()  # there is no record at the offset
    SEND = auto()
    CONFIRM = auto()
    REFUSE = auto()  # refused for good, or the outcome is unknown
    LOSE = auto()  # the lock has ended, or was taken away


S, C = RangeState, RangeCause
_ANSWERS = {
    C.ACCEPT: S.ACCEPT,
    C.RELEASE: S.RELEASE,
    C.REJECT: S.REJECT,
    C.RENEW: S.RENEW,
    C.DELAY: S.DELAYED,
}
_WHILE_RENEWING = {
    C.ACCEPT: S.RENEWING_ACCEPT,
    C.RELEASE: S.RENEWING_RELEASE,
    C.REJECT: S.RENEWING_REJECT,
    C.RENEW: S.RENEWING,
    C.DELAY: S.RENEWING_DELAYED,
}

TRANSITIONS: dict[tuple[RangeState, RangeCause], RangeState] = {
    (S.BUFFERED, C.TAKE): S.TAKEN,
    (S.TAKEN, C.HAND_OUT): S.HANDED,
    (S.TAKEN, C.MISS): S.GAP,
    (S.TAKEN, C.PUT_BACK): S.BUFFERED,
    (S.BUFFERED, C.GIVE_BACK): S.RELEASE,
    (S.TAKEN, C.GIVE_BACK): S.RELEASE,
    (S.HANDED, C.GIVE_BACK): S.RELEASE,
    # answers
    **{
        (state, answer): after
        for state in (S.HANDED, S.ACCEPT, S.RELEASE, S.REJECT, S.RENEW, S.DELAYED)
        for answer, after in _ANSWERS.items()
    },
    **{
        (state, answer): after
        for state in _WHILE_RENEWING.values()
        for answer, after in _WHILE_RENEWING.items()
    },
    **{(state, answer): S.LATE for state in (S.LOST, S.LATE) for answer in _ANSWERS},
    (S.DELAYED, C.FALL_DUE): S.RELEASE,
    (S.RENEWING_DELAYED, C.FALL_DUE): S.RENEWING_RELEASE,
    # on the way
    (S.ACCEPT, C.SEND): S.SENT,
    (S.RELEASE, C.SEND): S.SENT,
    (S.REJECT, C.SEND): S.SENT,
    (S.GAP, C.SEND): S.SENT,
    (S.RENEW, C.SEND): S.RENEWING,
    (S.LATE, C.SEND): S.LOST,
    (S.SENT, C.CONFIRM): S.DONE,
    (S.RENEWING, C.CONFIRM): S.HANDED,
    (S.RENEWING_ACCEPT, C.CONFIRM): S.ACCEPT,
    (S.RENEWING_RELEASE, C.CONFIRM): S.RELEASE,
    (S.RENEWING_REJECT, C.CONFIRM): S.REJECT,
    (S.RENEWING_DELAYED, C.CONFIRM): S.DELAYED,
    (S.SENT, C.REFUSE): S.DONE,
    (S.RENEWING, C.REFUSE): S.LOST,
    (S.RENEWING_ACCEPT, C.REFUSE): S.LATE,
    (S.RENEWING_RELEASE, C.REFUSE): S.LATE,
    (S.RENEWING_REJECT, C.REFUSE): S.LATE,
    (S.RENEWING_DELAYED, C.REFUSE): S.LATE,
    # the lock
    (S.BUFFERED, C.LOSE): S.LOST,
    (S.TAKEN, C.LOSE): S.LOST,
    (S.HANDED, C.LOSE): S.LOST,
    (S.ACCEPT, C.LOSE): S.LATE,
    (S.RELEASE, C.LOSE): S.LATE,
    (S.REJECT, C.LOSE): S.LATE,
    (S.RENEW, C.LOSE): S.LATE,
    (S.DELAYED, C.LOSE): S.LATE,
    (S.GAP, C.LOSE): S.DONE,
}

_HANDED: Final = int(S.HANDED)  # reading an enum's member takes longer than all the rest
REFUSED: Final = 255
"""In a table: the cause is not legal for the state."""


def _table(cause: RangeCause, *, otherwise: int | None = None) -> bytes:
    """What each state becomes. Where the cause is not legal: `otherwise`, or nothing changes."""
    return bytes(
        TRANSITIONS[S(state), cause]
        if state in S._value2member_map_ and (S(state), cause) in TRANSITIONS
        else (state if otherwise is None else otherwise)
        for state in range(256)
    )


LENIENT: Final = (bytes(range(256)), *map(_table, C))
"""By cause. Where it is not legal, nothing changes."""
STRICT: Final = (
    bytes([REFUSED] * 256),
    *(_table(answer, otherwise=REFUSED) for answer in _ANSWERS),
)
"""Of the answers: by acknowledge type, and DELAY."""
_RUN = re.compile(rb"(.)\1*", re.DOTALL)
FINISHED: Final = bytes([S.DONE, S.LOST])
UNSENT: Final = bytes(
    [S.BUFFERED, S.TAKEN, S.HANDED, S.ACCEPT, S.RELEASE, S.REJECT, S.RENEW, S.GAP, S.DELAYED]
)
_RENEWING = bytes(_WHILE_RENEWING.values())
UNSETTLED: Final = UNSENT + _RENEWING
"""What counts against the number of records that a member may hold."""
RENEWALS: Final = bytes([S.RENEW]) + _RENEWING
DELAYED: Final = bytes([S.DELAYED])


class Span(NamedTuple):
    """Neighboring offsets of one range that are in the same state."""

    first: int
    last: int
    state: int

    @property
    def size(self) -> int:
        return self.last - self.first + 1


class LockEnd(NamedTuple):
    """When the locks of some offsets end."""

    first: int
    last: int
    until_ms: int


_first = attrgetter("first")


class AcquiredRange:
    """Offsets that this member has locked. `Holdings` and `Hands` change it; everybody may read."""

    __slots__ = (
        "_due_ms",
        "_due_times",
        "_later",
        "_state",
        "_states",
        "delivery_count",
        "first",
        "last",
        "lock_ms",
        "lock_until_ms",
        "node_id",
        "partition",
        "taken_ms",
        "topic",
        "topic_id",
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
        self.taken_ms: int | None = None
        """When a poll took it; None while it waits in the buffer."""
        self._later: list[LockEnd] = []
        """Parts that were renewed separately, in order."""
        self._due_ms: dict[int, int] | None = None
        """When delayed offsets are to be released. Where one is answered otherwise, its time means nothing any more."""
        self._due_times: list[tuple[int, int]] | None = None
        """The same, with the offsets, as a heap."""
        self._state: int = S.BUFFERED
        self._states: bytearray | None = None
        """The states one by one, where they differ; else None, and `_state` is the state of all."""

    def __repr__(self) -> str:
        where = f"{self.topic}-{self.partition} {self.first}-{self.last}"
        return f"AcquiredRange({where}, delivery_count={self.delivery_count})"

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def __contains__(self, offset: int) -> bool:
        return self.first <= offset <= self.last

    # Reading

    def state_of(self, offset: int) -> RangeState:
        return S(self._state if self._states is None else self._states[offset - self.first])

    def is_all(self, state: RangeState) -> bool:
        return self._states is None and self._state == state

    def has(self, state: RangeState) -> bool:
        """Whether at least one offset is in that state."""
        return self._state == state if self._states is None else state in self._states

    def count_of(self, states: bytes) -> int:
        """How many offsets are in one of the states."""
        if self._states is None:
            return self.count if self._state in states else 0
        if len(states) == 1:
            return self._states.count(states)
        return self.count - len(self._states.translate(None, states))

    @property
    def is_finished(self) -> bool:
        """Nothing is left to do for it."""
        states = self._states
        if states is None:
            return self._state in FINISHED
        # The ends first: a range that is answered piece by piece is asked after each of them.
        return states[0] in FINISHED and states[-1] in FINISHED and not states.translate(None, FINISHED)

    def spans(
        self, first: int | None = None, last: int | None = None, *, of: bytes | None = None
    ) -> Iterator[Span]:
        """The states, run by run, of all offsets or of some; `of` leaves out other states."""
        low = self.first if first is None else max(first, self.first)
        high = self.last if last is None else min(last, self.last)
        if self._states is None:
            if low <= high and (of is None or self._state in of):
                yield Span(low, high, self._state)
            return
        # A copy of what is asked for, and of no more: the range may be large, and the piece small.
        for run in _RUN.finditer(bytes(self._states[low - self.first : max(low, high + 1) - self.first])):
            state = run[1][0]
            if of is None or state in of:
                yield Span(low + run.start(), low + run.end() - 1, state)

    def lock_until_ms_of(self, offset: int) -> int:
        index = bisect_right(self._later, offset, key=_first) - 1
        if index >= 0 and offset <= self._later[index].last:
            return self._later[index].until_ms
        return self.lock_until_ms

    def locks(self, *, of: bytes) -> list[LockEnd]:
        """When the locks end of the offsets that are in one of these states."""
        held = [LockEnd(span.first, span.last, self.lock_until_ms) for span in self.spans(of=of)]
        return sorted([*minus(held, self._later), *within(self._later, held)]) if self._later else held

    @property
    def next_due_ms(self) -> int | None:
        """When the next delayed offset is to be released; perhaps it is answered otherwise by now."""
        times, known = self._due_times, self._due_ms
        if times is None or known is None:
            return None
        while times and known.get(times[0][1]) != times[0][0]:
            heappop(times)  # another time has replaced it
        return times[0][0] if times else None

    # Changing: for `Holdings` and `Hands`

    def apply(self, cause: RangeCause, first: int | None = None, last: int | None = None) -> list[Span]:
        """Lets something happen to all offsets, or to some, for which it is legal; returns what changed, as it was."""
        table = LENIENT[cause]
        if self._states is not None:
            self._states = self._joined(self._states)
        low, high = self.first, self.last
        if self._states is None and (first is None or first <= low) and (last is None or last >= high):
            old = self._state
            new = self._state = table[old]
            return [] if new == old else [Span(low, high, old)]
        low = low if first is None or first < low else first
        high = high if last is None or last > high else last
        changed = [span for span in self.spans(low, high) if table[span.state] != span.state]
        if changed:
            states = self.spread()
            begin, end = low - self.first, high - self.first + 1
            states[begin:end] = states[begin:end].translate(table)
            self._states = self._joined(states)
        return changed

    def apply_to(self, cause: RangeCause, parts: Iterable[Ranged]) -> list[Span]:
        """`apply` for several parts."""
        return [span for one in parts for span in self.apply(cause, one.first, one.last)]

    def spread(self) -> bytearray:
        """The states one by one, for one of them to change."""
        if self._states is None:
            self._states = bytearray([self._state]) * self.count
        return self._states

    def answer_whole(self, type: int) -> bool:
        """The application's answer for all offsets, where all are in hand; False where they are not."""
        if self._states is not None or self._state != _HANDED:
            return False
        self._state = STRICT[type][_HANDED]
        return True

    def answer_all(self, first: int, last: int, type: int) -> bool:
        """The same for a range of offsets; nothing changes unless all of them may."""
        table = STRICT[type]
        if any(table[span.state] == REFUSED for span in self.spans(first, last)):
            return False
        self.apply(RangeCause(type), first, last)
        return True

    def answer_some(self, first: int, mask: bytes, type: int) -> bytes | None:
        """What the states from `first` on become when the offsets whose byte in `mask` is not 0 are answered.

        None when one of them may not be. Nothing changes before `replace`.
        """
        table = STRICT[type]
        begin = first - self.first
        states = self.spread()[begin : begin + len(mask)]
        after = bytes(
            [table[state] if is_meant else state for state, is_meant in zip(states, mask, strict=True)]
        )
        return None if REFUSED in after else after

    def replace(self, first: int, states: bytes) -> None:
        """What `answer_some` has given."""
        begin = first - self.first
        spread = self.spread()
        spread[begin : begin + len(states)] = states
        self._states = self._joined(spread)

    def delay(self, offset: int, due_ms: int) -> bool:
        """The application's answer: to be released at that time; False when it may not answer (any more)."""
        if not self.answer_all(offset, offset, C.DELAY):
            return False
        self.fall_due_at(due_ms, (offset,))
        return True

    def fall_due_at(self, due_ms: int, offsets: Iterable[int]) -> None:
        """When offsets that are DELAYED now are to be released."""
        known, times = self._due_ms, self._due_times
        if known is None or times is None:
            known, times = self._due_ms, self._due_times = {}, []
        for offset in offsets:
            known[offset] = due_ms
            heappush(times, (due_ms, offset))

    def fall_due(self, now_ms: int | None = None) -> list[Span]:
        """The delayed offsets whose time has come (None: all) are released; returns what changed, as it was."""
        known, times = self._due_ms, self._due_times
        if known is None or times is None:
            return []
        due = []
        while (due_ms := self.next_due_ms) is not None and (now_ms is None or due_ms <= now_ms):
            _, offset = heappop(times)
            del known[offset]
            due.append(offset)
        return [span for first, last in consecutive(due) for span in self.apply(C.FALL_DUE, first, last)]

    def extend(self, until_ms: int, parts: Sequence[Ranged] = ()) -> None:
        """The lock of all that is held lives on, or of parts of it."""
        extended = [LockEnd(one.first, one.last, until_ms) for one in parts or (self,)]
        extended.sort()
        self._later = sorted([*minus(self._later, extended), *extended])
        first_ms = min((one.until_ms for one in self.locks(of=UNSETTLED)), default=until_ms)
        # Later than before when every part was extended.
        self.lock_until_ms = max(self.lock_until_ms, first_ms)
        self._later = [one for one in self._later if one.until_ms > self.lock_until_ms]

    def expire(self, now_ms: int) -> list[LockEnd]:
        """Ranges whose locks have ended; the next lock to end, if there is one, becomes `lock_until_ms`."""
        alive = [one for one in self._later if one.until_ms > now_ms]
        self._later = []
        if not alive:
            return [LockEnd(self.first, self.last, self.lock_until_ms)]
        gone = list(minus([LockEnd(self.first, self.last, self.lock_until_ms)], alive))
        self.lock_until_ms = min(one.until_ms for one in alive)
        self._later = [one for one in alive if one.until_ms > self.lock_until_ms]
        return gone

    def _joined(self, states: bytearray) -> bytearray | None:
        """A range whose offsets agree (again) has one state."""
        if states[0] == states[-1] and states == states[:1] * len(states):  # stops at the first that differs
            self._state = states[0]
            return None
        return states
