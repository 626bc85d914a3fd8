"""What a task does: reads its ranges of offsets by plain Fetch and gives them to Spark as Arrow batches.

A task is not a member of the share group. It reads the same records however often it runs: a retry, a speculative
copy, a second action in foreachBatch, a replay after a crash. Records that are missing from a range because they were
compacted, are control records, or fell to an aborted transaction are just not there; a range that the log has lost
(`GONE`: retention, a deleted topic, a log that was cut off) fails the task, unless failOnDataLoss is false. Whatever
may pass, or hides the records only from us (no leader, no right to read, no answer), always fails it.

The connection is kept for the next task of the same Python worker. There is no thread: the event loop runs only while
the task waits for records.
"""

import asyncio
import atexit
import gc
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.client.cluster import Cluster
from headrace.client.columns import ColumnBuilder
from headrace.client.errors import (
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.client.plain_fetch import read_range
from headrace.client.settings import ShareSettings
from headrace.spark.errors import DataLossError
from headrace.spark.runs import Run
from headrace.spark.splitting import Piece, hulls
from headrace.wire.batches import BatchHeader
from headrace.wire.errors import KafkaError

logger = logging.getLogger("headrace.spark")
BYTES_AT_ONCE = 1024 * 1024
_DELETED = "A topic must not be deleted while a query has its records to work off"
GONE: dict[type[KafkaError], str] = {
    OffsetOutOfRangeError: "Keep records for longer than a query may be down (retention.ms, retention.bytes)",
    OffsetNotAvailableError: "The log was cut off: a leader was elected that did not have them "
    "(unclean.leader.election.enable), or a broker lost its disk",
    UnknownTopicIdError: _DELETED,
    UnknownTopicOrPartitionError: _DELETED,
}
"""Errors of `read_range`, given the topic's id, that mean: the log does not hold the range any more. And what to do."""

Lost = set[tuple[str, int | None]]
"""Topics (None) and partitions that were found gone: what a task still wants of them is not waited for again."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read, the same for all tasks of a query."""

    client: ShareSettings
    include_headers: bool
    fails_on_data_loss: bool
    timeout_ms: int


def read_pieces(pieces: tuple[Piece, ...], reading: Reading) -> Iterator[pa.RecordBatch]:
    """The records of a task, partition after partition, in order of their offsets."""
    lost: Lost = set()
    for piece in pieces:
        builder = ColumnBuilder(include_headers=reading.include_headers, is_vectorized=True)
        for hull in hulls(piece.runs):
            builder.want(
                piece.topic, piece.partition, hull
            )  # a batch that reaches into two of them is read twice
            for header, batch in _read(piece, hull, reading, lost):
                yield from builder.stream(header, batch)
        yield from builder.rest()


def _read(
    piece: Piece, hull: tuple[Run, ...], reading: Reading, lost: Lost
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of one stretch of offsets. DataLossError where the log no longer holds it."""
    first, last = hull[0].first, hull[-1].last
    where = f"Offsets {first} to {last} of {piece.topic}-{piece.partition}"
    if lost & {(piece.topic, None), (piece.topic, piece.partition)}:
        logger.warning("%s are lost, too.", where)
        return
    worker = _worker(reading.client)
    batches = read_range(
        worker.cluster,
        piece.topic,
        piece.partition,
        first,
        last,
        check_crcs=reading.client.check_crcs,
        topic_id=piece.topic_id,
    )
    try:
        yield from worker.iterate(batches, reading.timeout_ms / 1000)
    except tuple(GONE) as error:
        yield from _after_loss(piece, hull, reading, lost, where, error)
    except KafkaError:
        raise
    except TimeoutError:
        raise TimeoutError(
            f"{where} did not come from {worker.leader(piece)} within {reading.timeout_ms} ms "
            "(kafkaConsumer.pollTimeoutMs). Check that the broker is running and that executors can reach it. With a "
            f"timeout above kafka.default.api.timeout.ms={reading.client.default_api_timeout_ms}, the error says why."
        ) from None


def _after_loss(
    piece: Piece, hull: tuple[Run, ...], reading: Reading, lost: Lost, where: str, error: KafkaError
) -> Iterator[tuple[BatchHeader, memoryview]]:
    cause = error.message or f"topic {piece.topic} is not there"
    text = (
        f"{where} belong to a micro-batch that Spark has logged, but Kafka no longer has them all: {cause}. The "
        f"micro-batch cannot be replayed. {GONE[type(error)]}; to continue without them, set failOnDataLoss=false."
    )
    if reading.fails_on_data_loss:
        raise DataLossError(text) from error
    logger.warning("%s It is false, so the query continues.", text)
    if not isinstance(error, OffsetOutOfRangeError):
        lost.add((piece.topic, piece.partition if isinstance(error, OffsetNotAvailableError) else None))
        return
    start = error.log_start_offset
    rest = tuple(run._replace(first=max(run.first, start)) for run in hull if run.last >= start)
    if rest:
        yield from _read(piece, rest, reading, lost)


class _Worker:
    """A cluster on an event loop of this thread; kept from task to task."""

    def __init__(self, settings: ShareSettings) -> None:
        self.pid = os.getpid()
        self.settings = settings
        self._loop = asyncio.new_event_loop()
        self.cluster = Cluster(settings)
        try:
            self._loop.run_until_complete(self.cluster.start())
        except BaseException:
            self._loop.close()
            raise

    def iterate(
        self, batches: AsyncIterator[tuple[BatchHeader, memoryview]], timeout_s: float
    ) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Runs the loop as long as it takes to get the next batches: several at a time, since a run has its price."""
        taken: list[tuple[BatchHeader, memoryview]] = []
        try:
            while self._loop.run_until_complete(asyncio.wait_for(_take(batches, taken), timeout_s)):
                yield from taken
                taken.clear()
        except KafkaError:
            yield from taken  # they came before the error
            raise
        finally:
            self._loop.run_until_complete(batches.aclose())  # type: ignore[attr-defined]

    def leader(self, piece: Piece) -> str:
        """Who was asked, for people."""
        topic = self.cluster.topic(piece.topic)
        known = topic.partitions.get(piece.partition) if topic is not None else None
        node = self.cluster.nodes.get(known.leader_id) if known is not None else None
        if node is None:
            return f"{piece.topic}'s brokers"
        return f"broker {node.node_id} at {node.address}"

    def close(self) -> None:
        atexit.unregister(self.close)
        if self.pid == os.getpid() and not self._loop.is_closed():
            self._loop.run_until_complete(self.cluster.close())
            self._loop.close()


async def _take(
    batches: AsyncIterator[tuple[BatchHeader, memoryview]], taken: list[tuple[BatchHeader, memoryview]]
) -> bool:
    """Appends the next batches, about as many as one fetch brings; whether there were any."""
    size = 0
    async for header, batch in batches:
        taken.append((header, batch))
        size += len(batch)
        if size >= BYTES_AT_ONCE:
            break
    return bool(taken)


_frozen_pid = 0


def _freeze_imports() -> None:
    """What the imports made lives as long as this process: the collection after each task passes it over.

    Once, since what is garbage in this moment is never found any more.
    """
    global _frozen_pid
    if _frozen_pid != os.getpid():
        _frozen_pid = os.getpid()
        gc.freeze()


_kept = threading.local()
"""The worker of this thread: a Python worker of Spark runs one task after the other."""


def _worker(settings: ShareSettings) -> _Worker:
    worker: _Worker | None = getattr(_kept, "worker", None)
    if worker is not None and worker.pid == os.getpid() and worker.settings == settings:
        return worker
    if worker is not None and worker.pid == os.getpid():
        worker.close()
    _kept.worker = None
    _kept.worker = worker = _Worker(settings)
    atexit.register(worker.close)
    _freeze_imports()  # now, when a connection has been made, all of them have run
    return worker
