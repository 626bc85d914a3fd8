"""Connections that nobody has logged in on: they are few, they end, and a request's head is small."""

import logging
import socket
from pathlib import Path

import pytest

from headrace.web import http_limits
from tests.conformance.steps import wait_for
from tests.unit.broker.security.certificates import TestAuthority
from tests.web.conftest import NewWorld, World


def connect(world: World) -> socket.socket:
    return socket.create_connection((world.http.base_url.host, world.http.base_url.port or 0), timeout=60)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_a_connection_beyond_the_limit_is_closed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "CONNECTIONS_MAX", 2)
    world.http.close()
    with connect(world), connect(world), connect(world) as third:
        assert is_closed(third)

    def is_answered() -> bool:
        with connect(world) as again:
            again.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            return not is_closed(again)

    assert wait_for(is_answered)


@pytest.fixture
def https(open_world: NewWorld, tmp_path: Path) -> World:
    return open_world(certificate=TestAuthority(tmp_path).keystore())


def test_a_connection_counts_from_before_its_tls_handshake(
    https: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without this, strangers who never begin it took all file descriptors, the broker's too."""
    monkeypatch.setattr(http_limits, "CONNECTIONS_MAX", 2)
    with connect(https), connect(https), connect(https) as third:
        assert is_closed(third)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\n\r\n"])
def test_a_handshake_that_is_none_or_does_not_end_is_cut_off(
    https: World, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_limits, "HANDSHAKE_S", 0.05)
    with connect(https) as stuck:
        stuck.sendall(sent)
        while not is_closed(stuck):
            pass


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET"])
def test_a_connection_without_a_whole_request_ends(
    world: World, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(http_limits, "REQUEST_S", 0.05)
    with connect(world) as slow:
        slow.sendall(sent)
        while not is_closed(slow):
            pass


PART_OF_A_LOGIN = b"POST /login HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\ntoken=x"


def test_a_login_whose_body_does_not_come_ends(open_world: NewWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "REQUEST_S", 0.05)
    with connect(open_world(token="a-secret-of-the-dashboard")) as slow:
        slow.sendall(PART_OF_A_LOGIN)
        assert is_closed(slow)


def test_who_leaves_in_the_middle_of_a_request_is_not_an_error(
    open_world: NewWorld, caplog: pytest.LogCaptureFixture
) -> None:
    world = open_world(token="a-secret-of-the-dashboard")
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(caplog.handler)
    try:
        with connect(world) as leaving:
            leaving.sendall(PART_OF_A_LOGIN)
        assert world.http.get("/healthz").text == "ok\n"
        world.web.stop()  # waits for requests under way
    finally:
        logger.removeHandler(caplog.handler)
    assert [record for record in caplog.records if record.name.startswith("uvicorn")] == []


def test_a_page_that_is_watched_does_not_end(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "REQUEST_S", 0.05)
    with world.http.stream("GET", "/live/") as watched:
        pulses = 0
        for line in watched.iter_lines():
            pulses += line == "event: pulse"
            if pulses == 3:
                break
    assert pulses == 3


def test_a_head_without_an_end_is_refused(world: World) -> None:
    with connect(world) as large:
        large.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        try:
            for number in range(200):
                large.sendall(b"x-%d: %s\r\n" % (number, b"x" * 1000))
            assert large.recv(100).startswith(b"HTTP/1.1 400")
        except (ConnectionResetError, BrokenPipeError):
            pass
        while not is_closed(large):
            pass
