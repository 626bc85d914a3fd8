"""How long a record waits before it is tried again, and how often it is tried at all."""

import math
from dataclasses import dataclass

from headrace.base.backoff import backoff
from headrace.client.arguments import is_int


@dataclass(frozen=True, slots=True)
class Backoff:
    """Retry delays that grow from `first` seconds by `factor` up to `most`, with a random change of up to `jitter`.

        @queue.task("emails", retries=Backoff(first=1.0, factor=2.0, most=60.0, tries=8))

    `tries` is the maximum number of runs, including the first; None means no limit. With the defaults, retries go on
    for more than four hours, so an outage of a service loses no records. A retry does not increase the delivery count.
    """

    first: float = 1.0
    factor: float = 2.0
    most: float = 300.0
    jitter: float = 0.1
    tries: int | None = 60

    def __post_init__(self) -> None:
        _require(
            math.isfinite(self.first) and self.first >= 0, "first", self.first, "finite and >= 0 seconds"
        )
        _require(math.isfinite(self.factor) and self.factor >= 1, "factor", self.factor, "finite and >= 1")
        _require(
            math.isfinite(self.most) and self.most >= self.first,
            "most",
            self.most,
            f"finite and >= first ({self.first})",
        )
        _require(0 <= self.jitter <= 1, "jitter", self.jitter, "between 0 and 1")
        is_count = self.tries is None or (is_int(self.tries) and self.tries >= 1)
        _require(is_count, "tries", self.tries, "an int >= 1 or None")

    def delay_ms(self, attempts: int, chance: float) -> int:
        """The delay after this many failed attempts. `chance`, from 0 to 1, selects the jitter."""
        failures = max(0, attempts - 1)
        delay = backoff(self.first, self.most, failures, chance, factor=self.factor, jitter=self.jitter)
        return round(1000 * delay)


def _require(holds: bool, name: str, value: object, wanted: str) -> None:
    if not holds:
        raise ValueError(f"Backoff: {name} must be {wanted}, got {value}")
