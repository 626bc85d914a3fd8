"""What clients get before anybody knows who they are: so many connections, and so long for a handshake and a request.

uvicorn limits none of them. The broker may be in the same process, and needs file descriptors, too. h11 limits the size
of a request's head; uvicorn's other parser, which it prefers where it is installed, does not.
"""

import asyncio
import logging
import socket
import ssl

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from headrace.wire.tls import shake_hands

logger = logging.getLogger("headrace.web")

CONNECTIONS_MAX = 500
REQUEST_S = 20.0
"""A connection without a whole request, head and body, for so long is closed, at the latest after twice the time."""
HANDSHAKE_S = 10.0
RETRY_S = 1.0
"""After an accept that failed, which too many open files do."""


class LimitedHttp(H11Protocol):
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
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


class Door:
    """Accepts connections. asyncio's servers show those with TLS only after their handshake: too late to count them."""

    def __init__(
        self, listening: socket.socket, server: uvicorn.Server, context: ssl.SSLContext | None
    ) -> None:
        self._listening = listening
        self._server = server
        self._context = context
        self._handshakes: set[asyncio.Task[None]] = set()

    async def accept(self) -> None:
        """Until it is canceled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    accepted, address = await loop.sock_accept(self._listening)
                except OSError as error:
                    logger.error("the dashboard cannot accept a connection: %s", error)
                    await asyncio.sleep(RETRY_S)
                    continue
                if len(self._handshakes) + len(self._server.server_state.connections) >= CONNECTIONS_MAX:
                    logger.warning("refusing a connection from %s: %d are open", address[0], CONNECTIONS_MAX)
                    accepted.close()
                    continue
                task = loop.create_task(self._open(accepted))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)
        finally:
            for task in self._handshakes:
                task.cancel()

    async def _open(self, accepted: socket.socket) -> None:
        connection = LimitedHttp(
            config=self._server.config, server_state=self._server.server_state, app_state={}
        )
        limit = HANDSHAKE_S if self._context is not None else None
        try:
            opening = asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=self._context, ssl_handshake_timeout=limit
            )
            await (opening if self._context is None else shake_hands(opening))
        except (OSError, asyncio.CancelledError):  # not TLS, a certificate that is not trusted, or too slow
            accepted.close()
