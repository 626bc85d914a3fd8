"""At start: committed offsets that a crash has left ahead of their logs are set right before anybody is served.

An offset is synced before its commit is answered; records that were produced with acks=1 or acks=0 are not. After a
power cut a committed offset may therefore lie beyond the end of its log, and new records will take the offsets below
it: the group would never read them. Such an offset is moved back to the log's end. Offsets of partitions that do not
exist, or that belonged to an earlier topic of the same name, are removed. The same holds for offsets that wait for
the marker of their transaction: they are corrected inside it.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from headrace.broker.groups.offsets import Correction, OffsetAndMetadata, Transaction
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.broker.topics import CONSUMER_OFFSETS
from headrace.wire.messages.offset_commit_key import OffsetCommitKey

if TYPE_CHECKING:
    from headrace.broker.groups.coordinator import GroupCoordinator

logger = logging.getLogger("headrace.groups")

ENTRIES_MAX = 500
"""In one batch of the journal."""
PLACES_SHOWN = 5
"""In the line that says what was corrected."""


class OffsetMending:
    def __init__(self, coordinator: "GroupCoordinator") -> None:
        self._coordinator = coordinator
        self._core = coordinator.core

    def mend(self) -> None:
        """Corrects all offsets, durable when this returns. KafkaError if the journal refuses: nobody may be served."""
        coordinator = self._coordinator
        changed: dict[int, None] = {}
        for group_id, corrections in [*coordinator.state.offsets.corrections(self._corrected)]:
            logger.warning(
                "group %s: committed offsets beyond the end of the log are corrected: %s",
                group_id,
                _summary(corrections),
            )
            self._write(group_id, corrections)
            changed[coordinator.partition_of(group_id)] = None
        if changed:
            partitions = self._core.topics.internal(CONSUMER_OFFSETS).partitions
            self._core.logs.sync([partitions[index].log for index in changed])

    def _corrected(self, name: str, index: int, committed: OffsetAndMetadata) -> OffsetAndMetadata | None:
        topic = self._core.topics.get(name)
        if topic is None or index >= len(topic.partitions) or not committed.is_of(topic.id):
            return None
        if self._core.logs.was_clean:
            return committed  # where it lies now, it lay before the stop too: its committer wanted it there
        log = topic.partitions[index].log
        if log.damage is not None or committed.offset <= log.end_offset:
            return committed
        return replace(committed, offset=log.end_offset)

    def _write(self, group_id: str, corrections: Sequence[Correction]) -> None:
        for transaction, run in groupby(corrections, key=lambda correction: correction.transaction):
            entries = [correction.entry for correction in run]
            producer = self._producer(transaction) if transaction is not None else None
            for first in range(0, len(entries), ENTRIES_MAX):
                part = entries[first : first + ENTRIES_MAX]
                self._coordinator.journal(group_id, part, producer=producer)

    def _producer(self, transaction: Transaction) -> ProducerIdAndEpoch:
        """The producer of an open transaction, with the epoch that the journal's partition knows it by."""
        partition, producer_id = transaction
        log = self._core.topics.internal(CONSUMER_OFFSETS).partitions[partition].log
        epochs = {producer.producer_id: producer.producer_epoch for producer in log.producer_states.views()}
        return ProducerIdAndEpoch(producer_id, epochs[producer_id])


def _summary(corrections: Sequence[Correction]) -> str:
    keys = [correction.entry.key for correction in corrections]
    places = sorted({f"{key.topic}-{key.partition}" for key in keys if isinstance(key, OffsetCommitKey)})
    more = len(places) - PLACES_SHOWN
    return ", ".join(places[:PLACES_SHOWN]) + (f" and {more} more" if more > 0 else "")
