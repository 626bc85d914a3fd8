"""Moves records that are due from step to step of the ladder (`later.py`), and sends periodic tasks.

Theory of operation. One worker of a group leads. It moves everything that is due in one transaction, and writes in the
same transaction how far it has read each step: killed at any moment, it has moved a record and noted that, or neither.
Its transactional id is the group's, so a new leader fences the old one before it reads where that one was; two leaders
cannot both move a record. A worker leads when it starts, and the one before it stands by. Who stands by takes over when
something has been due for a while and the leader has written nothing, and when the leader does not send one of its own
periodic tasks: its period is over, or the group does not know it yet, because this worker was fenced before it could
write it down.

Memory does not grow with the number of waiting records: of each step, only the next records are read.
"""

import asyncio
import contextlib
import logging
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.base.backoff import backoff
from headrace.client.admin.aio import AsyncAdmin
from headrace.client.cluster import Cluster
from headrace.client.errors import (
    InvalidProducerEpochError,
    InvalidRecordError,
    InvalidTopicError,
    InvalidTransactionStateError,
    PolicyViolationError,
    ProducerFencedError,
    RecordTooLargeError,
    TopicAuthorizationError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.client.producing.aio import AsyncProducer
from headrace.client.settings import ClientSettings
from headrace.wire.enums import ConfigSource, OffsetSpec
from headrace.wire.errors import KafkaError
from headrace.wire.ids import uuid_text
from headrace.wire.message import ZERO_UUID
from headrace.wire.records import Record, read_records
from headrace.worker.bodies import Header
from headrace.worker.control import ControlReader, valid_positions
from headrace.worker.later import (
    CANCEL,
    EVERY,
    POSITIONS,
    STEPS,
    StepPositions,
    Waiting,
    control_topic,
    due_ms,
    foreign_headers,
    headers_for,
    later_topic,
    own_headers,
    step_of,
    waiting_of,
    write_moment,
)  # fmt: skip
from headrace.worker.outbox import settings_for

logger = logging.getLogger("headrace.worker")

ISOLATION = "share.isolation.level"
OWN_SETTINGS = {"linger.ms": 0, "acks": "all", "enable.idempotence": True}
"""Of the producer that moves records, whatever the queue's own sends with: transactions need the last two."""
MOVES_MAX, BYTES_MAX = 2_000, 16 * 1024 * 1024
"""Of one transaction. More would not fit into memory, or into the transaction's time."""
READ_BYTES = 256 * 1024
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
MISSING_MAX = 10_000
UNDELIVERABLE_MS = 300_000
"""How long a record waits whose topic did not take it."""
TRIM_MOVES, TRIM_MS = 10_000, 60_000
CANCELED_MS = 3_600_000
"""How long a cancellation is remembered after its record would have been due."""
FENCED = (ProducerFencedError, InvalidProducerEpochError, InvalidTransactionStateError)
"""What a leader hears when another one has fenced it: from a partition, or from the coordinator."""
TOPIC_REFUSALS = (UnknownTopicOrPartitionError, TopicAuthorizationError, InvalidTopicError)
REFUSALS = (*TOPIC_REFUSALS, RecordTooLargeError, InvalidRecordError, PolicyViolationError)
"""What is wrong with one record or its topic. Any other error concerns the whole transaction."""
CLOCK_BACK_MS = 600_000
"""A periodic task that was last sent so far ahead of now was sent by a wrong clock."""


class PeriodicSchedule(Protocol):
    def after(self, moment_ms: int) -> int | None: ...

    def latest(self, now_ms: int) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Periodic:
    """A task that is sent by the clock."""

    name: str
    topic: str
    """By which the group knows it: its name depends on how the program was started (`__main__`)."""
    schedule: PeriodicSchedule
    write: Callable[[int], tuple[bytes | None, tuple[Header, ...]]]
    """The value and the headers of the record for a moment."""


@dataclass(frozen=True, slots=True)
class _Due:
    step: int
    record: Record
    waiting: Waiting


@dataclass(slots=True)
class _Round:
    """What one transaction does."""

    now_ms: int
    topic_id: bytes
    positions: list[int]
    due: list[_Due] = field(default_factory=list)
    fired: dict[str, int] = field(default_factory=dict)
    sent: list[tuple[Periodic, int]] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    size: int = 0

    @property
    def noted(self) -> StepPositions:
        return StepPositions(self.topic_id, tuple(self.positions))

    @property
    def is_full(self) -> bool:
        return len(self.due) >= MOVES_MAX or self.size >= BYTES_MAX

    @property
    def is_empty(self) -> bool:
        return not (self.due or self.fired or self.forgotten)


class Forwarder:
    def __init__(
        self, given: Mapping[str, Any], group_id: str, periodic: Sequence[Periodic], now_ms: Callable[[], int]
    ) -> None:
        self.moved = 0
        """Records that this worker has moved on."""
        self._given = dict(given)
        self._group_id = group_id
        self._topic, self._control_topic = later_topic(group_id), control_topic(group_id)
        self._periodic = periodic
        self._now_ms = now_ms
        self._heads: list[int | None] = [None] * STEPS
        """When the first record of each step is due, where that is known."""
        self._ends: dict[tuple[str, int], int] = {}
        self.next_ms = 0
        """When something is due next, as far as is known."""
        self._looked_ms: int | None = None
        """When its last round began. None while it does not lead."""
        self._refused: set[tuple[int, int]] = set()
        self._missing: set[str] = set()
        """Topics that did not exist when a record was to be sent there."""
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
            self._heads = [None] * STEPS
            await producer.send(self._control_topic, state.positions.write(), key=POSITIONS, partition=0)
            await producer.commit()
            logger.info("group %s: this worker forwards scheduled records", self._group_id)
            try:
                while True:
                    is_more = await self._round(cluster, producer, control)
                    self._has_worked, self._fenced_early, self._trouble = True, 0, ""
                    self._patience_ms = OVERDUE_MS
                    if not is_more:
                        wait_s = (self.next_ms - self._now_ms()) / 1000
                        await asyncio.sleep(min(LOOK_S, max(LOOK_S_MIN, wait_s)))
            finally:
                self._looked_ms = None

    async def _round(self, cluster: Cluster, producer: AsyncProducer, control: ControlReader) -> bool:
        """Moves what is due, as much as one transaction takes. True when there may be more."""
        state = control.state
        positions, fired = state.positions, dict(state.fired)
        now_ms = self._now_ms()  # before we look: what was canceled in time is then seen in time
        await cluster.refresh([self._topic, self._control_topic])  # a topic may have been created again
        ends = await self._find_ends(cluster)
        await control.catch_up(ends[self._control_topic, 0])
        if not self._is_valid(cluster, positions, ends):
            positions = await valid_positions(cluster, self._topic, positions)
            self._heads = [None] * STEPS
        state.positions, state.fired = positions, fired  # ours are newer than what can be read of them yet
        plan = _Round(now_ms, positions.topic_id, list(positions.offsets))
        for step in range(STEPS):
            await self._gather(cluster, step, ends[self._topic, step], plan)
        self._plan_firings(state.fired, plan)
        if not plan.is_full:  # else records that were canceled may still be there
            plan.forgotten = [id for id, at_ms in state.canceled.items() if at_ms + CANCELED_MS < now_ms]
        if not plan.is_empty:
            await self._refuse_missing(cluster, plan)
            await self._carry_out(producer, plan, state.canceled)
            state.fired.update(plan.fired)
            for id in plan.forgotten:
                state.canceled.pop(id, None)
            await self._trim(plan)
        state.positions = plan.noted
        self._ends = ends
        self.next_ms = self._find_next(state.fired, plan)
        self._looked_ms = now_ms
        return plan.is_full

    async def _find_ends(self, cluster: Cluster) -> dict[tuple[str, int], int]:
        places = {(self._topic, step): OffsetSpec.LATEST for step in range(STEPS)} | {
            (self._control_topic, 0): OffsetSpec.LATEST
        }
        return await list_offsets(cluster, places, committed=True)

    def _is_valid(
        self, cluster: Cluster, positions: StepPositions, ends: Mapping[tuple[str, int], int]
    ) -> bool:
        known = cluster.topic(self._topic)
        return (
            known is not None
            and known.topic_id == positions.topic_id
            and all(offset <= ends[self._topic, step] for step, offset in enumerate(positions.offsets))
        )

    async def _gather(self, cluster: Cluster, step: int, end: int, plan: _Round) -> None:
        """The records of a step that are due. Its position is then that of the first that is not."""
        position, head_ms = plan.positions[step], self._heads[step]
        if position >= end or (head_ms is not None and head_ms > plan.now_ms):
            return
        self._heads[step] = None
        reading = read_range(
            cluster, self._topic, step, position, end - 1,
            committed=True, max_bytes=READ_BYTES, topic_id=uuid_text(plan.topic_id),
        )  # fmt: skip
        async with aclosing(reading) as batches:
            async for _, batch in batches:
                for record in read_records(batch):
                    if record.offset >= position and not self._take(step, record, plan):
                        return
        plan.positions[step] = end  # whatever is left there are marks of transactions

    def _take(self, step: int, record: Record, plan: _Round) -> bool:
        waiting = waiting_of(record.headers)
        if waiting is None or waiting.topic in (self._topic, self._control_topic):
            logger.error(
                "%s-%d@%d is not a scheduled record and is skipped", self._topic, step, record.offset
            )
            return True
        due = due_ms(step, record.timestamp, waiting.at_ms, plan.now_ms)
        if due > plan.now_ms or plan.is_full:
            plan.positions[step] = record.offset
            self._heads[step] = due
            return False
        plan.due.append(_Due(step, record, waiting))
        plan.size += len(record.key or b"") + len(record.value or b"")
        return True

    def _plan_firings(self, fired: Mapping[str, int], plan: _Round) -> None:
        for periodic in self._periodic:
            last_ms = _last_ms(fired, periodic, plan.now_ms)
            if last_ms is None:  # new: its first period begins now
                plan.fired[periodic.topic] = plan.now_ms
                continue
            following = periodic.schedule.after(last_ms)
            if following is not None and following <= plan.now_ms:
                moment = periodic.schedule.latest(plan.now_ms)
                assert moment is not None
                plan.fired[periodic.topic] = moment
                plan.sent.append((periodic, moment))

    async def _refuse_missing(self, cluster: Cluster, plan: _Round) -> None:
        """A producer waits some seconds for a topic that does not exist, and everything behind it with it. That is to
        happen once: what was missing is looked up first."""
        due = [each for each in plan.due if each.waiting.at_ms <= plan.now_ms]
        doubtful = self._missing & {each.waiting.topic for each in due}
        if not doubtful:
            return
        await cluster.refresh(doubtful)
        self._missing -= {name for name in doubtful if cluster.topic(name) is not None}
        cluster.forget_topics(doubtful)
        for each in due:
            if each.waiting.topic in self._missing:
                self._log_refused(each, "it does not exist")
                self._refused.add((each.step, each.record.offset))

    async def _carry_out(self, producer: AsyncProducer, plan: _Round, canceled: Mapping[str, int]) -> None:
        plan.forgotten += [each.waiting.id for each in plan.due if each.waiting.id in canceled]
        due = [each for each in plan.due if each.waiting.id not in canceled]
        while True:
            await producer.begin()
            sending = await self._send_all(producer, due, plan)
            results = await asyncio.gather(*(future for _, future in sending), return_exceptions=True)
            refused = [
                (each, result)
                for (each, _), result in zip(sending, results, strict=True)
                if isinstance(result, REFUSALS) and not self._is_refused(each)
            ]
            if not refused:
                await producer.commit()  # which raises what else has failed
                break
            await producer.abort()
            self._refuse(refused, due, plan)
        self.moved += len(plan.due)
        self._untrimmed += len(plan.due)
        self._refused.clear()

    async def _send_all(
        self, producer: AsyncProducer, due: Sequence[_Due], plan: _Round
    ) -> "list[tuple[_Due | Periodic, asyncio.Future[Any]]]":
        """All that the transaction has to say, or what came before the first failure."""
        sending: list[tuple[_Due | Periodic, asyncio.Future[Any]]] = []
        with contextlib.suppress(TransactionAbortableError):  # one of them has failed; its future says why
            for each in due:
                sending.append((each, _watched(await self._send_on(producer, each, plan))))
            for periodic, moment_ms in plan.sent:
                value, headers = periodic.write(moment_ms)
                sending.append(
                    (periodic, _watched(await producer.send_soon(periodic.topic, value, headers=headers)))
                )
            await self._note(producer, plan)
        return sending

    def _is_refused(self, each: _Due | Periodic) -> bool:
        return isinstance(each, _Due) and (each.step, each.record.offset) in self._refused

    async def _send_on(self, producer: AsyncProducer, each: _Due, plan: _Round) -> "asyncio.Future[Any]":
        record, waiting = each.record, each.waiting
        left_ms = waiting.at_ms - plan.now_ms
        if (each.step, record.offset) in self._refused:
            waiting = Waiting(waiting.id, plan.now_ms + UNDELIVERABLE_MS, waiting.topic)
            left_ms = UNDELIVERABLE_MS
        if left_ms <= 0:
            return await producer.send_soon(
                waiting.topic, record.value, key=record.key, headers=own_headers(record.headers)
            )
        return await producer.send_soon(
            self._topic,
            record.value,
            key=record.key,
            headers=headers_for(waiting, foreign_headers(record.headers)),
            partition=step_of(left_ms),
            timestamp=plan.now_ms,
        )

    async def _note(self, producer: AsyncProducer, plan: _Round) -> None:
        """In the same transaction: how far we are, and what was sent by the clock."""
        for topic, moment_ms in plan.fired.items():
            await self._note_one(producer, EVERY + topic.encode(), write_moment(moment_ms))
        for id in plan.forgotten:
            await self._note_one(producer, CANCEL + id.encode(), None)
        await self._note_one(producer, POSITIONS, plan.noted.write())

    async def _note_one(self, producer: AsyncProducer, key: bytes, value: bytes | None) -> None:
        _watched(await producer.send_soon(self._control_topic, value, key=key, partition=0))

    def _refuse(
        self, refused: "Sequence[tuple[_Due | Periodic, BaseException]]", due: Sequence[_Due], plan: _Round
    ) -> None:
        """Their topics do not take them. They are tried again later, and do not hold up the others."""
        for each, error in refused:
            if isinstance(each, Periodic):
                plan.sent = [sent for sent in plan.sent if sent[0] is not each]
                logger.error(
                    "periodic task %s could not be sent; this period is skipped: %s", each.name, error
                )
                continue
            self._refused.add((each.step, each.record.offset))
            self._log_refused(each, error)
            if isinstance(error, UnknownTopicOrPartitionError) and len(self._missing) < MISSING_MAX:
                self._missing.add(each.waiting.topic)
            if isinstance(error, TOPIC_REFUSALS):  # which the others for this topic would find out one by one
                self._refused |= {
                    (other.step, other.record.offset)
                    for other in due
                    if other.waiting.topic == each.waiting.topic and other.waiting.at_ms <= plan.now_ms
                }

    def _log_refused(self, each: _Due, why: object) -> None:
        logger.error(
            "scheduled record %s could not be sent to topic %s, retrying in %d s: %s",
            each.waiting.id, each.waiting.topic, UNDELIVERABLE_MS // 1000, why,
        )  # fmt: skip

    async def _trim(self, plan: _Round) -> None:
        """Deletes what has been moved."""
        if self._untrimmed < TRIM_MOVES and plan.now_ms - self._trimmed_ms < TRIM_MS:
            return
        self._untrimmed, self._trimmed_ms = 0, plan.now_ms
        before = {(self._topic, step): offset for step, offset in enumerate(plan.positions) if offset}
        with contextlib.suppress(KafkaError):  # without the right to, the topic keeps what has been moved
            async with AsyncAdmin(ClientSettings.parse(self._given)) as admin:
                await admin.delete_records(before)

    def _find_next(self, fired: Mapping[str, int], plan: _Round) -> int:
        """When something is due next, as far as is known."""
        moments = [head for head in self._heads if head is not None]
        for each in plan.due:
            left_ms = each.waiting.at_ms - plan.now_ms
            if left_ms > 0:
                moments.append(due_ms(step_of(left_ms), plan.now_ms, each.waiting.at_ms, plan.now_ms))
        for periodic in self._periodic:
            following = periodic.schedule.after(fired.get(periodic.topic, plan.now_ms))
            if following is not None:
                moments.append(following)
        return min(moments, default=plan.now_ms + 86_400_000)

    async def _stand_by(self, cluster: Cluster) -> None:
        """Returns when the leader is gone, or does not have a periodic task of this worker: it may be that of another
        program with this group, or of another version."""
        control = ControlReader(cluster, self._control_topic)
        changed_ms, position = self._now_ms(), None
        known_ms = changed_ms
        while True:
            ends = await self._find_ends(cluster)
            await control.catch_up(ends[self._control_topic, 0])
            now_ms = self._now_ms()
            if control.position != position:
                position, changed_ms = control.position, now_ms
            elif now_ms - changed_ms >= self._patience_ms and await self._is_overdue(
                cluster, control, ends, now_ms
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
        return all(_last_ms(fired, periodic, now_ms) is not None for periodic in self._periodic)

    def _has_overdue_period(self, fired: Mapping[str, int], now_ms: int) -> bool:
        plan = _Round(now_ms - self._patience_ms, ZERO_UUID, [])
        self._plan_firings(fired, plan)
        return bool(plan.sent)

    async def _is_overdue(
        self, cluster: Cluster, control: ControlReader, ends: Mapping[tuple[str, int], int], now_ms: int
    ) -> bool:
        positions = await valid_positions(cluster, self._topic, control.state.positions)
        plan = _Round(now_ms - OVERDUE_MS, positions.topic_id, list(positions.offsets))
        for step in range(STEPS):
            self._heads[step] = None
            await self._gather(cluster, step, ends[self._topic, step], plan)
            if plan.due:
                return True
        return False


def _last_ms(fired: Mapping[str, int], periodic: Periodic, now_ms: int) -> int | None:
    """When it was last sent. None for a task that is new to the group, or that was sent by a wrong clock."""
    last_ms = fired.get(periodic.topic)
    return None if last_ms is None or last_ms > now_ms + CLOCK_BACK_MS else last_ms


def _is_fenced(error: BaseException) -> bool:
    """A transaction that has failed says why by its cause."""
    return isinstance(error, FENCED) or isinstance(error.__cause__, FENCED)


def _watched(sent: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
    """Nobody may wait for it any more when it fails. The commit fails as well then, and says why."""
    sent.add_done_callback(lambda done: done.cancelled() or done.exception())
    return sent


@contextlib.asynccontextmanager
async def _closing(producer: AsyncProducer) -> AsyncIterator[AsyncProducer]:
    try:
        await producer.start()
        yield producer
    finally:
        await producer.close(CLOSE_S)
