"""What clients get before anybody knows who they are: so many connections, and so long for a request.

uvicorn limits neither. The broker may be in the same process, and needs file descriptors, too. h11 limits the size of
a request's head; uvicorn's other parser, which it prefers where it is installed, does not.
"""

import asyncio
import logging

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

logger = logging.getLogger("headrace.web")

CONNECTIONS_MAX = 500
REQUEST_S = 20.0
"""A connection without a whole request, head and body, for so long is closed, at the latest after twice the time."""


class LimitedHttp(H11Protocol):
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            address = self.client[0] if self.client else "?"
            logger.warning("refusing a connection from %s: %d are open", address, CONNECTIONS_MAX)
            transport.abort()
        else:
            self._watch = self.loop.call_later(REQUEST_S, self._look, self.cycle)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        super().connection_lost(exc)

    def _look(self, before: RequestResponseCycle | None) -> None:
        cycle: RequestResponseCycle | None = self.cycle
        is_waited_for = cycle is None or cycle.response_complete or cycle.more_body
        if is_waited_for and cycle is before:
            self.transport.abort()
        else:
            self._watch = self.loop.call_later(REQUEST_S, self._look, cycle)
