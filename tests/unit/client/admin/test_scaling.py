"""How many members a group needs, and why."""

import pytest

from headrace.client.admin.scaling import GroupLoad, scale


@pytest.mark.parametrize(
    ("load", "desired", "reason"),
    [
        (
            GroupLoad(members=4, lag=27_000, rate_done=200.0),
            9,
            "27,000 records in 60 s at 50 records/s for each member",
        ),
        (
            GroupLoad(members=1, lag=1, rate_done=1000.0),
            1,
            "1 record in 60 s at 1e+03 records/s for each member",
        ),
        (GroupLoad(members=4, lag=0, rate_done=200.0), 0, "no lag"),
        (
            GroupLoad(members=0, lag=500),
            1,
            "500 records wait, and there are no members: one, to measure its rate",
        ),
        (
            GroupLoad(members=3, lag=500, rate_done=0.0),
            3,
            "500 records wait, and no rate is measured yet: as many as there are",
        ),
        (GroupLoad(members=3), 3, "the lag is not known: as many as there are"),
        (GroupLoad(), 0, "the lag is not known: as many as there are"),
    ],
)
def test_the_number_and_the_reason(load: GroupLoad, desired: int, reason: str) -> None:
    found = scale(load, drain_s=60)
    assert (found.desired_members, found.reason) == (desired, reason)


def test_bounds_are_in_the_reason() -> None:
    load = GroupLoad(members=4, lag=27_000, rate_done=200.0)
    most, least = scale(load, drain_s=60, most=5), scale(load, drain_s=60, least=20)
    assert (most.desired_members, most.reason[-10:]) == (5, "; max is 5")
    assert (least.desired_members, least.reason[-11:]) == (20, "; min is 20")


def test_a_rate_that_is_given_wins() -> None:
    load = GroupLoad(members=0, lag=6_000)
    found = scale(load, drain_s=60, rate_per_member=10.0)
    assert (found.desired_members, found.rate_per_member) == (10, 10.0)
