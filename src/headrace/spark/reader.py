"""The stream reader that Spark talks to: a thin skin. What it does is in `driver.py` and `executor.py`.

Spark makes this object in several processes and pickles it to the executors, so it holds nothing but options until the
first call that only the driver's reader process gets. Each of those processes imports this module, so `driver.py` and
`executor.py` are imported by the calls that need them. `query.stop()` and the end of Trigger.AvailableNow come as
SIGTERM, not as `stop()`; the handler turns it into an orderly exit, which runs `stop()`.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.splitting import Piece, SplitHints, split
from headrace.spark.telling import is_told, plainly

if TYPE_CHECKING:
    from headrace.spark.driver import Driver

logger = logging.getLogger("headrace.spark")


class ShareStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._driver: Driver | None = None
        self._is_available_now = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_driver": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return AcquiredOffset(0, self._options.group).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        most = self._options.records_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._is_available_now = True

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        # Trigger.Once asks for everything there is, whatever maxRecordsPerTrigger says.
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return self._opened().latest(start, records_max, bytes_max)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return None if self._driver is None else self._driver.report()

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        driver = self._opened()
        offset = driver.log(end)
        wishes = SplitHints(
            self._options.partitions_min,
            self._options.records_per_partition,
            cores=os.cpu_count() or 1,
            bytes_per_record=driver.bytes_per_record,
        )
        return [InputPartition(pieces) for pieces in split(offset.batch, offset.topic_ids, wishes)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from headrace.spark.executor import Reading, read_pieces

        pieces: tuple[Piece, ...] = partition.value
        options = self._options
        reading = Reading(
            options.client,
            include_headers=options.include_headers,
            fails_on_data_loss=options.fails_on_data_loss,
            timeout_ms=options.read_timeout_ms,
        )
        return read_pieces(pieces, reading)

    @plainly
    def commit(self, end: dict[str, Any]) -> None:
        self._opened().commit(end)

    def stop(self) -> None:
        driver, self._driver = self._driver, None
        if driver is None:
            return
        try:
            driver.close()
        except Exception:
            if not is_told():  # Spark stops a reader that has failed, and would tell of this error alone
                raise
            logger.warning("The reader could not be closed, either.", exc_info=True)

    def _opened(self) -> "Driver":
        if self._driver is None:
            from headrace.spark.driver import Driver

            _exit_on_sigterm()
            self._driver = Driver(self._options, drain=self._is_available_now)
        return self._driver


def _exit_on_sigterm() -> None:
    """Spark sends SIGTERM twice: the second one must not interrupt what the first one started."""
    if threading.current_thread() is not threading.main_thread():
        return

    def leave(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
