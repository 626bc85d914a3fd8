"""The embedded broker's own view: what no admin request tells. Locks, holders, counts by member, a release by hand.

Everything runs on the broker's own thread, between its requests, and is waited for without a thread of ours: a broker
that stops in the middle answers nobody.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from headrace.broker.embedded import Broker
from headrace.broker.metrics import Sample
from headrace.broker.share.intervene import release_record
from headrace.broker.share.view import finish_views, gather_views
from headrace.share.view import SharePartitionState

T = TypeVar("T")
ANSWER_S_MAX = 10.0


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What has been counted for one share group since its members came."""

    delivered: dict[str, int]
    """Records by member."""
    acknowledged: dict[str, int]


class Detail:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._core = broker.core

    @property
    def failure(self) -> Exception | None:
        return self._broker.failure

    async def share_state(self, group_id: str) -> dict[tuple[str, int], SharePartitionState]:
        return finish_views(await self._call(lambda: gather_views(self._core, group_id)))

    async def counts(self, group_id: str) -> GroupCounts:
        leader = self._core.share_leader

        def look() -> GroupCounts:
            return GroupCounts(
                *(
                    {member: count for (group, member), count in counts.items() if group == group_id}
                    for counts in (leader.handed, leader.answered)
                )
            )

        return await self._call(look)

    async def samples(self) -> list[Sample]:
        return await self._call(self._core.metrics.snapshot)

    async def release(self, group_id: str, topic: str, partition: int, offset: int) -> str:
        return await self._call(lambda: release_record(self._core, group_id, topic, partition, offset))

    async def _call(self, function: Callable[[], T]) -> T:
        try:
            answer = self._broker.submit(function)
        except RuntimeError as error:
            raise ConnectionError(str(error)) from None
        async with asyncio.timeout(ANSWER_S_MAX):
            return await asyncio.wrap_future(answer)
