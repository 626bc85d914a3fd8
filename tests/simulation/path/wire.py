"""The network between a node and the broker: bytes in order, each with its time of arrival; and what is read off them.

A wire reads along: it knows when a request was written by the sender's clock, and which acquisitions of the broker's
engine a response carries. While a coordinator moves (`world.is_moving`), requests that need it are answered as a broker
would that is not the coordinator, or has not loaded it yet: those for the group's coordinator never reach the broker;
those for a partition's leader reach it without the acknowledgements, which could not be written down.
"""

import asyncio
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headrace.wire.apis import (
    NAMES,
    RequestHeader,
    read_request_header,
    read_response_header,
    request_class,
    response_class,
    response_header_has_tags,
    write_request_header,
)
from headrace.wire.codec import read_message, write_message
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import share_acknowledge_response as acking
from headrace.wire.messages import share_fetch_response as fetching
from headrace.wire.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse
from tests.simulation.network import Link

if TYPE_CHECKING:
    from tests.simulation.path.model import Acquisition
    from tests.simulation.path.node import Node
    from tests.simulation.path.world import PathWorld

FIND_COORDINATOR, HEARTBEAT, SHARE_FETCH, SHARE_ACKNOWLEDGE = 10, 76, 78, 79
ELSEWHERE = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
)
_LENGTH = struct.Struct(">i")


@dataclass
class Asked:
    """A request, and what is known of it."""

    header: RequestHeader
    request: Any
    sent_ms: int
    """By the sender's clock."""
    code: ErrorCode | None = None
    """Its acknowledgements were taken out, and are answered with this."""


@dataclass
class Answered:
    """A share fetch or acknowledge response as it was written."""

    asked: Asked
    response: Any
    acquired: "dict[tuple[bytes, int, int], Acquisition]" = field(default_factory=dict)
    """By topic id, partition and offset."""


Way = deque[tuple[int, bytes | None, Answered | None]]
"""What is under way: its time of arrival, the bytes (None is the end), and what is known of them."""


