"""The number of members for a lag: bounded, never against the lag, and enough to finish it in time."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.admin.scaling import MEMBERS_MAX, GroupLoad, scale

LAGS = st.one_of(st.none(), st.integers(-5, 10), st.integers(0, 2**63))
RATES = st.one_of(st.none(), st.floats(allow_nan=True), st.floats(1e-6, 1e6))
LOADS = st.builds(GroupLoad, members=st.one_of(st.none(), st.integers(0, 500)), lag=LAGS, rate_done=RATES)
BOUNDS = st.lists(st.integers(0, MEMBERS_MAX), min_size=2, max_size=2).map(sorted)
SECONDS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
OWN_RATES = st.one_of(st.none(), st.floats(min_value=0, exclude_min=True, allow_infinity=False))


@given(LOADS, SECONDS, BOUNDS, OWN_RATES)
def test_the_answer_is_within_bounds_and_has_a_reason(load, drain_s, bounds, rate):
    least, most = bounds
    found = scale(load, drain_s=drain_s, least=least, most=most, rate_per_member=rate)
    assert least <= found.desired_members <= most
    assert found.reason
    assert (found.members, found.lag) == (load.members, load.lag)


@given(LOADS, SECONDS, BOUNDS, OWN_RATES, st.integers(0, 2**63), st.integers(0, 2**63))
def test_more_lag_never_needs_fewer_members(load, drain_s, bounds, rate, one, other):
    least, most = bounds
    less, more = (
        scale(
            GroupLoad(members=load.members, lag=lag, rate_done=load.rate_done),
            drain_s=drain_s,
            least=least,
            most=most,
            rate_per_member=rate,
        ).desired_members
        for lag in sorted((one, other))
    )
    assert less <= more


@given(LOADS, SECONDS, BOUNDS, OWN_RATES)
def test_without_lag_the_minimum_is_enough(load, drain_s, bounds, rate):
    least, most = bounds
    idle = GroupLoad(members=load.members, lag=0, rate_done=load.rate_done)
    found = scale(idle, drain_s=drain_s, least=least, most=most, rate_per_member=rate)
    assert found.desired_members == least


@given(st.integers(1, 10**9), st.integers(1, 500), st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_so_many_members_finish_in_time_and_one_fewer_do_not(lag, members, rate_done, drain_s):
    found = scale(GroupLoad(members=members, lag=lag, rate_done=rate_done), drain_s=drain_s, most=MEMBERS_MAX)
    done_by_one = drain_s * rate_done / members
    if found.desired_members < MEMBERS_MAX:
        assert found.desired_members * done_by_one >= lag * (1 - 1e-6)
    assert (found.desired_members - 1) * done_by_one < lag * (1 + 1e-6)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"drain_s": 0}, "drain_s must be finite and > 0 seconds, got 0"),
        ({"drain_s": math.nan}, "drain_s must be .*, got nan"),
        ({"drain_s": math.inf}, "drain_s must be .*, got inf"),
        ({"drain_s": 60, "least": -1}, "min=-1"),
        ({"drain_s": 60, "least": 3, "most": 2}, "got min=3 and max=2"),
        ({"drain_s": 60, "most": MEMBERS_MAX + 1}, "max=10001"),
        ({"drain_s": 60, "rate_per_member": 0}, "rate must be finite and > 0 records per second, got 0"),
        ({"drain_s": 60, "rate_per_member": math.nan}, "rate must be .*, got nan"),
    ],
)
def test_what_is_not_possible_is_refused(settings, text):
    with pytest.raises(ValueError, match=text):
        scale(GroupLoad(members=1, lag=1, rate_done=1.0), **settings)
