"""Users of the cluster log in: roles, sessions, wrong passwords, the audit lines, HTTPS and the token of /metrics."""

import asyncio
import logging
import socket
import ssl
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import httpx
import pytest

from headrace import Broker
from headrace.broker.security.scram import HASHES, credential_of_password
from headrace.broker.security.users import both_mechanisms
from headrace.client.admin.aio import AsyncAdmin
from headrace.client.settings import ClientSettings
from headrace.web.embedded import EmbeddedView
from headrace.web.guard import COOKIE
from headrace.web.logins import (
    AT_ONCE_MAX,
    CHECKED_S,
    FAILURES_MAX,
    IsValid,
    Logins,
    Role,
    Sessions,
    always,
    verify_by_logging_in,
)
from headrace.web.options import WebOptions
from headrace.web.server import WebServer
from headrace.wire.security import SaslMechanism
from tests.conformance.steps import new_topic
from tests.unit.broker.security.certificates import TestAuthority
from tests.web.conftest import KITCHEN, ORDERS, NewWorld, World

USERS = {"alice": "alices-secret", "bob": "bobs-secret", "eve": "eves-secret"}
DELETE = "/api/v1/group/delete"


@pytest.fixture
def world(open_world: NewWorld) -> World:
    world = open_world(operators=frozenset({"alice"}), viewers=frozenset({"bob"}))

    world.broker.call(lambda: world.broker.core.users.add_missing(both_mechanisms(USERS)))
    return world


def log_in(world: World, name: str, password: str | None = None) -> httpx.Response:
    form = {"name": name, "password": USERS.get(name, "") if password is None else password}
    return world.http.post("/login?next=/groups", data=form)


def csrf(world: World) -> dict[str, str]:
    return {"x-csrf-token": world.http.get("/api/v1/session").json()["csrf_token"]}


def test_nobody_sees_anything_before_logging_in(world: World) -> None:
    assert world.http.get("/api/v1/overview").status_code == 401
    assert world.http.get("/metrics").status_code == 401
    page = world.http.get("/groups", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["location"]) == (303, "/login?next=%2Fgroups")
    form = world.http.get("/login")
    assert 'name="password"' in form.text
    assert world.http.post(DELETE, json={"group": "g"}).status_code == 401


def test_an_operator_may_change_things_and_a_viewer_may_look(world: World) -> None:
    answer = log_in(world, "alice")
    assert (answer.status_code, answer.headers["location"]) == (303, "/groups")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert world.http.post(DELETE, json={"group": "g"}).status_code == 403, "the csrf token is still needed"
    assert world.http.post(DELETE, json={"group": "g"}, headers=csrf(world)).status_code == 404
    assert not world.get("/session")["is_read_only"]
    world.http.cookies.clear()
    log_in(world, "bob")
    assert world.http.get("/groups").status_code == 200
    for path in ("session", "overview"):
        assert world.get(f"/{path}")["is_read_only"], "it is for a viewer"
    refused = world.http.post(DELETE, json={"group": "g"}, headers=csrf(world))
    assert refused.status_code == 403
    assert "bob may view this dashboard but not change anything" in refused.json()["error"]


@pytest.mark.parametrize(
    ("name", "password"),
    [("alice", "bobs-secret"), ("alice", ""), ("nobody", "x"), ("eve", "eves-secret"), ("", "x")],
)
def test_a_wrong_password_and_a_user_without_a_role_are_refused_alike(
    world: World, name: str, password: str
) -> None:
    answer = log_in(world, name, password)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert "The name or the password is wrong" in answer.text


def test_a_name_neither_forges_nor_fills_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headrace.audit"):
        log_in(world, f"alice from 10.0.0.1: POST /login: 303\n{chr(1) * 20_000}", "x")
    (line,) = (record.getMessage() for record in caplog.records if record.name == "headrace.audit")
    assert line.isprintable()
    assert len(line) < 1000


def test_whoever_guesses_has_to_wait(world: World) -> None:
    for _ in range(FAILURES_MAX):
        assert log_in(world, "alice", "guess").status_code == 403
    assert log_in(world, "alice").status_code == 429


def test_guesses_that_come_together_have_to_wait_as_well() -> None:
    tried: list[str] = []

    async def wrong(name: str, password: str) -> None:
        tried.append(password)
        await asyncio.sleep(0)

    async def guess() -> None:
        logins = Logins(WebOptions(operators=frozenset({"alice"})), wrong, lambda: 0.0)
        await asyncio.gather(*(logins.check("alice", str(number), "::1") for number in range(100)))

    asyncio.run(guess())
    assert FAILURES_MAX <= len(tried) < FAILURES_MAX + AT_ONCE_MAX


