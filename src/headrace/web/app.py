"""The dashboard as an ASGI application: routes, the guard before them, and what starts and stops with it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from headrace.client.settings import ClientSettings
from headrace.web import api, pages
from headrace.web.embedded import EmbeddedView
from headrace.web.exposition import (
    CONTENT_TYPE,
    broker_text,
    overview_families,
    process_families,
    render,
    slow_families,
)
from headrace.web.guard import Guard, Secrets
from headrace.web.logins import Logins, Sessions, check_can_verify, verify_by_logging_in
from headrace.web.openapi import describe
from headrace.web.options import WebOptions
from headrace.web.rendering import FOLDER
from headrace.web.schedules import OpenSchedule
from headrace.web.site import Site
from headrace.web.source import open_source
from headrace.web.tail import tail
from headrace.wire.errors import KafkaError

UNSEEING = ("/healthz", "/readyz", "/static/")
PROBE_S_MAX = 5.0


def create_app(
    settings: ClientSettings,
    options: WebOptions,
    detail: EmbeddedView | None = None,
    open_schedule: OpenSchedule | None = None,
) -> Starlette:
    """`settings` say how to reach the cluster; `detail` is the embedded broker's own view, where it is in here.

    Without `open_schedule`, nothing is said of scheduled records.
    """
    own = Secrets()
    sessions = Sessions(options)
    if options.has_logins and detail is None:
        check_can_verify(settings)
    verify = detail.verify if detail is not None else verify_by_logging_in(settings)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with open_source(settings, detail, open_schedule) as source:
            site = app.state.site = Site(source, options, own.csrf_token)
            await site.sampler.sample()
            sampling = asyncio.create_task(site.sampler.run())
            try:
                yield
            finally:
                site.stopping.set()
                sampling.cancel()
                await asyncio.gather(sampling, return_exceptions=True)
                await site.slow.close()

    app = Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route(api.PREFIX + "/openapi.json", openapi),
            Route("/tail", tail),
            *api.routes(),
            *pages.routes(),
            Mount("/static", StaticFiles(directory=FOLDER / "static")),
        ],
        middleware=[Middleware(Guard, options=options, own=own, sessions=sessions), Middleware(Awake)],
        exception_handlers={404: not_found, 405: not_found, 500: failed},
        lifespan=lifespan,
    )
    app.state.options = options
    app.state.sessions = sessions
    app.state.logins = Logins(options, verify)
    return app


class Awake:
    """Whoever wants to see something finds the sampler at work. Probes and files do not wake it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith(UNSEEING):
            await scope["app"].state.site.sampler.awake()
        await self._app(scope, receive, send)


async def healthz(request: Request) -> Response:
    """Is the process alive? An embedded broker that has failed is not."""
    site: Site = request.app.state.site
    failure = site.source.detail.failure if site.source.detail is not None else None
    if failure is not None:
        return PlainTextResponse(f"the broker has failed: {failure}\n", 503)
    return PlainTextResponse("ok\n")


async def readyz(request: Request) -> Response:
    """Can it serve? Only while the cluster answers. The sampler may be at rest, so it is asked here."""
    site: Site = request.app.state.site
    overview = site.sampler.overview
    if overview.sampled_at is None or overview.error is not None:
        return PlainTextResponse(f"not ready: {overview.error or 'the cluster was not seen yet'}\n", 503)
    try:
        async with asyncio.timeout(PROBE_S_MAX):
            await site.source.admin.cluster()
    except (KafkaError, OSError) as error:
        return PlainTextResponse(f"not ready: {error}\n", 503)
    return PlainTextResponse("ready\n")


async def metrics(request: Request) -> Response:
    site: Site = request.app.state.site
    families = [*overview_families(site.overview), *slow_families(await site.slow.facts(), time.time())]
    families += process_families()
    text = render(families)
    if site.source.detail is not None:
        text += broker_text(await site.source.detail.samples())
    return Response(text, media_type=CONTENT_TYPE)


async def openapi(request: Request) -> Response:
    return JSONResponse(describe())


async def not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    why = (
        f"There is nothing at {request.url.path}." if status == 404 else f"{request.method} is not for this."
    )
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": why}, status)
    return pages.problem_page(request, why, status)


async def failed(request: Request, error: Exception) -> Response:
    why = "The dashboard failed on this request; its log says more."
    if request.url.path.startswith("/api/"):
        return JSONResponse({"error": why}, 500)
    return pages.problem_page(request, why, 500)
