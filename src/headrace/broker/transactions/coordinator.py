"""The transaction coordinator's shell: journals what the rules decide, keeps it, and sees every decision
through.

Theory of operation. For each transactional id there is one `TransactionMetadata` value. A request is decided by a
rule of machine.py; the new value is appended to `__transaction_state` and, as the append is visible at once,
kept; the answer leaves when the append is durable. An end goes further: once the decision is durable the
markers are written (ending.py), once those are durable the completion is journalled, and only when that is
durable too does the transaction count as complete. Until then every request for the id is told
CONCURRENT_TRANSACTIONS. So when a crash leaves a prepared transaction in the journal, no record of a later
one can exist, and `load` may write all its markers again.

Deadlines: an open transaction is aborted when its producer's timeout has passed; an id that was not used for
`transactional.id.expiration.ms` is forgotten.
"""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.errors import journal_error
from headrace.broker.journals import current_records
from headrace.broker.later import Later, resolved
from headrace.broker.timers import Timer
from headrace.broker.transactions import journal, machine, recovery
from headrace.broker.transactions.ending import RETRY_MS, Ending, partition_at, write_marker
from headrace.broker.transactions.journal import TOPIC, UnknownRecord
from headrace.broker.transactions.machine import BUMPS_EPOCH, TransactionMetadata
from headrace.broker.transactions.producer_ids import ProducerIds
from headrace.broker.transactions.states import PREPARED, TransactionState
from headrace.broker.transactions.sweep import Sweep
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition, partition_for

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger("headrace.transactions")


class ProducerIdentity(NamedTuple):
    producer_id: int
    producer_epoch: int


