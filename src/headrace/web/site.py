"""`Site`: what one running dashboard has. Made when the server starts, handed to everybody who answers a request."""

import asyncio
import time
from dataclasses import dataclass, field

from headrace.web.embedded import GroupCounts
from headrace.web.history import History, Key, Rates
from headrace.web.model import Overview
from headrace.web.options import WebOptions
from headrace.web.sampler import Sampler
from headrace.web.source import Source

MEMBER_RATES_MAX = 200
STREAMS_MAX = 64


class NotThere(Exception):
    """What was asked for does not exist, or cannot be shown; the text says which."""


@dataclass(slots=True)
class _MemberRates:
    rates: Rates = field(default_factory=Rates)
    known: dict[str, tuple[float | None, float | None]] = field(default_factory=dict)
    looked_at: float = 0.0


class Site:
    def __init__(self, source: Source, options: WebOptions, csrf_token: str) -> None:
        self.source = source
        self.options = options
        self.history = History()
        self.sampler = Sampler(source, self.history, options)
        self.csrf_token = csrf_token
        self.stopping = asyncio.Event()
        self.redriving = asyncio.Lock()
        self.streams = 0
        self._member_rates: dict[str, _MemberRates] = {}

    @property
    def overview(self) -> Overview:
        return self.sampler.overview

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
