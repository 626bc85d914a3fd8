"""A worker's membership in a consumer group (KIP-848): heartbeats, what is assigned, and until when that is sure.

Permits (`permits.py`) and tasks with strict order (`strict.py`) rest on it.

Theory of operation. The coordinator gives a partition to another member when its owner has confirmed that it gave it
up, or has been silent for the session timeout. A member takes everything for lost before that: when no heartbeat has
succeeded for two thirds of the session timeout, counted from when it was sent. It then stops its runs, and joins again.
With `quiet` it does so when they have ended, or when the session has timed out in any case.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.errors import error_for
from headrace.wire.error_groups import COORDINATOR_MOVED
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse

logger = logging.getLogger("headrace.worker")

FIRST_S, INTERVAL_S = 0.05, 5.0
AGAIN_S = 1.0
CLOSE_S = 5.0
SESSION = "consumer.session.timeout.ms"
SESSION_MS = 45_000
REBALANCE_MS = 2**31 - 1
"""A run may take as long as it likes: nobody else gets its partition meanwhile."""
JOIN_EPOCH, LEAVE_EPOCH = 0, -1
FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)
Places = Collection[tuple[bytes, int]]
"""Partitions by the id of their topic."""


class WorkerMembership:
    """`report` returns what the next heartbeat says that this member has, and `size` how much that is now; `assigned`
    gets what it may have; `lost` gets why everything is lost; `quiet` returns when nothing runs any more."""

    def __init__(
        self,
        cluster: Cluster,
        group_id: str,
        topic: str,
        *,
        report: Callable[[], Places],
        size: Callable[[], int],
        assigned: Callable[[frozenset[tuple[bytes, int]]], None],
        lost: Callable[[str], None],
        quiet: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.member_id = str(uuid.uuid4())
        self.epoch = JOIN_EPOCH
        self._cluster = cluster
        self._group_id = group_id
        self._topic = topic
        self._report, self._size, self._assigned, self._lost = report, size, assigned, lost
        self._quiet = quiet
        self._session_s = self._lease_s = 0.0
        self._sent_s = float("-inf")
        """When the last heartbeat that succeeded was sent."""
        self._interval_s = INTERVAL_S
        self._loop = asyncio.get_running_loop()
        self._expiry: asyncio.TimerHandle | None = None
        self._soon = asyncio.Event()
        self._lives = 0
        """How often it has lost everything: what was asked in an earlier life does not count."""
        self._beating: asyncio.Task[None] | None = None

    async def start(self, session_ms: int) -> None:
        """Joins; raises what makes it impossible."""
        self._session_s = session_ms / 1000
        self._lease_s = self._session_s * 2 / 3
        await self._beat()
        self._beating = self._loop.create_task(self._keep())

    def beat_soon(self) -> None:
        """There is something to tell, or to hear."""
        self._soon.set()

    def check(self) -> None:
        """Before anything is started: a process that stood still may have missed its own deadline."""
        if self.epoch > JOIN_EPOCH and self._loop.time() >= self._sent_s + self._lease_s:
            self._run_out()

    def _run_out(self) -> None:
        self.expire(f"no heartbeat has succeeded for {self._lease_s:g} s")

    def expire(self, why: str) -> None:
        """Others may have everything by now, or soon."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if self.epoch > JOIN_EPOCH:
            self.epoch = JOIN_EPOCH
            self._lives += 1
            self._lost(why)
            self._soon.set()

    async def close(self, *, leaves: bool) -> None:
        """With `leaves`, others have the partitions at once, else when the session has timed out."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait((self._beating,))
        if self._expiry is not None:
            self._expiry.cancel()
        if leaves and self.epoch > JOIN_EPOCH:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._send(LEAVE_EPOCH, ())

    async def _keep(self) -> None:
        wait_s, trouble = FIRST_S, ""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._soon.wait()
            self._soon.clear()
            had = self._size()
            try:
                if self.epoch == JOIN_EPOCH and self._quiet is not None:
                    await self._wait_for_runs(self._quiet)
                await self._beat()
                trouble = ""
                wait_s = FIRST_S if self._size() != had else min(self._interval_s, wait_s * 2)
            except Exception as error:  # whatever it is: without heartbeats everything is lost
                wait_s = min(AGAIN_S, self._lease_s / 5)
                if str(error) != trouble:
                    trouble = str(error)
                    logger.warning("group %s: heartbeat failed, retrying: %s", self._group_id, error)

    async def _wait_for_runs(self, quiet: Callable[[], Awaitable[None]]) -> None:
        """What was stopped may take a moment to end. Others have its partitions at once then."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._sent_s + self._session_s):
                await quiet()
                await self._send(LEAVE_EPOCH, ())  # else the coordinator would refuse to let it join

    async def _beat(self) -> None:
        sent_s, life = self._loop.time(), self._lives
        timeout_ms = max(1.0, self._lease_s * 1000 / 3) if self.epoch > JOIN_EPOCH else None
        response = await self._send(self.epoch, self._report(), timeout_ms=timeout_ms)
        if life != self._lives:
            return  # it has lost everything meanwhile
        if response.error_code in FENCED and self.epoch > JOIN_EPOCH:
            self.expire(response.error_message or "the coordinator has expelled this member")
            return
        if response.error_code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(self._group_id)
        if response.error_code:
            raise error_for(response.error_code, response.error_message, about=f"group {self._group_id!r}")
        if self._loop.time() >= sent_s + self._lease_s:
            return  # it took so long that others may have the partitions by now
        self._interval_s = response.heartbeat_interval_ms / 1000
        self.epoch = response.member_epoch
        self._sent_s = sent_s
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_at(sent_s + self._lease_s, self._run_out)
        places = _assigned_places(response)
        if places is not None:
            self._assigned(places)

    async def _send(
        self, epoch: int, owned: Places, *, timeout_ms: float | None = None
    ) -> ConsumerGroupHeartbeatResponse:
        """Every heartbeat says everything, so every response has the whole assignment."""
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


def _assigned_places(response: ConsumerGroupHeartbeatResponse) -> frozenset[tuple[bytes, int]] | None:
    if response.assignment is None:
        return None
    each_topic = response.assignment.topic_partitions
    return frozenset((topic.topic_id, each) for topic in each_topic for each in topic.partitions)


async def session_timeout_ms(admin: AsyncAdmin, group_id: str) -> int:
    """After how long without a heartbeat the coordinator gives a member's partitions to others."""
    entry = (await admin.group_config(group_id)).get(SESSION)
    return int(entry.value) if entry is not None and entry.value else SESSION_MS
