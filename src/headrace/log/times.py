"""Looking for records by their timestamps: the time index narrows it down, then batches are opened."""

from collections.abc import Sequence

from headrace.log.segment import Segment
from headrace.wire.batches import BatchHeader
from headrace.wire.records import Record, read_records


def find_time(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, end_offset: int
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record within the offsets that is not older than `timestamp_ms`."""
    for segment in segments:
        segment.indexes()  # a closed segment learns its largest timestamp there
        if segment.max_timestamp < timestamp_ms:
            continue
        for position, header in segment.headers(_start_position(segment, timestamp_ms)):
            if header.base_offset >= end_offset:
                return None
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            for record in _records(segment, position, header):
                if record.timestamp >= timestamp_ms and record.offset >= start_offset:
                    return (record.timestamp, record.offset) if record.offset < end_offset else None
    return None


def _start_position(segment: Segment, timestamp_ms: int) -> int:
    index, time_index = segment.indexes()
    return index.position_before(time_index.offset_before(timestamp_ms))


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
    for record in _records(newest, position, header):
        if record.timestamp == header.max_timestamp:
            return record.timestamp, max(record.offset, start_offset)
    return None


def _records(segment: Segment, position: int, header: BatchHeader) -> list[Record]:
    return read_records(segment.read(position, header.size)) if header.record_count else []
