"""Longer work in steps: the first at once, the others one a turn."""

import pytest

from headrace.broker.later import Later
from headrace.broker.slices import Slices, Steps, WaitingSteps


def counting(name: str, steps: int, done: list[str]) -> Steps:
    for number in range(steps):
        done.append(f"{name}{number}")
        if number < steps - 1:
            yield


def test_small_work_is_done_at_once() -> None:
    slices, done = Slices(), list[str]()
    slices.run(counting("a", 1, done))
    assert done == ["a0"]
    assert not slices.is_pending


def test_works_take_turns_one_step_each() -> None:
    slices, done = Slices(), list[str]()
    slices.run(counting("a", 3, done))
    slices.run(counting("b", 2, done))
    assert done == ["a0", "b0"]
    slices.step()
    assert done == ["a0", "b0", "a1"]
    while slices.is_pending:
        slices.step()
    assert done == ["a0", "b0", "a1", "b1", "a2"]
    slices.step()


def test_work_that_fails_does_not_keep_the_others_from_going_on() -> None:
    slices, done = Slices(), list[str]()

    def failing() -> Steps:
        yield
        raise RuntimeError("broken")

    slices.run(failing())
    slices.run(counting("a", 2, done))
    while slices.is_pending:
        slices.step()
    assert done == ["a0", "a1"]


def test_whoever_waits_for_work_is_told_when_it_fails() -> None:
    slices, told = Slices(), list[str]()

    def failing() -> Steps:
        yield
        raise RuntimeError("broken")

    slices.run(failing(), lambda error: told.append(str(error)))
    assert told == []
    slices.step()
    assert told == ["broken"]
    assert not slices.is_pending


def test_a_function_is_called_for_each_item_a_few_a_turn() -> None:
    slices, called = Slices(), list[int]()

    def double(number: int) -> int:
        called.append(number)
        return 2 * number

    answer = slices.each(range(7), double, per_step=3)
    assert called == [0, 1, 2]
    slices.step()
    assert called == [0, 1, 2, 3, 4, 5]
    assert not answer.is_done
    slices.step()
    assert answer.value == [0, 2, 4, 6, 8, 10, 12]
    assert slices.each([], double, per_step=3).value == []


def test_whoever_waits_for_all_items_is_told_when_one_fails() -> None:
    slices = Slices()

    def fail(number: int) -> int:
        raise KeyError(number)

    answer = slices.each([1], fail, per_step=3)
    with pytest.raises(KeyError):
        _ = answer.value


def test_an_item_that_costs_more_leaves_room_for_fewer_others_in_its_turn() -> None:
    slices, called = Slices(), list[int]()
    answer = slices.each([1, 1, 5, 1, 9, 1], called.append, per_step=5, cost=lambda item: item)
    turns = [len(called)]
    while slices.is_pending:
        slices.step()
        turns.append(len(called))
    assert turns == [2, 3, 4, 5, 6]
    assert answer.is_done


def test_an_answer_that_is_there_is_given_at_once_and_raises_what_it_failed_with() -> None:
    slices = Slices()
    assert slices.each([1, 2], str, per_step=2).now() == ["1", "2"]
    later = slices.each([1, 2], str, per_step=1)
    assert later.now() is later
    with pytest.raises(ValueError, match="invalid literal"):
        slices.each(["x"], int, per_step=1).now()


def test_work_that_waits_for_something_goes_on_when_that_is_done_or_has_failed() -> None:
    slices = Slices()
    done: Later[None] = Later()
    failing: Later[None] = Later()
    seen: list[str] = []

    def steps() -> WaitingSteps:
        yield done
        seen.append("done")
        yield failing
        try:
            assert failing.value is None
        except ValueError as error:
            seen.append(str(error))

    slices.run(steps())
    assert not slices.is_pending
    done.resolve(None)
    assert (seen, slices.is_pending) == ([], True)  # in a turn of its own
    slices.step()
    assert (seen, slices.is_pending) == (["done"], False)
    failing.fail(ValueError("broken"))
    slices.step()
    assert (seen, slices.is_pending) == (["done", "broken"], False)
