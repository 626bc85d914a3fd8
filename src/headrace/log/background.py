"""Work that a log manager wants done beside the loop: the slow part on a worker, the short part on the loop."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    what: str
    """For the log and for thread names."""
    run: Callable[[], None]
    """On any thread, while the loop goes on. OSError: the disk cannot be relied on any more."""
    finish: Callable[[], None] = lambda: None
    """On the loop's thread, after `run` has returned. OSError as above."""
