"""The schedules of queues, for the dashboard: `worker` and `web` do not know each other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.web.schedules import ScheduledLook
from headrace.web.site import NotThere
from headrace.worker.errors import QueueError
from headrace.worker.later import later_topic
from headrace.worker.schedule import ReadLimit, Schedule

if TYPE_CHECKING:
    from headrace.web.schedules import OpenSchedule

STEP_RECORDS_MAX = 5_000
STEP_BYTES_MAX = 2 << 20
"""Read of each of the 24 steps for one look. The first records of a step are due first, or nearly so."""


class DashboardSchedule:
    """What waits for one group; see `GroupSchedule`."""

    def __init__(self, settings: Mapping[str, Any], group_id: str) -> None:
        self.topic = later_topic(group_id)
        self._schedule = Schedule(settings, group_id)

    def now_ms(self) -> int:
        return self._schedule.now_ms()

    async def look(self, most: int) -> ScheduledLook:
        limit = _limit()
        found = await self._schedule.upcoming_async(most, limit)
        return ScheduledLook(found, len(limit.ids), not limit.is_exceeded)

    async def cancel(self, id: str) -> bool:
        try:
            return await self._schedule.cancel_async(id, limit=_limit())
        except QueueError as error:
            raise NotThere(str(error)) from None


def _limit() -> ReadLimit:
    return ReadLimit(STEP_RECORDS_MAX, STEP_BYTES_MAX)


def schedules_of(settings: Mapping[str, Any]) -> "OpenSchedule":
    """`settings` say how to reach the cluster, by Kafka's names."""
    return lambda group_id: DashboardSchedule(settings, group_id)
