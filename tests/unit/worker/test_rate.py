"""Rates: how they are written, and that no window has more runs than they allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.worker.rate import Rate, RateBucket


@pytest.mark.parametrize(
    ("text", "rate"),
    [("100/s", Rate(100, 1)), ("30/m", Rate(30, 60)), ("5/h", Rate(5, 3_600)), ("1/d", Rate(1, 86_400))],
)
def test_a_rate_is_a_count_and_a_period(text, rate):
    assert Rate.parse(text) == rate


@pytest.mark.parametrize(
    "text", ["", "100", "0/s", "100/x", "100 / s", "-1/s", "1.5/s", "1000001/s", "1/s ", 100]
)
def test_anything_else_is_refused(text):
    with pytest.raises(ValueError, match="is not a rate: write a count and a period, as in '100/s'"):
        Rate.parse(text)


def test_a_run_may_start_at_once_and_the_next_when_the_rate_allows():
    bucket = RateBucket(Rate(10, 1))
    bucket.fill(0)
    assert (bucket.runs, bucket.next_ms()) == (1, None)
    bucket.take()
    assert (bucket.runs, bucket.next_ms()) == (0, 100)
    bucket.fill(99)
    assert bucket.runs == 0
    bucket.fill(100)
    assert bucket.runs == 1


def test_a_part_of_a_rate_is_slower_and_no_part_is_never():
    bucket = RateBucket(Rate(10, 1), share=0.0)
    bucket.fill(0)
    assert (bucket.is_closed, bucket.runs, bucket.next_ms()) == (True, 0, None)
    bucket.set_share(0.5, 1_000)
    assert (bucket.runs, bucket.next_ms()) == (0, 1_200)
    bucket.fill(1_200)
    bucket.set_share(0.0, 1_200)
    assert bucket.runs == 0


@given(
    count=st.integers(1, 500),
    period=st.sampled_from((1.0, 60.0)),
    steps=st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 40)), max_size=60),
)
def test_no_window_has_more_runs_than_the_rate_and_its_burst(count, period, steps):
    rate = Rate(count, period)
    bucket, now_ms, runs = RateBucket(rate), 0, []
    for wait_ms, wanted in steps:
        now_ms += wait_ms
        bucket.fill(now_ms)
        for _ in range(min(wanted, bucket.runs)):
            bucket.take()
            runs.append(now_ms)
        following = bucket.next_ms()
        assert following is None or following > now_ms, "an alarm that is set again and again"
    burst = max(1.0, rate.per_ms * 100)
    for first, began_ms in enumerate(runs):
        for last in range(first, len(runs)):
            assert last - first + 1 <= burst + rate.per_ms * (runs[last] - began_ms) + 0.001


@given(st.lists(st.integers(1, 10), max_size=40), st.integers(1, 400))
def test_who_always_has_work_gets_the_whole_rate(waits, count):
    bucket, rate, runs, now_ms = RateBucket(Rate(count, 1.0)), Rate(count, 1.0), 0, 0
    bucket.fill(0)
    for wait_ms in waits:
        now_ms += wait_ms
        bucket.fill(now_ms)
        for _ in range(bucket.runs):
            bucket.take()
            runs += 1
    assert runs >= rate.per_ms * now_ms - 1
