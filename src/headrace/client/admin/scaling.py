"""How many members a group needs to finish its lag in so many seconds, for autoscalers.

    scale(GroupLoad(members=4, lag=12_000, rate_done=200.0), drain_s=60)    # 4 members, desired: 4

A member does what the members do now on average: `rate_done / members` records a second. So many members are wanted
that the records that wait now are done in `drain_s` seconds. New records are not predicted. If records keep coming,
the lag settles at about `drain_s` seconds of work, and the number of members follows it.

Pure: figures in, a number and its reason out.
"""

import math
from dataclasses import dataclass

from headrace.client.admin.health import records

MEMBERS_MAX = 10_000
ROUNDING = 1e-9
"""Of divisions: 3 / (0.1 * 30) is above 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad:
    members: int | None = None
    lag: int | None = None
    rate_done: float | None = None
    """Records a second that all members together have settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    members: int | None
    desired_members: int
    lag: int | None
    rate_per_member: float | None
    """Records a second of one member; None where it is not known."""
    reason: str


def scale(
    load: GroupLoad, *, drain_s: float, least: int = 0, most: int = 100, rate_per_member: float | None = None
) -> Scale:
    """`rate_per_member` is used instead of what the members do now, where the user knows it."""
    if not (drain_s > 0 and math.isfinite(drain_s)):
        raise ValueError(f"drain_s must be finite and > 0 seconds, got {drain_s}")
    if not 0 <= least <= most <= MEMBERS_MAX:
        raise ValueError(f"expected 0 <= min <= max <= {MEMBERS_MAX}, got min={least} and max={most}")
    if rate_per_member is not None and not (rate_per_member > 0 and math.isfinite(rate_per_member)):
        raise ValueError(f"rate must be finite and > 0 records per second, got {rate_per_member}")
    rate = rate_per_member if rate_per_member is not None else _measured_rate(load)
    wanted, reason = _wanted(load, drain_s, rate)
    desired = min(max(wanted, least), most)
    if desired != wanted:
        reason += f"; {'min' if desired == least else 'max'} is {desired}"
    return Scale(
        members=load.members,
        desired_members=desired,
        lag=load.lag,
        rate_per_member=rate,
        reason=reason,
    )


def _measured_rate(load: GroupLoad) -> float | None:
    if not load.members or load.rate_done is None or not (0 < load.rate_done < math.inf):
        return None
    return load.rate_done / load.members


def _wanted(load: GroupLoad, drain_s: float, rate: float | None) -> tuple[int, str]:
    """The number without bounds, and why."""
    if load.lag is None:
        return load.members or 0, "the lag is not known: as many as there are"
    if load.lag <= 0:
        return 0, "no lag"
    capacity = drain_s * rate if rate is not None else 0.0
    if rate is None or capacity == 0.0:
        if load.members:
            return (
                load.members,
                f"{records(load.lag)} wait, and no rate is measured yet: as many as there are",
            )
        return 1, f"{records(load.lag)} wait, and there are no members: one, to measure its rate"
    exact = load.lag / capacity
    wanted = max(1, math.ceil(exact * (1 - ROUNDING))) if exact < MEMBERS_MAX else MEMBERS_MAX
    return wanted, f"{records(load.lag)} in {drain_s:g} s at {rate:.3g} records/s for each member"
