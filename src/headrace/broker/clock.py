"""Where the broker's time comes from. Everything below the server takes `now_ms` or asks one of these."""

import time
from typing import Protocol

BELIEVED_AFTER_MS = 3_600_000
DRIFT_MS = 1_000
"""Steps up to this are ordinary corrections of a clock. Nothing expires as fast as that."""


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since 1970: record timestamps, retention."""

    def monotonic_ms(self) -> int:
        """Milliseconds that never go back: deadlines."""


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class ExpiryClock:
    """The wall clock for what is deleted by age: a jump forward counts only when it has lasted for an hour.

    A wall clock that is set wrong for a moment must not make everything look old: records, offsets, producers. A step
    back is followed at once, because it only keeps things longer. A jump is dated when it is seen, so every time that
    something is stamped with has to be shown to it (`StampingClock`): whatever was stamped while the clock was behind
    would look old as soon as the clock is right again.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = clock.wall_ms() - clock.monotonic_ms()
        """How far the wall clock is believed to be ahead of the monotonic one."""
        self._jumped_ms: int | None = None

    def wall_ms(self) -> int:
        return self.see(self._clock.wall_ms())

    def see(self, wall_ms: int) -> int:
        """The wall clock shows this now. Returns what counts for things that expire."""
        now_ms = self._clock.monotonic_ms()
        ahead_ms = wall_ms - now_ms
        if ahead_ms <= self._ahead_ms + DRIFT_MS:
            self._ahead_ms, self._jumped_ms = ahead_ms, None
        elif self._jumped_ms is None:
            self._jumped_ms = now_ms
        elif now_ms - self._jumped_ms >= BELIEVED_AFTER_MS:
            self._ahead_ms, self._jumped_ms = ahead_ms, None
        return now_ms + self._ahead_ms


class StampingClock:
    """The broker's own clock: the expiry clock sees every time that it tells."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.expiry = ExpiryClock(clock)
        self.monotonic_ms = clock.monotonic_ms

    def wall_ms(self) -> int:
        now_ms = self._clock.wall_ms()
        self.expiry.see(now_ms)
        return now_ms


class ManualClock:
    """The system's time plus what a test has added: `advance(60)` makes every deadline of the next minute due."""

    def __init__(self) -> None:
        self._system = SystemClock()
        self._ahead_ms = 0

    def advance(self, seconds: float) -> None:
        self._ahead_ms += round(seconds * 1000)

    def wall_ms(self) -> int:
        return self._system.wall_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        return self._system.monotonic_ms() + self._ahead_ms
