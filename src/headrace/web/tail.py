"""`/tail`: a topic's new records as they come, as server-sent events. Shown are at most RECORDS_MAX of each look."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from headrace.client.plain_fetch import read_range
from headrace.web.api import parameters, parse, problem
from headrace.web.bodies import row_of
from headrace.web.guard import VISITOR
from headrace.web.logins import Visitor
from headrace.web.model import RecordRow, TailChoice
from headrace.web.problems import EXPECTED, sentence_of
from headrace.web.rendering import render
from headrace.web.site import STREAMS_MAX, NotThere, Site
from headrace.wire.enums import OffsetSpec
from headrace.wire.ids import TopicAndPartition
from headrace.wire.records import read_records

LOOK_S = 0.5
RECORDS_MAX = 50
READ_BYTES = 256 * 1024


async def tail(request: Request) -> Response:
    site: Site = request.app.state.site
    if site.streams >= STREAMS_MAX:
        return JSONResponse({"error": f"{STREAMS_MAX} pages are watched already; close some"}, 503)
    try:
        choice: TailChoice = parse(TailChoice, parameters(request), strict=False)
        ends = await _ends(site, await _places(site, choice))
    except EXPECTED as error:
        return problem(error)
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    return StreamingResponse(_events(site, ends, request.scope[VISITOR]), 200, headers, "text/event-stream")


async def _places(site: Site, choice: TailChoice) -> list[TopicAndPartition]:
    topic = (await site.source.admin.describe_topics([choice.topic]))[choice.topic]
    places = [(choice.topic, one.partition) for one in topic.partitions]
    if choice.partition is None:
        return places
    if (choice.topic, choice.partition) not in places:
        raise NotThere(f"{choice.topic} has no partition {choice.partition}")
    return [(choice.topic, choice.partition)]


async def _ends(site: Site, places: list[TopicAndPartition]) -> dict[TopicAndPartition, int]:
    found = await site.source.admin.list_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    return {place: found[place].offset or 0 for place in places}


async def _events(site: Site, ends: dict[TopicAndPartition, int], visitor: Visitor) -> AsyncIterator[str]:
    site.streams += 1
    try:
        yield "retry: 2000\n\n"
        while not site.stopping.is_set() and await visitor.check():
            try:
                now = await _ends(site, list(ends))
                rows, passed_over = await _between(site, ends, now)
            except EXPECTED as error:
                yield f"event: trouble\ndata: {_json({'error': sentence_of(error)})}\n\n"
            else:
                ends = now
                if rows or passed_over:
                    topic = next(iter(ends))[0]
                    html = render("regions/tail_rows.html", {"rows": rows, "topic": topic})
                    yield f"event: records\ndata: {_json({'html': html, 'passed_over': passed_over})}\n\n"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await site.stopping.wait()
    finally:
        site.streams -= 1


async def _between(
    site: Site, before: dict[TopicAndPartition, int], now: dict[TopicAndPartition, int]
) -> tuple[list[RecordRow], int]:
    """The newest records between the two looks, oldest first, and how many older ones are passed over."""
    share = max(1, RECORDS_MAX // len(now))
    rows: list[RecordRow] = []
    passed_over = 0
    for place, end in now.items():
        first = max(before[place], end - share)
        if end <= first:
            continue
        passed_over += first - before[place]
        async for _, batch in read_range(site.source.cluster, *place, first, end - 1, max_bytes=READ_BYTES):
            rows += [
                row_of(record, place[1]) for record in read_records(batch) if first <= record.offset < end
            ]
    return sorted(rows, key=lambda row: (row.timestamp, row.partition, row.offset)), passed_over


def _json(said: object) -> str:
    return msgspec.json.encode(said).decode()
