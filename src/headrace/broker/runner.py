"""How the core has work done away from its thread: by the server's worker threads, or at once in tests."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

Work = Callable[[], None]
Done = Callable[[Exception | None], None]
Run = Callable[[Work, Done], None]


class Runner(Protocol):
    def run(self, work: Work, done: Done) -> None:
        """Short work (a sync), several at a time. `done` is called on the core's thread, with the error if any."""

    def run_slow(self, work: Work, done: Done) -> None:
        """Long work (compaction), which must not delay a sync."""


class OneAtATime:
    """Runs pieces of work one after the other, so that what they hold in memory has the bound of one of them."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._waiting: deque[tuple[Work, Done]] = deque()
        self._is_running = False

    def run(self, work: Work, done: Done) -> None:
        self._waiting.append((work, done))
        self._start()

    def _start(self) -> None:
        if self._is_running or not self._waiting:
            return
        self._is_running = True
        work, done = self._waiting.popleft()

        def ended(error: Exception | None) -> None:
            self._is_running = False
            try:
                done(error)
            finally:
                self._start()

        self._run(work, ended)
