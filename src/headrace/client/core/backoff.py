"""How long to wait before trying again: twice as long each time, up to a bound, and never in step with others."""

JITTER = 0.2
_MASK = 2**32 - 1


class Jitter:
    """Numbers from 0 to 1 that look random: a function of the seed alone (a 32-bit linear congruential generator)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def fraction(self) -> float:
        self._state = (1_664_525 * self._state + 1_013_904_223) & _MASK
        return self._state / _MASK


class Backoff:
    __slots__ = ("_first_ms", "_jitter", "_most_ms", "_next_ms")

    def __init__(self, first_ms: int, most_ms: int, jitter: Jitter) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._jitter = jitter
        self._next_ms = first_ms

    def after_failure(self) -> int:
        """Milliseconds to wait now."""
        wait_ms = self._next_ms
        self._next_ms = min(2 * wait_ms, self._most_ms)
        return max(1, int(wait_ms * (1 + JITTER * (2 * self._jitter.fraction() - 1))))

    def reset(self) -> None:
        self._next_ms = self._first_ms

    @property
    def is_reset(self) -> bool:
        return self._next_ms == self._first_ms
