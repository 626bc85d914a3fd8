"""Cuts answers out of what a socket gives, with as few copies as can be: a fetch may bring several megabytes.

The transport reads straight into the space that this offers. Small frames share one block, and are copied out of it
once; a frame that does not fit is given a buffer of exactly its size, which the socket then fills to the end. It
holds at most the block and one unfinished frame.
"""

import struct

from headrace.wire.codec import MalformedMessage

BLOCK_SIZE = 128 * 1024
_LENGTH = struct.Struct(">i")


class IncomingFrames:
    """Alternate between `space()`, to be written to, and `filled(count)`, which gives the frames that are whole."""

    __slots__ = ("_block", "_end", "_large", "_large_end", "_size_max", "_start")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._block = memoryview(bytearray(BLOCK_SIZE))
        self._start = self._end = 0
        self._large: bytearray | None = None
        self._large_end = 0

    def space(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._large_end :]
        return self._block[self._end :]

    def filled(self, count: int) -> list[bytes]:
        """Takes note of `count` new bytes. MalformedMessage when they begin a frame of an impossible size."""
        if self._large is not None:
            self._large_end += count
            if self._large_end < len(self._large):
                return []
            whole = bytes(self._large)
            self._large = None
            return [whole]
        self._end += count
        return self._cut()

    def _cut(self) -> list[bytes]:
        block, start, end = self._block, self._start, self._end
        frames = []
        while end - start >= 4:
            (length,) = _LENGTH.unpack_from(block, start)
            if not 0 <= length <= self._size_max:
                raise MalformedMessage(self._impossible(length, bytes(block[start : start + 16])))
            following = start + 4 + length
            if following > end:
                break
            frames.append(bytes(block[start + 4 : following]))
            start = following
        if start == end:
            self._start = self._end = 0
            return frames
        if end - start >= 4 and 4 + length > BLOCK_SIZE - start:
            self._grow(start, end, length)
        elif BLOCK_SIZE - start < 4:
            block[: end - start] = bytes(block[start:end])
            self._start, self._end = 0, end - start
        else:
            self._start = start
        return frames

    def _grow(self, start: int, end: int, length: int) -> None:
        """The frame at `start` does not fit behind what the block holds already."""
        self._large = bytearray(length)
        self._large_end = end - start - 4
        self._large[: self._large_end] = self._block[start + 4 : end]
        self._start = self._end = 0

    def _impossible(self, length: int, head: bytes) -> str:
        if head.startswith(b"HTTP/"):
            return "the port speaks HTTP"
        if head[:2] in (b"\x15\x03", b"\x16\x03"):
            return "the port speaks TLS; set security.protocol to SSL or SASL_SSL"
        return f"a response of {length} bytes; allowed are 0 to {self._size_max} (receive.message.max.bytes)"
