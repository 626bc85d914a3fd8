"""Later: an answer that comes later. Without an event loop, so each test reads top to bottom."""

import pytest

from headrace.broker.later import Later, resolved, when_all


def test_callbacks_run_when_the_answer_comes_and_at_once_afterward() -> None:
    later: Later[int] = Later()
    seen: list[int] = []
    later.then(seen.append)
    assert seen == []
    later.resolve(1)
    later.then(seen.append)
    assert seen == [1, 1]


def test_a_second_answer_is_ignored() -> None:
    later: Later[int] = Later()
    later.resolve(1)
    later.resolve(2)
    assert later.value == 1


def test_map_passes_the_answer_on_and_abandoning_reaches_the_source() -> None:
    source: Later[int] = Later()
    abandoned = []
    source.on_abandon = lambda: abandoned.append(True)
    mapped = source.map(str)
    mapped.abandon()
    assert abandoned == [True]
    source.resolve(7)
    assert mapped.value == "7"


def test_an_error_in_one_callback_does_not_reach_the_others() -> None:
    later: Later[int] = Later()
    seen: list[int] = []

    def broken(_: int) -> None:
        raise RuntimeError("broken")

    later.then(broken)
    later.then(seen.append)
    later.resolve(1)
    assert seen == [1]


def test_whoever_waits_for_a_mapped_answer_is_told_when_there_will_be_none() -> None:
    source: Later[int] = Later()
    failures: list[Exception] = []
    mapped = source.map(lambda value: 1 // value)
    all_of_them = when_all([mapped, mapped.map(str)])
    all_of_them.then(lambda _: None, failures.append)
    source.resolve(0)
    assert [type(error) for error in failures] == [ZeroDivisionError]
    with pytest.raises(ZeroDivisionError):
        _ = mapped.value
    mapped.then(lambda _: None, failures.append)
    assert len(failures) == 2


def test_settling_answers_with_what_the_function_returns_or_raises() -> None:
    good: Later[int] = Later()
    bad: Later[int] = Later()
    good.settle(lambda: 1)
    bad.settle(lambda: 1 // 0)
    bad.resolve(1)
    assert good.value == 1
    with pytest.raises(ZeroDivisionError):
        _ = bad.value


def test_when_all_waits_for_the_last_and_keeps_the_order() -> None:
    first: Later[int] = Later()
    second: Later[int] = Later()
    both = when_all([first, second])
    second.resolve(2)
    assert not both.is_done
    first.resolve(1)
    assert both.value == [1, 2]
    assert when_all([]).value == []
    assert when_all([resolved(5)]).value == [5]
