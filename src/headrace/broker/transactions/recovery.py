"""What a power cut may leave: records of an open transaction whose journal record was lost.

A producer of transaction.version 2 adds a partition by writing to it, and the journal record of that addition
may reach the disk after the records themselves. Nothing that was answered depends on it (the answer waits for
both), but left alone such records would hold back readers of committed data for ever. One node sees
everything, so it can tell at start: where the transactional id still stands at the epoch of the open records,
the partition is put back into its transaction; where nothing claims them, they are aborted. So are the first records
of a transaction where the journal has lost that the one before it is complete. With headrace.flush=os the journal may
have lost more: where it only knows an epoch before that of the open records, its markers would be refused, and the
records are aborted, too.
"""

import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.transactions import machine
from headrace.broker.transactions.machine import BUMPS_EPOCH, TransactionMetadata
from headrace.broker.transactions.states import PREPARED
from headrace.wire.ids import TopicAndPartition

if TYPE_CHECKING:
    from headrace.broker.topics import Partition, Topics

logger = logging.getLogger("headrace.transactions")


class Open(NamedTuple):
    """An open transaction as a partition's log sees it."""

    partition: "Partition"
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    @property
    def place(self) -> TopicAndPartition:
        return self.partition.topic.name, self.partition.index


class Repair(NamedTuple):
    adopted: dict[str, TransactionMetadata]
    """Transactions that get partitions back, by transactional id: journal and keep them."""
    orphans: list[Open]
    """To be aborted."""


def open_transactions(topics: "Topics") -> Iterator[Open]:
    for topic in topics:
        for partition in topic.partitions:
            # Not by the stable offset: where all records of the transaction are deleted, it shows with the next one.
            for producer in partition.log.producer_states.views():
                if producer.transaction_start_offset >= 0:
                    epochs = producer.producer_epoch, producer.coordinator_epoch
                    yield Open(partition, producer.producer_id, *epochs)


def repair(transactions: Mapping[str, TransactionMetadata], found: Iterator[Open], *, now_ms: int) -> Repair:
    """Decides for every open transaction that no journal record names. Changes nothing."""
    by_producer = {transaction.producer_id: transaction for transaction in transactions.values()}
    result = Repair({}, [])
    for each in found:
        transaction = by_producer.get(each.producer_id)
        if (
            transaction is not None
            and each.place in transaction.partitions
            and each.producer_epoch <= _epoch_of_records(transaction)
        ):
            continue  # it ends with its transaction
        if (
            transaction is None
            or transaction.state in PREPARED
            or transaction.producer_epoch != each.producer_epoch
        ):
            result.orphans.append(each)
            continue
        adopted = machine.add(
            transaction,
            each.producer_id,
            each.producer_epoch,
            [each.place],
            client_version=BUMPS_EPOCH,
            now_ms=now_ms,
        )
        by_producer[each.producer_id] = result.adopted[adopted.transactional_id] = adopted
    return result


def _epoch_of_records(transaction: TransactionMetadata) -> int:
    """The latest epoch that its records may have. A decision bumps the producer's epoch: what has the new one belongs
    to the next transaction, and the decision must not end it.
    """
    is_bumped = transaction.state in PREPARED and transaction.client_version >= BUMPS_EPOCH
    return transaction.producer_epoch - 1 if is_bumped else transaction.producer_epoch
