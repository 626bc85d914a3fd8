"""Counts what consumers do while no broker is there: they must wait for it without hurry."""

import logging
import time
from collections.abc import Callable
from typing import Any

import pytest

from headrace.client.connection import BrokerConnection
from headrace.client.member import AsyncShareMember

FIRST_TRIES = 7
"""reconnect.backoff.ms doubles from 50 ms until it is a second; a try now and then may be left over from before."""
LONGEST_WAIT_S = 0.8
"""A second, less the jitter."""
PUMPS_PER_S = 60
"""Of one member: a few for each of its polls, which last 0.2 s, and one for each request that fails."""
LINES = 4
"""Of one member about one broker: it is away, it is back; twice, because a broker that starts may hang up at first."""


class Haste:
    """Counts from `begin` on, over all members of this process: each has two connections to each broker."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, members: int, brokers: int
    ) -> None:
        self._caplog = caplog
        self._members = members
        self._brokers = brokers
        self._began_at = 0.0
        self.tries = 0
        self.pumps = 0
        monkeypatch.setattr(BrokerConnection, "open", self._counted("tries", BrokerConnection.open))
        monkeypatch.setattr(AsyncShareMember, "pump", self._counted("pumps", AsyncShareMember.pump))

    def begin(self) -> None:
        self._caplog.set_level(logging.INFO, "headrace.client")
        self._caplog.clear()
        self.tries = self.pumps = 0
        self._began_at = time.monotonic()

    @property
    def has_everybody_tried_again(self) -> bool:
        """A few times, on average."""
        return self.tries > FIRST_TRIES * self._members * self._brokers

    def check(self) -> None:
        """While the brokers are just back."""
        away_s = time.monotonic() - self._began_at
        lines = [one.getMessage() for one in self._caplog.records if one.name == "headrace.client"]
        print(f"away for {away_s:.1f} s: {self.tries} tries, {self.pumps} pumps, {len(lines)} lines logged")
        links = 2 * self._members * self._brokers
        assert self.tries <= links * (FIRST_TRIES + away_s / LONGEST_WAIT_S)
        assert self.pumps <= self._members * PUMPS_PER_S * away_s
        assert len(lines) <= LINES * self._members * self._brokers, lines

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def count_and_call(*arguments: Any, **keywords: Any) -> Any:
            setattr(self, name, getattr(self, name) + 1)
            return function(*arguments, **keywords)

        return count_and_call
