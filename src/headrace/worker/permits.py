"""Permits that a group of workers shares: each is held by one worker at a time. They keep `limit=` and `group_rate=`.

Theory of operation. A permit is a partition of a topic without records, GROUP.NAME.permits, and the workers are members
of a consumer group (KIP-848) that is assigned its partitions. Kafka's group coordinator hands them out: a partition
gets a new owner when the old one has said that it has given it up, or has been silent for the session timeout. No
worker coordinates others, and nothing is written.

A worker that is to give up permits keeps as many of them as it has runs; it starts none until it is within what is left
to it. It takes its permits for lost before the coordinator does: when no heartbeat has succeeded for two thirds of the
session timeout. Killed, its functions end with it, and its permits are free when the session has timed out.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.errors import TopicExistsError, error_for
from headrace.client.settings import ClientSettings
from headrace.wire.error_groups import COORDINATOR_MOVED
from headrace.wire.errors import KafkaError
from headrace.wire.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from headrace.worker.heartbeats import (
    FENCED,
    JOIN_EPOCH,
    LEAVE_EPOCH,
    SESSION_MS,
    Heartbeats,
    assigned_places,
    session_timeout_ms,
)

logger = logging.getLogger("headrace.worker")

FIRST_S, INTERVAL_S = 0.05, 5.0
AGAIN_S = 1.0
CLOSE_S = 5.0


class PermitLedger:
    """Which permits a worker has, what it tells the coordinator, and how many runs may start. Pure."""

    def __init__(self, total: int) -> None:
        self._total = total
        """A topic may have more partitions than there are permits now: it cannot shrink."""
        self.epoch = JOIN_EPOCH
        self.granted: frozenset[int] = frozenset()
        """What the coordinator leaves to this worker."""
        self.owned: frozenset[int] = frozenset()
        """What it was told that this worker has: `granted`, and what is to be given up but is still in use."""

    @property
    def capacity(self) -> int:
        return sum(permit < self._total for permit in self.granted)

    @property
    def gives_up(self) -> bool:
        return self.owned != self.granted

    def report(self, in_use: int) -> frozenset[int]:
        """What the next heartbeat says this worker has."""
        spare = sorted(permit for permit in self.owned - self.granted if permit < self._total)
        self.owned = self.granted | frozenset(spare[: max(0, in_use - self.capacity)])
        return self.owned

    def answered(self, epoch: int, assigned: Collection[int] | None) -> None:
        self.epoch = epoch
        if assigned is not None:
            self.granted = frozenset(assigned)
            self.owned |= self.granted

    def lost(self) -> None:
        """The coordinator may have given them to others."""
        self.epoch = JOIN_EPOCH
        self.granted = self.owned = frozenset()


class Permits:
    """Of one task. `in_use` says how many are used now; `changed` gets their number; `lost` ends the runs."""

    def __init__(
        self,
        given: Mapping[str, Any],
        name: str,
        total: int,
        *,
        in_use: Callable[[], int],
        changed: Callable[[int], None],
        lost: Callable[[], None],
    ) -> None:
        self.ledger = PermitLedger(total)
        self._settings = ClientSettings.parse(given)
        self._topic = self._group_id = f"{name}.permits"
        self._total = total
        self._in_use, self._changed, self._lost = in_use, changed, lost
        self._cluster = Cluster(self._settings)
        self._heartbeats = Heartbeats(self._cluster, self._group_id, self._topic)
        self._topic_id = b""
        self._lease_s = SESSION_MS / 1500
        self._interval_s = INTERVAL_S
        self._loop = asyncio.get_running_loop()
        self._expiry: asyncio.TimerHandle | None = None
        self._soon = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Joins; raises what makes it impossible."""
        await self._prepare()
        await self._cluster.start([self._topic])
        topic = self._cluster.topic(self._topic)
        assert topic is not None
        self._topic_id = topic.topic_id
        await self._beat()
        self._beating = self._loop.create_task(self._keep())

    def note_end(self) -> None:
        """A run has ended: a permit that is to be given up may be free."""
        if self.ledger.gives_up:
            self._soon.set()

    async def close(self) -> None:
        """Leaves, so that others have the permits at once."""
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait((self._beating,))
        if self._expiry is not None:
            self._expiry.cancel()
        if self.ledger.epoch > JOIN_EPOCH:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._send(LEAVE_EPOCH, frozenset())
        await self._cluster.close()

    async def _prepare(self) -> None:
        async with AsyncAdmin(self._settings) as admin:
            with contextlib.suppress(TopicExistsError):
                await admin.create_topic(self._topic, self._total)
            described = await admin.describe_topics([self._topic])
            if len(described[self._topic].partitions) < self._total:
                await admin.create_partitions(self._topic, self._total)
            self._lease_s = await session_timeout_ms(admin, self._group_id) / 1500

    async def _keep(self) -> None:
        wait_s, trouble = FIRST_S, ""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._soon.wait()
            self._soon.clear()
            had = self.ledger.capacity
            try:
                await self._beat()
                trouble = ""
                is_settled = self.ledger.capacity or had == self.ledger.capacity
                wait_s = min(self._interval_s, wait_s * 2 if is_settled else FIRST_S)
            except Exception as error:  # whatever it is: without heartbeats all permits are lost
                wait_s = min(AGAIN_S, self._lease_s / 5)
                if str(error) != trouble:
                    trouble = str(error)
                    logger.warning("%s: permits cannot be renewed, retrying: %s", self._topic, error)

    async def _beat(self) -> None:
        ledger, sent_s = self.ledger, self._loop.time()
        response = await self._send(ledger.epoch, ledger.report(self._in_use()))
        if response.error_code in FENCED and ledger.epoch > JOIN_EPOCH:
            self._expire()
            self._soon.set()
            return
        if response.error_code in COORDINATOR_MOVED:
            self._cluster.forget_coordinator(self._group_id)
        if response.error_code:
            raise error_for(response.error_code, response.error_message, about=f"group {self._group_id!r}")
        if self._loop.time() >= sent_s + self._lease_s:
            return  # it took so long that others may have the permits by now
        self._interval_s = response.heartbeat_interval_ms / 1000
        self._renew(sent_s)
        before = ledger.capacity
        ledger.answered(response.member_epoch, self._assigned(response))
        if ledger.capacity != before:
            self._changed(ledger.capacity)
        if ledger.gives_up:
            self._soon.set()

    async def _send(self, epoch: int, owned: Collection[int]) -> ConsumerGroupHeartbeatResponse:
        """A response that does not come is given up early enough to try again before the permits are lost."""
        places = {(self._topic_id, permit) for permit in owned}
        timeout_ms = max(1.0, self._lease_s * 1000 / 3) if epoch > JOIN_EPOCH else None
        return await self._heartbeats.send(epoch, places, timeout_ms=timeout_ms)

    def _assigned(self, response: ConsumerGroupHeartbeatResponse) -> list[int] | None:
        places = assigned_places(response)
        if places is None:
            return None
        return [permit for topic_id, permit in places if topic_id == self._topic_id]

    def _renew(self, sent_s: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_at(sent_s + self._lease_s, self._expire)

    def _expire(self) -> None:
        had = self.ledger.capacity
        self.ledger.lost()
        if had:
            logger.warning("%s: %d permits were lost; runs that need them are stopped", self._topic, had)
            self._changed(0)
            self._lost()
