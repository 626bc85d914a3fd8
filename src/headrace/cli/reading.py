"""Reads partitions by plain Fetch and prints their records in the order of time; for `headrace read`.

Each partition is read in its own order. Of the partitions' next records the oldest is printed first, so that records of
different partitions come out by time as far as their logs are ordered by it. With `follow` the ends are asked for
again and again, and what has come is read in the same way; partitions that are added to the topic are read from their
beginning. Where the last N records begin is found by reading ever longer parts from the end backwards.
"""

import asyncio
import contextlib
import heapq
import re
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.cli.consume import Output
from headrace.cli.failures import say
from headrace.cli.formats import Shown
from headrace.cli.starting_points import StartingPoint
from headrace.client.cluster import Cluster
from headrace.client.errors import OffsetOutOfRangeError
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.client.settings import ClientSettings
from headrace.wire.enums import OffsetSpec
from headrace.wire.ids import TopicAndPartition
from headrace.wire.records import Record, load_reader, read_records

FETCH_BYTES = 256 * 1024
"""Of each partition; one batch at least."""
PARTITIONS_AT_ONCE = 64
FOLLOW_S = 0.3
PARTITIONS_EVERY = 10
"""With `follow`: it is looked for new partitions when the ends have been asked for so many times."""
LOOK_BACK_TIMES = 4
"""Each part that is read backwards is so many times as long as the one behind it."""
LOOK_BACK_MAX = 1_000_000
"""So many offsets before the end of a partition it is not looked any further for its last records."""
PRINTED_AT_ONCE = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    key: bytes | None
    pattern: "re.Pattern[bytes] | None"
    follow: bool
    committed: bool

    def has(self, record: Shown) -> bool:
        if self.key is not None and record.key != self.key:
            return False
        return self.pattern is None or self.pattern.search(record.value or b"") is not None


def print_records(
    settings: Mapping[str, str],
    places: Sequence[TopicAndPartition],
    point: StartingPoint,
    wanted: RecordFilter,
    out: Output,
    *,
    grows: str | None = None,
) -> None:
    """`grows` is a topic of which new partitions are followed, too."""
    load_reader()
    asyncio.run(_print(ClientSettings.parse(settings), places, point, wanted, out, grows))


async def _print(
    settings: ClientSettings,
    places: Sequence[TopicAndPartition],
    point: StartingPoint,
    wanted: RecordFilter,
    out: Output,
    grows: str | None,
) -> None:
    async with Cluster(settings) as cluster:
        firsts, ends = await _where(cluster, places, point, wanted.committed)
        while True:
            for begin in range(0, len(places), PARTITIONS_AT_ONCE):
                some = places[begin : begin + PARTITIONS_AT_ONCE]
                await _print_ranges(cluster, {one: (firsts[one], ends[one]) for one in some}, wanted, out)
            if not wanted.follow or out.left == 0:
                return
            firsts, looks = ends, 0
            while ends == firsts:
                out.require_reader()
                await asyncio.sleep(FOLLOW_S)
                looks += 1
                if grows is not None and looks % PARTITIONS_EVERY == 0:
                    new = await _new_places(cluster, grows, places)
                    firsts = firsts | await list_offsets(cluster, dict.fromkeys(new, OffsetSpec.EARLIEST))
                    places = [*places, *new]
                ends = await list_offsets(
                    cluster, dict.fromkeys(places, OffsetSpec.LATEST), committed=wanted.committed
                )


async def _new_places(
    cluster: Cluster, topic: str, places: Sequence[TopicAndPartition]
) -> list[TopicAndPartition]:
    await cluster.refresh([topic])
    known = cluster.topic(topic)
    found = [(topic, index) for index in sorted(known.partitions)] if known is not None else []
    return [place for place in found if place not in set(places)]


