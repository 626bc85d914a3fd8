"""From offsets to positions in segments: by what earlier reads remember, else by the sparse indexes."""

from bisect import bisect_right

from headrace.log.files import LogFiles
from headrace.log.segment import Segment

HINTS_MAX = 32


class Positions:
    __slots__ = ("_files", "_hints", "_stop")

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._hints: dict[int, tuple[Segment, int]] = {}
        """Where the reads that ended before an offset stopped: the next one most likely starts there."""
        self._stop: tuple[int, Segment, int] | None = None

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        if len(self._hints) >= HINTS_MAX and offset not in self._hints:
            self._hints.clear()
        self._hints[offset] = (segment, position)

    def forget(self) -> None:
        """After segments went or changed."""
        self._hints.clear()
        self._stop = None

    def locate(self, offset: int) -> tuple[Segment, int] | None:
        """The segment and position of the first batch that ends at or after `offset`; None past the last one."""
        hint = self._hints.get(offset)
        if hint is not None and hint[1] < hint[0].size:
            return hint
        at = max(0, bisect_right(self._files.bases, offset) - 1)
        for segment in self._files.segments[at:]:
            found = segment.find(offset)
            if found is not None:
                return segment, found[0]
        return None

    def stop_before(self, offset: int, segment: Segment) -> int:
        """The position of the batch that starts at `offset`. Asked over and over while a transaction is open."""
        known = self._stop
        if known is not None and known[0] == offset and known[1] is segment:
            return known[2]
        found = segment.find(offset)
        position = found[0] if found is not None else segment.size
        self._stop = (offset, segment, position)
        return position

    def available(self, segment: Segment, position: int, *, before: int, limit: int) -> int:
        """How many bytes there are from a position on, up to an offset; not counted beyond `limit`."""
        following = self._files.after(segment)
        if following is None or before <= following.base_offset:
            return min(limit, segment.size - position)
        available = segment.size - position
        while available < limit and following is not None and following.base_offset < before:
            available += following.size
            following = self._files.after(following)
        return min(limit, available)
