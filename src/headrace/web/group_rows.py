"""A group's row on the overview: what a survey found, what the embedded broker adds, and the verdict on both. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from headrace.broker.share.view import WindowFigures
from headrace.client.admin.health import GroupFigures, Health, HealthLimits, assess
from headrace.client.admin.survey import GroupPlace, GroupSurvey
from headrace.client.delivery import TopicPartition
from headrace.web.model import GroupRow


@dataclass(slots=True)
class LiveFigures:
    """What only the embedded broker knows of a group."""

    window_share: float = 0.0
    near_limit: int = 0
    in_flight: int = 0


def live_figures(windows: Iterable[WindowFigures]) -> dict[str, LiveFigures]:
    found: dict[str, LiveFigures] = {}
    for window in windows:
        group = found.setdefault(window.group_id, LiveFigures())
        group.window_share = max(group.window_share, window.in_flight / max(1, window.window_max))
        group.near_limit += window.near_limit
        group.in_flight += window.in_flight
    return found


def with_live_lags(
    surveys: Mapping[str, GroupSurvey], windows: Iterable[WindowFigures]
) -> dict[str, GroupSurvey]:
    """Fills in the lags that the coordinator does not know, because members hold records and have settled none yet."""
    lags: dict[str, dict[TopicPartition, GroupPlace]] = {}
    for window in windows:
        place = TopicPartition(window.topic, window.partition)
        survey = surveys.get(window.group_id)
        if survey is not None and place in survey.places and survey.places[place].lag is None:
            lags.setdefault(window.group_id, {})[place] = GroupPlace(window.start_offset, window.lag)
    known = {
        group_id: replace(surveys[group_id], places={**surveys[group_id].places, **places})
        for group_id, places in lags.items()
    }
    return {**surveys, **known}


def group_row(
    survey: GroupSurvey,
    *,
    lag: int | None,
    lags: Sequence[tuple[float, float]],
    rate_done: float | None,
    oldest_age_s: float | None,
    lock_timeouts: float | None,
    dead_letters: int | None,
    live: LiveFigures | None,
    limits: HealthLimits,
    has_settled: bool = True,
) -> tuple[Health, GroupRow]:
    listing = survey.listing
    health = assess(
        GroupFigures(
            type=listing.type.value,
            members=survey.members,
            lag=lag,
            lags=lags,
            rate_done=rate_done,
            oldest_age_s=oldest_age_s,
            window_share=live.window_share if live else None,
            lock_timeouts=lock_timeouts,
            near_limit=live.near_limit if live else None,
            dead_letters=dead_letters,
            has_settled=has_settled,
            error=survey.error,
        ),
        limits,
    )
    return health, GroupRow(
        group_id=listing.group_id,
        type=listing.type.value,
        state=listing.state.value,
        members=survey.members,
        lag=lag,
        in_flight=live.in_flight if live else None,
        rate_done=rate_done,
        error=survey.error,
        oldest_age_s=oldest_age_s if lag else None,
        window_share=live.window_share if live else None,
        near_limit=live.near_limit if live else None,
        dead_letters=dead_letters,
        level=health.level.word,
        reasons=tuple(finding.text for finding in health.findings),
        trend=health.trend.value,
        slope=health.slope,
        drain_s=None if health.drain_s is None or math.isinf(health.drain_s) else health.drain_s,
        drain=health.drain,
    )
