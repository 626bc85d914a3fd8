"""Since when members hold records whose locks they renew, and since when a window is full. For views only.

The engine keeps when a lock ends and no more. A lock that was never renewed began its duration before that, so only
renewals are noted here: by the first offset of the renewed range, at most NOTES_MAX of them. Notes of records that are
settled go when there are twice as many as after the last time.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.share.changes import AnyChange, Change
from headrace.share.states import Cause

NOTES_MAX = 10_000
LOOK_FROM = 100
"""With fewer notes nobody looks for those that can go."""


class Hold(NamedTuple):
    holder: str
    delivery_count: int
    since_ms: int
    renewals: int


class Holds:
    def __init__(self) -> None:
        self.renewed: dict[int, Hold] = {}
        self._look_at = LOOK_FROM
        self.full_since_ms: int | None = None
        """Wall time."""

    def note_renewals(
        self, changes: Sequence[AnyChange], taken_at: Callable[[int], int], *, start_offset: int
    ) -> None:
        """Before they are applied; `taken_at` says when the lock on an offset was taken.

        Nobody holds anything before `start_offset`.
        """
        for change in changes:
            if isinstance(change, Change) and change.cause is Cause.RENEW and change.holder is not None:
                known = self.renewed.pop(change.first, None)
                if known is None or known[:2] != (change.holder, change.delivery_count):
                    known = Hold(change.holder, change.delivery_count, taken_at(change.first), 0)
                self.renewed[change.first] = known._replace(renewals=known.renewals + 1)
        if len(self.renewed) > self._look_at:
            self.renewed = {first: hold for first, hold in self.renewed.items() if first >= start_offset}
            self._look_at = max(LOOK_FROM, 2 * len(self.renewed))
        while len(self.renewed) > NOTES_MAX:
            del self.renewed[next(iter(self.renewed))]

    def note_size(self, size: int, window_max: int, wall_ms: Callable[[], int]) -> None:
        if size < window_max:
            self.full_since_ms = None
        elif self.full_since_ms is None:
            self.full_since_ms = wall_ms()
