"""Small servers that do what a healthy broker never does: answer wrongly, late, or not at all.

`Service` hands every connection to a function of yours. `ScriptedBroker` reads requests and answers them by functions
per API, so that a test can say exactly what comes back. `Relay` stands between a client and a real broker.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self

from headrace import Broker
from headrace.testing.apache_kafka import free_ports
from headrace.wire.apis import NAMES, read_request_header, request_class, response_header_has_tags
from headrace.wire.codec import encode, read_message
from headrace.wire.message import Message
from headrace.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Answer = Message | bytes | None
"""A message, bytes to be sent as they are, or nothing at all."""


class Service:
    """Listens on a free port and gives each connection to `handler`. `connections` counts them."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.connections = 0

    @property
    def port(self) -> int:
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._handler(reader, writer)
        except (asyncio.CancelledError, ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


class ScriptedBroker(Service):
    """Answers by `answers[api name](request, version)`; knows every API of ours in every version."""

    def __init__(
        self,
        answers: Mapping[str, Callable[[Any, int], Answer]],
        *,
        versions: Mapping[int, tuple[int, int]] | None = None,
    ) -> None:
        super().__init__(self._talk)
        self.answers = dict(answers)
        self.asked: list[tuple[str, Any]] = []
        known = {key: request_class(key).VERSIONS for key in NAMES} if versions is None else versions
        self._versions = ApiVersionsResponse(
            api_keys=[
                ApiVersion(api_key=key, min_version=low, max_version=high)
                for key, (low, high) in known.items()
            ]
        )

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            (length,) = struct.unpack(">i", await reader.readexactly(4))
            frame = await reader.readexactly(length)
            header, position = read_request_header(frame)
            name, version = NAMES[header.api_key], header.api_version
            request, _ = read_message(request_class(header.api_key), version, frame, position)
            self.asked.append((name, request))
            answer = self._answer(name, request, version)
            if isinstance(answer, Message):
                tags = b"\0" if response_header_has_tags(header.api_key, version) else b""
                body = struct.pack(">i", header.correlation_id) + tags + encode(answer, version)
                answer = struct.pack(">i", len(body)) + body
            if answer is not None:
                writer.write(answer)
                await writer.drain()

    def _answer(self, name: str, request: Any, version: int) -> Answer:
        if name in self.answers:
            return self.answers[name](request, version)
        assert name == "api_versions", f"no answer to {name} in the script"
        return self._versions


class Relay(Service):
    """Passes bytes on between clients and `target`. `cut` ends all connections; `change` may alter what comes back."""

    def __init__(self, target: str | None = None) -> None:
        super().__init__(self._pass_on)
        self.target = target
        self.change: Callable[[bytes], bytes] = lambda data: data
        self.is_holding_back = False
        self._writers: set[asyncio.StreamWriter] = set()

    @contextmanager
    def behind(self, **keywords: Any) -> Iterator[Broker]:
        """A broker that tells its clients to come to this relay."""
        (port,) = free_ports(1)
        self.target = f"127.0.0.1:{port}"
        settings = {"advertised.listeners": f"PLAINTEXT://{self.address}"}
        with Broker(port=port, settings=settings, **keywords) as broker:
            yield broker

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    def lose_answer(self, broker: Broker, topic: str) -> None:
        """Cuts the connections instead of answering the write of the first records of partition 0."""

        def change(data: bytes) -> bytes:
            if not broker.core.topics.require(topic, 0).log.end_offset:
                return data
            self.change = lambda data: data
            self.cut()
            return b""

        self.change = change

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.target is None:
            return
        host, _, port = self.target.rpartition(":")
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        self._writers |= {writer, far_writer}
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, far_writer, is_answer=False))
                both.create_task(self._copy(far_reader, writer, is_answer=True))
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers -= {writer, far_writer}
            far_writer.transport.abort()

    async def _copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        while data := await reader.read(65_536):
            if is_answer and self.is_holding_back:
                continue
            writer.write(self.change(data) if is_answer else data)
            await writer.drain()
        raise ConnectionResetError("one side has closed")
