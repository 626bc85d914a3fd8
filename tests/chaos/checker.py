"""The laws that a history must obey, each a function that yields what breaks it. Pure: it knows no broker and no clock.

Observations are intervals. A record was acquired somewhere between the asking and the receiving, an answer took effect
somewhere between the sending and the confirmation; two things are in order only if their intervals are. kill -9 keeps
what was written, so a confirmed answer stands over all later lives of the broker without exception.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import TypeVar

from tests.chaos.history import ACCEPT, REJECT, RELEASE, RENEW, Answer, Delivery, History, Place

T = TypeVar("T", Delivery, Answer)

SLACK_S = 0.02
"""The broker counts in milliseconds, and a timer may fire that much early."""
EXHAUSTED = "exceeded"


class Checker:
    """`has_dead_letters`: the broker copies what is rejected or delivered too often; nothing ends without a trace."""

    def __init__(
        self, history: History, *, lock_s: float, deliveries_max: int, has_dead_letters: bool = True
    ) -> None:
        self.history = history
        self._has_dead_letters = has_dead_letters
        self._lock_s = lock_s
        self._deliveries_max = deliveries_max
        self._deliveries = _by_place(history.deliveries)
        self._answers = _by_place(history.answers)
        self._dead = {letter.place for letter in history.letters}

    def violations(self) -> list[str]:
        laws: list[Callable[[], Iterator[str]]] = [
            self.nothing_produced_is_lost_or_altered,
            self.nothing_settled_is_delivered_again,
            self.nothing_is_settled_twice,
            self.no_record_has_two_holders,
            self.counts_never_fall_back,
            self.everything_ends,
            *([self.dead_letters_have_a_reason] if self._has_dead_letters else []),
        ]
        return [f"{law.__name__}: {broken}" for law in laws for broken in law()]

    def nothing_produced_is_lost_or_altered(self) -> Iterator[str]:
        for produced in self.history.produced:
            found = self.history.log.get(produced.place)
            if found != produced.value:
                yield f"{produced} is {found!r} in the log"
        for delivery in self.history.deliveries:
            if self.history.log.get(delivery.place) != delivery.value:
                yield f"{delivery} is not what is in the log"
        for letter in self.history.letters:
            if self.history.log.get(letter.place) != letter.value:
                yield f"{letter} is not a copy of the record"

    def nothing_settled_is_delivered_again(self) -> Iterator[str]:
        for place, answers in self._answers.items():
            for answer in answers:
                if answer.kind in (ACCEPT, REJECT) and answer.confirmed_at is not None:
                    for delivery in self._deliveries[place]:
                        if self._is_after(delivery, answer):
                            yield f"{delivery} after {answer}"

    def nothing_is_settled_twice(self) -> Iterator[str]:
        for answers in self._answers.values():
            last = [one for one in answers if one.kind in (ACCEPT, REJECT) and self._is_effective(one)]
            if len(last) > 1:
                yield f"{last[0]} and {last[1]}"

    def no_record_has_two_holders(self) -> Iterator[str]:
        for place, deliveries in self._deliveries.items():
            for one, other in _pairs_of_one_life(deliveries):
                if one.count == other.count:
                    yield f"{one} and {other} are one acquisition"
                for holder, intruder in ((one, other), (other, one)):
                    if self._was_taken_from(holder, intruder, self._answers.get(place, [])):
                        yield f"{intruder} while it was held: {holder}"

    def _was_taken_from(self, holder: Delivery, intruder: Delivery, answers: list[Answer]) -> bool:
        if intruder.asked_at is None or intruder.asked_at < holder.received_at:
            return False
        return intruder.received_at < self._held_until(holder, answers) - SLACK_S

    def _held_until(self, holder: Delivery, answers: list[Answer]) -> float:
        """Until then at least: the lock's end, or the moment before which nothing could have ended it."""
        if holder.asked_at is None:
            return holder.received_at
        until = holder.asked_at + self._lock_s
        own = [one for one in answers if one.member == holder.member and one.count == holder.count]
        for answer in sorted(own, key=lambda one: one.sent_at):
            if answer.kind == RENEW and answer.confirmed_at is not None:
                until = max(until, answer.sent_at + self._lock_s)
        ends = [answer.sent_at for answer in own if answer.kind != RENEW]
        return min([until, *ends, self.history.gone.get(holder.member, until)])

    def counts_never_fall_back(self) -> Iterator[str]:
        for place, deliveries in self._deliveries.items():
            for delivery in deliveries:
                if not 1 <= delivery.count <= self._deliveries_max:
                    yield f"{delivery} is not one of {self._deliveries_max}"
            for one, other in _pairs_of_one_life(deliveries):
                first, second = sorted((one, other), key=lambda delivery: delivery.count)
                if first.asked_at is not None and first.asked_at > second.received_at:
                    yield f"{first} after {second}"
            for answer in self._answers.get(place, []):
                if answer.kind == RELEASE and answer.confirmed_at is not None and _is_own(answer, deliveries):
                    for delivery in deliveries:
                        if self._is_after(delivery, answer) and delivery.count <= answer.count:
                            yield f"{delivery} after {answer}"

    def everything_ends(self) -> Iterator[str]:
        for partition, lag in self.history.lag.items():
            if lag:
                yield f"partition {partition} has a lag of {lag}"
        for place, value in self.history.log.items():
            answers = self._answers.get(place, [])
            is_accepted = any(answer.kind == ACCEPT for answer in answers)
            if not is_accepted and place not in self._dead and not self._ended_in_silence(place, answers):
                yield f"{value!r} at {place} was neither accepted nor dead-lettered"

    def _ended_in_silence(self, place: Place, answers: list[Answer]) -> bool:
        """Rejected, or delivered as often as may be, by a broker that writes no dead letters."""
        if self._has_dead_letters:
            return False
        counts = [delivery.count for delivery in self._deliveries.get(place, [])]
        return max(counts, default=0) >= self._deliveries_max or any(one.kind == REJECT for one in answers)

    def dead_letters_have_a_reason(self) -> Iterator[str]:
        """And what was rejected is among them; what was accepted is not."""
        for letter in self.history.letters:
            answers = self._answers.get(letter.place, [])
            if EXHAUSTED in letter.cause:
                if letter.count < self._deliveries_max:
                    yield f"{letter} had deliveries left"
            elif not any(answer.kind == REJECT for answer in answers):
                yield f"{letter} was never rejected"
        for place, answers in self._answers.items():
            for answer in answers:
                if not self._is_effective(answer):
                    continue
                if answer.kind == REJECT and place not in self._dead:
                    yield f"no dead letter for {answer}"
                if answer.kind == ACCEPT and place in self._dead:
                    yield f"a dead letter in spite of {answer}"

    def _is_after(self, delivery: Delivery, answer: Answer) -> bool:
        """Whether the record was certainly acquired after the answer had been taken."""
        assert answer.confirmed_at is not None
        if delivery.asked_at is not None and delivery.asked_at > answer.confirmed_at:
            return True
        if delivery.life is None or answer.life is None:
            return False
        if delivery.life == answer.life:
            return delivery.count > answer.count and self._is_effective(answer)
        return delivery.life > answer.life

    def _is_effective(self, answer: Answer) -> bool:
        """Not one that came too late for a record that others had settled: the broker takes these and ignores them."""
        if answer.confirmed_at is None:
            return False
        for delivery in self._deliveries.get(answer.place, []):
            if (delivery.member, delivery.count) == (answer.member, answer.count):
                return (
                    delivery.asked_at is not None
                    and answer.confirmed_at < delivery.asked_at + self._lock_s - SLACK_S
                )
        return False


def _by_place(things: Iterable[T]) -> dict[Place, list[T]]:
    found: dict[Place, list[T]] = {}
    for thing in things:
        found.setdefault(thing.place, []).append(thing)
    return found


def _is_own(answer: Answer, deliveries: list[Delivery]) -> bool:
    """Whether the answer's count is that of the life in which it took effect.

    A client that held the record in its buffer during a kill and has it again in the next life answers for the new
    delivery with the old one: librdkafka does, and does not tell the life.
    """
    return any(
        (one.member, one.count, one.life) == (answer.member, answer.count, answer.life) for one in deliveries
    )


def _pairs_of_one_life(deliveries: list[Delivery]) -> Iterator[tuple[Delivery, Delivery]]:
    lives: dict[int, list[Delivery]] = {}
    for delivery in deliveries:
        if delivery.life is not None:
            lives.setdefault(delivery.life, []).append(delivery)
    for same in lives.values():
        yield from combinations(same, 2)
