"""The pages: what each is made of. A page is its template and some regions, parts that are sent again when they change.

`/live/...` streams the regions of the page at the same address as server-sent events: `patch` with the regions that
differ from what was sent before, `tick` when there is a new point for the charts. One template renders a region for
both, so what a page shows after an hour is what a reload would show.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.web import model, queries
from headrace.web.api import BODY_MAX, parameters, parse
from headrace.web.guard import same, set_cookie
from headrace.web.problems import EXPECTED, sentence_of, status_of
from headrace.web.rendering import render
from headrace.web.site import STREAMS_MAX, NotThere, Site

logger = logging.getLogger("headrace.web")

PATCH_S = 1.0
CHOICES_MAX = 200
Context = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    template: str
    wants: type
    load: Callable[[Site, Any], Awaitable[Context]]
    regions: tuple[str, ...]
    load_regions: Callable[[Site, Any], Awaitable[Context]] | None = None
    """What the regions need, where that is less than the page."""


async def _overview(site: Site, _: model.NoParameters) -> Context:
    return {"page": site.overview, "title": "Overview", "charts": ("in", "lag"), "charts_of": None}


async def _groups(site: Site, _: model.NoParameters) -> Context:
    return {"page": site.overview, "title": "Groups"}


async def _topics(site: Site, _: model.NoParameters) -> Context:
    return {"page": site.overview, "title": "Topics"}


async def _group(site: Site, choice: model.GroupChoice) -> Context:
    page, configs = await asyncio.gather(
        queries.group_page(site, choice.group), queries.group_configs(site, choice.group)
    )
    # A share group has the consumer's configs too, and the other way round; they do nothing there.
    other = "consumer." if page.type == "share" else "share."
    charts = ["lag", "acknowledged", "in-flight"] if page.is_live else ["lag", "done"]
    return {
        "page": page,
        "configs": [config for config in configs if not config.name.startswith(other)],
        "title": choice.group,
        "charts": charts,
        "charts_of": choice.group,
        "row": next((one for one in site.overview.groups if one.group_id == choice.group), None),
    }


async def _record(site: Site, choice: model.RecordChoice) -> Context:
    page = await queries.microscope(site, choice)
    return {"page": page, "title": f"{choice.topic}-{choice.partition} @ {choice.offset}"}


async def _topic(site: Site, choice: model.RecordsChoice) -> Context:
    topic = await queries.topic_page(site, choice.topic)
    if choice.partition >= len(topic.partitions):
        raise NotThere(
            f"{choice.topic} has no partition {choice.partition}, only 0 to {len(topic.partitions) - 1}"
        )
    return {
        "page": topic,
        "records": await queries.records_page(site, choice),
        "choice": choice,
        "title": choice.topic,
        "groups": [one.group_id for one in site.overview.share_groups][:CHOICES_MAX],
    }


async def _partitions(site: Site, choice: model.RecordsChoice) -> Context:
    async def ask() -> model.TopicPage:
        return await queries.topic_page(site, choice.topic)

    return {"page": await site.cached(("topic", choice.topic), queries.GROUP_S, ask)}


async def _dead_letters(site: Site, choice: model.MaybeTopic) -> Context:
    return {"page": await queries.dead_letters_page(site, choice.topic), "title": "Dead letters"}


PAGES: tuple[Page, ...] = (
    Page(
        "/",
        "overview.html",
        model.NoParameters,
        _overview,
        ("notice", "tiles", "groups", "topics", "brokers"),
    ),
    Page("/groups", "groups.html", model.NoParameters, _groups, ("notice", "groups")),
    Page("/group", "group.html", model.GroupChoice, _group, ("group_tiles", "windows", "members", "offsets")),
    Page("/record", "record.html", model.RecordChoice, _record, ("microscope",)),
    Page("/topics", "topics.html", model.NoParameters, _topics, ("notice", "topics")),
    Page("/topic", "topic.html", model.RecordsChoice, _topic, ("partitions",), _partitions),
    Page("/dead-letters", "dead_letters.html", model.MaybeTopic, _dead_letters, ("causes",)),
)


def routes() -> list[Route]:
    shown = [Route(page.path, _show(page)) for page in PAGES]
    streams = [Route("/live" + page.path, _stream(page)) for page in PAGES]
    return [*shown, *streams, Route("/login", login, methods=["GET", "POST"])]


async def _context(page: Page, request: Request, *, is_stream: bool = False) -> Context:
    site: Site = request.app.state.site
    load = (is_stream and page.load_regions) or page.load
    loaded = await load(site, parse(page.wants, parameters(request), strict=False))
    return {
        "path": page.path,
        "live": "/live" + page.path + ("?" + request.url.query if request.url.query else ""),
        "site": site,
        "is_read_only": site.options.is_read_only,
        **loaded,
    }


def _show(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        try:
            return HTMLResponse(render(page.template, await _context(page, request)))
        except EXPECTED as error:
            return problem_page(request, sentence_of(error), status_of(error))

    return show


def problem_page(request: Request, why: str, status: int) -> Response:
    site = getattr(request.app.state, "site", None)
    title = "Not found" if status == 404 else "That did not work"
    is_read_only = site is not None and site.options.is_read_only
    context = {
        "path": "",
        "live": None,
        "site": site,
        "is_read_only": is_read_only,
        "title": title,
        "why": why,
    }
    return HTMLResponse(render("problem.html", context), status)


def _stream(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def stream(request: Request) -> Response:
        site: Site = request.app.state.site
        if site.streams >= STREAMS_MAX:
            return JSONResponse(
                {"error": f"{STREAMS_MAX} pages are watched already; close some"}, 503, {"retry-after": "10"}
            )
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_events(page, request, site), 200, headers, "text/event-stream")

    return stream


async def _events(page: Page, request: Request, site: Site) -> AsyncIterator[str]:
    sent: dict[str, str] = {}
    sampled_at = None
    site.streams += 1
    try:
        yield "retry: 2000\n\n"
        while not site.stopping.is_set():
            try:
                context = await _context(page, request, is_stream=True)
                regions = {name: render(f"regions/{name}.html", context) for name in page.regions}
            except EXPECTED as error:
                yield _event("trouble", {"error": sentence_of(error), "status": status_of(error)})
            except Exception:
                logger.exception("the page %s failed", page.path)
                yield _event("trouble", {"error": "the dashboard failed; its log says more", "status": 500})
            else:
                changed = {name: html for name, html in regions.items() if sent.get(name) != html}
                sent = regions
                yield _event("patch", changed)
                if sampled_at != site.overview.sampled_at:
                    sampled_at = site.overview.sampled_at
                    yield _event("tick", {"sampled_at": sampled_at})
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATCH_S):
                    await site.stopping.wait()
    finally:
        site.streams -= 1


def _event(name: str, said: object) -> str:
    return f"event: {name}\ndata: {msgspec.json.encode(said).decode()}\n\n"


async def login(request: Request) -> Response:
    token = request.app.state.options.token
    wanted = request.query_params.get("next", "/")
    if not wanted.startswith("/") or wanted.startswith(("//", "/\\")):
        wanted = "/"
    if token is None:
        return RedirectResponse(wanted, 303)
    context = {"path": "", "live": None, "site": None, "is_read_only": True, "title": "Token", "next": wanted}
    if request.method == "POST":
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > BODY_MAX:
                return problem_page(request, "That form is too long.", 400)
        given = dict(parse_qsl(body.decode(errors="replace"))).get("token", "")
        if same(given.strip(), token):
            response = RedirectResponse(wanted, 303)
            set_cookie(response, token)
            return response
        return HTMLResponse(render("login.html", {**context, "is_wrong": True}), 403)
    return HTMLResponse(render("login.html", {**context, "is_wrong": False}))
