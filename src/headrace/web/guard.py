"""Stands before the dashboard: who may come in, and from where. Pure ASGI, so that streams pass through it untouched.

Theory of operation. Three dangers. (1) Strangers on the network: beyond loopback everybody needs the token, as
`Authorization: Bearer`, or once in a form or as `?token=`, which leaves a cookie that is derived from it. (2) Other
sites in the user's own browser: what changes something must come from our own pages, told by the browser's
Sec-Fetch-Site or Origin header and by a secret that only our pages (and /api/v1/session) show. Whoever sends the
bearer token is no browser that was tricked. (3) Names that point at us (DNS rebinding): a dashboard without a token
answers only to loopback names. Probes (/healthz, /readyz) and static files are open to all. Nothing is ever loaded
from another host: the Content-Security-Policy forbids it.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import MutableHeaders, QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.web.options import WebOptions, is_loopback

COOKIE = "headrace_session"
CSRF_HEADER = "x-csrf-token"
COOKIE_AGE_S = 30 * 86_400
OPEN = ("/healthz", "/readyz", "/login")
SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Secrets:
    """Made anew at each start."""

    csrf_token: str = field(default_factory=lambda: secrets.token_urlsafe(32))


def session_of(token: str) -> str:
    """What the cookie holds: it opens this dashboard and does not tell the token."""
    return hmac.new(token.encode(), b"headrace dashboard session", hashlib.sha256).hexdigest()


def set_cookie(response: Response, token: str) -> None:
    response.set_cookie(COOKIE, session_of(token), max_age=COOKIE_AGE_S, httponly=True, samesite="strict")


def same(given: str | None, wanted: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), wanted.encode())


class Guard:
    def __init__(self, app: ASGIApp, options: WebOptions, own: Secrets) -> None:
        self._app = app
        self._options = options
        self._own = own

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        request = Request(scope)
        refusal = self._refusal(request)
        await (refusal or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        path = request.url.path
        if self._options.token is None:
            if not is_loopback(request.url.hostname or ""):
                return _no(
                    403,
                    f"this dashboard does not go by the name {request.url.hostname!r}; "
                    "use localhost, or give it a token",
                )
        elif path not in OPEN and not path.startswith("/static/") and not self._has_token(request):
            return self._ask_for_token(request)
        if request.method in SAFE:
            return None
        return self._refuse_change(request)

    def _has_token(self, request: Request) -> bool:
        token = self._options.token or ""
        return same(_bearer(request), token) or same(request.cookies.get(COOKIE), session_of(token))

    def _ask_for_token(self, request: Request) -> Response:
        token = self._options.token or ""
        given = request.query_params.get("token")
        path = request.url.path
        if request.method == "GET" and same(given, token):
            rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
            response: Response = RedirectResponse(_local(path, rest), 303)
            set_cookie(response, token)
            return response
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if is_page and not path.startswith("/api/"):
            wanted = _local(path, QueryParams(request.url.query).multi_items())
            return RedirectResponse(_local("/login", [("next", wanted)]), 303)
        return _no(401, "a token is needed: send it as `Authorization: Bearer TOKEN`", bearer=True)

    def _refuse_change(self, request: Request) -> Response | None:
        if not _is_same_origin(request):
            return _no(403, "this request came from another site; changes are only taken from our own pages")
        if request.url.path == "/login":
            return None
        if self._options.is_read_only:
            return _no(403, "this dashboard is read-only; it was started with --read-only")
        if self._options.token is not None and same(_bearer(request), self._options.token):
            return None
        if not same(request.headers.get(CSRF_HEADER), self._own.csrf_token):
            return _no(
                403,
                f"the {CSRF_HEADER} header is missing or from before a restart; "
                "reload the page, or take it from /api/v1/session",
            )
        return None


def _bearer(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _is_same_origin(request: Request) -> bool:
    """What is no browser sends neither header; it cannot be tricked by a site, either."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("host")


def _local(path: str, query: list[tuple[str, str]]) -> str:
    return path + ("?" + urlencode(query) if query else "")


def _no(status: int, why: str, *, bearer: bool = False) -> Response:
    return JSONResponse({"error": why}, status, {"www-authenticate": "Bearer"} if bearer else None)
