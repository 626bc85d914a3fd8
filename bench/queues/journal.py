"""What the jobs left in the journal: whether each ran exactly once, and how fast."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from bench.queues.jobs.work import ENTRY


class NotExact(Exception):
    """A job ran twice, never, or was never enqueued: the run is void."""


def jobs_noted(path: Path) -> int:
    return path.stat().st_size // ENTRY.size if path.exists() else 0


def read(path: Path) -> list[tuple[int, int]]:
    return list(ENTRY.iter_unpack(path.read_bytes()))


def require_exact(entries: Iterable[tuple[int, int]], *, jobs: int) -> None:
    ran = Counter(number for number, _ in entries)
    never = jobs - sum(number in ran for number in range(jobs))
    twice = sum(count > 1 for count in ran.values())
    unknown = sum(not 0 <= number < jobs for number in ran)
    if never or twice or unknown:
        raise NotExact(
            f"of {jobs} jobs {never} never ran, {twice} ran more than once; {unknown} were nobody's jobs"
        )


def rate(entries: Iterable[tuple[int, int]], *, first: int, jobs: int) -> float:
    """Jobs a second from the end of the earliest to the end of the latest, of `jobs` numbers from `first` on."""
    times_ns = [time_ns for number, time_ns in entries if first <= number < first + jobs]
    return (len(times_ns) - 1) * 1e9 / (max(times_ns) - min(times_ns))
