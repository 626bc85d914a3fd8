"""Carries out a plan of the forwarder (`forward_plan.py`) in one transaction, with a note of how far each step is read.

What is wrong with one record or its topic does not hold up the others: the transaction is aborted and begun again, and
the record waits for some minutes.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.client.cluster import Cluster
from headrace.client.errors import (
    InvalidRecordError,
    InvalidTopicError,
    PolicyViolationError,
    RecordTooLargeError,
    TopicAuthorizationError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from headrace.client.producing.aio import AsyncProducer
from headrace.worker.forward_plan import DueRecord, ForwardPlan
from headrace.worker.later import (
    CANCEL,
    EVERY,
    POSITIONS,
    Waiting,
    control_topic,
    foreign_headers,
    headers_for,
    later_topic,
    own_headers,
    step_of,
    write_moment,
)
from headrace.worker.periodic import Periodic

logger = logging.getLogger("headrace.worker")

MISSING_MAX = 10_000
UNDELIVERABLE_MS = 300_000
"""How long a record waits whose topic did not take it."""
TOPIC_REFUSALS = (UnknownTopicOrPartitionError, TopicAuthorizationError, InvalidTopicError)
REFUSALS = (*TOPIC_REFUSALS, RecordTooLargeError, InvalidRecordError, PolicyViolationError)
"""What is wrong with one record or its topic. Any other error concerns the whole transaction."""


class RecordMover:
    """Of one group."""

    def __init__(self, group_id: str) -> None:
        self._topic, self._control_topic = later_topic(group_id), control_topic(group_id)
        self._refused: set[tuple[int, int]] = set()
        self._missing: set[str] = set()
        """Topics that did not exist when a record was to be sent there."""

    async def carry_out(
        self, cluster: Cluster, producer: AsyncProducer, plan: ForwardPlan, canceled: Mapping[str, int]
    ) -> None:
        """Records that are canceled are left out."""
        await self._refuse_missing(cluster, plan)
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
        self._refused.clear()

    async def _refuse_missing(self, cluster: Cluster, plan: ForwardPlan) -> None:
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
                self._refused.add(each.place)

    async def _send_all(
        self, producer: AsyncProducer, due: Sequence[DueRecord], plan: ForwardPlan
    ) -> "list[tuple[DueRecord | Periodic, asyncio.Future[Any]]]":
        """All that the transaction has to say, or what came before the first failure."""
        sending: list[tuple[DueRecord | Periodic, asyncio.Future[Any]]] = []
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

    def _is_refused(self, each: DueRecord | Periodic) -> bool:
        return isinstance(each, DueRecord) and each.place in self._refused

    async def _send_on(
        self, producer: AsyncProducer, each: DueRecord, plan: ForwardPlan
    ) -> "asyncio.Future[Any]":
        record, waiting = each.record, each.waiting
        left_ms = waiting.at_ms - plan.now_ms
        if each.place in self._refused:
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

    async def _note(self, producer: AsyncProducer, plan: ForwardPlan) -> None:
        """In the same transaction: how far we are, and what was sent by the clock."""
        for topic, moment_ms in plan.fired.items():
            await self._note_one(producer, EVERY + topic.encode(), write_moment(moment_ms))
        for id in plan.forgotten:
            await self._note_one(producer, CANCEL + id.encode(), None)
        await self._note_one(producer, POSITIONS, plan.noted.write())

    async def _note_one(self, producer: AsyncProducer, key: bytes, value: bytes | None) -> None:
        _watched(await producer.send_soon(self._control_topic, value, key=key, partition=0))

    def _refuse(
        self,
        refused: "Sequence[tuple[DueRecord | Periodic, BaseException]]",
        due: Sequence[DueRecord],
        plan: ForwardPlan,
    ) -> None:
        """Their topics do not take them. They are tried again later, and do not hold up the others."""
        for each, error in refused:
            if isinstance(each, Periodic):
                plan.sent = [sent for sent in plan.sent if sent[0] is not each]
                logger.error(
                    "periodic task %s could not be sent; this period is skipped: %s", each.name, error
                )
                continue
            self._refused.add(each.place)
            self._log_refused(each, error)
            if isinstance(error, UnknownTopicOrPartitionError) and len(self._missing) < MISSING_MAX:
                self._missing.add(each.waiting.topic)
            if isinstance(error, TOPIC_REFUSALS):  # which the others for this topic would find out one by one
                self._refused |= {
                    other.place
                    for other in due
                    if other.waiting.topic == each.waiting.topic and other.waiting.at_ms <= plan.now_ms
                }

    def _log_refused(self, each: DueRecord, why: object) -> None:
        logger.error(
            "scheduled record %s could not be sent to topic %s, retrying in %d s: %s",
            each.waiting.id, each.waiting.topic, UNDELIVERABLE_MS // 1000, why,
        )  # fmt: skip


def _watched(sent: "asyncio.Future[Any]") -> "asyncio.Future[Any]":
    """Nobody may wait for it any more when it fails. The commit fails as well then, and says why."""
    sent.add_done_callback(lambda done: done.cancelled() or done.exception())
    return sent
