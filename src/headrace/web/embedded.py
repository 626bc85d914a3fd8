"""The embedded broker's own view: what no admin request tells. Locks, holders, counts by member, a release by hand.

Calls run on the broker's thread and are waited for on another, so the dashboard's loop never stands still for them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headrace.broker.embedded import Broker
from headrace.broker.metrics import Sample
from headrace.share.view import SharePartitionState

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What has been counted for one share group since its members came."""

    delivered: dict[str, int]
    """Records by member."""
    acknowledged: dict[str, int]


class Detail:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    @property
    def failure(self) -> Exception | None:
        return self._broker.failure

    async def share_state(self, group_id: str) -> dict[tuple[str, int], SharePartitionState]:
        return await asyncio.to_thread(self._broker.share_state, group_id)

    async def counts(self, group_id: str) -> GroupCounts:
        leader = self._broker.core.share_leader

        def look() -> GroupCounts:
            return GroupCounts(
                *(
                    {member: count for (group, member), count in counts.items() if group == group_id}
                    for counts in (leader.handed, leader.answered)
                )
            )

        return await self._call(look)

    async def samples(self) -> list[Sample]:
        return await self._call(self._broker.core.metrics.snapshot)

    async def release(self, group_id: str, topic: str, partition: int, offset: int) -> str:
        return await asyncio.to_thread(self._broker.release_record, group_id, topic, partition, offset)

    async def _call(self, function: Callable[[], T]) -> T:
        return await asyncio.to_thread(self._broker.call, function)
