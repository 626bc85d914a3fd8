"""Deadlines in one heap: the server asks `deadline_ms()` when to come back and then calls `run_due`."""

import heapq
import logging
from collections.abc import Callable
from itertools import count

logger = logging.getLogger("headrace.broker")

ACTIONS_PER_TURN = 200
"""What is due beyond that runs in the next turns, after what came in meanwhile."""


class Timer:
    __slots__ = ("_timers", "action", "deadline_ms")

    def __init__(self, timers: "Timers", deadline_ms: int, action: Callable[[], None]) -> None:
        self._timers = timers
        self.deadline_ms = deadline_ms
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        if self.action is not None:
            self.action = None
            self._timers.note_canceled()


class Timers:
    """Canceled timers stay in the heap until they are due or outnumber the live ones: canceling is O(1)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._order = count()
        self._canceled = 0

    def at(self, deadline_ms: int, action: Callable[[], None]) -> Timer:
        timer = Timer(self, deadline_ms, action)
        heapq.heappush(self._heap, (deadline_ms, next(self._order), timer))
        return timer

    def note_canceled(self) -> None:
        self._canceled += 1
        if self._canceled > 64 and self._canceled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].action is not None]
            heapq.heapify(self._heap)
            self._canceled = 0

    def deadline_ms(self) -> int | None:
        while self._heap and self._heap[0][2].action is None:
            heapq.heappop(self._heap)
            self._canceled -= 1
        return self._heap[0][0] if self._heap else None

    def run_due(self, now_ms: int) -> None:
        """At most ACTIONS_PER_TURN of what is due; while `deadline_ms` is not past `now_ms` there is more."""
        for _ in range(ACTIONS_PER_TURN):
            deadline_ms = self.deadline_ms()
            if deadline_ms is None or deadline_ms > now_ms:
                break
            _, _, timer = heapq.heappop(self._heap)
            action, timer.action = timer.action, None
            assert action is not None
            try:
                action()
            except Exception:  # whoever happens to run the timers is not to blame, and the others are due too
                logger.exception("a timer failed")
