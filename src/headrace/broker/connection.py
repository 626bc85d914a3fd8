"""One client's connection: bytes in, requests in order, responses in the same order, everything bounded.

A client may send its next requests before the answer to the first. We take them one at a time, as Kafka does, with
one exception: produce requests go on while earlier ones wait for the disk, so that one fdatasync serves many. Responses
always leave in the order of the requests. While a client does not read its responses, or has enough of its requests
waiting here, we stop reading from it: it holds back nobody but itself. Responses that become ready in one turn of the
loop leave in one write: for a small one the system call costs more than all else (see docs/benchmarks.md).
"""

import asyncio
import logging
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from headrace.broker.call import ANONYMOUS, Call, CloseConnection
from headrace.broker.elements import SETTING, elements_max, refusal
from headrace.broker.handlers import served_versions
from headrace.broker.later import Later
from headrace.wire.apis import (
    API_VERSIONS,
    RequestHeader,
    read_request_header,
    request_class,
    response_header_has_tags,
)
from headrace.wire.codec import Gathered, MalformedMessage, TooManyElements, read_message, write_message
from headrace.wire.errors import ErrorCode
from headrace.wire.frames import FrameBuffer
from headrace.wire.message import Message

if TYPE_CHECKING:
    from headrace.broker.server import Server

logger = logging.getLogger("headrace.broker")

PRODUCE = 0
PRODUCE_KEY = b"\x00\x00"
CARRY_RECORDS = frozenset({1, 78})
"""Fetch and ShareFetch: their responses may be large, and their records are not copied."""
IN_FLIGHT_MAX = 32
"""Produce requests of one connection that may wait for the disk at once."""
WAITING_BYTES_MAX = 1 << 20
"""Whole requests kept in memory per connection before we stop reading; a single larger one is let in alone."""
FRAME_COST = 64
"""What a waiting request costs beside its bytes: without it, empty frames would cost nothing and could pile up."""
REQUESTS_PER_TURN = 32
"""Waiting requests that one turn of the loop handles: others wait for the turn to end."""
OTHER_COST = 8
"""A request that is not a produce request counts for so many. Clients seldom send several of them at once."""
OUTGOING_BYTES_MAX = 1 << 16
"""Responses gathered for one write; with more they leave at once, so that the transport can hold us back."""
_LENGTH = struct.Struct(">i")
_HEAD = struct.Struct(">ii")


class Slot:
    """The place of one response in the order of a connection's responses."""

    __slots__ = ("data", "is_ready", "later")

    def __init__(self) -> None:
        self.data: bytearray | None = None
        self.is_ready = False
        self.later: Later[Message] | None = None


