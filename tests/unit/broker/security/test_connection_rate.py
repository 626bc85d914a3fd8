"""`max.connection.creation.rate`: connections beyond it wait for their turn, and too many that wait are refused."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from headrace import Broker
from headrace.broker.security.limits import RATE, ConnectionLimits
from headrace.broker.settings import Settings
from headrace.client.admin import Admin
from tests.conformance.steps import wait_for
from tests.unit.broker.security.certificates import TestAuthority

BACKLOG = "socket.listen.backlog.size"


def turns(settings: dict[str, str], *times_s: float, listener: str = "PLAINTEXT") -> list[float | None]:
    limits, parsed = ConnectionLimits(), Settings(settings)
    return [limits.turn_s(parsed, listener, now_s) for now_s in times_s]


def test_without_a_limit_nobody_waits() -> None:
    assert turns({}, *([0.0] * 1000)) == [0.0] * 1000


def test_a_second_s_worth_comes_at_once_and_the_rest_at_the_rate() -> None:
    assert turns({RATE: "4"}, *([100.0] * 8)) == [0, 0, 0, 0, 0, 0.25, 0.5, 0.75]


def test_after_a_pause_there_is_a_second_s_worth_again_and_not_more() -> None:
    assert turns({RATE: "1"}, 0.0, 0.0, 0.0, 500.0, 500.0, 500.0) == [0, 0, 1, 0, 0, 1]


def test_whoever_would_wait_behind_a_full_backlog_is_refused_and_takes_no_turn() -> None:
    found = turns({RATE: "1", BACKLOG: "2"}, *([0.0] * 6), 1.0)
    assert found == [0, 0, 1, 2, None, None, 2]


def test_a_listener_may_have_a_lower_rate_of_its_own() -> None:
    limits = ConnectionLimits()
    settings = Settings({RATE: "100", "listener.name.public.max.connection.creation.rate": "1"})
    assert [limits.turn_s(settings, "PUBLIC", 0.0) for _ in range(3)] == [0, 0, 1]
    assert limits.turn_s(settings, "PRIVATE", 0.0) == 0


def test_a_rate_of_zero_lets_nobody_in() -> None:
    assert turns({RATE: "0"}, 0.0, 10.0) == [None, None]


@pytest.fixture(params=["PLAINTEXT", "SSL"])
def listener(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    settings = {"listeners": f"{request.param}://127.0.0.1:0"}
    keystore = {"ssl.keystore.location": TestAuthority(tmp_path).keystore()}
    return {**settings, **keystore} if request.param == "SSL" else settings


def assert_works(broker: Broker, tmp_path: Path) -> None:
    address = broker.bootstrap_servers.replace("127.0.0.1", "localhost")
    login = {"security.protocol": "SSL", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    is_tls = broker.listeners[0].protocol.has_tls
    with Admin({"bootstrap.servers": address, **(login if is_tls else {})}) as admin:
        assert admin.list_topics() == []


def is_closed(wire: socket.socket) -> bool:
    wire.settimeout(0.05)
    try:
        return wire.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_connections_beyond_the_backlog_are_closed_and_the_limit_can_be_lifted(
    listener: dict[str, str], tmp_path: Path
) -> None:
    with Broker(settings={**listener, RATE: "1", BACKLOG: "1"}) as broker, ExitStack() as closing:
        host, port = broker.bootstrap_servers.split(":")
        wires = [closing.enter_context(socket.create_connection((host, int(port)), 30)) for _ in range(6)]
        wait_for(lambda: any(is_closed(wire) for wire in wires))
        assert not all(is_closed(wire) for wire in wires)
        broker.call(lambda: broker.core.settings.set_dynamic(RATE, "2147483647"))
        assert_works(broker, tmp_path)


def test_connections_that_wait_are_served_in_their_turn(listener: dict[str, str], tmp_path: Path) -> None:
    with Broker(settings={**listener, RATE: "8"}) as broker:
        for _ in range(5):
            assert_works(broker, tmp_path)
