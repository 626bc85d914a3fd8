"""Work that a log manager wants done beside the loop: the slow part on a worker, the short part on the loop.

What goes through all logs on the loop's thread is a generator, and each of its steps is bounded by a `Pace`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    what: str
    """For the log and for thread names."""
    run: Callable[[], None]
    """On any thread, while the loop goes on. OSError: the disk cannot be relied on any more."""
    finish: Callable[[], None] = lambda: None
    """On the loop's thread, after `run` has returned. OSError as above."""
    finishing: Callable[[], Iterator[None]] | None = None
    """`finish` in steps, for a loop that has others to serve."""
    is_short: bool = False
    """It must not wait until long work (a compaction) is done."""


STEP_COST = 500


class Pace:
    """Says when a step of work has cost enough. The unit is a look at a log that needs nothing done."""

    __slots__ = ("_spent",)

    def __init__(self) -> None:
        self._spent = 0

    def spend(self, cost: int) -> bool:
        """True: a step ends before this is done."""
        self._spent += cost
        if self._spent <= STEP_COST:
            return False
        self._spent = cost
        return True
