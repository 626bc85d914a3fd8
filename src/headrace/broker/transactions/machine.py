"""The rules of one transactional id: pure functions from its present value to the next, or to Kafka's error.

Theory of operation. A `TransactionMetadata` is a value. Each rule takes the present one and what a request says, and
returns the next one, which the coordinator journals and then keeps; where nothing changes it returns the same
object. So the journal holds whole values, recovery is "the last value counts", and a write that failed leaves
nothing to undo.

Two kinds of clients meet here. With transaction.version 2 (KIP-890; EndTxn v5, Produce v12) every end moves
the producer epoch by one, so that a late message of an ended transaction shows by its epoch. Older clients
keep their epoch from one transaction to the next. The coordinator's own aborts (timeouts, a new producer
taking over) always move the epoch.

An epoch is a 16-bit number. When the last one but one is used up the producer gets a new producer id and
epoch 0; the very last is never given to a client, it is kept to fence with.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from headrace.broker.transactions.states import (
    AT_REST,
    END_V1,
    END_V2,
    PREPARED,
    TRANSITIONS,
    TransactionCause,
    TransactionState,
    TransactionVerdict,
)
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicAndPartition

NO_PRODUCER_ID = -1
NO_EPOCH = -1
EPOCH_MAX = 32767
EPOCH_LAST = EPOCH_MAX - 1
"""The last epoch a client may hold."""
BUMPS_EPOCH = 2
"""The first transaction.version in which every end moves the epoch."""

DrawProducerId = Callable[[], int]


class IllegalTransition(Exception):
    """The coordinator asked for a change that no rule allows. This is a fault of ours, never of a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionMetadata:
    """What is known about one transactional id. Times are wall-clock milliseconds, as in the journal."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    update_ms: int
    start_ms: int = -1
    partitions: frozenset[TopicAndPartition] = frozenset()
    client_version: int = 0
    """transaction.version of the client that last moved the transaction."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before the last change: tells a retry across a change of producer id."""
    next_producer_id: int = NO_PRODUCER_ID
    """Takes over when the prepared end completes, because the epochs of this one are used up."""
    last_producer_epoch: int = NO_EPOCH
    """The epoch before the last bump: tells a retried InitProducerId. Not in the journal, as in Kafka."""

    @property
    def is_exhausted(self) -> bool:
        return self.producer_epoch >= EPOCH_LAST

    @property
    def is_commit(self) -> bool:
        assert self.state in PREPARED, self.state
        return self.state is TransactionState.PREPARE_COMMIT


def created(transactional_id: str, producer_id: int, *, timeout_ms: int, now_ms: int) -> TransactionMetadata:
    """A transactional id seen for the first time; initialize it next."""
    return TransactionMetadata(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=NO_EPOCH,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        update_ms=now_ms,
    )


def initialize(
    transaction: TransactionMetadata,
    expected: tuple[int, int] | None,
    *,
    timeout_ms: int,
    now_ms: int,
    draw_producer_id: DrawProducerId,
) -> TransactionMetadata:
    """InitProducerId: the next epoch for a producer. An open transaction is aborted first: PREPARE_ABORT comes out.

    `expected` is the producer id and epoch of a producer that recovers (KIP-360): it is fenced if another took over.
    """
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if expected is not None and not _may_recover(transaction, expected):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    if transaction.state is TransactionState.ONGOING:
        return fence(transaction, now_ms=now_ms)
    producer_id, epoch, last_epoch = _next_epoch(transaction, expected, draw_producer_id)
    return replace(
        _moved(transaction, TransactionCause.INITIALIZE, now_ms),
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
    )


def _may_recover(transaction: TransactionMetadata, expected: tuple[int, int]) -> bool:
    producer_id, epoch = expected
    is_retry_after_new_id = producer_id == transaction.previous_producer_id and epoch >= EPOCH_LAST
    is_new = transaction.producer_epoch == NO_EPOCH
    return is_new or producer_id == transaction.producer_id or is_retry_after_new_id


def _next_epoch(
    transaction: TransactionMetadata, expected: tuple[int, int] | None, draw_producer_id: DrawProducerId
) -> tuple[int, int, int]:
    """Producer id, epoch, and the epoch that a retry of this request would name."""
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    if expected is not None and epoch not in (NO_EPOCH, expected[1]):
        if expected[1] != transaction.last_producer_epoch:
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        # The answer to the first try was lost. Nobody else came in between: that would have cleared the last epoch.
        return producer_id, epoch, transaction.last_producer_epoch
    last_epoch = NO_EPOCH if expected is None else epoch
    if transaction.is_exhausted:
        return draw_producer_id(), 0, last_epoch
    return producer_id, epoch + 1, last_epoch


def add(
    transaction: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicAndPartition],
    *,
    client_version: int,
    now_ms: int,
) -> TransactionMetadata:
    """Partitions join; the first of them begins the transaction. The same object if all were in it."""
    if transaction.state in PREPARED:
        # Before the other checks: the end in motion may bring a new producer id, which the client knows already.
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    _require_producer(transaction, producer_id, producer_epoch)
    is_ongoing = transaction.state is TransactionState.ONGOING
    if is_ongoing and transaction.partitions.issuperset(partitions):
        return transaction
    return replace(
        _moved(transaction, TransactionCause.ADD, now_ms),
        partitions=transaction.partitions.union(partitions),
        start_ms=transaction.start_ms if is_ongoing else now_ms,
        client_version=client_version,
    )


