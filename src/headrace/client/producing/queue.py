"""The batches of one partition: which may be sent next, under which number, and what a response means for them.

Theory of operation. A broker accepts the batches of an identity in the order of their sequence numbers, and knows its
last five again. So a batch keeps its number through all retries, and a retry of a batch that was written is answered as
if it were the first. After a failure batches go one by one until one is acknowledged, so the order is kept.

When a numbered batch has failed for good, the numbers have a hole, and the broker refuses whatever follows it. Then the
batches behind it are *renumbered*: the epoch is raised, which fences every copy that is still on its way, and numbers
start at 0 again. A batch may be renumbered only when it is certain that the broker has not written it. So those in
doubt are sent again under their old number first. The broker then knows them (they are acknowledged), takes them, or
refuses them as out of order. Such a refusal proves that a batch was not written if one before it was not written
either. Otherwise the broker may have forgotten it, and the batch fails: it is never written twice.

Without idempotence there are no numbers: one batch at a time keeps the order, and a batch in doubt is sent again.
"""

from collections import deque
from typing import NamedTuple

from headrace.client.errors import error_for, is_retriable
from headrace.client.producing.batch import NO_IDENTITY, Entry, Identity, ProducerBatch, ValueRun, precedes
from headrace.client.settings import ProducerSettings
from headrace.wire.batches import NO_SEQUENCE, Compression
from headrace.wire.error_groups import TOO_LARGE
from headrace.wire.errors import ErrorCode, KafkaError

