"""Cutting a micro-batch into tasks. Pure: the same runs and the same wishes give the same tasks.

A replay may have other tasks, since another life of the query may not know how large the records are.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TypeVar

from headrace.base.ranges import Ranged
from headrace.spark.runs import Run, RunSet

ROWS_PER_TASK = 50_000
BYTES_PER_TASK = 16 * 1024 * 1024
"""Below both a task costs more to start than to run; above either another core helps."""

GAP_MAX = 1_000
"""Records between two runs that are read and thrown away rather than asked around: a request costs about as much."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Runs of one partition that one task reads."""

    topic: str
    topic_id: str
    partition: int
    runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class SplitHints:
    """How the user wants a micro-batch cut; `cores` is what there is to run tasks on.

    `bytes_per_record` is about what the records had that came last, 0 where that is unknown.
    """

    partitions_min: int | None = None
    records_per_partition: int | None = None
    cores: int = 1
    bytes_per_record: float = 0.0


def split(runs: RunSet, topic_ids: Mapping[str, str], wishes: SplitHints) -> list[tuple[Piece, ...]]:
    """The pieces of each task: tasks whose sizes differ by one record at most, each of as few partitions as can be."""
    rows = runs.record_count
    count = _task_count(rows, wishes)
    rooms = [rows * (index + 1) // count - rows * index // count for index in range(count)]
    tasks: list[list[Piece]] = []
    room = 0
    for topic, partition in runs.places:
        left = list(reversed(runs.at((topic, partition))))
        while left:
            if not room:
                room = rooms[len(tasks)]
                tasks.append([])
            taken: list[Run] = []
            while left and room:
                run = left.pop()
                if run.size > room:
                    left.append(run._replace(first=run.first + room))
                    run = run._replace(last=run.first + room - 1)
                taken.append(run)
                room -= run.size
            tasks[-1].append(Piece(topic, topic_ids[topic], partition, tuple(taken)))
    return [tuple(pieces) for pieces in tasks]


S = TypeVar("S", bound=Ranged)


def hulls(runs: Sequence[S], gap_max: int = GAP_MAX) -> Iterator[tuple[S, ...]]:
    """Groups of runs that are read in one go, because little lies between them."""
    group: list[S] = []
    for run in runs:
        if group and run.first - group[-1].last - 1 > gap_max:
            yield tuple(group)
            group = []
        group.append(run)
    if group:
        yield tuple(group)


def _task_count(rows: int, wishes: SplitHints) -> int:
    """No task is empty, so with few records there may be fewer than the user wants."""
    useful = max(-(-rows // ROWS_PER_TASK), ceil(rows * wishes.bytes_per_record / BYTES_PER_TASK))
    count = wishes.partitions_min or min(wishes.cores, useful)
    if wishes.records_per_partition:
        count = max(count, -(-rows // wishes.records_per_partition))
    return min(count, rows)
