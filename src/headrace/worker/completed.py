"""Which offsets of a partition are completed, and how that is kept in the metadata of a committed offset. Pure.

A task with `key_order="strict"` completes records out of order. What is committed is the lowest offset that is not
completed (`start`), and beside it, in the commit's metadata, the completed offsets beyond it. So whoever owns the
partition next runs exactly what was not completed.

Every offset below `position` has been admitted or has no record; `start` to `position`, without what is completed, is
in flight. Metadata have a bound (offset.metadata.max.bytes). A record is admitted only if the metadata fit whichever of
the records in flight are completed first (`may_admit`). They fit always if the broker's bound was larger before:
`encode` leaves out the last offsets, which are then run again after a crash.

The text is `headrace1.` and, in base64: the topic's id, `start`, a checksum, and the completed offsets in the shorter
of two forms, runs (the lengths of gaps and runs in turn, as varints) or a bitmap. It is believed only for the topic and
the offset that it was made for: tools that copy or reset offsets may leave it beside another one.
"""

import base64
import binascii
import re
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

METADATA_CHARS = 4_096
"""Kafka's default of offset.metadata.max.bytes."""
PREFIX = "headrace1."
RUNS, BITMAP = 0, 1
ID_SIZE, CRC_SIZE = 16, 4
_RUN = re.compile(r"1+")


class DoneRange(NamedTuple):
    first: int
    last: int


class OffsetCommit(NamedTuple):
    """What is committed of a partition."""

    offset: int
    metadata: str
    end: int
    """Every completed offset below this is in it."""


class CompletedOffsets:
    """Of one partition, for as long as a worker owns it."""

    def __init__(self, start: int, done: Iterable[DoneRange] = ()) -> None:
        self.start = self.position = start
        self.in_flight = 0
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for each in done:
            self._mark(each.first, each.last)
        self.position = self.start

    @property
    def done(self) -> list[DoneRange]:
        """The completed offsets beyond `start`."""
        return [DoneRange(*each) for each in zip(self._firsts, self._lasts, strict=True)]

    @property
    def beyond(self) -> int:
        """How many offsets beyond `start` are completed."""
        return sum(self._lasts) - sum(self._firsts) + len(self._firsts)

    def is_done(self, offset: int) -> bool:
        place = bisect_left(self._lasts, offset)
        return offset < self.start or (place < len(self._firsts) and self._firsts[place] <= offset)

    def may_admit(self, offset: int, chars: int = METADATA_CHARS) -> bool:
        """Whether the metadata fit into so many characters, whatever is completed first."""
        if not self.in_flight:
            return True  # nothing else would ever move `start`
        last = max(offset, self._lasts[-1] if self._lasts else offset)
        window = last + 1 - self.start
        return _chars(_size_max(self.start, window, len(self._firsts) + self.in_flight + 1)) <= chars

    def admit(self, offset: int) -> None:
        """The record at `offset` is to be run. There is none between the last one and this."""
        assert offset >= self.position
        assert not self.is_done(offset)
        self.skip(offset)
        self.position = offset + 1
        self.in_flight += 1

    def skip(self, end: int) -> None:
        """There are no records to be run from `position` up to `end`."""
        if end > self.position:
            self._mark(self.position, end - 1)
            self.position = end

    def finish(self, offset: int) -> None:
        """An admitted record is completed."""
        assert self.start <= offset < self.position
        assert not self.is_done(offset)
        self.in_flight -= 1
        self._mark(offset, offset)

    def encode(self, topic_id: bytes, chars: int = METADATA_CHARS) -> OffsetCommit:
        """What to commit now."""
        count = len(self._firsts)
        text = self._encode(topic_id, count)
        if len(text) <= chars:
            return OffsetCommit(self.start, text, self.position)
        fitting = 0
        while count - fitting > 1:
            middle = (fitting + count) // 2
            if len(self._encode(topic_id, middle)) <= chars:
                fitting = middle
            else:
                count = middle
        return OffsetCommit(self.start, self._encode(topic_id, fitting), self._firsts[fitting])

    def _encode(self, topic_id: bytes, count: int) -> str:
        if not count:
            return ""
        firsts, lasts = self._firsts[:count], self._lasts[:count]
        runs = b"".join(_varints(self.start, firsts, lasts))
        window = lasts[-1] - self.start
        kind, body = RUNS, runs
        if (window + 7) // 8 < len(runs):
            bits = 0
            for first, last in zip(firsts, lasts, strict=True):
                bits |= ((1 << (last - first + 1)) - 1) << (first - self.start - 1)
            kind, body = BITMAP, bits.to_bytes((window + 7) // 8, "little")
        data = topic_id + bytes([kind]) + _varint(self.start) + body
        return PREFIX + base64.b64encode(data + zlib.crc32(data).to_bytes(CRC_SIZE, "big")).decode()

    def _mark(self, first: int, last: int) -> None:
        first = max(first, self.start)
        if last < first:
            return
        low = bisect_left(self._lasts, first - 1)  # the first that touches it, or lies behind it
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high], self._lasts[low:high] = [first], [last]
        if self._firsts[0] == self.start:
            self.start = self._lasts[0] + 1
            del self._firsts[0], self._lasts[0]
            self.position = max(self.position, self.start)