class TransactionCoordinator:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._producer_ids = ProducerIds(core.allocate_producer_ids)
        self._transactions: dict[str, TransactionMetadata] = {}
        self._endings: dict[str, Ending] = {}
        self._deadlines: dict[str, Timer] = {}
        self._sweep = Sweep(core, self._transactions, self._partition_of, self._append)
        core.topics.on_deleted.append(self._note_topic_deleted)

    def load(self) -> None:
        """Reads the journal, finishes what a crash interrupted, and starts the clocks. Groups must be loaded before."""
        for partition, batches in self._core.journals.read(TOPIC):
            for record in current_records(batches):
                try:
                    journal.replay(self._transactions, record.key, record.value)
                except UnknownRecord as unknown:
                    logger.warning("%s-%d: skipped: %s", TOPIC, partition, unknown)
        if not self._core.logs.was_clean:
            self._repair()
        self._leave_lost_partitions()
        for transaction in list(self._transactions.values()):
            self._watch(transaction)
            if transaction.state in PREPARED:
                # A crash may have left the decision in the page cache only: markers must not outlive it.
                journals = self._journals_of([transaction.transactional_id])
                self._see_through(transaction, self._core.durable(journals))
        self._sweep.arm()

    def _repair(self) -> None:
        now_ms = self._core.clock.wall_ms()
        found = recovery.open_transactions(self._core.topics)
        adopted, orphans = recovery.repair(self._transactions, found, now_ms=now_ms)
        for transaction in adopted.values():
            logger.warning(
                "%s: restored partitions whose journal record was lost", transaction.transactional_id
            )
            self._change(transaction)
        if not self._core.journals.is_sound(TOPIC):
            orphans = []  # the damaged partition may hold them, and may have decided to commit
        for each in orphans:
            logger.warning(
                "aborting an open transaction of producer %d in %s-%d", each.producer_id, *each.place
            )
            try:
                write_marker(
                    self._core,
                    each.partition,
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    commit=False,
                    coordinator_epoch=max(each.coordinator_epoch, 0),
                )
            except KafkaError as error:  # a damaged partition takes no marker, and must not stop the start
                logger.error("%s-%d: the transaction stays open: %s", *each.place, error)

    def _leave_lost_partitions(self) -> None:
        """At start: a crash came between the deletion of a topic and the word of it to open transactions."""
        changed = []
        for transaction in list(self._transactions.values()):
            if transaction.state is TransactionState.ONGOING or transaction.state in PREPARED:
                there = frozenset(
                    place for place in transaction.partitions if partition_at(self._core, place) is not None
                )
                if there != transaction.partitions:
                    self._change(replace(transaction, partitions=there))
                    changed.append(transaction.transactional_id)
        self._core.logs.sync(self._journals_of(changed))

    def _note_topic_deleted(self, topic: "Topic") -> "list[PartitionLog]":
        """Open transactions leave it: a later topic of its name must not get their markers, not even after a crash."""
        changed = []
        for transactional_id in {**self._deadlines, **self._endings}:
            transaction = self._transactions[transactional_id]
            left = frozenset(place for place in transaction.partitions if place[0] != topic.name)
            if left == transaction.partitions:
                continue
            changed.append(transactional_id)
            ending = self._endings.get(transactional_id)
            if ending is not None and ending.leave(topic.name):
                continue  # its completion is in the journal already
            shrunk = replace(transaction, partitions=left)
            try:
                self._change(shrunk)
            except KafkaError as error:
                logger.error(
                    "%s: the deletion of %s cannot be written: %s", transactional_id, topic.name, error
                )
                self._keep(shrunk)
        return self._journals_of(changed)

    def _journals_of(self, transactional_ids: Collection[str]) -> "list[PartitionLog]":
        if not transactional_ids:
            return []
        partitions = {self._partition_of(transactional_id) for transactional_id in transactional_ids}
        home = self._core.topics.internal(TOPIC).partitions
        return [home[index].log for index in sorted(partitions)]

    def __iter__(self) -> Iterator[TransactionMetadata]:
        return iter(self._transactions.values())

    def describe(self, transactional_id: str) -> TransactionMetadata | None:
        """As it stands; of an ending transaction, only the partitions whose marker is not written yet."""
        self._core.journals.require(TOPIC, transactional_id)
        transaction = self._transactions.get(transactional_id)
        ending = self._endings.get(transactional_id)
        if transaction is None or ending is None:
            return transaction
        return replace(transaction, partitions=frozenset(ending.remaining))

    def new_producer(self) -> ProducerIdentity:
        """An identity for a producer without transactions."""
        return ProducerIdentity(self._producer_ids.draw(), 0)

    def initialize(
        self, transactional_id: str, *, timeout_ms: int, expected: ProducerIdentity | None = None
    ) -> Later[ProducerIdentity | None]:
        """The producer's identity; None when its open transaction is being aborted first and it has to ask again."""
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._core.settings.get_int("transaction.max.timeout.ms"):
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        self._core.journals.require(TOPIC, transactional_id)
        now_ms = self._core.clock.wall_ms()
        draw = self._producer_ids.draw
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            transaction = machine.created(transactional_id, draw(), timeout_ms=timeout_ms, now_ms=now_ms)
        changed = machine.initialize(
            transaction, expected, timeout_ms=timeout_ms, now_ms=now_ms, draw_producer_id=draw
        )
        durable = self._change(changed)
        if changed.state in PREPARED:
            return self._see_through(changed, durable).map(lambda _: None)
        identity = ProducerIdentity(changed.producer_id, changed.producer_epoch)
        return durable.map(lambda _: identity)

    def add_partitions(
        self,
        transactional_id: str | None,
        producer: ProducerIdentity,
        partitions: Collection[TopicAndPartition],
        *,
        client_version: int,
    ) -> Later[None]:
        now_ms = self._core.clock.wall_ms()
        transaction = self._require(transactional_id)
        changed = machine.add(
            transaction, *producer, partitions, client_version=client_version, now_ms=now_ms
        )
        return resolved(None) if changed is transaction else self._change(changed)

    def missing(
        self,
        transactional_id: str | None,
        producer: ProducerIdentity,
        partitions: Collection[TopicAndPartition],
    ) -> list[TopicAndPartition]:
        """Which of the partitions are not in the producer's open transaction."""
        return machine.missing(self._require(transactional_id), *producer, partitions)

    def verify_or_add(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicAndPartition],
        *,
        may_add: bool,
        knows_abortable: bool = True,
    ) -> Later[None]:
        """For Produce: the partitions are in the transaction, or join it (`may_add`, v12 and later), or KafkaError.

        The Later resolves when the addition is durable; an answer that promises durability waits for it too.
        `knows_abortable` is for v11 and later: older clients are told INVALID_TXN_STATE.
        """
        if not may_add and not self._core.settings.get_bool("transaction.partition.verification.enable"):
            return resolved(None)
        producer = ProducerIdentity(producer_id, producer_epoch)
        try:
            return self.admit(
                transactional_id, producer, partitions, may_add=may_add, knows_abortable=knows_abortable
            )
        except KafkaError as error:
            if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, error.message) from error
            if error.code is ErrorCode.CONCURRENT_TRANSACTIONS and not may_add:
                # Such clients would take it for fatal; this one makes them try again without asking for metadata.
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS, "The last transaction is still ending"
                ) from error
            raise

    def admit(
        self,
        transactional_id: str | None,
        producer: ProducerIdentity,
        partitions: Sequence[TopicAndPartition],
        *,
        may_add: bool,
        knows_abortable: bool,
    ) -> Later[None]:
        """Lets a producer write to partitions: they are in its transaction, or join it, or KafkaError."""
        try:
            if may_add:
                return self.add_partitions(transactional_id, producer, partitions, client_version=BUMPS_EPOCH)
            if self.missing(transactional_id, producer, partitions):
                code = ErrorCode.TRANSACTION_ABORTABLE if knows_abortable else ErrorCode.INVALID_TXN_STATE
                raise KafkaError(code, "Partition was not added to the transaction")
        except KafkaError as error:
            if error.code is ErrorCode.PRODUCER_FENCED:
                # Writers to partitions know no other word for it.
                raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH) from error
            raise
        return resolved(None)

    def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, client_version: int
    ) -> Later[ProducerIdentity]:
        """Commits or aborts; resolves with the identity for the next transaction when all markers are durable."""
        transaction = self._require(transactional_id)
        now_ms = self._core.clock.wall_ms()
        changed = machine.end(
            transaction,
            *producer,
            commit=commit,
            client_version=client_version,
            now_ms=now_ms,
            draw_producer_id=self._producer_ids.draw,
        )
        if changed is transaction:
            return resolved(ProducerIdentity(changed.producer_id, changed.producer_epoch))
        completed = machine.complete(changed, now_ms=now_ms)
        identity = ProducerIdentity(completed.producer_id, completed.producer_epoch)
        return self._see_through(changed, self._change(changed)).map(lambda _: identity)

    def _require(self, transactional_id: str | None) -> TransactionMetadata:
        if not transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        self._core.journals.require(TOPIC, transactional_id)
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return transaction

    def _journal(self, transaction: TransactionMetadata) -> Later[None]:
        record = journal.encode_key(transaction.transactional_id), journal.encode_value(transaction)
        return self._append(self._partition_of(transaction.transactional_id), [record])

    def _append(self, partition: int, records: Sequence[tuple[bytes, bytes | None]]) -> Later[None]:
        try:
            return self._core.append_internal(TOPIC, partition, records)
        except KafkaError as error:
            raise journal_error(error) from error

    def _partition_of(self, transactional_id: str) -> int:
        return partition_for(transactional_id, len(self._core.topics.internal(TOPIC).partitions))

    def _change(self, transaction: TransactionMetadata) -> Later[None]:
        durable = self._journal(transaction)
        self._keep(transaction)
        return durable

    def _keep(self, transaction: TransactionMetadata) -> None:
        self._transactions[transaction.transactional_id] = transaction
        self._watch(transaction)

    def _watch(self, transaction: TransactionMetadata) -> None:
        """Keeps a deadline for every open transaction, and for no other."""
        transactional_id = transaction.transactional_id
        if transaction.state is not TransactionState.ONGOING:
            timer = self._deadlines.pop(transactional_id, None)
            if timer is not None:
                timer.cancel()
        elif transactional_id not in self._deadlines:
            # The wall clock may have been set back since the start: nobody waits longer than the timeout.
            clock = self._core.clock
            left_ms = transaction.start_ms + transaction.timeout_ms - clock.wall_ms()
            self._schedule_abort(transactional_id, min(max(left_ms, 0), transaction.timeout_ms))

    def _schedule_abort(self, transactional_id: str, delay_ms: int) -> None:
        deadline_ms = self._core.clock.monotonic_ms() + delay_ms
        abort = self._core.timers.at(deadline_ms, lambda: self._abort_overdue(transactional_id))
        self._deadlines[transactional_id] = abort

    def _abort_overdue(self, transactional_id: str) -> None:
        del self._deadlines[transactional_id]
        transaction = self._transactions[transactional_id]
        fenced = machine.fence(transaction, now_ms=self._core.clock.wall_ms())
        try:
            durable = self._change(fenced)
        except KafkaError as error:
            logger.error("%s: not aborted after its timeout: %s", transactional_id, error)
            self._schedule_abort(transactional_id, RETRY_MS)
            return
        logger.info("%s: aborted after its timeout of %d ms", transactional_id, transaction.timeout_ms)
        self._see_through(fenced, durable)

    def _see_through(self, prepared: TransactionMetadata, durable: Later[None]) -> Later[None]:
        """Writes the markers once the decision is durable, then completes. Resolves when the client may be answered."""
        transactional_id = prepared.transactional_id
        home = self._core.topics.internal(TOPIC).partitions[self._partition_of(transactional_id)]
        epoch = home.log.leader_epoch
        ending = Ending(self._core, prepared, coordinator_epoch=epoch, complete=self._complete)
        self._endings[transactional_id] = ending
        durable.then(lambda _: ending.proceed())
        return ending.answerable

    def _complete(self, prepared: TransactionMetadata) -> Later[None]:
        completed = machine.complete(prepared, now_ms=self._core.clock.wall_ms())
        durable = self._journal(completed)

        def keep(_: None) -> None:
            del self._endings[prepared.transactional_id]
            self._keep(completed)

        durable.then(keep)
        return durable
