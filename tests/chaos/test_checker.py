"""The checker finds what it is there to find: one broken history for each law, and sound ones that look odd."""

from dataclasses import replace

import pytest

from tests.chaos.checker import Checker
from tests.chaos.history import (
    ACCEPT,
    REJECT,
    RELEASE,
    RENEW,
    UNKNOWN,
    Answer,
    Delivery,
    History,
    Letter,
    Produced,
)

LOCK_S, DELIVERIES_MAX = 10.0, 3
PLACE = (0, 7)
EXHAUSTED, REJECTED = "Offset delivery count exceeded the threshold.", "Offset rejected by client."


def given(at: float, *, count: int = 1, member: str = "a", life: int | None = 0) -> Delivery:
    """Asked for half a second before."""
    return Delivery(PLACE, b"v", member, count, at, at - 0.5, life)


def answer(
    kind: int,
    at: float,
    *,
    count: int = 1,
    member: str = "a",
    life: int | None = 0,
    is_confirmed: bool = True,
) -> Answer:
    """Confirmed half a second after."""
    return Answer(PLACE, kind, member, count, at, life, at + 0.5 if is_confirmed else None)


def history(*events: Delivery | Answer, letters: list[Letter] | None = None) -> History:
    return History(
        produced=[Produced(PLACE, b"v")],
        deliveries=[event for event in events if isinstance(event, Delivery)],
        answers=[event for event in events if isinstance(event, Answer)],
        letters=letters or [],
        log={PLACE: b"v"},
        lag={0: 0},
    )


def broken_laws(found: History) -> set[str]:
    checker = Checker(found, lock_s=LOCK_S, deliveries_max=DELIVERIES_MAX)
    return {violation.partition(":")[0] for violation in checker.violations()}


