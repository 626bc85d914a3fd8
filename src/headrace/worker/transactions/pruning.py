"""Keeps the inbox small: forgets records that the group is past, message ids that are old, and topics that are gone.

Whether a topic still exists is asked by its ID: a user who may not see a topic gets another answer than for one that
does not exist, and a topic that is created again has another ID. One answer is no proof, since a broker may be behind,
and clients may be led to another cluster for a while. So the time of the first such answer is kept in the database, an
answer that the topic exists deletes it, and rows are deleted only after a week without one.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import ANY, Cluster
from headrace.client.settings import ClientSettings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import parse_uuid, uuid_text
from headrace.wire.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from headrace.worker.transactions.database import WorkerDatabase
from headrace.worker.transactions.statements import (
    forget_gone,
    forget_unique,
    inbox_topic_ids,
    note_existing,
    prune,
)

logger = logging.getLogger("headrace.worker")

EVERY_S = 10.0
GONE_EVERY_MS = 600_000
REMEMBER_MS = 7 * 86_400_000
"""How long the ids of messages are remembered: a relay, or a redrive that is repeated, may send one again that late.
And for how long a topic must be gone."""


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
        self._looked_ms = -GONE_EVERY_MS
        """When topics that are gone were last looked for."""

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
        if self._now_ms() - self._looked_ms >= GONE_EVERY_MS:
            await self._prune_gone()
            self._looked_ms = self._now_ms()

    async def _prune_gone(self) -> None:
        """Also of topics that other workers of the group have: those that are gone are nobody's any more."""
        topic_ids = await self._database.transact(partial(inbox_topic_ids, self._group_id))
        for topic_id, exists in (await self._find_existing(topic_ids)).items():
            if exists:
                await self._database.transact(partial(note_existing, self._group_id, topic_id))
                continue
            now_ms = self._now_ms()
            if await self._database.transact(
                partial(forget_gone, self._group_id, topic_id, now_ms, now_ms - REMEMBER_MS)
            ):
                self._pruned.pop(topic_id, None)
                logger.info(
                    "group %s: the inbox in %s has forgotten topic ID %s, which does not exist any more",
                    self._group_id, self._database.database.name, topic_id,
                )  # fmt: skip

    async def _find_existing(self, topic_ids: Collection[str]) -> dict[str, bool]:
        """Which of them exist. Those of which brokers say something else are left out."""
        if not topic_ids:
            return {}
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=parse_uuid(each), name=None) for each in sorted(topic_ids)],
            allow_auto_topic_creation=False,
        )
        async with Cluster(ClientSettings.parse(self._given)) as cluster:
            response = await cluster.send(ANY, request)
        existing = (ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return {
            uuid_text(topic.topic_id): topic.error_code in existing
            for topic in response.topics
            if topic.error_code in (*existing, ErrorCode.UNKNOWN_TOPIC_ID)
        }

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
