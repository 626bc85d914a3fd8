"""The topics of a kombu connection's queues and exchanges: created, deleted, counted and emptied.

On the thread of the connection's link (`kombu_link.py`).
"""

import contextlib
from collections.abc import Mapping
from typing import Any

from headrace.adapters.kombu_options import KombuOptions
from headrace.client.admin.aio import AsyncAdmin
from headrace.client.errors import (
    AuthorizationError,
    GroupIdNotFoundError,
    TopicExistsError,
    UnknownTopicOrPartitionError,
)
from headrace.client.settings import ClientSettings
from headrace.wire.enums import OffsetSpec

BROADCAST_CONFIGS = {"cleanup.policy": "delete", "retention.ms": "600000", "segment.ms": "600000"}
"""Who listens to an exchange reads at once. What is older is of no use."""


class KombuTopics:
    def __init__(self, options: KombuOptions, settings: ClientSettings) -> None:
        self._options = options
        self._settings = settings
        self._admin: AsyncAdmin | None = None
        self._known: set[str] = set()
        """Topics that exist."""

    async def connect(self) -> None:
        """Tries each address once. When to try again, and which URL, is up to kombu."""
        await self._open(timeout_s=0)

    async def _open(self, timeout_s: float | None = None) -> AsyncAdmin:
        if self._admin is None:
            admin = AsyncAdmin(self._settings)
            await admin.start(timeout_s=timeout_s)
            self._admin = admin
        return self._admin

    async def close(self) -> None:
        if self._admin is not None:
            await self._admin.close()

    def forget(self, topic: str) -> None:
        """It may not exist any more."""
        self._known.discard(topic)

    async def has(self, topic: str) -> bool:
        if topic in self._known:
            return True
        admin = await self._open()
        try:
            await admin.describe_topics([topic])
        except UnknownTopicOrPartitionError:
            return False
        self._known.add(topic)
        return True

    async def create(self, topic: str) -> None:
        """Unless it exists."""
        options = self._options
        await self._create(topic, options.partitions, options.topic_config)

    async def create_broadcast(self, topic: str) -> None:
        await self._create(topic, 1, BROADCAST_CONFIGS)

    async def _create(self, topic: str, partitions: int, configs: Mapping[str, Any]) -> None:
        if await self.has(topic):
            return
        admin = await self._open()
        with contextlib.suppress(TopicExistsError):
            await admin.create_topic(
                topic, partitions, replication_factor=self._options.replication_factor, configs=configs
            )
        self._known.add(topic)

    async def delete(self, topic: str) -> None:
        admin = await self._open()
        self._known.discard(topic)
        with contextlib.suppress(UnknownTopicOrPartitionError):
            await admin.delete_topics([topic])

    async def end_of(self, topic: str) -> int:
        """Where the next record of a broadcast topic will be; 0 if there is no such topic."""
        if not await self.has(topic):
            return 0
        admin = await self._open()
        found = await admin.list_offsets({(topic, 0): OffsetSpec.LATEST})
        return found[topic, 0].offset or 0

    async def size(self, topic: str) -> int:
        """The records that are neither done nor rejected, those that a worker has now included."""
        admin = await self._open()
        try:
            found = await admin.share_group_offsets(self._options.group_id, [topic])
            if all(each.lag is not None for each in found.values()):
                return sum(each.lag or 0 for each in found.values())
        except (GroupIdNotFoundError, AuthorizationError):
            pass  # no worker has ever run, or this program may not know
        except UnknownTopicOrPartitionError:
            return 0
        try:
            topics = await admin.describe_topics([topic], offsets=True)
        except (UnknownTopicOrPartitionError, AuthorizationError):
            return 0
        return sum((each.end_offset or 0) - (each.start_offset or 0) for each in topics[topic].partitions)

    async def purge(self, topic: str) -> int:
        admin = await self._open()
        count = await self.size(topic)
        try:
            found = (await admin.describe_topics([topic]))[topic]
        except UnknownTopicOrPartitionError:
            return 0
        await admin.delete_records({(topic, each.partition): OffsetSpec.LATEST for each in found.partitions})
        return count

    async def is_consumed(self, topic: str) -> bool:
        admin = await self._open()
        try:
            group = await admin.describe_share_group(self._options.group_id)
        except GroupIdNotFoundError:
            return False
        return any(topic in member.subscribed for member in group.members)
