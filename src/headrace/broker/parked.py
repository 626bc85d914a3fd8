"""Requests that wait for records. Each waits on partitions; an append wakes those that wait on that partition.

Waking is put off until the request that appended has been dealt with (`run_woken`), so that a produce is
answered before the fetches it completes are read, and many appends wake a fetch once. One turn of the loop runs a
bounded number of those that were woken, the next turns the others.

Members of a share group compete: what one of them gets, no other can get. They wait in a `Line`, and of a line only as
many are woken, the longest waiting first, as there is something for.
"""

import logging
from collections import deque
from collections.abc import Callable, Hashable, Iterable

logger = logging.getLogger("headrace.broker")

ATTEMPTS_PER_TURN = 100
KEYS_PER_ATTEMPT = 100
"""An attempt looks at all its keys: one of very many counts for several."""


class ParkedRequest:
    __slots__ = ("attempt", "cost", "keys", "lines")

    def __init__(
        self, keys: tuple[Hashable, ...], attempt: Callable[[], None], lines: "tuple[Line, ...]" = ()
    ) -> None:
        self.keys = keys
        self.lines = lines
        self.cost = 1 + (len(keys) + len(lines)) // KEYS_PER_ATTEMPT
        self.attempt: Callable[[], None] | None = attempt
        """None once it was removed. It refers back to this request as a rule; left here, each request that ever
        waited would be garbage that only a collection finds, and a collection stops everybody."""

    def wake(self) -> None:
        if self.attempt is None:  # removed by one that was woken before it
            return
        try:
            self.attempt()
        except Exception:  # it is one request's trouble; the others were woken too
            logger.exception("a parked request failed")


class Line:
    """Requests that compete for the same thing, in the order they came."""

    __slots__ = ("_is_touched", "_round", "has_more", "key", "triggers", "waiting")

    def __init__(self, key: Hashable, triggers: tuple[Hashable, ...], has_more: Callable[[], bool]) -> None:
        self.key = key
        self.triggers = triggers
        self.has_more = has_more
        self.waiting: dict[ParkedRequest, None] = {}
        self._round: deque[ParkedRequest] = deque()
        """Those that have not had their turn since it was woken."""
        self._is_touched = False

    def touched(self) -> None:
        self._is_touched = True

    @property
    def is_due(self) -> bool:
        return self._is_touched or bool(self._round)

    def wake(self, attempts_max: int) -> int:
        """At most so many attempts; how many it took. While it is due there may be more."""
        if not self._round:
            self._round.extend(self.waiting)
            self._is_touched = False
        attempts = 0
        while self._round and attempts < attempts_max:
            if not self._has_more():
                self._round.clear()
                break
            request = self._round.popleft()
            request.wake()
            attempts += request.cost
        return attempts

    def _has_more(self) -> bool:
        try:
            return self.has_more()
        except Exception:  # whoever tries is told what is wrong
            return True


class Parked:
    def __init__(self) -> None:
        self._waiting: dict[Hashable, dict[ParkedRequest | Line, None]] = {}
        self._lines: dict[Hashable, Line] = {}
        self._woken: dict[Hashable, None] = {}
        self._due: dict[ParkedRequest | Line, None] = {}
        """Woken in an earlier turn, which had enough to do."""

    def park(
        self, keys: Iterable[Hashable], attempt: Callable[[], None], lines: Iterable[Line] = ()
    ) -> ParkedRequest:
        """`attempt` is called each time one of `keys` was touched, or its turn has come in one of `lines`."""
        request = ParkedRequest(tuple(keys), attempt, tuple(lines))
        for key in request.keys:
            self._waiting.setdefault(key, {})[request] = None
        for line in request.lines:
            line.waiting[request] = None
        return request

    def line(self, key: Hashable, triggers: Iterable[Hashable], has_more: Callable[[], bool]) -> Line:
        """The line of that key; it is woken when one of `triggers` is touched, and gone when nobody waits in it."""
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = Line(key, tuple(triggers), has_more)
            for trigger in line.triggers:
                self._waiting.setdefault(trigger, {})[line] = None
        return line

    def remove(self, request: ParkedRequest) -> None:
        request.attempt = None
        for key in request.keys:
            self._drop(key, request)
        for line in request.lines:
            line.waiting.pop(request, None)
            if not line.waiting and self._lines.get(line.key) is line:
                del self._lines[line.key]
                for trigger in line.triggers:
                    self._drop(trigger, line)

    def _drop(self, key: Hashable, member: ParkedRequest | Line) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.pop(member, None)
            if not waiting:
                del self._waiting[key]

    def touch(self, key: Hashable) -> None:
        if key in self._waiting:
            self._woken[key] = None

    @property
    def is_pending(self) -> bool:
        """Whether some that were woken have not had their turn."""
        return bool(self._due or self._woken)

    def run_woken(self) -> None:
        left = ATTEMPTS_PER_TURN if self._due or self._woken else 0
        while left > 0:
            woken, self._woken = self._woken, {}
            for key in woken:
                for member in self._waiting.get(key, ()):
                    if isinstance(member, Line):
                        member.touched()
                    self._due[member] = None
            if not self._due:
                return
            member = next(iter(self._due))
            del self._due[member]
            left -= 1
            if isinstance(member, ParkedRequest):
                member.wake()
                left -= member.cost - 1
                continue
            left -= member.wake(left)
            if member.is_due:
                self._due[member] = None

    def __len__(self) -> int:
        waiting = {member for members in self._waiting.values() for member in members}
        requests = {member for member in waiting if isinstance(member, ParkedRequest)}
        return len(requests.union(*(line.waiting for line in waiting if isinstance(line, Line))))
