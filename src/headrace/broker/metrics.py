"""What the broker counts and measures, by name and labels, for whoever asks (the Prometheus endpoint).

Theory of operation. Three kinds: a counter only grows, a gauge is a function that is called when somebody looks, a
histogram keeps how many observations fell into each of a few buckets. Names are Kafka's;
what Kafka shows as a rate is here the counter behind it. `count` and `observe` look their series up each time; a hot
path holds on to `counter(...)` or `histogram(...)` instead, which costs an addition. Nothing here knows time.
An index from each label to its series makes forgetting cost what is forgotten, not what there is.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
Key = tuple[str, Labels]

BUCKETS: tuple[float, ...] = (
    0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 75, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000,
)  # fmt: skip
"""Upper bounds, inclusive; one more bucket takes what is larger. They suit milliseconds and percentages."""


@dataclass(slots=True)
class Counter:
    value: float = 0

    def add(self, amount: float = 1) -> None:
        self.value += amount


@dataclass(slots=True)
class Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0
    highest: float = 0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(BUCKETS, value)] += 1
        self.total += value
        if value > self.highest:
            self.highest = value

    @property
    def count(self) -> int:
        return sum(self.counts)


class Sample(NamedTuple):  # cheap to make: there are thousands of them
    """One series at the moment of the snapshot. Of a histogram `value` is the sum of its observations."""

    name: str
    kind: str
    """counter, gauge or histogram"""
    labels: Mapping[str, str]
    value: float
    counts: tuple[int, ...] = ()
    highest: float = 0


class MetricsRegistry:
    def __init__(self) -> None:
        self._counters: dict[tuple[str, Labels], Counter] = {}
        self._gauges: dict[tuple[str, Labels], Callable[[], float]] = {}
        self._histograms: dict[tuple[str, Labels], Histogram] = {}
        self._by_label: dict[tuple[str, str], dict[Key, None]] = {}

    def count(self, name: str, amount: float = 1, **labels: object) -> None:
        self.counter(name, **labels).value += amount

    def observe(self, name: str, value: float, **labels: object) -> None:
        self.histogram(name, **labels).observe(value)

    def gauge(self, name: str, function: Callable[[], float], **labels: object) -> None:
        """Shows what the function returns at each snapshot; a second one of the same name and labels replaces it."""
        key = (name, _labels(labels))
        if key not in self._gauges:
            self._index(key)
        self._gauges[key] = function

    def counter(self, name: str, **labels: object) -> Counter:
        """The series itself, made at 0 if it is new."""
        key = (name, _labels(labels))
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = Counter()
            self._index(key)
        return found

    def histogram(self, name: str, **labels: object) -> Histogram:
        key = (name, _labels(labels))
        found = self._histograms.get(key)
        if found is None:
            found = self._histograms[key] = Histogram()
            self._index(key)
        return found

    def forget(self, **labels: object) -> None:
        """Drops every series that has all of these labels: the group or topic is gone."""
        gone = _labels(labels)
        rarest = min((self._by_label.get(label, {}) for label in gone), key=len, default={})
        for key in [key for key in rarest if set(gone).issubset(key[1])]:
            self._counters.pop(key, None)
            self._gauges.pop(key, None)
            self._histograms.pop(key, None)
            for label in key[1]:
                keys = self._by_label[label]
                del keys[key]
                if not keys:
                    del self._by_label[label]

    def _index(self, key: Key) -> None:
        for label in key[1]:
            self._by_label.setdefault(label, {})[key] = None

    def snapshot(self) -> list[Sample]:
        """Every series, in the order of names and labels."""
        samples = [
            *(
                (key, Sample(key[0], "counter", dict(key[1]), one.value))
                for key, one in self._counters.items()
            ),
            *((key, Sample(key[0], "gauge", dict(key[1]), value())) for key, value in self._gauges.items()),
            *(
                (key, Sample(key[0], "histogram", dict(key[1]), one.total, tuple(one.counts), one.highest))
                for key, one in self._histograms.items()
            ),
        ]
        samples.sort(key=itemgetter(0))
        return [sample for _, sample in samples]


def _labels(labels: Mapping[str, object]) -> Labels:
    if not labels:
        return ()
    if len(labels) < 2:
        return tuple((name, str(value)) for name, value in labels.items())
    return tuple(sorted((name, str(value)) for name, value in labels.items()))