@pytest.mark.parametrize(
    ("guessers", "is_one"),
    [
        (["2001:db8::1", "2001:db8::2:3"], True),
        (["2001:db8::1", "2001:db8:0:1::1"], False),
        (["::ffff:192.0.2.1", "192.0.2.1"], True),
        (["192.0.2.1", "192.0.2.2"], False),
        (["fe80::1%eth0", "fe80::2"], True),
    ],
)
def test_addresses_of_one_ipv6_network_wait_together(guessers: list[str], is_one: bool) -> None:
    async def wrong(name: str, password: str) -> None:
        return None

    async def guess() -> bool:
        logins = Logins(WebOptions(operators=frozenset({"alice"})), wrong, lambda: 0.0)
        for _ in range(FAILURES_MAX):
            await logins.check("alice", "guess", guessers[0])
        return logins.must_wait(guessers[1])

    assert asyncio.run(guess()) is is_one


def test_logging_out_is_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    log_in(world, "bob")
    with caplog.at_level(logging.INFO, "headrace.audit"):
        world.http.post("/logout")
    assert "bob from 127.0.0.1: POST /logout: 303" in caplog.messages


def test_logging_out_ends_the_session(world: World) -> None:
    log_in(world, "bob")
    cookie = world.http.cookies[COOKIE]
    assert world.http.post("/logout").status_code == 303
    assert world.http.get("/api/v1/overview", headers={"cookie": f"{COOKIE}={cookie}"}).status_code == 401


@pytest.mark.parametrize("path", ["/live/", "/tail?topic=orders"])
def test_logging_out_ends_what_is_being_watched(world: World, path: str) -> None:
    new_topic(world.wire, "orders")
    log_in(world, "bob")
    with world.http.stream("GET", path) as watched:
        lines = watched.iter_lines()
        assert next(lines) == "retry: 2000"
        assert world.http.post("/logout").status_code == 303
        assert [*lines][-1] == ""  # it comes to its end


def delete_user(world: World, name: str) -> None:
    users = world.broker.core.users
    for mechanism in HASHES:
        world.broker.call(partial(users.set, name, mechanism, None))


def change_password(world: World, name: str) -> None:
    users = world.broker.core.users
    credential = credential_of_password(SaslMechanism.SCRAM_SHA_512, "another secret")
    world.broker.call(lambda: users.set(name, SaslMechanism.SCRAM_SHA_512, credential))


@pytest.mark.parametrize("alter", [delete_user, change_password])
def test_a_session_ends_when_its_user_is_deleted_or_gets_another_password(
    world: World, alter: Callable[[World, str], None]
) -> None:
    log_in(world, "alice")
    alter(world, "bob")
    assert world.http.get("/api/v1/overview").status_code == 200, "that was another user"
    alter(world, "alice")
    assert world.http.get("/api/v1/overview").status_code == 401
    assert world.http.get("/api/v1/overview").status_code == 401, "and stays so"


@pytest.mark.parametrize("path", ["/live/", "/tail?topic=orders"])
def test_what_a_deleted_user_watches_comes_to_its_end(world: World, path: str) -> None:
    new_topic(world.wire, "orders")
    log_in(world, "bob")
    with world.http.stream("GET", path) as watched:
        lines = watched.iter_lines()
        assert next(lines) == "retry: 2000"
        delete_user(world, "bob")
        assert [*lines][-1] == ""


def test_a_password_that_changes_while_it_is_checked_opens_no_session(world: World) -> None:
    verify = EmbeddedView(world.broker).verify

    async def log_in_late() -> tuple[bool, bool]:
        is_valid = await verify("bob", USERS["bob"])
        assert is_valid is not None
        before = await is_valid()
        await asyncio.to_thread(change_password, world, "bob")
        return before, await is_valid()

    assert asyncio.run(log_in_late()) == (True, False)


@pytest.mark.parametrize(
    ("trusted", "address"),
    [((), "127.0.0.1"), (("10.0.0.0/8",), "127.0.0.1"), (("127.0.0.1",), "203.0.113.9")],
)
def test_only_a_trusted_proxy_may_say_where_a_request_comes_from(
    open_world: NewWorld, caplog: pytest.LogCaptureFixture, trusted: tuple[str, ...], address: str
) -> None:
    world = open_world(trusted_proxies=trusted)
    with caplog.at_level(logging.INFO, "headrace.audit"):
        headers = {**csrf(world), "x-forwarded-for": "203.0.113.9"}
        world.http.post(DELETE, json={"group": "g"}, headers=headers)
    assert f"from {address}: POST" in caplog.text


