"""What is wrong with a group, in words, and how urgent it is. The dashboard and `headrace top` share this ranking.

    health = assess(GroupFigures(type="share", members=0, lag=12_000))
    health.level, health.summary        # (Level.CRITICAL, "No members, and 12,000 records to go")

Pure: facts in, a verdict out. Facts that nobody knows are None and cause no finding, so the same function serves an
embedded broker, which knows everything, and an Apache Kafka cluster, which does not tell who holds a record.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum

TREND_POINTS_MIN = 3
GROWTH_MIN = 10
"""A rise of fewer records than this is noise."""
GROWTH_SCATTER = 4.5
"""So is a rise by less than so many times the scatter of the lags around their line. Lags that go up and down in waves
that are no longer than the time looked at have a line that rises by at most 4.4 times their scatter around it.
"""
GROWTH_WORK_S = 2.0
"""And one by fewer records than the group settles in this time: the lag of a busy group goes up and down."""
KEEPS_UP_S = 5.0
"""A lag of what the group settles in this time, or of GROWTH_MIN records, is no backlog."""


class Level(IntEnum):
    OK = 0
    WARNING = 1
    CRITICAL = 2

    @property
    def word(self) -> str:
        return self.name.lower()


class Trend(StrEnum):
    GROWING = "growing"
    STEADY = "steady"
    FALLING = "falling"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthLimits:
    """Where a figure becomes a finding."""

    age_warning_s: float = 60.0
    """The oldest unsettled record is older than this."""
    age_critical_s: float = 600.0
    window_share: float = 0.9
    """A window this full is about to stop deliveries; at 1.0 it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFigures:
    type: str = "share"
    """share, consumer or classic, as `GroupType` names them."""
    members: int | None = None
    lag: int | None = None
    lags: Sequence[tuple[float, float]] = ()
    """Times in seconds and the lag then, oldest first: the trend is made of them."""
    rate_done: float | None = None
    """Records a second that the group settles."""
    oldest_age_s: float | None = None
    """How long the oldest record that is not settled has been in its log."""
    window_share: float | None = None
    """How full the fullest window is, from 0 to 1."""
    lock_timeouts: float | None = None
    """Records a second whose acquisition lock ran out."""
    near_limit: int | None = None
    """Records that have one delivery left before they are given up."""
    dead_letters: int | None = None
    """Dead letters of the group that wait."""
    has_settled: bool = True
    """False where nothing is written of a share group yet, though there are records: its members may hold them."""
    error: str | None = None
    """Why the group could not be read."""


@dataclass(frozen=True, slots=True)
class HealthFinding:
    level: Level
    weight: int
    """Orders findings of one level."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    level: Level
    findings: tuple[HealthFinding, ...]
    """The worst first."""
    trend: Trend
    slope: float | None
    """Records a second by which the lag grows; negative while it falls."""
    drain_s: float | None
    """Seconds until nothing is left at this rate; infinity for never, None if not known or if the group keeps up."""
    keeps_up: bool = False
    """The group settles records as fast as new ones come, and has no backlog."""

    @property
    def drain(self) -> str:
        """When nothing is left to do, in words."""
        return "keeps up" if self.keeps_up else drain_text(self.drain_s)

    @property
    def summary(self) -> str:
        return "; ".join(finding.text for finding in self.findings)

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts the worst first."""
        return -self.level, -sum(finding.weight for finding in self.findings)


def assess(facts: GroupFigures, limits: HealthLimits | None = None) -> Health:
    slope = slope_of(facts.lags)
    trend = _trend(facts, slope)
    found = [one for one in _findings(facts, limits or HealthLimits(), trend, slope) if one is not None]
    found.sort(key=lambda finding: (-finding.level, -finding.weight))
    keeps_up = trend is Trend.STEADY and _is_work_in_hand(facts)
    return Health(
        level=max((finding.level for finding in found), default=Level.OK),
        findings=tuple(found),
        trend=trend,
        slope=slope,
        drain_s=None if keeps_up else _drain_s(facts.lag, slope),
        keeps_up=keeps_up,
    )


def slope_of(points: Sequence[tuple[float, float]]) -> float | None:
    """How much the value changes in a second, by least squares; None where too few points were seen."""
    if len(points) < TREND_POINTS_MIN:
        return None
    mean_time = sum(time for time, _ in points) / len(points)
    mean_value = sum(value for _, value in points) / len(points)
    spread = sum((time - mean_time) ** 2 for time, _ in points)
    if spread == 0:
        return None
    return sum((time - mean_time) * (value - mean_value) for time, value in points) / spread


