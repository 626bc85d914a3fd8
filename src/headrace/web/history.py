"""What was sampled, for the charts: rings of the last points, all on one row of times.

A series is known by a tuple of words, such as ("lag", "mailers"). One that has no point left in the ring is forgotten.
There are SERIES_MAX of them at most, because a cluster with endless topics must not fill the memory. When there is no
room, one whose points are all 0 makes way for a new one that has something to show; else new ones are not taken in.
"""

from collections import deque
from collections.abc import Mapping

Key = tuple[str, ...]
POINTS_MAX = 450
SERIES_MAX = 2_000


class History:
    def __init__(self, points_max: int = POINTS_MAX, series_max: int = SERIES_MAX) -> None:
        self._points_max = points_max
        self._series_max = series_max
        self._times: deque[float] = deque(maxlen=points_max)
        self._series: dict[Key, deque[float | None]] = {}

    def __len__(self) -> int:
        return len(self._times)

    @property
    def series_count(self) -> int:
        return len(self._series)

    def record(self, time_s: float, values: Mapping[Key, float]) -> None:
        """One point of every series; those that are not among the values get a gap."""
        for key in self._admitted([key for key in values if key not in self._series], values):
            gaps = [None] * len(self._times)
            self._series[key] = deque(gaps, maxlen=self._points_max)
        self._times.append(time_s)
        for key, points in list(self._series.items()):
            points.append(values.get(key))
            if key not in values and all(point is None for point in points):
                del self._series[key]

    def _admitted(self, new: list[Key], values: Mapping[Key, float]) -> list[Key]:
        """The new series for which there is room, or for which idle ones make way."""
        room = self._series_max - len(self._series)
        if len(new) <= room:
            return new
        new.sort(key=lambda key: values[key] == 0)  # those that have something to show first
        active = sum(values[key] != 0 for key in new)
        if active > room:
            idle = [key for key in self._series if not values.get(key) and not any(self._series[key])]
            for key in idle[: active - room]:
                del self._series[key]
        return new[: self._series_max - len(self._series)]

    def times(self) -> tuple[float, ...]:
        return tuple(self._times)

    def points(self, key: Key) -> tuple[float | None, ...]:
        """As many as there are times; gaps are None."""
        found = self._series.get(key)
        return tuple(found) if found is not None else (None,) * len(self._times)

    def keys(self, *beginning: str) -> list[Key]:
        """Those that begin with these words, the highest last point first."""
        found = [key for key in self._series if key[: len(beginning)] == beginning]
        return sorted(found, key=lambda key: (-(self._series[key][-1] or 0), key))


class Rates:
    """Rates from counts that only grow; one that falls was started anew, and counts as unknown once."""

    def __init__(self) -> None:
        self._before: dict[Key, tuple[float, float]] = {}

    def update(self, time_s: float, counts: Mapping[Key, float]) -> dict[Key, float]:
        """Per second since the update before; only for counts that were there then too."""
        rates = {}
        for key, count in counts.items():
            before = self._before.get(key)
            if before is not None and time_s > before[0] and count >= before[1]:
                rates[key] = (count - before[1]) / (time_s - before[0])
        self._before = {key: (time_s, count) for key, count in counts.items()}
        return rates
