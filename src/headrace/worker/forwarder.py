"""Moves records that are due from step to step of the ladder (`later.py`), and sends periodic tasks.

Theory of operation. One worker of a group leads. It moves everything that is due in one transaction, and writes in the
same transaction how far it has read each step: killed at any moment, it has moved a record and noted that, or neither.
Its transactional id is the group's, so a new leader fences the old one before it reads where that one was; two leaders
cannot both move a record. A worker leads when it starts, and the one before it stands by. Who stands by takes over when
something has been due for a while and the leader has written nothing, and when the leader does not send one of its own
periodic tasks: its period is over, or the group does not know it yet, because this worker was fenced before it could
write it down.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from headrace.base.backoff import backoff
from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from headrace.client.producing.aio import AsyncProducer
from headrace.client.settings import ClientSettings
from headrace.wire.enums import ConfigSource
from headrace.wire.errors import KafkaError
from headrace.wire.message import ZERO_UUID
from headrace.worker.control import ControlReader, valid_positions
from headrace.worker.forward_plan import Ends, ForwardPlan, StepReader
from headrace.worker.later import POSITIONS, STEPS, control_topic, later_topic
from headrace.worker.mover import RecordMover
from headrace.worker.outbox import settings_for
from headrace.worker.periodic import Periodic

logger = logging.getLogger("headrace.worker")

ISOLATION = "share.isolation.level"
OWN_SETTINGS = {"linger.ms": 0, "acks": "all", "enable.idempotence": True}
"""Of the producer that moves records, whatever the queue's own sends with: transactions need the last two."""
LOOK_S, LOOK_S_MIN = 0.5, 0.01
"""How often the leader looks for new records while nothing is due."""
STAND_BY_S = 1.0
OVERDUE_MS = 3_000
"""A leader that has done nothing about what has been due for so long is taken to be gone."""
PATIENCE_MS_MAX = 60_000
"""The same for a worker that was fenced itself before it had done anything: then leaders need more time. Of several
that stand by, each waits for another time, so that they do not take over together."""
EXISTS_S = 2.0
AGAIN_S = 1.0
CLOSE_S = 5.0
"""How long a worker that stops waits for brokers to end its transaction. They end it themselves, later."""
TRIM_MOVES, TRIM_MS = 10_000, 60_000
CANCELED_MS = 3_600_000
"""How long a cancellation is remembered after its record would have been due."""
FENCED = (ProducerFencedError, InvalidProducerEpochError, InvalidTransactionStateError)
"""What a leader hears when another one has fenced it: from a partition, or from the coordinator."""


