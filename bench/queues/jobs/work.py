"""What every job does, whatever queue runs it, and the command line that every module of this folder has.

The environment says where the queue's server is, and where the journal.
"""

import argparse
import asyncio
import os
import struct
import time
from collections.abc import Callable, Iterable

from bench.clients.figures import Stopwatch

SERVER, JOURNAL = "BENCH_SERVER", "BENCH_JOURNAL"
CONCURRENCY = 10
WAIT_S = 0.005
ENTRY = struct.Struct("<qq")
"""Of the journal: the job's number, and the time at its end in nanoseconds of the machine's clock."""

Job = tuple[int, float]


class Journal:
    """Opened at the first note, so that each process of a pool that forks has it open for itself."""

    def __init__(self) -> None:
        self._file = -1

    def note(self, number: int) -> None:
        if self._file < 0:
            self._file = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        os.write(self._file, ENTRY.pack(number, time.monotonic_ns()))


_journal = Journal()


def work(number: int, wait_s: float) -> None:
    if wait_s:
        time.sleep(wait_s)
    _journal.note(number)


async def work_async(number: int, wait_s: float) -> None:
    if wait_s:
        await asyncio.sleep(wait_s)
    _journal.note(number)


def jobs(no_ops: int, waits: int) -> Iterable[Job]:
    """First those that do nothing, then those that wait."""
    for number in range(no_ops + waits):
        yield number, 0.0 if number < no_ops else WAIT_S


def main(enqueue: Callable[[Iterable[Job]], None], left: Callable[[], int]) -> None:
    """`enqueue` prints how long it took; `left` how many jobs the queue holds, whether taken by a worker or not."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["enqueue", "left"])
    parser.add_argument("--no-ops", type=int, default=0)
    parser.add_argument("--waits", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.command == "left":
        print(left())
        return
    watch = Stopwatch()
    enqueue(jobs(chosen.no_ops, chosen.waits))
    watch.figures(chosen.no_ops + chosen.waits).print()
