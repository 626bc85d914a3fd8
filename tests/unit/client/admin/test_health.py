"""Which figures of a group are findings, how urgent they are, and in which order groups are shown."""

import math

import pytest

from headrace.client.admin.health import (
    GroupFigures,
    HealthLimits,
    Level,
    Trend,
    assess,
    drain_text,
    duration,
    slope_of,
)


def line(first: float, last: float, *, points: int = 11, seconds: float = 10) -> list[tuple[float, float]]:
    step = (last - first) / (points - 1)
    return [(index * seconds / (points - 1), first + index * step) for index in range(points)]


def test_a_group_that_keeps_up_has_no_finding() -> None:
    health = assess(GroupFigures(members=2, lag=3, lags=line(4, 3), oldest_age_s=0.4, window_share=0.1))
    assert (health.level, health.findings, health.trend) == (Level.OK, (), Trend.STEADY)


def test_facts_that_nobody_knows_are_no_finding() -> None:
    health = assess(GroupFigures())
    assert (health.level, health.summary, health.drain_s) == (Level.OK, "", None)


@pytest.mark.parametrize(
    ("facts", "level", "text"),
    [
        (GroupFigures(members=0, lag=12_000), Level.CRITICAL, "No members, and 12,000 records to go"),
        (
            GroupFigures(type="classic", members=0, lag=1),
            Level.WARNING,
            "No members, and 1 record to go",
        ),
        (GroupFigures(members=0, lag=0), Level.OK, ""),
        (GroupFigures(window_share=1.0), Level.CRITICAL, "Window full: nothing new is delivered"),
        (GroupFigures(window_share=0.93), Level.WARNING, "Window 93% full"),
        (GroupFigures(oldest_age_s=59, lag=1), Level.OK, ""),
        (GroupFigures(oldest_age_s=61, lag=1), Level.WARNING, "Oldest record has waited 1 min 1 s"),
        (GroupFigures(oldest_age_s=7_260, lag=1), Level.CRITICAL, "Oldest record has waited 2 h 1 min"),
        (GroupFigures(oldest_age_s=7_260, lag=0), Level.OK, ""),
        (GroupFigures(dead_letters=1_800), Level.WARNING, "1,800 dead letters waiting"),
        (
            GroupFigures(lock_timeouts=0.25),
            Level.WARNING,
            "Locks run out before the acknowledgement (0.2/s)",
        ),
        (
            GroupFigures(lock_timeouts=0.04),
            Level.WARNING,
            "Locks run out before the acknowledgement (2.4/min)",
        ),
        (
            GroupFigures(lock_timeouts=0.0001),
            Level.WARNING,
            "Locks run out before the acknowledgement (1/h)",
        ),
        (GroupFigures(near_limit=1), Level.WARNING, "1 record with one delivery left"),
        (GroupFigures(error="gone"), Level.CRITICAL, "Cannot be read: gone"),
    ],
)
def test_each_trouble_has_a_level_and_words(facts: GroupFigures, level: Level, text: str) -> None:
    health = assess(facts)
    assert (health.level, health.summary) == (level, text)


def test_a_growing_lag_never_drains_and_a_falling_one_does() -> None:
    growing = assess(GroupFigures(members=1, lag=200, lags=line(0, 200)))
    assert (growing.trend, growing.summary) == (Trend.GROWING, "Lag grows by 20 records/s")
    assert growing.drain_s == math.inf
    falling = assess(GroupFigures(members=1, lag=100, lags=line(200, 100)))
    assert (falling.trend, falling.level, falling.drain_s) == (Trend.FALLING, Level.OK, pytest.approx(10))


def test_a_group_that_settles_what_comes_in_keeps_up() -> None:
    busy = assess(GroupFigures(members=1, lag=15, lags=line(15, 15), rate_done=50.0))
    assert (busy.trend, busy.drain, busy.drain_s) == (Trend.STEADY, "keeps up", None)
    stuck = assess(GroupFigures(members=1, lag=15, lags=line(15, 15), rate_done=0.0))
    assert (stuck.drain, stuck.drain_s) == ("never at this rate", math.inf)
    growing = assess(GroupFigures(members=1, lag=200, lags=line(0, 200), rate_done=50.0))
    assert growing.drain == "never at this rate"


