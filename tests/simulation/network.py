"""Connections between simulated clients and the broker's real `Connection` objects.

A `Link` is the client's end. What it sends waits in `to_broker` until the scheduler delivers it, whole or in
pieces; what the broker writes is there for the client at once, unless the client does not read or the link is
cut.
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.wire.apis import (
    NAMES,
    RequestHeader,
    read_response_header,
    response_class,
    write_request_header,
)
from headrace.wire.codec import read_message, write_message
from headrace.wire.message import Message
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

HIGH_WATER = 4 * 1024
CHUNK_MAX = 8 * 1024
"""The broker is given at most so many bytes at once."""
_LENGTH = struct.Struct(">i")


class Pending:
    """A request on its way, and what became of it."""

    __slots__ = (
        "api_key", "correlation_id", "is_done", "is_lost", "is_quiet", "on_answer", "request", "response",
        "sent_ms", "timeout_ms", "version",
    )  # fmt: skip

    def __init__(
        self, request: Message, version: int, correlation_id: int, sent_ms: int, timeout_ms: int
    ) -> None:
        self.request = request
        self.api_key = request.API_KEY
        self.version = version
        self.correlation_id = correlation_id
        self.sent_ms = sent_ms
        self.timeout_ms = timeout_ms
        """Within so much virtual time it is answered, or its connection closed."""
        self.response: Any = None
        self.is_done = False
        """Answered or lost."""
        self.is_lost = False
        self.is_quiet = False
        """There will be no answer: produce with acks=0."""
        self.on_answer: Callable[[Pending], None] | None = None
        """Called when the answer arrives, before anything else happens."""


class Transport:
    """The broker's end of a link, as asyncio would give it."""

    def __init__(self, link: "Link") -> None:
        self._link = link
        self._is_closing = False
        self.is_reading = True
        self.unsent = 0
        """Bytes that the client has not read."""
        self._is_paused = False
        self.writes_while_full = 0
        """Since the broker was told that the client does not read."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (f"10.0.0.{self._link.number % 250}", 1) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._is_closing:
            return
        self._link.arrived(bytes(data))
        if not self._link.is_reading:
            self.unsent += len(data)
            self.writes_while_full += self._is_paused
            if self.unsent > HIGH_WATER and not self._is_paused:
                self._is_paused = True
                self._link.protocol.pause_writing()

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def drained(self) -> None:
        self.unsent = self.writes_while_full = 0
        if self._is_paused:
            self._is_paused = False
            self._link.world.turn(self._link.protocol.resume_writing)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._link.world.loop.call_soon(self._link.closed_by_broker)

    abort = close


class Link:
    """One connection of one client."""

    def __init__(self, world: "World", number: int, owner: str) -> None:
        self.world = world
        self.number = number
        self.owner = owner
        self.is_open = True
        self.is_reading = True
        self.to_broker = bytearray()
        self.unread: list[bytes] = []
        self.largest_request = 0
        self._received = bytearray()
        self._waiting: deque[Pending] = deque()
        self._correlation_id = 0
        assert world.loop.listener is not None
        self.protocol: Any = world.loop.listener.make_protocol()
        self.transport = Transport(self)
        world.turn(self.protocol.connection_made, self.transport)

    @property
    def in_flight(self) -> list[Pending]:
        return list(self._waiting)

    def send(
        self, request: Message, version: int, *, timeout_ms: int = 30_000, is_quiet: bool = False
    ) -> Pending:
        self._correlation_id += 1
        pending = Pending(request, version, self._correlation_id, self.world.clock.monotonic_ms(), timeout_ms)
        frame = bytearray(4)
        write_request_header(frame, RequestHeader(request.API_KEY, version, self._correlation_id, self.owner))
        write_message(request, version, frame)
        _LENGTH.pack_into(frame, 0, len(frame) - 4)
        self.world.stats.requests[request.API_KEY] += 1
        self.world.trail.note_bytes(
            f"send {self.owner} {NAMES[request.API_KEY]} v{version}",
            frame,
            repr(request) if self.world.trail.is_recorded else "",
        )
        self.to_broker += frame
        self.largest_request = max(self.largest_request, len(frame))
        if is_quiet:
            pending.is_done = pending.is_quiet = True
        else:
            self._waiting.append(pending)
        if not self.is_open:
            self._lose_all()
        return pending

    def deliver(self, size: int | None = None) -> bool:
        """The broker gets the first `size` bytes (all) of what was sent. Whether it has taken any."""
        if (
            not self.is_open
            or not self.to_broker
            or not self.transport.is_reading
            or self.transport.is_closing()
        ):
            return False
        data = bytes(self.to_broker[: min(size or CHUNK_MAX, CHUNK_MAX)])
        del self.to_broker[: len(data)]
        self.world.turn(self.protocol.data_received, data)
        return True

    def arrived(self, data: bytes) -> None:
        if self.is_reading:
            self._read(data)
        else:
            self.unread.append(data)

    def read_again(self) -> None:
        self.is_reading = True
        unread, self.unread = self.unread, []
        for data in unread:
            self._read(data)
        self.transport.drained()

    def _read(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            (length,) = _LENGTH.unpack_from(self._received)
            if len(self._received) < 4 + length:
                return
            frame = bytes(self._received[4 : 4 + length])
            del self._received[: 4 + length]
            self._answered(frame)

    def _answered(self, frame: bytes) -> None:
        if not self._waiting:
            raise Violation("an answer nobody asked for", f"{len(frame)} bytes to {self.owner}")
        pending = self._waiting.popleft()
        correlation_id, position = read_response_header(pending.api_key, pending.version, frame)
        if correlation_id != pending.correlation_id:
            raise Violation(
                "answers out of order", f"{self.owner}: {correlation_id} instead of {pending.correlation_id}"
            )
        pending.response, _ = read_message(response_class(pending.api_key), pending.version, frame, position)
        self.world.trail.note_bytes(
            f"answer {self.owner} {NAMES[pending.api_key]}",
            frame,
            repr(pending.response) if self.world.trail.is_recorded else "",
        )
        pending.is_done = True
        if pending.on_answer is not None:
            pending.on_answer(pending)

    def cut(self) -> None:
        """The client goes away, or the network does: the broker hears of it, what was under way is lost."""
        if self.is_open:
            self.world.trail.note(f"cut {self.owner}")
            self.is_open = False
            self.transport._is_closing = True
            self._lose_all()
            self.world.turn(self.protocol.connection_lost, None)

    def closed_by_broker(self) -> None:
        if self.is_open:
            self.world.trail.note(f"closed {self.owner}")
            self.is_open = False
            self._lose_all()
            self.protocol.connection_lost(None)

    def broker_died(self) -> None:
        self.is_open = False
        self._lose_all()

    def _lose_all(self) -> None:
        self.unread.clear()
        self.to_broker.clear()
        while self._waiting:
            pending = self._waiting.popleft()
            pending.is_done = pending.is_lost = True
