"""Dead-letter queues (KIP-1191): what a share group gives up is copied to its DLQ topic, with the cause in headers.

On when `share.version` is 2 and the group names a topic (`errors.deadletterqueue.topic.name`). A record is rejected, or
has used up its deliveries: it goes to ARCHIVING, its copy is appended here and made durable, and only then is it
archived. After a crash in between the copy is written again: a dead letter may be there twice, never not at all.
A topic that may not be written (see `_target`) is said in the log, and the records are archived without a copy, as in
Kafka: the group must not stand still for ever. They are still in their own topic. A disk that takes nothing is no such
reason: the copy is tried again until it does.

The records are read in one pass over their log, each batch opened once, and copied a bounded piece a turn. A compressed
batch that turns out to be large is unpacked on the slow thread.
"""

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.base.backoff import RetryBackoff
from headrace.broker.later import Later
from headrace.broker.slices import Steps
from headrace.share.states import RecordState
from headrace.wire.batches import read_header, split
from headrace.wire.compression import TooLarge
from headrace.wire.dead_letter import BATCH_BYTES_MAX, KAFKA_NAMES, READ_BYTES, kafka_headers
from headrace.wire.error_groups import TOO_LARGE
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import NewRecord, Record, build_batch, read_chunks, unpack

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Partition, Topic
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger("headrace.share")

ARCHIVING = RecordState.ARCHIVING
REJECTED = "Offset rejected by client."
EXHAUSTED = "Offset delivery count exceeded the threshold."
ENABLED = "errors.deadletterqueue.group.enable"
TOPIC_NAME = "errors.deadletterqueue.topic.name"
COPIES = "errors.deadletterqueue.copy.record.enable"
RECORDS_PER_STEP = 1000
"""Records that are copied, or passed over on the way to the next one, in one turn of the loop."""
STEP_BYTES_MAX = 2 << 20
"""Bytes that are copied in one turn of the loop, give or take a batch."""
UNPACKED_ON_LOOP_MAX = 1 << 20
"""More than that is unpacked on the slow thread."""
RETRY_MS, RETRY_MS_MAX = 1_000, 30_000


class DeadLetterRange(NamedTuple):
    """A run of offsets that is given up, and why."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str


class _NoTarget(Exception):
    """The group's dead letters may not be written where it wants them. Says why."""


