"""The ladder of waits: a record is never early, ends at its time, and makes few moves."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.worker.later import (
    AHEAD_MS,
    DELAY_MS_MAX,
    SHORTEST_MS,
    STEPS,
    StepPositions,
    Waiting,
    deadline_ms,
    due_ms,
    headers_for,
    new_id,
    own_headers,
    step_of,
    time_in,
    wait_ms,
    waiting_of,
)  # fmt: skip

NOW_MS = 1_800_000_000_000
DELAYS = st.one_of(st.integers(1, 10_000), st.integers(1, DELAY_MS_MAX))


@given(DELAYS, st.lists(st.integers(0, 400), max_size=3))
def test_a_record_is_at_its_time_at_its_end_and_never_early(delay_ms, lateness):
    at_ms, now_ms, moves = NOW_MS + delay_ms, NOW_MS, 0
    late = iter(lateness)
    while now_ms < at_ms:
        step = step_of(at_ms - now_ms)
        due = due_ms(step, now_ms, at_ms, now_ms)
        assert now_ms < due <= at_ms
        now_ms = due + next(late, 0)
        moves += 1
    assert now_ms - at_ms <= max(lateness, default=0)
    assert moves <= STEPS + 2 + len(lateness) + delay_ms // wait_ms(STEPS - 1)


@given(st.lists(DELAYS, min_size=2, max_size=20), st.integers(1, STEPS - 1))
def test_of_one_step_the_first_that_came_is_due_first(delays, step):
    entered = sorted(NOW_MS - delay % wait_ms(step) for delay in delays)
    dues = [due_ms(step, each, each + wait_ms(step) + 1, NOW_MS) for each in entered]
    assert dues == sorted(dues)


@given(st.integers(0, DELAY_MS_MAX))
def test_the_step_is_the_longest_that_fits(left_ms):
    step = step_of(left_ms)
    assert step == 0 or wait_ms(step) <= left_ms
    assert step == STEPS - 1 or left_ms < wait_ms(step + 1)


@given(st.integers(0, STEPS - 1), st.integers(NOW_MS, NOW_MS + 10 * DELAY_MS_MAX))
def test_a_clock_that_is_ahead_holds_up_a_step_by_no_more_than_clocks_may_differ(step, entered_ms):
    longest_ms = max(wait_ms(step), 2 * SHORTEST_MS)
    assert due_ms(step, entered_ms, entered_ms + DELAY_MS_MAX, NOW_MS) <= NOW_MS + longest_ms + AHEAD_MS


@given(st.integers(0, STEPS - 1), st.integers(NOW_MS + AHEAD_MS + 1, NOW_MS + 10 * DELAY_MS_MAX))
def test_a_record_from_a_clock_far_ahead_is_moved_at_once(step, entered_ms):
    assert due_ms(step, entered_ms, entered_ms + DELAY_MS_MAX, NOW_MS) == NOW_MS


def test_a_long_wait_in_the_shortest_step_ends_soon():
    longest_ms = 2 * SHORTEST_MS
    assert due_ms(0, NOW_MS, NOW_MS + DELAY_MS_MAX, NOW_MS + longest_ms) == NOW_MS + longest_ms


@pytest.mark.parametrize("at", [b"", b"-1", b"1e3", b"9" * 15, b"9" * 5_000])
def test_a_time_that_nobody_can_mean_is_no_waiting_record(at):
    assert waiting_of((("headrace.later.at", at), ("headrace.later.topic", b"emails"))) is None


def test_a_time_before_1970_is_over():
    moment = deadline_ms(None, datetime(1901, 1, 1, tzinfo=UTC), NOW_MS)
    assert waiting_of(headers_for(Waiting(new_id(moment), moment, "emails"), ())) is not None
    assert time_in(new_id(moment)) == moment


def test_a_waiting_record_says_where_it_goes_and_its_topic_sees_its_own_headers():
    waiting = Waiting(new_id(NOW_MS), NOW_MS, "emails")
    headers = headers_for(waiting, (("trace", b"7"),))
    assert waiting_of(headers) == waiting
    assert own_headers(headers) == (("trace", b"7"), ("headrace.later.id", waiting.id.encode()))
    assert waiting_of((("trace", b"7"),)) is None


def test_an_id_has_its_time():
    assert time_in(new_id(NOW_MS)) == NOW_MS
    assert [time_in(wrong) for wrong in ("", "x", "zz-1", "12", "-1-x", f"{10**14:x}-x")] == [None] * 6


@given(st.binary(min_size=16, max_size=16), st.lists(st.integers(0, 2**62), min_size=STEPS, max_size=STEPS))
def test_positions_come_back(topic_id, offsets):
    positions = StepPositions(topic_id, tuple(offsets))
    assert StepPositions.read(positions.write()) == positions


@given(st.binary(max_size=40))
def test_a_short_value_leaves_the_other_steps_unread(value):
    assert len(StepPositions.read(value).offsets) == STEPS


def test_delay_and_at_are_moments():
    assert deadline_ms(1.5, None, NOW_MS) == NOW_MS + 1_500
    assert deadline_ms(timedelta(days=2), None, NOW_MS) == NOW_MS + 172_800_000
    assert deadline_ms(None, datetime.fromtimestamp(NOW_MS / 1000, UTC), NOW_MS - 5) == NOW_MS


@pytest.mark.parametrize(
    ("delay", "at"),
    [(None, None), (1, datetime.now(UTC)), (-1, None), (float("nan"), None), (1e308, None), (True, None), ("1", None),
     (None, datetime.now()), (timedelta(days=4000), None)],
)  # fmt: skip
def test_what_is_no_moment_is_refused(delay, at):
    with pytest.raises(ValueError, match=r"give either|must be .*, got|limit"):
        deadline_ms(delay, at, NOW_MS)


def test_a_delay_beyond_all_limits_is_named_as_it_was_given():
    with pytest.raises(ValueError, match=r"ten years ahead, got delay=1e\+300"):
        deadline_ms(1e300, None, NOW_MS)
