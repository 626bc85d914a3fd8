"""Where the broker's time comes from. Everything below the server takes `now_ms` or asks one of these."""

import time
from typing import Protocol


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
