"""The embedded broker's own view: what no admin request tells. Locks, holders, counts by member, a release by hand.

Everything runs on the broker's own thread, between its requests, and is waited for without a thread of ours.
"""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from headrace.broker.core import BrokerCore
from headrace.broker.embedded import Broker, NotRunningError
from headrace.broker.metrics import Sample
from headrace.broker.oldest import oldest_unsettled
from headrace.broker.security.scram import HASHES, ScramCredential, has_password
from headrace.broker.share.intervene import release_record
from headrace.broker.share.view import WindowFigures, finish_views, gather_figures, gather_views
from headrace.client.admin.results import DiskUsage
from headrace.share.view import SharePartitionState
from headrace.web.logins import IsValid
from headrace.wire.security import SaslMechanism

T = TypeVar("T")
ANSWER_S_MAX = 10.0
PARTITIONS_PER_STEP = 500
END = object()


@dataclass(frozen=True, slots=True)
class GroupCounts:
    """What has been counted for one share group since its members came."""

    delivered: dict[str, int]
    """Records by member."""
    acknowledged: dict[str, int]


class EmbeddedView:
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

    async def oldest(self) -> dict[str, int]:
        """By group: when its oldest unsettled record came, in milliseconds since 1970."""
        found: dict[str, int] = {}
        await self._in_steps(oldest_unsettled(self._core, found))
        return found

    async def disk_usage(self) -> list[DiskUsage]:
        sizes: dict[tuple[str, int], int] = {}
        await self._in_steps(_sizes(self._core, sizes))
        disk = self._core.logs.disk
        usage = None if disk.is_volatile else shutil.disk_usage(disk.name)
        return [
            DiskUsage(
                broker_id=self._core.node_id,
                path=disk.name,
                total_bytes=None if usage is None else usage.total,
                free_bytes=None if usage is None else usage.free,
                sizes=sizes,
                error=None if self.failure is None else str(self.failure),
            )
        ]

    async def _in_steps(self, steps: Iterator[None]) -> None:
        """Each step between two requests of the broker."""
        is_done = False
        while not is_done:
            is_done = await self._call(lambda: next(steps, END) is END)

    async def windows(self) -> list[WindowFigures]:
        return await self._call(lambda: gather_figures(self._core))

    async def release(self, group_id: str, topic: str, partition: int, offset: int) -> str:
        return await self._call(lambda: release_record(self._core, group_id, topic, partition, offset))

    async def verify(self, name: str, password: str) -> IsValid | None:
        """Whether a user has that password, by the SCRAM credentials that the broker keeps.

        It takes as long for a user that does not exist. The login is valid until the credentials are altered.
        """
        users = self._core.users

        def look() -> tuple[Mapping[SaslMechanism, ScramCredential], list[ScramCredential]]:
            known = users.credentials(name)
            return known, [known.get(each) or users.decoy(name, each) for each in HASHES]

        known, credentials = await self._call(look)
        compared = list(zip(HASHES, credentials, strict=True))
        checked = await asyncio.to_thread(lambda: [has_password(*one, password) for one in compared])

        async def is_valid() -> bool:
            return users.credentials(name) is known

        return is_valid if any(checked) else None

    async def _call(self, function: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                return await asyncio.wrap_future(self._broker.submit(function))
        except NotRunningError as error:
            raise ConnectionError(str(error)) from None


def _sizes(core: BrokerCore, sizes: dict[tuple[str, int], int]) -> Iterator[None]:
    """Bytes by topic and partition, so many partitions a step."""
    partitions = [partition for topic in core.topics for partition in topic.partitions]
    for count, partition in enumerate(partitions, 1):
        log = partition.opened_log
        if log is not None and not log.is_deleted:
            sizes[partition.topic.name, partition.index] = log.size
        if count % PARTITIONS_PER_STEP == 0:
            yield
