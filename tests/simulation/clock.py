"""Two clocks that move only when the scheduler says so, and that can jump apart."""

from headrace.broker.clock import BELIEVED_AFTER_MS, DRIFT_MS

START_WALL_MS = 1_700_000_000_000
START_MONOTONIC_MS = 1_000_000


class SimulatedClock:
    def __init__(self) -> None:
        self._wall_ms = START_WALL_MS
        self._monotonic_ms = START_MONOTONIC_MS
        self.wall_max_ms = START_WALL_MS
        """The latest time the wall clock has ever shown: what may have expired by it."""
        self.drift_ms = 0
        """Small jumps forward, which the broker takes for time that has passed."""
        self._jumps: list[tuple[int, int]] = []
        """Large ones, and when they were: it believes them after a while."""

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        self._monotonic_ms += ms
        self.set_wall(self._wall_ms + ms)

    def age_ms(self) -> int:
        """Time that the broker may count for what is deleted by age."""
        believed = [jump for jump, at in self._jumps if self._monotonic_ms - at >= BELIEVED_AFTER_MS]
        return self._monotonic_ms + self.drift_ms + sum(believed)

    def jump(self, ms: int) -> None:
        """Somebody, or NTP, sets the clock of the machine."""
        if 0 < ms <= DRIFT_MS:
            self.drift_ms += ms
        elif ms > 0:
            self._jumps.append((ms, self._monotonic_ms))
        self.set_wall(self._wall_ms + ms)

    def set_wall(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms
        self.wall_max_ms = max(self.wall_max_ms, wall_ms)
