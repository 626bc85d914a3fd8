"""How old the oldest unsettled record of each group is: the time of the record at the offset where it stands.

A record's time does not change, so it is read once and kept as long as a group stands there. A round reads at most
`reads_max` records, those of the largest lag first; the others follow in the next rounds. What could not be read is
tried again, a few places in each round.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headrace.client.admin.survey import GroupSurvey, place_lag
from headrace.client.cluster import Cluster
from headrace.client.plain_fetch import OFFSET_MAX, read_range
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition

logger = logging.getLogger("headrace.client")

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
        self._times: dict[Standing, int] = {}
        """In milliseconds since 1970."""
        self._failed: dict[Standing, None] = {}
        """Places that could not be read, the one that was tried longest ago first."""
        self._denied: dict[Standing, KafkaError] = {}

    @property
    def denied(self) -> dict[str, KafkaError]:
        """By topic: that its records may not be read."""
        return {place.topic: error for place, error in self._denied.items()}

    async def refresh(self, lags: Mapping[Standing, int]) -> None:
        """Forgets where nobody stands any more, and reads the times of new places."""
        self._times = {place: time for place, time in self._times.items() if place in lags}
        self._failed = {place: None for place in self._failed if place in lags}
        self._denied = {place: error for place, error in self._denied.items() if place in lags}
        new = [place for place in lags if place not in self._times and place not in self._failed]
        wanted = [*list(self._failed)[:AT_ONCE], *sorted(new, key=lambda place: -lags[place])]
        limit = asyncio.Semaphore(AT_ONCE)

        async def read(place: Standing) -> None:
            async with limit:
                self._failed.pop(place, None)
                self._denied.pop(place, None)
                try:
                    self._times[place] = await record_time(self._cluster, place)
                except KafkaError as error:
                    logger.debug("the record at %s-%d@%d cannot be read now: %s", *place, error)
                    self._failed[place] = None
                    if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                        self._denied[place] = error

        await asyncio.gather(*(read(place) for place in wanted[: self._reads_max]))

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


async def record_time(cluster: Cluster, place: Standing) -> int:
    """The timestamp of the batch with the record at this offset, or of the next one. KafkaError where there is none."""
    for last in (place.offset, OFFSET_MAX):  # the record itself may have been compacted away
        reading = read_range(cluster, *place, last, max_bytes=READ_BYTES, timeout_ms=READ_TIMEOUT_MS)
        async with contextlib.aclosing(reading):
            async for header, _ in reading:
                return header.record_timestamp
    raise AssertionError("the response has no end offset")
