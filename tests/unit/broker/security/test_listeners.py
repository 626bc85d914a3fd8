"""What `listeners` and its kin mean: names, protocols, advertised addresses, and what is refused."""

import pytest

from headrace.broker.security.listeners import read_listeners, without_controllers
from headrace.broker.settings import InvalidSettings, Settings


def told(**settings: str) -> list[tuple[str, str, object]]:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return [
        (each.name, each.protocol.value, each.bound_to(each.port or 5000).advertised)
        for each in read_listeners(Settings(given))
    ]


def test_each_listener_is_advertised_as_itself_or_as_its_own_advertised_address() -> None:
    assert told(
        listeners="PLAINTEXT://localhost:9092,INNER://127.0.0.1:0",
        listener_security_protocol_map="inner:plaintext",
        advertised_listeners="INNER://proxy:19092",
    ) == [
        ("PLAINTEXT", "PLAINTEXT", ("localhost", 9092)),
        ("INNER", "PLAINTEXT", ("proxy", 19092)),
    ]


def test_a_listener_of_the_controller_is_not_opened() -> None:
    settings = {
        "listeners": "PLAINTEXT://localhost:9092, MIND://localhost:9093",
        "controller.listener.names": "MIND",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,MIND:PLAINTEXT",
    }
    assert [each.name for each in read_listeners(Settings(settings))] == ["PLAINTEXT"]
    assert without_controllers(settings) == ["PLAINTEXT://localhost:9092"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"listeners": "INNER://h:1"}, "no security protocol is defined for listener INNER"),
        ({"listeners": "PLAINTEXT://h:1,plaintext://h:2"}, "two listeners are named PLAINTEXT"),
        ({"listeners": "PLAINTEXT://h"}, "not an address HOST:PORT"),
        (
            {"listeners": "PLAINTEXT://h:1", "advertised_listeners": "OUTER://h:2"},
            "advertised.listeners: OUTER is not among",
        ),
        (
            {"listeners": "PLAINTEXT://h:1", "listener_security_protocol_map": "A:TELNET"},
            "'A:TELNET' is not NAME:PROTOCOL",
        ),
        (
            {"listeners": "MIND://h:1", "controller_listener_names": "MIND"},
            "no listener is left to serve clients",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_by_name(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        told(**settings)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.3.2.1", "[::1]"])
def test_loopback_is_not_beyond_this_machine(host: str) -> None:
    [listener] = read_listeners(Settings({"listeners": f"PLAINTEXT://{host}:1"}))
    assert listener.is_loopback


@pytest.mark.parametrize("host", ["", "0.0.0.0", "10.0.0.1", "example.com"])
def test_everything_else_is(host: str) -> None:
    [listener] = read_listeners(Settings({"listeners": f"PLAINTEXT://{host}:1"}))
    assert not listener.is_loopback
