"""How a dashboard is run: where it listens, who may come in, what may be changed."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

TOKEN_LENGTH_MIN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WebOptions:
    host: str = "127.0.0.1"
    port: int = 0
    """0 picks a free one."""
    token: str | None = None
    """Whoever comes must have it; needed as soon as other machines can come."""
    is_read_only: bool = False
    metrics_token: str | None = None
    """Opens /metrics and nothing else; /metrics then needs it, or one of the other ways in."""
    certificate: Path | None = None
    """A PEM file with the certificate and its chain: the dashboard speaks HTTPS."""
    key: Path | None = None
    """The certificate's private key, where it is in a file of its own."""
    viewers: frozenset[str] = frozenset()
    operators: frozenset[str] = frozenset()
    """Users of the cluster who log in with their passwords. Viewers look, operators also change things; * stands for
    every user."""
    session_s: float = 3600.0
    """A session that was not used for so long ends."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses and networks of reverse proxies. Their X-Forwarded-For and X-Forwarded-Proto are believed, and of
    nobody else."""
    processes: tuple[str, ...] = ()
    """HOST:PORT of workers (`headrace worker --http`) and Spark programs (`serve_metrics`) to show."""
    sample_s: float = 2.0
    """How often the cluster is looked at, and so how far apart the points of the charts are."""

    def __post_init__(self) -> None:
        if not is_loopback(self.host) and self.token is None and not self.has_logins:
            raise ValueError(
                f"the dashboard on {self.host} can be reached from other machines; "
                "set a token, or listen on 127.0.0.1"
            )
        if not is_loopback(self.host) and self.has_logins and self.certificate is None:
            raise ValueError(
                f"users would send their passwords to {self.host} unencrypted; "
                "give the dashboard a certificate (--certificate), or listen on 127.0.0.1"
            )
        for what, token in (("the dashboard's token", self.token), ("the metrics token", self.metrics_token)):
            if token is not None and len(token) < TOKEN_LENGTH_MIN:
                raise ValueError(
                    f"{what} is too short: it has {len(token)} characters; use {TOKEN_LENGTH_MIN} or more"
                )
        if self.key is not None and self.certificate is None:
            raise ValueError("a key needs its certificate: set both")
        for proxy in self.trusted_proxies:
            _check_proxy(proxy)
        if not 1 <= self.session_s <= 30 * 86_400:
            raise ValueError(f"session_s must be from 1 second to 30 days, got {self.session_s}")
        if not 0.2 <= self.sample_s <= 60:
            raise ValueError(f"sample_s must be from 0.2 to 60 seconds, got {self.sample_s}")

    @property
    def has_logins(self) -> bool:
        return bool(self.viewers or self.operators)


def _check_proxy(given: str) -> None:
    try:
        ipaddress.ip_network(given)
    except ValueError:
        raise ValueError(
            f"--trusted-proxy {given} is neither an address nor a network; use for example 127.0.0.1 or 10.0.0.0/8"
        ) from None


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it. The empty host is every address this machine has."""
    name = host.strip("[]").lower()
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
