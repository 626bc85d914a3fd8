"""`Delivery`: one record that the broker has locked for this consumer, and the four ways to acknowledge it.

A delivery is made for every record, so it is as light as it can be: what is the same for a whole range of records is
read from that range when it is asked for, and Python's collector of cycles is spared the walk over it.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from headrace.client.core.ranges import AcquiredRange, RangeState
from headrace.share.changes import AcknowledgeType
from headrace.wire.ids import uuid_text

__all__ = ["AcknowledgeType", "Delivery", "Grant", "Granted", "Keeper", "TopicPartition"]

G = TypeVar("G", bound="Granted")


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Keeper(Protocol):
    """What returned the deliveries, and takes their acknowledgements."""

    def acknowledge(self, delivery: "Delivery", type: int) -> None: ...

    def release_later(self, delivery: "Delivery", after: float | timedelta) -> None: ...

    def lock_deadline(self, delivery: "Delivery") -> float: ...


class Granted(Protocol):
    """Where a delivery is from: an `AcquiredRange`, or a partition of a consumer group (`worker/owned.py`)."""

    @property
    def topic(self) -> str: ...
    @property
    def topic_id(self) -> bytes: ...
    @property
    def partition(self) -> int: ...
    @property
    def delivery_count(self) -> int: ...
    def state_of(self, offset: int) -> RangeState: ...


class Grant(Generic[G]):
    """What the deliveries of one acquired range share."""

    __slots__ = ("acquired", "keeper")

    def __init__(self, acquired: G, keeper: Keeper) -> None:
        self.acquired = acquired
        self.keeper = keeper


class Delivery(msgspec.Struct, eq=False, gc=False):
    """A record that is locked for this consumer. Accept, release, reject or renew it before `lock_deadline`.

        for delivery in consumer.poll():
            try:
                send(delivery.value)
            except Busy:
                delivery.release()
            else:
                delivery.accept()

    The methods require explicit acknowledgement mode and can be called on any thread. The next `poll` or commit sends
    the acknowledgement to the broker; until then, a later call replaces an earlier one.
    """

    key: Any
    value: Any
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    headers: Sequence[tuple[str, bytes | None]]
    timestamp_type: int
    """0: set by the producer (CreateTime); 1: by the broker (LogAppendTime)."""
    _grant: Grant[Any]
    reason: str | None = None
    """The reason given to `reject`. Kafka's protocol cannot carry it, so it stays on this object."""

    @property
    def topic(self) -> str:
        topic: str = self._grant.acquired.topic
        return topic

    @property
    def topic_id(self) -> str:
        """The topic ID, as Kafka's tools show it. It changes when a topic is deleted and created again."""
        return uuid_text(self._grant.acquired.topic_id)

    @property
    def partition(self) -> int:
        partition: int = self._grant.acquired.partition
        return partition

    @property
    def delivery_count(self) -> int:
        """How often the record has been delivered, including this time: 1 for the first delivery."""
        count: int = self._grant.acquired.delivery_count
        return count

    @property
    def lock_deadline(self) -> float:
        """When the lock expires unless it is renewed, in seconds as returned by `time.time()`."""
        return self._grant.keeper.lock_deadline(self)

    @property
    def is_lost(self) -> bool:
        """True if the lock expired or was revoked, so that another member may have the record."""
        return self._grant.acquired.state_of(self.offset) in (RangeState.LOST, RangeState.LATE)

    @property
    def _acquired(self) -> AcquiredRange:
        acquired: AcquiredRange = self._grant.acquired
        return acquired

    def accept(self) -> None:
        """Acknowledges the record as processed."""
        self._grant.keeper.acknowledge(self, 1)

    def release(self, *, after: float | timedelta = 0) -> None:
        """Releases the record immediately, or after `after` seconds (at most auto.renew.max.ms, one hour).

        Immediately means that it is delivered again within milliseconds, which uses up its deliveries (5 by default) in
        a loop: while a service is busy, give `after`. Until then, this consumer keeps the lock and renews it in the
        background, so the delivery count does not grow. The record counts as acknowledged: `poll` does not require
        another acknowledgement, and a later one replaces this one. `close` releases the record immediately. If the lock
        cannot be renewed, the record is released before the lock expires.
        """
        if after:
            self._grant.keeper.release_later(self, after)
        else:
            self._grant.keeper.acknowledge(self, 2)

    def reject(self, reason: str | None = None) -> None:
        """Acknowledges the record as one that cannot be processed. `reason` is kept on this object."""
        self._grant.keeper.acknowledge(self, 3)
        self.reason = reason

    def renew(self) -> None:
        """Extends the lock by its full duration.

        As in Java, the next `poll` after the broker's response returns this delivery again, before new records. With
        `max_unacknowledged`, it is not returned again. You can acknowledge the record without waiting for that: the
        acknowledgement is sent after the renewal.
        """
        self._grant.keeper.acknowledge(self, 4)

    def __repr__(self) -> str:
        where = f"{self.topic}-{self.partition}@{self.offset}"
        return (
            f"Delivery({where}, delivery_count={self.delivery_count}, key={self.key!r}, value={self.value!r})"
        )
