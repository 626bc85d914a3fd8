"""Who may come in, from where, and what nobody may do: token, same origin, names, read-only."""

import asyncio
import contextlib
import logging

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from headrace.web.guard import COOKIE, Guard, Secrets, session_of
from headrace.web.logins import Sessions
from headrace.web.options import WebOptions
from tests.web.conftest import NewWorld, World

TOKEN = "a-token-of-enough-length"
DELETE = "/api/v1/group/delete"


@pytest.fixture
def guarded(open_world: NewWorld) -> World:
    return open_world(token=TOKEN)


def test_every_answer_forbids_other_hosts_and_frames(world: World) -> None:
    for path in ("/", "/healthz", "/api/v1/overview", "/static/style.css", "/nowhere"):
        headers = world.http.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"


def test_pages_name_no_other_host(world: World) -> None:
    world.serve_orders()
    for path in ("/", "/groups", "/group?group=kitchen", "/topics", "/topic?topic=orders", "/dead-letters"):
        page = world.http.get(path)
        assert page.status_code == 200
        assert "http://" not in page.text.replace(world.web.url, "")
        assert "https://" not in page.text


def test_without_the_token_only_probes_and_static_files_are_open(guarded: World) -> None:
    anybody = httpx.Client(base_url=guarded.web.url)
    with anybody:
        assert anybody.get("/healthz").status_code == 200
        assert anybody.get("/readyz").status_code == 200
        assert anybody.get("/static/style.css").status_code == 200
        for path in ("/api/v1/overview", "/metrics", "/tail?topic=x", "/live/", "/api/v1/openapi.json"):
            assert anybody.get(path).status_code == 401, path
        assert anybody.get("/", headers={"accept": "text/html"}).headers["location"] == "/login?next=%2F"
        assert anybody.post(DELETE, json={"group": "g"}).status_code == 401


def test_the_token_opens_as_bearer_and_is_no_cookie_itself(guarded: World) -> None:
    good, bad = {"authorization": f"Bearer {TOKEN}"}, {"authorization": "Bearer nonsense"}
    assert guarded.http.get("/api/v1/overview", headers=good).status_code == 200
    assert guarded.http.get("/api/v1/overview", headers=bad).status_code == 401
    assert guarded.http.get("/api/v1/overview", headers={"cookie": f"{COOKIE}={TOKEN}"}).status_code == 401
    assert TOKEN not in session_of(TOKEN)


def test_the_token_in_the_address_becomes_a_cookie_and_leaves_the_address(guarded: World) -> None:
    answer = guarded.http.get(f"/group?group=a%20b&token={TOKEN}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/group?group=a+b")
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert guarded.http.get("/api/v1/overview").status_code == 200


def test_the_form_takes_the_token_and_goes_on_to_the_page(guarded: World) -> None:
    wrong = guarded.http.post("/login?next=/groups", data={"token": "guess"})
    assert (wrong.status_code, "not the token" in wrong.text) == (403, True)
    right = guarded.http.post("/login?next=/groups", data={"token": TOKEN})
    assert (right.status_code, right.headers["location"]) == (303, "/groups")
    assert guarded.http.get("/groups").status_code == 200


@pytest.mark.parametrize("elsewhere", ["https://evil.example", "//evil.example", "/\\evil.example"])
def test_the_form_never_leads_to_another_host(guarded: World, elsewhere: str) -> None:
    answer = guarded.http.post("/login", params={"next": elsewhere}, data={"token": TOKEN})
    assert answer.headers["location"] == "/"


def test_a_change_needs_the_secret_of_our_pages(world: World) -> None:
    assert world.http.post(DELETE, json={"group": "g"}).status_code == 403
    wrong = world.http.post(DELETE, json={"group": "g"}, headers={"x-csrf-token": "x"})
    assert (wrong.status_code, "x-csrf-token" in wrong.json()["error"]) == (403, True)
    assert world.post("/group/delete", group="g").status_code == 404


def test_the_bearer_token_needs_no_other_secret(guarded: World) -> None:
    answer = guarded.http.post(DELETE, json={"group": "g"}, headers={"authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://other.localhost"},
    ],
)
def test_a_change_from_another_site_is_refused_even_with_the_secret(
    world: World, headers: dict[str, str]
) -> None:
    secret = {"x-csrf-token": world.get("/session")["csrf_token"]}
    answer = world.http.post(DELETE, json={"group": "g"}, headers={**secret, **headers})
    assert (answer.status_code, "another site" in answer.json()["error"]) == (403, True)


