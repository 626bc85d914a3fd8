"""Who asks, and in which version: what a handler may know about a request beyond its message."""

from typing import NamedTuple

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that has not said who it is."""


class CloseConnection(Exception):
    """Raised by a handler whose client asked for no answer but must learn that something is wrong."""


class Call(NamedTuple):
    api_version: int
    correlation_id: int = 0
    client_id: str | None = None
    client_host: str = "/127.0.0.1"
    """In the form clients expect in group descriptions: a slash, then the address."""
    connection_id: int = 0
    principal: str = ANONYMOUS
    listener: str = "PLAINTEXT"
