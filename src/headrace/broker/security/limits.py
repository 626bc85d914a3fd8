"""How many connections may be open: in all, on a listener and from one address; and how fast they may come."""

import resource
from collections import Counter

from headrace.base.settings import INT_MAX
from headrace.broker.settings import Settings
from headrace.broker.settings.security_table import parse_overrides

RATE = "max.connection.creation.rate"
BURST_S = 1.0
"""So many seconds' worth of connections may come at once."""

FILES_KEPT = 1024
"""File descriptors that connections leave to the log, the metadata and the dashboard; of few they leave half.

Otherwise clients that nobody knows could keep those who have logged in from writing and reading.
"""


def connections_beside_files() -> int:
    """How many connections the process's limit of open files allows."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return INT_MAX if files == resource.RLIM_INFINITY else files - min(FILES_KEPT, files // 2)


class ConnectionRate:
    """Spaces out the connections of all listeners, or of one: the wait of a new one is known when it comes."""

    def __init__(self) -> None:
        self._free_at_s = 0.0

    def wait_s(self, now_s: float) -> float:
        """How long a connection that comes now has to wait."""
        return max(0.0, self._free_at_s - now_s - BURST_S)

    def take(self, now_s: float, rate: int) -> None:
        self._free_at_s = max(self._free_at_s, now_s) + 1 / rate


class ConnectionLimits:
    def __init__(self, beside_files: int = INT_MAX) -> None:
        self._beside_files = beside_files
        self._rates: dict[str, ConnectionRate] = {}
        """By listener; of all listeners together under the empty name."""
        self._per_address: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        self._all = 0

    def count(self, address: str, listener: str) -> None:
        self._all += 1
        self._per_address[address] += 1
        self._per_listener[listener] += 1

    def forget(self, address: str, listener: str) -> None:
        self._all -= 1
        self._per_listener[listener] -= 1
        self._per_address[address] -= 1
        if not self._per_address[address]:
            del self._per_address[address]

    def refusal(self, settings: Settings, address: str, listener: str) -> str | None:
        """The limit that the connection counted last has gone beyond."""
        overrides = parse_overrides(settings.get_str("max.connections.per.ip.overrides"))
        of_listener = settings.listener_value(listener, "max.connections")
        for name, number, limit in (
            ("max.connections", self._all, settings.get_int("max.connections")),
            (f"max.connections of listener {listener}", self._per_listener[listener], of_listener),
            (
                "max.connections.per.ip",
                self._per_address[address],
                overrides.get(address, settings.get_int("max.connections.per.ip")),
            ),
        ):
            if isinstance(limit, int) and number > limit:
                return f"{name}={limit}"
        if self._all > self._beside_files:
            return f"{self._beside_files} are open, and the other descriptors are for files (ulimit -n, LimitNOFILE)"
        return None

    def turn_s(self, settings: Settings, listener: str, now_s: float) -> float | None:
        """How long a new connection has to wait for its turn; None if too many wait already."""
        waiting_max = settings.get_int("socket.listen.backlog.size")
        limits = [
            (self._rates.setdefault(name, ConnectionRate()), rate)
            for name, rate in (
                ("", settings.get_int(RATE)),
                (listener, settings.listener_value(listener, RATE)),
            )
            if isinstance(rate, int) and rate < INT_MAX
        ]
        waits = []
        for limit, rate in limits:
            waits.append(limit.wait_s(now_s))
            if rate == 0 or waits[-1] * rate > waiting_max:
                return None
        for limit, rate in limits:
            limit.take(now_s, rate)
        return max(waits, default=0.0)