@pytest.mark.parametrize(
    ("lag", "slope", "rate_done", "trend", "drain"),
    [
        (1_000_000, 300, 1_000, Trend.GROWING, "never at this rate"),
        (10_000_000, 4_000, 1_000, Trend.GROWING, "never at this rate"),
        (20_000, 6, 100, Trend.GROWING, "never at this rate"),
        (1_000_000, -300, 1_000, Trend.FALLING, "55 min 33 s"),
        (20_000, -6, 100, Trend.FALLING, "55 min 33 s"),
        (20_000, 0, 1_000, Trend.STEADY, "never at this rate"),  # the work of 20 s, which gets no less
        (4_000, 0, 1_000, Trend.STEADY, "keeps up"),
        (2, 0, 0.1, Trend.STEADY, "keeps up"),
    ],
)
def test_a_backlog_is_told_by_its_course_however_large_it_is(
    lag: int, slope: float, rate_done: float, trend: Trend, drain: str
) -> None:
    lags = line(lag - 118 * slope, lag, points=60, seconds=118)
    health = assess(GroupFigures(members=3, lag=lag, lags=lags, rate_done=rate_done, oldest_age_s=50))
    assert (health.trend, health.drain) == (trend, drain)
    assert health.level is (Level.WARNING if trend is Trend.GROWING else Level.OK)


@pytest.mark.parametrize("points", [10, 30, 60])
@pytest.mark.parametrize("waves", [1, 1.5, 2.3, 4])
@pytest.mark.parametrize("begins", [0, 0.25, 0.5, 0.7])
def test_the_ups_and_downs_of_a_large_lag_are_no_growth(points: int, waves: float, begins: float) -> None:
    steps = [index / (points - 1) for index in range(points)]
    lags = [(118 * step, 10_000 + 5_000 * math.sin(math.tau * (waves * step + begins))) for step in steps]
    health = assess(GroupFigures(members=3, lag=10_000, lags=lags, rate_done=100.0))
    assert (health.trend, health.level) == (Trend.STEADY, Level.OK)
    higher = [(time, lag + 300 * time) for time, lag in lags]
    growing = assess(GroupFigures(members=3, lag=45_000, lags=higher, rate_done=100.0))
    assert growing.trend is Trend.GROWING


def test_a_rise_by_what_a_busy_group_settles_in_a_second_is_no_growth() -> None:
    assert assess(GroupFigures(members=1, lag=20, lags=line(0, 20), rate_done=50.0)).level is Level.OK
    assert assess(GroupFigures(members=1, lag=20, lags=line(0, 20), rate_done=1.0)).trend is Trend.GROWING


def test_a_group_that_has_settled_nothing_is_no_trouble_but_comes_before_those_that_are_fine() -> None:
    unsettled = assess(GroupFigures(members=2, has_settled=False))
    assert (unsettled.level, unsettled.summary) == (
        Level.OK,
        "Nothing settled yet: members may hold records, the lag is not known",
    )
    assert unsettled.rank < assess(GroupFigures(members=2, lag=0)).rank
    assert unsettled.rank > assess(GroupFigures(members=2, lag=1, near_limit=1)).rank
    assert assess(GroupFigures(members=0, has_settled=False)).findings == ()


def test_groups_are_ranked_by_level_and_then_by_all_their_findings() -> None:
    facts = {
        "fine": GroupFigures(members=1, lag=0),
        "old": GroupFigures(members=1, lag=1, oldest_age_s=90),
        "old and near the limit": GroupFigures(members=1, lag=1, oldest_age_s=90, near_limit=3),
        "abandoned": GroupFigures(members=0, lag=5),
        "stuck": GroupFigures(members=1, lag=5, window_share=1.0),
    }
    ranked = sorted(facts, key=lambda name: assess(facts[name]).rank)
    assert ranked == ["stuck", "abandoned", "old and near the limit", "old", "fine"]


def test_the_limits_can_be_chosen() -> None:
    strict = HealthLimits(age_warning_s=1, age_critical_s=2)
    assert assess(GroupFigures(lag=1, oldest_age_s=1.5), strict).level is Level.WARNING
    assert assess(GroupFigures(lag=1, oldest_age_s=2.5), strict).level is Level.CRITICAL


def test_a_slope_needs_points_at_different_times() -> None:
    assert slope_of([(0, 1), (1, 2)]) is None
    assert slope_of([(1, 1), (1, 2), (1, 3)]) is None
    assert slope_of([(0, 0), (1, 2), (2, 4)]) == pytest.approx(2)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0 s"),
        (59.9, "59 s"),
        (60, "1 min"),
        (200, "3 min 20 s"),
        (18_120, "5 h 2 min"),
        (90_000, "1 d 1 h"),
    ],
)
def test_durations_have_two_units_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_time_to_drain_is_told_in_words() -> None:
    assert [drain_text(value) for value in (None, math.inf, 0.0, 0.2, 75)] == [
        "not known yet",
        "never at this rate",
        "done",
        "1 s",
        "1 min 15 s",
    ]
