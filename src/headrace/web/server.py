"""`WebServer`: the dashboard on a thread of its own, beside whatever the process does else.

with WebServer(settings, WebOptions(port=8080)) as web: print(web.url)
"""

import asyncio
import contextlib
import errno
import socket
import ssl
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Self

import uvicorn

from headrace.client.settings import ClientSettings
from headrace.web.app import create_app
from headrace.web.embedded import EmbeddedView
from headrace.web.http_limits import Door, LimitedHttp
from headrace.web.options import WebOptions
from headrace.web.schedules import OpenSchedule
from headrace.wire.tls import AlertingContext

STOP_S_MAX = 10.0
GRACE_S = 2
"""For requests under way; watched pages end at once."""
CURES = {
    errno.EADDRINUSE: "another program listens there; choose another port",
    errno.EADDRNOTAVAIL: "this machine does not have that address",
    errno.EACCES: "ports below 1024 need special rights; choose a higher one",
}


class WebServer:
    def __init__(
        self,
        settings: ClientSettings,
        options: WebOptions,
        detail: EmbeddedView | None = None,
        open_schedule: OpenSchedule | None = None,
    ) -> None:
        self._options = options
        self._app = create_app(settings, options, detail, open_schedule)
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._port = 0

    @property
    def url(self) -> str:
        """Where a browser finds it; the token is not in it."""
        host = self._options.host
        if host in ("", "0.0.0.0", "::"):
            host = socket.gethostname()
        scheme = "http" if self._options.certificate is None else "https"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self._port}"

    def start(self) -> Self:
        """Listens and has looked at the cluster once. OSError or KafkaError when it cannot."""
        context = self._encryption()
        listener = self._listen()
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._app,
            http=LimitedHttp,
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=GRACE_S,
            server_header=False,
            proxy_headers=bool(self._options.trusted_proxies),
            forwarded_allow_ips=list(self._options.trusted_proxies),
            ws="none",
        )
        config.load()
        self._server = uvicorn.Server(config)
        door = Door(listener, self._server, context)
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(listener, door, started), name="headrace-web", daemon=True
        )
        self._thread.start()
        started.result()
        return self

    def stop(self) -> None:
        """Ends watched pages and requests, and waits; does nothing the second time."""
        thread, server = self._thread, self._server
        if thread is None or server is None:
            return
        self._thread = None
        server.should_exit = True
        if self._loop is not None:
            # uvicorn waits for open responses before all else, and those of watched pages never end by themselves.
            with contextlib.suppress(RuntimeError):  # it has just closed
                self._loop.call_soon_threadsafe(self._app.state.site.stopping.set)
        thread.join(STOP_S_MAX)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _encryption(self) -> ssl.SSLContext | None:
        certificate, key = self._options.certificate, self._options.key
        if certificate is None:
            return None
        context = AlertingContext(ssl.PROTOCOL_TLS_SERVER)
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            context.load_cert_chain(certificate, key)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"the dashboard cannot use the certificate {certificate}: {error}. "
                "Give PEM files: the certificate with its chain, and its key without a password"
            ) from None
        return context

    def _listen(self) -> socket.socket:
        host, port = self._options.host, self._options.port
        try:
            family, _, _, _, address = socket.getaddrinfo(
                host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )[0]
            # asyncio sends small answers at once only on sockets that say that they are TCP.
            listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
            try:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
                listener.listen(128)
                listener.setblocking(False)
            except OSError:
                listener.close()
                raise
        except OSError as error:
            cure = CURES.get(error.errno or 0, error.strerror or str(error))
            raise OSError(error.errno, f"the dashboard cannot listen on {host}:{port}: {cure}") from None
        return listener

    def _run(self, listener: socket.socket, door: Door, started: "Future[None]") -> None:
        try:
            asyncio.run(self._serve(door, started))
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)
        finally:
            listener.close()

    async def _serve(self, door: Door, started: "Future[None]") -> None:
        """With the application's lifespan around the server, not in it: uvicorn would swallow why a start failed."""
        assert self._server is not None
        async with self._app.router.lifespan_context(self._app):
            self._loop = asyncio.get_running_loop()
            accepting = asyncio.create_task(door.accept())
            started.set_result(None)
            try:
                await self._server.serve(sockets=[])
            finally:
                accepting.cancel()
                await asyncio.gather(accepting, return_exceptions=True)
