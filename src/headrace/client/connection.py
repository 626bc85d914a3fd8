"""One connection to one broker: requests out, responses matched to them, in any number at a time.

Theory of operation. `BrokerConnection.open` makes the TCP (or TLS) connection, asks for the broker's API versions and
logs in; after that `send` writes a request and waits for its response. Responses are cut out of the stream, decoded and
handed over inside the transport's callback: no task, no queue and no stream lies between the socket and the caller.

A connection ends once and for good: when either side closes it, when an answer is late (what comes behind it would
be late too), and when bytes come that are no answer. Then every waiting request fails with `ConnectionLost`:
whether the broker did what was asked is unknown, and it is for the caller to know whether asking again is safe.
"""

import asyncio
import contextlib
import os
import random
import socket
import ssl
import struct
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from headrace.client.errors import ConnectionLost, RequestTimeoutError, error_for
from headrace.client.faults import Faults, reason_of
from headrace.client.incoming import IncomingFrames
from headrace.client.security import authenticate, explain_tls
from headrace.client.settings import Address, ClientSettings
from headrace.client.usual import READERS, KeptFrames, UsualReader
from headrace.version import __version__
from headrace.wire.apis import (
    API_VERSIONS,
    NAMES,
    RequestHeader,
    read_response_header,
    response_class,
    write_request_header,
)
from headrace.wire.codec import MalformedMessage, UnsupportedField, read_message, write_message
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import Message
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from headrace.wire.tls import shake_hands

_LENGTH = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_CORRELATION_ID_AT = 8
"""In a frame: after its length, the API and the version."""
CORRELATION_ID_MAX = 2**31 - 1
CLOSE_S_MAX = 1.0
"""How long a broker may take to say farewell in TLS before the connection is cut."""
RELOGIN_AT = 0.75, 0.85
"""After which part of a session's life we log in again: a fetch that is held back may come before it in the line."""


OnDone = Callable[[Any, KafkaError | None], None]
"""Hears the response, or why there is none."""


class _SentRequest(NamedTuple):
    """A request that has been written and not been answered. Either `answer` or `on_done` is to hear of it."""

    api_key: int
    version: int
    answer: "asyncio.Future[Any] | None"
    on_done: OnDone | None
    due: float
    timeout_ms: float
    read_usual: UsualReader | None = None
    """Tried before the codec."""


