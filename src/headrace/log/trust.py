"""How much of a log is trusted on disk: what recovery takes as it is, without reading it.

Theory of operation. Trust ends at the base offset of a segment. Every segment before it is closed, and all its files
(batches, indexes, aborted transactions, the producers' snapshot at its end, leader epochs) were synced by a sync that
began after the last of them was written, and then this point was saved. Only this class moves it. Recovery checks
everything from the saved point on; older snapshots than the one at the saved point are not needed; compaction
rewrites nothing above it, so that above it no offset is missing.

A log's sync raises the point in memory; what it made durable counts when the point is saved, too. So where a segment
ends torn, nothing in the segments after it was promised to anybody.
"""

from headrace.log.checkpoint import RecoveryPoints
from headrace.log.layout import Key

UNKNOWN = -1
"""The points were lost: nothing is trusted, and offsets may be missing anywhere."""


class Trust:
    __slots__ = ("_key", "_limit", "_points")

    def __init__(self, points: RecoveryPoints, key: Key) -> None:
        self._points = points
        self._key = key
        self._limit: int | None = None

    @property
    def saved(self) -> int:
        """Recovery would check from here on."""
        return max(0, self._points.saved.get(self._key, 0))

    @property
    def is_known(self) -> bool:
        return not self._points.is_lost and self._points.get(self._key) != UNKNOWN

    @property
    def is_saved(self) -> bool:
        return self._points.is_entry_saved(self._key)

    @property
    def points(self) -> RecoveryPoints:
        return self._points

    def raise_to(self, base_offset: int) -> None:
        """All files of the segments before this one are synced. From a worker."""
        point = base_offset if self._limit is None else min(base_offset, self._limit)
        if point > (self._points.get(self._key) or 0) or not self.is_known:
            self._points.put(self._key, point)

    def start_over(self, base_offset: int) -> None:
        """Recovery found less than was trusted, or nobody knows what was."""
        self._points.put(self._key, base_offset)

    def stop_at(self, base_offset: int) -> None:
        """Trust cannot pass this segment: a full disk has refused one of its files."""
        self._limit = base_offset if self._limit is None else min(base_offset, self._limit)
