"""Reads for share fetches: a slice of the log, and where its record batches and aborted transactions lie in it.

A share fetch wants so many records, a log is read by bytes. We guess the bytes from what records of this log weigh on
average and read on if that was too little, so that a deep backlog is not read for the sake of a few records.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.share.changes import Span
from headrace.wire.batches import ATTRIBUTES_AT, CONTROL, FRAME_SIZE, LENGTH_MIN, TRANSACTIONAL, read_header
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import read_marker

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

_SPAN = struct.Struct(">qi11xi")
"""Base offset, length and last offset delta of a batch."""
BYTES_MIN = 64 * 1024
BYTES_TO_WALK = 512 * 1024
"""Read at a time where nobody wants the data: what the processor's cache holds."""


class Slice(NamedTuple):
    data: bytes
    """Empty where nobody wants it."""
    batches: list[Span]
    positions: list[int]
    """Where each batch begins in the slice; one more for its end."""
    aborted: list[Span]

    def place(self, first: int, last: int) -> tuple[int, int]:
        """Where the batch that holds `first` begins in the slice, and where the one that holds `last` ends."""
        begin = bisect_right(self.batches, (first, _LAST)) - 1
        end = bisect_right(self.batches, (last, _LAST))
        return self.positions[max(0, begin)], self.positions[end]

    def cut(self, first: int, last: int) -> bytes:
        """The bytes there."""
        start, stop = self.place(first, last)
        return self.data if stop - start == len(self.data) else self.data[start:stop]


_LAST = 1 << 63


def read_slice(
    log: "PartitionLog",
    offset: int,
    *,
    records_max: int,
    max_bytes: int,
    committed: bool,
    keeps_data: bool = True,
) -> Slice | None:
    """Whole batches from the one that holds `offset` on; None where there is nothing to read yet.

    Every turn of the loop either notes a batch behind those it has, or is the last one.
    """
    keeps_data = keeps_data or committed  # which batches were aborted is found in the data
    chunks: list[bytes] = []
    batches: list[Span] = []
    positions: list[int] = []
    aborted: dict[tuple[int, int], None] = {}
    size, at = 0, offset
    while True:
        read = log.reader.read(
            at,
            max_bytes=min(
                max_bytes - size,
                _guess(log, offset + records_max - at),
                max_bytes if keeps_data else BYTES_TO_WALK,
            ),
            committed=committed,
            at_least_one=not size or not keeps_data,
        )
        if not read.data:
            break
        limit = min(read.next_offset, log.end_offset)
        used = _walk(read.data, size, batches, positions, offset + records_max, limit)
        if not used:  # compaction has left a hole, and what follows it begins after the last wanted offset
            break
        if keeps_data:
            chunks.append(read.data if used == len(read.data) else read.data[:used])
        aborted.update(dict.fromkeys(read.aborted))
        size += used
        at = max(at + 1, batches[-1][1] + 1)
        if at >= offset + records_max or size >= max_bytes or at >= log.end_offset:
            break
    if not size:
        return None
    data = chunks[0] if len(chunks) == 1 else b"".join(chunks)
    positions.append(size)
    return Slice(data, batches, positions, _aborted_spans(data, positions, list(aborted)) if aborted else [])


def _guess(log: "PartitionLog", records: int) -> int:
    average = log.size / max(1, log.end_offset - log.start_offset)
    return max(BYTES_MIN, int(records * average * 1.1))


def _walk(
    data: bytes, base: int, batches: list[Span], positions: list[int], end_offset: int, limit: int
) -> int:
    """Notes the batches that begin before `end_offset`, at least one in all; where they end in `data`.

    All of them end before the offset `limit`. A batch's checksum does not cover its base offset, so one that is
    damaged shows here only; acquired and accepted, it would move the group past records that nobody has read.
    """
    position, end, unpack = 0, len(data), _SPAN.unpack_from
    while position < end:
        first, length, delta = unpack(data, position)
        if not (batches[-1][1] if batches else -1) < first <= first + delta < limit:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"A record batch has offsets {first} to {first + delta}, which are out of order or not below {limit}.",
            )
        if first >= end_offset and batches:
            break
        if length < LENGTH_MIN:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"A record batch at offset {first} has length {length}."
            )
        batches.append((first, first + delta))
        positions.append(base + position)
        position += length + FRAME_SIZE
    return position


def _aborted_spans(data: bytes, positions: Sequence[int], aborted: list[tuple[int, int]]) -> list[Span]:
    """The data batches of aborted transactions. Control batches are not among them: clients pass over these."""
    starts = sorted((first_offset, producer_id) for producer_id, first_offset in aborted)
    active: set[int] = set()
    spans: list[Span] = []
    for position in positions[:-1]:
        flags = data[position + ATTRIBUTES_AT + 1]
        if not flags & TRANSACTIONAL:
            continue
        header = read_header(data, position)
        while starts and starts[0][0] <= header.last_offset:
            active.add(starts.pop(0)[1])
        if flags & CONTROL:
            marker = read_marker(data[position : position + header.size])
            if marker is not None and not marker.is_commit:
                active.discard(header.producer_id)
        elif header.producer_id in active:
            spans.append((header.base_offset, header.last_offset))
    return spans
