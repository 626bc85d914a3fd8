"""When members have acquired records, on the wall clock: locks know times of the monotonic clock only."""

from headrace.broker.clock import Clock

TOLERANCE_MS = 2
"""Both clocks are read in whole milliseconds, one after the other."""


class WallTime:
    """The same answer for the same time, so that parts of one acquisition have one; unless the wall clock was set."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ahead_ms = clock.wall_ms() - clock.monotonic_ms()

    def ahead_ms(self) -> int:
        """What a time of the monotonic clock lacks."""
        ahead_ms = self._clock.wall_ms() - self._clock.monotonic_ms()
        if abs(ahead_ms - self._ahead_ms) > TOLERANCE_MS:
            self._ahead_ms = ahead_ms
        return self._ahead_ms
