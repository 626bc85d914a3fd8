"""What clients and brokers do alike in TLS: their own key and certificates, and a handshake that fails.

Theory of operation. When a handshake fails, OpenSSL writes an alert for the other end, but asyncio and uvloop close the
connection without sending it: the other end cannot say more than that the connection was closed. So the handshake of an
`AlertingContext` does not fail at once. It says that it waits for data, which makes the loop send what there is. The
failure comes out of `shake_hands` when the other end has closed the connection, as TLS demands, or after ALERT_S. To
close at once would not do: data that the other end has sent meanwhile would turn the alert into a connection reset.
"""

import asyncio
import os
import ssl
import sys
import tempfile
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
ALERT_S = 1.0
"""After an alert, the other end has so long to close the connection."""
_on_failure: ContextVar[Callable[[ssl.SSLError], None] | None] = ContextVar("on_failure", default=None)
"""Who is told of a handshake that fails. The loops run a connection's callbacks in the context that opened it."""


class AlertingObject(ssl.SSLObject):
    """One end of a connection, whose alert is sent if the handshake fails."""

    incoming: ssl.MemoryBIO
    outgoing: ssl.MemoryBIO
    on_failure: Callable[[ssl.SSLError], None] | None = None
    has_failed = False

    def do_handshake(self) -> None:
        if self.has_failed:
            self.incoming.read()  # nobody looks at what the other end says now
            raise ssl.SSLWantReadError("the alert was sent")
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            if self.on_failure is None or not self.outgoing.pending:
                raise
            self.has_failed = True
            self.on_failure(error)
            raise ssl.SSLWantReadError("the alert is to be sent") from None
        self.on_failure = None  # it holds on to whoever opens the connection


class AlertingContext(ssl.SSLContext):
    """A context for connections that `shake_hands` opens."""

    sslobject_class = AlertingObject

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        wrapped = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(wrapped, AlertingObject)
        wrapped.incoming, wrapped.outgoing = incoming, outgoing
        wrapped.on_failure = _on_failure.get()
        return wrapped


def default_client_context() -> AlertingContext:
    """`ssl.create_default_context()`: the system's authorities, and the strictness of this version of Python."""
    context = AlertingContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return context


async def shake_hands(opening: Coroutine[Any, Any, T]) -> T:
    """Opens a connection with an `AlertingContext`; raises why its handshake failed, after the alert was sent."""
    failures: list[ssl.SSLError] = []
    try:
        async with asyncio.timeout(None) as limit:

            def failed(error: ssl.SSLError) -> None:
                failures.append(error)
                limit.reschedule(asyncio.get_running_loop().time() + ALERT_S)

            token = _on_failure.set(failed)
            try:
                return await opening
            finally:
                _on_failure.reset(token)
    except OSError:  # the other end has closed the connection, or has let the time pass
        if failures:
            raise failures[0] from None
        raise


def load_identity(context: ssl.SSLContext, key: str, chain: str, password: str) -> None:
    """Key and chain as PEM text; ssl.SSLError if they cannot be used.

    Python reads keys only from files, so they pass through one that only we can read.
    """
    file, path = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(file, "w") as writer:
            writer.write(f"{key}\n{chain}\n")
        context.load_cert_chain(path, password=lambda: password)
    finally:
        Path(path).unlink()
