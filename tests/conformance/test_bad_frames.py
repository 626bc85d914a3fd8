"""Frames that are no requests: the connection is closed, and nobody else notices.

Every test holds a second connection open throughout, and a third is opened afterward: both are served.
"""

import socket
import struct
from collections.abc import Callable, Iterator

import pytest

from headrace.wire.apis import API_VERSIONS
from headrace.wire.codec import read_message
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.api_versions_response import ApiVersionsResponse
from tests.conformance.conftest import BrokerUnderTest
from tests.conformance.wire_client import WireClient

METADATA, CREATE_TOPICS, PRODUCE, LEADER_AND_ISR = 3, 19, 0, 4


def header(api_key: int, version: int, client_id: bytes | None = b"bad") -> bytes:
    """An old request header (before tagged fields)."""
    length = -1 if client_id is None else len(client_id)
    return struct.pack(">hhih", api_key, version, 1, length) + (client_id or b"")


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def is_served(wire: WireClient) -> bool:
    return wire.ask("api_versions", 0).error_code == 0


@pytest.fixture
def bystander(connect: Callable[[], WireClient]) -> Iterator[WireClient]:
    """A connection that is in use before, during and after the trouble on another."""
    wire = connect()
    assert is_served(wire)
    yield wire
    assert is_served(wire)
    assert is_served(connect())


CLOSED: dict[str, bytes] = {
    "a negative length": struct.pack(">i", -1),
    "a length beyond the limit": struct.pack(">i", 104_857_601),
    "the largest length there is": struct.pack(">i", 2**31 - 1),
    "a request of another protocol": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no bytes": framed(b""),
    "less than a header": framed(b"\x00\x03\x00"),
    "a client id longer than the request": framed(struct.pack(">hhih", METADATA, 1, 1, 500) + b"short"),
    "a body cut short": framed(header(METADATA, 1) + struct.pack(">ih", 1, 10) + b"half"),
    "no body": framed(header(CREATE_TOPICS, 2)),
    "a list longer than the request": framed(header(METADATA, 1) + struct.pack(">i", 2**31 - 1)),
    "a string of negative length": framed(header(METADATA, 1) + struct.pack(">ih", 1, -5)),
    "a name that is null and must not be": framed(header(METADATA, 1) + struct.pack(">ih", 1, -1)),
    "an API nobody knows": framed(header(999, 0)),
    "a negative API": framed(header(-1, 0)),
    "an API of former times": framed(header(LEADER_AND_ISR, 0)),
    "a version from the future": framed(header(METADATA, 99)),
    "a negative version": framed(header(METADATA, -1)),
    "a version of former times": framed(header(CREATE_TOPICS, 1) + struct.pack(">ii?", 0, 1000, False)),
    "a compact list longer than the request": framed(
        header(METADATA, 12) + b"\x00" + b"\xff\xff\xff\xff\x07" + b"\x01\x00\x00"
    ),
    "a tagged field longer than the request": framed(header(METADATA, 12) + b"\x01\x05\xff\xff\x03"),
}


@pytest.mark.parametrize("what", CLOSED)
def test_the_connection_is_closed_and_nobody_else_notices(
    wire: WireClient, bystander: WireClient, what: str
) -> None:
    wire.send_bytes(CLOSED[what])
    assert wire.receive_frame() is None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_is_listed_in_old_versions_and_not_served(
    wire: WireClient, bystander: WireClient, version: int
) -> None:
    # KAFKA-18659: they are listed for the sake of clients that look at the list and never send them.
    wire.send_bytes(framed(header(PRODUCE, version) + struct.pack(">hii", 1, 1000, 0)))
    assert wire.receive_frame() is None


def test_requests_before_the_bad_one_are_answered(wire: WireClient, bystander: WireClient) -> None:
    good = framed(struct.pack(">hhih", API_VERSIONS, 0, 7, -1))
    wire.send_bytes(good + framed(header(999, 0)))
    frame = wire.receive_frame()
    assert frame is not None
    response, _ = read_message(ApiVersionsResponse, 0, frame, 4)
    assert (struct.unpack_from(">i", frame), response.error_code) == ((7,), 0)
    assert wire.receive_frame() is None


def test_a_client_may_hang_up_in_the_middle_of_a_request(
    broker: BrokerUnderTest, bystander: WireClient
) -> None:
    for part in (b"\x00", struct.pack(">i", 100), framed(header(METADATA, 1))[:9]):
        with socket.create_connection((broker.host, broker.port)) as connection:
            connection.sendall(part)


def test_a_request_may_come_byte_by_byte(wire: WireClient) -> None:
    for byte in framed(struct.pack(">hhih", API_VERSIONS, 0, 7, -1)):
        wire.send_bytes(bytes([byte]))
    frame = wire.receive_frame()
    assert frame is not None
    assert struct.unpack_from(">ih", frame) == (7, 0)


@pytest.mark.parametrize(
    "client_id", [None, b"", "größer".encode(), b"x" * 1000], ids=["null", "empty", "utf8", "long"]
)
def test_any_client_id_will_do(wire: WireClient, client_id: bytes | None) -> None:
    wire.send_bytes(framed(header(API_VERSIONS, 0, client_id)))
    frame = wire.receive_frame()
    assert frame is not None
    assert struct.unpack_from(">ih", frame) == (1, 0)


@pytest.mark.parametrize("correlation_id", [0, -1, 2**31 - 1, -(2**31)])
def test_the_correlation_id_comes_back_whatever_it_is(wire: WireClient, correlation_id: int) -> None:
    wire.send_bytes(framed(struct.pack(">hhih", API_VERSIONS, 0, correlation_id, -1)))
    frame = wire.receive_frame()
    assert frame is not None
    assert struct.unpack_from(">i", frame) == (correlation_id,)


def test_an_api_versions_of_any_future_version_is_answered(wire: WireClient, bystander: WireClient) -> None:
    wire.send_bytes(framed(header(API_VERSIONS, 30000) + b"\x00 whatever the future holds"))
    frame = wire.receive_frame()
    assert frame is not None
    response, _ = read_message(ApiVersionsResponse, 0, frame, 4)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert is_served(wire)
