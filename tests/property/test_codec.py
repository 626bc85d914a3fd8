"""The codec under random values and broken bytes.

Every message of every version, filled with whatever its fields may hold, reads back as it was written. Bytes that
a fault or an attacker made of real requests (cut, flipped, repeated, stretched) either are a message again or raise
MalformedMessage, and nothing else; they cost neither much time nor much memory, so no client can stop the broker.
"""

import random
import struct
import time
import tracemalloc
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headrace.wire.messages
from headrace.wire.apis import NAMES, RequestHeader, read_request_header, request_class, write_request_header
from headrace.wire.codec import MalformedMessage, encode, read_message
from headrace.wire.frames import FrameBuffer
from headrace.wire.message import F, Message

SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "uint32": st.integers(0, 2**32 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "uuid": st.binary(min_size=16, max_size=16),
    "string": st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(["", "x" * 127, "é" * 64]),
    "bytes": st.binary(max_size=12) | st.just(bytes(200)),
    "records": st.binary(max_size=12),
}


def message_class(module_name: str) -> type[Message]:
    module = import_module(f"headrace.wire.messages.{module_name}")
    wanted = module_name.replace("_", "")
    (found,) = (each for name, each in vars(module).items() if name.lower() == wanted)
    return found  # type: ignore[no-any-return]


MESSAGES = [message_class(info.name) for info in iter_modules(headrace.wire.messages.__path__)]
REQUESTS = [request_class(api_key) for api_key in NAMES]


def is_in(version: int, interval: tuple[int, int] | None) -> bool:
    return interval is not None and interval[0] <= version <= interval[1]


def messages(message: type[Message], version: int) -> st.SearchStrategy[Message]:
    """Any value of a message that its version can carry."""
    fields = {
        field.name: values(field, version) for field in message.SCHEMA if is_in(version, field.versions)
    }
    return st.builds(message, **fields)


def values(field: F, version: int) -> st.SearchStrategy[Any]:
    element = field.kind.removeprefix("[]")
    value = messages(field.struct, version) if field.struct is not None else SCALARS[element]
    if element != field.kind:
        value = st.lists(value, max_size=2)
    return st.none() | value if is_in(version, field.nullable) else value


def versions(message: type[Message]) -> range:
    return range(message.VERSIONS[0], message.VERSIONS[1] + 1)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: message.__name__)
