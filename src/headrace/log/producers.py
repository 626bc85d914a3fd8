"""What a log knows about its idempotent and transactional producers, and the rules they are held to.

Theory of operation. `decide` judges a batch against the producer's entry and returns the entry as it will be, or
the earlier batch that this one repeats; `apply` puts entries in place once the bytes are written. Replaying a
log is `replay` over its batch headers, by the same arithmetic without the judging. A snapshot is Kafka's own file
(which keeps one batch a producer) followed by a part of ours that Kafka does not read: the batches before the
last, so that a retry is known as such after a restart too.
"""

import struct
from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from headrace.wire.batches import NO_SEQUENCE, SEQUENCE_MAX, BatchHeader, crc32c_of
from headrace.wire.errors import ErrorCode, KafkaError

BATCHES_KEPT = 5
"""How many batches a producer may have in flight."""

_SNAPSHOT_HEAD = struct.Struct(">hIi")
_SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
_SNAPSHOT_CRC_END = 6
_SNAPSHOT_VERSION = 1
_EARLIER_BATCHES = struct.Struct(">qi")
_EARLIER_BATCH = struct.Struct(">iqiq")


class AppendOrigin(Enum):
    CLIENT = "a producer: everything is checked"
    COORDINATOR = "the broker's own records: no sequence numbers, keys are its own business"


class SentBatch(NamedTuple):
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        if self.last_sequence < 0:
            return NO_SEQUENCE
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX


class ProducerStateEntry(NamedTuple):
    """One producer's entry. Replaced, never changed."""

    producer_id: int
    epoch: int
    batches: tuple[SentBatch, ...] = ()
    """The newest last, `BATCHES_KEPT` at most."""
    coordinator_epoch: int = -1
    transaction_start: int = -1
    """First offset of the open transaction; -1 if none is open."""
    last_timestamp: int = -1
    seen_ms: int = 0

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE


class ProducerView(NamedTuple):
    """What DescribeProducers tells."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int


class ProducerStates:
    __slots__ = ("entries", "open_transactions")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerStateEntry] = {}
        self.open_transactions: dict[int, int] = {}
        """Producer id to first offset, oldest first: a transaction starts at the log's end."""

    def first_open_offset(self) -> int | None:
        for offset in self.open_transactions.values():
            return offset
        return None

    def duplicate_of(self, header: BatchHeader) -> SentBatch | None:
        """The batch that this one repeats."""
        producer = self.entries.get(header.producer_id)
        if producer is None or producer.epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in producer.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def duplicate_among(self, checked: Iterable[tuple[int, BatchHeader]]) -> SentBatch | None:
        """The first batch that one of these repeats."""
        for _, header in checked:
            if header.producer_id >= 0:
                batch = self.duplicate_of(header)
                if batch is not None:
                    return batch
        return None

    def decide(
        self,
        header: BatchHeader,
        first_offset: int,
        *,
        origin: AppendOrigin,
        now_ms: int,
        pending: ProducerStateEntry | None = None,
    ) -> ProducerStateEntry:
        """The producer after this batch; `pending` is what an earlier batch of the same append decided."""
        producer = pending or self.entries.get(header.producer_id)
        if producer is not None:
            _require_epoch(producer, header)
            if origin is AppendOrigin.CLIENT:
                _require_sequence(producer, header)
            if producer.transaction_start >= 0 and not header.is_transactional:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE,
                    f"Producer {header.producer_id} has an open transaction; its batches must belong to it.",
                )
        return after_data(producer, header, first_offset, now_ms)

    def decide_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, timestamp: int, now_ms: int
    ) -> ProducerStateEntry:
        producer = self.entries.get(producer_id)
        if producer is not None:
            if producer_epoch < producer.epoch:
                raise _fenced(producer, producer_epoch)
            if coordinator_epoch < producer.coordinator_epoch:
                raise KafkaError(
                    ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                    f"Marker of coordinator epoch {coordinator_epoch} for producer {producer_id}, "
                    f"which has already seen {producer.coordinator_epoch}.",
                )
        return after_marker(producer, producer_id, producer_epoch, coordinator_epoch, timestamp, now_ms)

    def apply(self, producer: ProducerStateEntry) -> None:
        self.entries[producer.producer_id] = producer
        if producer.transaction_start < 0:
            self.open_transactions.pop(producer.producer_id, None)
        elif producer.producer_id not in self.open_transactions:
            self.open_transactions[producer.producer_id] = producer.transaction_start

    def replay(self, header: BatchHeader, *, now_ms: int) -> None:
        """A data batch that the log already holds."""
        producer = self.entries.get(header.producer_id)
        self.apply(after_data(producer, header, header.base_offset, now_ms))

    def replay_marker(self, header: BatchHeader, coordinator_epoch: int, *, now_ms: int) -> int:
        """Where the transaction that this marker ends had begun; -1 if it held nothing."""
        producer = self.entries.get(header.producer_id)
        start = producer.transaction_start if producer is not None else -1
        self.apply(
            after_marker(
                producer,
                header.producer_id,
                header.producer_epoch,
                coordinator_epoch,
                header.max_timestamp,
                now_ms,
            )
        )
        return start

    def forget_idle(self, *, now_ms: int, expiration_ms: int) -> None:
        idle = [
            producer.producer_id
            for producer in self.entries.values()
            if producer.transaction_start < 0 and now_ms - producer.seen_ms >= expiration_ms
        ]
        for producer_id in idle:
            del self.entries[producer_id]

    def views(self) -> list[ProducerView]:
        return [
            ProducerView(
                producer.producer_id,
                producer.epoch,
                producer.last_sequence,
                producer.last_timestamp,
                producer.coordinator_epoch,
                producer.transaction_start,
            )
            for producer in self.entries.values()
        ]


