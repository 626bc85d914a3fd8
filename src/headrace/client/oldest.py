"""How old the oldest unsettled record of each group is: the time of the record at the offset where it stands.

A record's time does not change, so it is read once and kept as long as a group stands there. A round reads at most
`reads_max` records, those of the largest lag first; the others follow in the next rounds.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.client.admin.survey import GroupSurvey, place_lag
from headrace.client.cluster import Cluster
from headrace.client.plain_fetch import read_range
from headrace.wire.errors import KafkaError
from headrace.wire.ids import TopicAndPartition

READS_MAX = 64
AT_ONCE = 8
READ_BYTES = 1
"""A fetch always returns one whole batch, and that is all it takes."""
READ_TIMEOUT_MS = 500


class Standing(NamedTuple):
    """Where a group stands: the offset of its oldest unsettled record."""

    topic: str
    partition: int
    offset: int


def standings_of(survey: GroupSurvey, ends: Mapping[TopicAndPartition, int]) -> dict[Standing, int]:
    """The places where records are left, with their lag: there the oldest ones are."""
    found = {}
    for place, stands in survey.places.items():
        lag = place_lag(survey, place, ends)
        if lag and stands.offset is not None and stands.offset < ends.get(place, 0):
            found[Standing(*place, stands.offset)] = lag
    return found


class OldestRecords:
    def __init__(self, cluster: Cluster, *, reads_max: int = READS_MAX) -> None:
        self._cluster = cluster
        self._reads_max = reads_max
        self._times: dict[Standing, int | None] = {}
        """In milliseconds since 1970; None where there is no record to read."""

    async def refresh(self, lags: Mapping[Standing, int]) -> None:
        """Forgets where nobody stands any more, and reads the times of new places."""
        self._times = {place: time for place, time in self._times.items() if place in lags}
        missing = sorted((place for place in lags if place not in self._times), key=lambda one: -lags[one])
        limit = asyncio.Semaphore(AT_ONCE)

        async def read(place: Standing) -> None:
            async with limit:
                self._times[place] = await record_time(self._cluster, place)

        await asyncio.gather(*(read(place) for place in missing[: self._reads_max]))

    async def by_group(
        self, surveys: Iterable[GroupSurvey], ends: Mapping[TopicAndPartition, int]
    ) -> dict[str, int]:
        """When the oldest unsettled record of each group came; groups without one are not in it."""
        standings = {survey.listing.group_id: standings_of(survey, ends) for survey in surveys}
        lags: dict[Standing, int] = {}
        for found in standings.values():
            for place, lag in found.items():
                lags[place] = max(lag, lags.get(place, 0))
        await self.refresh(lags)
        times = {group_id: self.oldest_ms(places) for group_id, places in standings.items()}
        return {group_id: time for group_id, time in times.items() if time is not None}

    def oldest_ms(self, places: Iterable[Standing]) -> int | None:
        """The earliest of the times that are known; None if none is."""
        times = (self._times.get(place) for place in places)
        return min((time for time in times if time is not None), default=None)


async def record_time(cluster: Cluster, place: Standing) -> int | None:
    """The timestamp of the batch with the record at this offset or after it; None if it cannot be read."""
    try:
        reading = read_range(cluster, *place, place.offset, max_bytes=READ_BYTES, timeout_ms=READ_TIMEOUT_MS)
        async for header, _ in reading:
            return header.record_timestamp
        return None
    except KafkaError:
        return None
