"""Listeners: the addresses the broker listens on, how each is secured, and the address clients are told.

`listeners` names them (NAME://HOST:PORT), `listener.security.protocol.map` says how each name is secured, and
`advertised.listeners` replaces the address in answers to clients. The listeners of Kafka's controller, which are named
in `controller.listener.names`, are left out.
"""

import ipaddress
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.broker.addresses import parse_address
from headrace.broker.settings import InvalidSettings, Settings
from headrace.wire.security import SecurityProtocol

EVERYWHERE = ("", "0.0.0.0", "::")
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class BrokerListener:
    name: str
    protocol: SecurityProtocol
    host: str
    port: int
    advertised: Address | None = None

    def bound_to(self, port: int) -> "BrokerListener":
        """With the port that the operating system has chosen, and the address that clients are told."""
        host = socket.gethostname() if self.host in EVERYWHERE else self.host
        if self.advertised is not None:
            told, told_port = self.advertised
            return replace(self, port=port, advertised=(told or host, told_port or port))
        return replace(self, port=port, advertised=(host, port))

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"{self.name}://{self.host}:{self.port}"


def plain_listener(host: str, port: int, advertised: Address | None = None) -> BrokerListener:
    return BrokerListener("PLAINTEXT", SecurityProtocol.PLAINTEXT, host, port, advertised)


def read_listeners(settings: Settings) -> list[BrokerListener]:
    """The listeners of a broker with these settings; raises InvalidSettings."""
    protocols = protocols_of(settings)
    controllers = {name.upper() for name in settings.get_list("controller.listener.names")}
    advertised = _named_addresses("advertised.listeners", settings)
    found: list[BrokerListener] = []
    for name, (host, port) in _named_addresses("listeners", settings).items():
        if name in controllers:
            continue
        protocol = protocols.get(name)
        if protocol is None:
            raise InvalidSettings(
                f"listeners: no security protocol is defined for listener {name}; "
                f"add {name}:SASL_SSL (or another protocol) to listener.security.protocol.map"
            )
        found.append(BrokerListener(name, protocol, host, port, advertised.pop(name, None)))
    if not found:
        raise InvalidSettings(
            "listeners: no listener is left to serve clients; expected PLAINTEXT://HOST:PORT"
        )
    for name in advertised.keys() - controllers:
        raise InvalidSettings(f"advertised.listeners: {name} is not among the names in listeners")
    return found


def without_controllers(settings: Mapping[str, str]) -> list[str]:
    """The listeners of a `server.properties` that serve clients, as they are written."""
    controllers = {name.strip().upper() for name in settings.get("controller.listener.names", "").split(",")}
    texts = [text.strip() for text in settings.get("listeners", "").split(",")]
    return [text for text in texts if text and _name_of(text) not in controllers | {"CONTROLLER"}]


def _name_of(text: str) -> str:
    """A text without a name is the plain listener."""
    name, has_name, _ = text.partition("://")
    return name.upper() if has_name else SecurityProtocol.PLAINTEXT.value


def _named_addresses(setting: str, settings: Settings) -> dict[str, Address]:
    found: dict[str, Address] = {}
    for text in settings.get_list(setting) if settings.value(setting) else ():
        name = _name_of(text)
        if name in found:
            raise InvalidSettings(f"{setting}: two listeners are named {name}; each needs a name of its own")
        try:
            found[name] = parse_address(text)
        except ValueError as error:
            raise InvalidSettings(f"{setting}: {error}") from None
    return found


def check_protocol(settings: Settings, listener: BrokerListener) -> None:
    """Raises InvalidSettings, with Kafka's text, where an open listener would be secured in another way."""
    if protocols_of(settings).get(listener.name) is not listener.protocol:
        raise InvalidSettings(f"Security protocol cannot be updated for existing listener {listener.name}")


def protocols_of(settings: Settings) -> dict[str, SecurityProtocol]:
    mapped = {protocol.value: protocol for protocol in SecurityProtocol}
    mapped.update(parse_protocol_map(settings.get_str("listener.security.protocol.map").split(",")))
    return mapped


def parse_protocol_map(pairs: Iterable[str]) -> dict[str, SecurityProtocol]:
    """NAME:PROTOCOL pairs; raises InvalidSettings."""
    found = {}
    for pair in pairs:
        name, _, protocol = pair.strip().partition(":")
        try:
            found[name.strip().upper()] = SecurityProtocol(protocol.strip().upper())
        except ValueError:
            known = ", ".join(each.value for each in SecurityProtocol)
            raise InvalidSettings(
                f"listener.security.protocol.map: {pair!r} is not NAME:PROTOCOL with one of {known}"
            ) from None
    return found
