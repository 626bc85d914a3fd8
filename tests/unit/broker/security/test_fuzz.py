"""Frames that nobody in their right mind would send, before and after the login: the broker lives, and stays small.

`HEADRACE_FUZZ_FRAMES=1000000` sends as many; without it there are enough for a first impression.
"""

import logging
import os
import random
import resource
import selectors
import socket
import struct
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from headrace import Broker
from headrace.broker.handlers import served_versions
from headrace.broker.security.sasl.connection import SaslConnection
from headrace.broker.settings.access_table import STANDARD_AUTHORIZER
from headrace.wire.apis import NAMES, RequestHeader, request_class, write_request_header
from headrace.wire.codec import write_message
from headrace.wire.message import Message
from headrace.wire.messages.sasl_authenticate_request import SaslAuthenticateRequest
from headrace.wire.messages.sasl_handshake_request import SaslHandshakeRequest
from tests.conformance.security.conftest import PASSWORD, PLAIN
from tests.conformance.security.test_logins import log_in
from tests.conformance.wire_client import WireClient
from tests.property.requests import Known, RequestMaker

FRAMES = int(os.environ.get("HEADRACE_FUZZ_FRAMES", "3000"))
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN,
    "connection.failed.authentication.delay.ms": 0,
    "auto.create.topics.enable": False,
    "connections.max.reauth.ms": 3_600_000,
}
CONNECTIONS = 50
"""At once."""
FRAMES_A_CONNECTION = 40
WRONG_LENGTHS = 0.05
"""Connections that claim another length than a frame has, for each other one."""
QUIET_S = 0.01
IDLE_TURNS = 5
GROWTH_MAX = 256 << 20
"""Bytes that the process may grow by. What one connection may hold is far less."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings=SETTINGS, users={"alice": PASSWORD}) as running:
        yield running


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    """A broker that allows alice nothing: every request goes through the rules of access."""
    with Broker(settings={**SETTINGS, "authorizer.class.name": STANDARD_AUTHORIZER}) as running:
        yield running


class Fuzzer:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._maker = RequestMaker(self.rng, Known(topic_ids=[bytes(16)]))

    def frame(self) -> bytes:
        """Mostly a request, often damaged; sometimes bytes of chance, sometimes a login's tokens."""
        kind = self.rng.random()
        if kind < 0.15:
            return self.rng.randbytes(self.rng.choice((0, 1, 7, 8, 40, 400)))
        api_key = self.rng.choice((17, 18, 36)) if kind < 0.55 else self.rng.choice(list(NAMES))
        low, high = served_versions(api_key) or (0, 5)
        version = self.rng.randint(low, high) if self.rng.random() < 0.95 else self.rng.randint(0, 20)
        frame = bytearray()
        try:
            request = self._maker.message(request_class(api_key), version)
            write_request_header(frame, RequestHeader(api_key, version, 1, "fuzz"))
            write_message(request, version, frame)
        except Exception:
            return self.rng.randbytes(20)
        return self._damaged(frame) if self.rng.random() < 0.6 else bytes(frame)

    def _damaged(self, frame: bytearray) -> bytes:
        for _ in range(self.rng.randint(1, 4)):
            position = self.rng.randrange(len(frame))
            match self.rng.randrange(4):
                case 0:
                    frame[position] = self.rng.randrange(256)
                case 1:
                    frame[position : position + 4] = self.rng.choice(
                        (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0")
                    )
                case 2:
                    del frame[position:]
                case 3:
                    frame += self.rng.randbytes(self.rng.randint(1, 50))
            frame = frame or bytearray(b"\0")
        return bytes(frame)

    def wrong_length(self) -> bytes:
        return struct.pack(">i", self.rng.choice((-1, 2**31 - 1, -(2**31), 600 << 10, 200 << 20)))


@dataclass
class Volley:
    """What one connection sends."""

    frames: list[bytes] = field(default_factory=list)
    last: bytes = b""
    """Does not have the length it claims, and is alone: the broker drops what comes in one piece with it."""

    def take_last(self) -> bytes:
        last, self.last = self.last, b""
        return last


class Bombardment:
    """Frames over many connections at once, each of which sends its frames without waiting for answers.

    A frame counts when the broker takes it up. Most connections soon end with a frame that is refused; the frames that
    were behind it go over another connection.
    """

    def __init__(
        self, broker: Broker, fuzzer: Fuzzer, *, knows: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        host, _, port = broker.bootstrap_servers.rpartition(":")
        self._broker = broker
        self._address = host, int(port)
        self._fuzzer = fuzzer
        self._login = LOGIN if knows else ()
        self._selector = selectors.DefaultSelector()
        self._taken: Counter[int] = Counter()
        """By the port of the client."""
        self._frames: deque[bytes] = deque()
        self.frames = 0
        self.connections = 0
        start = SaslConnection._start

        def counted(connection: SaslConnection, frame: bytes) -> None:
            self._taken[connection._transport.get_extra_info("peername")[1]] += 1
            start(connection, frame)

        monkeypatch.setattr(SaslConnection, "_start", counted)

    def send(self, frames: int) -> None:
        """A connection that the broker ends makes room for another one. Those that it leaves alone stay for a while."""
        while self.frames < frames:
            while len(self._selector.get_map()) < CONNECTIONS:
                self._open()
            ready = self._selector.select(QUIET_S)
            for key, _ in ready:
                self._take_answers(key.fileobj, key.data)
            if not ready and self._is_idle():  # all connections wait for records, or for the rest of a frame
                self._end_all()
            self._set_right()
        while not self._is_idle():
            pass
        self._end_all()

    def _is_idle(self) -> bool:
        """Whether the broker takes nothing up in so many turns of its loop as it needs to accept and to read."""
        before = self._taken.total()
        for _ in range(IDLE_TURNS):
            self._broker.call(lambda: None)
        return before == self._taken.total()

    def _set_right(self) -> None:
        """Frames alter settings, such as `max.connections`: the broker must not shut everybody out."""
        settings = self._broker.core.settings
        for is_cluster_wide in (True, False):
            if settings.dynamic(is_cluster_wide=is_cluster_wide):
                self._broker.call(partial(settings.replace_dynamic, {}, is_cluster_wide=is_cluster_wide))

    def _open(self) -> None:
        while len(self._frames) < FRAMES_A_CONNECTION:
            self._frames.append(self._fuzzer.frame())
        chance = self._fuzzer.rng
        volley = Volley()
        if chance.random() < WRONG_LENGTHS:
            volley.last = self._fuzzer.wrong_length() + self._frames.popleft()
        else:
            volley.frames = [self._frames.popleft() for _ in range(chance.randint(1, FRAMES_A_CONNECTION))]
        connection = socket.create_connection(self._address, 60)
        self._taken[connection.getsockname()[1]] = 0
        self._selector.register(connection, selectors.EVENT_READ, volley)
        self._send(connection, b"".join(size(frame) + frame for frame in (*self._login, *volley.frames)))
        if not self._login:
            self._send(connection, volley.take_last())

    def _take_answers(self, connection: Any, volley: Volley) -> None:
        try:
            is_open = bool(connection.recv(1 << 20))
        except ConnectionError:
            is_open = False
        if not is_open:
            self._end(connection, volley)
        elif self._taken[connection.getsockname()[1]] >= len(self._login):
            self._send(connection, volley.take_last())

    def _send(self, connection: Any, data: bytes) -> None:
        with suppress(ConnectionError):  # the broker has seen enough
            connection.sendall(data)

    def _end_all(self) -> None:
        for key in [*self._selector.get_map().values()]:
            self._end(key.fileobj, key.data)

    def _end(self, connection: Any, volley: Volley) -> None:
        taken = self._taken.pop(connection.getsockname()[1])
        if taken >= len(self._login):  # there was room for it
            taken -= len(self._login)
            self.connections += 1
        self.frames += taken
        self._frames.extendleft(reversed(volley.frames[taken:]))
        self._selector.unregister(connection)
        connection.close()


def size(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame))


def request_frame(request: Message, version: int) -> bytes:
    frame = bytearray()
    write_request_header(frame, RequestHeader(request.API_KEY, version, 1, "fuzz"))
    write_message(request, version, frame)
    return bytes(frame)


LOGIN = (
    request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1),
    request_frame(SaslAuthenticateRequest(auth_bytes=f"\0alice\0{PASSWORD}".encode()), 2),
)


