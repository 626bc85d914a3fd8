"""Sparse indexes of a segment: from offset to position, from time to offset, and its aborted transactions.

An entry is added about every `index.interval.bytes`. On disk they have Kafka's formats; in memory they are arrays
of four or eight bytes a number, so that a lookup is one bisection.
"""

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

OFFSET_ENTRY_SIZE = 8
_TIME_ENTRY = struct.Struct(">qi")
_ABORTED = struct.Struct(">hqqqq")


class OffsetIndex:
    """Last offset of a batch (relative to the segment's base offset) and the position where that batch starts."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    def add(self, relative_offset: int, position: int) -> None:
        self.offsets.append(relative_offset)
        self.positions.append(position)

    def entry_before(self, relative_offset: int) -> tuple[int, int]:
        """Where to start looking for an offset: position and last offset of a batch that is not after it.

        (0, -1) before the first entry.
        """
        return self._entry(bisect_right(self.offsets, relative_offset) - 1)

    def boundary_before(self, position: int) -> tuple[int, int]:
        """Position and last offset of the last known batch that starts at or before `position`; (0, -1) if none."""
        return self._entry(bisect_right(self.positions, position) - 1)

    def _entry(self, at: int) -> tuple[int, int]:
        return (self.positions[at], self.offsets[at]) if at >= 0 else (0, -1)

    def encode(self) -> bytes:
        pairs = array("i", [0]) * (2 * len(self.offsets))
        pairs[0::2] = self.offsets
        pairs[1::2] = self.positions
        if sys.byteorder == "little":
            pairs.byteswap()
        return pairs.tobytes()

    @classmethod
    def decode(cls, data: bytes) -> "OffsetIndex | None":
        """None for what is no index: entries must rise."""
        if len(data) % OFFSET_ENTRY_SIZE:
            return None
        pairs = array("i", data)
        if sys.byteorder == "little":
            pairs.byteswap()
        index = cls()
        index.offsets = pairs[0::2]
        index.positions = pairs[1::2]
        return index if _rises(index.offsets) and _rises(index.positions) else None


class TimeIndex:
    """Largest timestamp so far and the (relative) last offset of the batch that holds it."""

    __slots__ = ("offsets", "times")

    def __init__(self) -> None:
        self.times = array("q")
        self.offsets = array("i")

    def add(self, timestamp: int, relative_offset: int) -> None:
        """Ignored unless time has moved on."""
        if timestamp >= 0 and (not self.times or timestamp > self.times[-1]):
            self.times.append(timestamp)
            self.offsets.append(relative_offset)

    def entry_before(self, timestamp: int) -> tuple[int, int] | None:
        """The last entry that is older than `timestamp`: so is every record before the batch that it names."""
        at = bisect_left(self.times, timestamp)
        return (self.times[at - 1], self.offsets[at - 1]) if at else None

    def encode(self) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self.times, self.offsets))

    @classmethod
    def decode(cls, data: bytes) -> "TimeIndex | None":
        if len(data) % _TIME_ENTRY.size:
            return None
        index = cls()
        for timestamp, offset in _TIME_ENTRY.iter_unpack(data):
            index.times.append(timestamp)
            index.offsets.append(offset)
        return index if _rises(index.times) else None


def _rises(numbers: "array[int]") -> bool:
    return all(map(int.__lt__, numbers, numbers[1:])) and (not numbers or numbers[0] >= 0)


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of its marker."""
    last_stable_offset: int
    """Of the log, once this transaction had ended: every transaction that began before it is decided."""


def encode_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ABORTED.pack(0, *transaction) for transaction in transactions)


def decode_aborted(data: bytes) -> list[AbortedTransaction]:
    whole = len(data) - len(data) % _ABORTED.size
    return [AbortedTransaction(*row[1:]) for row in _ABORTED.iter_unpack(data[:whole])]
