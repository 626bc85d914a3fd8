"""Keeps the inbox small: forgets records that the group is past, and message ids that are old."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.settings import ClientSettings
from headrace.wire.errors import KafkaError
from headrace.worker.transactions.database import WorkerDatabase
from headrace.worker.transactions.statements import forget_unique, prune

logger = logging.getLogger("headrace.worker")

EVERY_S = 10.0
REMEMBER_MS = 7 * 86_400_000
"""How long the ids of messages are remembered: a relay, or a redrive that is repeated, may send one again that late."""


class InboxPruner:
    """Of the tasks of a group that share a database.

    `topics` are those of share groups. For tasks with strict order, `completed` says what the workers' own partitions
    are past, by topic id: offsets that are committed under a topic's name may be those of a topic that was deleted.
    """

    def __init__(
        self,
        database: WorkerDatabase,
        given: Mapping[str, Any],
        group_id: str,
        topics: Sequence[str],
        now_ms: Callable[[], int],
        completed: Callable[[], Mapping[str, Mapping[int, int]]] = dict,
    ) -> None:
        self._database = database
        self._completed = completed
        self._given = dict(given)
        self._group_id = group_id
        self._topics = list(topics)
        self._now_ms = now_ms
        self._pruned: dict[str, dict[int, int]] = {}

    async def run(self) -> None:
        """Until it is canceled. A failure costs nothing but room: it is tried again."""
        trouble = ""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.prune()
                trouble = ""
            except Exception as error:
                if str(error) != trouble:
                    trouble = str(error)
                    logger.warning(
                        "group %s: the inbox in %s is not pruned, retrying: %s",
                        self._group_id, self._database.database.name, error,
                    )  # fmt: skip

    async def prune(self) -> None:
        before_ms = self._now_ms() - REMEMBER_MS
        for topic_id, starts in {**await self._find_starts(), **self._completed()}.items():
            moved = {
                partition: start
                for partition, start in starts.items()
                if start > self._pruned.get(topic_id, {}).get(partition, 0)
            }
            if moved:
                await self._database.transact(partial(prune, self._group_id, topic_id, moved, before_ms))
                self._pruned.setdefault(topic_id, {}).update(moved)
        await self._database.transact(lambda: forget_unique(self._now_ms()))

    async def _find_starts(self) -> dict[str, dict[int, int]]:
        """The group's start offsets by topic id. A topic that is created anew meanwhile is left out."""
        starts: dict[str, dict[int, int]] = {}
        if not self._topics:
            return starts
        async with AsyncAdmin(ClientSettings.parse(self._given)) as admin:
            for topic in self._topics:
                try:
                    before = (await admin.describe_topics([topic]))[topic].topic_id
                    offsets = await admin.share_group_offsets(self._group_id, [topic])
                    after = (await admin.describe_topics([topic]))[topic].topic_id
                except KafkaError as error:
                    logger.debug("group %s: no start offsets of %s: %s", self._group_id, topic, error)
                    continue
                if before == after:
                    starts[before] = {
                        partition: each.start_offset
                        for (_, partition), each in offsets.items()
                        if each.start_offset is not None
                    }
        return starts
