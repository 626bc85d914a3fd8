"""Later: an answer that comes later. Without an event loop, so each test reads top to bottom."""

from headrace.broker.later import Later, resolved, when_all


def test_callbacks_run_when_the_answer_comes_and_at_once_afterwards() -> None:
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
