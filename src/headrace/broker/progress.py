"""A start that takes long says what it is doing: nobody is served meanwhile, and an operator should know why."""

import logging

from headrace.broker.clock import Clock

logger = logging.getLogger("headrace.broker")

QUIET_MS = 2000


class Progress:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = self._said_ms = clock.monotonic_ms()

    def note(self, what: str, done: int, unit: str, *, of: int | None = None) -> None:
        """Called often; says something every two seconds."""
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._said_ms >= QUIET_MS:
            self._said_ms = now_ms
            total = "" if of is None else f" of {of}"
            seconds = (now_ms - self._began_ms) / 1000
            logger.info("starting since %.0f s: %s, %d%s %s", seconds, what, done, total, unit)