def test_our_own_origin_may_change_things(world: World) -> None:
    secret = {"x-csrf-token": world.get("/session")["csrf_token"], "origin": world.web.url}
    assert world.http.post(DELETE, json={"group": "g"}, headers=secret).status_code == 404


def test_a_name_that_somebody_points_at_us_is_refused(world: World) -> None:
    answer = world.http.get("/api/v1/session", headers={"host": "evil.example"})
    assert (answer.status_code, "evil.example" in answer.json()["error"]) == (403, True)


def test_read_only_shows_everything_and_changes_nothing(open_world: NewWorld) -> None:
    world = open_world(is_read_only=True)
    world.serve_orders()
    assert world.get("/session")["is_read_only"]
    answer = world.post("/group/delete", group="kitchen")
    assert (answer.status_code, "read-only" in answer.json()["error"]) == (403, True)
    page = world.http.get("/group?group=kitchen").text
    assert "read-only" in page
    assert "data-open" not in page
    assert "share.delivery.count.limit" in page


def test_a_method_that_is_not_meant_is_refused(world: World) -> None:
    secret = {"x-csrf-token": world.get("/session")["csrf_token"]}
    assert world.http.post("/api/v1/overview", json={}, headers=secret).status_code == 405
    assert world.http.get(DELETE).status_code == 405


@pytest.mark.parametrize("host", ["localhost/static/", "localhost/login?", "localhost/login#", "x/healthz?"])
def test_the_host_header_does_not_change_what_is_asked_for(guarded: World, host: str) -> None:
    assert guarded.http.get("/api/v1/overview", headers={"host": host}).status_code == 401
    assert guarded.http.post(DELETE, json={"group": "g"}, headers={"host": host}).status_code == 401


@pytest.mark.parametrize("host", ["evil.example/localhost", "evil|example", "localhost:80:80", "[::1", ""])
def test_a_host_header_that_is_no_name_is_refused(world: World, host: str) -> None:
    assert world.http.get("/api/v1/session", headers={"host": host}).status_code in (400, 403)


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]", "[::1]:8080"])
def test_the_names_of_this_machine_are_served(world: World, host: str) -> None:
    assert world.http.get("/api/v1/session", headers={"host": host}).status_code == 200


def test_a_problem_before_the_login_shows_no_secret(guarded: World) -> None:
    answer = guarded.http.post("/login", content=b"x" * 100_000)
    assert (answer.status_code, "csrf-token" in answer.text) == (400, False)


@pytest.mark.parametrize("fails", [False, True], ids=["it ends well", "it fails"])
def test_an_action_is_in_the_log_before_its_response_is_sent(
    caplog: pytest.LogCaptureFixture, fails: bool
) -> None:
    options = WebOptions()
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if fails:
            raise ValueError("a bug")
        await Response(status_code=204)(scope, receive, send)

    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        seen.append(caplog.text)

    secrets = Secrets()
    headers = [(b"host", b"localhost"), (b"x-csrf-token", secrets.csrf_token.encode())]
    scope = {"type": "http", "method": "POST", "path": DELETE, "headers": headers, "client": ("::1", 1)}
    guard = Guard(app, options, secrets, Sessions(options))
    with caplog.at_level(logging.INFO, "headrace.audit"):
        with pytest.raises(ValueError, match="a bug") if fails else contextlib.nullcontext():
            asyncio.run(guard(scope, receive, send))
        seen.append(caplog.text)
    assert f"local from ::1: POST {DELETE}: {500 if fails else 204}" in seen[0]
    assert len(caplog.records) == 1


def test_a_path_neither_forges_nor_fills_the_log(guarded: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace.audit"), httpx.Client(base_url=guarded.web.url) as anybody:
        answer = anybody.post(f"/x%0Atoken from 10.0.0.1: POST {DELETE}: 200%0A%1b[2J{'a' * 20_000}")
    assert answer.status_code == 401
    (line,) = (record.getMessage() for record in caplog.records if record.name == "headrace.audit")
    assert line.startswith("nobody from 127.0.0.1: POST /x\\ntoken from")
    assert line.isprintable()
    assert len(line) < 300
