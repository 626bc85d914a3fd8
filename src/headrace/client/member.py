"""`AsyncShareMember`: a member of a share group at the level of ranges of offsets, on asyncio.

It joins the group, keeps a share session with every broker that leads an assigned partition, acquires records ahead,
and carries acknowledgements. It never opens a record: what it gives are `Arrival`s, the bytes of one partition's
record batches with the ranges in them that are locked for this member. `AsyncShareConsumer` is built on it, and
Spark's source, whose driver acquires while its executors read.

    async with AsyncShareMember(settings, capacity=100_000, on_settled=settled, on_lost=lost) as member:
        member.subscribe(["orders"])
        for arrival in await member.take(10_000, timeout_s=1.0):
            for acquired in arrival.acquired:          # topic, partition, first, last, delivery_count, lock_until_ms
                member.acknowledge(acquired, AcknowledgeType.ACCEPT)
        results = await member.commit(timeout_s=5.0)   # {TopicPartition: None or the error}

Every acknowledged range is answered exactly once by `on_settled`: without an error when the broker has confirmed it,
with one when it was refused or when its fate is unknown (the connection broke). A range whose lock is gone before it
was acknowledged is told to `on_lost`, once. Both are called on the loop, inside the member: they must be quick and
must not raise.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headrace.client.core.acquired import Acquired
from headrace.client.delivery import AcknowledgeType, TopicPartition
from headrace.client.settings import ShareSettings
from headrace.wire.errors import KafkaError


@dataclass(frozen=True, slots=True)
class Arrival:
    """What one answer brought of one partition: the records' bytes, and which offsets in them are ours."""

    topic: str
    partition: int
    topic_id: bytes
    acquired: Sequence[Acquired]
    records: bytes
    """Whole record batches; there may be more in them than was acquired."""


@dataclass(frozen=True, slots=True)
class Settled:
    """The broker's answer for a range, or that there was none. RENEW ranges are answered too."""

    acquired: Acquired
    first: int
    last: int
    type: int
    """As `AcknowledgeType`; 0 is a gap."""
    error: KafkaError | None


@dataclass(frozen=True, slots=True)
class Lost:
    """A range that this member held, unacknowledged, and holds no more."""

    acquired: Acquired
    first: int
    last: int
    error: KafkaError


class AsyncShareMember:
    """See the module. All methods belong to the loop it was started on.

    `capacity` bounds the offsets that are acquired and not settled (taken or not); the member fetches ahead up to it,
    `max.poll.records` at a time (0: as a consumer does, one poll ahead). In `record_limit` mode it is never exceeded;
    else by no more than one record batch for each broker. `member_id` takes an old id back.
    `renew` says whether the locks of taken ranges are renewed by itself, up to `auto.renew.max.ms` for each.
    """

    def __init__(
        self,
        settings: ShareSettings,
        *,
        capacity: int = 0,
        member_id: str | None = None,
        on_settled: Callable[[Sequence[Settled]], None] | None = None,
        on_lost: Callable[[Sequence[Lost]], None] | None = None,
    ) -> None:
        raise NotImplementedError

    @property
    def member_id(self) -> str:
        raise NotImplementedError

    async def start(self) -> None:
        """Connects. An error that names the address when no broker is there within default.api.timeout.ms."""

    def subscribe(self, topics: Collection[str]) -> None:
        """Replaces the subscription; with no topics the member leaves its group."""

    async def take(self, records_max: int, *, timeout_s: float) -> list[Arrival]:
        """Arrivals of about so many records (whole arrivals; at least one when there is one), or [] after the time.

        Raises what makes it impossible to go on: a refused group, a refused topic.
        Cancelling it loses nothing: what has arrived stays for the next call.
        """
        raise NotImplementedError

    def acknowledge(
        self, acquired: Acquired, type: AcknowledgeType, first: int | None = None, last: int | None = None
    ) -> bool:
        """Decides about a range, or a part of it; it is sent at once. False when it was decided before."""
        raise NotImplementedError

    async def commit(self, *, timeout_s: float) -> dict[TopicPartition, KafkaError | None]:
        """Waits until everything acknowledged so far is answered; the worst answer by partition."""
        raise NotImplementedError

    async def close(self, *, timeout_s: float = 30.0) -> None:
        """Sends what is acknowledged, closes its sessions (which releases what is held) and leaves the group."""

    async def __aenter__(self) -> Self:
        raise NotImplementedError

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError
