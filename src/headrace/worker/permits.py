"""Permits that a group of workers shares: each is held by one worker at a time. They keep `limit=` and `group_rate=`.

Theory of operation. A permit is a partition of a topic without records, GROUP.NAME.permits, and the workers are members
of a consumer group (KIP-848) that is assigned its partitions. Kafka's group coordinator hands them out: a partition
gets a new owner when the old one has said that it has given it up, or has been silent for the session timeout. No
worker coordinates others, and nothing is written.

A worker that is to give up permits keeps as many of them as it has runs; it starts none until it is within what is left
to it. It takes its permits for lost before the coordinator does (`membership.py`). Killed, its functions end with it,
and its permits are free when the session has timed out.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.errors import TopicExistsError
from headrace.client.settings import ClientSettings
from headrace.worker.membership import Places, WorkerMembership, session_timeout_ms

logger = logging.getLogger("headrace.worker")


class PermitLedger:
    """Which permits a worker has, what it tells the coordinator, and how many runs may start. Pure."""

    def __init__(self, total: int) -> None:
        self._total = total
        """A topic may have more partitions than there are permits now: it cannot shrink."""
        self.granted: frozenset[int] = frozenset()
        """What the coordinator leaves to this worker."""
        self.owned: frozenset[int] = frozenset()
        """What it was told that this worker has: `granted`, and what is to be given up but is still in use."""

    @property
    def capacity(self) -> int:
        return sum(permit < self._total for permit in self.granted)

    def frees(self, in_use: int) -> bool:
        """The next heartbeat gives something up."""
        return self._kept(in_use) != self.owned

    def report(self, in_use: int) -> frozenset[int]:
        """What the next heartbeat says this worker has."""
        self.owned = self._kept(in_use)
        return self.owned

    def _kept(self, in_use: int) -> frozenset[int]:
        spare = sorted(permit for permit in self.owned - self.granted if permit < self._total)
        return self.granted | frozenset(spare[: max(0, in_use - self.capacity)])

    def assigned(self, permits: Iterable[int]) -> None:
        self.granted = frozenset(permits)
        self.owned |= self.granted

    def lost(self) -> None:
        """The coordinator may have given them to others."""
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
        self._topic = f"{name}.permits"
        self._total = total
        self._in_use, self._changed, self._lost = in_use, changed, lost
        self._cluster = Cluster(self._settings)
        self._topic_id = b""
        self._member = WorkerMembership(
            self._cluster, self._topic, self._topic,
            report=self._report, size=lambda: self.ledger.capacity, assigned=self._assigned, lost=self._expired,
        )  # fmt: skip

    async def start(self) -> None:
        """Joins; raises what makes it impossible."""
        async with AsyncAdmin(self._settings) as admin:
            with contextlib.suppress(TopicExistsError):
                await admin.create_topic(self._topic, self._total)
            described = await admin.describe_topics([self._topic])
            if len(described[self._topic].partitions) < self._total:
                await admin.create_partitions(self._topic, self._total)
            session_ms = await session_timeout_ms(admin, self._topic)
        await self._cluster.start([self._topic])
        topic = self._cluster.topic(self._topic)
        assert topic is not None
        self._topic_id = topic.topic_id
        await self._member.start(session_ms)

    def note_end(self) -> None:
        """A run has ended: a permit that is to be given up may be free."""
        if self.ledger.frees(self._in_use()):
            self._member.beat_soon()

    async def close(self) -> None:
        """Leaves, so that others have the permits at once."""
        await self._member.close(leaves=True)
        await self._cluster.close()

    def _report(self) -> Places:
        return {(self._topic_id, permit) for permit in self.ledger.report(self._in_use())}

    def _assigned(self, places: Places) -> None:
        before = self.ledger.capacity
        self.ledger.assigned(permit for topic_id, permit in places if topic_id == self._topic_id)
        if self.ledger.capacity != before:
            self._changed(self.ledger.capacity)
        self.note_end()

    def _expired(self, why: str) -> None:
        had = self.ledger.capacity
        self.ledger.lost()
        if had:
            logger.warning(
                "%s: %d permits were lost; runs that need them are stopped: %s", self._topic, had, why
            )
            self._changed(0)
            self._lost()
