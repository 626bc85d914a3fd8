"""Turns of the event loop, and what one of them may do.

A turn is one callback of the loop: bytes of a client, an alarm, the end of a worker's task. Everybody waits
while it runs, so its work is bounded: operations and bytes are counted, and what exceeds the budget raises in
the middle of the turn, which also ends an endless loop that reads. A pure endless loop is ended by an alarm of
the operating system.
"""

import signal
from types import FrameType

from tests.simulation.violation import Violation

OPERATIONS_MAX = 500
READS_MAX = 1_000
BYTES_MAX = 4 << 20
WATCHDOG_S = 20
"""Of processor time: on a busy machine a process may wait for its turn for as long as it likes."""


class Turns:
    def __init__(self) -> None:
        self.count = 0
        self.is_bounded = False
        """False while the broker starts or stops: that is no turn."""
        self.operations = self.reads = self.bytes = self.syncs = 0
        self.operations_max = self.reads_max = self.bytes_max = self.syncs_max = 0
        """Of the largest turn so far."""

    @property
    def is_idle(self) -> bool:
        """The last turn has not touched the disk."""
        return not self.operations and not self.reads

    def begin(self) -> None:
        self.count += 1
        self.is_bounded = True
        self.operations = self.reads = self.bytes = self.syncs = 0

    def end(self) -> None:
        self.is_bounded = False
        self.operations_max = max(self.operations_max, self.operations)
        self.reads_max = max(self.reads_max, self.reads)
        self.bytes_max = max(self.bytes_max, self.bytes)
        self.syncs_max = max(self.syncs_max, self.syncs)

    def count_operation(self, kind: str, path: str, size: int) -> None:
        self.operations += 1
        if kind == "write":
            self.bytes += size
        elif kind in ("sync", "syncdir"):
            self.syncs += 1
            if self.is_bounded:
                self.is_bounded = False
                raise Violation("a sync on the event loop", f"{kind} of {path or 'the data directory'}")
        if self.is_bounded and (self.operations > OPERATIONS_MAX or self.bytes > BYTES_MAX):
            self._exceeded(path)

    def count_read(self, path: str, size: int) -> None:
        self.reads += 1
        self.bytes += size
        if self.is_bounded and (self.reads > READS_MAX or self.bytes > BYTES_MAX):
            self._exceeded(path)

    def _exceeded(self, path: str) -> None:
        self.is_bounded = False
        raise Violation(
            "a turn without bound",
            f"{self.operations} operations, {self.reads} reads, {self.bytes} bytes in one turn, now at {path}",
        )


def watch() -> None:
    """Arms the alarm that ends a turn which does not end by itself. Call it again to start anew."""
    signal.signal(signal.SIGPROF, _alarm)
    signal.setitimer(signal.ITIMER_PROF, WATCHDOG_S)


def unwatch() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)


def _alarm(_: int, frame: FrameType | None) -> None:
    where = f"{frame.f_code.co_filename}:{frame.f_lineno} {frame.f_code.co_name}" if frame else "?"
    raise Violation("a turn without end", f"no progress for {WATCHDOG_S} s of processor time, now at {where}")
