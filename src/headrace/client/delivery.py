"""`Delivery`: one record that the broker has locked for this consumer, and the four answers to it.

A delivery is made for every record, so it is as light as it can be: what is the same for a whole range of records is
read from that range when it is asked for, and Python's collector of cycles is spared the walk over it.
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from headrace.client.core.ranges import AcquiredRange, RangeState
from headrace.wire.ids import uuid_text


class AcknowledgeType(IntEnum):
    """The answers to a delivery, with their numbers on the wire."""

    ACCEPT = 1
    """Done: the record is not delivered again."""
    RELEASE = 2
    """Not now: the record goes to any member again, up to the group's delivery limit."""
    REJECT = 3
    """Never: the record cannot be processed; it is archived (and dead-lettered where the broker does that)."""
    RENEW = 4
    """Still at it: the lock starts anew. Kafka 4.2 and later."""


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Keeper(Protocol):
    """Whoever has handed deliveries out, and takes their answers."""

    def acknowledge(self, delivery: "Delivery", type: int) -> None: ...

    def release_later(self, delivery: "Delivery", after: float | timedelta) -> None: ...

    def lock_deadline(self, delivery: "Delivery") -> float: ...


class Grant:
    """What the deliveries of one acquired range share."""

    __slots__ = ("acquired", "keeper")

    def __init__(self, acquired: AcquiredRange, keeper: Keeper) -> None:
        self.acquired = acquired
        self.keeper = keeper


class Delivery(msgspec.Struct, eq=False, gc=False):
    """A record on loan: accept, release or reject it before `lock_deadline`, or renew it.

        for delivery in consumer.poll():
            try:
                send(delivery.value)
            except Busy:
                delivery.release()
            else:
                delivery.accept()

    The methods work in explicit acknowledgement mode, from any thread. The answer goes to the broker with the next
    `poll` or commit; until then a later answer replaces an earlier one.
    """

    key: Any
    value: Any
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_type: int
    """0: set by the producer (CreateTime); 1: by the broker (LogAppendTime)."""
    _grant: Grant
    reason: str | None = None
    """Why it was rejected. Kafka's protocol has no place for it: it is for whoever writes the dead letter."""

    @property
    def topic(self) -> str:
        return self._grant.acquired.topic

    @property
    def topic_id(self) -> str:
        """As Kafka's tools show it. A topic that is deleted and created again has another one."""
        return uuid_text(self._grant.acquired.topic_id)

    @property
    def partition(self) -> int:
        return self._grant.acquired.partition

    @property
    def delivery_count(self) -> int:
        """1 at the first delivery."""
        return self._grant.acquired.delivery_count

    @property
    def lock_deadline(self) -> float:
        """When the lock ends unless it is renewed, as `time.time()` counts."""
        return self._grant.keeper.lock_deadline(self)

    @property
    def is_lost(self) -> bool:
        """The lock has ended or was taken away: the record may be with another member by now."""
        return self._grant.acquired.state_of(self.offset) in (RangeState.LOST, RangeState.LATE)

    @property
    def _acquired(self) -> AcquiredRange:
        return self._grant.acquired

    def accept(self) -> None:
        self._grant.keeper.acknowledge(self, 1)

    def release(self, *, after: float | timedelta = 0) -> None:
        """Gives the record back: at once, or `after` so many seconds (at most auto.renew.max.ms, one hour).

        Until then this consumer keeps the lock, and renews it in the background, so that waiting costs no deliveries.
        The record counts as answered: the next `poll` does not ask for it, and until its time another answer replaces
        this one. `close` releases it at once; and where the lock cannot be renewed it is released before that ends.
        """
        if after:
            self._grant.keeper.release_later(self, after)
        else:
            self._grant.keeper.acknowledge(self, 2)

    def reject(self, reason: str | None = None) -> None:
        """`reason` stays on this delivery; see the field."""
        self._grant.keeper.acknowledge(self, 3)
        self.reason = reason

    def renew(self) -> None:
        """Asks for the full lock duration again.

        As in Java, the next `poll` returns this same delivery again once the broker has agreed, before any new
        record. With `max_unacknowledged` it just stays with you. It may be answered at once all the same: the answer
        then goes to the broker behind the renewal.
        """
        self._grant.keeper.acknowledge(self, 4)

    def __repr__(self) -> str:
        where = f"{self.topic}-{self.partition}@{self.offset}"
        return (
            f"Delivery({where}, delivery_count={self.delivery_count}, key={self.key!r}, value={self.value!r})"
        )
