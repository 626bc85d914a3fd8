"""The source with a trap in it: the same code, and at a chosen moment the whole query is killed with SIGKILL.

`kafka-share-killing` is `kafka-share` whose reader kills the process group named in KILL_GROUP when it comes to the
point KILL_AT, written `point@sequence`. With `point@sequence kept` its locks survive it: the reader's process, which
has left that group, is stopped instead of killed, so its connections stay open and the broker misses nobody.

The points, in the order in which a micro-batch passes them:

    acquired    records are acquired and planned; Spark has not logged them
    logged      Spark's offset log holds them; nothing else has happened
    handed_off  the reader has done what it does then (with handoff: sent ACCEPT)
    task        a task has begun to read
    sending     a task of `kafka-headrace-killing` has sent some of its records, not all
    sink        the sink has its effect, Spark has not committed   (in the program, if it is not the one above)
    unsettled   Spark has committed; nothing is acknowledged
    settled     acknowledgements are sent and, as far as there was time, confirmed
"""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from headrace.spark.driver import Driver
from headrace.spark.options import SourceOptions
from headrace.spark.reader import ShareStreamReader
from headrace.spark.sink import KafkaSink, Written
from headrace.spark.source import KafkaShareSource


def die_at(point: str, sequence: int | None = None) -> None:
    """Kills everything if this is the point. A sequence of None matches any."""
    place, _, kept = os.environ.get("KILL_AT", "").partition(" ")
    wanted, _, number = place.partition("@")
    if wanted != point or (sequence is not None and sequence != int(number)):
        return
    reader = int(Path(os.environ["KILL_READER"]).read_text()) if kept else None
    if reader is not None and reader != os.getpid():
        os.kill(reader, signal.SIGSTOP)
    os.killpg(int(os.environ["KILL_GROUP"]), signal.SIGKILL)
    if reader is not None:
        os.kill(reader, signal.SIGSTOP)
    time.sleep(60)  # a task's process is in a group of its own: it dies when its parent is gone


def is_kept() -> bool:
    return os.environ.get("KILL_AT", "").endswith(" kept")


def survive_the_group() -> None:
    """For a reader that is to keep its locks: out of the group, and known to whoever kills it."""
    if is_kept():
        os.setsid()
        Path(os.environ["KILL_READER"]).write_text(str(os.getpid()))


class KillingReader(ShareStreamReader):
    def _opened(self) -> Driver:
        if self._driver is not None:
            return self._driver
        survive_the_group()
        driver = super()._opened()
        settle = driver._settle

        async def settle_or_die(acquirer: Any) -> None:
            sequence = driver._ledger.sequence
            die_at("unsettled", sequence)
            await settle(acquirer)
            die_at("settled", sequence)

        driver._settle = settle_or_die  # type: ignore[method-assign]
        return driver

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        end = super().latestOffset(start, limit)
        claim = self._opened()._claim
        if claim is not None and is_kept():
            claim.close()  # as when its machine is gone: a process that is stopped would keep the name it goes by
        if end != start:
            die_at("acquired", end["seq"])
        return end

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        die_at("logged", end["seq"])
        found = super().partitions(start, end)
        die_at("handed_off", end["seq"])
        return [InputPartition((end["seq"], each.value)) for each in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        sequence, pieces = partition.value
        for batch in super().read(InputPartition(pieces)):
            die_at("task", sequence)
            yield batch


class KillingSource(KafkaShareSource):
    @classmethod
    def name(cls) -> str:
        return "kafka-share-killing"

    def streamReader(self, schema: StructType) -> KillingReader:  # noqa: N802
        return KillingReader(SourceOptions.parse(self.options))


class KillingWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: DataSourceStreamArrowWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = TaskContext.get()
        assert context is not None
        sequence = int(context.getLocalProperty("streaming.sql.batchId") or "0") + 1
        written: Written = self._writer.write(_until(iterator, "sending", sequence))
        die_at("sink", sequence)
        return written


def _until(batches: Iterator[pa.RecordBatch], point: str, sequence: int) -> Iterator[pa.RecordBatch]:
    """The batches; the point is passed when the second one is asked for."""
    for number, batch in enumerate(batches):
        if number == 1:
            die_at(point, sequence)
        yield batch


class KillingSink(KafkaSink):
    @classmethod
    def name(cls) -> str:
        return "kafka-headrace-killing"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KillingWriter:  # noqa: N802
        return KillingWriter(super().streamWriter(schema, overwrite))
