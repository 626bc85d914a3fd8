"""`Site`: what one running dashboard has. Made when the server starts, handed to everybody who answers a request."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar, cast

from headrace.web.embedded import GroupCounts
from headrace.web.history import History, Key, Rates
from headrace.web.model import Overview
from headrace.web.options import WebOptions
from headrace.web.sampler import Sampler
from headrace.web.slow_sampler import SlowSampler
from headrace.web.source import PageSource

MEMBER_RATES_MAX = 200
STREAMS_MAX = 64
CACHE_MAX = 500
COST_RATIO = 5
"""What took long to find out is found out less often: watching must not become the cluster's main work."""

T = TypeVar("T")


class NotThere(Exception):
    """What was asked for does not exist, or cannot be shown; the text says which."""


class TooLate(Exception):
    """What was to be changed has happened, or is about to."""


@dataclass(slots=True)
class _MemberRates:
    rates: Rates = field(default_factory=Rates)
    known: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    looked_at: float = 0.0


@dataclass(slots=True)
class _Cached:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    made_at: float | None = None
    cost_s: float = 0.0
    value: object = None


class Site:
    def __init__(self, source: PageSource, options: WebOptions, csrf_token: str) -> None:
        self.source = source
        self.options = options
        self.history = History()
        self.sampler = Sampler(source, self.history, options)
        self.slow = SlowSampler(source)
        self.csrf_token = csrf_token
        self.stopping = asyncio.Event()
        self.redriving = asyncio.Lock()
        self.process_rates = Rates()
        self.streams = 0
        self._member_rates: dict[str, _MemberRates] = {}
        self._cache: dict[tuple[str, ...], _Cached] = {}

    async def cached(self, key: tuple[str, ...], seconds: float, make: Callable[[], Awaitable[T]]) -> T:
        """What `make` gave not longer ago than that, or than a few times what it took to make.

        However many watch, one asks. A failure is not kept.
        """
        entry = self._cache.get(key)
        if entry is None:
            if len(self._cache) >= CACHE_MAX:
                self._cache.pop(next(iter(self._cache)))
            entry = self._cache[key] = _Cached()
        async with entry.lock:
            now = time.monotonic()
            if entry.made_at is None or now - entry.made_at >= max(seconds, COST_RATIO * entry.cost_s):
                entry.value = await make()
                entry.made_at = time.monotonic()
                entry.cost_s = entry.made_at - now
            return cast(T, entry.value)

    def note_change(self) -> None:
        """Somebody has changed something here: what was read before is old, and the sampler looks at once."""
        self._cache.clear()
        self.sampler.hurry()

    @property
    def overview(self) -> Overview:
        return self.sampler.look()

    def member_rates(
        self, group_id: str, counts: GroupCounts
    ) -> dict[str, tuple[float | None, float | None]]:
        """Records a second delivered to and acknowledged by each member, since the look before."""
        if group_id not in self._member_rates and len(self._member_rates) >= MEMBER_RATES_MAX:
            self._member_rates.pop(next(iter(self._member_rates)))
        entry = self._member_rates.setdefault(group_id, _MemberRates())
        now = time.time()
        if now - entry.looked_at < 1.0:  # several viewers of one page must not cut the time into slivers
            return entry.known
        entry.looked_at = now
        seen: dict[Key, float] = {
            ("delivered", member): float(count) for member, count in counts.delivered.items()
        }
        seen |= {("acknowledged", member): float(count) for member, count in counts.acknowledged.items()}
        rates = entry.rates.update(now, seen)
        entry.known = {
            member: (rates.get(("delivered", member)), rates.get(("acknowledged", member)))
            for member in {key[1] for key in seen}
        }
        return entry.known
