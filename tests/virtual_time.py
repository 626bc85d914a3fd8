"""An event loop on which time passes only by waiting: when nothing is ready, the next timer is due at once.

For code that waits for nothing but timers. A busy machine changes nothing, and a wait of an hour takes no time.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__(_JumpingSelector(self))
        self._now_s = 0.0

    def time(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        self._now_s += seconds


class _JumpingSelector(selectors.DefaultSelector):  # type: ignore[valid-type, misc]
    """Instead of waiting for a time, it moves the loop's clock on."""

    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0 if timeout is not None else None)
        if not ready and timeout is not None and timeout > 0:
            self._loop.jump(timeout)
        return ready


def run_in_virtual_time(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