def test_a_forged_address_does_not_get_around_the_wait(world: World) -> None:
    for number in range(FAILURES_MAX):
        form = {"name": "alice", "password": "guess"}
        world.http.post("/login", data=form, headers={"x-forwarded-for": f"203.0.113.{number}"})
    assert log_in(world, "alice").status_code == 429


def test_a_trusted_proxy_that_is_no_address_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--trusted-proxy proxy\.local is neither an address nor a network"):
        WebOptions(trusted_proxies=("proxy.local",))


def test_a_form_of_another_site_does_not_log_in(world: World) -> None:
    form = {"name": "bob", "password": USERS["bob"]}
    assert world.http.post("/login", data=form, headers={"origin": "http://evil"}).status_code == 403


def test_every_action_is_in_the_log_with_who_and_from_where(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "headrace.audit"):
        log_in(world, "alice", "not-alices-secret")
        log_in(world, "alice")
        world.http.post(DELETE, json={"group": "kitchen"}, headers=csrf(world))
    lines = [record.getMessage() for record in caplog.records if record.name == "headrace.audit"]
    assert lines == [
        "alice from 127.0.0.1: POST /login: 403",
        "alice from 127.0.0.1: POST /login: 303",
        f'alice from 127.0.0.1: POST {DELETE} {{"group":"kitchen"}}: 404',
    ]
    assert not any("secret" in line for line in lines)


def test_a_session_ends_when_it_is_not_used() -> None:
    now = 0.0
    sessions = Sessions(WebOptions(operators=frozenset({"alice"}), session_s=60), lambda: now)
    secret = sessions.open("alice", Role.OPERATOR)
    for later in (50.0, 100.0, 150.0):
        now = later
        assert asyncio.run(sessions.find(secret)) is not None
    now = 211.0
    assert asyncio.run(sessions.find(secret)) is None


@pytest.mark.parametrize("path", ["/live/topics", "/tail?topic=orders", "/api/v1/charts"])
def test_a_page_that_updates_itself_does_not_keep_its_user_logged_in(open_world: NewWorld, path: str) -> None:
    world = open_world(viewers=frozenset({"bob"}), session_s=1.0)
    world.broker.call(lambda: world.broker.core.users.add_missing(both_mechanisms(USERS)))
    new_topic(world.wire, "orders")
    log_in(world, "bob")
    while (answer := _watch(world, path)) == 200:
        pass
    assert answer == 401


def _watch(world: World, path: str) -> int:
    """The status of a page that is watched until it ends."""
    with world.http.stream("GET", path) as watched:
        watched.read()
        return watched.status_code


async def _right(name: str, password: str) -> IsValid:
    return always


@pytest.mark.parametrize(("name", "role"), [("alice", Role.OPERATOR), ("anybody", Role.VIEWER)])
def test_a_star_stands_for_every_user(name: str, role: Role) -> None:
    options = WebOptions(operators=frozenset({"alice"}), viewers=frozenset({"*"}))
    assert asyncio.run(Logins(options, _right).check(name, "x", "::1")) == (role, always)


def test_passwords_are_not_sent_over_the_network_unencrypted() -> None:
    with pytest.raises(ValueError, match="unencrypted"):
        WebOptions(host="0.0.0.0", viewers=frozenset({"*"}))


def test_metrics_have_a_token_of_their_own(open_world: NewWorld) -> None:
    world = open_world(metrics_token="only-for-prometheus", token="a-token-of-enough-length")
    scraper = {"authorization": "Bearer only-for-prometheus"}
    assert world.http.get("/metrics").status_code == 401
    assert world.http.get("/metrics", headers=scraper).status_code == 200
    assert world.http.get("/api/v1/overview", headers=scraper).status_code == 401
    other = {"authorization": "Bearer a-token-of-enough-length"}
    assert world.http.get("/metrics", headers=other).status_code == 200


def test_metrics_can_need_a_token_where_the_pages_need_none(open_world: NewWorld) -> None:
    world = open_world(metrics_token="only-for-prometheus")
    assert world.http.get("/metrics").status_code == 401
    assert world.http.get("/api/v1/overview").status_code == 200


SASL = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}


def client_settings(broker: Broker) -> ClientSettings:
    return ClientSettings.parse(
        bootstrap_servers=broker.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_username="alice",
        sasl_password=USERS["alice"],
        default_api_timeout_ms=3000,
    )


def test_without_the_broker_in_the_process_a_password_is_checked_again_after_a_time() -> None:
    now = 0.0

    async def look(broker: Broker) -> list[bool]:
        nonlocal now
        is_valid = await verify_by_logging_in(client_settings(broker), lambda: now)("bob", USERS["bob"])
        assert is_valid is not None
        seen = [await is_valid()]
        async with AsyncAdmin(client_settings(broker)) as admin:
            await admin.delete_user("bob")
        seen.append(await is_valid())
        now += CHECKED_S
        return [*seen, await is_valid(), await is_valid()]

    with Broker(settings=SASL, users=USERS) as broker:
        assert asyncio.run(look(broker)) == [True, True, False, False]


