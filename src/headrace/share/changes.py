"""Decided facts about a share-partition, as journalled and applied; and the shapes that its callers meet.

These are made for every fetch and every acknowledgement, so they are named tuples: a third of the cost of a frozen
dataclass, and just as immutable.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple, TypeAlias

from headrace.share.holds import EndedHold, Hold, HoldEnd
from headrace.share.states import UNWRITTEN, Cause, RecordState

Span: TypeAlias = tuple[int, int]
"""First and last offset, both included. An in-flight batch is known by its span: AcquiredRecords never join two."""


class Change(NamedTuple):
    """One range of records changes its state. What it was before is the journal's matter, not the change's."""

    first: int
    last: int
    state: RecordState
    delivery_count: int  # how often the records have been delivered, after the change
    cause: Cause
    hold: Hold | None  # the one that the change begins, renews or ends
    deadline_ms: int | None  # when its lock ends; only if ACQUIRED
    batch: Span


class StartMoved(NamedTuple):
    """The log's start passed the start offset: nothing below is in flight any more."""

    start_offset: int


AnyChange: TypeAlias = Change | StartMoved


class AcquiredRecords(NamedTuple):
    """Records handed to a member, as AcquiredRecords in the response."""

    first: int
    last: int
    delivery_count: int


class Acquisition(NamedTuple):
    changes: list[Change]
    acquired: list[AcquiredRecords]

    @property
    def record_count(self) -> int:
        """How many offsets were acquired: what the request may ask of its next partition is less by these."""
        return sum(entry.last - entry.first + 1 for entry in self.acquired)


class AcknowledgeType(IntEnum):
    """How a member acknowledges a record. The values are those of Kafka's protocol."""

    ACCEPT = 1
    """The record was processed. It is not delivered again."""
    RELEASE = 2
    """The record is delivered again, to any member, up to the group's delivery limit."""
    REJECT = 3
    """The record cannot be processed. The broker archives it, and dead-letters it if the group is configured so."""
    RENEW = 4
    """Renews the lock. Requires Kafka 4.2 or later."""


GAP_TYPE = 0
"""In place of an acknowledge type, for an offset at which the member found no record."""


class AckBatch(NamedTuple):
    """A member's answer for first..last: one type for all of them, or one for each."""

    first: int
    last: int
    types: list[int] | tuple[int, ...]


class StateBatch(NamedTuple):
    """A range of records as persisted."""

    first: int
    last: int
    state: RecordState
    delivery_count: int


class StateWrite(NamedTuple):
    """What WriteShareGroupState must carry for a decision."""

    start_offset: int
    delivery_complete_count: int
    batches: list[StateBatch]


def state_batches(changes: Iterable[AnyChange], *, start_offset: int = 0) -> list[StateBatch]:
    """The part of a decision that is persisted: nothing acquired, nothing below `start_offset`, neighbors joined.

    Runs for every acknowledgement, where one loop takes half the time of `base.ranges.joined` over new tuples.
    """
    batches: list[StateBatch] = []
    for change in changes:
        if not isinstance(change, Change) or change.cause in UNWRITTEN or change.last < start_offset:
            continue
        first = max(change.first, start_offset)
        if batches:
            before = batches[-1]
            if (
                before.last + 1 == first
                and before.state is change.state
                and before.delivery_count == change.delivery_count
            ):
                batches[-1] = StateBatch(before.first, change.last, change.state, change.delivery_count)
                continue
        batches.append(StateBatch(first, change.last, change.state, change.delivery_count))
    return batches


ENDS = {
    Cause.ACCEPT: HoldEnd.ACCEPTED,
    Cause.REJECT: HoldEnd.REJECTED,
    Cause.REJECT_TO_DEAD_LETTERS: HoldEnd.REJECTED,
    Cause.GAP: HoldEnd.GAP,
}
GIVEN_BACK = frozenset(
    {Cause.RELEASE, Cause.CLOSE, Cause.EXPIRE, Cause.EXHAUST, Cause.EXHAUST_TO_DEAD_LETTERS}
)


def ended_holds(changes: Iterable[AnyChange], given_back: HoldEnd) -> list[EndedHold]:
    """The holds that a decision ends, neighbors joined; `given_back` says how records came back, if they did."""
    ended: list[EndedHold] = []
    for change in changes:
        if not isinstance(change, Change) or change.hold is None:
            continue
        end = ENDS.get(change.cause)
        if end is None:
            if change.cause not in GIVEN_BACK:
                continue
            end = given_back
        if ended:
            before = ended[-1]
            if before.last + 1 == change.first and before.end is end and before.hold == change.hold:
                ended[-1] = EndedHold(before.first, change.last, change.hold, end)
                continue
        ended.append(EndedHold(change.first, change.last, change.hold, end))
    return ended
