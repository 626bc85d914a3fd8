"""Cron expressions: which moments match, in which zone, and what is refused."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.worker.cron import Cron, Interval


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def text(moment_ms: int | None) -> str:
    assert moment_ms is not None
    return datetime.fromtimestamp(moment_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M")


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        ("*/5 * * * *", "2026-11-18 02:00", "2026-11-18 02:05"),
        ("*/5 * * * *", "2026-11-18 02:04:59", "2026-11-18 02:05"),
        ("0 3 * * *", "2026-11-18 03:00", "2026-11-19 03:00"),
        ("30 9-17/4 * * mon-fri", "2026-11-20 14:00", "2026-11-20 17:30"),
        ("30 9-17/4 * * mon-fri", "2026-11-20 18:00", "2026-11-23 09:30"),
        ("0 0 1 jan *", "2026-11-18 00:00", "2027-01-01 00:00"),
        ("0 0 29 2 *", "2026-11-18 00:00", "2028-02-29 00:00"),
        ("0 0 13 * 5", "2026-11-18 00:00", "2026-11-20 00:00"),
        ("0 12 * * 7", "2026-11-18 00:00", "2026-11-22 12:00"),
        ("@monthly", "2026-11-18 00:00", "2026-12-01 00:00"),
        ("@annually", "2026-11-18 00:00", "2027-01-01 00:00"),
        ("@midnight", "2026-11-18 00:00", "2026-11-19 00:00"),
        ("5,10 1 * * *", "2026-11-18 01:05", "2026-11-18 01:10"),
        ("10/20 * * * *", "2026-11-18 01:11", "2026-11-18 01:30"),
    ],
)
def test_the_next_match(expression, after, expected):
    assert text(Cron(expression).after(ms(after))) == expected


def test_times_are_of_the_zone_and_come_once_when_clocks_change():
    nightly = Cron("30 2 * * *", "Europe/Berlin")
    assert text(nightly.after(ms("2026-11-18 00:00"))) == "2026-11-18 01:30"
    skipped = nightly.after(ms("2027-03-27 12:00"))  # 02:30 does not exist on March 28
    assert text(skipped) == "2027-03-28 01:30"
    assert text(nightly.after(skipped)) == "2027-03-29 00:30"
    repeated = nightly.after(ms("2026-10-24 12:00"))  # 02:30 comes twice on October 25
    assert text(repeated) == "2026-10-25 00:30"
    assert text(nightly.after(repeated)) == "2026-10-26 01:30"


def test_what_is_for_every_hour_goes_on_in_the_hour_that_clocks_repeat():
    often = Cron("*/30 * * * *", "Europe/Berlin")
    moments = [ms("2026-10-24 23:40")]
    for _ in range(6):
        moments.append(often.after(moments[-1]))
    assert [text(each)[-5:] for each in moments[1:]] == [
        "00:00", "00:30", "01:00", "01:30", "02:00", "02:30"
    ]  # fmt: skip
    assert [often.latest(each) for each in moments[1:]] == moments[1:]


def test_a_time_that_clocks_skip_does_not_hide_the_one_behind_it():
    """Lord Howe Island skips half an hour: 02:15 comes at 02:45, after 02:30."""
    nightly = Cron("15,30 2 * * *", "Australia/Lord_Howe")
    first = nightly.after(ms("2026-10-03 12:00"))
    assert [text(first), text(nightly.after(first))] == ["2026-10-03 15:30", "2026-10-03 15:45"]


def test_looking_for_the_last_match_computes_a_few_days_and_not_each_match_since(monkeypatch):
    cron = Cron("* * 1 * *", "Europe/Berlin")
    computed = []
    compute = cron._compute
    monkeypatch.setattr(cron, "_compute", lambda day: computed.append(day) or compute(day))
    assert text(cron.latest(ms("2026-11-30 12:00"))) == "2026-11-01 22:59"
    assert len(computed) <= 3


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "60 * * * *", "* 24 * * *", "x * * * *", "5-1 * * * *", "*/0 * * * *", "0 0 31 2 *"],
)
def test_what_is_no_expression_is_refused_and_named(expression):
    with pytest.raises(ValueError, match=r"is not a cron expression|never matches"):
        Cron(expression)


@pytest.mark.parametrize("minute", ["+1", "1_0", "\u0663", "*/+5", "1-2-3"])
def test_what_only_python_takes_for_a_number_is_refused(minute):
    with pytest.raises(ValueError, match="is not a minute"):
        Cron(f"{minute} * * * *")


@given(
    st.sampled_from(["*/5 * * * *", "0 3 * * *", "7 1,13 1 * *", "0 0 * * sun", "0 0 29 2 *", "* 2 25 10 *"]),
    st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe", "America/Havana"]),
    st.integers(1_700_000_000_000, 2_500_000_000_000),
)
def test_latest_and_after_have_no_match_between_them(expression, zone, now_ms):
    cron = Cron(expression, zone)
    latest, following = cron.latest(now_ms), cron.after(now_ms)
    assert latest is not None
    assert latest <= now_ms < following
    assert cron.after(latest) == following


@given(st.integers(1, 100_000), st.integers(0, 2_500_000_000_000))
def test_intervals_are_the_same_moments_for_everyone(seconds, now_ms):
    interval = Interval(timedelta(seconds=seconds))
    assert interval.latest(now_ms) <= now_ms < interval.after(now_ms)
    assert interval.after(now_ms) - interval.latest(now_ms) == seconds * 1000
    assert interval.latest(now_ms) % (seconds * 1000) == 0


@pytest.mark.parametrize("interval", [0.9, 0, -1, float("nan"), 400 * 86_400, True, None])
def test_an_interval_that_cannot_be_is_refused(interval):
    with pytest.raises(ValueError, match=re.escape(f"from 1 second to a year, got {interval!r}")):
        Interval(interval)


@pytest.mark.parametrize("zone", ["Mars/Phobos", "../etc/passwd", "", None, 1])
def test_a_zone_that_is_not_known_is_refused_and_named(zone):
    with pytest.raises(ValueError, match=f"time.?zone.*{re.escape(repr(zone))}"):
        Cron("0 6 * * *", zone)