def _trend(facts: GroupFigures, slope: float | None) -> Trend:
    if slope is None:
        return Trend.UNKNOWN
    change = slope * (facts.lags[-1][0] - facts.lags[0][0])
    scatter = _scatter(facts.lags, slope)
    noise = max(GROWTH_MIN, GROWTH_SCATTER * scatter, GROWTH_WORK_S * (facts.rate_done or 0))
    if abs(change) < noise:
        return Trend.STEADY
    return Trend.GROWING if change > 0 else Trend.FALLING


def _is_work_in_hand(facts: GroupFigures) -> bool:
    """There is a lag, the group works on it, and it is no backlog."""
    if not facts.lag or not facts.rate_done:
        return False
    return facts.lag <= max(GROWTH_MIN, KEEPS_UP_S * facts.rate_done)


def _scatter(points: Sequence[tuple[float, float]], slope: float) -> float:
    """How far the values are from their line: the standard deviation of what the line leaves over."""
    mean_time = sum(time for time, _ in points) / len(points)
    mean_value = sum(value for _, value in points) / len(points)
    left = sum((value - mean_value - slope * (time - mean_time)) ** 2 for time, value in points)
    return math.sqrt(left / (len(points) - 2))


def _drain_s(lag: int | None, slope: float | None) -> float | None:
    if lag == 0:
        return 0.0
    if lag is None or slope is None:
        return None
    return lag / -slope if slope < 0 else math.inf


def _findings(
    facts: GroupFigures, limits: HealthLimits, trend: Trend, slope: float | None
) -> Iterable[HealthFinding | None]:
    if facts.error:
        yield HealthFinding(Level.CRITICAL, 100, f"Cannot be read: {facts.error}")
    yield _members(facts)
    yield _window(facts, limits)
    yield _age(facts, limits)
    if trend is Trend.GROWING and slope is not None:
        yield HealthFinding(Level.WARNING, 40, f"Lag grows by {amount(slope)} records/s")
    if facts.dead_letters:
        yield HealthFinding(Level.WARNING, 30, f"{records(facts.dead_letters, 'dead letter')} waiting")
    if facts.lock_timeouts:
        yield HealthFinding(
            Level.WARNING, 20, f"Locks run out before the acknowledgement ({rate(facts.lock_timeouts)})"
        )
    if facts.near_limit:
        yield HealthFinding(Level.WARNING, 10, f"{records(facts.near_limit)} with one delivery left")
    if facts.members and not facts.has_settled:
        # No trouble yet, as far as anybody can tell from here; but worth a look before groups that are fine.
        yield HealthFinding(
            Level.OK, 5, "Nothing settled yet: members may hold records, the lag is not known"
        )


def _members(facts: GroupFigures) -> HealthFinding | None:
    if facts.members != 0 or not facts.lag:
        return None
    # A consumer group without members is often one that is not used any more; a share group is a queue of work.
    level = Level.CRITICAL if facts.type == "share" else Level.WARNING
    return HealthFinding(level, 90, f"No members, and {records(facts.lag)} to go")


def _window(facts: GroupFigures, limits: HealthLimits) -> HealthFinding | None:
    if facts.window_share is None or facts.window_share < limits.window_share:
        return None
    if facts.window_share >= 1:
        # Above groups without members: those may be abandoned, while this one has members that are stuck.
        return HealthFinding(Level.CRITICAL, 95, "Window full: nothing new is delivered")
    return HealthFinding(Level.WARNING, 50, f"Window {facts.window_share:.0%} full")


def _age(facts: GroupFigures, limits: HealthLimits) -> HealthFinding | None:
    age_s = facts.oldest_age_s
    if age_s is None or age_s < limits.age_warning_s or facts.lag == 0:
        return None
    is_critical = age_s >= limits.age_critical_s
    level = Level.CRITICAL if is_critical else Level.WARNING
    return HealthFinding(level, 70 if is_critical else 60, f"Oldest record has waited {duration(age_s)}")


def duration(seconds: float) -> str:
    """Two units at most: 12 s, 3 min 20 s, 5 h 2 min, 3 d 4 h."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, name, smaller, smaller_name in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {name}" + (f" {rest} {smaller_name}" if rest else "")
    rest = whole % 60
    return f"{whole // 60} min" + (f" {rest} s" if rest else "")


def drain_text(drain_s: float | None) -> str:
    """How long until a group has nothing left to do, for people."""
    if drain_s is None:
        return "not known yet"
    if math.isinf(drain_s):
        return "never at this rate"
    return "done" if drain_s == 0 else duration(max(1, drain_s))


def rate(per_second: float) -> str:
    """In the unit that shows a figure: 3.2/s, 6/min, 1/h."""
    for seconds, unit in ((1, "s"), (60, "min")):
        if per_second * seconds >= 0.1:
            return f"{amount(per_second * seconds)}/{unit}"
    return f"{max(1.0, per_second * 3600):.0f}/h"


def amount(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")


def records(count: int, noun: str = "record") -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
