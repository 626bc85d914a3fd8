"""Frames that nobody in their right mind would send, before and after the login: the broker lives, and stays small.

`HEADRACE_FUZZ_FRAMES=1000000` sends as many; without it there are enough for a first impression.
"""

import logging
import os
import random
import resource
import socket
import struct
from collections.abc import Iterator

import pytest

from headrace import Broker
from headrace.broker.handlers import served_versions
from headrace.broker.settings.access_table import STANDARD_AUTHORIZER
from headrace.wire.apis import NAMES, RequestHeader, request_class, write_request_header
from headrace.wire.codec import write_message
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

    def length(self, frame: bytes) -> bytes:
        if self.rng.random() < 0.02:
            return struct.pack(">i", self.rng.choice((-1, 2**31 - 1, -(2**31), 600 << 10, 200 << 20)))
        return struct.pack(">i", len(frame))


def bombard(address: str, fuzzer: Fuzzer, *, knows: bool) -> int:
    """Frames until the broker hangs up, or some are sent; how many."""
    sent = 0
    with WireClient(address, timeout_s=60) as wire:
        if knows:
            assert log_in(wire).error_code == 0
        connection = wire._socket
        connection.setblocking(False)
        try:
            for _ in range(fuzzer.rng.randint(1, 40)):
                frame = fuzzer.frame()
                connection.send(fuzzer.length(frame) + frame)
                sent += 1
                if fuzzer.rng.random() < 0.3 and not connection.recv(65_536):
                    break
        except BlockingIOError:
            return max(sent, 1)
        except OSError:
            pass
    return max(sent, 1)


@pytest.mark.timeout(max(120, FRAMES // 100))
@pytest.mark.parametrize("kind", ["before the login", "after the login", "without permissions"])
def test_no_frame_ends_the_broker(
    kind: str, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR, "headrace")  # pytest would keep a line for every connection
    knows = kind != "before the login"
    broker: Broker = request.getfixturevalue("guarded" if kind == "without permissions" else "broker")
    fuzzer = Fuzzer(20261118 + knows)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sent = 0
    while sent < FRAMES:
        sent += bombard(broker.bootstrap_servers, fuzzer, knows=knows)
    with WireClient(broker.bootstrap_servers) as wire:
        assert log_in(wire).error_code == 0
        assert wire.ask("list_groups", 4).error_code == 0
    assert broker.failure is None
    assert [record.getMessage() for record in caplog.records] == []
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(f"{sent} frames, {grown >> 20} MiB")
    assert grown < GROWTH_MAX


def test_half_a_frame_is_dropped_with_its_connection(broker: Broker) -> None:
    host, port = broker.bootstrap_servers.split(":")
    for _ in range(20):
        with socket.create_connection((host, int(port)), 30) as connection:
            connection.sendall(struct.pack(">i", 500 << 10) + b"x" * 1000)
    with WireClient(broker.bootstrap_servers) as wire:
        assert log_in(wire).error_code == 0
