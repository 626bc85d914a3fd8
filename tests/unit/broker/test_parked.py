"""Parked: requests that wait on keys, woken once per round of touches."""

import gc
import weakref

from headrace.broker.parked import Parked


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