class Connection(asyncio.Protocol):
    def __init__(self, server: "Server", connection_id: int, listener: str = "PLAINTEXT") -> None:
        self._server = server
        self._core = server.core
        self.id = connection_id
        self.listener = listener
        self.principal = ANONYMOUS
        self._frames = FrameBuffer(server.core.settings.get_int("socket.request.max.bytes"))
        self._elements_max = server.core.settings.get_int(SETTING)
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._slots: deque[Slot] = deque()
        self._outgoing: list[bytes | bytearray] = []
        self._outgoing_bytes = 0
        self._only_produces_wait = True
        self._is_writable = True
        self._is_reading = True
        self._is_pumping = False
        self._is_to_go_on = False
        self.address = ""
        self.last_active_s = 0.0
        self.is_counted = False
        """Whether the limits on connections know of it already: they do if it came through a TLS handshake."""
        self.certificate_principal: Callable[[bytes | None], str] | None = None
        """Who a client with this certificate is. Behind TLS only."""
        self.known_by_s: float | None = None
        """A client that has not logged in by then is cut off."""
        self.on_close: list[Callable[[], None]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else "local"
        self.last_active_s = self._server.loop.time()
        self._server.opened(self)
        if self.certificate_principal is not None:
            self._know_by_certificate(self.certificate_principal)

    def wait_for_turn(self, wait_s: float) -> None:
        """Nothing is read for so long: connections come faster than they may."""
        self._transport.pause_reading()
        self._is_reading = False
        if self.known_by_s is not None:
            self.known_by_s += wait_s
        self._server.loop.call_later(wait_s, self._steer_reading)

    def _know_by_certificate(self, principal_of: Callable[[bytes | None], str]) -> None:
        try:
            certificate = self._transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
            self.principal = principal_of(certificate)
        except Exception as error:  # nobody has vouched for what is in it
            self._refuse(f"the client's certificate cannot be used: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._core.outgoing.relieved(self.id)
        for slot in self._slots:
            if slot.later is not None:
                slot.later.abandon()
        self._slots.clear()
        self._waiting.clear()
        self._outgoing.clear()
        self._server.closed(self)
        for callback in self.on_close:
            callback()
        self._server.settle()

    def close(self) -> None:
        self.write_outgoing()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def close_or_abort(self) -> None:
        """Closing waits until the client has read what it was sent. Who does not even do that is cut off."""
        if self._transport.is_closing():
            self._transport.abort()
        else:
            self.close()

    def write_outgoing(self) -> None:
        """Hands what was gathered to the transport. The server calls it at the end of each turn."""
        outgoing = self._outgoing
        if outgoing:
            is_large = self._outgoing_bytes > OUTGOING_BYTES_MAX
            self._outgoing = []
            self._outgoing_bytes = 0
            if self._transport.is_closing():
                return
            if is_large:
                self._transport.writelines(outgoing)
            else:
                self._transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _send(self, data: bytearray) -> None:
        if not self._outgoing:
            self._server.will_write(self)
        if type(data) is Gathered:
            self._outgoing += data.pieces()
            self._outgoing_bytes += data.size
        else:
            self._outgoing.append(data)
            self._outgoing_bytes += len(data)
        if self._outgoing_bytes > OUTGOING_BYTES_MAX:
            self.write_outgoing()

    def data_received(self, data: bytes) -> None:
        self.last_active_s = self._server.loop.time()
        try:
            frames = self._frames.feed(data)
        except MalformedMessage as error:
            self._refuse(str(error))
            return
        for frame in frames:
            self._waiting.append(frame)
            self._waiting_bytes += FRAME_COST + len(frame)
        self._pump()
        self._server.settle()

    def pause_writing(self) -> None:
        self._is_writable = False
        self._core.outgoing.congested(self.id, self._transport.get_write_buffer_size, self.abort)

    def resume_writing(self) -> None:
        self._is_writable = True
        self._core.outgoing.relieved(self.id)
        self._pump()
        self._server.settle()

    def _pump(self) -> None:
        """Handles as many waiting requests as may be handled now, and some of them in the next turn of the loop."""
        if self._is_pumping:
            return
        if self._is_to_go_on:
            self._steer_reading()
            return
        self._is_pumping = True
        left = REQUESTS_PER_TURN
        try:
            while self._waiting and self._may_start():
                if left <= 0:
                    self._is_to_go_on = True
                    self._server.loop.call_soon(self._go_on)
                    break
                frame = self._waiting.popleft()
                left -= 1 if frame.startswith(PRODUCE_KEY) else OTHER_COST
                self._waiting_bytes -= FRAME_COST + len(frame)
                try:
                    self._start(frame)
                except (
                    Exception
                ):  # whoever let us go on also answers other connections: they must not suffer for it
                    logger.exception("connection %d from %s is closed", self.id, self.address)
                    self.close()
        finally:
            self._is_pumping = False
        self._steer_reading()

    def _go_on(self) -> None:
        self._is_to_go_on = False
        self._pump()
        self._server.settle()

    def _may_start(self) -> bool:
        if not self._is_writable or self._transport.is_closing():
            return False
        if not self._slots:
            return True
        is_produce = self._waiting[0].startswith(PRODUCE_KEY)
        if not is_produce or not self._only_produces_wait or len(self._slots) >= IN_FLIGHT_MAX:
            return False
        last = self._slots[-1].later
        return last is None or last.is_done or not last.is_exclusive

    def _steer_reading(self) -> None:
        should_read = self._waiting_bytes < WAITING_BYTES_MAX
        if should_read != self._is_reading and not self._transport.is_closing():
            self._is_reading = should_read
            if should_read:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def _start(self, frame: bytes) -> None:
        began_s = time.perf_counter()
        try:
            header, position = read_request_header(frame)
            versions = served_versions(header.api_key)
            if versions is None or not versions[0] <= header.api_version <= versions[1]:
                self._answer_unsupported(header)
                return
            request = self._read(header, frame, position)
        except MalformedMessage as error:
            self._refuse(str(error))
            return
        _, api_version, correlation_id, client_id = header
        host = "/" + self.address
        call = Call(api_version, correlation_id, client_id, host, self.id, self.principal, self.listener)
        try:
            result = self._core.handle(request, call)
        except CloseConnection as reason:
            self._refuse(str(reason))
            return
        if isinstance(result, Later):
            self._wait(result, header, request, call, began_s)
            return
        self._core.request_metrics.answered(header.api_key, result, began_s)
        if result is not None:
            self._respond(self._encode(header, result))

    def _read(self, header: RequestHeader, frame: bytes, position: int) -> Message:
        api_key = header.api_key
        most = elements_max(self._elements_max, api_key)
        try:
            request, _ = read_message(
                request_class(api_key), header.api_version, frame, position, elements_max=most
            )
        except TooManyElements:
            raise MalformedMessage(refusal(self._elements_max, api_key)) from None
        return request

    def _wait(
        self, later: Later[Any], header: RequestHeader, request: Message, call: Call, began_s: float
    ) -> None:
        answered = self._core.request_metrics.answered
        if later.is_done:
            try:
                response = later.value
            except Exception as error:
                response = self._core.failed(request, call, error)
            answered(header.api_key, response, began_s)
            if response is not None:
                self._respond(self._encode(header, response))
            return
        slot = Slot()
        slot.later = later
        self._only_produces_wait = header.api_key == PRODUCE
        later.on_shared = self._pump
        self._slots.append(slot)

        def done(response: Message | None) -> None:
            answered(header.api_key, response, began_s)
            try:
                slot.data = bytearray() if response is None else self._encode(header, response)
            except Exception:
                logger.exception(
                    "the response to API %d v%d cannot be encoded", header.api_key, header.api_version
                )
                self.close()
                return
            slot.is_ready = True
            self._flush()

        def failed(error: Exception) -> None:
            try:
                response = self._core.failed(request, call, error)
            except CloseConnection as reason:
                self._refuse(str(reason))
                return
            done(response)

        later.then(done, failed)

    def _respond(self, data: bytearray) -> None:
        if not self._slots:
            self._send(data)
            return
        slot = Slot()
        slot.data = data
        slot.is_ready = True
        self._slots.append(slot)

    def _flush(self) -> None:
        """Sends the responses that are ready and whose turn it is, then goes on with waiting requests."""
        if self._transport.is_closing():
            return
        while self._slots and self._slots[0].is_ready:
            data = self._slots.popleft().data
            assert data is not None
            self._send(data)
        if not self._slots:
            self._only_produces_wait = True
        self._pump()

    def _encode(self, header: RequestHeader, response: Message, version: int | None = None) -> bytearray:
        start = _HEAD.pack(0, header.correlation_id)
        out = Gathered(start) if header.api_key in CARRY_RECORDS else bytearray(start)
        if version is None and response_header_has_tags(header.api_key, header.api_version):
            out.append(0)
        write_message(response, header.api_version if version is None else version, out)
        _LENGTH.pack_into(out, 0, (out.size if type(out) is Gathered else len(out)) - 4)
        return out

    def _answer_unsupported(self, header: RequestHeader) -> None:
        """An ApiVersions that is too new is told in version 0 what we speak; anything else ends the connection."""
        if header.api_key != API_VERSIONS:
            self._refuse(f"API {header.api_key} version {header.api_version} is not served here")
            return
        from headrace.broker.handlers import api_versions

        response = api_versions.response_for(self._core, 0, ErrorCode.UNSUPPORTED_VERSION)
        self._respond(self._encode(header, response, version=0))

    def _refuse(self, why: str) -> None:
        logger.warning("closing connection %d from %s: %s", self.id, self.address, why)
        self.close()
