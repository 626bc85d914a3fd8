"""How the core has work done away from its thread: by the server's worker threads, or at once in tests."""

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
