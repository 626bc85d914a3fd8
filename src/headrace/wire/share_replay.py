"""`__share_group_state` replayed: by the share coordinator when it starts, and by the admin client that reads along.

A snapshot replaces what came before, an update is merged into it, a tombstone ends it. An update of a share-partition
whose snapshot was not seen says too little, and is passed over: records are deleted only up to a snapshot that is
still needed, so this happens only to what was deleted since. Merging waits until somebody reads.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TypeVar

from headrace.share.changes import StateBatch
from headrace.share.merge import merge
from headrace.wire.share_state import Snapshot, Update

UNKNOWN = -1


@dataclass(slots=True)
class ReplayedState:
    """One share-partition: the fields of its snapshot, brought up to date. `updates` are not in `batches` yet."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    complete_count: int
    create_timestamp: int
    write_timestamp: int
    batches: Sequence[StateBatch]
    _: KW_ONLY
    updates: list[Sequence[StateBatch]] = field(default_factory=list)

    @staticmethod
    def of(snapshot: Snapshot) -> "ReplayedState":
        return ReplayedState(*snapshot[:8])

    def merged(self) -> Sequence[StateBatch]:
        if self.updates or (self.batches and self.batches[0].first < self.start_offset):
            self.batches = self.merged_with((), self.start_offset)
            self.updates = []
        return self.batches

    def merged_with(self, more: Sequence[StateBatch], start_offset: int) -> Sequence[StateBatch]:
        """What it would come to, with one more write."""
        written = [batch for batches in self.updates for batch in batches]
        return merge([*self.batches, *written, *more], start_offset=start_offset)

    def last_offset(self) -> int:
        """The last one that anything is said about."""
        lasts = [batch.last for batches in (self.batches, *self.updates) for batch in batches]
        return max([self.start_offset - 1, *lasts])

    def apply(self, update: Update) -> None:
        if update.start_offset != UNKNOWN:
            if update.start_offset < self.start_offset:
                self.merged()  # what was below the higher start is gone for good
            self.start_offset = update.start_offset
        if update.leader_epoch != UNKNOWN:
            self.leader_epoch = update.leader_epoch
        self.complete_count = update.complete_count
        if update.batches:
            self.updates.append(update.batches)


S = TypeVar("S", bound=ReplayedState)


def replay(known: S | None, body: Snapshot | Update | None, begin: Callable[[Snapshot], S]) -> S | None:
    """What one record makes of the state before it (None: there was none, or is none any more)."""
    if body is None:
        return None
    if isinstance(body, Snapshot):
        return begin(body)
    if known is not None:
        known.apply(body)
    return known
