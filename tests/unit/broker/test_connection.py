"""A connection answers in the order of the requests, and what is ready in one turn leaves in one write.

The transport and the core are stand-ins; the frames that go in and the bytes that come out are the real ones.
"""

import asyncio
import struct
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headrace.broker.call import Call, CloseConnection
from headrace.broker.connection import (
    IN_FLIGHT_MAX,
    OTHER_COST,
    OUTGOING_BYTES_MAX,
    REQUESTS_PER_TURN,
    Connection,
)
from headrace.broker.features import NEW
from headrace.broker.later import Later
from headrace.broker.metrics import MetricsRegistry
from headrace.broker.outgoing import Outgoing
from headrace.broker.request_metrics import RequestMetrics
from headrace.broker.server import Server
from headrace.broker.settings import Settings
from headrace.wire.apis import RequestHeader, response_class, write_request_header
from headrace.wire.codec import write_message
from headrace.wire.message import Message
from headrace.wire.messages.api_versions_request import ApiVersionsRequest
from headrace.wire.messages.create_acls_request import CreateAclsRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.heartbeat_response import HeartbeatResponse
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.produce_request import ProduceRequest
from headrace.wire.messages.produce_response import ProduceResponse, TopicProduceResponse

VERSIONS: dict[type[Message], int] = {
    HeartbeatRequest: 4,
    ProduceRequest: 9,
    DescribeGroupsRequest: 0,
    CreateAclsRequest: 3,
}
UNSERVED = 999


class Transport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_closed = False
        self.is_aborted = False
        self.is_paused = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed
        self.writes.append(bytes(data))

    def writelines(self, pieces: list[bytes]) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 600

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return ("127.0.0.1", 4711)

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False


class Core:
    """Answers a heartbeat at once, and a produce when the test says so."""

    def __init__(self) -> None:
        self.settings = Settings({})
        self.features = SimpleNamespace(by_name=NEW)
        self.request_metrics = RequestMetrics(MetricsRegistry())
        self.outgoing = Outgoing(1000)
        self.on_disconnect: list[Any] = []
        self.produced: list[Later[Message]] = []
        self.is_broken = False

    def handle(self, request: Message, call: Call) -> Message | Later[Message]:
        if isinstance(request, DescribeGroupsRequest | CreateAclsRequest):
            return response_class(request.API_KEY)()
        if isinstance(request, HeartbeatRequest):
            if self.is_broken:
                raise RuntimeError("no handler should let this through")
            return HeartbeatResponse()
        self.produced.append(Later())
        return self.produced[-1]

    def failed(self, request: Message, call: Call, error: Exception) -> Message:
        if isinstance(error, CloseConnection):
            raise error
        return ProduceResponse(throttle_time_ms=1)

    def settle(self) -> None: ...

    def deadline_ms(self) -> None: ...