class Forwarder:
    def __init__(
        self, given: Mapping[str, Any], group_id: str, periodic: Sequence[Periodic], now_ms: Callable[[], int]
    ) -> None:
        self._given = dict(given)
        self._group_id = group_id
        self._topic, self._control_topic = later_topic(group_id), control_topic(group_id)
        self._periodic = periodic
        self._now_ms = now_ms
        self._mover = RecordMover(group_id)
        self._ends: Ends = {}
        self.next_ms = 0
        """When something is due next, as far as is known."""
        self._looked_ms: int | None = None
        """When its last round began. None while it does not lead."""
        self._untrimmed, self._trimmed_ms = 0, 0
        self._trouble = ""
        """What the log has last said about it."""
        self._patience_ms = OVERDUE_MS
        self._fenced_early = 0
        """How often, one after the other, it was fenced before it had done anything."""
        self._has_worked = False
        """Since it leads."""

    def is_settled(self, ends: Sequence[int]) -> bool:
        """Nothing is due, and all that the steps hold has been seen. For tests with a turned clock."""
        seen = [self._ends.get((self._topic, step)) for step in range(STEPS)]
        return seen == list(ends)[:STEPS] and self.next_ms > self._now_ms()

    def has_looked(self, since_ms: int) -> bool:
        """A round that began after that time has ended, or there are none. For tests, too."""
        return self._looked_ms is None or self._looked_ms >= since_ms

    async def run(self) -> None:
        """Until it is canceled. Trouble is logged and tried again: it does not end a worker."""
        leads = True
        while True:
            try:
                async with Cluster(ClientSettings.parse(self._given)) as cluster:
                    await self._until_needed(cluster)
                    if not leads:
                        await self._stand_by(cluster)
                    leads = True
                    await self._lead(cluster)
            except Exception as error:
                if _is_fenced(error):
                    leads = False
                    if not self._has_worked:
                        self._fenced_early += 1
                        self._patience_ms = round(
                            backoff(OVERDUE_MS, PATIENCE_MS_MAX, self._fenced_early, random.random())
                        )
                    logger.info("group %s: another worker forwards scheduled records now", self._group_id)
                elif str(error) != self._trouble:
                    self._trouble = str(error)
                    logger.warning(
                        "group %s: scheduled records are delayed, retrying: %s", self._group_id, error,
                        exc_info=None if isinstance(error, KafkaError | OSError | TimeoutError) else error,
                    )  # fmt: skip
            await asyncio.sleep(AGAIN_S)

    async def _until_needed(self, cluster: Cluster) -> None:
        """Returns when there is something to forward: the topics exist. Then the group must not see what is aborted."""
        while True:
            await cluster.refresh([self._topic, self._control_topic])
            topics = (cluster.topic(self._topic), cluster.topic(self._control_topic))
            if all(topic is not None and topic.partitions for topic in topics):
                break
            await asyncio.sleep(EXISTS_S)
        async with AsyncAdmin(ClientSettings.parse(self._given)) as admin:
            try:
                entry = (await admin.group_config(self._group_id)).get(ISOLATION)
                if entry is None or entry.source is not ConfigSource.GROUP:
                    await admin.set_group_config(self._group_id, {ISOLATION: "read_committed"})
            except KafkaError as error:
                logger.warning(
                    "group %s: %s cannot be set to read_committed (%s); if a worker is killed while it forwards, a "
                    "scheduled record may run twice",
                    self._group_id, ISOLATION, error,
                )  # fmt: skip

    async def _lead(self, cluster: Cluster) -> None:
        self._has_worked = False
        settings = settings_for({**self._given, **OWN_SETTINGS}, transactional_id=self._topic)
        async with _closing(AsyncProducer.of(settings)) as producer:
            await producer.begin()  # fences whoever led before
            control = ControlReader(cluster, self._control_topic)
            await control.catch_up()
            state = control.state
            state.positions = await valid_positions(cluster, self._topic, state.positions)
            await producer.send(self._control_topic, state.positions.write(), key=POSITIONS, partition=0)
            await producer.commit()
            reader = StepReader(cluster, self._group_id)
            logger.info("group %s: this worker forwards scheduled records", self._group_id)
            try:
                while True:
                    is_more = await self._round(cluster, producer, control, reader)
                    self._has_worked, self._fenced_early, self._trouble = True, 0, ""
                    self._patience_ms = OVERDUE_MS
                    if not is_more:
                        wait_s = (self.next_ms - self._now_ms()) / 1000
                        await asyncio.sleep(min(LOOK_S, max(LOOK_S_MIN, wait_s)))
            finally:
                self._looked_ms = None

    async def _round(
        self, cluster: Cluster, producer: AsyncProducer, control: ControlReader, reader: StepReader
    ) -> bool:
        """Moves what is due, as much as one transaction takes. True when there may be more."""
        state = control.state
        positions, fired = state.positions, dict(state.fired)
        now_ms = self._now_ms()  # before we look: what was canceled in time is then seen in time
        await cluster.refresh([self._topic, self._control_topic])  # a topic may have been created again
        ends = await reader.find_ends()
        await control.catch_up(ends[self._control_topic, 0])
        positions = await reader.valid(positions, ends)
        state.positions, state.fired = positions, fired  # ours are newer than what can be read of them yet
        plan = ForwardPlan(now_ms, positions.topic_id, list(positions.offsets))
        await reader.gather(ends, plan)
        plan.fire(self._periodic, state.fired)
        if not plan.is_full:  # else records that were canceled may still be there
            plan.forgotten = [id for id, at_ms in state.canceled.items() if at_ms + CANCELED_MS < now_ms]
        if not plan.is_empty:
            await self._mover.carry_out(cluster, producer, plan, state.canceled)
            self._untrimmed += len(plan.due)
            state.fired.update(plan.fired)
            for id in plan.forgotten:
                state.canceled.pop(id, None)
            await self._trim(plan)
        state.positions = plan.noted
        self._ends = ends
        moments = [*reader.next_ms(plan), *self._next_periods(state.fired, now_ms)]
        self.next_ms = min(moments, default=now_ms + 86_400_000)
        self._looked_ms = now_ms
        return plan.is_full

    async def _trim(self, plan: ForwardPlan) -> None:
        """Deletes what has been moved."""
        if self._untrimmed < TRIM_MOVES and plan.now_ms - self._trimmed_ms < TRIM_MS:
            return
        self._untrimmed, self._trimmed_ms = 0, plan.now_ms
        before = {(self._topic, step): offset for step, offset in enumerate(plan.positions) if offset}
        with contextlib.suppress(KafkaError):  # without the right to, the topic keeps what has been moved
            async with AsyncAdmin(ClientSettings.parse(self._given)) as admin:
                await admin.delete_records(before)

    def _next_periods(self, fired: Mapping[str, int], now_ms: int) -> list[int]:
        moments = (each.schedule.after(fired.get(each.topic, now_ms)) for each in self._periodic)
        return [moment_ms for moment_ms in moments if moment_ms is not None]

    async def _stand_by(self, cluster: Cluster) -> None:
        """Returns when the leader is gone, or does not have a periodic task of this worker: it may be that of another
        program with this group, or of another version."""
        control = ControlReader(cluster, self._control_topic)
        changed_ms, position = self._now_ms(), None
        known_ms = changed_ms
        while True:
            reader = StepReader(cluster, self._group_id)
            ends = await reader.find_ends()
            await control.catch_up(ends[self._control_topic, 0])
            now_ms = self._now_ms()
            if control.position != position:
                position, changed_ms = control.position, now_ms
            elif now_ms - changed_ms >= self._patience_ms and await self._is_overdue(
                cluster, control, reader, ends, now_ms
            ):
                return
            fired = control.state.fired
            if self._knows_all(fired, now_ms):
                known_ms = now_ms
            if now_ms - known_ms >= self._patience_ms or self._has_overdue_period(fired, now_ms):
                return
            await asyncio.sleep(STAND_BY_S)

    def _knows_all(self, fired: Mapping[str, int], now_ms: int) -> bool:
        """The group has this worker's periodic tasks. A leader that has them writes them down in its first round."""
        return all(periodic.last_ms(fired, now_ms) is not None for periodic in self._periodic)

    def _has_overdue_period(self, fired: Mapping[str, int], now_ms: int) -> bool:
        plan = ForwardPlan(now_ms - self._patience_ms, ZERO_UUID, [])
        plan.fire(self._periodic, fired)
        return bool(plan.sent)

    async def _is_overdue(
        self, cluster: Cluster, control: ControlReader, reader: StepReader, ends: Ends, now_ms: int
    ) -> bool:
        positions = await valid_positions(cluster, self._topic, control.state.positions)
        plan = ForwardPlan(now_ms - OVERDUE_MS, positions.topic_id, list(positions.offsets))
        await reader.gather(ends, plan)
        return bool(plan.due)


def _is_fenced(error: BaseException) -> bool:
    """A transaction that has failed says why by its cause."""
    return isinstance(error, FENCED) or isinstance(error.__cause__, FENCED)


@contextlib.asynccontextmanager
async def _closing(producer: AsyncProducer) -> AsyncIterator[AsyncProducer]:
    try:
        await producer.start()
        yield producer
    finally:
        await producer.close(CLOSE_S)
