"""Ranges of offsets: the one algebra under share-partitions, acknowledgements, dead letters and Spark's micro-batches.

A range is a named tuple with `first` and `last`, both included; its other fields say what its offsets have in common.
A list of ranges is in order and without overlap. Every operation walks over its operands once and changes nothing.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Protocol, Self, TypeVar


class Ranged(Protocol):
    """Anything that is about a range of offsets."""

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...


class RangeTuple(Ranged, Protocol):
    """A named tuple that begins with `first` and `last`, unless its key is given."""

    def __getitem__(self, key: slice, /) -> Any: ...

    def _replace(self, *, first: int = ..., last: int = ...) -> Self: ...


R = TypeVar("R", bound=RangeTuple)


def _rest(each: RangeTuple) -> Any:
    return each[2:]


def joined(ranges: Iterable[R], key: Callable[[R], object] = _rest) -> Iterator[R]:
    """Neighbors with equal keys become one range."""
    opened: R | None = None
    last, kind = -1, None
    for each in ranges:
        following = key(each)
        if opened is not None:
            if last + 1 == each.first and following == kind:
                last = each.last
                continue
            yield opened if last == opened.last else opened._replace(last=last)
        opened, last, kind = each, each.last, following
    if opened is not None:
        yield opened if last == opened.last else opened._replace(last=last)


def minus(ranges: Iterable[R], other: Sequence[Ranged]) -> Iterator[R]:
    """The parts of the ranges that no range of `other` has."""
    position = 0
    for each in ranges:
        first = each.first
        while position < len(other) and other[position].last < first:
            position += 1
        ahead = position
        while ahead < len(other) and other[ahead].first <= each.last:
            if other[ahead].first > first:
                yield each._replace(first=first, last=other[ahead].first - 1)
            first = other[ahead].last + 1
            ahead += 1
        if first <= each.last:
            yield each._replace(first=first)


def within(ranges: Iterable[R], other: Sequence[Ranged]) -> Iterator[R]:
    """The parts of the ranges that `other` has, too: one for each range of `other`."""
    position = 0
    for each in ranges:
        while position < len(other) and other[position].last < each.first:
            position += 1
        ahead = position
        while ahead < len(other) and other[ahead].first <= each.last:
            inner = other[ahead]
            yield each._replace(first=max(each.first, inner.first), last=min(each.last, inner.last))
            ahead += 1


def flattened(ranges: Sequence[R]) -> Iterator[R]:
    """From ranges in any order that may overlap: in order, without overlap. The last that has an offset counts."""
    begins = sorted(range(len(ranges)), key=lambda index: ranges[index].first)
    if all(ranges[before].last < ranges[after].first for before, after in pairwise(begins)):
        yield from (ranges[index] for index in begins)
        return
    edges = sorted({edge for each in ranges for edge in (each.first, each.last + 1)})
    begun = 0
    latest: list[int] = []
    """A heap of those that have begun, the last in the list on top (so they are negative)."""
    for first, end in pairwise(edges):
        while begun < len(begins) and ranges[begins[begun]].first <= first:
            heapq.heappush(latest, -begins[begun])
            begun += 1
        while latest and ranges[-latest[0]].last < first:
            heapq.heappop(latest)
        if latest:
            yield ranges[-latest[0]]._replace(first=first, last=end - 1)


def consecutive(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First and last of each run of consecutive offsets; they may come in any order."""
    first = last = None
    for offset in sorted(offsets):
        if first is None or last is None or offset > last + 1:
            if first is not None and last is not None:
                yield first, last
            first = offset
        last = offset
    if first is not None and last is not None:
        yield first, last