async def _where(
    cluster: Cluster, places: Sequence[TopicAndPartition], point: StartingPoint, committed: bool
) -> tuple[dict[TopicAndPartition, int], dict[TopicAndPartition, int]]:
    """Where each partition's reading begins, and where it ends for now."""
    starts = await list_offsets(cluster, dict.fromkeys(places, OffsetSpec.EARLIEST))
    ends = await list_offsets(cluster, dict.fromkeys(places, OffsetSpec.LATEST), committed=committed)
    times = dict.fromkeys(places, -1)
    if point.time_ms is not None:
        times = await list_offsets(cluster, dict.fromkeys(places, point.time_ms), committed=committed)
    if point.last is not None:
        return await _begins_of_last(cluster, starts, ends, point.last, committed), ends
    firsts = {one: min(point.resolve(starts[one], ends[one], times[one]), ends[one]) for one in places}
    return firsts, ends


async def _begins_of_last(
    cluster: Cluster,
    starts: Mapping[TopicAndPartition, int],
    ends: Mapping[TopicAndPartition, int],
    count: int,
    committed: bool,
) -> dict[TopicAndPartition, int]:
    limit = asyncio.Semaphore(PARTITIONS_AT_ONCE)

    async def find(place: TopicAndPartition) -> int:
        async with limit:
            return await _begin_of_last(cluster, place, starts[place], ends[place], count, committed)

    return dict(zip(starts, await asyncio.gather(*map(find, starts)), strict=True))


async def _begin_of_last(
    cluster: Cluster, place: TopicAndPartition, start: int, end: int, count: int, committed: bool
) -> int:
    """The offset of the record with which the last `count` ones begin, or of the first that was found."""
    everything = RecordFilter(key=None, pattern=None, follow=False, committed=committed)
    found, missing, length, lowest = end, count, count, end - count - LOOK_BACK_MAX
    while missing > 0 and end > max(start, lowest):
        begin = max(start, end - length)
        part: deque[int] = deque(maxlen=missing)
        async for record in _records(cluster, place, begin, end, everything):
            part.append(record.offset)
        found, missing = (part[0] if part else found), missing - len(part)
        end, length = begin, length * LOOK_BACK_TIMES
    if missing > 0 and end > start:
        say(
            f"{place[0]}-{place[1]}: looked for the last {count} records down to offset {end}; name an offset."
        )
    return found


async def _print_ranges(
    cluster: Cluster, ranges: Mapping[TopicAndPartition, tuple[int, int]], wanted: RecordFilter, out: Output
) -> None:
    found: list[Shown] = []
    async with contextlib.AsyncExitStack() as closing:
        streams = [
            await closing.enter_async_context(
                contextlib.aclosing(_records(cluster, place, first, end, wanted))
            )
            for place, (first, end) in ranges.items()
            if first < end
        ]
        async for record in _by_time(streams):
            found.append(record)
            if len(found) == out.left:
                break
            if len(found) >= PRINTED_AT_ONCE:
                out.emit(found)
                found = []
    out.emit(found)


async def _by_time(streams: Sequence[AsyncIterator[Shown]]) -> AsyncIterator[Shown]:
    heads = await asyncio.gather(*(anext(stream, None) for stream in streams))
    heap = [(head.timestamp, number, head) for number, head in enumerate(heads) if head is not None]
    heapq.heapify(heap)
    while heap:
        _, number, record = heap[0]
        yield record
        following = await anext(streams[number], None)
        if following is None:
            heapq.heappop(heap)
        else:
            heapq.heapreplace(heap, (following.timestamp, number, following))


async def _records(
    cluster: Cluster, place: TopicAndPartition, first: int, end: int, wanted: RecordFilter
) -> AsyncGenerator[Shown, None]:
    """Those that are wanted. What retention takes away meanwhile is passed over."""
    topic, partition = place
    while first < end:
        batches = read_range(
            cluster, topic, partition, first, end - 1, committed=wanted.committed, max_bytes=FETCH_BYTES
        )
        try:
            async with contextlib.aclosing(batches):
                async for _, batch in batches:
                    for record in read_records(batch):
                        if first <= record.offset < end:
                            first = record.offset + 1
                            shown = _shown(place, record)
                            if wanted.has(shown):
                                yield shown
            return
        except OffsetOutOfRangeError as error:
            if error.log_start_offset <= first:
                raise
            first = error.log_start_offset
            say(f"{topic}-{partition}: records before offset {first} were deleted meanwhile.")


def _shown(place: TopicAndPartition, record: Record) -> Shown:
    return Shown(
        topic=place[0],
        partition=place[1],
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )
