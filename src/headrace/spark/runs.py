"""Runs of offsets: which records, run-length encoded. Under the offset, the ledger and the splitting.

Theory of operation. A `Run` is a stretch of offsets of one partition that are alike: the same delivery count and the
same outcome. A `RunSet` holds runs of many partitions: per partition in order, without overlap, and as long as they
can be (neighbors that are alike are joined). So two sets of the same records are equal, and so is their text.
The algebra is in `base/ranges.py`; here it is done for each partition.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from headrace.base.ranges import flattened, joined, minus, within
from headrace.client.delivery import AcknowledgeType
from headrace.wire.ids import TopicAndPartition


class Run(NamedTuple):
    """Records first..last of one partition, all delivered the same number of times."""

    first: int
    last: int
    delivery_count: int
    outcome: AcknowledgeType = AcknowledgeType.ACCEPT

    @property
    def size(self) -> int:
        return self.last - self.first + 1


Runs = tuple[Run, ...]


class RunSet:
    """Runs by topic and partition. Immutable, hashable by nobody, equal by content."""

    __slots__ = ("_runs",)

    def __init__(self, runs: Mapping[TopicAndPartition, Runs] | None = None) -> None:
        """For runs that are in order and joined already; anything else comes through `of`."""
        self._runs: dict[TopicAndPartition, Runs] = {
            place: kept for place, kept in (runs or {}).items() if kept
        }

    @classmethod
    def of(cls, runs: Iterable[tuple[TopicAndPartition, Run]]) -> "RunSet":
        """From runs in any order. Where they overlap, the later one counts."""
        by_place: dict[TopicAndPartition, list[Run]] = {}
        for place, run in runs:
            by_place.setdefault(place, []).append(run)
        return cls({place: _normal(found) for place, found in by_place.items()})

    def __iter__(self) -> Iterator[tuple[TopicAndPartition, Run]]:
        for place in sorted(self._runs):
            for run in self._runs[place]:
                yield place, run

    def __bool__(self) -> bool:
        return bool(self._runs)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunSet) and self._runs == other._runs

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"RunSet({self._runs!r})"

    @property
    def places(self) -> list[TopicAndPartition]:
        return sorted(self._runs)

    @property
    def record_count(self) -> int:
        return sum(run.size for runs in self._runs.values() for run in runs)

    @property
    def run_count(self) -> int:
        return sum(map(len, self._runs.values()))

    def at(self, place: TopicAndPartition) -> Runs:
        return self._runs.get(place, ())

    def replaced_by(self, other: "RunSet") -> "RunSet":
        """The union; where both have a record, what `other` says of it counts."""
        united = dict(self._runs)
        for place, runs in other._runs.items():
            mine = united.get(place)
            united[place] = runs if mine is None else tuple(joined(sorted((*minus(mine, runs), *runs))))
        return RunSet(united)

    def minus(self, other: "RunSet") -> "RunSet":
        """What is not in `other`."""
        return RunSet(
            {
                place: tuple(minus(runs, other._runs[place])) if place in other._runs else runs
                for place, runs in self._runs.items()
            }
        )

    def within(self, other: "RunSet") -> "RunSet":
        """What is also in `other`, as this set describes it."""
        return RunSet(
            {
                place: tuple(joined(within(runs, other._runs[place])))
                for place, runs in self._runs.items()
                if place in other._runs
            }
        )

    def below(self, place: TopicAndPartition, offset: int) -> "RunSet":
        """The records of one partition before an offset."""
        return RunSet({place: tuple(within(self.at(place), (Run(0, offset - 1, 0),)))})

    def only(self, places: Iterable[TopicAndPartition]) -> "RunSet":
        return RunSet({place: self._runs[place] for place in places if place in self._runs})

    def with_outcome(self, outcome: AcknowledgeType) -> "RunSet":
        return RunSet.of((place, run._replace(outcome=outcome)) for place, run in self)

    def of_outcome(self, outcome: AcknowledgeType) -> "RunSet":
        return RunSet(
            {
                place: tuple(run for run in runs if run.outcome == outcome)
                for place, runs in self._runs.items()
            }
        )

    def take(self, *, records_max: int | None = None, runs_max: int | None = None) -> "RunSet":
        """As much as the limits allow, from the front of every partition in fair shares."""
        taken = self
        if runs_max is not None and taken.run_count > runs_max:
            shares = _fair_shares({place: len(runs) for place, runs in taken._runs.items()}, runs_max)
            taken = RunSet({place: runs[: shares[place]] for place, runs in taken._runs.items()})
        if records_max is not None and taken.record_count > records_max:
            counts = {place: sum(run.size for run in runs) for place, runs in taken._runs.items()}
            shares = _fair_shares(counts, records_max)
            taken = RunSet({place: _front(runs, shares[place]) for place, runs in taken._runs.items()})
        return taken


def _normal(runs: list[Run]) -> Runs:
    """In order, without overlap (the later in the list counts), joined."""
    return tuple(joined(flattened(runs)))


def _front(runs: Runs, count: int) -> Runs:
    taken: list[Run] = []
    for run in runs:
        if count <= 0:
            break
        taken.append(run if run.size <= count else run._replace(last=run.first + count - 1))
        count -= run.size
    return tuple(taken)


def _fair_shares(wanted: Mapping[TopicAndPartition, int], total: int) -> dict[TopicAndPartition, int]:
    """Shares out `total`: nobody gets more than it wants, and what one leaves goes to the others."""
    shares: dict[TopicAndPartition, int] = {}
    for index, place in enumerate(sorted(wanted, key=lambda place: (wanted[place], place))):
        shares[place] = min(wanted[place], total // (len(wanted) - index))
        total -= shares[place]
    return shares
