"""The records of `__share_group_state` played back, as the share coordinator itself does when it starts.

A snapshot replaces what came before, an update is merged into it, a tombstone ends it. An update of a share-partition
whose snapshot was not seen says too little, and is passed over: Kafka deletes records only up to a snapshot that is
still needed, so this happens only to what was deleted since.
"""

from dataclasses import dataclass

from headrace.share.changes import StateBatch
from headrace.share.merge import PersistedState
from headrace.wire.share_state import ShareKey, Snapshot, Update

UNKNOWN = -1


@dataclass(slots=True)
class ReplayedState:
    """One share-partition as far as it has been played back."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    complete_count: int
    persisted: PersistedState

    @property
    def start_offset(self) -> int:
        return self.persisted.start_offset

    def batches(self) -> list[StateBatch]:
        return self.persisted.batches()


class Replay:
    def __init__(self) -> None:
        self.states: dict[ShareKey, ReplayedState] = {}

    def feed(self, key: ShareKey, body: Snapshot | Update | None) -> None:
        """One record, oldest first; None is a tombstone."""
        if body is None:
            self.states.pop(key, None)
        elif isinstance(body, Snapshot):
            self.states[key] = ReplayedState(
                snapshot_epoch=body.snapshot_epoch,
                state_epoch=body.state_epoch,
                leader_epoch=body.leader_epoch,
                complete_count=body.complete_count,
                persisted=PersistedState(body.start_offset, body.batches),
            )
        elif key in self.states:
            _update(self.states[key], body)


def _update(state: ReplayedState, update: Update) -> None:
    if UNKNOWN < update.start_offset < state.start_offset:
        state.persisted = PersistedState(update.start_offset, state.batches())
    state.persisted.update(update.start_offset, update.batches)
    if update.leader_epoch != UNKNOWN:
        state.leader_epoch = update.leader_epoch
    state.complete_count = update.complete_count
