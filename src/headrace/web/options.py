"""How a dashboard is run: where it listens, who may come in, what may be changed."""

import ipaddress
from dataclasses import dataclass

TOKEN_LENGTH_MIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    host: str = "127.0.0.1"
    port: int = 0
    """0 picks a free one."""
    token: str | None = None
    """Whoever comes must have it; needed as soon as other machines can come."""
    is_read_only: bool = False
    sample_s: float = 2.0
    """How often the cluster is looked at, and so how far apart the points of the charts are."""

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.token is None:
            raise ValueError(
                f"the dashboard on {self.host} can be reached from other machines; "
                "give it a token, or listen on 127.0.0.1"
            )
        if self.token is not None and len(self.token) < TOKEN_LENGTH_MIN:
            raise ValueError(f"the dashboard's token is too short; use {TOKEN_LENGTH_MIN} characters or more")
        if not 0.2 <= self.sample_s <= 60:
            raise ValueError(f"sample_s={self.sample_s} is not possible; use 0.2 to 60 seconds")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. The empty host is every address this machine has."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
