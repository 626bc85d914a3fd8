"""What a task does: reads its ranges of offsets by plain Fetch and gives them to Spark as Arrow batches.

A task is not a member of the share group. It reads the same records however often it runs: a retry, a speculative
copy, a second action in foreachBatch, a replay after a crash. Records that are missing from a range because they were
compacted, are control records, or fell to an aborted transaction are just not there; a range that the log has lost
(retention, a deleted topic, a truncated log) fails the task, unless failOnDataLoss is false.

The connection is kept for the next task of the same Python worker. There is no thread: the event loop runs only while
the task waits for records.
"""

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pyarrow as pa

from headrace.client.cluster import Cluster
from headrace.client.errors import (
    OffsetNotAvailableError,
    OffsetOutOfRangeError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from headrace.client.plain_fetch import read_range
from headrace.client.settings import ShareSettings
from headrace.spark.columns import ColumnBuilder
from headrace.spark.errors import DataLossError
from headrace.spark.runs import Run
from headrace.spark.splitting import Piece, hulls
from headrace.wire.batches import BatchHeader

logger = logging.getLogger("headrace.spark")
BYTES_AT_ONCE = 1024 * 1024
_GONE = (OffsetOutOfRangeError, OffsetNotAvailableError, UnknownTopicIdError, UnknownTopicOrPartitionError)
"""Answers that mean: the log does not hold the range. It did when the records were acquired."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read, the same for all tasks of a query."""

    client: ShareSettings
    include_headers: bool
    fails_on_data_loss: bool
    timeout_ms: int


def read_pieces(pieces: tuple[Piece, ...], reading: Reading) -> Iterator[pa.RecordBatch]:
    """The records of a task, partition after partition, in order of their offsets."""
    for piece in pieces:
        builder = ColumnBuilder(
            piece.topic, piece.partition, piece.runs, include_headers=reading.include_headers
        )
        for hull in hulls(piece.runs):
            for header, batch in _read(piece, hull, reading):
                yield from builder.add(header, batch)
        yield from builder.rest()


def _read(piece: Piece, hull: tuple[Run, ...], reading: Reading) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of one stretch of offsets. DataLossError where the log no longer holds it."""
    first, last = hull[0].first, hull[-1].last
    worker = _worker(reading.client)
    timeout_s = reading.timeout_ms / 1000
    batches = read_range(worker.cluster, piece.topic, piece.partition, first, last, topic_id=piece.topic_id)
    try:
        yield from worker.iterate(batches, timeout_s)
    except _GONE as error:
        yield from _after_loss(piece, hull, reading, error)


def _after_loss(
    piece: Piece, hull: tuple[Run, ...], reading: Reading, error: Exception
) -> Iterator[tuple[BatchHeader, memoryview]]:
    first, last = hull[0].first, hull[-1].last
    is_gone = isinstance(error, UnknownTopicOrPartitionError)
    cause = f"topic {piece.topic} is not there." if is_gone else str(error)
    text = (
        f"Offsets {first} to {last} of {piece.topic}-{piece.partition} belong to a micro-batch that Spark has logged, "
        f"but Kafka no longer has them all: {cause} The micro-batch cannot be replayed whole. Keep records for longer "
        "than a query may be down (retention.ms, retention.bytes); to go on without them set failOnDataLoss=false."
    )
    if reading.fails_on_data_loss:
        raise DataLossError(text) from error
    logger.warning("%s It is false: going on.", text)
    start = getattr(error, "log_start_offset", None)
    if start is None or not first < start <= last:
        return
    rest = tuple(run._replace(first=max(run.first, start)) for run in hull if run.last >= start)
    yield from _read(piece, rest, reading)


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
        try:
            while some := self._loop.run_until_complete(asyncio.wait_for(_take(batches), timeout_s)):
                yield from some
        finally:
            self._loop.run_until_complete(batches.aclose())  # type: ignore[attr-defined]

    def close(self) -> None:
        self._loop.run_until_complete(self.cluster.close())
        self._loop.close()


async def _take(
    batches: AsyncIterator[tuple[BatchHeader, memoryview]],
) -> list[tuple[BatchHeader, memoryview]]:
    """The next batches, about as many as one fetch brings; none at the end."""
    taken: list[tuple[BatchHeader, memoryview]] = []
    size = 0
    async for header, batch in batches:
        taken.append((header, batch))
        size += len(batch)
        if size >= BYTES_AT_ONCE:
            break
    return taken


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
    return worker