SOUND = {
    "accepted": history(given(1), answer(ACCEPT, 2)),
    "released and accepted by another": history(
        given(1), answer(RELEASE, 2), given(3, count=2, member="b"), answer(ACCEPT, 4, count=2, member="b")
    ),
    "the lock ran out": history(given(1), given(12, count=2, member="b"), answer(ACCEPT, 13, count=2)),
    "killed while it was held": history(
        given(1), given(2, member="b", life=1), answer(ACCEPT, 3, member="b", life=1)
    ),
    "accepted, killed before the answer came, and accepted again": history(
        given(1),
        answer(ACCEPT, 2, is_confirmed=False),
        given(3, member="b", life=1),
        answer(ACCEPT, 4, member="b", life=1),
    ),
    "accepted, killed before the answer came, and gone": history(
        given(1), answer(ACCEPT, 2, is_confirmed=False)
    ),
    "rejected": history(given(1), answer(REJECT, 2), letters=[Letter(PLACE, b"v", 1, REJECTED)]),
    "rejected, and copied twice": history(
        given(1), answer(REJECT, 2), letters=[Letter(PLACE, b"v", 1, REJECTED)] * 2
    ),
    "released too often": history(
        given(1, count=3), answer(RELEASE, 2, count=3), letters=[Letter(PLACE, b"v", 3, EXHAUSTED)]
    ),
    "accepted too late, when another had accepted it": history(
        given(1),
        given(12, count=2, member="b"),
        answer(ACCEPT, 13, count=2, member="b"),
        answer(ACCEPT, 14),
    ),
    "a copy from before that is handed out late": history(
        replace(given(1, member="b"), received_at=9, asked_at=None, life=None), given(1), answer(ACCEPT, 2)
    ),
    "released with a delivery from before a kill": history(
        replace(given(1, count=2), asked_at=None, life=None),
        answer(RELEASE, 4, count=2, life=1),
        given(6, count=2, member="b", life=1),
        answer(ACCEPT, 7, count=2, member="b", life=1),
    ),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_history_passes(name: str) -> None:
    assert broken_laws(SOUND[name]) == set()


ACCEPTED = history(given(1), answer(ACCEPT, 2))
LOST = "nothing_produced_is_lost_or_altered"
AGAIN = "nothing_settled_is_delivered_again"
TWICE = "nothing_is_settled_twice"
HOLDERS = "no_record_has_two_holders"
COUNTS = "counts_never_fall_back"
ENDS = "everything_ends"
LETTERS = "dead_letters_have_a_reason"
BROKEN = {
    "lost": (LOST, replace(ACCEPTED, log={})),
    "altered in the log": (LOST, replace(ACCEPTED, log={PLACE: b"w"})),
    "altered on the way": (
        LOST,
        history(replace(given(1), value=b"w"), answer(ACCEPT, 2)),
    ),
    "altered in its dead letter": (
        LOST,
        history(given(1), answer(REJECT, 2), letters=[Letter(PLACE, b"w", 1, REJECTED)]),
    ),
    "delivered after it was accepted": (
        AGAIN,
        history(given(1), answer(ACCEPT, 2), given(4, count=2, member="b")),
    ),
    "delivered after it was rejected": (
        AGAIN,
        history(
            given(1),
            answer(REJECT, 2),
            given(4, count=2, member="b"),
            letters=[Letter(PLACE, b"v", 1, REJECTED)],
        ),
    ),
    "delivered again to a fetch that waited": (
        AGAIN,
        history(given(1), answer(ACCEPT, 2), replace(given(9, count=2, member="b"), asked_at=1.5)),
    ),
    "accepted, killed, and delivered again": (
        AGAIN,
        history(given(1), answer(ACCEPT, 2), replace(given(9, member="b", life=1), asked_at=1.5)),
    ),
    "accepted by two": (
        TWICE,
        history(given(1), answer(ACCEPT, 3), given(1, member="b"), answer(REJECT, 3, member="b")),
    ),
    "given to two at once": (HOLDERS, history(given(1), given(1, member="b"), answer(ACCEPT, 3))),
    "taken away while it was held": (
        HOLDERS,
        history(given(1), given(4, count=2, member="b"), answer(ACCEPT, 5, is_confirmed=False)),
    ),
    "taken away although the lock was renewed": (
        HOLDERS,
        history(
            given(1),
            answer(RENEW, 8),
            given(15, count=2, member="b"),
            answer(ACCEPT, 16, member="b", count=2),
        ),
    ),
    "counted down": (
        COUNTS,
        history(given(1, count=2), answer(RELEASE, 2, count=2), given(4, count=1), answer(ACCEPT, 5)),
    ),
    "counted down over a kill": (
        COUNTS,
        history(
            given(1, count=2),
            answer(RELEASE, 2, count=2),
            given(4, count=2, life=1, member="b"),
            answer(ACCEPT, 5, member="b", count=2, life=1),
        ),
    ),
    "delivered too often": (COUNTS, history(given(1, count=4), answer(ACCEPT, 2, count=4))),
    "not settled": (ENDS, history(given(1))),
    "not settled as the broker counts": (ENDS, replace(ACCEPTED, lag={0: 1})),
    "rejected without a dead letter": (LETTERS, history(given(1), answer(REJECT, 2), answer(ACCEPT, 9))),
    "accepted with a dead letter": (
        LETTERS,
        history(
            given(1),
            answer(ACCEPT, 2),
            answer(REJECT, 3, is_confirmed=False),
            letters=[Letter(PLACE, b"v", 1, REJECTED)],
        ),
    ),
    "a dead letter that nobody rejected": (
        LETTERS,
        history(given(1), answer(RELEASE, 2), letters=[Letter(PLACE, b"v", 1, REJECTED)]),
    ),
    "a dead letter with deliveries left": (
        LETTERS,
        history(given(1), answer(RELEASE, 2), letters=[Letter(PLACE, b"v", 1, EXHAUSTED)]),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_law_is_named(name: str) -> None:
    law, found = BROKEN[name]
    assert law in broken_laws(found)


WITHOUT_LETTERS = {
    "rejected": history(given(1), answer(REJECT, 2)),
    "released too often": history(given(1, count=3), answer(RELEASE, 2, count=3)),
}


@pytest.mark.parametrize("name", WITHOUT_LETTERS)
def test_a_broker_without_dead_letters_ends_records_in_silence(name: str) -> None:
    found = WITHOUT_LETTERS[name]
    of_apache = Checker(found, lock_s=LOCK_S, deliveries_max=DELIVERIES_MAX, has_dead_letters=False)
    assert of_apache.violations() == []
    assert broken_laws(found) & {ENDS, LETTERS}


def test_a_record_that_nobody_settled_is_missed_without_dead_letters_too() -> None:
    found = history(given(1, count=2), answer(RELEASE, 2, count=2))
    of_apache = Checker(found, lock_s=LOCK_S, deliveries_max=DELIVERIES_MAX, has_dead_letters=False)
    assert [violation.partition(":")[0] for violation in of_apache.violations()] == [ENDS]


def test_a_record_whose_producer_does_not_know_its_offset_is_found_or_missed() -> None:
    found = replace(ACCEPTED, produced=[Produced((0, UNKNOWN), b"v")])
    found.find_places()
    assert broken_laws(found) == set()
    found.produced.append(Produced((0, UNKNOWN), b"w"))
    found.find_places()
    assert broken_laws(found) == {LOST}


def test_lives_are_told_from_the_times_where_these_leave_no_doubt() -> None:
    unknown = [replace(given(at), life=None) for at in (1.0, 5.2, 7.0)]
    found = History(deliveries=unknown, answers=[answer(ACCEPT, 6, life=None)])
    found.find_lives([0.0, 5.0])
    assert [one.life for one in found.deliveries] == [0, None, 1]
    assert [one.life for one in found.answers] == [1]
