"""The trail of a run: every request, response, disk operation, decision and fault, as a hash and, if wanted, as
text.
"""

from hashlib import blake2b
from zlib import crc32

LINES_MAX = 200_000


class Trail:
    def __init__(self, *, is_recorded: bool = False) -> None:
        self._hash = blake2b(digest_size=16)
        self.is_recorded = is_recorded
        self.lines: list[str] = []

    def note(self, line: str) -> None:
        self._hash.update(line.encode())
        if self.is_recorded and len(self.lines) < LINES_MAX:
            self.lines.append(line)

    def note_bytes(self, what: str, data: bytes | bytearray | memoryview, text: str = "") -> None:
        """`text` is for people: it is not part of the hash."""
        line = f"{what} {len(data)}B {crc32(data):08x}"
        self._hash.update(line.encode())
        if self.is_recorded and len(self.lines) < LINES_MAX:
            self.lines.append(f"{line} {text}" if text else line)

    def digest(self) -> str:
        return self._hash.hexdigest()