class DeadLetters:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        core.timers.at(core.clock.monotonic_ms(), self._resume)

    def _resume(self) -> None:
        """What a crash has interrupted does not wait until somebody fetches from that share-partition again."""
        leader, store = self._core.share_leader, self._core.share_state
        for key in list(store.keys()):
            state = store.get(key)
            if state is None or all(batch.state is not ARCHIVING for batch in state.merged()):
                continue
            try:
                leader.unload_if_idle(leader.load(key.group_id, (key.topic_id, key.partition)))
            except KafkaError as error:
                logger.warning("%s: its dead letters are delayed: %s", key, error)

    def is_on(self, group_id: str) -> bool:
        return self._core.features.has_dead_letter_queues and bool(self._topic_name(group_id))

    def _topic_name(self, group_id: str) -> str:
        return str(self._core.settings.group_value(group_id, TOPIC_NAME) or "")

    def copy(self, group_id: str, source: "Partition", letters: Sequence[DeadLetterRange]) -> Later[None]:
        """Resolves when the copies are durable, or at once where none can be written (the log says why)."""
        copied: Later[None] = Later()
        attempt = _Attempt(self._pieces(group_id, source, letters))

        def copy_on() -> Steps:
            """Until everything is written, or until a timer or the slow thread calls it again."""
            try:
                target = attempt.target
                if target is None:
                    target = attempt.target = self._target(group_id, source)
                piece = attempt.next_piece()
                while piece is not None:
                    if isinstance(piece, _Packed):
                        self._core.run_slow(piece.unpack, lambda _: self._core.slices.run(copy_on()))
                        return
                    self._write(group_id, target, piece.records)
                    is_enough = piece.ends_step
                    piece = attempt.next_piece()
                    if is_enough and piece is not None:
                        yield
            except (KafkaError, _NoTarget) as error:
                if isinstance(error, KafkaError) and attempt.may_succeed_after(error):
                    self._core.note_refused_write(error)
                    deadline_ms = self._core.clock.monotonic_ms() + attempt.wait_ms()
                    self._core.timers.at(deadline_ms, lambda: self._core.slices.run(copy_on()))
                    return
                self._give_up(group_id, source, letters, error)
                copied.resolve(None)
                return
            self._core.durable([target.log]).then(copied.resolve)

        self._core.slices.run(copy_on())
        return copied

    def _give_up(
        self, group_id: str, source: "Partition", letters: Sequence[DeadLetterRange], error: Exception
    ) -> None:
        spans = ", ".join(f"{letter.first_offset}-{letter.last_offset}" for letter in letters)
        logger.error(
            "group %s: records %s of %s-%d get no dead letter: %s",
            group_id, spans, source.topic.name, source.index, error,
        )  # fmt: skip
        self._core.metrics.count("DeadLetterQueueFailedProduceRequestsPerSec", group=group_id)

    def _target(self, group_id: str, source: "Partition") -> "Partition":
        name = self._topic_name(group_id)
        if name.startswith("__"):
            raise _NoTarget(f"{name} is the name of an internal topic")
        topic = self._core.topics.get(name)
        if topic is not None and topic.configs.get(ENABLED, "false").lower() != "true":
            raise _NoTarget(f"topic {name} has {ENABLED}=false; set it to true")
        prefix = self._core.settings.get_str("errors.deadletterqueue.topic.name.prefix")
        if not name.startswith(prefix):
            raise _NoTarget(f"{name} does not begin with errors.deadletterqueue.topic.name.prefix={prefix}")
        topic = topic or self._create(name)
        return topic.partitions[source.index % len(topic.partitions)]

    def _create(self, name: str) -> "Topic":
        if not self._core.settings.get_bool("errors.deadletterqueue.auto.create.topics.enable"):
            raise _NoTarget(
                f"topic {name} does not exist; create it, or set errors.deadletterqueue.auto.create.topics.enable=true"
            )
        configs = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
        return self._core.topics.create(
            name, partitions=self._core.settings.get_int("num.partitions"), configs=configs
        )

    def _pieces(
        self, group_id: str, source: "Partition", letters: Sequence[DeadLetterRange]
    ) -> "Iterator[_Piece]":
        """The dead letters in batches of bearable size, read from the source as they are asked for."""
        copies = self._core.settings.group_bool(group_id, COPIES)
        now_ms = self._core.clock.wall_ms()
        waiting: list[NewRecord] = []
        size = passed = written = 0
        ordered = sorted(letters)
        for item in _originals(source.log, ordered) if copies else _none(ordered):
            if isinstance(item, _Packed):
                yield item
                continue
            letter, offset, original = item
            passed += 1
            if passed > RECORDS_PER_STEP:
                yield _Batch(waiting, ends_step=True)
                waiting, size, passed, written = [], 0, 1, 0
            if letter is None:
                continue
            record = _dead(original, _headers(group_id, source, letter, offset), now_ms)
            weight = _weight(record)
            if waiting and size + weight > BATCH_BYTES_MAX:
                written += size
                yield _Batch(waiting, ends_step=written > STEP_BYTES_MAX)
                if written > STEP_BYTES_MAX:
                    passed, written = 1, 0
                waiting, size = [], 0
            waiting.append(record)
            size += weight
        if waiting:
            yield _Batch(waiting, ends_step=True)

    def _write(self, group_id: str, target: "Partition", records: Sequence[NewRecord]) -> None:
        """One batch; where the topic takes only smaller ones, several, and at worst a record without its content."""
        if not records:
            return
        self._core.require_working()
        self._core.metrics.count("DeadLetterQueueTotalProduceRequestsPerSec", group=group_id)
        try:
            target.log.append(build_batch(records), now_ms=self._core.clock.wall_ms())
        except KafkaError as error:
            if error.code not in TOO_LARGE:
                raise
            smaller = _smaller(records)
            if not smaller:
                raise
            for part in smaller:
                self._write(group_id, target, part)
            return
        self._core.metrics.count("DeadLetterQueueRecordCount", len(records), group=group_id)
        self._core.appended(target)


class _Packed:
    """A batch that is too large to be unpacked on the loop."""

    def __init__(self, log: "PartitionLog", batch: bytes) -> None:
        self._log = log
        self._batch = batch
        self.plain: bytes | None = None
        """None if it cannot be read."""

    def unpack(self) -> None:
        self.plain = _unpacked(self._log, self._batch, None)


class _Batch(NamedTuple):
    records: Sequence[NewRecord]
    ends_step: bool
    """Enough was done for one turn of the loop."""


_Piece = _Batch | _Packed


class _Attempt:
    """Pieces on their way to a topic; the one that was refused comes first when it is tried again."""

    def __init__(self, pieces: Iterator[_Piece]) -> None:
        self.target: Partition | None = None
        """None: the topic has not been found, nor made."""
        self._pieces = pieces
        self._last: _Piece | None = None
        self._is_refused = False
        self._waits = RetryBackoff(RETRY_MS, RETRY_MS_MAX, _no_jitter)

    def wait_ms(self) -> int:
        """How long to wait before the next attempt."""
        return self._waits.after_failure()

    def next_piece(self) -> _Piece | None:
        if not self._is_refused:
            self._last = next(self._pieces, None)
        self._is_refused = False
        return self._last

    def may_succeed_after(self, error: KafkaError) -> bool:
        """A full disk may have room later; the records wait in ARCHIVING for that. A damaged log is lost."""
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            return False
        if self.target is None:
            return True
        log = self.target.log
        self._is_refused = log.damage is None and not log.is_deleted
        return self._is_refused


