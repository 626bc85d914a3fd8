"""Frames come out as they were put in, however the bytes were cut on their way."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.incoming import BLOCK_SIZE, IncomingFrames
from headrace.wire.codec import MalformedMessage

SIZE_MAX = 4 * BLOCK_SIZE


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(frames: IncomingFrames, data: bytes, piece: int = BLOCK_SIZE) -> list[bytes]:
    """Puts data in as a transport does: at most `piece` bytes at a time, and no more than there is space for."""
    found = []
    position = 0
    while position < len(data):
        space = frames.space()
        assert len(space) > 0
        count = min(piece, len(space), len(data) - position)
        space[:count] = data[position : position + count]
        position += count
        found += frames.filled(count)
    return found


@given(
    sizes=st.lists(
        st.one_of(
            st.integers(0, 300),
            st.integers(BLOCK_SIZE - 20, BLOCK_SIZE + 20),
            st.integers(BLOCK_SIZE, SIZE_MAX),
        ),
        max_size=8,
    ),
    piece=st.one_of(st.integers(1_000, 5_000), st.integers(BLOCK_SIZE // 2, 2 * BLOCK_SIZE)),
)
def test_any_frames_in_any_pieces_come_out_whole(sizes: list[int], piece: int) -> None:
    bodies = [bytes([index % 251]) * size for index, size in enumerate(sizes)]
    assert feed(IncomingFrames(SIZE_MAX), framed(*bodies), piece) == bodies


@pytest.mark.parametrize("piece", [1, 2, 3, 5])
def test_single_bytes_come_together_at_the_end_of_the_block_too(piece: int) -> None:
    frames = IncomingFrames(SIZE_MAX)
    filler = bytes(BLOCK_SIZE - 10)
    assert feed(frames, framed(filler)) == [filler]
    bodies = [filler, b"first", b"", b"second"]
    assert feed(frames, framed(filler)[:-1]) == []
    assert feed(frames, framed(*bodies)[len(framed(filler)) - 1 :], piece) == bodies


def test_a_frame_of_the_largest_size_is_taken() -> None:
    body = bytes(SIZE_MAX)
    assert feed(IncomingFrames(SIZE_MAX), framed(body)) == [body]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (struct.pack(">i", SIZE_MAX + 1), rf"{SIZE_MAX + 1} bytes.*receive\.message\.max\.bytes"),
        (struct.pack(">i", -1), "-1 bytes"),
        (b"HTTP/1.1 400 Bad Request", "speaks HTTP"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "speaks TLS"),
    ],
)
def test_an_impossible_size_is_refused_before_anything_is_kept(head: bytes, words: str) -> None:
    with pytest.raises(MalformedMessage, match=words):
        feed(IncomingFrames(SIZE_MAX), head)
