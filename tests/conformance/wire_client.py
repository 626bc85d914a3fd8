"""A client that says exactly what a test wants said: any message in any version, or any bytes."""

import socket
import struct
from types import TracebackType
from typing import Any, Self

from headrace.wire.apis import (
    NAMES,
    RequestHeader,
    read_response_header,
    request_class,
    response_class,
    write_request_header,
)
from headrace.wire.codec import read_message, write_message
from headrace.wire.message import Message
from tests.conformance.plain import build

TIMEOUT_S = 60
NEVER_MS = 10 * TIMEOUT_S * 1000
"""For a request that something must end before its time: if nothing does, the test fails by its own timeout."""
KEYS = {name: key for key, name in NAMES.items()}


class WireClient:
    """One connection. `send` is one request and its response; `post` and `receive` are its two halves."""

    def __init__(
        self, bootstrap_servers: str, *, client_id: str | None = "conformance", timeout_s: float = TIMEOUT_S
    ):
        host, _, port = bootstrap_servers.split(",")[0].rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self._client_id = client_id
        self._correlation_id = 0
        self._posted: dict[int, tuple[int, int]] = {}

    def send(self, request: Message, version: int) -> Any:
        """Sends a request and returns the response to it, read with the same version."""
        self.post(request, version)
        return self.receive()

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        """Sends the request of an API by its name, with these fields (structs as dictionaries); its response."""
        return self.send(build(request_class(KEYS[api]), fields), version)

    def post(self, request: Message, version: int) -> int:
        """Sends a request without waiting for the response; returns its correlation id."""
        self._correlation_id += 1
        self._posted[self._correlation_id] = (request.API_KEY, version)
        frame = bytearray()
        write_request_header(
            frame, RequestHeader(request.API_KEY, version, self._correlation_id, self._client_id)
        )
        write_message(request, version, frame)
        self.send_frame(bytes(frame))
        return self._correlation_id

    def post_ask(self, api: str, version: int, **fields: Any) -> int:
        """`ask` without waiting for the response."""
        return self.post(build(request_class(KEYS[api]), fields), version)

    def receive(self) -> Any:
        """The next response on this connection; it must be to a request that was posted."""
        frame = self.receive_frame()
        assert frame is not None, "the broker closed the connection"
        (correlation_id,) = struct.unpack_from(">i", frame)
        api_key, version = self._posted.pop(correlation_id)
        _, position = read_response_header(api_key, version, frame)
        response, end = read_message(response_class(api_key), version, frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes follow the response"
        return response

    def send_frame(self, body: bytes) -> None:
        """Sends bytes of your own behind the length they have."""
        self.send_bytes(struct.pack(">i", len(body)) + body)

    def send_bytes(self, data: bytes) -> None:
        """Sends bytes as they are, without a length before them."""
        self._socket.sendall(data)

    def receive_frame(self) -> bytes | None:
        """The bytes of the next response without their length, or None when the broker closed the connection."""
        length = self._receive_bytes(4)
        return None if length is None else self._receive_bytes(struct.unpack(">i", length)[0])

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive_bytes(self, count: int) -> bytes | None:
        data = bytearray()
        while len(data) < count:
            try:
                piece = self._socket.recv(count - len(data))
            except ConnectionResetError:
                return None
            if not piece:
                return None
            data += piece
        return bytes(data)