IN_DOUBT = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors that do not say whether the batch was written. Every other error says that this attempt did not write it."""

OUT_OF_SEQUENCE = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)
EPOCH_MAX = 32_766


class SendOutcome(NamedTuple):
    """What became of the records of a batch, or of one that never got so far."""

    topic: str
    partition: int
    tokens: list[object]
    """See `ProducerBatch.tokens`."""
    cost: int
    generations: dict[int, int]
    base_offset: int
    """-1 when the broker did not say it."""
    error: KafkaError | None


class PartitionQueue:
    """`leader_id` is -1 while there is none. `outcomes` is where results go."""

    def __init__(
        self, topic: str, index: int, settings: ProducerSettings, outcomes: list[SendOutcome]
    ) -> None:
        self.topic = topic
        self.index = index
        self.leader_id = -1
        self.is_in_transaction = False
        """The coordinator knows that the open transaction has records in this partition."""
        self._settings = settings
        self._is_idempotent = settings.is_idempotent
        self._compression = Compression[settings.compression_type.name]
        self._outcomes = outcomes
        self._size_max = min(settings.batch_size, settings.max_request_size)
        """Of a batch, in bytes; less after the topic has refused one as too large."""
        self._waiting: deque[ProducerBatch] = deque()
        self._in_flight: list[ProducerBatch] = []
        self._identity = NO_IDENTITY
        self._next_sequence = 0
        self._is_steady = False
        """The last response acknowledged a batch. Else one batch at a time: a broker that does not know the producer
        takes any sequence number, also that of the second batch when it has refused the first."""
        self._is_renumbering = False
        self._failures = 0
        self._retry_at_ms = 0.0

    @property
    def is_idle(self) -> bool:
        return not self._waiting and not self._in_flight

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def has_open_batch(self) -> bool:
        return bool(self._waiting) and not self._waiting[-1].is_sent

    @property
    def is_broken(self) -> bool:
        """The sequence has a hole. A transaction cannot go on from here."""
        return self._is_renumbering

    @property
    def about(self) -> str:
        return f"partition {self.topic}-{self.index}"

    def put(self, entry: Entry, generation: int, now_ms: float) -> None:
        waiting = self._waiting
        if not waiting or waiting[-1].is_sent or not waiting[-1].append(entry, generation, self._size_max):
            batch = ProducerBatch(self.topic, self.index, now_ms)
            batch.append(entry, generation, self._size_max)
            self._waiting.append(batch)

    def put_some(self, run: ValueRun, start: int, generation: int, now_ms: float) -> int:
        """Puts values of the run into one batch, from `start` on; how many."""
        waiting = self._waiting
        taken = 0
        if waiting and not waiting[-1].is_sent:
            taken = waiting[-1].extend(run, start, generation, self._size_max)
        if not taken:
            waiting.append(ProducerBatch(self.topic, self.index, now_ms))
            taken = waiting[-1].extend(run, start, generation, self._size_max)
        return taken

    def renumber(self, newest: Identity | None) -> bool:
        """Gives the partition an identity of its own if it needs one. False when a new producer id is needed first."""
        if not self._is_idempotent:
            return True
        if self._identity is NO_IDENTITY:
            return newest is not None and self._restart(newest)
        if not self._is_renumbering or self._in_flight or any(batch.is_in_doubt for batch in self._waiting):
            return True
        if self._identity.epoch < EPOCH_MAX:
            return self._restart(self._identity._replace(epoch=self._identity.epoch + 1))
        if newest is not None and newest.producer_id != self._identity.producer_id:
            return self._restart(newest)
        return False

    def replace_identity(self, identity: Identity) -> None:
        """Between two transactions: numbers start anew under the identity that the coordinator gave."""
        assert self.is_idle
        if identity != self._identity:
            is_known = self._is_steady and identity.producer_id == self._identity.producer_id
            self._restart(identity)
            self._is_steady = is_known  # such a broker takes no other number than 0 from the new epoch

    def recreated(self) -> None:
        """The topic was deleted and created again: what was in doubt is not in the new one. Numbers start again at 0
        under a new epoch. A transaction has one epoch: the broker refuses a batch whose predecessors are gone."""
        for batch in self._waiting:
            batch.is_in_doubt = False
        self._is_steady = False
        if self._next_sequence or self._in_flight:
            self._is_renumbering = self._is_idempotent and not self._settings.transactional_id

    def ready_ms(self, flushed: int) -> float | None:
        """From when on the next batch may be sent; None while it waits for a response."""
        batch = self._next()
        if batch is None:
            return None
        if batch.is_sent or batch is not self._waiting[-1] or batch.size >= self._size_max:
            return self._retry_at_ms
        if min(batch.generations) <= flushed:
            return self._retry_at_ms
        return max(self._retry_at_ms, batch.created_ms + self._settings.linger_ms)

    def expires_ms(self) -> float | None:
        """When the oldest batch has waited for as long as it may."""
        oldest = (
            self._waiting[0].created_ms if self._waiting else None
        )  # they are in the order of their making
        for batch in self._in_flight:
            if not batch.is_done and (oldest is None or batch.created_ms < oldest):
                oldest = batch.created_ms
        return None if oldest is None else oldest + self._settings.delivery_timeout_ms

    def take(self) -> ProducerBatch:
        """The next batch, which is now in flight."""
        batch = self._next()
        assert batch is not None
        self._waiting.remove(batch)
        if self._is_idempotent and not batch.is_numbered:
            batch.identity, batch.sequence = self._identity, self._next_sequence
            self._next_sequence = batch.end_sequence
        batch.is_sent = True
        self._in_flight.append(batch)
        return batch

    def acknowledged(self, batch: ProducerBatch, base_offset: int) -> None:
        self._in_flight.remove(batch)
        self._is_steady = True
        self._failures = 0
        self._retry_at_ms = 0.0
        self._finish(batch, None, base_offset)

    def refused(self, batch: ProducerBatch, error: KafkaError, retry_at_ms: float) -> None:
        """The broker's answer was an error. `retry_at_ms` counts if the batch may be tried again."""
        self._in_flight.remove(batch)
        self._is_steady = False
        batch.last_error = error
        code = error.code
        if code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._finish(batch, None, -1)
            return
        if code in IN_DOUBT:
            batch.is_in_doubt = True
        if batch.is_numbered and code in OUT_OF_SEQUENCE:
            self._out_of_sequence(batch, error, retry_at_ms)
        elif code in TOO_LARGE and batch.count > 1 and not batch.is_in_doubt and not batch.is_done:
            self._size_max = max(1, min(self._size_max, batch.size // 2))
            for half in reversed(batch.split(self._compression)):
                self._requeue(half)
        elif is_retriable(code):
            self._retry(batch, retry_at_ms)
        else:
            self._give_up(batch, error)

    def lost(self, batch: ProducerBatch, error: KafkaError, retry_at_ms: float) -> None:
        """No response came. Whether the batch was written is unknown."""
        batch.is_in_doubt = True
        self._in_flight.remove(batch)
        self._is_steady = False
        batch.last_error = error
        self._retry(batch, retry_at_ms)

    def not_sent(self, batch: ProducerBatch, error: KafkaError, retry_at_ms: float) -> None:
        """The request was never written to a connection."""
        self._in_flight.remove(batch)
        batch.last_error = error
        self._retry(batch, retry_at_ms)

    def note(self, error: KafkaError) -> None:
        """Why nothing can be sent, for the error of those who wait in vain."""
        for batch in self._waiting:
            batch.last_error = error

    def next_failure(self) -> int:
        self._failures += 1
        return self._failures - 1

    def expire(self, now_ms: float) -> None:
        """Fails what is older than delivery.timeout.ms. A batch in flight stays there until its response comes."""
        oldest = now_ms - self._settings.delivery_timeout_ms
        for batch in self._in_flight:
            if batch.created_ms <= oldest:
                self._finish(batch, self._too_late(batch))
        for batch in [batch for batch in self._waiting if batch.created_ms <= oldest]:
            self._waiting.remove(batch)
            self._give_up(batch, self._too_late(batch))

    def abandon(self, error: KafkaError) -> None:
        """Fails all that waits. What is in flight stays there until its response comes."""
        for batch in list(self._waiting):
            self._waiting.remove(batch)
            self._give_up(batch, error)

    def _next(self) -> ProducerBatch | None:
        limit = self._settings.max_in_flight_requests_per_connection
        if len(self._in_flight) >= (limit if self._is_steady and self._is_idempotent else 1):
            return None
        if self._is_renumbering:
            return next((batch for batch in self._waiting if batch.is_in_doubt), None)
        return self._waiting[0] if self._waiting else None

    def _out_of_sequence(self, batch: ProducerBatch, error: KafkaError, retry_at_ms: float) -> None:
        waiting = [one for one in self._waiting if _is_before(one, batch)]
        if any(not one.is_in_doubt for one in waiting):
            batch.is_in_doubt = False  # one before it was not written, so neither was this one
        if waiting or any(_is_before(one, batch) for one in self._in_flight):
            self._retry(batch, retry_at_ms)
        elif batch.is_in_doubt or self._settings.transactional_id:
            self._give_up(batch, error)
        else:
            self._is_renumbering = True
            self._retry(batch, retry_at_ms)

    def _retry(self, batch: ProducerBatch, retry_at_ms: float) -> None:
        self._retry_at_ms = retry_at_ms
        if batch.is_done:
            self._give_up(batch, error_for(ErrorCode.REQUEST_TIMED_OUT))  # it has been reported before
        else:
            self._requeue(batch)

    def _requeue(self, batch: ProducerBatch) -> None:
        """In the order of sequence numbers, before all that has none."""
        place = sum(1 for one in self._waiting if _is_before(one, batch))
        self._waiting.insert(place, batch)

    def _give_up(self, batch: ProducerBatch, error: KafkaError) -> None:
        self._finish(batch, error)
        if not batch.is_numbered or batch.identity != self._identity:
            return
        if batch.end_sequence == self._next_sequence and not batch.is_in_doubt:
            self._next_sequence = batch.sequence  # the last one: its numbers are free again
        else:
            self._is_renumbering = True

    def _restart(self, identity: Identity) -> bool:
        self._identity = identity
        self._next_sequence = 0
        self._is_renumbering = self._is_steady = False
        for batch in self._waiting:
            batch.identity, batch.sequence = NO_IDENTITY, NO_SEQUENCE
        return True

    def _finish(self, batch: ProducerBatch, error: KafkaError | None, base_offset: int = -1) -> None:
        if batch.is_done:
            return
        batch.is_done = True
        self._outcomes.append(
            SendOutcome(
                batch.topic, batch.partition, batch.tokens, batch.cost, batch.generations, base_offset, error
            )
        )

    def _too_late(self, batch: ProducerBatch) -> KafkaError:
        within = f"not acknowledged within delivery.timeout.ms={self._settings.delivery_timeout_ms}"
        doubt = "; it may have been written" if batch.is_sent else "; it was not sent"
        why = f"; the last error: {batch.last_error.text}" if batch.last_error is not None else ""
        return error_for(ErrorCode.REQUEST_TIMED_OUT, within + doubt + why, about=self.about)


def _is_before(one: ProducerBatch, other: ProducerBatch) -> bool:
    return one.is_numbered and other.is_numbered and one.identity == other.identity and precedes(one, other)
