"""What everybody saw while the broker was killed again and again: written by many threads, read by the checker.

Times are those of `time.monotonic`. Where a client cannot know something it says None: librdkafka does not tell which
life of the broker a record came from, or when it asked for it.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
Place = tuple[int, int]
"""Partition and offset."""
UNKNOWN = -1
"""The offset of a record that was written, as its producer was told, nobody knows where."""


@dataclass(frozen=True, slots=True)
class Produced:
    """A producer was told that its record is there."""

    place: Place
    value: bytes


@dataclass(frozen=True, slots=True)
class Delivery:
    place: Place
    value: bytes
    member: str
    count: int
    received_at: float
    asked_at: float | None = None
    """It was acquired after this, if that is known."""
    life: int | None = None
    """Which life of the broker it came from: how many kills there were before it."""


@dataclass(slots=True)
class Answer:
    """A member's answer for a record."""

    place: Place
    kind: int
    member: str
    count: int
    """The delivery count of the record that it answers for."""
    sent_at: float
    life: int | None = None
    """In which it took effect, or a later one."""
    confirmed_at: float | None = None
    """When the member heard that the broker has taken it."""


@dataclass(frozen=True, slots=True)
class Letter:
    """A record of the dead-letter topic."""

    place: Place
    value: bytes | None
    count: int
    cause: str


@dataclass(slots=True)
class History:
    produced: list[Produced] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    gone: dict[str, float] = field(default_factory=dict)
    """When a member began to close its session or connection: from then on it holds nothing for certain."""
    letters: list[Letter] = field(default_factory=list)
    log: dict[Place, bytes] = field(default_factory=dict)
    """All records that were in the topic at the end."""
    lag: dict[int, int] = field(default_factory=dict)
    """By partition, when all had been worked off."""

    def find_places(self) -> None:
        """Of records whose producer does not know where they are; no two are alike."""
        places = {value: place for place, value in self.log.items()}
        self.produced = [
            replace(one, place=places.get(one.value, one.place)) if one.place[1] == UNKNOWN else one
            for one in self.produced
        ]

    def find_lives(self, began_at: Sequence[float]) -> None:
        """For clients that do not know: from when each life began."""
        self.deliveries = [
            replace(one, life=bisect_right(began_at, one.asked_at) - 1)
            if one.life is None
            and one.asked_at is not None
            and bisect_right(began_at, one.asked_at) == bisect_right(began_at, one.received_at)
            else one
            for one in self.deliveries
        ]
        for answer in self.answers:
            if answer.life is None and answer.confirmed_at is not None:
                answer.life = bisect_right(began_at, answer.confirmed_at) - 1

    def summary(self) -> str:
        kinds = Counter(answer.kind for answer in self.answers if answer.confirmed_at is not None)
        again = Counter(delivery.place for delivery in self.deliveries)
        consumers = Counter(delivery.member.partition(".")[0] for delivery in self.deliveries)
        shares = ", ".join(f"{name} {count}" for name, count in sorted(consumers.items()))
        return (
            f"{len(self.produced)} records produced, {len(self.deliveries)} deliveries, up to "
            f"{max(again.values(), default=0)} of one record ({shares}); confirmed: {kinds[ACCEPT]} accepted, "
            f"{kinds[RELEASE]} released, {kinds[REJECT]} rejected, {kinds[RENEW]} renewed; "
            f"{len(self.letters)} dead letters"
        )