def test_a_cluster_that_is_gone_ends_no_session() -> None:
    now = 0.0

    async def look() -> bool:
        nonlocal now
        with Broker(settings=SASL, users=USERS) as broker:
            is_valid = await verify_by_logging_in(client_settings(broker), lambda: now)("bob", USERS["bob"])
        assert is_valid is not None
        now += CHECKED_S
        return await is_valid()

    assert asyncio.run(look())


def test_a_login_while_the_cluster_is_gone_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with ExitStack() as closing:
        with Broker(settings=SASL, users=USERS) as broker:
            web = WebServer(client_settings(broker), WebOptions(viewers=frozenset({"*"})))
            closing.enter_context(web)
        http = closing.enter_context(httpx.Client(base_url=web.url, timeout=30))
        answer = http.post("/login", data={"name": "bob", "password": USERS["bob"]})
        assert answer.status_code == 503
        assert "The password cannot be checked" in answer.text
        assert "no broker could be reached" in answer.text
    assert not [line for line in caplog.records if line.exc_info]


@pytest.fixture
def remote() -> Iterator[httpx.Client]:
    """A dashboard that only reaches the cluster as a client does."""
    with ExitStack() as closing:
        broker = closing.enter_context(Broker(settings=SASL, users=USERS))
        web = WebServer(client_settings(broker), WebOptions(viewers=frozenset({"*"}), sample_s=0.2))
        closing.enter_context(web)
        yield closing.enter_context(httpx.Client(base_url=web.url, timeout=30))


def test_without_the_broker_in_the_process_passwords_are_checked_by_logging_in_to_it(
    remote: httpx.Client,
) -> None:
    assert remote.post("/login", data={"name": "bob", "password": "wrong"}).status_code == 403
    assert remote.post("/login", data={"name": "bob", "password": USERS["bob"]}).status_code == 303
    assert remote.get("/api/v1/overview").status_code == 200


@pytest.mark.parametrize(
    "login",
    [
        {},
        {"security_protocol": "SSL"},
        {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "OAUTHBEARER",
            "sasl_oauthbearer_token_provider": "mine:token",
        },
    ],
    ids=["plain", "tls", "token"],
)
def test_a_login_that_does_not_use_the_visitors_password_checks_none(login: dict[str, str]) -> None:
    settings = ClientSettings.parse(bootstrap_servers="localhost:1", **login)
    with pytest.raises(ValueError, match="PLAIN or SCRAM"):
        WebServer(settings, WebOptions(operators=frozenset({"*"})))


def test_it_speaks_https(open_world: NewWorld, tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)
    world = open_world(certificate=authority.keystore(), token="a-token-of-enough-length")
    assert world.web.url.startswith("https://")
    trusting = ssl.create_default_context(cafile=str(authority.ca))
    with httpx.Client(base_url=world.web.url.replace("127.0.0.1", "localhost"), verify=trusting) as http:
        assert http.get("/healthz").text == "ok\n"
        answer = http.get("/?token=a-token-of-enough-length")
        assert "secure" in answer.headers["set-cookie"].lower()


def test_a_browser_that_speaks_no_version_of_tls_in_common_is_told(
    open_world: NewWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = TestAuthority(tmp_path)
    world = open_world(certificate=authority.keystore(), token="a-token-of-enough-length")
    old = ssl.create_default_context(cafile=str(authority.ca))
    old.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    address = ("127.0.0.1", httpx.URL(world.web.url).port or 0)
    with (
        socket.create_connection(address, 30) as plain,
        pytest.raises(ssl.SSLError, match="ALERT_PROTOCOL_VERSION"),
    ):
        old.wrap_socket(plain, server_hostname="localhost")


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("nonsense")
    settings = ClientSettings.parse(bootstrap_servers="localhost:1")
    with pytest.raises(ValueError, match=r"cannot use the certificate .*wrong\.pem"):
        WebServer(settings, WebOptions(certificate=wrong)).start()


def test_a_viewer_is_not_offered_to_release_a_record(world: World) -> None:
    log_in(world, "alice")
    world.serve_orders()
    held = {"group": KITCHEN, "topic": ORDERS, "partition": 0, "offset": 1}
    assert world.get("/record", **held)["may_release"]
    assert "Release…" in world.http.get("/record", params=held).text
    world.http.cookies.clear()
    log_in(world, "bob")
    assert not world.get("/record", **held)["may_release"]
    assert "Release…" not in world.http.get("/record", params=held).text