def _no_jitter() -> float:
    """All attempts are this broker's own, so nothing else could fall into step with them."""
    return 0.5


def _smaller(records: Sequence[NewRecord]) -> list[Sequence[NewRecord]]:
    """The same in two halves; of a single record only the headers that say what it was; nothing if it is that."""
    if len(records) > 1:
        middle = len(records) // 2
        return [records[:middle], records[middle:]]
    (record,) = records
    bare = record._replace(key=None, value=None, headers=record.headers[-len(KAFKA_NAMES) :])
    return [[bare]] if bare != record else []


def _weight(record: NewRecord) -> int:
    headers = sum(len(name) + len(value or b"") + 10 for name, value in record.headers)
    return 20 + headers + len(record.key or b"") + len(record.value or b"")


def _headers(
    group_id: str, source: "Partition", letter: DeadLetterRange, offset: int
) -> list[tuple[str, bytes | None]]:
    return kafka_headers(
        source.topic.name, source.index, offset, group_id, letter.delivery_count, letter.cause
    )


def _dead(original: Record | None, headers: list[tuple[str, bytes | None]], now_ms: int) -> NewRecord:
    if original is None:
        return NewRecord(None, None, headers, now_ms)
    return NewRecord(original.key, original.value, [*original.headers, *headers], now_ms)


_Item = tuple[DeadLetterRange | None, int, Record | None]
"""A dead letter, its offset and its record; or an offset that was only passed over."""


def _none(letters: Sequence[DeadLetterRange]) -> Iterator[_Item]:
    for letter in letters:
        for offset in range(letter.first_offset, letter.last_offset + 1):
            yield letter, offset, None


def _originals(log: "PartitionLog", letters: Sequence[DeadLetterRange]) -> Iterator[_Item | _Packed]:
    """Every offset with its record; None for those that retention or compaction took, or that cannot be read.

    The letters come in the order of their offsets, so that one pass over the log finds them all.
    """
    records = _Reader(log)
    for letter in letters:
        due = letter.first_offset
        for found in records.read(letter.first_offset, letter.last_offset):
            if isinstance(found, _Packed):
                yield found
                continue
            if found.offset < max(letter.first_offset, log.start_offset):
                yield None, found.offset, None
                continue
            for offset in range(due, found.offset):
                yield letter, offset, None
            yield letter, found.offset, found
            due = found.offset + 1
        for offset in range(due, letter.last_offset + 1):
            yield letter, offset, None


class _Reader:
    """Reads records of growing offsets; each batch is read and opened once."""

    def __init__(self, log: "PartitionLog") -> None:
        self._log = log
        self._offset = 0
        """What comes after the batches that were read."""
        self._batches: deque[bytes] = deque()
        self._records: Iterator[Record] = iter(())
        self._ahead: Record | None = None

    def read(self, first: int, last: int) -> Iterator[Record | _Packed]:
        """Records up to `last`, perhaps with some before `first`: whoever goes through a batch passes them."""
        while True:
            if self._ahead is None:
                self._ahead = next(self._records, None)
            if self._ahead is not None:
                if self._ahead.offset > last:
                    return
                record, self._ahead = self._ahead, None
                yield record
            elif not self._batches:
                if not self._read_batches(first, last):
                    return
            else:
                header = read_header(self._batches[0])
                if header.base_offset > last:
                    return
                batch = self._batches.popleft()
                if header.is_control or header.last_offset < first:
                    continue
                plain: bytes | None
                try:
                    plain = _unpacked(self._log, batch, UNPACKED_ON_LOOP_MAX)
                except TooLarge:
                    packed = _Packed(self._log, batch)
                    yield packed
                    plain = packed.plain
                self._records = _records(self._log, plain)

    def _read_batches(self, first: int, last: int) -> bool:
        offset = max(self._offset, first, self._log.start_offset)
        if offset > last:
            return False
        try:
            read = self._log.reader.read(offset, max_bytes=READ_BYTES)
        except KafkaError as error:
            logger.warning(
                "%s: dead letters from offset %d on have no content: %s", self._log.name, offset, error
            )
            return False
        self._offset = max(offset + 1, read.next_offset)
        for position, header in split(read.data):
            self._batches.append(read.data[position : position + header.size])
        return bool(read.data)


def _unpacked(log: "PartitionLog", batch: bytes, limit: int | None) -> bytes | None:
    """The broker does not open what it is given, so a batch may hold anything."""
    try:
        return unpack(batch, limit=limit)
    except KafkaError as error:
        if isinstance(error, TooLarge) and limit is not None:
            raise
        _warn_unreadable(log, error)
        return None


def _records(log: "PartitionLog", plain: bytes | None) -> Iterator[Record]:
    if plain is None:
        return
    try:
        for chunk in read_chunks(plain):
            yield from chunk
    except KafkaError as error:
        _warn_unreadable(log, error)


def _warn_unreadable(log: "PartitionLog", error: KafkaError) -> None:
    logger.warning("%s: dead letters of an unreadable batch have no content: %s", log.name, error)