class BrokerConnection(asyncio.BufferedProtocol):
    """An open connection. `versions` holds the broker's lowest and highest version of each API."""

    def __init__(self, address: Address, settings: ClientSettings) -> None:
        self.address = address
        self.versions: dict[int, tuple[int, int]] = {API_VERSIONS: (0, 0)}
        self.features: dict[str, int] = {}
        """The cluster's finalized features and their levels."""
        self.on_closed: Callable[[BrokerConnection], None] | None = None
        self.last_used: float = 0.0
        self._settings = settings
        self._faults = Faults(address, settings.security_protocol)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._incoming = IncomingFrames(settings.receive_message_max_bytes)
        self._waiting: dict[int, _SentRequest] = {}
        self._timer: asyncio.TimerHandle | None = None
        """One for all that waits: answers that come in time cost no timer."""
        self._timer_due = 0.0
        self._headers: dict[tuple[int, int], bytes] = {}
        """By API and version: the beginning of a frame, whose length and correlation id are still to be set."""
        self._kept = KeptFrames()
        self._chosen: dict[int, int] = {}
        self._correlation_id = 0
        self._why_closed: KafkaError | None = None
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._is_proven = False
        self._relogin: asyncio.TimerHandle | None = None
        self._logging_in: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls, address: Address, settings: ClientSettings, *, tls: ssl.SSLContext | None = None
    ) -> "BrokerConnection":
        """A connection that is ready for use: TLS agreed on, versions known, logged in.

        BrokerNotAvailableError when there is no broker to be reached, AuthenticationError when it does not let us in.
        """
        connection = cls(address, settings)
        timeout_s = settings.socket_connection_setup_timeout_ms / 1000
        try:
            async with asyncio.timeout(timeout_s):
                await connection._connect(tls)
                await connection._learn_versions()
                if settings.security_protocol.has_sasl:
                    await connection._log_in()
        except BaseException as error:
            await connection.close()
            if isinstance(error, ConnectionLost):
                raise connection._faults.unavailable(error.text, hung_up=error.hung_up) from None
            if isinstance(error, TimeoutError):
                raise connection._faults.unavailable(f"it could not be used within {timeout_s:g} s") from None
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._why_closed is None and self._transport is not None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def version_of(self, api_key: int, *, version_max: int | None = None) -> int:
        """The highest version that the broker, this client and `version_max` know; UnsupportedVersionError."""
        chosen = self._chosen.get(api_key)
        if chosen is None or (version_max is not None and chosen > version_max):
            low, high = response_class(api_key).VERSIONS
            broker_low, broker_high = self.versions.get(api_key, (0, -1))
            chosen = min(high, broker_high)
            if chosen < max(low, broker_low):
                raise self._faults.unsupported(api_key, (low, high), (broker_low, broker_high))
            self._chosen[api_key] = chosen
            if version_max is not None and chosen > version_max:
                chosen = version_max
                if chosen < max(low, broker_low):
                    raise self._faults.unsupported(api_key, (low, version_max), (broker_low, broker_high))
        return chosen

    async def send(
        self,
        request: Message,
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
        version_max: int | None = None,
    ) -> Any:
        """Sends a request and returns the response, as a message of the same version.

        ConnectionLost or RequestTimeoutError say that the outcome is unknown; UnsupportedVersionError that nothing
        was sent. `timeout_ms` is request.timeout.ms unless given.
        """
        if self._logging_in is not None:
            await asyncio.shield(self._logging_in)
        if version is None:
            version = self.version_of(request.API_KEY, version_max=version_max)
        return await self._post(
            request, version, self._settings.request_timeout_ms if timeout_ms is None else timeout_ms
        )

    @property
    def is_ready(self) -> bool:
        """Whether `post` writes at once: it is open, and does not log in again."""
        return self._logging_in is None and self.is_open

    def post(
        self,
        request: Message,
        on_done: OnDone,
        *,
        version_max: int | None = None,
        is_short: bool = False,
    ) -> bool:
        """`send` without a task: the request is written at once. False when that cannot be: then `send` waits.

        `on_done` is called as soon as the response is read, within the transport's callback. `is_short`: it takes a
        usual response in its short form (`core/usual.py`).
        """
        if self._logging_in is not None or self._why_closed is not None or self._transport is None:
            return False
        version = self.version_of(request.API_KEY, version_max=version_max)
        self._write(request, version, self._settings.request_timeout_ms, None, on_done, is_short)
        return True

    def tell(self, request: Message) -> None:
        """Writes a request that has no response (Produce with acks=0)."""
        if not self.is_ready:
            raise self._faults.lost(None if self._why_closed is None else self._why_closed.message)
        assert self._transport is not None
        _, frame = self._frame(request, self.version_of(request.API_KEY))
        self._transport.write(frame)
        self.last_used = self._loop.time()

    async def close(self) -> None:
        """Ends the connection; what still waits fails with ConnectionLost."""
        self._end(None)
        if self._transport is None:
            await asyncio.sleep(
                0
            )  # a transport that never got so far is closed by the loop, in its next turn
            return
        await asyncio.wait([self._closed], timeout=CLOSE_S_MAX)
        if not self._closed.done():
            self._transport.abort()
            await asyncio.wait([self._closed], timeout=CLOSE_S_MAX)

    def abandon(self) -> None:
        """Ends it without its event loop, which is closed: the broker sees that at once."""
        transport_socket = None if self._transport is None else self._transport.get_extra_info("socket")
        if transport_socket is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(transport_socket.fileno())) as own:
                own.shutdown(socket.SHUT_RDWR)

    def _post(self, request: Message, version: int, timeout_ms: float) -> "asyncio.Future[Any]":
        answer = self._loop.create_future()
        self._write(request, version, timeout_ms, answer, None)
        return answer

    def _write(
        self,
        request: Message,
        version: int,
        timeout_ms: float,
        answer: "asyncio.Future[Any] | None",
        on_done: OnDone | None,
        is_short: bool = False,
    ) -> None:
        if self._why_closed is not None or self._transport is None:
            raise self._faults.lost(None if self._why_closed is None else self._why_closed.message)
        correlation_id, frame = self._frame(request, version)
        now = self._loop.time()
        due = now + timeout_ms / 1000
        api_key = request.API_KEY
        read_usual = READERS.get((api_key, version)) if is_short else None
        self._waiting[correlation_id] = _SentRequest(
            api_key, version, answer, on_done, due, timeout_ms, read_usual
        )
        if self._timer is None or due < self._timer_due:
            self._set_timer(due)
        self._transport.write(frame)
        self.last_used = now

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._loop.call_at(due, self._check_late)

    def _frame(self, request: Message, version: int) -> tuple[int, bytearray]:
        correlation_id = self._correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        kept = self._kept.frame(request, version)
        if kept is not None:
            _LENGTH.pack_into(kept, _CORRELATION_ID_AT, correlation_id)
            return correlation_id, kept
        header = self._headers.get((request.API_KEY, version))
        if header is None:
            header = self._headers[request.API_KEY, version] = self._header(request.API_KEY, version)
        frame = bytearray(header)
        _LENGTH.pack_into(frame, _CORRELATION_ID_AT, correlation_id)
        try:
            write_message(request, version, frame)
        except UnsupportedField as error:
            raise error_for(ErrorCode.UNSUPPORTED_VERSION, str(error), about=self._faults.about) from None
        _LENGTH.pack_into(frame, 0, len(frame) - 4)
        self._kept.keep(request, version, frame)
        return correlation_id, frame

    def _header(self, api_key: int, version: int) -> bytes:
        frame = bytearray(4)
        write_request_header(frame, RequestHeader(api_key, version, 0, self._settings.client_id))
        return bytes(frame)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are no subclass of it

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._incoming.space()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._incoming.filled(nbytes):
                if self._why_closed is None:  # else what came before has ended the connection
                    self._answer(frame)
        except MalformedMessage as error:
            self._end(self._faults.no_kafka(error, was_proven=self._is_proven))

    def connection_lost(self, error: Exception | None) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
        if self._is_proven:
            self._end(self._faults.lost(f"the broker closed the connection{f' ({error})' if error else ''}"))
        elif isinstance(error, ssl.SSLError):  # TLS 1.3 refuses a client's certificate after the handshake
            self._end(explain_tls(error, about=self._faults.about))
        else:
            self._end(self._faults.lost(self._faults.hung_up_text(), hung_up=True))

    def _answer(self, frame: bytes) -> None:
        if len(frame) < 4:
            raise MalformedMessage(f"a response of {len(frame)} bytes")
        (correlation_id,) = _LENGTH.unpack_from(frame)
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None:
            raise MalformedMessage(f"a response to request {correlation_id}, which was not sent")
        api_key, version, answer, on_done, _, _, read_usual = waiting
        if answer is not None and answer.done():
            return  # its caller was canceled meanwhile
        if read_usual is not None and on_done is not None:
            usual = read_usual(frame)
            if usual is not None:
                self._is_proven = True
                self._tell(on_done, usual)
                return
        try:
            _, position = read_response_header(api_key, version, frame)
            if api_key == API_VERSIONS and _SHORT.unpack_from(frame, position)[0]:
                version = 0  # a broker that does not know our version answers in the first one, with an error
            response, end = read_message(response_class(api_key), version, frame, position)
            if end != len(frame):
                raise MalformedMessage(f"{len(frame) - end} unexpected bytes after the response")
        except (MalformedMessage, struct.error) as error:
            self._waiting[correlation_id] = waiting
            raise MalformedMessage(
                f"the response to {NAMES[api_key]} v{version} cannot be read: {error}"
            ) from None
        if api_key != API_VERSIONS:  # which every listener answers, whatever it wants to hear next
            self._is_proven = True
        if answer is not None:
            answer.set_result(response)
        elif on_done is not None:
            self._tell(on_done, response)

    def _tell(self, on_done: OnDone, response: Any) -> None:
        try:
            on_done(response, None)
        except Exception as error:  # its own fault, for which the connection is not to end
            self._loop.call_exception_handler({"message": "on_done has failed", "exception": error})

    def _check_late(self) -> None:
        """The oldest answer is late, or it came in time and the next one is awaited."""
        self._timer = None
        if not self._waiting:
            return
        correlation_id, first = min(self._waiting.items(), key=lambda item: item[1].due)
        if first.due > self._timer_due:
            self._set_timer(first.due)
            return
        del self._waiting[correlation_id]
        within = f"within {first.timeout_ms / 1000:g} s"
        name = NAMES[first.api_key]
        error = error_for(
            ErrorCode.REQUEST_TIMED_OUT, f"no answer to {name} {within}", about=self._faults.about
        )
        assert isinstance(error, RequestTimeoutError)
        self._fail(first, error)
        self._end(self._faults.lost(f"it was closed because {name} was not answered {within}"))

    def _fail(self, waiting: _SentRequest, error: KafkaError) -> None:
        """Soon: whoever hears of it may use the connection that is just being ended."""
        if waiting.on_done is not None:
            self._loop.call_soon(waiting.on_done, None, error)
        elif waiting.answer is not None and not waiting.answer.done():
            waiting.answer.set_exception(error)

    def _end(self, why: KafkaError | None) -> None:
        """The first call decides; those after it change nothing."""
        if self._why_closed is None:
            self._why_closed = why or self._faults.lost("it was closed here")
            waiting, self._waiting = self._waiting, {}
            if self._timer is not None:
                self._timer.cancel()
            for each in waiting.values():
                self._fail(each, self._why_closed)
            if self._relogin is not None:
                self._relogin.cancel()
            if self._transport is not None:
                self._transport.abort() if why else self._transport.close()
            if self.on_closed is not None:
                self.on_closed(self)

    async def _connect(self, tls: ssl.SSLContext | None) -> None:
        host, port = self.address
        try:
            opening = self._loop.create_connection(lambda: self, host, port, ssl=tls)
            await (opening if tls is None else shake_hands(opening))
        except (ConnectionResetError, ssl.SSLEOFError):
            raise self._faults.unavailable(self._faults.hung_up_text(), hung_up=True) from None
        except ssl.SSLError as error:
            raise explain_tls(error, about=self._faults.about) from None
        except OSError as error:
            raise self._faults.unavailable(reason_of(error)) from None

    async def _learn_versions(self) -> None:
        request = ApiVersionsRequest(client_software_name="headrace", client_software_version=__version__)
        high = ApiVersionsRequest.VERSIONS[1]
        timeout_ms = self._settings.socket_connection_setup_timeout_ms
        response: ApiVersionsResponse = await self._post(request, high, timeout_ms)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            highest = max((v.max_version for v in response.api_keys if v.api_key == API_VERSIONS), default=0)
            response = await self._post(request, min(high, highest), timeout_ms)
        if response.error_code:
            raise error_for(response.error_code, about=self._faults.about)
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        self.features = {each.name: each.max_version_level for each in response.finalized_features}

    async def _log_in(self) -> None:
        """Also while the connection is in use (KIP-368): then requests wait, and those under way are answered."""
        timeout_ms = self._settings.request_timeout_ms  # a fetch before it may be held back for long

        async def ask(request: Message) -> Any:
            return await self._post(request, self.version_of(request.API_KEY), timeout_ms)

        lifetime_ms = await authenticate(ask, self._settings, about=self._faults.about)
        if lifetime_ms > 0:
            wait_s = lifetime_ms * random.uniform(*RELOGIN_AT) / 1000
            self._relogin = self._loop.call_later(wait_s, self._log_in_again)

    def _log_in_again(self) -> None:
        self._logging_in = self._loop.create_task(self._log_in())
        self._logging_in.add_done_callback(self._logged_in_again)

    def _logged_in_again(self, task: "asyncio.Task[None]") -> None:
        self._logging_in = None
        error = None if task.cancelled() else task.exception()
        if isinstance(error, KafkaError):
            self._end(error)
