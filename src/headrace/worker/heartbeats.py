"""Heartbeats of a member of a consumer group (KIP-848), for permits and for tasks with strict order.

Every heartbeat says everything, so every response has the whole assignment.
"""

import uuid
from collections.abc import Collection

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

SESSION = "consumer.session.timeout.ms"
SESSION_MS = 45_000
REBALANCE_MS = 2**31 - 1
"""A run may take as long as it likes: nobody else gets its partition meanwhile."""
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
Places = Collection[tuple[bytes, int]]
"""Partitions by the id of their topic."""


class Heartbeats:
    """Of one member that subscribes to one topic."""

    def __init__(self, cluster: Cluster, group_id: str, topic: str) -> None:
        self.member_id = str(uuid.uuid4())
        self._cluster = cluster
        self._group_id = group_id
        self._topic = topic

    async def send(
        self, epoch: int, owned: Places, *, timeout_ms: float | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        by_topic: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(owned):
            by_topic.setdefault(topic_id, []).append(partition)
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=[self._topic],
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=each) for topic_id, each in by_topic.items()
            ],
        )
        node_id = await self._cluster.coordinator(self._group_id)
        try:
            response: ConsumerGroupHeartbeatResponse = await self._cluster.send(
                node_id, request, timeout_ms=timeout_ms
            )
        except (KafkaError, OSError):
            self._cluster.forget_coordinator(self._group_id)
            raise
        return response


def assigned_places(response: ConsumerGroupHeartbeatResponse) -> frozenset[tuple[bytes, int]] | None:
    if response.assignment is None:
        return None
    each_topic = response.assignment.topic_partitions
    return frozenset((topic.topic_id, each) for topic in each_topic for each in topic.partitions)


async def session_timeout_ms(admin: AsyncAdmin, group_id: str) -> int:
    """After how long without a heartbeat the coordinator gives a member's partitions to others."""
    entry = (await admin.group_config(group_id)).get(SESSION)
    return int(entry.value) if entry is not None and entry.value else SESSION_MS
