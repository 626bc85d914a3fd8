"""What the runs of a task say about the order of keys: who begins and ends which record of which key, and when."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RunEvent:
    at: float
    """On a clock that all workers of the machine share."""
    what: str
    """begin, end, or stop: the run is over, and its record is not done."""
    worker: int
    key: int
    number: int
    """Of the records of its key: 0, 1, 2, ..."""

    @classmethod
    def parse(cls, line: str) -> "RunEvent":
        at, worker, what, key, number = line.split()
        return cls(float(at), what, int(worker), int(key), int(number))


def done_of(events: Iterable[RunEvent]) -> set[tuple[int, int]]:
    return {(event.key, event.number) for event in events if event.what == "end"}


def violations(events: Iterable[RunEvent], killed: Mapping[int, float] | None = None) -> list[str]:
    """Where two records of a key ran at a time, or one began before all earlier ones had ended.

    What a killed worker ran has ended when it was gone. After a crash records may run again, but in their order.
    """
    by_key: dict[int, list[RunEvent]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.at):
        by_key[event.key].append(event)
    return [text for each in by_key.values() for text in _violations_of(each, killed or {})]


def _violations_of(events: list[RunEvent], killed: Mapping[int, float]) -> list[str]:
    found = []
    running: RunEvent | None = None
    last, ended = -1, -1
    for event in events:
        if event.what != "begin":
            if running is not None and (running.worker, running.number) == (event.worker, event.number):
                running = None
            ended = max(ended, event.number) if event.what == "end" else ended
            continue
        if running is not None and killed.get(running.worker, event.at) >= event.at:
            found.append(f"{event} while {running}")
        if event.number > last + 1:
            found.append(f"{event} after {last}")
        if event.number > ended + 1:
            found.append(f"{event} before {ended + 1} had ended")
        running, last = event, event.number
    return found
