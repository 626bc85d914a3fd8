"""What a member holds of one broker, and the acknowledgements for it: those that wait, and those in flight.

Everything here is looked up by the range that it is about, or walked over once for each request: a member may hold tens
of thousands of ranges with one record each.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

from headrace.base.ranges import minus
from headrace.client.core.acknowledgements import Ack, Key
from headrace.client.core.ranges import AcquiredRange, RangeState, Span

_first, _last = attrgetter("first"), attrgetter("last")


class BrokerLane:
    """See the module."""

    __slots__ = ("_in_flight", "_renewals", "_renewed", "due_ms", "held", "waiting")

    def __init__(self) -> None:
        self.held: dict[Key, dict[AcquiredRange, None]] = {}
        """Ranges that are not finished."""
        self.waiting: list[Ack] = []
        """For the next request: what the application has answered, or somebody in its place."""
        self._renewals: dict[AcquiredRange, list[Ack]] = {}
        """The same: what the member renews by itself."""
        self._in_flight: list[Ack] = []
        self._renewed: set[AcquiredRange] = set()
        """Of what the member renews by itself, in flight."""
        self.due_ms: int | None = None
        """When its locks have to be checked."""

    def due(self, due_ms: int) -> None:
        """They have to be checked then, or before."""
        if self.due_ms is None or due_ms < self.due_ms:
            self.due_ms = due_ms

    # What is held

    def acquired(self) -> Iterator[AcquiredRange]:
        for ranges in self.held.values():
            yield from ranges

    def hold(self, key: Key, ranges: Iterable[AcquiredRange]) -> None:
        self.held.setdefault(key, {}).update(dict.fromkeys(ranges))

    def forget_finished(self, acquired: AcquiredRange) -> None:
        if not acquired.is_finished:
            return
        key = (acquired.topic_id, acquired.partition)
        ranges = self.held.get(key)
        if ranges is not None:
            ranges.pop(acquired, None)
            if not ranges:
                del self.held[key]

    def overlaps(self, key: Key, arrived: Sequence[Span]) -> list[tuple[AcquiredRange, list[Span]]]:
        """The ranges that share offsets with those that have just arrived (in order), and which offsets."""
        if not arrived:
            return []
        low, high = arrived[0].first, arrived[-1].last
        near = [one for one in self.held.get(key, ()) if one.first <= high and low <= one.last]
        return [(one, shared) for one in near if (shared := _shared(arrived, one))]

    # What is to be acknowledged

    @property
    def is_idle(self) -> bool:
        """Nothing waits for the next request."""
        return not self.waiting and not self._renewals

    def all_waiting(self) -> list[Ack]:
        return [*self.waiting, *(ack for acks in self._renewals.values() for ack in acks)]

    @property
    def in_flight(self) -> Sequence[Ack]:
        return self._in_flight

    @property
    def has_renewals(self) -> bool:
        """A renewal waits, the member's own or the application's."""
        return bool(self._renewals) or any(ack.state == RangeState.RENEW for ack in self.waiting)

    def is_renewing(self, acquired: AcquiredRange) -> bool:
        """A renewal of the member's own, of which the application knows nothing, waits or is in flight."""
        return acquired in self._renewals or acquired in self._renewed

    def renew(self, acks: Iterable[Ack]) -> None:
        """Renewals of the member's own."""
        for ack in acks:
            self._renewals.setdefault(ack.acquired, []).append(ack)

    def cut_renewals(self, acquired: AcquiredRange, acks: Sequence[Ack]) -> None:
        """What is acknowledged now is not renewed too: two types for one offset make the broker refuse the request."""
        own = self._renewals.pop(acquired, None)
        if own:
            left = list(minus(sorted(own, key=_first), acks))
            if left:
                self._renewals[acquired] = left

    def send(self) -> list[Ack]:
        """What the next request acknowledges: all that waits, but of a partition whose acknowledgements were refused
        only one acquisition at a time."""
        assert not self._in_flight, "two requests in flight to one broker"
        has_own = bool(self._renewals)
        acks = self._in_flight = self.take_waiting()
        if any(ack.is_alone for ack in acks):
            acks = self._in_flight = self._keep_others_waiting(acks)
        if has_own:
            self._renewed = {ack.acquired for ack in acks if ack.is_own}
        return acks

    def _keep_others_waiting(self, acks: Sequence[Ack]) -> list[Ack]:
        """Of each partition with one that must be alone: all but those of the first such acquisition."""
        alone: dict[Key, AcquiredRange] = {}
        for ack in acks:
            if ack.is_alone:
                alone.setdefault(ack.key, ack.acquired)
        for ack in acks:
            if alone.get(ack.key, ack.acquired) is not ack.acquired:
                self.wait(ack)
        return [ack for ack in acks if alone.get(ack.key, ack.acquired) is ack.acquired]

    def wait(self, ack: Ack) -> None:
        """It goes with the next request."""
        if ack.is_own:
            self.renew([ack])
        else:
            self.waiting.append(ack)

    def take_waiting(self) -> list[Ack]:
        """What waits, which does so no more."""
        acks, self.waiting = self.waiting, []
        if self._renewals:
            renewals, self._renewals = self._renewals, {}
            acks += [ack for own in renewals.values() for ack in own]
        return acks

    def take_overlapping(self, key: Key, arrived: Sequence[Span]) -> list[Ack]:
        """The same for what shares offsets with ranges that have just arrived (in order)."""
        acks = self.take_waiting()
        taken = []
        for ack in acks:
            if ack.key == key and _shared(arrived, ack):
                taken.append(ack)
            else:
                self.wait(ack)
        return taken

    def responded(self) -> list[Ack]:
        """The request in flight is over; what it carried."""
        acks, self._in_flight = self._in_flight, []
        if self._renewed:
            self._renewed = set()
        return acks


def _shared(arrived: Sequence[Span], one: AcquiredRange | Ack) -> list[Span]:
    """The parts of those that have arrived that are in a range, too."""
    shared = []
    index = bisect_left(arrived, one.first, key=_last)
    while index < len(arrived) and arrived[index].first <= one.last:
        span = arrived[index]
        shared.append(span._replace(first=max(one.first, span.first), last=min(one.last, span.last)))
        index += 1
    return shared
