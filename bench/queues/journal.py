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


def deliveries_beyond_one(entries: Iterable[tuple[int, int]], *, messages: int) -> int:
    """Where each may come more than once: how many deliveries were not the first. One that never came voids the run."""
    came = Counter(number for number, _ in entries)
    never = messages - sum(number in came for number in range(messages))
    unknown = sum(not 0 <= number < messages for number in came)
    if never or unknown:
        raise NotExact(f"of {messages} messages {never} never came; {unknown} were nobody's messages")
    return came.total() - messages


def first_deliveries(entries: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Each message once, at the earliest of its times."""
    return list(dict(sorted(entries, key=lambda entry: entry[1], reverse=True)).items())


def rate(entries: Iterable[tuple[int, int]], *, first: int, jobs: int) -> float:
    """Jobs a second from the end of the earliest to the end of the latest, of `jobs` numbers from `first` on."""
    times_ns = [time_ns for number, time_ns in entries if first <= number < first + jobs]
    return (len(times_ns) - 1) * 1e9 / (max(times_ns) - min(times_ns))
