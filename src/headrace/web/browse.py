"""Records of a topic for people: one, a page of them, or those that a search finds.

A search reads forward and gives up after so many records; the page says where it stopped. Without an offset or a time
it begins so far before the end.
"""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import NamedTuple

from headrace.client.plain_fetch import read_range
from headrace.web.bodies import row_of
from headrace.web.model import RecordRow, RecordsChoice, RecordsPage
from headrace.web.site import Site
from headrace.wire.enums import OffsetSpec
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import Record, read_records

READ_BYTES = 1 << 20
RECORD_TIMEOUT_MS = 1_000
"""A record that is not written yet is not waited for."""
SCAN_MAX = 20_000
SCAN_S_MAX = 3.0
PARTITIONS_MAX = 64
"""Of a topic that is read as a whole."""
ALL = -1


class Stretch(NamedTuple):
    """Where to read in one partition; the end is not read."""

    partition: int
    start: int
    first: int
    end: int


async def one_record(site: Site, topic: str, partition: int, offset: int) -> RecordRow | None:
    try:
        async for _, batch in read_range(
            site.source.cluster, topic, partition, offset, offset, timeout_ms=RECORD_TIMEOUT_MS
        ):
            for record in read_records(batch):
                if record.offset == offset:
                    return row_of(record, partition, whole=True)
    except KafkaError as error:
        if error.code not in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_NOT_AVAILABLE):
            raise
    return None


async def records_page(site: Site, choice: RecordsChoice) -> RecordsPage:
    """From an offset or a time on; the newest if neither is given. Offsets before the log begin at its start."""
    if choice.partition == ALL and choice.offset is None:
        return await _of_all(site, choice)
    (stretch,) = await _stretches(site, choice, [max(0, choice.partition)])
    rows, scanned, last = await _read(site, choice, stretch, SCAN_MAX)
    return RecordsPage(
        topic=choice.topic,
        partition=stretch.partition,
        start_offset=stretch.start,
        end_offset=stretch.end,
        records=tuple(rows),
        next_offset=last + 1 if rows or scanned else stretch.end,
        scanned=scanned,
        is_cut=_is_search(choice) and last + 1 < stretch.end,
    )


async def _of_all(site: Site, choice: RecordsChoice) -> RecordsPage:
    """Of every partition, by time: the first ones of a time, the newest ones otherwise."""
    topic = (await site.source.admin.describe_topics([choice.topic]))[choice.topic]
    indexes = [one.partition for one in topic.partitions][:PARTITIONS_MAX]
    stretches = await _stretches(site, choice, indexes)
    rows: list[RecordRow] = []
    scanned, is_cut = 0, len(topic.partitions) > PARTITIONS_MAX
    for stretch in stretches:
        found, read, last = await _read(site, choice, stretch, SCAN_MAX // len(stretches))
        rows += found
        scanned += read
        is_cut |= _is_search(choice) and last + 1 < stretch.end
    rows.sort(key=lambda row: (row.timestamp, row.partition, row.offset))
    shown = rows[: choice.limit] if choice.time is not None else rows[-choice.limit :]
    end = sum(stretch.end - stretch.start for stretch in stretches)
    return RecordsPage(
        topic=choice.topic,
        partition=ALL,
        start_offset=0,
        end_offset=end,
        records=tuple(shown),
        next_offset=end,
        scanned=scanned,
        is_cut=is_cut,
    )


async def _stretches(site: Site, choice: RecordsChoice, partitions: list[int]) -> list[Stretch]:
    admin = site.source.admin
    places = [(choice.topic, partition) for partition in partitions]
    starts = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.EARLIEST))
    ends = await admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    found: dict[tuple[str, int], int | None] = {}
    if choice.time is not None:
        when = datetime.fromtimestamp(choice.time / 1000, UTC)
        listed = await admin.list_offsets(dict.fromkeys(places, when))
        found = {place: one.offset for place, one in listed.items()}
    back = SCAN_MAX // len(places) if _is_search(choice) else choice.limit
    stretches = []
    for place in places:
        start, end = starts[place].offset or 0, ends[place].offset or 0
        if choice.time is not None:
            at = found[place]
            first = end if at is None else at
        elif choice.offset is not None:
            first = max(start, choice.offset)
        else:
            first = max(start, end - back)
        stretches.append(Stretch(place[1], start, first, end))
    return stretches


def _is_search(choice: RecordsChoice) -> bool:
    return bool(choice.key or choice.value)


async def _read(
    site: Site, choice: RecordsChoice, stretch: Stretch, scan_max: int
) -> tuple[list[RecordRow], int, int]:
    """What fits, how many records were read for it, and the last offset that was read."""
    key, value = choice.key.encode(), choice.value.encode()
    rows: list[RecordRow] = []
    scanned, last = 0, stretch.first - 1
    until = time.monotonic() + SCAN_S_MAX
    async for record in _records(site, choice.topic, stretch):
        scanned, last = scanned + 1, record.offset
        if (not key or record.key == key) and (not value or value in (record.value or b"")):
            rows.append(row_of(record, stretch.partition))
        if len(rows) >= choice.limit or scanned >= scan_max or time.monotonic() > until:
            break
    return rows, scanned if _is_search(choice) else 0, last


async def _records(site: Site, topic: str, stretch: Stretch) -> AsyncIterator[Record]:
    if stretch.first >= stretch.end:
        return
    reading = read_range(
        site.source.cluster,
        topic,
        stretch.partition,
        stretch.first,
        stretch.end - 1,
        max_bytes=READ_BYTES,
    )
    try:
        async for _, batch in reading:
            for record in read_records(batch):
                if stretch.first <= record.offset < stretch.end:
                    yield record
    finally:
        await reading.aclose()
