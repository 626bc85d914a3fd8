"""Parked: requests that wait on keys, woken once per round of touches."""

import gc
import random
import weakref
from collections.abc import Sequence

from headrace.broker.parked import ATTEMPTS_PER_TURN, KEYS_PER_ATTEMPT, Parked


def test_a_touch_wakes_who_waits_on_that_key_and_nobody_else() -> None:
    parked, woken = Parked(), []
    parked.park(["a"], lambda: woken.append("first"))
    parked.park(["b"], lambda: woken.append("second"))
    parked.touch("a")
    assert woken == []
    parked.run_woken()
    assert woken == ["first"]


def test_many_touches_wake_a_request_once() -> None:
    parked, woken = Parked(), []
    parked.park(["a", "b"], lambda: woken.append("request"))
    parked.touch("a")
    parked.touch("b")
    parked.touch("a")
    parked.run_woken()
    assert woken == ["request"]


def test_a_removed_request_is_forgotten() -> None:
    parked, woken = Parked(), []
    request = parked.park(["a", "b"], lambda: woken.append("request"))
    parked.remove(request)
    parked.touch("a")
    parked.run_woken()
    assert woken == []
    assert len(parked) == 0


def test_a_touch_during_waking_is_not_missed() -> None:
    parked, woken = Parked(), []

    def first() -> None:
        woken.append("first")
        parked.remove(request)
        parked.touch("b")

    request = parked.park(["a"], first)
    parked.park(["b"], lambda: woken.append("second"))
    parked.touch("a")
    parked.run_woken()
    assert woken == ["first", "second"]


def test_a_request_that_fails_does_not_keep_the_others_asleep() -> None:
    parked, woken = Parked(), []

    def broken() -> None:
        raise RuntimeError("broken")

    parked.park(["a"], broken)
    parked.park(["a"], lambda: woken.append("second"))
    parked.touch("a")
    parked.run_woken()
    assert woken == ["second"]


def test_a_request_removed_by_one_woken_before_it_is_not_attempted() -> None:
    parked, woken = Parked(), []
    parked.park(["a"], lambda: parked.remove(second))
    second = parked.park(["a"], lambda: woken.append("second"))
    parked.touch("a")
    parked.run_woken()
    assert woken == []


def test_a_removed_request_lets_go_of_what_it_would_have_done() -> None:
    parked = Parked()

    class Held:
        pass

    held = Held()
    remains = weakref.ref(held)

    def attempt(held: Held = held) -> None:
        parked.remove(request)

    request = parked.park(["a"], attempt)
    del held, attempt
    parked.touch("a")
    gc.disable()
    try:
        parked.run_woken()
        assert remains() is None
    finally:
        gc.enable()


class Crowd:
    """Requests in one line; each takes some of what there is, if that is enough for it."""

    def __init__(self, parked: Parked, *, stock: int = 0) -> None:
        self.parked = parked
        self.stock = stock
        self.attempts: list[str] = []
        self.served: list[str] = []

    def join(self, name: str, *, takes: int = 1, lines: Sequence[str] = ("line",)) -> None:
        def attempt() -> None:
            self.attempts.append(name)
            if self.stock >= takes:
                self.stock -= takes
                self.served.append(name)
                self.parked.remove(request)

        request = self.parked.park(
            (), attempt, [self.parked.line(line, [line, "log"], lambda: self.stock > 0) for line in lines]
        )

    def add(self, stock: int, *, key: str = "log") -> None:
        self.stock += stock
        self.parked.touch(key)

    def run(self) -> int:
        turns = 0
        while self.parked.is_pending:
            self.parked.run_woken()
            turns += 1
            assert turns < 1000, "there is no end to it"
        return turns


def test_of_a_line_only_as_many_are_woken_as_there_is_something_for() -> None:
    crowd = Crowd(Parked())
    for number in range(200):
        crowd.join(f"{number}")
    crowd.add(3)
    crowd.run()
    assert crowd.attempts == crowd.served == ["0", "1", "2"]
    assert len(crowd.parked) == 197


def test_who_was_served_and_comes_again_waits_behind_the_others() -> None:
    crowd = Crowd(Parked())
    for name in "abc":
        crowd.join(name)
    for _ in range(6):
        crowd.add(1)
        crowd.run()
        crowd.join(crowd.served[-1])
    assert crowd.served == ["a", "b", "c", "a", "b", "c"]


