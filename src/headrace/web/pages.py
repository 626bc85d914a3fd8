"""The pages: what each is made of. A page is its template and some regions, parts that are sent again when they change.

`/live/...` streams the regions of the page at the same address as server-sent events: `patch` with the regions that
differ from what was sent before, `tick` when there is a new point for the charts. One template renders a region for
both, so what a page shows after an hour is what a reload would show.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from headrace.web import browse, letters, model, processes, queries, scheduled, time_machine
from headrace.web.api import parameters, parse
from headrace.web.guard import COOKIE, VISITOR, audit, may_only_look, same, session_of, set_cookie
from headrace.web.listing import groups_of, topics_of
from headrace.web.logins import Logins, Sessions
from headrace.web.options import WebOptions
from headrace.web.problems import EXPECTED, sentence_of, status_of
from headrace.web.rendering import render
from headrace.web.site import STREAMS_MAX, NotThere, Site

logger = logging.getLogger("headrace.web")

PATCH_S = 1.0
FORM_MAX = 64 * 1024
"""Bytes of the login form, which everybody may send."""
SHOWN_FIRST = 12
"""Groups and topics on the overview; their own pages have all of them."""
Context = dict[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page:
    path: str
    template: str
    wants: type
    load: Callable[[Site, Any], Coroutine[Any, Any, Context]]
    regions: tuple[str, ...]
    load_regions: Callable[[Site, Any], Coroutine[Any, Any, Context]] | None = None
    """What the regions need, where that is less than the page."""


async def _overview(site: Site, _: model.NoParameters) -> Context:
    overview = site.overview
    busiest = model.TopicsChoice(sort="rate", internal="no", limit=SHOWN_FIRST)
    return {
        "page": overview,
        "rows": groups_of(overview, model.GroupsChoice(limit=SHOWN_FIRST)),
        "topics": topics_of(overview, busiest),
        "choice": None,
        "title": "Overview",
        "charts": ("in", "lag"),
        "charts_of": None,
    }


async def _groups(site: Site, choice: model.GroupsChoice) -> Context:
    rows = groups_of(site.overview, choice)
    return {"page": site.overview, "rows": rows, "choice": choice, "title": "Groups"}


async def _topics(site: Site, choice: model.TopicsChoice) -> Context:
    rows = topics_of(site.overview, choice)
    return {"page": site.overview, "topics": rows, "choice": choice, "title": "Topics"}


async def _group(site: Site, choice: model.GroupChoice) -> Context:
    page, configs = await asyncio.gather(
        queries.group_page(site, choice.group), queries.group_configs(site, choice.group)
    )
    charts = ["lag", "acknowledged", "in-flight"] if page.is_live else ["lag", "done"]
    return {
        "page": page,
        "configs": queries.configs_for(page.type, configs),
        "title": choice.group,
        "charts": charts,
        "charts_of": choice.group,
        "row": next((one for one in site.overview.groups if one.group_id == choice.group), None),
        "has_schedule": scheduled.has_schedule(site, choice.group),
    }


async def _scheduled(site: Site, choice: model.ScheduledChoice) -> Context:
    page = await scheduled.scheduled_page(site, choice)
    return {"page": page, "choice": choice, "title": f"Scheduled records of {choice.group}"}


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
        "records": await browse.records_page(site, choice),
        "choice": choice,
        "title": choice.topic,
    }


async def _partitions(site: Site, choice: model.RecordsChoice) -> Context:
    async def ask() -> model.TopicPage:
        return await queries.topic_page(site, choice.topic)

    return {"page": await site.cached(("topic", choice.topic), queries.GROUP_S, ask)}


async def _dead_letters(site: Site, choice: model.MaybeTopic) -> Context:
    return {"page": await letters.dead_letters_page(site, choice.topic), "title": "Dead letters"}


async def _history(site: Site, choice: model.HistoryChoice) -> Context:
    page = await time_machine.history_page(site, choice)
    return {"page": page, "title": f"History of {choice.topic}-{choice.partition}", "live": None}


async def _processes(site: Site, nothing: model.NoParameters) -> Context:
    return {"page": await processes.processes_page(site, nothing), "title": "Workers and Spark"}


async def _letter(site: Site, choice: model.LetterChoice) -> Context:
    page = await letters.letter_page(site, choice)
    return {"page": page, "title": f"Dead letter {choice.partition}@{choice.offset}"}


PAGES: tuple[Page, ...] = (
    Page(
        "/",
        "overview.html",
        model.NoParameters,
        _overview,
        ("notice", "tiles", "groups", "topics", "brokers"),
    ),
    Page("/groups", "groups.html", model.GroupsChoice, _groups, ("notice", "groups")),
    Page("/group", "group.html", model.GroupChoice, _group, ("group_tiles", "windows", "members", "offsets")),
    Page("/group/scheduled", "scheduled.html", model.ScheduledChoice, _scheduled, ("scheduled",)),
    Page("/record", "record.html", model.RecordChoice, _record, ("microscope",)),
    Page("/topics", "topics.html", model.TopicsChoice, _topics, ("notice", "topics")),
    Page(
        "/topic",
        "topic.html",
        model.RecordsChoice,
        _topic,
        ("topic_tiles", "readers", "partitions"),
        _partitions,
    ),
    Page("/dead-letters", "dead_letters.html", model.MaybeTopic, _dead_letters, ("causes",)),
    Page("/processes", "processes.html", model.NoParameters, _processes, ("processes",)),
    Page("/history", "history.html", model.HistoryChoice, _history, ("history",)),
    Page("/dead-letter", "dead_letter.html", model.LetterChoice, _letter, ("letter",)),
)


def routes() -> list[Route]:
    shown = [Route(page.path, _show(page)) for page in PAGES]
    streams = [Route("/live" + page.path, _stream(page)) for page in PAGES]
    return [
        *shown,
        *streams,
        Route("/login", login, methods=["GET", "POST"]),
        Route("/logout", logout, methods=["POST"]),
    ]


async def _context(page: Page, request: Request, *, is_stream: bool = False) -> Context:
    site: Site = request.app.state.site
    load = (is_stream and page.load_regions) or page.load
    loaded = await unless_gone(site, load(site, parse(page.wants, parameters(request), strict=False)))
    return {
        "path": page.path,
        "live": "/live" + page.path + ("?" + request.url.query if request.url.query else ""),
        "site": site,
        "is_read_only": may_only_look(request),
        **loaded,
    }


async def unless_gone(site: Site, loading: Coroutine[Any, Any, T]) -> T:
    """What was loaded; ConnectionError as soon as the cluster does not respond: nobody waits for a long time-out."""
    work = asyncio.ensure_future(loading)
    gone = asyncio.ensure_future(site.sampler.gone())
    try:
        await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ConnectionError(site.sampler.overview.error or "The cluster does not respond.")
    finally:
        for task in (work, gone):
            task.cancel()
        await asyncio.gather(work, gone, return_exceptions=True)


def _show(page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def show(request: Request) -> Response:
        try:
            return HTMLResponse(render(page.template, await _context(page, request)))
        except EXPECTED as error:
            return problem_page(request, sentence_of(error), status_of(error))

    return show


def problem_page(request: Request, why: str, status: int) -> Response:
    is_known = request.scope.get(VISITOR) is not None  # a page with a site shows its secret against forgery
    site = getattr(request.app.state, "site", None) if is_known else None
    title = "Not found" if status == 404 else "That did not work"
    is_read_only = site is not None and may_only_look(request)
    context = {
        "path": "",
        "live": None,
        "site": site,
        "is_read_only": is_read_only,
        "title": title,
        "why": why[:1].upper() + why[1:],
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
        while not site.stopping.is_set() and await request.scope[VISITOR].check():
            yield _event("pulse", _pulse(site))
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
            await _pause(site)
    finally:
        site.streams -= 1


async def _pause(site: Site) -> None:
    """Until the next patch is due. Nobody waits to be told that the cluster is gone, or back."""
    waits = [asyncio.ensure_future(site.stopping.wait()), asyncio.ensure_future(site.sampler.turned())]
    try:
        await asyncio.wait(waits, timeout=PATCH_S, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _pulse(site: Site) -> dict[str, str]:
    """Whether what the page shows is of now."""
    overview = site.overview
    if overview.gone_since is not None:
        return {"kind": "gone", "text": "no cluster"}
    if overview.error is not None:
        return {"kind": "stale", "text": "not current"}
    return {"kind": "live", "text": "live"}


def _event(name: str, said: object) -> str:
    return f"event: {name}\ndata: {msgspec.json.encode(said).decode()}\n\n"


async def login(request: Request) -> Response:
    options: WebOptions = request.app.state.options
    wanted = request.query_params.get("next", "/")
    if not wanted.startswith("/") or wanted.startswith(("//", "/\\")):
        wanted = "/"
    if options.token is None and not options.has_logins:
        return RedirectResponse(wanted, 303)
    context = {
        "path": "",
        "live": None,
        "site": None,
        "is_read_only": True,
        "next": wanted,
        "title": "Log in" if options.has_logins else "Token",
        "has_logins": options.has_logins,
    }
    if request.method != "POST":
        return HTMLResponse(render("login.html", {**context, "is_wrong": False}))
    form = await _form(request)
    if form is None:
        return problem_page(request, "That form is too long.", 400)
    response: Response = RedirectResponse(wanted, 303)
    if options.has_logins:
        return await _log_in(request, form, response, context)
    if same(form.get("token", "").strip(), options.token or ""):
        set_cookie(response, session_of(options.token or ""), request)
        return response
    return HTMLResponse(render("login.html", {**context, "is_wrong": True}), 403)


async def _form(request: Request) -> dict[str, str] | None:
    """None: it is too long."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_MAX:
            return None
    return dict(parse_qsl(body.decode(errors="replace")))


