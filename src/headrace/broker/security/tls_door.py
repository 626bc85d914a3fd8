"""Accepts connections of a TLS listener: each is counted before its handshake, and the handshake's time is limited.

The loop's own servers tell of a connection only when its handshake is over, which is too late for the limits, and have
one TLS context for good.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.connection import Connection
from headrace.broker.security.listeners import BrokerListener
from headrace.broker.security.tls import ListenerTls
from headrace.wire.tls import shake_hands

if TYPE_CHECKING:
    from headrace.broker.server import Server

logger = logging.getLogger("headrace.broker")

HANDSHAKE_S = 10.0
CLOSE_S = 5.0
"""A client has so long to answer when we close."""
RETRY_S = 1.0
"""After an accept that failed, which too many open files do."""


class TlsDoor:
    def __init__(
        self, server: "Server", listener: BrokerListener, tls: ListenerTls, make: Callable[[], Connection]
    ) -> None:
        self._server = server
        self._listener = listener
        self._tls = tls
        self._make = make
        self._sockets: list[socket.socket] = []
        self._accepting: list[asyncio.Task[None]] = []
        self.handshakes: set[asyncio.Task[None]] = set()

    async def bind(self, backlog: int) -> int:
        """Listens on every address of the host, and returns the port; raises OSError."""
        host, port = self._listener.host or None, self._listener.port
        found = await self._server.loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, kind, number, _, address in dict.fromkeys(found):
            listening = socket.socket(family, kind, number)
            self._sockets.append(listening)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listening.setblocking(False)
            listening.bind((address[0], port, *address[2:]))
            listening.listen(backlog)
            port = int(listening.getsockname()[1])
        return port

    async def start_serving(self) -> None:
        self._accepting = [self._server.loop.create_task(self._accept(each)) for each in self._sockets]

    def close(self) -> None:
        for task in (*self._accepting, *self.handshakes):
            task.cancel()
        self._server.loop.call_soon(self._close_sockets)  # once nobody waits for them any more

    def _close_sockets(self) -> None:
        for listening in self._sockets:
            listening.close()

    async def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                accepted, address = await self._server.loop.sock_accept(listening)
            except OSError as error:
                logger.error("listener %s cannot accept a connection: %s", self._listener.name, error)
                await asyncio.sleep(RETRY_S)
                continue
            self._take(accepted, address[0])

    def _take(self, accepted: socket.socket, address: str) -> None:
        is_let_in = self._server.admit(address, self._listener.name)
        wait_s = self._server.turn_s(address, self._listener.name) if is_let_in else None
        if wait_s is None:
            self._server.leave(address, self._listener.name)
            accepted.close()
            return
        task = self._server.loop.create_task(self._shake_hands(accepted, address, wait_s))
        self.handshakes.add(task)
        task.add_done_callback(self.handshakes.discard)

    async def _shake_hands(self, accepted: socket.socket, address: str, wait_s: float) -> None:
        connection = self._make()
        connection.is_counted = True
        connection.certificate_principal = self._tls.principal
        try:
            await asyncio.sleep(wait_s)
            if connection.known_by_s is not None:
                connection.known_by_s += wait_s
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opening = self._server.loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls.context,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=CLOSE_S,
            )
            await shake_hands(opening)
        except (OSError, ssl.SSLError, asyncio.CancelledError) as error:
            is_ours = isinstance(error, asyncio.CancelledError)
            reason = getattr(error, "reason", None) or str(error)
            reason = reason or ("the broker stops" if is_ours else "the client closed the connection")
            logger.info(
                "TLS handshake failed: %s (listener %s, from %s)", reason, self._listener.name, address
            )
            if not connection.address:  # it was never opened, so nobody else counts it off
                self._server.leave(address, self._listener.name)
            accepted.close()
