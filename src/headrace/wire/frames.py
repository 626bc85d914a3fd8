"""Cuts a byte stream into frames: four bytes of length, then that many bytes."""

import struct

from headrace.wire.codec import MalformedMessage

_LENGTH = struct.Struct(">i")


class FrameBuffer:
    """Feed it what the socket gives, take whole frames out. It never holds more than one unfinished frame."""

    __slots__ = ("_buffer", "size_max")

    def __init__(self, size_max: int) -> None:
        self._buffer = bytearray()
        self.size_max = size_max

    def feed(self, data: bytes) -> list[bytes]:
        if self._buffer:
            self._buffer += data
            if len(self._buffer) >= 4 and len(self._buffer) < 4 + self._length(self._buffer, 0):
                return []
            data = bytes(self._buffer)
            self._buffer.clear()
        frames = []
        position, size = 0, len(data)
        while size - position >= 4:
            end = position + 4 + self._length(data, position)
            if end > size:
                break
            frames.append(data[position + 4 : end])
            position = end
        if position < size:
            self._buffer += data[position:] if position else data
        return frames

    def _length(self, data: bytes | bytearray, position: int) -> int:
        (length,) = _LENGTH.unpack_from(data, position)
        if not 0 <= length <= self.size_max:
            raise MalformedMessage(f"a frame of {length} bytes; allowed are 0 to {self.size_max}")
        return int(length)

    def __len__(self) -> int:
        return len(self._buffer)
