"""The transactions of a log that have ended: which were aborted, and which a power cut may open again.

Open ones are `producers`' to know.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Container

from headrace.log.disk import write_file
from headrace.log.index import AbortedTransaction, encode_aborted
from headrace.log.layout import TRANSACTION_INDEX
from headrace.log.segment import Segment


class EndedTransactions:
    __slots__ = ("_unsynced", "aborted")

    def __init__(self) -> None:
        self.aborted: list[AbortedTransaction] = []
        """By last offset."""
        self._unsynced: deque[tuple[int, int]] = deque()
        """First offset and marker of transactions that ended lately and may not be synced, both rising; one that began
        before another and ended after it speaks for both."""

    def note(self, first_offset: int, marker_offset: int, *, synced_to: int) -> None:
        """A power cut may take the marker away again: then the transaction is open as before."""
        unsynced = self._unsynced
        while unsynced and unsynced[0][1] < synced_to:
            unsynced.popleft()
        # Those that began after it end before it.
        while unsynced and unsynced[-1][0] >= first_offset:
            unsynced.pop()
        unsynced.append((first_offset, marker_offset))

    def note_aborted(
        self, producer_id: int, first_offset: int, marker_offset: int, *, first_open: int | None
    ) -> None:
        """`first_open` is where the first transaction begins that is open without this one."""
        stable_offset = marker_offset + 1 if first_open is None else first_open
        self.aborted.append(AbortedTransaction(producer_id, first_offset, marker_offset, stable_offset))

    def first_unsynced(self, synced_to: int) -> int | None:
        """Where the first of those begins whose markers are not below `synced_to`."""
        return min((first for first, marker in self._unsynced if marker >= synced_to), default=None)

    def between(self, offset: int, end_offset: int) -> list[tuple[int, int]]:
        """Producer id and first offset of the aborted ones with records there."""
        if not self.aborted:
            return []
        found = []
        at = bisect_right(self.aborted, offset - 1, key=lambda entry: entry.last_offset)
        for entry in self.aborted[at:]:
            if entry.first_offset < end_offset:
                found.append((entry.producer_id, entry.first_offset))
            if entry.last_stable_offset >= end_offset:
                break
        return found

    def forget_before(self, offset: int) -> None:
        self.aborted = [entry for entry in self.aborted if entry.last_offset >= offset]

    def forget(self, markers: Container[int], *, within: range) -> None:
        """Compaction has taken these markers out of this part of the log."""
        self.aborted = [
            entry
            for entry in self.aborted
            if entry.last_offset not in within or entry.last_offset not in markers
        ]

    def save(self, segment: Segment, end_offset: int) -> list[str]:
        """The aborted ones whose markers are in this segment, which ends there: a file only if there are any."""
        entries = [entry for entry in self.aborted if segment.base_offset <= entry.last_offset < end_offset]
        path = segment.path_of(TRANSACTION_INDEX)
        if not entries:
            segment.disk.remove(path)  # it may be left from a tail that was lost
            return []
        write_file(segment.disk, path, encode_aborted(entries))
        return [path]
