"""What the runs left in the journal: whether each record ran once and in the order of its key, and how fast."""

import os
import struct
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.queues.journal import require_exact

ENTRY = struct.Struct("<qqq")


class KeyRun(NamedTuple):
    """Times are nanoseconds of the machine's clock, which Java's `System.nanoTime` reads too."""

    number: int
    began_ns: int
    ended_ns: int


class OutOfOrder(Exception):
    """A record began before an earlier one of its key had ended: the run is void."""


class Journal:
    """Written by many threads: an entry is one write at the end of the file."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def note(self, number: int, began_ns: int) -> None:
        os.write(self._file, ENTRY.pack(number, began_ns, time.monotonic_ns()))


def noted(path: Path) -> int:
    return path.stat().st_size // ENTRY.size if path.exists() else 0


def read(path: Path) -> list[KeyRun]:
    return [KeyRun(*entry) for entry in ENTRY.iter_unpack(path.read_bytes())]


def require_order(runs: Sequence[KeyRun], key_of: Sequence[int]) -> None:
    """`key_of` has the key of each record, by number: of a key, they were sent in the order of their numbers."""
    require_exact(((run.number, run.ended_ns) for run in runs), jobs=len(key_of))
    last: dict[int, KeyRun] = {}
    for run in sorted(runs):
        before = last.get(key_of[run.number])
        if before is not None and run.began_ns < before.ended_ns:
            early_ms = (before.ended_ns - run.began_ns) / 1e6
            raise OutOfOrder(
                f"record {run.number} of key {key_of[run.number]} began {early_ms:.3f} ms before record"
                f" {before.number} of that key had ended"
            )
        last[key_of[run.number]] = run


def rate(runs: Iterable[KeyRun], *, warm: float) -> float:
    """Records a second, without the first of them: that share is run while the process warms up."""
    ends_ns = sorted(run.ended_ns for run in runs)
    counted = ends_ns[int(len(ends_ns) * warm) :]
    return (len(counted) - 1) * 1e9 / (counted[-1] - counted[0])


def most_at_once(runs: Iterable[KeyRun]) -> int:
    """How many runs went on at the same time at most."""
    changes: list[tuple[int, int]] = []
    for run in runs:
        changes += [(run.began_ns, 1), (run.ended_ns, -1)]
    most = now = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
