"""Dead-letter queues (KIP-1191): what a share group gives up is copied to its DLQ topic, with the cause in headers.

On when `share.version` is 2 and the group names a topic (`errors.deadletterqueue.topic.name`). A record is rejected, or
has used up its deliveries: it goes to ARCHIVING, its copy is appended here and made durable, and only then is it
archived. After a crash in between the copy is written again: a dead letter may be there twice, never not at all.
A topic that may not be written (see `_target`) is said in the log, and the records are archived without a copy, as in
Kafka: the group must not stand still for ever. They are still in their own topic.
"""

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from headrace.broker.later import Later, resolved
from headrace.wire.batches import split
from headrace.wire.errors import KafkaError
from headrace.wire.records import NewRecord, Record, build_batch, read_records

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Partition, Topic
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger("headrace.share")

REJECTED = "Offset rejected by client."
EXHAUSTED = "Offset delivery count exceeded the threshold."
ENABLED = "errors.deadletterqueue.group.enable"
TOPIC_NAME = "errors.deadletterqueue.topic.name"
COPIES = "errors.deadletterqueue.copy.record.enable"
BATCH_BYTES_MAX = 512 * 1024
READ_BYTES = 1 << 20


class DeadLetter(NamedTuple):
    """A run of offsets that is given up, and why."""

    first_offset: int
    last_offset: int
    delivery_count: int
    cause: str


class DeadLetters:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core

    def is_on(self, group_id: str) -> bool:
        return self._core.settings.int("headrace.share.version") >= 2 and bool(self._topic_name(group_id))

    def _topic_name(self, group_id: str) -> str:
        return str(self._core.settings.group_value(group_id, TOPIC_NAME) or "")

    def copy(self, group_id: str, source: "Partition", letters: Sequence[DeadLetter]) -> Later[None]:
        """Resolves when the copies are durable, or at once where none can be written (the log says why)."""
        try:
            target = self._target(group_id, source)
            written = self._append(group_id, source, letters, target)
        except (KafkaError, ValueError) as error:
            spans = ", ".join(f"{letter.first_offset}-{letter.last_offset}" for letter in letters)
            logger.error(
                "group %s: records %s of %s-%d get no dead letter: %s",
                group_id, spans, source.topic.name, source.index, error,
            )  # fmt: skip
            self._core.metrics.count("dead_letter_queue_failed_produce_requests", group=group_id)
            return resolved(None)
        return self._core.durable([written])

    def _target(self, group_id: str, source: "Partition") -> "Partition":
        name = self._topic_name(group_id)
        if name.startswith("__"):
            raise ValueError(f"{name} is the name of an internal topic")
        topic = self._core.topics.get(name)
        if topic is not None and topic.configs.get(ENABLED, "false").lower() != "true":
            raise ValueError(f"topic {name} has {ENABLED}=false; set it to true")
        prefix = self._core.settings.str("errors.deadletterqueue.topic.name.prefix")
        if not name.startswith(prefix):
            raise ValueError(f"{name} does not begin with errors.deadletterqueue.topic.name.prefix={prefix}")
        topic = topic or self._create(name)
        return topic.partitions[source.index % len(topic.partitions)]

    def _create(self, name: str) -> "Topic":
        if not self._core.settings.bool("errors.deadletterqueue.auto.create.topics.enable"):
            raise ValueError(
                f"topic {name} does not exist; create it, or set errors.deadletterqueue.auto.create.topics.enable=true"
            )
        configs = {ENABLED: "true", "message.timestamp.type": "CreateTime"}
        return self._core.topics.create(
            name, partitions=self._core.settings.int("num.partitions"), configs=configs
        )

    def _append(
        self, group_id: str, source: "Partition", letters: Sequence[DeadLetter], target: "Partition"
    ) -> "PartitionLog":
        copies = bool(self._core.settings.group_value(group_id, COPIES))
        now_ms = self._core.clock.wall_ms()
        waiting: list[NewRecord] = []
        size = 0
        for letter in letters:
            originals = dict(_originals(source.log, letter)) if copies else {}
            for offset in range(letter.first_offset, letter.last_offset + 1):
                record = _dead(originals.get(offset), _headers(group_id, source, letter, offset), now_ms)
                weight = 200 + len(record.key or b"") + len(record.value or b"")
                if waiting and size + weight > BATCH_BYTES_MAX:
                    self._write(target, waiting, now_ms)
                    waiting, size = [], 0
                waiting.append(record)
                size += weight
        if waiting:
            self._write(target, waiting, now_ms)
        return target.log

    def _write(self, target: "Partition", records: Sequence[NewRecord], now_ms: int) -> None:
        try:
            target.log.append(build_batch(records), now_ms=now_ms)
        except KafkaError:
            bare = [record._replace(key=None, value=None) for record in records]
            target.log.append(build_batch(bare), now_ms=now_ms)
        self._core.metrics.count("dead_letter_queue_records", len(records), topic=target.topic.name)
        self._core.appended(target)


def _headers(
    group_id: str, source: "Partition", letter: DeadLetter, offset: int
) -> list[tuple[str, bytes | None]]:
    facts = {
        "topic": source.topic.name,
        "partition": source.index,
        "offset": offset,
        "group": group_id,
        "delivery.count": letter.delivery_count,
        "message": letter.cause,
    }
    return [(f"__dlq.errors.{name}", str(value).encode()) for name, value in facts.items()]


def _dead(original: Record | None, headers: list[tuple[str, bytes | None]], now_ms: int) -> NewRecord:
    if original is None:
        return NewRecord(None, None, headers, now_ms)
    return NewRecord(original.key, original.value, [*original.headers, *headers], now_ms)


def _originals(log: "PartitionLog", letter: DeadLetter) -> Iterator[tuple[int, Record]]:
    """The records themselves; those that retention or compaction took are left out."""
    offset = max(letter.first_offset, log.start_offset)
    while offset <= letter.last_offset:
        try:
            read = log.read(offset, max_bytes=READ_BYTES)
        except KafkaError:
            return
        if not read.data:
            return
        for position, header in split(read.data):
            if header.base_offset > letter.last_offset:
                return
            if not header.is_control:
                for record in read_records(read.data[position : position + header.size]):
                    if letter.first_offset <= record.offset <= letter.last_offset:
                        yield record.offset, record
        offset = read.next_offset