def test_one_that_needs_more_than_there_is_does_not_keep_it_from_the_others() -> None:
    crowd = Crowd(Parked())
    crowd.join("wants much", takes=5)
    crowd.join("wants little")
    crowd.add(1)
    crowd.run()
    assert crowd.served == ["wants little"]
    crowd.add(5)
    crowd.run()
    assert crowd.served == ["wants little", "wants much"]


def test_a_line_longer_than_a_turn_is_gone_through_once_for_each_touch() -> None:
    crowd = Crowd(Parked())
    for number in range(3 * ATTEMPTS_PER_TURN):
        crowd.join(f"{number}", takes=2)
    crowd.join("last")
    crowd.add(1)
    assert crowd.run() > 3
    assert crowd.served == ["last"]
    assert len(crowd.attempts) == 3 * ATTEMPTS_PER_TURN + 1


def test_what_comes_while_a_line_is_gone_through_reaches_those_who_had_their_turn() -> None:
    crowd = Crowd(Parked())
    for number in range(2 * ATTEMPTS_PER_TURN):
        crowd.join(f"{number}", takes=2)
    crowd.add(1)
    crowd.parked.run_woken()
    assert crowd.served == []
    crowd.add(1)
    crowd.run()
    assert len(crowd.served) == 1
    assert crowd.stock == 0


def test_every_touch_finds_its_waiter_in_whatever_order_they_come() -> None:
    chance = random.Random(7)
    crowd = Crowd(Parked())
    waiting = 0
    for number in range(2000):
        if chance.random() < 0.5:
            lines = chance.sample(["line", "other", "third"], chance.randint(1, 3))
            crowd.join(f"{number}", lines=lines)
            waiting += 1
            crowd.parked.touch("log")  # as a fetch looks once more after it was parked
        else:
            crowd.add(1, key=chance.choice(["log", "line", "other", "third"]))
            if chance.random() < 0.3:
                crowd.parked.touch("log")
        if chance.random() < 0.4:
            crowd.run()
    crowd.parked.touch("log")
    crowd.run()
    assert len(crowd.served) == min(waiting, len(crowd.served) + crowd.stock)
    assert len(crowd.parked) == waiting - len(crowd.served)


def test_whoever_waits_is_told_when_there_is_something_wrong_with_the_line() -> None:
    parked, told = Parked(), []

    def fail() -> bool:
        raise KeyError

    for name in "ab":
        parked.park((), lambda name=name: told.append(name), [parked.line("line", ["log"], fail)])  # type: ignore[misc]
    parked.touch("log")
    parked.run_woken()
    assert told == ["a", "b"]


def test_one_turn_runs_a_bounded_number_of_requests_and_the_next_turns_the_others() -> None:
    parked, woken = Parked(), list[int]()
    for number in range(3 * ATTEMPTS_PER_TURN):
        parked.park(["a"], lambda number=number: woken.append(number))  # type: ignore[misc]
    parked.touch("a")
    parked.run_woken()
    assert len(woken) == ATTEMPTS_PER_TURN
    while parked.is_pending:
        parked.run_woken()
    assert woken == list(range(3 * ATTEMPTS_PER_TURN))


def test_a_line_that_nobody_waits_in_is_forgotten() -> None:
    parked = Parked()
    line = parked.line("line", ["log"], lambda: True)
    requests = [parked.park((), lambda: None, [line]) for _ in range(2)]
    assert len(parked) == 2
    for request in requests:
        parked.remove(request)
    assert len(parked) == 0
    parked.touch("log")
    assert not parked.is_pending


def test_an_attempt_that_looks_at_very_many_keys_counts_for_several() -> None:
    parked, woken = Parked(), list[int]()
    for number in range(3):
        keys = [(number, key) for key in range(KEYS_PER_ATTEMPT * ATTEMPTS_PER_TURN)]
        parked.park([*keys, "all"], lambda number=number: woken.append(number))  # type: ignore[misc]
    parked.touch("all")
    parked.run_woken()
    assert woken == [0]
    parked.run_woken()
    assert woken == [0, 1]
