"""How late the event loop is: a timer that is due twice a second, and by how much it was missed.

What keeps the loop busy for 80 ms delays every client by up to 80 ms. A broker that is overloaded shows it here first.
"""

import asyncio
from time import perf_counter

from headrace.broker.metrics import Histogram

INTERVAL_S = 0.5


class LoopLag:
    def __init__(self, loop: asyncio.AbstractEventLoop, seen: Histogram) -> None:
        self._loop = loop
        self._seen = seen
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        due_s = perf_counter() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._ring, due_s)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self, due_s: float) -> None:
        self._seen.observe(max(0.0, (perf_counter() - due_s) * 1000))
        self.start()
