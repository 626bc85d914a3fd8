"""Rates such as "100/s": how they are written, and when the next run may start. Pure: no clock.

A token bucket: tokens come at the rate, a run takes one, and no more are kept than come in BURST_S (one at least). So
in any T seconds at most `rate * T + burst` runs start. A part of a rate (`share`), which a worker may have of the rate
of its group, is a bucket that fills more slowly.
"""

import math
import re
from dataclasses import dataclass

BURST_S = 0.1
PERIODS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
COUNT_MAX = 1_000_000


@dataclass(frozen=True, slots=True)
class Rate:
    """So many runs in a period."""

    count: int
    period_s: float

    @classmethod
    def parse(cls, text: str) -> "Rate":
        """ValueError when it is no rate."""
        found = re.fullmatch(r"(\d{1,7})/([smhd])", text) if isinstance(text, str) else None
        if found is None or not 1 <= int(found[1]) <= COUNT_MAX:
            raise ValueError(
                f"{text!r} is not a rate: write a count and a period, as in '100/s', '30/m', '500/h' or '1/d'"
            )
        return cls(int(found[1]), PERIODS[found[2]])

    @property
    def per_ms(self) -> float:
        return self.count / self.period_s / 1000


class RateBucket:
    def __init__(self, rate: Rate, *, share: float = 1.0) -> None:
        self._rate = rate
        self._share = share
        self._tokens = 1.0 if share else 0.0
        self._filled_ms: int | None = None

    @property
    def is_closed(self) -> bool:
        """It has no part of the rate, so nothing will ever start."""
        return not self._share

    @property
    def runs(self) -> int:
        """How many may start now."""
        return math.floor(self._tokens + 1e-9)

    def fill(self, now_ms: int) -> None:
        if self._filled_ms is not None and now_ms > self._filled_ms:
            per_ms = self._rate.per_ms * self._share
            most = max(1.0, per_ms * BURST_S * 1000)
            self._tokens = min(most, self._tokens + per_ms * (now_ms - self._filled_ms))
        self._filled_ms = now_ms if self._filled_ms is None else max(now_ms, self._filled_ms)

    def take(self) -> None:
        assert self.runs
        self._tokens = max(0.0, self._tokens - 1)

    def next_ms(self) -> int | None:
        """When a run may start; None if that is now, or never."""
        if self.runs or self.is_closed or self._filled_ms is None:
            return None
        return self._filled_ms + math.ceil((1 - self._tokens) / (self._rate.per_ms * self._share))

    def set_share(self, share: float, now_ms: int) -> None:
        """A part that is new begins without tokens: who had it before may have used them."""
        self.fill(now_ms)
        self._share = share
        if not share:
            self._tokens = 0.0
