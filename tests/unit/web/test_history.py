"""Rings of points on one row of times; rates from counts."""

from headrace.web.history import History, Rates


def test_points_and_times_stay_aligned_when_a_series_comes_late() -> None:
    history = History()
    history.record(1.0, {("lag", "a"): 5})
    history.record(2.0, {("lag", "a"): 6, ("lag", "b"): 1})
    assert history.times() == (1.0, 2.0)
    assert history.points(("lag", "a")) == (5, 6)
    assert history.points(("lag", "b")) == (None, 1)


def test_a_series_that_is_missing_gets_a_gap() -> None:
    history = History()
    history.record(1.0, {("lag", "a"): 5})
    history.record(2.0, {})
    assert history.points(("lag", "a")) == (5, None)


def test_only_the_last_points_are_kept() -> None:
    history = History(points_max=3)
    for time in range(10):
        history.record(time, {("in", "t"): time})
    assert history.times() == (7, 8, 9)
    assert history.points(("in", "t")) == (7, 8, 9)


def test_a_series_without_points_is_forgotten() -> None:
    history = History(points_max=2)
    history.record(1.0, {("in", "t"): 1})
    history.record(2.0, {})
    assert history.series_count == 1
    history.record(3.0, {})
    assert history.series_count == 0


def test_there_are_never_more_series_than_allowed() -> None:
    history = History(series_max=2)
    history.record(1.0, {("in", str(number)): number for number in range(5)})
    assert history.series_count == 2
    assert history.points(("in", "4")) == (None,)


def test_an_idle_series_makes_way_for_one_with_something_to_show() -> None:
    history = History(series_max=3)
    history.record(1.0, {("in", "busy"): 7, ("in", "idle"): 0, ("in", "was busy"): 2})
    history.record(2.0, {("in", "busy"): 7, ("in", "idle"): 0, ("in", "was busy"): 0, ("lag", "new"): 4})
    assert history.points(("lag", "new")) == (None, 4)
    assert (history.points(("in", "busy")), history.points(("in", "was busy"))) == ((7, 7), (2, 0))
    assert history.series_count == 3


def test_without_room_idle_series_are_not_taken_in_and_do_not_drive_out_others() -> None:
    history = History(series_max=2)
    history.record(1.0, {("in", "idle"): 0, ("in", "busy"): 1})
    history.record(2.0, {("in", "idle"): 0, ("in", "busy"): 1, ("in", "another idle"): 0})
    assert sorted(history.keys("in")) == [("in", "busy"), ("in", "idle")]


def test_a_series_that_becomes_busy_in_a_full_history_keeps_its_place() -> None:
    history = History(series_max=2)
    history.record(1.0, {("in", "a"): 0, ("in", "b"): 1})
    history.record(2.0, {("in", "a"): 5, ("in", "b"): 1, ("in", "c"): 9})
    assert history.points(("in", "a")) == (0, 5)
    assert ("in", "c") not in history.keys("in")


def test_keys_come_with_the_highest_first() -> None:
    history = History()
    history.record(1.0, {("lag", "a"): 1, ("lag", "b"): 9, ("in", "c"): 5})
    assert history.keys("lag") == [("lag", "b"), ("lag", "a")]


def test_a_rate_is_the_growth_by_second() -> None:
    rates = Rates()
    assert rates.update(10.0, {("in", "t"): 100}) == {}
    assert rates.update(12.0, {("in", "t"): 150}) == {("in", "t"): 25.0}


def test_a_count_that_fell_has_no_rate_once() -> None:
    rates = Rates()
    rates.update(1.0, {("in", "t"): 100})
    assert rates.update(2.0, {("in", "t"): 3}) == {}
    assert rates.update(3.0, {("in", "t"): 7}) == {("in", "t"): 4.0}
