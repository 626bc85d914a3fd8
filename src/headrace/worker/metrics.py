"""What a worker has counted: plain numbers, ready for whatever exports them."""

from bisect import bisect_left
from dataclasses import dataclass, field

RUN_SECONDS_BOUNDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)


@dataclass(slots=True)
class TaskMetrics:
    """Of one task. Counters only grow; `running`, `waiting` and `held` are of now."""

    received: int = 0
    """Deliveries taken in; a record that comes again counts again."""
    succeeded: int = 0
    """Records whose function returned and whose acceptance the broker has confirmed."""
    failed: int = 0
    """Runs that ended with an exception, asked for another try, or ran out of time."""
    retried: int = 0
    """Records put aside for another try here."""
    scheduled: int = 0
    """Of these, records that wait without their lock, because they wait for long."""
    rejected: int = 0
    """Records given up because the function said so (`Reject`)."""
    unreadable: int = 0
    """Records given up because their value was no body of this task."""
    dead_lettered: int = 0
    """Records whose copy the dead-letter topic has acknowledged, or that were left to the broker's own dead letters."""
    discarded: int = 0
    """Rejected records (`Reject`), and failed ones of a task with `retries=None`, without a dead-letter topic."""
    requeued: int = 0
    """Records on their last delivery that were replaced by a copy, because there is no dead-letter topic for them."""
    duplicates: int = 0
    """Records of a task with `once=` that were only accepted, because they were finished before."""
    released: int = 0
    lost: int = 0
    """Deliveries whose lock ended before they were settled; another worker may have run them too."""
    timed_out: int = 0
    abandoned: int = 0
    """Runs that could not be stopped when they should have been."""
    running: int = 0
    waiting: int = 0
    """Records that wait for another try."""
    stuck: int = 0
    """Records that have used up their attempts or cannot be read, and are held for want of a dead-letter topic."""
    paused: int = 0
    """1 while the task is paused, because everything failed."""
    pauses: int = 0
    """How often it was paused. Counts up, as the counters above do."""
    held: int = 0
    """All records whose locks this worker holds."""
    runs: int = 0
    run_seconds: float = 0.0
    run_seconds_counts: list[int] = field(default_factory=lambda: [0] * (len(RUN_SECONDS_BOUNDS) + 1))
    """Runs by how long they took: one count for each of RUN_SECONDS_BOUNDS, and one for longer ones."""

    def count(self, counter: str) -> None:
        setattr(self, counter, getattr(self, counter) + 1)

    def note_run(self, seconds: float) -> None:
        self.runs += 1
        self.run_seconds += seconds
        self.run_seconds_counts[bisect_left(RUN_SECONDS_BOUNDS, seconds)] += 1