class ClientTransport(asyncio.Transport):
    """The client's end of a wire."""

    def __init__(self, wire: "Wire") -> None:
        super().__init__()
        self._wire = wire
        self._is_closing = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def is_closing(self) -> bool:
        return self._is_closing

    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        if not self._is_closing:
            self._wire.written(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._wire.closed_by_client()

    abort = close


class Wire(Link):
    world: "PathWorld"

    def __init__(self, world: "PathWorld", number: int, node: "Node", client: Any) -> None:
        super().__init__(world, number, node.name)
        self.node = node
        self.client = client
        self.client_transport = ClientTransport(self)
        self.is_hanging = False
        """Nothing arrives any more, on either side, and nobody is told."""
        self.knows_end = False
        """The client has been told that it is over."""
        self._to_broker: Way = deque()
        self._to_client: Way = deque()
        self._sent = bytearray()
        self._answers = bytearray()
        self._asked: dict[int, Asked] = {}

    # The client's side

    def written(self, data: bytes) -> None:
        self._sent += data
        for frame in _cut(self._sent):
            self._request(frame)

    def _request(self, frame: bytes) -> None:
        header, position = read_request_header(frame)
        request, _ = read_message(request_class(header.api_key), header.api_version, frame, position)
        self.world.stats.requests[header.api_key] += 1
        self.world.trail.note_bytes(
            f"send {self.owner} {NAMES[header.api_key]} v{header.api_version}",
            frame,
            repr(request) if self.world.trail.is_recorded else "",
        )
        asked = self._asked[header.correlation_id] = Asked(header, request, self.node.now_ms())
        if self.world.is_moving and not self.is_hanging and self._answer_elsewhere(asked):
            return
        if asked.code is not None:
            frame = _without_acknowledgements(frame)
        self._put(self._to_broker, _LENGTH.pack(len(frame)) + frame)

    def _answer_elsewhere(self, asked: Asked) -> bool:
        """What a coordinator that moves does to a request; True when the broker is not to get it."""
        world, key, request = self.world, asked.header.api_key, asked.request
        if world.rng.random() < 0.3:
            return False
        code = world.rng.choice(ELSEWHERE)
        response: Any
        if key == HEARTBEAT:
            response = ShareGroupHeartbeatResponse(error_code=code)
        elif key == FIND_COORDINATOR:
            response = FindCoordinatorResponse(
                coordinators=[
                    Coordinator(key=one, node_id=-1, host="", port=-1, error_code=ELSEWHERE[2])
                    for one in request.coordinator_keys
                ]
            )
        else:
            if key in (SHARE_FETCH, SHARE_ACKNOWLEDGE) and _acknowledged(request):
                asked.code = code
                world.stats.faults["state coordinator away"] += 1
            return False
        world.stats.faults["group coordinator away"] += 1
        self._put(self._to_client, _response(asked.header, response))
        return True

    def closed_by_client(self) -> None:
        self._put(self._to_broker, None)
        self.node.loop.call_soon(self._tell_client)

    def _tell_client(self) -> None:
        if not self.knows_end:
            self.knows_end = True
            self.client_transport._is_closing = True
            self.client.connection_lost(None)

    # The broker's side

    def arrived(self, data: bytes) -> None:
        self._answers += data
        for frame in _cut(self._answers):
            self._put(self._to_client, *self._response(frame))

    def _response(self, frame: bytes) -> tuple[bytes, Answered | None]:
        (correlation_id,) = _LENGTH.unpack_from(frame)
        asked = self._asked.pop(correlation_id)
        key, version = asked.header.api_key, asked.header.api_version
        answered, text = None, ""
        if key in (SHARE_FETCH, SHARE_ACKNOWLEDGE):
            _, position = read_response_header(key, version, frame)
            response, _ = read_message(response_class(key), version, frame, position)
            if asked.code is not None:
                if response.error_code == ErrorCode.NONE:
                    _refuse(response, asked)
                frame = _response(asked.header, response)[4:]
            answered = Answered(asked, response)
            self.world.path.answered(answered)
            text = repr(response) if self.world.trail.is_recorded else ""
        self.world.trail.note_bytes(f"answer {self.owner} {NAMES[key]}", frame, text)
        return _LENGTH.pack(len(frame)) + frame, answered

    def cut(self) -> None:
        """What is under way is lost, on both ways or on one."""
        if self.is_open:
            self.world.trail.note(f"cut {self.owner}")
            if self.world.rng.random() < 0.5:
                self.drop_answers()
            self._to_broker.clear()
            self._end()
            self.world.turn(self.protocol.connection_lost, None)

    def drop_answers(self) -> None:
        self._to_client = deque()

    def closed_by_broker(self) -> None:
        if self.is_open:
            self.world.trail.note(f"closed {self.owner}")
            self._end()
            self.protocol.connection_lost(None)

    def broker_died(self) -> None:
        if self.is_open:
            if self.world.rng.random() < 0.5:
                self.drop_answers()
            self._end()

    def _end(self) -> None:
        self.is_open = False
        self.transport._is_closing = True
        self.to_broker.clear()
        self._put(self._to_client, None)

    # Time

    def _put(self, way: Way, data: bytes | None, answered: Answered | None = None) -> None:
        due_ms = self.world.clock.monotonic_ms() + self.world.latency_ms()
        if way:
            due_ms = max(due_ms, way[-1][0])
        way.append((due_ms, data, answered))

    @property
    def is_over(self) -> bool:
        return not self.is_open and not self._to_client

    def due_ms(self) -> int | None:
        """When something arrives, on the world's clock."""
        if self.is_hanging:
            return None
        due = [way[0][0] for way in (self._to_broker, self._to_client) if way]
        return min(due, default=None)

    def carry(self) -> bool:
        """Delivers what is due; False when nothing was."""
        if self.is_hanging:
            return False
        now_ms = self.world.clock.monotonic_ms()
        did = False
        while self._to_broker and self._to_broker[0][0] <= now_ms:
            did = True
            data = self._to_broker.popleft()[1]
            if data is None:
                self._leave()
            elif self.is_open:
                self.to_broker += data
        while (
            self.is_open and self.to_broker and self.transport.is_reading and not self.transport.is_closing()
        ):
            did = True
            self.deliver()
            if self.world.has_crashed:
                return True
        while self._to_client and self._to_client[0][0] <= now_ms and not self.node.is_dead:
            did = True
            _, data, answered = self._to_client.popleft()
            if data is None:
                self.node.loop.call_soon(self._tell_client)
            else:
                self.node.loop.call_soon(self._read, data, answered)
        return did

    def _leave(self) -> None:
        """The client has closed it, or is gone."""
        if self.is_open:
            self.is_open = False
            self.transport._is_closing = True
            self._to_client.clear()
            self.world.turn(self.protocol.connection_lost, None)

    def node_died(self) -> None:
        """The system closes the sockets of a process that has ended."""
        self.is_hanging = False
        self._to_broker.clear()
        self._to_client.clear()
        self._put(self._to_broker, None)

    def _read(self, data: bytes, answered: Answered | None) -> None:
        """On the node's loop: its process gets the bytes."""
        if answered is not None and not self.knows_end:
            self.world.path.delivered(self.node, answered)
        while data and not self.knows_end:
            space = self.client.get_buffer(len(data))
            count = min(len(space), len(data))
            space[:count] = data[:count]
            data = data[count:]
            self.client.buffer_updated(count)


def _cut(data: bytearray) -> list[bytes]:
    frames = []
    while len(data) >= 4:
        (length,) = _LENGTH.unpack_from(data)
        if len(data) < 4 + length:
            break
        frames.append(bytes(data[4 : 4 + length]))
        del data[: 4 + length]
    return frames


def _response(header: RequestHeader, response: Any) -> bytes:
    frame = bytearray(4)
    frame += _LENGTH.pack(header.correlation_id)
    if response_header_has_tags(header.api_key, header.api_version):
        frame.append(0)
    write_message(response, header.api_version, frame)
    _LENGTH.pack_into(frame, 0, len(frame) - 4)
    return bytes(frame)


def _acknowledged(request: Any) -> list[tuple[bytes, int]]:
    """Partitions for which the request has acknowledgements, unless it opens or closes its session."""
    if request.share_session_epoch in (0, -1):
        return []
    return [
        (topic.topic_id, one.partition_index)
        for topic in request.topics
        for one in topic.partitions
        if one.acknowledgement_batches
    ]


def _without_acknowledgements(frame: bytes) -> bytes:
    header, position = read_request_header(frame)
    request: Any
    request, _ = read_message(request_class(header.api_key), header.api_version, frame, position)
    for topic in request.topics:
        for one in topic.partitions:
            one.acknowledgement_batches = []
    changed = bytearray()
    write_request_header(changed, header)
    write_message(request, header.api_version, changed)
    return bytes(changed)


def _refuse(response: Any, asked: Asked) -> None:
    """Says of each partition that its acknowledgements were not taken."""
    is_fetch = asked.header.api_key == SHARE_FETCH
    for topic_id, index in _acknowledged(asked.request):
        topic = next((one for one in response.responses if one.topic_id == topic_id), None)
        if topic is None:
            topic = (
                fetching.ShareFetchableTopicResponse if is_fetch else acking.ShareAcknowledgeTopicResponse
            )(topic_id=topic_id, partitions=[])
            response.responses = [*response.responses, topic]
        data = next((one for one in topic.partitions if one.partition_index == index), None)
        if data is None:
            data = (fetching if is_fetch else acking).PartitionData(partition_index=index)
            topic.partitions = [*topic.partitions, data]
        if is_fetch:
            data.acknowledge_error_code = asked.code
        else:
            data.error_code = asked.code
