"""Waiting, in one part of a worker, for what another part changes."""

import asyncio
import contextlib
from collections.abc import Callable


class TaskProgress:
    """Of one task: a run has ended, a record has been settled, an acknowledgement confirmed, or the worker stops."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def note(self) -> None:
        self._event.set()

    async def until(self, is_so: Callable[[], object], seconds: float | None = None) -> None:
        """Returns when it is so, or after that time."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not is_so():
                    self._event.clear()
                    await self._event.wait()