def decode(metadata: str | None, topic_id: bytes, offset: int) -> list[DoneRange] | None:
    """The completed offsets beyond a committed one; None if the metadata are not ours, or not about this offset."""
    if not metadata:
        return []
    if not metadata.startswith(PREFIX) or not metadata.isascii():
        return None
    try:
        data = base64.b64decode(metadata.removeprefix(PREFIX), validate=True)
        data, crc = data[:-CRC_SIZE], data[-CRC_SIZE:]
        if zlib.crc32(data).to_bytes(CRC_SIZE, "big") != crc or data[:ID_SIZE] != topic_id:
            return None
        kind = data[ID_SIZE]
        numbers = _numbers(data[ID_SIZE + 1 :])
        start, used = next(numbers)
        if start != offset or kind not in (RUNS, BITMAP):
            return None
        if kind == BITMAP:
            return list(_ranges_of_bitmap(start, data[ID_SIZE + 1 + used :]))
        return list(_ranges_of_runs(start, (number for number, _ in numbers)))
    except (binascii.Error, IndexError, StopIteration, RuntimeError):
        return None


def _ranges_of_runs(start: int, numbers: Iterator[int]) -> Iterator[DoneRange]:
    end = start
    for gap in numbers:
        first = end + gap
        end = first + next(numbers)
        yield DoneRange(first, end - 1)


def _ranges_of_bitmap(start: int, data: bytes) -> Iterator[DoneRange]:
    bits = bin(int.from_bytes(data, "little"))[:1:-1]
    for run in _RUN.finditer(bits):
        yield DoneRange(start + 1 + run.start(), start + run.end())


def _varints(start: int, firsts: list[int], lasts: list[int]) -> Iterator[bytes]:
    end = start
    for first, last in zip(firsts, lasts, strict=True):
        yield _varint(first - end)
        yield _varint(last - first + 1)
        end = last + 1


def _varint(number: int) -> bytes:
    data = bytearray()
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)
    return bytes(data)


def _numbers(data: bytes) -> Iterator[tuple[int, int]]:
    """The varints, each with how many bytes it took."""
    number = shift = used = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        used += 1
        if byte < 0x80:
            yield number, used
            number = shift = used = 0


def _size_max(start: int, window: int, runs: int) -> int:
    body = min(2 * runs * len(_varint(window)), (window + 7) // 8)
    return ID_SIZE + 1 + len(_varint(start + window)) + body + CRC_SIZE


def _chars(size: int) -> int:
    return len(PREFIX) + (size + 2) // 3 * 4
