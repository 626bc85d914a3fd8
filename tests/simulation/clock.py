"""Two clocks that move only when the scheduler says so, and that can jump apart."""

START_WALL_MS = 1_700_000_000_000
START_MONOTONIC_MS = 1_000_000


class SimulatedClock:
    def __init__(self) -> None:
        self._wall_ms = START_WALL_MS
        self._monotonic_ms = START_MONOTONIC_MS
        self.wall_max_ms = START_WALL_MS
        """The latest time the wall clock has ever shown: what may have expired by it."""

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, ms: int) -> None:
        self._monotonic_ms += ms
        self.set_wall(self._wall_ms + ms)

    def set_wall(self, wall_ms: int) -> None:
        """Somebody, or NTP, sets the clock of the machine."""
        self._wall_ms = wall_ms
        self.wall_max_ms = max(self.wall_max_ms, wall_ms)
