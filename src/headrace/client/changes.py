"""Those who wait on an event loop until something changes, and are all woken together."""

import asyncio
from collections.abc import Callable

NEVER_MS = 1 << 62


class Changes:
    """`on_change` hears of every change, too."""

    def __init__(self, on_change: Callable[[], None] | None = None) -> None:
        self._on_change = on_change
        self._waiting: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        """One for all that wait, set for the first of them: those who have more time wait again."""
        self._timer_ms = NEVER_MS

    async def wait(self, until_ms: int) -> None:
        """Returns after a change, or when that time has come on the loop's clock; perhaps earlier."""
        loop = asyncio.get_running_loop()
        changed: asyncio.Future[None] = loop.create_future()
        self._waiting.append(changed)
        if until_ms < self._timer_ms:
            self.end_timer()
            self._timer_ms = until_ms
            self._timer = loop.call_at(until_ms / 1000, self._rang)
        try:
            await changed
        finally:
            if changed in self._waiting:  # it was canceled
                self._waiting.remove(changed)

    def wake(self) -> None:
        """Something has changed."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None)
        if self._on_change is not None:
            self._on_change()

    def end_timer(self) -> None:
        """Nobody waits any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_ms = None, NEVER_MS

    def _rang(self) -> None:
        self._timer, self._timer_ms = None, NEVER_MS
        self.wake()