def after_data(
    producer: ProducerStateEntry | None, header: BatchHeader, first_offset: int, now_ms: int
) -> ProducerStateEntry:
    batch = SentBatch(
        header.last_sequence,
        first_offset + header.last_offset_delta,
        header.last_offset_delta,
        header.max_timestamp,
    )
    earlier: tuple[SentBatch, ...] = ()
    coordinator_epoch = start = -1
    if producer is not None:
        coordinator_epoch, start = producer.coordinator_epoch, producer.transaction_start
        if producer.epoch == header.producer_epoch:
            earlier = producer.batches[1 - BATCHES_KEPT :]
    if start < 0 and header.is_transactional:
        start = first_offset
    return ProducerStateEntry(
        header.producer_id,
        header.producer_epoch,
        (*earlier, batch),
        coordinator_epoch,
        start,
        header.max_timestamp,
        now_ms,
    )


def after_marker(
    producer: ProducerStateEntry | None,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    now_ms: int,
) -> ProducerStateEntry:
    """A newer epoch in the marker starts the producer's sequences anew (transaction.version 2)."""
    batches = producer.batches if producer is not None and producer.epoch == producer_epoch else ()
    return ProducerStateEntry(producer_id, producer_epoch, batches, coordinator_epoch, -1, timestamp, now_ms)


def _require_epoch(producer: ProducerStateEntry, header: BatchHeader) -> None:
    if header.producer_epoch < producer.epoch:
        raise _fenced(producer, header.producer_epoch)


def _fenced(producer: ProducerStateEntry, epoch: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"Epoch {epoch} of producer {producer.producer_id} is older than {producer.epoch}, the last one seen.",
    )


def _require_sequence(producer: ProducerStateEntry, header: BatchHeader) -> None:
    """A producer that is not known at all may start anywhere: its past may have expired."""
    if producer.epoch != header.producer_epoch:
        expected = 0
    elif producer.batches:
        expected = (producer.batches[-1].last_sequence + 1) & SEQUENCE_MAX
    else:
        expected = 0
    if header.base_sequence != expected:
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Sequence {header.base_sequence} of producer {header.producer_id}, epoch "
            f"{header.producer_epoch}, is not the expected {expected}.",
        )


def encode_snapshot(producers: Iterable[ProducerStateEntry]) -> bytes:
    entries = list(producers)
    body = bytearray(struct.pack(">i", len(entries)))
    for producer in entries:
        last = producer.batches[-1] if producer.batches else SentBatch(NO_SEQUENCE, -1, 0, -1)
        body += _SNAPSHOT_ENTRY.pack(
            producer.producer_id,
            producer.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            producer.last_timestamp,
            producer.coordinator_epoch,
            producer.transaction_start,
        )
    for producer in entries:
        if len(producer.batches) > 1:
            body += _EARLIER_BATCHES.pack(producer.producer_id, len(producer.batches) - 1)
            body += b"".join(_EARLIER_BATCH.pack(*batch) for batch in producer.batches[:-1])
    return struct.pack(">hI", _SNAPSHOT_VERSION, crc32c_of(body)) + bytes(body)


def decode_snapshot(data: bytes, *, now_ms: int) -> ProducerStates | None:
    """None for a snapshot that is torn or of a version we do not know."""
    states = ProducerStates()
    try:
        version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
        if version != _SNAPSHOT_VERSION or crc != crc32c_of(data[_SNAPSHOT_CRC_END:]):
            return None
        position = _SNAPSHOT_HEAD.size
        entries: list[ProducerStateEntry] = []
        for _ in range(count):
            producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, start = (
                _SNAPSHOT_ENTRY.unpack_from(data, position)
            )
            position += _SNAPSHOT_ENTRY.size
            batches = (SentBatch(sequence, offset, delta, timestamp),) if offset >= 0 else ()
            entries.append(
                ProducerStateEntry(producer_id, epoch, batches, coordinator_epoch, start, timestamp, now_ms)
            )
        earlier = _decode_earlier_batches(data, position)
    except struct.error:
        return None
    for producer in sorted(entries, key=lambda producer: producer.transaction_start):
        before = earlier.get(producer.producer_id, ())
        states.apply(producer._replace(batches=before + producer.batches))
    return states


def _decode_earlier_batches(data: bytes, position: int) -> dict[int, tuple[SentBatch, ...]]:
    """Our own part. A snapshot that Kafka wrote ends before it."""
    earlier: dict[int, tuple[SentBatch, ...]] = {}
    while position < len(data):
        producer_id, count = _EARLIER_BATCHES.unpack_from(data, position)
        position += _EARLIER_BATCHES.size
        end = position + count * _EARLIER_BATCH.size
        earlier[producer_id] = tuple(
            SentBatch(*row) for row in _EARLIER_BATCH.iter_unpack(data[position:end])
        )
        position = end
    return earlier