def missing(
    transaction: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicAndPartition],
) -> list[TopicAndPartition]:
    """Which of the partitions are not in the producer's transaction."""
    _require_producer(transaction, producer_id, producer_epoch)
    if transaction.state in PREPARED:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    return [partition for partition in partitions if partition not in transaction.partitions]


def _require_producer(transaction: TransactionMetadata, producer_id: int, producer_epoch: int) -> None:
    if transaction.producer_id != producer_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if transaction.producer_epoch != producer_epoch:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)


def end(
    transaction: TransactionMetadata,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    client_version: int,
    now_ms: int,
    draw_producer_id: DrawProducerId,
) -> TransactionMetadata:
    """EndTxn: the prepared transaction, or the same object when this request was carried out before."""
    cause = TransactionCause.COMMIT if commit else TransactionCause.ABORT
    if client_version >= BUMPS_EPOCH:
        verdict = _judge_v2(transaction, producer_id, producer_epoch, cause)
    else:
        _require_producer(transaction, producer_id, producer_epoch)
        verdict = END_V1.get((transaction.state, cause))
    if verdict is None:
        raise KafkaError(ErrorCode.INVALID_TXN_STATE)
    if verdict is TransactionVerdict.BUSY:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    if verdict is TransactionVerdict.ALREADY:
        return transaction
    needs_new_id = client_version >= BUMPS_EPOCH and transaction.is_exhausted
    next_producer_id = draw_producer_id() if needs_new_id else NO_PRODUCER_ID
    return _prepared(
        transaction,
        cause,
        client_version=client_version,
        next_producer_id=next_producer_id,
        now_ms=now_ms,
    )


def _judge_v2(
    transaction: TransactionMetadata, producer_id: int, producer_epoch: int, cause: TransactionCause
) -> TransactionVerdict | None:
    if transaction.state in PREPARED:
        return TransactionVerdict.BUSY
    is_present = producer_epoch == transaction.producer_epoch
    is_complete = transaction.state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    is_retry_after_new_id = (
        is_complete
        and producer_id == transaction.previous_producer_id
        and producer_epoch == EPOCH_LAST
        and transaction.producer_epoch == 0
    )
    if producer_id != transaction.producer_id and not is_retry_after_new_id:
        raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    is_retry = is_retry_after_new_id or (is_complete and producer_epoch + 1 == transaction.producer_epoch)
    if not is_present and not is_retry:
        raise KafkaError(ErrorCode.PRODUCER_FENCED)
    return END_V2.get((transaction.state, cause, is_retry))


def fence(transaction: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
    """Aborts the open transaction over its producer's head: that producer's epoch is past from now on."""
    return _prepared(
        transaction,
        TransactionCause.FENCE,
        client_version=BUMPS_EPOCH,
        next_producer_id=NO_PRODUCER_ID,
        now_ms=now_ms,
    )


def _prepared(
    transaction: TransactionMetadata,
    cause: TransactionCause,
    *,
    client_version: int,
    next_producer_id: int,
    now_ms: int,
) -> TransactionMetadata:
    epoch, last_epoch = transaction.producer_epoch, transaction.last_producer_epoch
    if client_version >= BUMPS_EPOCH:
        epoch, last_epoch = min(epoch + 1, EPOCH_MAX), epoch
    return replace(
        _moved(transaction, cause, now_ms),
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        next_producer_id=next_producer_id,
        client_version=client_version,
        # An abort of nothing has no start of its own, but Kafka's readers expect one.
        start_ms=transaction.start_ms if transaction.state is TransactionState.ONGOING else now_ms,
    )


def complete(transaction: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
    """Every marker is written and durable."""
    producer_id, epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.client_version >= BUMPS_EPOCH and transaction.next_producer_id != NO_PRODUCER_ID:
        producer_id, epoch = transaction.next_producer_id, 0
    return replace(
        _moved(transaction, TransactionCause.COMPLETE, now_ms),
        producer_id=producer_id,
        producer_epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
    )


def expire(transaction: TransactionMetadata, *, now_ms: int) -> TransactionMetadata:
    """DEAD: the caller writes a tombstone and forgets the transactional id."""
    return replace(_moved(transaction, TransactionCause.EXPIRE, now_ms), partitions=frozenset())


def is_expired(transaction: TransactionMetadata, *, expiration_ms: int, now_ms: int) -> bool:
    return transaction.state in AT_REST and transaction.update_ms <= now_ms - expiration_ms


def _moved(transaction: TransactionMetadata, cause: TransactionCause, now_ms: int) -> TransactionMetadata:
    """The transaction in the state that the table names for this cause."""
    target = TRANSITIONS.get((transaction.state, cause))
    if target is None:
        what = f"{cause.name} is not allowed in {transaction.state.title}"
        raise IllegalTransition(f"{transaction.transactional_id}: {what}")
    previous = transaction.producer_id
    return replace(transaction, state=target, update_ms=now_ms, previous_producer_id=previous)
