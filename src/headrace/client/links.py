"""The ways to the brokers: per address and lane one connection, or the time from which it may be tried again.

A broker answers the requests of a connection one after the other, and may hold a fetch back until there are records.
So fetches have a lane of their own, and heartbeats and questions never wait behind them; Java's clients do the same.

A broker that cannot be reached is tried again after reconnect.backoff.ms, then twice that, up to
reconnect.backoff.max.ms, each with some jitter. The log has one line when it goes away and one when it is back.
"""

import asyncio
import logging
import random
from collections.abc import Iterable
from enum import Enum

from headrace.base.backoff import backoff
from headrace.client.connection import BrokerConnection
from headrace.client.security import tls_context
from headrace.client.settings import Address, ClientSettings
from headrace.wire.errors import KafkaError

logger = logging.getLogger("headrace.client")


class Lane(Enum):
    QUESTIONS = "questions"
    FETCHES = "fetches"


class _Link:
    __slots__ = ("address", "connection", "failures", "opening", "retry_at")

    def __init__(self, address: Address) -> None:
        self.address = address
        self.connection: BrokerConnection | None = None
        self.opening: asyncio.Task[BrokerConnection] | None = None
        self.failures = 0
        self.retry_at = 0.0


class Links:
    """The connections of one client."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._tls = tls_context(settings)
        self._links: dict[tuple[Address, Lane], _Link] = {}
        self._away: set[Address] = set()
        self._closing: set[asyncio.Task[None]] = set()

    async def connection(self, address: Address, lane: Lane = Lane.QUESTIONS) -> BrokerConnection:
        """The open connection, or a new one. Callers at the same time share one try, behind its back-off."""
        link = self._links.get((address, lane))
        if link is None:
            link = self._links[address, lane] = _Link(address)
        if link.connection is not None and link.connection.is_open:
            return link.connection
        if link.opening is None:
            link.opening = asyncio.create_task(self._open(link))
            link.opening.add_done_callback(_retrieve)
        return await asyncio.shield(link.opening)

    def open_connection(self, address: Address, lane: Lane = Lane.QUESTIONS) -> BrokerConnection | None:
        """The connection, if it is there and may be written to at once."""
        link = self._links.get((address, lane))
        connection = link.connection if link is not None else None
        return connection if connection is not None and connection.is_ready else None

    def least_busy(self, addresses: Iterable[Address]) -> BrokerConnection | None:
        """The open connection with the fewest requests in flight."""
        links = (self._links.get((address, Lane.QUESTIONS)) for address in addresses)
        found = [link.connection for link in links if link is not None and link.connection is not None]
        return min((each for each in found if each.is_open), key=lambda each: each.in_flight, default=None)

    def wait_s(self, address: Address) -> float:
        """How long the address is still in its back-off."""
        link = self._links.get((address, Lane.QUESTIONS))
        return 0.0 if link is None else max(0.0, link.retry_at - _now())

    def keep_only(self, addresses: set[Address]) -> None:
        """Closes connections to brokers that have left the cluster or moved, once their requests are answered."""
        self._away &= addresses
        for key in [key for key in self._links if key[0] not in addresses]:
            link = self._links[key]
            if link.opening is None and (link.connection is None or not link.connection.in_flight):
                self._drop(self._links.pop(key))

    def close_idle(self, idle_s: float) -> None:
        """Closes connections without a request for this long; the next request opens one anew."""
        for link in self._links.values():
            connection = link.connection
            if connection is None or connection.in_flight:
                continue
            if _now() - connection.last_used >= idle_s:
                self._drop(link)

    async def close(self) -> None:
        links, self._links = list(self._links.values()), {}
        for link in links:
            if link.opening is not None:
                link.opening.cancel()
                await asyncio.wait([link.opening])
            self._drop(link)
        if self._closing:
            await asyncio.wait(self._closing)

    def abandon(self) -> None:
        """Ends every connection after the event loop has been closed."""
        links, self._links = list(self._links.values()), {}
        for link in links:
            if link.connection is not None:
                link.connection.abandon()

    def _drop(self, link: _Link) -> None:
        connection, link.connection = link.connection, None
        if connection is not None:
            task = asyncio.create_task(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _open(self, link: _Link) -> BrokerConnection:
        try:
            await asyncio.sleep(max(0.0, link.retry_at - _now()))
            connection = await BrokerConnection.open(link.address, self._settings, tls=self._tls)
        except KafkaError as error:
            self._failed(link, error)
            raise
        finally:
            link.opening = None
        if link.address in self._away:
            self._away.remove(link.address)
            logger.info("broker at %s is back", link.address)
        link.failures = 0
        link.connection = connection
        connection.on_closed = lambda closed: self._lost(link, closed)
        return connection

    def _failed(self, link: _Link, error: KafkaError) -> None:
        settings = self._settings
        first_ms, most_ms = settings.reconnect_backoff_ms, settings.reconnect_backoff_max_ms
        link.retry_at = _now() + backoff(first_ms, most_ms, link.failures, random.random()) / 1000
        link.failures += 1
        if link.address not in self._away:
            self._away.add(link.address)
            logger.warning("cannot connect, retrying: %s", error)

    def _lost(self, link: _Link, connection: BrokerConnection) -> None:
        """A connection that was in use has ended: a broker that accepts and drops must not be tried in a loop."""
        if link.connection is not connection:
            return  # it was closed here
        link.connection = None
        link.retry_at = _now() + self._settings.reconnect_backoff_ms / 1000 * random.random()
        logger.debug("connection to broker at %s has ended", link.address)


def _retrieve(task: "asyncio.Task[BrokerConnection]") -> None:
    if not task.cancelled():
        task.exception()  # those who wait have it; where nobody waits any more, nobody misses it


def _now() -> float:
    return asyncio.get_running_loop().time()
