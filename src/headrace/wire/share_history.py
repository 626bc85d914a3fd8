"""A share-partition at a time in the past: its state then, who held what, and who had let go of what.

Theory of operation. A hold is written when it ends (share_holds.py), so what was held at a time is found in the
records after it: holds that began before. Of the holds that had ended by then, the last of each offset made its state
what it was. It belongs to a range of the state only if both have the same delivery count: state that names no member
(of Apache Kafka, of an older Headrace, or of a decision with too many ranges) takes the place of older holds.

A hold that never ended in writing is not known: it goes on (then whoever serves the share-partition knows it), or it
was lost with the process that knew it.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import chain
from operator import itemgetter

from headrace.base.ranges import flattened, joined, minus, within
from headrace.share.holds import PastHold
from headrace.share.states import RecordState
from headrace.share.view import StateRun
from headrace.wire.share_holds import holds_of
from headrace.wire.share_replay import ReplayedState, replay
from headrace.wire.share_state import Snapshot, Update

LATEST_MAX = 100
"""Holds of which is said that they had just ended."""


class PastPartition:
    """Takes the records of one share-partition in order, also those after its time."""

    def __init__(self, at_ms: int) -> None:
        self.at_ms = at_ms
        self.state: ReplayedState | None = None
        """None before the first snapshot, and after a tombstone."""
        self.names_holders: bool | None = None
        """Whether updates name members; None while nothing is known of them."""
        self._latest: deque[PastHold] = deque(maxlen=LATEST_MAX)
        self._ended: list[PastHold] = []
        self._held: list[PastHold] = []

    def add(
        self, timestamp: int, body: Snapshot | Update | None, holds: Sequence[PastHold] | None = None
    ) -> None:
        """`holds` are those of the record, for a caller that has them already."""
        if holds is None:
            holds = () if body is None else holds_of(body, timestamp)
        if holds or isinstance(body, Update):
            self.names_holders = bool(holds or self.names_holders)
        if timestamp > self.at_ms:
            self.add_held(holds)
            return
        self.state = replay(self.state, body, ReplayedState.of)
        if body is None:
            self._ended.clear()
        elif isinstance(body, Snapshot):
            self._ended = list(within(flattened(self._ended), body.batches))
        self._ended += holds
        self._latest.extend(holds)

    def add_held(self, holds: Iterable[PastHold]) -> None:
        """Holds that had not ended by then, if they had begun."""
        self._held += [hold for hold in holds if hold.acquired_at <= self.at_ms]

    def latest(self) -> tuple[PastHold, ...]:
        """The holds that had ended last, the newest first."""
        return tuple(reversed(self._latest))

    def runs(self) -> tuple[StateRun, ...]:
        if self.state is None:
            return ()
        held = list(joined(flattened(self._held)))
        ended = list(joined(flattened(self._ended)))
        rest = list(minus(self.state.merged(), held))
        runs = [
            StateRun(*batch, past=_ended_with(ended, batch.first, batch.delivery_count))
            for batch in chain(within(rest, ended), minus(rest, ended))
        ]
        runs += [
            StateRun(
                hold.first,
                hold.last,
                RecordState.ACQUIRED,
                hold.delivery_count,
                hold.member_id,
                held_ms=self.at_ms - hold.acquired_at,
                past=hold,
            )
            for hold in held
        ]
        return tuple(sorted(runs, key=lambda run: run.first))


def _ended_with(ended: list[PastHold], offset: int, delivery_count: int) -> PastHold | None:
    index = bisect_right(ended, offset, key=itemgetter(0)) - 1
    if index < 0 or ended[index].last < offset or ended[index].delivery_count != delivery_count:
        return None
    return ended[index]
