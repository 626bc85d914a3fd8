"""Stands before the dashboard: who may come in, and from where. Pure ASGI, so that streams pass through it untouched.

Theory of operation. Three dangers. (1) Strangers on the network: beyond loopback everybody needs the token, as
`Authorization: Bearer`, or once in a form or as `?token=`, which leaves a cookie that is derived from it; or logs in
as a user of the cluster (logins.py), and only operators change anything. Each change is in the log, with who made it
and from where (`headrace.audit`). (2) Other
sites in the user's own browser: what changes something must come from our own pages, told by the browser's
Sec-Fetch-Site or Origin header and by a secret that only our pages (and /api/v1/session) show. Whoever sends the
bearer token is no browser that was tricked. (3) Names that point at us (DNS rebinding): a dashboard without a token
answers only to loopback names. Probes (/healthz, /readyz) and static files are open to all. Nothing is ever loaded
from another host: the Content-Security-Policy forbids it.
"""

import hashlib
import hmac
import logging
import re
import secrets
from dataclasses import dataclass, field
from urllib.parse import urlencode, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.base.text import printable
from headrace.web.logins import Role, Sessions, Visitor
from headrace.web.options import WebOptions, is_loopback

logger = logging.getLogger("headrace.audit")

COOKIE = "headrace_session"
VISITOR = "headrace.visitor"
"""Where in a request's scope its Visitor is."""
CSRF_HEADER = "x-csrf-token"
AUDITED_BYTES = 500
"""Of a request that changes something, in its line of the log."""
AUDITED_CHARACTERS = 200
"""Of its path, and of the name of the user. Strangers choose both, and must neither forge nor fill the log."""
COOKIE_AGE_S = 30 * 86_400
OPEN = ("/healthz", "/readyz", "/login", "/logout")
SAFE = ("GET", "HEAD", "OPTIONS")
BY_THEMSELVES = ("/live/", "/tail", "/api/v1/charts")
"""What open pages ask for again and again, whether or not somebody looks at them."""
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(?::\d*)?")
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


def set_cookie(response: Response, secret: str, request: Request, age_s: int | None = COOKIE_AGE_S) -> None:
    """None: until the browser is closed."""
    is_secure = request.url.scheme == "https"
    response.set_cookie(COOKIE, secret, max_age=age_s, httponly=True, samesite="strict", secure=is_secure)


def audit(request: Request, name: str, status: int, said: str = "") -> None:
    """One line for each action: who, from where, what, and what became of it."""
    address = request.client.host if request.client is not None else "?"
    logger.info(
        "%s from %s: %s %s%s: %d",
        printable(name[:AUDITED_CHARACTERS]),
        address,
        request.method,
        printable(request.scope["path"][:AUDITED_CHARACTERS]),
        f" {said}" if said else "",
        status,
    )