@settings(max_examples=4, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_is_written_reads_back(message: type[Message], data: st.DataObject) -> None:
    for version in versions(message):
        written = data.draw(messages(message, version))
        encoded = encode(written, version)
        assert read_message(message, version, encoded) == (written, len(encoded))


def example(message: type[Message], version: int, chance: random.Random) -> Message:
    """A plausible message, quickly: hypothesis is too careful to make tens of thousands."""

    def value(field: F) -> Any:
        if is_in(version, field.nullable) and chance.random() < 0.2:
            return None
        element = field.kind.removeprefix("[]")
        if element != field.kind:
            return [one(field, element) for _ in range(chance.randrange(3))]
        return one(field, element)

    def one(field: F, kind: str) -> Any:
        if field.struct is not None:
            return example(field.struct, version, chance)
        if kind in ("string", "bytes", "records"):
            text = chance.choice(["", "orders", "é", "x" * 130])
            return text if kind == "string" else text.encode()
        if kind == "uuid":
            return chance.randbytes(16)
        return chance.choice([0, 1]) if kind != "bool" else chance.random() < 0.5

    return message(**{field.name: value(field) for field in message.SCHEMA if is_in(version, field.versions)})


NASTY = [
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x80\x80\x80\x80\x80",
    b"\xff\xff\xff\xff\x0f",
    b"\0",
    b"\xc3\x28",
]


def broken(data: bytes, chance: random.Random) -> bytes:
    """The bytes after one to four accidents."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(changed) + 1)
        match chance.randrange(6):
            case 0:
                del changed[place:]
            case 1:
                del changed[place : place + chance.randrange(1, 9)]
            case 2:
                changed[place : place + 1] = bytes([chance.randrange(256)])
            case 3:
                changed[place:place] = chance.choice(NASTY)
            case 4:
                nasty = chance.choice(NASTY)
                changed[place : place + len(nasty)] = nasty
            case 5:
                end = place + chance.randrange(1, 40)
                changed[place:place] = changed[place:end] * chance.randrange(1, 20)
    return bytes(changed)


@pytest.mark.parametrize("request_kind", REQUESTS, ids=lambda message: message.__name__)
def test_broken_requests_are_messages_or_refused(request_kind: type[Message]) -> None:
    chance = random.Random(request_kind.__name__)
    refused = 0
    for version in versions(request_kind):
        for _ in range(40):
            data = broken(encode(example(request_kind, version, chance), version), chance)
            try:
                found, end = read_message(request_kind, version, data)
            except MalformedMessage:
                refused += 1
                continue
            assert end <= len(data)
            again = encode(found, version)
            assert encode(read_message(request_kind, version, again)[0], version) == again
    assert refused or not request_kind.SCHEMA


def test_broken_headers_are_headers_or_refused() -> None:
    chance = random.Random(1)
    for _ in range(20_000):
        api_key = chance.choice(list(NAMES))
        version = chance.choice(versions(request_class(api_key)))
        out = bytearray()
        write_request_header(out, RequestHeader(api_key, version, 7, chance.choice([None, "", "client"])))
        data = broken(bytes(out), chance)
        try:
            _, end = read_request_header(data)
        except MalformedMessage:
            continue
        assert end <= len(data)


@settings(max_examples=300)
@given(st.binary(max_size=200), st.sampled_from(REQUESTS), st.data())
def test_any_bytes_at_all_are_a_message_or_refused(
    data: bytes, request_kind: type[Message], draw: st.DataObject
) -> None:
    version = draw.draw(st.sampled_from(list(versions(request_kind))))
    with suppress(MalformedMessage):
        read_message(request_kind, version, data)


def test_broken_requests_cost_little_time() -> None:
    """The slowest of many: well under what a request of that size may cost."""
    chance = random.Random(2)
    slowest = 0.0
    for request_kind in REQUESTS:
        version = request_kind.VERSIONS[1]
        for _ in range(30):
            data = broken(encode(example(request_kind, version, chance), version) * 20, chance)
            started = time.process_time()
            with suppress(MalformedMessage):
                read_message(request_kind, version, data)
            slowest = max(slowest, time.process_time() - started)
    assert slowest < 0.5


MEMORY_FACTOR = 400
"""A byte on the wire may become so many in memory: an object for each empty struct, and a little room."""


def test_broken_requests_cost_memory_in_proportion_to_their_bytes() -> None:
    chance = random.Random(3)
    for request_kind in REQUESTS:
        version = request_kind.VERSIONS[1]
        read_message(request_kind, version, encode(request_kind(), version))  # compiles the reader
        for _ in range(10):
            data = broken(encode(example(request_kind, version, chance), version), chance)
            tracemalloc.start()
            try:
                read_message(request_kind, version, data)
            except MalformedMessage:
                pass
            finally:
                _, peak = tracemalloc.get_traced_memory()
                tracemalloc.stop()
            assert peak < 20_000 + MEMORY_FACTOR * len(data)


@pytest.mark.parametrize("request_kind", REQUESTS, ids=lambda message: message.__name__)
def test_counts_that_promise_too_much_are_refused_before_memory_is_spent(request_kind: type[Message]) -> None:
    huge = b"\xff\xff\xff\xff\x07", b"\x7f\xff\xff\xff"
    for version in (request_kind.VERSIONS[0], request_kind.VERSIONS[1]):
        data = encode(example(request_kind, version, random.Random(4)), version)
        tracemalloc.start()
        for place in range(0, len(data), max(1, len(data) // 40)):
            for number in huge:
                with suppress(MalformedMessage):
                    read_message(request_kind, version, data[:place] + number + data[place:])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2_000_000


@given(st.lists(st.binary(max_size=60), max_size=10), st.integers(0, 300))
def test_any_stream_gives_frames_within_the_limit_or_is_refused(chunks: list[bytes], size_max: int) -> None:
    buffer = FrameBuffer(size_max)
    fed = given_out = 0
    try:
        for chunk in chunks:
            frames = buffer.feed(chunk)
            fed += len(chunk)
            given_out += sum(4 + len(frame) for frame in frames)
            assert all(len(frame) <= size_max for frame in frames)
            assert fed == given_out + len(buffer), "not a byte is lost or made up"
            assert len(buffer) < size_max + 4
    except MalformedMessage:
        pass


def test_a_long_frame_in_small_pieces_costs_time_in_proportion() -> None:
    size = 4_000_000
    stream = struct.pack(">i", size) + bytes(size)
    buffer = FrameBuffer(size)
    started = time.process_time()
    frames = [
        frame for start in range(0, len(stream), 1000) for frame in buffer.feed(stream[start : start + 1000])
    ]
    assert time.process_time() - started < 2
    assert frames == [bytes(size)]