async def _log_in(
    request: Request, form: Mapping[str, str], response: Response, context: Mapping[str, object]
) -> Response:
    logins: Logins = request.app.state.logins
    sessions: Sessions = request.app.state.sessions
    address = request.client.host if request.client is not None else ""
    name = form.get("name", "").strip().removeprefix("User:")
    if logins.must_wait(address):
        audit(request, name, 429)
        return problem_page(request, "Too many wrong passwords; try again in a minute.", 429)
    try:
        checked = await logins.check(name, form.get("password", ""), address)
    except EXPECTED as error:
        audit(request, name, status_of(error))
        return problem_page(
            request, f"The password cannot be checked: {sentence_of(error)}", status_of(error)
        )
    if checked is None:
        audit(request, name, 403)
        return HTMLResponse(render("login.html", {**context, "is_wrong": True}), 403)
    audit(request, name, 303)
    set_cookie(response, sessions.open(name, *checked), request, None)
    return response


async def logout(request: Request) -> Response:
    sessions: Sessions = request.app.state.sessions
    sessions.close(request.cookies.get(COOKIE))
    visitor = request.scope[VISITOR]
    audit(request, visitor.name if visitor is not None else "nobody", 303)
    response = RedirectResponse("/login", 303)
    response.delete_cookie(COOKIE)
    return response
