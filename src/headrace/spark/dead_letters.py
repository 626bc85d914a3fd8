"""Copies of rejected records in a dead-letter topic, with where they were and why they were given up in headers.

The first six headers are those of KIP-1191, so `headrace dlq` and tools for a broker's own dead letters read them. The
copy is made by the reader when it settles, before the record is acknowledged: at least one copy, and a second one only
if the process dies between the copies and the note that they are made.

No record stops a query for good. One that is too large for the dead-letter topic is copied without its value (its
headers say where it is), and one that its own topic has lost by now is named in the log of the driver.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing

from headrace.client.cluster import Cluster
from headrace.client.dead_letters import REQUEST_BYTES_MAX
from headrace.client.delivery import AcknowledgeType
from headrace.client.errors import (
    OffsetNotAvailableError,
    RecordTooLargeError,
    UnknownTopicOrPartitionError,
)
from headrace.client.plain_fetch import list_offsets, read_range
from headrace.client.producing.aio import AsyncProducer
from headrace.client.producing.record import RecordMetadata
from headrace.client.settings import ProducerSettings
from headrace.spark.errors import OutcomeError
from headrace.spark.executor import GONE
from headrace.spark.outcomes import EXHAUSTED, Outcome
from headrace.spark.splitting import hulls
from headrace.wire.dead_letter import (
    BATCH_BYTES_MAX,
    READ_BYTES,
    kafka_headers,
    our_headers,
    own_headers,
    without_value,
)
from headrace.wire.enums import OffsetSpec
from headrace.wire.ids import TopicAndPartition
from headrace.wire.records import NewRecord, Record, read_records

logger = logging.getLogger("headrace.spark")


async def require_topic(cluster: Cluster, topic: str) -> None:
    """OutcomeError, with the cure, where there is no such topic."""
    try:
        await list_offsets(
            cluster, {(topic, 0): OffsetSpec.LATEST}
        )  # waits for a leader, if there is none just now
    except UnknownTopicOrPartitionError:
        raise OutcomeError(
            f"deadLetterTopic={topic!r} does not exist. Create it: `headrace topic create {topic}`."
        ) from None


async def copy_rejected(
    cluster: Cluster,
    outcomes: Iterable[Outcome],
    topic: str,
    group: str,
    topic_ids: Mapping[str, str] | None = None,
) -> int:
    """Writes a dead letter for each rejected record that is still in the log; returns how many.

    `topic_ids` are those of the topics that the records were in, which may have been deleted or made again since.
    """
    await require_topic(cluster, topic)
    target = cluster.topic(topic)
    assert target is not None  # its offset was listed
    rejected: dict[TopicAndPartition, list[Outcome]] = {}
    for outcome in sorted(outcomes):
        if outcome.type is AcknowledgeType.REJECT:
            rejected.setdefault(outcome.place, []).append(outcome)
    if not rejected:
        return 0
    gone: set[str] = set()
    count = 0
    settings = ProducerSettings.from_client(
        cluster.settings,
        max_request_size=REQUEST_BYTES_MAX,
        delivery_timeout_ms=cluster.settings.default_api_timeout_ms,
    )
    async with AsyncProducer.of(settings) as producer:
        for place, theirs in rejected.items():
            letters = _Letters(producer, topic, place[1] % len(target.partitions))
            topic_id = (topic_ids or {}).get(place[0])
            async with aclosing(_read(cluster, place, theirs, topic_id, gone)) as found:
                async for record, outcome in found:
                    await letters.add(_letter(record, outcome, group))
                    count += 1
            await letters.finish()
    return count


async def _read(
    cluster: Cluster,
    place: TopicAndPartition,
    outcomes: Sequence[Outcome],
    topic_id: str | None,
    gone: set[str],
) -> AsyncGenerator[tuple[Record, Outcome], None]:
    """The records that sorted outcomes of one partition are about; neighbors and near ones are read in one go.

    `gone` are the topics that were waited for in vain; one that goes that way is added.
    """
    if place[0] in gone:
        logger.warning("Rejected records of %s-%d are not dead-lettered either.", *place)
        return
    for hull in hulls(outcomes):
        first, last = hull[0].first, max(each.last for each in hull)
        matcher = _Matcher(hull)
        while first <= last:
            reading = read_range(cluster, *place, first, last, max_bytes=READ_BYTES, topic_id=topic_id)
            try:
                async with aclosing(reading) as batches:
                    async for _, batch in batches:
                        for record in read_records(batch):
                            outcome = matcher.outcome_of(record.offset)
                            if outcome is not None:
                                yield record, outcome
                break
            except tuple(GONE) as error:
                start = getattr(error, "log_start_offset", -1)
                if start <= first and topic_id is None:
                    raise  # perhaps they are there: without its id nobody knows which topic is meant
                logger.warning(
                    "Rejected records of %s-%d between offsets %d and %d get no dead letter, as far as their topic "
                    "does not have them any more: %s", *place, first, last, error,
                )  # fmt: skip
                if start <= first:
                    if not isinstance(error, OffsetNotAvailableError):
                        gone.add(place[0])
                    return  # what lies behind them is gone, too
                first = start


class _Matcher:
    """Finds the outcome of one record after the other, in order of their offsets."""

    def __init__(self, outcomes: Sequence[Outcome]) -> None:
        """They are sorted. Of those that overlap one counts."""
        self._upcoming = iter(outcomes)
        self._following = next(self._upcoming, None)
        self._current: Outcome | None = None

    def outcome_of(self, offset: int) -> Outcome | None:
        while self._following is not None and self._following.first <= offset:
            if self._current is None or self._following.last > self._current.last:
                self._current = self._following
            self._following = next(self._upcoming, None)
        return self._current if self._current is not None and offset <= self._current.last else None


class _Letters:
    """Letters on their way to one partition."""

    def __init__(self, producer: AsyncProducer, topic: str, partition: int) -> None:
        self._producer = producer
        self._place = topic, partition
        self._sending: list[tuple[NewRecord, asyncio.Future[RecordMetadata]]] = []
        self._bytes = 0

    async def add(self, letter: NewRecord) -> None:
        self._sending.append((letter, await self._send(letter)))
        self._bytes += _size(letter)
        if self._bytes > BATCH_BYTES_MAX:
            await self.finish()

    async def finish(self) -> None:
        """Returns when all are written. One that is too large goes without its value."""
        sending, self._sending, self._bytes = self._sending, [], 0
        if sending:
            await asyncio.wait([future for _, future in sending])
        for letter, future in sending:
            try:
                await future
            except RecordTooLargeError as error:
                smaller = without_value(letter)
                if smaller is None:
                    raise
                logger.warning(
                    "A dead letter is written without the value; its headers have the record's offset: %s",
                    error,
                )
                await (await self._send(smaller))

    async def _send(self, letter: NewRecord) -> "asyncio.Future[RecordMetadata]":
        topic, partition = self._place
        return await self._producer.send_soon(
            topic,
            letter.value,
            key=letter.key,
            headers=letter.headers,
            partition=partition,
            timestamp=letter.timestamp,
        )


def _letter(record: Record, outcome: Outcome, group: str) -> NewRecord:
    reason = outcome.reason or "rejected by a Spark query"
    of_kafka = kafka_headers(*outcome.place, record.offset, group, outcome.delivery_count, reason)
    cause = "exhausted" if outcome.reason.startswith(EXHAUSTED) else "rejected"
    return NewRecord(
        record.key,
        record.value,
        [
            *own_headers(record.headers),
            *of_kafka,
            *our_headers({"cause": cause, "timestamp": record.timestamp}),
        ],
        time.time_ns() // 1_000_000,  # the letter's: with the record's, retention could take it at once
    )


def _size(letter: NewRecord) -> int:
    headers = sum(10 + len(name) + len(value or b"") for name, value in letter.headers)
    return 30 + len(letter.key or b"") + len(letter.value or b"") + headers
