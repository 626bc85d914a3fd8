"""Records of one partition that are sent together."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from headrace.wire.batches import (
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    Compression,
    add_to_sequence,
    new_batch,
)
from headrace.wire.compression import compress
from headrace.wire.errors import KafkaError
from headrace.wire.records import Headers, encode_record, encode_values, read_records

RECORD_OVERHEAD = 64
"""What a record costs beside its bytes, about: it bounds the buffer for records that are nearly empty, too."""


class Identity(NamedTuple):
    """By which brokers know a producer's batches again. A higher epoch of the same producer fences the lower ones."""

    producer_id: int
    epoch: int


NO_IDENTITY = Identity(-1, -1)


class Entry(NamedTuple):
    """A record to be sent."""

    topic: str
    partition: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int
    token: Any
    """Whoever sent the record knows it again by this."""
    cost: int
    """Bytes of the buffer that it takes."""


class ValueRun(NamedTuple):
    """Values to be sent one after the other, as records without a key and headers and with one timestamp.

    Its token is a tuple that ends with the place of the first value and their number; a part of the run has the same
    with the place and the number of its own values. Single records may have such a token too.
    """

    topic: str
    values: list[bytes]
    timestamp: int
    token: tuple[Any, int, int]
    cost: int


class ProducerBatch:
    """`identity` and `sequence` are set when it is first sent, and kept by every retry."""

    __slots__ = (
        "_compressed",
        "_encoded",
        "base_timestamp",
        "cost",
        "count",
        "created_ms",
        "generations",
        "identity",
        "is_done",
        "is_in_doubt",
        "is_sent",
        "last_error",
        "max_timestamp",
        "partition",
        "sequence",
        "size",
        "tokens",
        "topic",
    )

    def __init__(self, topic: str, partition: int, created_ms: float) -> None:
        self.topic = topic
        self.partition = partition
        self.created_ms = created_ms
        self.tokens: list[Any] = []
        """In the order of its records. One that a run has left stands for several: see `ValueRun`."""
        self.cost = 0
        self.generations: dict[int, int] = {}
        """How many of its records were put before which flush."""
        self.count = 0
        self.size = 0
        self.base_timestamp = self.max_timestamp = NO_TIMESTAMP
        self.identity = NO_IDENTITY
        self.sequence = NO_SEQUENCE
        self.is_sent = False
        """It has been sent at least once, so no record can be added."""
        self.is_in_doubt = False
        self.is_done = False
        """Its outcome has been reported. It may still be in flight."""
        self.last_error: KafkaError | None = None
        self._encoded: list[bytes] = []
        self._compressed: bytes | None = None

    @property
    def is_numbered(self) -> bool:
        return self.sequence >= 0

    @property
    def end_sequence(self) -> int:
        """The sequence number of the batch after this one."""
        return add_to_sequence(self.sequence, self.count)

    def append(self, entry: Entry, generation: int, size_max: int) -> bool:
        """False when the record does not fit. The first one always does."""
        _, _, key, value, headers, timestamp, token, cost = entry
        count = self.count
        if not count:
            self.base_timestamp = self.max_timestamp = timestamp
        encoded = encode_record(count, timestamp - self.base_timestamp, key, value, headers)
        size = self.size + len(encoded)
        if count and size > size_max:
            return False
        self._encoded.append(encoded)
        self.tokens.append(token)
        self.size = size
        self.count = count + 1
        self.cost += cost
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        self.generations[generation] = self.generations.get(generation, 0) + 1
        return True

    def extend(self, run: ValueRun, start: int, generation: int, size_max: int) -> int:
        """Takes values of the run, from `start` on, and says how many: all that fit. The first always does."""
        if not self.count:
            self.base_timestamp = self.max_timestamp = run.timestamp
        values = run.values[start:] if start else run.values
        delta = run.timestamp - self.base_timestamp
        parts, taken = encode_values(self.count, delta, values, size_max - self.size)
        if not taken:
            if self.count:
                return 0
            parts, taken = [encode_record(0, 0, None, values[0], ())], 1
        encoded = b"".join(parts)
        self._encoded.append(encoded)
        owner, first, _ = run.token
        self.tokens.append((owner, first + start, taken))
        self.size += len(encoded)
        self.count += taken
        self.cost += run_cost(values[:taken])
        self.max_timestamp = max(self.max_timestamp, run.timestamp)
        self.generations[generation] = self.generations.get(generation, 0) + taken
        return taken

    def encode(self, compression: Compression, *, is_transactional: bool) -> bytes:
        """The bytes to send. The records are compressed once, whatever number they are sent with."""
        if self._compressed is None:
            self._compressed = compress(compression, b"".join(self._encoded))
            self._encoded = []
        return new_batch(
            self.count,
            self.base_timestamp,
            self.max_timestamp,
            self._compressed,
            attributes=compression | TRANSACTIONAL if is_transactional else compression,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            base_sequence=self.sequence,
        )

    def split(self, compression: Compression) -> "tuple[ProducerBatch, ProducerBatch]":
        """Two halves with the sequence numbers that their records have in this batch."""
        records = read_records(self.encode(compression, is_transactional=False))
        middle = self.count // 2
        first, second = (ProducerBatch(self.topic, self.partition, self.created_ms) for _ in range(2))
        generations = [generation for generation, count in self.generations.items() for _ in range(count)]
        share = self.cost // self.count
        costs = [share] * (self.count - 1) + [self.cost - share * (self.count - 1)]
        tokens = list(self._each_token())
        for index, record in enumerate(records):
            entry = Entry(
                self.topic,
                self.partition,
                record.key,
                record.value,
                record.headers,
                record.timestamp,
                tokens[index],
                costs[index],
            )
            (first if index < middle else second).append(entry, generations[index], 2**31)
        for half, sequence in ((first, self.sequence), (second, add_to_sequence(self.sequence, middle))):
            half.identity, half.sequence, half.is_sent = self.identity, sequence, True
            half.last_error = self.last_error
        return first, second

    def _each_token(self) -> Iterator[Any]:
        """One for each record."""
        for token in self.tokens:
            if type(token) is tuple:
                owner, first, count = token
                yield from ((owner, first + index, 1) for index in range(count))
            else:
                yield token


def record_cost(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    cost = RECORD_OVERHEAD
    if key is not None:
        cost += len(key)
    if value is not None:
        cost += len(value)
    for name, content in headers:
        cost += len(name) + len(content or b"")
    return cost


def run_cost(values: list[bytes]) -> int:
    return RECORD_OVERHEAD * len(values) + sum(map(len, values))


def precedes(batch: ProducerBatch, other: ProducerBatch) -> bool:
    """Whether the broker expects `batch` before `other`. Both are numbered, and of the same identity."""
    distance = (other.sequence - batch.sequence) & 0x7FFFFFFF
    return 0 < distance < 2**30
