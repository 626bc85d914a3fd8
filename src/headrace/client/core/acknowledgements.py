"""Acknowledgements on their way: from states to the fewest batches that say the same, and whom to tell the response.

A request carries, for each partition, ascending batches of offsets with either one type for all or one for each.
As Java's client does, neighboring short runs of different types share a batch with a type for each offset, and a run
of more than `RUN_MAX` equal types gets a batch of its own with one type.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from headrace.client.core.ranges import AcquiredRange, RangeState
from headrace.share.changes import GAP_TYPE
from headrace.wire.errors import KafkaError
from headrace.wire.messages.share_acknowledge_request import AcknowledgementBatch

_GAP, _RENEW = int(RangeState.GAP), int(RangeState.RENEW)
RUN_MAX = 10
LATE_TYPE = -1
"""In a `Settled`: it was acknowledged after its lock was lost, and never sent."""
Key = tuple[bytes, int]
"""A partition: topic id, index."""


class Ack(NamedTuple):
    """One range with one type, for one acquisition. `number` grows with each, so that a commit knows its own."""

    acquired: AcquiredRange
    first: int
    last: int
    state: int
    """What the offsets were before they were sent: ACCEPT, RELEASE, REJECT, RENEW or GAP."""
    number: int
    is_own: bool = False
    """A renewal that the member has decided on by itself; the states of the offsets do not show it."""
    is_alone: bool = False
    """Must not share a request with other acquisitions of its partition: one of them is refused."""

    @property
    def type(self) -> int:
        return GAP_TYPE if self.state == _GAP else self.state

    @property
    def is_renewal(self) -> bool:
        return self.state == _RENEW

    @property
    def key(self) -> Key:
        return self.acquired.topic_id, self.acquired.partition


class Settled(NamedTuple):
    """The broker's response for a range, or that there was none. Renewals are settled too."""

    acquired: AcquiredRange
    first: int
    last: int
    type: int
    """As `AcknowledgeType`; 0 is a gap, -1 what came too late to be sent."""
    error: KafkaError | None


class Lost(NamedTuple):
    """A range that the application held, unanswered, and holds no more."""

    acquired: AcquiredRange
    first: int
    last: int
    error: KafkaError


def batches_of(acks: Sequence[Ack]) -> list[Any]:
    """The acknowledgements of one partition, for either request: their structs are alike."""
    if len(acks) == 1:
        (ack,) = acks
        return [
            AcknowledgementBatch(first_offset=ack.first, last_offset=ack.last, acknowledge_types=(ack.type,))
        ]
    batches: list[Any] = []
    mixed: list[int] = []
    start = following = -1

    def flush() -> None:
        if mixed:
            types: Sequence[int] = mixed[:1] if mixed.count(mixed[0]) == len(mixed) else tuple(mixed)
            batches.append(
                AcknowledgementBatch(first_offset=start, last_offset=following - 1, acknowledge_types=types)
            )
            mixed.clear()

    for first, last, kind in _joined(acks):
        if first != following or last - first + 1 > RUN_MAX:
            flush()
        if last - first + 1 > RUN_MAX:
            batches.append(
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=(kind,))
            )
            following = -1
            continue
        if not mixed:
            start = first
        mixed += [kind] * (last - first + 1)
        following = last + 1
    flush()
    return batches


def _joined(acks: Iterable[Ack]) -> Iterable[tuple[int, int, int]]:
    """Ascending, neighbors of the same type made one: `base.ranges.joined` for plain tuples, in a third of its time."""
    runs = sorted((ack.first, ack.last, ack.type) for ack in acks)
    first, last, kind = runs[0]
    for next_first, next_last, next_kind in runs[1:]:
        if next_first == last + 1 and next_kind == kind:
            last = next_last
        else:
            yield first, last, kind
            first, last, kind = next_first, next_last, next_kind
    yield first, last, kind


def by_partition(acks: Iterable[Ack]) -> dict[Key, list[Ack]]:
    grouped: dict[Key, list[Ack]] = {}
    for ack in acks:
        grouped.setdefault(ack.key, []).append(ack)
    return grouped


class Commit:
    """Waits until every acknowledgement made before it is settled; the worst result by (topic, partition)."""

    __slots__ = ("_awaited", "results")

    def __init__(self, outstanding: Iterable[Ack]) -> None:
        self.results: dict[tuple[str, int], KafkaError | None] = {}
        self._awaited = {ack.number for ack in outstanding if not ack.is_own}

    @property
    def is_done(self) -> bool:
        return not self._awaited

    def follow(self, renewals: Sequence[Ack], answers: Sequence[Ack]) -> None:
        """Records were answered while their renewals were on their way: the answers are awaited as well."""
        if answers and any(ack.number in self._awaited for ack in renewals):
            self._awaited.update(ack.number for ack in answers)

    def settle(self, ack: Ack, error: KafkaError | None) -> None:
        if ack.number in self._awaited and not ack.is_own:
            self.add(ack.acquired, error)
            self._awaited.discard(ack.number)  # last: another thread may wait for this one

    def add(self, acquired: AcquiredRange, error: KafkaError | None) -> None:
        partition = (acquired.topic, acquired.partition)
        if error is not None or partition not in self.results:
            self.results[partition] = error
