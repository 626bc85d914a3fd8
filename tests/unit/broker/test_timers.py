"""Timers: one heap of deadlines, run by whoever owns the clock."""

from headrace.broker.timers import ACTIONS_PER_TURN, Timers


def test_due_timers_run_in_the_order_of_their_deadlines() -> None:
    timers, ran = Timers(), []
    timers.at(20, lambda: ran.append("b"))
    timers.at(10, lambda: ran.append("a"))
    timers.at(30, lambda: ran.append("c"))
    assert timers.deadline_ms() == 10
    timers.run_due(20)
    assert ran == ["a", "b"]
    assert timers.deadline_ms() == 30


def test_a_canceled_timer_never_runs_and_is_no_deadline() -> None:
    timers, ran = Timers(), []
    timer = timers.at(10, lambda: ran.append("a"))
    timer.cancel()
    timer.cancel()
    timers.run_due(100)
    assert ran == []
    assert timers.deadline_ms() is None


def test_a_timer_set_while_running_is_run_if_it_is_due_too() -> None:
    timers, ran = Timers(), []
    timers.at(10, lambda: timers.at(5, lambda: ran.append("inner")) and None)
    timers.run_due(10)
    assert ran == ["inner"]


def test_canceled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for deadline in range(10_000):
        timers.at(deadline, lambda: None).cancel()
    assert len(timers._heap) < 200


def test_a_timer_that_fails_does_not_keep_the_others_waiting() -> None:
    timers, ran = Timers(), []

    def broken() -> None:
        raise RuntimeError("broken")

    timers.at(10, broken)
    timers.at(20, lambda: ran.append("second"))
    timers.run_due(20)
    assert ran == ["second"]


def test_one_turn_runs_a_bounded_number_of_timers_and_the_rest_stay_due() -> None:
    timers, ran = Timers(), []
    for number in range(3 * ACTIONS_PER_TURN):
        timers.at(number % 7, lambda number=number: ran.append(number))  # type: ignore[misc]
    timers.run_due(10)
    assert len(ran) == ACTIONS_PER_TURN
    assert timers.deadline_ms() is not None
    timers.run_due(10)
    timers.run_due(10)
    assert sorted(ran) == list(range(3 * ACTIONS_PER_TURN))
    assert timers.deadline_ms() is None
