"""Frames: however the bytes arrive, the same frames come out; wrong lengths are refused before memory is spent."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire.codec import MalformedMessage
from headrace.wire.frames import FrameBuffer


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@given(st.lists(st.binary(max_size=40), max_size=8), st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_any_cutting_of_the_stream_gives_the_same_frames(bodies: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(framed(body) for body in bodies)
    buffer, frames, position, turn = FrameBuffer(100), [], 0, 0
    while position < len(stream):
        size = cuts[turn % len(cuts)]
        frames += buffer.feed(stream[position : position + size])
        position, turn = position + size, turn + 1
    assert frames == bodies
    assert len(buffer) == 0


@pytest.mark.parametrize("length", [-1, 101, 2**31 - 1, -(2**31)])
def test_a_frame_with_an_impossible_length_is_refused_at_its_first_four_bytes(length: int) -> None:
    with pytest.raises(MalformedMessage, match="allowed are 0 to 100"):
        FrameBuffer(100).feed(struct.pack(">i", length))


def test_a_frame_of_exactly_the_limit_is_let_in() -> None:
    assert FrameBuffer(100).feed(framed(bytes(100))) == [bytes(100)]
