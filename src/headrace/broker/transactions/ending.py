"""From a durable decision to its end: a marker in every partition of the transaction.

The decision (PREPARE_COMMIT or PREPARE_ABORT) is on disk before the first marker is written, so a crash in
the middle repeats markers and never contradicts one. Markers that a disk refuses are tried again until they
are written: the decision cannot be taken back, and readers of the partition wait for it. The markers of a
transaction in many partitions are written over several turns of the loop.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.later import Later
from headrace.broker.slices import Steps
from headrace.broker.transactions.machine import TransactionMetadata
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Partition
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger("headrace.transactions")

OFFSETS_TOPIC = "__consumer_offsets"
RETRY_MS = 500
DAMAGED_RETRY_MS_MAX = 60_000
"""A damaged partition stays as it is until it is repaired or its topic is deleted: it is asked ever more rarely."""
MARKERS_PER_STEP = 25
"""Markers that are written in one turn of the loop."""
FIRST_WRITE_COST = 3
"""The first write to a partition, or after a crash, makes files: it counts for so many."""
_PAST = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
"""The partition has seen a later producer or coordinator: whatever this marker would end is over there."""


def partition_at(core: "BrokerCore", place: TopicAndPartition) -> "Partition | None":
    name, index = place
    topic = core.topics.get(name)
    return topic.partitions[index] if topic is not None and 0 <= index < len(topic.partitions) else None


def write_marker(
    core: "BrokerCore",
    partition: "Partition",
    *,
    producer_id: int,
    producer_epoch: int,
    commit: bool,
    coordinator_epoch: int,
) -> None:
    """Ends the producer's transaction in one partition, at once for every reader; wakes those who wait for it."""
    partition.log.append_marker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        now_ms=core.clock.wall_ms(),
    )
    core.appended(partition)
    if partition.topic.name == OFFSETS_TOPIC:
        core.groups.complete_transaction(producer_id, partition.index, commit)


class Ending:
    """One prepared transaction on its way to complete."""

    def __init__(
        self,
        core: "BrokerCore",
        prepared: TransactionMetadata,
        *,
        coordinator_epoch: int,
        complete: Callable[[TransactionMetadata], Later[None]],
    ) -> None:
        self.prepared = prepared
        self.remaining: set[TopicAndPartition] = set(prepared.partitions)
        self.answerable: Later[None] = Later()
        """The client may be told: every marker is durable, or the decision is and the disk refuses the rest for now."""
        self._core = core
        self._coordinator_epoch = coordinator_epoch
        self._complete = complete
        self._logs: list[PartitionLog] = []
        self._is_completed = False
        self._damaged_retry_ms = RETRY_MS
        self._said = ""

    def leave(self, topic: str) -> bool:
        """The topic is deleted: no marker for it from now on. True if the completion has been journalled."""
        self.remaining = {place for place in self.remaining if place[0] != topic}
        return self._is_completed

    def proceed(self) -> None:
        """Called once the decision is durable, and again after each refusal.

        A partition that refuses its marker, perhaps for good because it is damaged, does not keep the others from
        theirs.
        """
        self._core.slices.run(self._steps())

    def _steps(self) -> Steps:
        refusal: KafkaError | None = None
        is_damaged = True
        spent = 0
        for place in sorted(self.remaining):
            cost = self._cost(place)
            if spent and spent + cost > MARKERS_PER_STEP:
                yield
                spent = 0
            spent += cost
            if place not in self.remaining:
                continue  # its topic was deleted since the last step
            try:
                self._mark(place)
            except KafkaError as error:
                refusal = refusal or error
                is_damaged = is_damaged and self._is_damaged(place)
            else:
                self.remaining.discard(place)
        if refusal is not None:
            self._retry(refusal, is_damaged=is_damaged)
            return
        self._core.durable(self._logs).then(lambda _: self._finish())

    def _cost(self, place: TopicAndPartition) -> int:
        partition = partition_at(self._core, place)
        if partition is None:
            return 1
        log = partition.opened_log
        return FIRST_WRITE_COST if log is None or log.makes_files else 1

    def _mark(self, place: TopicAndPartition) -> None:
        partition = partition_at(self._core, place)
        if partition is None:
            return  # deleted while the transaction was open: nobody can read it any more
        try:
            write_marker(
                self._core,
                partition,
                producer_id=self.prepared.producer_id,
                producer_epoch=self.prepared.producer_epoch,
                commit=self.prepared.is_commit,
                coordinator_epoch=self._coordinator_epoch,
            )
        except KafkaError as error:
            if error.code not in _PAST:
                raise
            logger.warning("%s: no marker for %s-%d: %s", self.prepared.transactional_id, *place, error)
            return
        self._logs.append(partition.log)

    def _finish(self) -> None:
        try:
            complete = self._complete(self.prepared)
        except KafkaError as error:
            self._retry(error)
            return
        self._is_completed = True
        complete.then(self.answerable.resolve)

    def _is_damaged(self, place: TopicAndPartition) -> bool:
        partition = partition_at(self._core, place)
        return partition is not None and partition.log.damage is not None

    def _retry(self, error: KafkaError, *, is_damaged: bool = False) -> None:
        if str(error) != self._said:  # once for each reason
            self._said = str(error)
            logger.error("%s: its end is delayed: %s", self.prepared.transactional_id, error)
        delay_ms = RETRY_MS
        if is_damaged:
            delay_ms = self._damaged_retry_ms
            self._damaged_retry_ms = min(2 * delay_ms, DAMAGED_RETRY_MS_MAX)
        self._core.timers.at(self._core.clock.monotonic_ms() + delay_ms, self.proceed)
        self.answerable.resolve(None)
