"""The records that a worker holds: from their delivery until the broker has confirmed what became of them.

A record is settled exactly once, by `HeldRecords.settle`. What is settled in one turn of the event loop is committed
together. A record whose lock was lost is not held any more, and what comes of its run settles nothing.
"""

import asyncio
import contextlib
import logging
from collections.abc import Collection, Mapping

from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.errors import IllegalStateError, WakeupError
from headrace.wire.errors import KafkaError
from headrace.worker.group_facts import GroupFacts
from headrace.worker.held_job import HeldJob
from headrace.worker.metrics import TaskMetrics
from headrace.worker.progress import TaskProgress
from headrace.worker.sources import RecordSource

logger = logging.getLogger("headrace.worker")

COMMIT_S = 30.0
CONFIRM_S = 5.0


class HeldRecords:
    """Of one task."""

    def __init__(
        self, source: RecordSource, task: str, facts: GroupFacts, metrics: TaskMetrics, changes: TaskProgress
    ) -> None:
        self._source = source
        self._task = task
        self._facts = facts
        self._metrics = metrics
        self._changes = changes
        self._held: dict[Delivery, HeldJob] = {}
        self._unconfirmed: dict[tuple[int, int], str] = {}
        """Records whose acknowledgement was sent, and the counter that grows when the broker has confirmed it."""
        self._loop = asyncio.get_running_loop()
        self._commits_soon = False

    def __len__(self) -> int:
        return len(self._held)

    @property
    def held(self) -> Collection[HeldJob]:
        """From any thread."""
        return self._held.copy().values()

    @property
    def unconfirmed(self) -> int:
        """Records whose acknowledgement the broker has still to confirm."""
        return len(self._unconfirmed)

    def lock_deadlines(self) -> list[float]:
        """When the locks of the held records end, as `time.time()` counts."""
        return [delivery.lock_deadline for delivery in self._held]

    def add(self, held: HeldJob) -> None:
        self._metrics.received += 1
        self._held[held.delivery] = held

    def lost(self, delivery: Delivery) -> HeldJob | None:
        """Its lock has ended. None if it was settled before."""
        held = self._held.pop(delivery, None)
        if held is not None:
            self._metrics.lost += 1
        return held

    def settle(
        self, held: HeldJob, answer: AcknowledgeType, counter: str = "", reason: str | None = None
    ) -> None:
        """`counter` is the one of the metrics that grows when the broker has confirmed it."""
        self._held.pop(held.delivery, None)
        try:
            self._source.acknowledge(held.delivery, answer)
            if answer is AcknowledgeType.REJECT:
                held.delivery.reason = reason
            self._unconfirmed[held.partition, held.offset] = counter
        except IllegalStateError as error:
            # The function has settled it itself, or its lock has just ended.
            logger.warning("%s: %s could not be settled: %s", held.task, held, error)
        if not self._commits_soon:
            self._commits_soon = True
            self._loop.call_soon(self._commit)

    def release(self, held: HeldJob) -> None:
        if held.delivery_count >= self._facts.delivery_limit and not self._facts.broker_dead_letters:
            logger.error(
                "%s: %s is released with its last delivery (%d of %d): the broker archives it, without a dead letter",
                held.task, held, held.delivery_count, self._facts.delivery_limit,
            )  # fmt: skip
        self.settle(held, AcknowledgeType.RELEASE, "released")

    def _commit(self) -> None:
        """Once for all that was settled in one turn of the loop."""
        self._commits_soon = False
        with contextlib.suppress(IllegalStateError):  # closed in between; closing has sent it
            self._source.commit_async()

    def committed(self, offsets: Mapping[TopicPartition, set[int]], error: Exception | None) -> None:
        """The broker has confirmed these acknowledgements, or refused them."""
        self._changes.note()
        for where, each in offsets.items():
            for offset in each:
                counter = self._unconfirmed.pop((where.partition, offset), "")
                if counter and error is None:
                    self._metrics.count(counter)
        if error is None:
            return
        count = sum(len(each) for each in offsets.values())
        self._metrics.lost += count
        places = ", ".join(
            f"{where.topic}-{where.partition}@{min(each)}-{max(each)}" for where, each in offsets.items()
        )
        logger.warning(
            "%s: the acknowledgements of %d records failed, so they may run again (%s): %s",
            self._task, count, places, error,
        )  # fmt: skip

    async def finish(self) -> None:
        """Commits what was settled last, and waits for the broker, so that the last numbers are right."""
        while True:
            try:
                await self._source.commit_sync(timeout=COMMIT_S)  # refusals are told to `committed`
            except WakeupError:
                continue  # of a `stop` that found no poll to end: one for each
            except (KafkaError, TimeoutError) as error:
                logger.warning("%s: the last acknowledgements may be lost: %s", self._task, error)
            break
        await self._changes.until(lambda: not self._unconfirmed, CONFIRM_S)
