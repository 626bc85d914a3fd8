"""Looking for records by their timestamps: the time index narrows it down, then batches are opened.

This runs on the event loop. A batch that unpacks to more than OPENED_BYTES_MAX is not searched: it is answered with
where it begins, so that a reader gets some records too many and never one too few.
"""

from collections.abc import Iterator, Sequence

from headrace.log.segment import Segment
from headrace.wire.batches import BatchHeader
from headrace.wire.compression import TooLarge
from headrace.wire.records import Record, read_chunks, unpack

OPENED_BYTES_MAX = 8 << 20


def find_time(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, end_offset: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record within the offsets that is not older than `timestamp_ms`."""
    for segment in segments:
        segment.indexes()  # a closed segment learns its largest timestamp there
        if segment.max_timestamp < timestamp_ms:
            continue
        for position, header in segment.headers(segment.position_before_time(timestamp_ms)):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            try:
                for record in _records(segment, position, header):
                    if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                        return (record.timestamp, record.offset) if record.offset < end_offset else None
            except TooLarge:
                return header.max_timestamp, max(header.base_offset, start_offset)
    return None


def find_max_timestamp(segments: Sequence[Segment], *, start_offset: int) -> tuple[int, int] | None:
    for segment in segments:
        segment.indexes()
    newest = max(segments, key=lambda segment: segment.max_timestamp, default=None)
    if newest is None or newest.max_timestamp < 0:
        return None
    found = newest.find(newest.max_timestamp_offset)
    if found is None:
        return None
    position, header = next(newest.headers(found[0]))
    try:
        for record in _records(newest, position, header):
            if record.timestamp == header.max_timestamp:
                return record.timestamp, max(record.offset, start_offset)
    except TooLarge:
        return header.max_timestamp, max(header.last_offset, start_offset)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> Iterator[Record]:
    """Until whoever asks has found one. TooLarge where a batch unpacks to more than the event loop may wait for."""
    if header.record_count:
        for chunk in read_chunks(unpack(segment.read(position, header.size), limit=OPENED_BYTES_MAX)):
            yield from chunk
