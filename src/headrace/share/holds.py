"""Holds: who has records since when, while it lasts, as it is journalled when it ends, and as it is replayed later.

An acquisition is not journalled. What ends it is, and that entry names the member and how long it had the records.
"""

from enum import IntEnum
from typing import NamedTuple


class Hold(NamedTuple):
    """What a member acquired at one instant, for as long as it has it: renewals go on with the same hold."""

    member: str
    since_ms: int
    renewals: int = 0


class HoldEnd(IntEnum):
    """How a hold ended. The numbers are those in `__share_group_state`."""

    ACCEPTED = 1
    RELEASED = 2
    REJECTED = 3
    GAP = 4
    """The member found no record at these offsets."""
    CLOSED = 5
    """The member's session ended: it left, or its connection was closed."""
    EXPIRED = 6
    """The lock timed out."""
    TAKEN = 7
    """An operator released the records, in the dashboard."""

    @property
    def words(self) -> str:
        return _WORDS[self]


_WORDS = {
    HoldEnd.ACCEPTED: "accepted",
    HoldEnd.RELEASED: "released",
    HoldEnd.REJECTED: "rejected",
    HoldEnd.GAP: "no record found",
    HoldEnd.CLOSED: "session closed",
    HoldEnd.EXPIRED: "lock timed out",
    HoldEnd.TAKEN: "released by an operator",
}


class EndedHold(NamedTuple):
    """A part of a hold that has ended, as it is journalled."""

    first: int
    last: int
    hold: Hold
    end: HoldEnd


class PastHold(NamedTuple):
    """A hold at a time in the past. Times are in milliseconds since 1970."""

    first: int
    last: int
    delivery_count: int
    member_id: str
    client_id: str
    """Empty where it is not known; so is the host."""
    client_host: str
    acquired_at: int
    ended_at: int | None = None
    """None for one that goes on now."""
    end: HoldEnd | None = None
    """None also for an end that a later Headrace has written, and this one does not know."""

    @property
    def words(self) -> str:
        """How it ended, for people."""
        return "ended" if self.end is None else self.end.words

    @property
    def held_ms(self) -> int | None:
        return None if self.ended_at is None else self.ended_at - self.acquired_at
