"""What the application does with the records of a member: it takes them, gets them in its hands, and answers them.

This is the half of the core that faces the application; `Holdings` is the half that faces the brokers. A shell calls
nothing else of the core but `MemberCore` itself. `put` takes in what has arrived; `take` gives it to a poll, and
`hand_out` says that the application gets it; `answer` is what the application says of it. What may follow what is the
table in `ranges.py`.

A poll can be broken off anywhere by an exception from a signal handler. `take` therefore notes what it takes before
anything changes, and a `take` that finds such a note puts it back: `put_back` may itself be broken off and repeated.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import compress, count, islice

from headrace.client.core.holdings import Arrival, Holdings
from headrace.client.core.ranges import REFUSED, RENEWALS, STRICT, AcquiredRange, RangeCause, RangeState

S, C = RangeState, RangeCause
HANDED = bytes([S.HANDED])
BUFFERED = S.BUFFERED  # reading an enum's member takes longer than a global
TAKE, HAND_OUT = C.TAKE, C.HAND_OUT


class Hands:
    """See the module."""

    def __init__(self, holdings: Holdings) -> None:
        self._holdings = holdings
        self._answered = holdings.answered
        self._buffer: deque[Arrival] = deque()
        self._taken: Sequence[Arrival] = ()
        """What the poll in progress has taken."""
        self._renewed_by_hand: dict[AcquiredRange, None] = {}
        """Ranges that may have renewals of the application under way."""

    # Facts

    @property
    def lock_ms(self) -> int | None:
        """How long the group's locks last, as brokers last said."""
        return self._holdings.lock_ms

    @property
    def buffered(self) -> int:
        """Offsets that have arrived and that no poll has taken."""
        return sum(arrival.count for arrival in self._buffer)

    @property
    def has_arrivals(self) -> bool:
        return bool(self._buffer or self._taken)

    @property
    def has_taken(self) -> bool:
        """A poll has taken arrivals, and has not said `decoded`."""
        return bool(self._taken)

    @property
    def has_answers(self) -> bool:
        """There are answers that are not on their way yet."""
        return bool(self._answered)

    @property
    def is_renewing(self) -> bool:
        """The application has renewed records, and the brokers have not responded to all of it."""
        if not self._renewed_by_hand:
            return False
        for acquired in list(self._renewed_by_hand):
            if acquired.count_of(RENEWALS):
                return True
            self._renewed_by_hand.pop(acquired, None)
        return False

    def is_buffered(self, node_id: int) -> bool:
        """Something of a broker waits to be taken, or is being taken."""
        arrivals = (*self._buffer, *self._taken)
        return any(one.node_id == node_id for arrival in arrivals for one in arrival.acquired[:1])

    # In, and to a poll

    def put(self, arrival: Arrival) -> None:
        """The next poll may take it."""
        if self._buffer:
            for dead in [one for one in self._buffer if not any(each.has(BUFFERED) for each in one.acquired)]:
                self._buffer.remove(dead)  # lost while it waited: its bytes are of no use any more
        self._buffer.append(arrival)

    def take(self, records_max: int, *, now_ms: int) -> list[Arrival]:
        """Arrivals of so many records or a few more, in order; at least one if there is one.

        They are the poll's until `decoded`; the next `take` puts back what was not.
        """
        if self._taken:
            self.put_back()
        count = 0
        picked: list[Arrival] = []
        taken: list[Arrival] = []
        for arrival in self._buffer:
            if count >= records_max:
                break
            picked.append(arrival)
            ours = [one for one in arrival.acquired if one.has(BUFFERED) and now_ms < one.lock_until_ms]
            if not ours:
                continue  # lost, or its lock has ended unnoticed
            for one in ours:
                count += one.count
            if len(ours) < len(arrival.acquired):
                arrival = replace(arrival, acquired=ours)
            taken.append(arrival)
        self._taken = picked
        for arrival in taken:
            for one in arrival.acquired:
                one.apply(TAKE)
                one.taken_ms = now_ms
        for _ in picked:
            self._buffer.popleft()
        if not taken:
            self._taken = ()  # nothing of what was picked is ours any more: nobody will call `decoded`
        return taken

    def put_back(self) -> None:
        """The poll that took these was broken off: the application has seen none of them."""
        for arrival in reversed(self._taken):
            if not any(arrival is one for one in islice(self._buffer, len(self._taken))):
                self._buffer.appendleft(arrival)
            for acquired in arrival.acquired:
                acquired.apply(C.PUT_BACK)
                acquired.taken_ms = None
        self._taken = ()

    def decoded(self) -> None:
        """Whoever took the arrivals has what is in them, and needs them no more."""
        self._taken = ()

    def miss(self, acquired: AcquiredRange, first: int, last: int) -> None:
        """There are no records at these offsets."""
        self._answered[acquired] = None
        acquired.apply(C.MISS, first, last)

    def hand_out(self, acquired: AcquiredRange, first: int | None = None, last: int | None = None) -> None:
        """The application gets these, as far as they have not been lost meanwhile."""
        acquired.apply(HAND_OUT, first, last)

    def lose_ended(self, acquired: AcquiredRange, *, now_ms: int) -> None:
        """Before something of a range is handed out: its lock may have ended unnoticed, and then it is lost."""
        if now_ms >= acquired.lock_until_ms:
            self._holdings.lose_ended(acquired, now_ms=now_ms)

    def release_buffer(self, but: Collection[str] = ()) -> None:
        """Nobody will take what waits, except what is of the topics `but`: it goes back to the group."""
        waiting, self._buffer = self._buffer, deque()
        for arrival in waiting:
            if arrival.topic in but:
                self._buffer.append(arrival)
                continue
            for acquired in arrival.acquired:
                self._holdings.give_back(acquired)

    # Answers

    def answer(self, acquired: AcquiredRange, offset: int, type: int) -> bool:
        """The application's answer (an acknowledge type); False when it may not give it (any more).

        This is done for each record, so it is short: the table is looked into right here.
        """
        self._answered[acquired] = None
        states = acquired._states
        if states is None:
            states = acquired.spread()
        index = offset - acquired.first
        new = STRICT[type][states[index]]
        if new == REFUSED:
            return False
        states[index] = new
        return True

    def renew(self, acquired: AcquiredRange, offset: int) -> bool:
        """The application wants the lock of an offset to start anew."""
        self._renewed_by_hand[acquired] = None
        return self.answer(acquired, offset, S.RENEW)

    def release_later(self, acquired: AcquiredRange, offset: int, due_ms: int) -> bool:
        """The application's answer: the offset is released at that time, and kept locked until then."""
        self._answered[acquired] = None
        if not acquired.delay(offset, due_ms):
            return False
        half_ms = acquired.lock_until_ms_of(offset) - acquired.lock_ms // 2
        self._holdings.check_by(acquired, min(due_ms, half_ms))
        return True

    def answer_all(self, acquired: AcquiredRange, first: int, last: int, type: int) -> bool:
        """The same for a range of offsets; nothing changes unless all of them may."""
        self._answered[acquired] = None
        return acquired.answer_all(first, last, type)

    def answer_some(self, parts: Sequence[tuple[AcquiredRange, int, bytes]], type: int) -> bool:
        """The same for single offsets of several ranges: those from an offset on whose byte in a mask is not 0."""
        changes: list[tuple[AcquiredRange, int, bytes]] = []
        for acquired, first, mask in parts:
            states = acquired.answer_some(first, mask, type)
            if states is None:
                return False
            changes.append((acquired, first, states))
        for acquired, first, states in changes:
            self._answered[acquired] = None
            acquired.replace(first, states)
        return True

    def release_some_later(self, parts: Sequence[tuple[AcquiredRange, int, bytes]], due_ms: int) -> bool:
        """`release_later` for the same."""
        if not self.answer_some(parts, C.DELAY):
            return False
        for acquired, first, mask in parts:
            acquired.fall_due_at(due_ms, compress(count(first), mask))
            half_ms = acquired.lock_until_ms - acquired.lock_ms // 2
            self._holdings.check_by(acquired, min(due_ms, half_ms))
        return True

    def answer_handed(self, acquired: AcquiredRange, first: int, last: int, type: int) -> None:
        """The same for what the application has of these and has not answered, or what it has lost."""
        self._answered[acquired] = None
        if first == acquired.first and last == acquired.last and acquired.answer_whole(type):
            return
        for span in list(acquired.spans(first, last, of=bytes([S.HANDED, S.LOST]))):
            acquired.apply(C(type), span.first, span.last)

    def give_back(self, acquired: AcquiredRange) -> None:
        """Nobody will answer what is left of it: it goes back to the group."""
        self._holdings.give_back(acquired)
