"""How long to wait before trying again: twice as long each time, up to a bound, and never in step with others."""

from collections.abc import Callable

JITTER = 0.2


class Backoff:
    """`fraction` gives numbers from 0 to 1 (a random source; a constant in tests)."""

    __slots__ = ("_first_ms", "_fraction", "_most_ms", "_next_ms")

    def __init__(self, first_ms: int, most_ms: int, fraction: Callable[[], float]) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._fraction = fraction
        self._next_ms = first_ms

    def after_failure(self) -> int:
        """Milliseconds to wait now."""
        wait_ms = self._next_ms
        self._next_ms = min(2 * wait_ms, self._most_ms)
        return max(1, int(wait_ms * (1 + JITTER * (2 * self._fraction() - 1))))

    def reset(self) -> None:
        self._next_ms = self._first_ms

    @property
    def is_reset(self) -> bool:
        return self._next_ms == self._first_ms