def successful_logins(broker: Broker) -> float:
    metrics = broker.core.metrics
    return broker.call(
        lambda: metrics.counter("successful-authentication-total", listener="SASL_PLAINTEXT").value
    )


@pytest.mark.timeout(max(120, FRAMES // 100))
@pytest.mark.parametrize("kind", ["before the login", "after the login", "without permissions"])
def test_no_frame_ends_the_broker(
    kind: str,
    request: pytest.FixtureRequest,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.ERROR, "headrace")  # pytest would keep a line for every connection
    knows = kind != "before the login"
    broker: Broker = request.getfixturevalue("guarded" if kind == "without permissions" else "broker")
    bombardment = Bombardment(broker, Fuzzer(20261118 + knows), knows=knows, monkeypatch=monkeypatch)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    logins = successful_logins(broker)
    bombardment.send(FRAMES)
    if knows:
        assert successful_logins(broker) - logins == bombardment.connections
    with WireClient(broker.bootstrap_servers) as wire:
        assert log_in(wire).error_code == 0
        assert wire.ask("list_groups", 4).error_code == 0
    assert broker.failure is None
    assert [record.getMessage() for record in caplog.records] == []
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(f"{bombardment.frames} frames over {bombardment.connections} connections, {grown >> 20} MiB")
    assert grown < GROWTH_MAX


def test_half_a_frame_is_dropped_with_its_connection(broker: Broker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(struct.pack(">i", 500 << 10) + b"x" * 1000)
    with WireClient(broker.bootstrap_servers) as wire:
        assert log_in(wire).error_code == 0
