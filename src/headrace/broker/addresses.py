"""Addresses: what the broker listens on, and what it tells clients to connect to."""

import socket
from collections.abc import Mapping

from headrace.broker.settings import Settings

EVERYWHERE = ("", "0.0.0.0", "::")


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT, with or without a listener name before it; ValueError says what is wrong."""
    host, colon, port = text.rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is not an address HOST:PORT, for example localhost:9092")
    return host.strip("[]"), int(port)


def first_listener(settings: Mapping[str, str]) -> str | None:
    """The first plain listener of a `server.properties`; a controller's listener is none of ours."""
    for listener in settings.get("listeners", "").split(","):
        name, has_name, _ = listener.strip().partition("://")
        if listener.strip() and (not has_name or name.upper() != "CONTROLLER"):
            return listener.strip()
    return None


def advertised_address(settings: Settings, host: str, port: int) -> tuple[str, int]:
    """What clients are told. A broker that listens everywhere names its machine."""
    if settings.value("advertised.listeners"):
        advertised, advertised_port = parse_address(settings.list("advertised.listeners")[0])
        return advertised or socket.gethostname(), advertised_port or port
    return (socket.gethostname() if host in EVERYWHERE else host), port