class _Body:
    """Passes a request's body on, and keeps its beginning for the audit line."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._kept = bytearray()

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request" and len(self._kept) < AUDITED_BYTES:
            self._kept += message.get("body", b"")[: AUDITED_BYTES - len(self._kept)]
        return message

    def text(self) -> str:
        return printable(self._kept.decode(errors="replace"))


def same(given: str | None, wanted: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode(), wanted.encode())


def may_only_look(request: Request) -> bool:
    """Whether nothing can be changed here, or not by the one who asks."""
    options: WebOptions = request.app.state.options
    visitor: Visitor | None = request.scope.get(VISITOR)
    return options.is_read_only or visitor is None or visitor.role is not Role.OPERATOR


class Guard:
    def __init__(self, app: ASGIApp, options: WebOptions, own: Secrets, sessions: Sessions) -> None:
        self._app = app
        self._options = options
        self._own = own
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        request = Request(scope)
        visitor = scope[VISITOR] = await self._visitor(request)
        body = _Body(receive)
        is_action = request.method not in SAFE and scope["path"] not in ("/login", "/logout")
        is_audited = False

        def audit_once(status: int) -> None:
            nonlocal is_audited
            if is_action and not is_audited:
                is_audited = True
                audit(request, visitor.name if visitor else "nobody", status, body.text())

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                audit_once(message["status"])  # before it is sent: whoever has the response finds the line
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(request, visitor)
        try:
            await (refusal or self._app)(scope, body.receive, send_with_headers)
        except ClientDisconnect:
            audit_once(499)  # it left before its request was complete, and there is nobody to answer
        except Exception:
            audit_once(500)  # which Starlette answers
            raise

    async def _visitor(self, request: Request) -> Visitor | None:
        """Who it is; None for one who may not come in."""
        token = self._options.token
        if token is not None and same(_bearer(request), token):
            return Visitor("token", Role.OPERATOR)
        if self._options.has_logins:
            is_use = not request.scope["path"].startswith(BY_THEMSELVES)
            return await self._sessions.find(request.cookies.get(COOKIE), is_use=is_use)
        if token is not None:
            return Visitor("token", Role.OPERATOR) if self._has_token(request) else None
        return Visitor("local", Role.OPERATOR)

    def _refusal(self, request: Request, visitor: Visitor | None) -> Response | None:
        path = request.scope["path"]  # as it is routed: `request.url` is made of the Host header, too
        is_named = self._options.token is not None or self._options.has_logins
        host = _host(request)
        if not is_named and not is_loopback(host):
            return _no(
                403,
                f"the host name {host!r} is not accepted; use localhost, or start the dashboard with a token",
            )
        if path == "/metrics" and self._options.metrics_token is not None:
            return self._refuse_metrics(request, visitor if is_named else None)
        if visitor is None and path not in OPEN and not path.startswith("/static/"):
            return self._ask_for_token(request)
        if request.method in SAFE:
            return None
        return self._refuse_change(request, visitor)

    def _refuse_metrics(self, request: Request, visitor: Visitor | None) -> Response | None:
        if visitor is not None or same(_bearer(request), self._options.metrics_token or ""):
            return None
        return _no(401, "/metrics needs its token: send it as `Authorization: Bearer TOKEN`", bearer=True)

    def _has_token(self, request: Request) -> bool:
        token = self._options.token or ""
        return same(_bearer(request), token) or same(request.cookies.get(COOKIE), session_of(token))

    def _ask_for_token(self, request: Request) -> Response:
        token = self._options.token or ""
        given = request.query_params.get("token")
        path = request.scope["path"]
        if request.method == "GET" and token and not self._options.has_logins and same(given, token):
            rest = [(name, value) for name, value in request.query_params.multi_items() if name != "token"]
            response: Response = RedirectResponse(_local(path, rest), 303)
            set_cookie(response, session_of(token), request)
            return response
        is_page = request.method == "GET" and "text/html" in request.headers.get("accept", "")
        if is_page and not path.startswith("/api/"):
            wanted = _local(path, request.query_params.multi_items())
            return RedirectResponse(_local("/login", [("next", wanted)]), 303)
        return _no(401, "a token is needed: send it as `Authorization: Bearer TOKEN`", bearer=True)

    def _refuse_change(self, request: Request, visitor: Visitor | None) -> Response | None:
        if not _is_same_origin(request):
            return _no(403, "this request came from another site; changes are only taken from our own pages")
        if request.scope["path"] in ("/login", "/logout"):
            return None
        if visitor is None or visitor.role is not Role.OPERATOR:
            name = visitor.name if visitor is not None else "nobody"
            return _no(
                403,
                f"{name} may view this dashboard but not change anything; that takes an operator (--operator)",
            )
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


def _host(request: Request) -> str:
    """The name in the Host header, as it came. What sends none is no browser, and cannot be tricked."""
    found = _HOST.fullmatch(request.headers.get("host", "localhost"))
    return found[1] if found else ""


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
