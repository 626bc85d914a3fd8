"""Who asks, and in which version: what a handler may know about a request beyond its message."""

from dataclasses import dataclass


class CloseConnection(Exception):
    """Raised by a handler whose client asked for no answer but must learn that something is wrong."""


@dataclass(frozen=True, slots=True)
class Call:
    api_version: int
    correlation_id: int = 0
    client_id: str | None = None
    client_host: str = "/127.0.0.1"
    """In the form clients expect in group descriptions: a slash, then the address."""
    connection_id: int = 0
    principal: str = "User:ANONYMOUS"
    listener: str = "PLAINTEXT"
