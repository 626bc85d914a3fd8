"""Jobs: the records that a worker holds, as its scheduler sees them. Pure."""

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar


class Stage(Enum):
    READY = "ready"
    RUNNING = "running"
    WAITING = "waiting"
    GIVING_UP = "giving up"
    GONE = "gone"

    __hash__ = object.__hash__
    """Enum's own is written in Python, and every record has its stages counted several times."""


@dataclass(slots=True, eq=False)
class CallSlot:
    """One of the `concurrency` runs, with the records that it has."""

    first: tuple[int, int]
    """Partition and offset of its first record."""
    left: int
    """Records whose end has not been told."""
    has_success: bool = False


@dataclass(slots=True, eq=False)
class Job:
    """One held record. Only the scheduler and its parts change it."""

    partition: int
    offset: int
    key: bytes | None
    delivery_count: int
    tries: int = 0
    """Runs begun in this delivery."""
    stage: Stage = Stage.READY
    due_ms: int = 0
    is_queued: bool = False
    keeps_lane: bool = False
    """Its run was given up and goes on all the same; with `key_order` nothing else of its key runs beside it."""
    carried: int = 0
    """Attempts of earlier copies of the record."""
    is_stuck: bool = False
    """It has used up its attempts, or cannot be read, and is held because there is no dead-letter topic."""
    is_alone: bool = False
    """It is not run in a batch with others."""
    ready_ms: int | None = None
    """Of a task with batches: since when it has waited for a run."""
    slot: CallSlot | None = None
    """Of its run, or of its last one."""

    @property
    def attempts(self) -> int:
        """Runs so far as far as anyone can know: earlier deliveries count as one each."""
        return self.carried + self.tries + self.delivery_count - 1

    @property
    def place(self) -> tuple[int, int]:
        return (self.partition, self.offset)


J = TypeVar("J", bound=Job)
"""A job with what the shell knows of it."""