class Client:
    """The far end: sends requests, and reads the correlation ids of what was written."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.server = Server(self.loop)
        self.core = Core()
        self.server.core = cast(Any, self.core)
        self.transport = Transport()
        self.connection = Connection(self.server, 1)
        self.connection.connection_made(cast(Any, self.transport))
        self._sent = 0

    def send(self, *requests: Message) -> None:
        data = bytearray()
        for request in requests:
            self._sent += 1
            frame = bytearray()
            version = VERSIONS.get(type(request), UNSERVED)
            write_request_header(frame, RequestHeader(request.API_KEY, version, self._sent, "test"))
            if version != UNSERVED:
                write_message(request, version, frame)
            data += struct.pack(">i", len(frame)) + frame
        self.connection.data_received(bytes(data))

    @property
    def answered(self) -> list[list[int]]:
        """The correlation ids in each write."""
        return [_correlation_ids(data) for data in self.transport.writes]

    def close(self) -> None:
        self.server.close_threads()
        self.loop.close()


def _correlation_ids(data: bytes) -> list[int]:
    ids, position = [], 0
    while position < len(data):
        length, correlation_id = struct.unpack_from(">ii", data, position)
        ids.append(correlation_id)
        position += 4 + length
    assert position == len(data)
    return ids


@pytest.fixture
def client() -> Any:
    client = Client()
    yield client
    client.close()


PRODUCE = ProduceRequest(acks=-1, timeout_ms=1000)


def test_responses_of_one_turn_leave_in_one_write(client: Client) -> None:
    client.send(HeartbeatRequest(), HeartbeatRequest(), HeartbeatRequest())
    assert client.answered == [[1, 2, 3]]


def test_many_requests_that_come_at_once_are_handled_over_several_turns(client: Client) -> None:
    count = 5 * REQUESTS_PER_TURN // OTHER_COST + 1
    client.send(*[HeartbeatRequest()] * count)
    assert client.answered == [[*range(1, REQUESTS_PER_TURN // OTHER_COST + 1)]]
    for _ in range(5):
        client.loop.call_soon(client.loop.stop)
        client.loop.run_forever()
    assert [len(ids) for ids in client.answered] == [REQUESTS_PER_TURN // OTHER_COST] * 5 + [1]
    assert [number for ids in client.answered for number in ids] == [*range(1, count + 1)]


@pytest.mark.parametrize(
    ("request_", "most", "cure"),
    [
        (DescribeGroupsRequest, 100_000, "(headrace.request.elements.max=100000)."),
        (
            CreateAclsRequest,
            10_000,
            "(headrace.request.elements.max=100000; CreateAcls may have 1/10 of it).",
        ),
    ],
)
def test_a_request_with_too_many_elements_ends_the_connection(
    client: Client, caplog: pytest.LogCaptureFixture, request_: type[Message], most: int, cure: str
) -> None:
    (items,) = (field for field in request_.SCHEMA if field.kind.startswith("[]"))
    for count in (most, most + 1):
        assert not client.transport.is_closed
        item = items.struct() if items.struct else ""
        client.send(request_(**{items.name: [item] * count}))
    assert client.transport.is_closed
    assert f"has more than {most} elements in its lists {cure}" in caplog.text


def test_a_response_waits_for_those_before_it(client: Client) -> None:
    client.send(PRODUCE, PRODUCE, HeartbeatRequest())
    first, second = client.core.produced
    second.resolve(ProduceResponse())
    client.server.settle()
    assert client.answered == []
    first.resolve(ProduceResponse())
    client.server.settle()
    assert client.answered == [[1, 2, 3]]


def test_only_produce_requests_overtake_the_disk(client: Client) -> None:
    """Fetches behind a produce that waits would gather their large answers in memory."""
    client.send(PRODUCE, HeartbeatRequest(), PRODUCE)
    assert len(client.core.produced) == 1
    client.core.produced[0].resolve(ProduceResponse())
    assert len(client.core.produced) == 2
    client.server.settle()
    assert client.answered == [[1, 2]]


def test_what_one_sync_made_durable_is_answered_in_one_write(client: Client) -> None:
    client.send(PRODUCE, PRODUCE, PRODUCE)
    for later in client.core.produced:
        later.resolve(ProduceResponse())
    client.server.settle()
    assert client.answered == [[1, 2, 3]]


def test_large_responses_do_not_gather(client: Client) -> None:
    client.send(PRODUCE, PRODUCE)
    large = ProduceResponse(
        responses=[TopicProduceResponse(name="x" * 1000)] * (OUTGOING_BYTES_MAX // 1000 + 1)
    )
    for later in client.core.produced:
        later.resolve(large)
    assert client.answered == [[1], [2]]


def test_what_was_answered_leaves_before_a_connection_is_closed(client: Client) -> None:
    client.send(HeartbeatRequest(), ProduceRequest(acks=-1))
    client.core.produced[0].resolve(ProduceResponse())
    client.connection.close()
    assert client.answered == [[1], [2]]
    assert client.transport.is_closed


def test_a_refused_request_comes_after_the_answers_to_earlier_ones(client: Client) -> None:
    client.send(HeartbeatRequest(), InitProducerIdRequest(), HeartbeatRequest())
    assert client.answered == [[1]]
    assert client.transport.is_closed


def test_a_request_that_fails_later_is_answered_too(client: Client) -> None:
    client.send(PRODUCE, HeartbeatRequest())
    client.core.produced[0].fail(RuntimeError("broken"))
    client.server.settle()
    assert client.answered == [[1, 2]]


def test_trouble_with_one_connection_does_not_reach_who_is_answered_with_it(client: Client) -> None:
    client.send(PRODUCE, HeartbeatRequest())
    client.core.is_broken = True
    told: list[Message] = []
    first = client.core.produced[0]
    first.then(told.append)  # another connection that waits for the same sync
    first.resolve(ProduceResponse())
    assert len(told) == 1
    assert client.transport.is_closed


def test_an_api_versions_that_is_too_new_is_answered_in_its_turn(client: Client) -> None:
    client.send(PRODUCE, ApiVersionsRequest())
    client.server.settle()
    assert client.answered == []
    client.core.produced[0].resolve(ProduceResponse())
    client.server.settle()
    assert client.answered == [[1, 2]]


def test_empty_frames_do_not_pile_up_behind_a_request_that_waits(client: Client) -> None:
    client.send(*[PRODUCE] * IN_FLIGHT_MAX)
    client.connection.data_received(bytes(4) * 20_000)
    assert client.transport.is_paused


def test_an_idle_client_that_does_not_read_what_it_was_sent_is_cut_off(client: Client) -> None:
    """Closing waits for the client to read; it holds a place and its response in memory until then."""
    client.connection.close_or_abort()
    assert (client.transport.is_closed, client.transport.is_aborted) == (True, False)
    client.connection.close_or_abort()
    assert client.transport.is_aborted


def test_what_a_client_does_not_read_counts_until_it_reads_or_goes(client: Client) -> None:
    outgoing = client.core.outgoing
    assert outgoing.allowance() == 500
    client.connection.pause_writing()
    assert outgoing.unread_bytes() == 600
    assert outgoing.allowance() == 200
    client.connection.resume_writing()
    assert outgoing.unread_bytes() == 0
    client.connection.pause_writing()
    client.connection.connection_lost(None)
    assert outgoing.unread_bytes() == 0


def test_a_produce_that_must_not_be_overtaken_holds_back_the_next_one(client: Client) -> None:
    exclusive: Later[Message] = Later()
    exclusive.is_exclusive = True
    handle = client.core.handle
    client.core.handle = lambda request, call: exclusive  # type: ignore[method-assign]
    client.send(PRODUCE)
    client.core.handle = handle  # type: ignore[method-assign]
    client.send(PRODUCE)
    assert client.core.produced == []
    exclusive.resolve(ProduceResponse())
    assert len(client.core.produced) == 1


def test_a_produce_that_wants_no_answer_gets_none_later_either(client: Client) -> None:
    later: Later[Any] = Later()
    handle = client.core.handle
    client.core.handle = lambda request, call: later  # type: ignore[method-assign]
    client.send(PRODUCE)
    client.core.handle = handle  # type: ignore[method-assign]
    later.resolve(None)
    client.send(HeartbeatRequest())
    assert client.answered[-1] == [2]


def test_the_next_produce_starts_once_the_one_before_it_may_be_overtaken(client: Client) -> None:
    exclusive: Later[Message] = Later()
    exclusive.is_exclusive = True
    handle = client.core.handle
    client.core.handle = lambda request, call: exclusive  # type: ignore[method-assign]
    client.send(PRODUCE)
    client.core.handle = handle  # type: ignore[method-assign]
    client.send(PRODUCE)
    assert client.core.produced == []
    exclusive.share()
    assert len(client.core.produced) == 1
    client.core.produced[0].resolve(ProduceResponse())
    exclusive.resolve(ProduceResponse())
    client.server.settle()
    assert client.answered == [[1, 2]]


def test_a_connection_is_closed_where_a_request_that_took_several_turns_asks_for_it(client: Client) -> None:
    later: Later[Message] = Later()
    handle = client.core.handle
    client.core.handle = lambda request, call: later  # type: ignore[method-assign]
    client.send(PRODUCE)
    client.core.handle = handle  # type: ignore[method-assign]
    later.fail(CloseConnection("refused"))
    assert client.transport.is_closed
