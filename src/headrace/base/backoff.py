"""How long to wait before trying again: longer each time, up to a bound, and never in step with others.

Nothing here reads a clock or draws a random number: `chance` and `fraction` bring a number from 0 to 1.
"""

import math
from collections.abc import Callable

JITTER = 0.2
"""How far a wait is moved, as a part of itself, unless the caller says otherwise."""
_MASK = 2**32 - 1


def backoff(
    first: float, most: float, failures: int, chance: float, *, factor: float = 2.0, jitter: float = JITTER
) -> float:
    """The wait after a failure that so many others came before; `chance` chooses within the jitter."""
    try:
        wait = min(most, first * factor**failures)
    except OverflowError:  # after some hundred failures
        wait = most
    return wait * (1 + jitter * (2 * chance - 1))


class Jitter:
    """Numbers from 0 to 1 that look random: a function of the seed alone (a 32-bit linear congruential generator)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed & _MASK

    def fraction(self) -> float:
        self._state = (1_664_525 * self._state + 1_013_904_223) & _MASK
        return self._state / _MASK


class RetryBackoff:
    """The waits of one thing that is tried until it succeeds, or until its deadline."""

    __slots__ = ("_deadline_s", "_first_ms", "_fraction", "_most_ms", "failures")

    def __init__(
        self, first_ms: float, most_ms: float, fraction: Callable[[], float], *, deadline_s: float = math.inf
    ) -> None:
        self._first_ms = first_ms
        self._most_ms = most_ms
        self._fraction = fraction
        self._deadline_s = deadline_s
        self.failures = 0
        """Since the last success."""

    def after_failure(self) -> int:
        """Milliseconds to wait now."""
        wait_ms = backoff(self._first_ms, self._most_ms, self.failures, self._fraction())
        self.failures += 1
        return max(1, int(wait_ms))

    def wait_s(self, now_s: float) -> float | None:
        """Seconds to wait after a failure; None if the deadline would be over then."""
        wait_s = self.after_failure() / 1000
        return wait_s if now_s + wait_s <= self._deadline_s else None

    def reset(self) -> None:
        self.failures = 0
