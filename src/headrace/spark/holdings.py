"""Which acquisition holds an offset now: from offsets, which the ledger thinks in, to what the member acknowledges."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Generic, TypeVar

from headrace.wire.ids import TopicAndPartition

Held = TypeVar("Held")
Segment = tuple[int, int, Held]


class HeldSegments(Generic[Held]):
    """Stretches of offsets, each with whoever holds it. A later holder replaces an earlier one."""

    def __init__(self) -> None:
        self._segments: dict[TopicAndPartition, list[Segment[Held]]] = {}

    def put(self, place: TopicAndPartition, first: int, last: int, held: Held) -> None:
        segments = self._segments.setdefault(place, [])
        self.take(place, first, last)
        segments.insert(bisect_left(segments, first, key=lambda segment: segment[0]), (first, last, held))

    def take(self, place: TopicAndPartition, first: int, last: int) -> list[Segment[Held]]:
        """Takes the stretch out; returns what was in it, by holder."""
        segments = self._segments.get(place, [])
        begin = bisect_left(segments, first, key=lambda segment: segment[0])
        if begin and segments[begin - 1][1] >= first:
            begin -= 1
        end = begin
        taken: list[Segment[Held]] = []
        left: list[Segment[Held]] = []
        while end < len(segments) and segments[end][0] <= last:
            low, high, held = segments[end]
            taken.append((max(low, first), min(high, last), held))
            if low < first:
                left.append((low, first - 1, held))
            if high > last:
                left.append((last + 1, high, held))
            end += 1
        segments[begin:end] = left
        return taken

    def forget(self, topic: str) -> None:
        for place in [place for place in self._segments if place[0] == topic]:
            del self._segments[place]

    def __iter__(self) -> Iterator[tuple[TopicAndPartition, Segment[Held]]]:
        for place in sorted(self._segments):
            for segment in self._segments[place]:
                yield place, segment
