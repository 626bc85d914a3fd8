"""The law of record states: every legal change in one table, and the picture of it for the docs.

All that decides whether a record may change its state lives here: a pair of (state, cause) that TRANSITIONS does not
name is an error, nothing is legal by falling through. A record that has not been read from the log yet counts as
AVAILABLE. How often it was delivered is not part of its state: only ACQUIRE adds to the delivery count.
"""

from enum import IntEnum, auto


class RecordState(IntEnum):
    """The numbers are Kafka's, as persisted in `__share_group_state` (ACQUIRED never is)."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    ARCHIVED = 4


class Cause(IntEnum):
    READ = (
        auto()
    )  # read from the log beside records that were acquired, and left for the next fetch (record_limit)
    ACQUIRE = auto()
    ACCEPT = auto()
    RELEASE = auto()
    RENEW = auto()
    REJECT = auto()
    GAP = auto()  # the client found no record at this offset
    CLOSE = auto()  # the holder's session ended
    EXPIRE = auto()  # the lock ran out
    EXHAUST = auto()  # released, closed or expired with no delivery left
    REJECT_TO_DEAD_LETTERS = auto()
    EXHAUST_TO_DEAD_LETTERS = auto()
    DEAD_LETTER = auto()  # its copy is in the dead-letter topic, or has been given up
    ABORT = auto()  # written by a transaction that was aborted
    COMPACT = auto()  # the log does not have it any more
    TRIM = auto()  # the log's start moved past it


S, C = RecordState, Cause

TRANSITIONS: dict[tuple[RecordState, Cause], RecordState] = {
    (S.AVAILABLE, C.READ): S.AVAILABLE,
    (S.AVAILABLE, C.ACQUIRE): S.ACQUIRED,
    (S.AVAILABLE, C.ABORT): S.ARCHIVED,
    (S.AVAILABLE, C.COMPACT): S.ARCHIVED,
    (S.AVAILABLE, C.TRIM): S.ARCHIVED,
    (S.ACQUIRED, C.ACCEPT): S.ACKNOWLEDGED,
    (S.ACQUIRED, C.RENEW): S.ACQUIRED,
    (S.ACQUIRED, C.RELEASE): S.AVAILABLE,
    (S.ACQUIRED, C.CLOSE): S.AVAILABLE,
    (S.ACQUIRED, C.EXPIRE): S.AVAILABLE,
    (S.ACQUIRED, C.REJECT): S.ARCHIVED,
    (S.ACQUIRED, C.EXHAUST): S.ARCHIVED,
    (S.ACQUIRED, C.GAP): S.ARCHIVED,
    (S.ACQUIRED, C.TRIM): S.ARCHIVED,
    (S.ACQUIRED, C.REJECT_TO_DEAD_LETTERS): S.ARCHIVING,
    (S.ACQUIRED, C.EXHAUST_TO_DEAD_LETTERS): S.ARCHIVING,
    (S.ARCHIVING, C.DEAD_LETTER): S.ARCHIVED,
}

FINAL = frozenset({S.ACKNOWLEDGED, S.ARCHIVED})

UNWRITTEN = frozenset({C.READ, C.ACQUIRE, C.RENEW, C.ABORT, C.COMPACT, C.TRIM})
"""Causes whose changes are not persisted: after a restart the log shows them again, or the lock is gone anyway."""
