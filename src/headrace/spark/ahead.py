"""Taking ahead: a log of our own beside Spark's, so that records can be accepted before a micro-batch has them.

Theory of operation. Kafka lets a member hold locks on so many records of a partition (2,000 by default), and with
`handoff` a record is accepted when Spark's offset log holds it. So a micro-batch is never larger than the window. With
`maxRecordsAhead` records are accepted as soon as this file durably holds them, while the micro-batch before them still
runs; micro-batches are planned from what is in the file. It is one small file, `share-outcomes/ahead-<member id>.json`,
replaced whole: an offset as Spark logs them, with the runs that are accepted and that Spark's log does not hold yet.
After a crash those are taken from it that the last logged offset does not have. A reader has the file for itself: a new
one waits until the old one has closed.
"""

import asyncio
import contextlib
import json
import logging
from pathlib import Path
from typing import IO

from headrace.spark import checkpoint
from headrace.spark.acquirer import Acquirer
from headrace.spark.checkpoint import ahead_path, lock_file, sync_folders
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import Accepted, AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.outcomes import write_durably
from headrace.spark.runs import RunSet
from headrace.spark.settle import Ledger, Limits

logger = logging.getLogger("headrace.spark")


class Ahead:
    """Moves what is acquired into our own log, then accepts it. On the acquirer's loop, but for `open` and `close`."""

    def __init__(self, options: SourceOptions, ledger: Ledger) -> None:
        self._options = options
        self._ledger = ledger
        self._path: Path | None = None
        self._writing = asyncio.Lock()
        self._lock: IO[str] | None = None
        self._is_stopped = False
        ledger.takes_ahead = options.records_ahead > 0

    def open(self, folder: Path, member_id: str, before: AcquiredOffset) -> AcquiredOffset | None:
        """What an earlier life of this reader had accepted ahead, if anything; `before` is Spark's last offset."""
        path = ahead_path(folder, member_id)
        if not self._ledger.takes_ahead and not path.exists() and before.accepted is not Accepted.AHEAD:
            return None
        try:
            self._lock = lock_file(path.with_suffix(".lock"), checkpoint.OLD_READER_S)
            if self._lock is None:
                raise CheckpointError(
                    f"Another reader has had {path} for {checkpoint.OLD_READER_S:g} s. Stop the query that it belongs "
                    "to."
                )
        except OSError as error:
            logger.warning("%s cannot be locked (%s): do not start this query twice.", path, error)
        self._path = path
        sync_folders(folder)
        if path.exists():
            return AcquiredOffset.from_json(json.loads(path.read_text("utf-8")))
        if before.accepted is Accepted.AHEAD and self._options.fails_on_data_loss:
            self.close()
            raise CheckpointError(
                f"{path} is not there any more. It held the records that this query had accepted and Spark had not "
                "logged. Put it back, or set failOnDataLoss=false to go on without them."
            )
        return None

    def require_all_opened(self, folder: Path) -> None:
        """When every source of the query has begun: no log is left of one that the query does not have any more."""
        for path in folder.glob("ahead-*.json"):
            left = AcquiredOffset.from_json(json.loads(path.read_text("utf-8")))
            if path == self._path or left.group != self._options.group or not left.batch:
                continue
            with contextlib.suppress(OSError):
                lock = lock_file(path.with_suffix(".lock"))
                if lock is None:
                    continue  # another source's
                lock.close()
            if self._options.fails_on_data_loss:
                raise CheckpointError(
                    f"{path} has {left.batch.record_count} records of {', '.join(sorted(left.topic_ids))} that a "
                    "source of this query accepted ahead, and the query has no such source any more. Start it with the "
                    "`subscribe` that it had, or set failOnDataLoss=false to go on without them."
                )
            logger.warning("%s is not used any more, and its records are lost.", path)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.close()

    async def run(self, acquirer: Acquirer, ends: Limits) -> None:
        """Takes what arrives, as long as there is room, until `stop`."""
        while not self._is_stopped:
            await acquirer.arrived.wait()
            acquirer.arrived.clear()
            while not self._is_stopped and await self._take(acquirer, ends):
                pass

    def stop(self, acquirer: Acquirer) -> None:
        """Not by cancelling: what is being written is written, and then it is accepted."""
        self._is_stopped = True
        acquirer.arrived.set()

    async def _take(self, acquirer: Acquirer, ends: Limits) -> bool:
        async with self._writing:
            room = self._options.records_ahead - self._ledger.taken.record_count
            runs_room = self._options.runs_per_trigger - self._ledger.taken.run_count
            if room <= 0 or runs_room <= 0:
                return False
            runs = self._ledger.begin_taking(Limits(room, runs_room, ends.ends))
            if not runs:
                return False
            try:
                await self._write(acquirer, runs)
            except BaseException:
                self._ledger.not_taken()
                raise
            acquirer.acknowledge(self._ledger.taken_over(runs))
            acquirer.tell()
            return True

    async def logged(self, acquirer: Acquirer) -> None:
        """Spark's offset log holds the planned micro-batch: our own need not any more, and has room again."""
        if self._path is not None:
            async with self._writing:
                await self._write(acquirer)
            acquirer.arrived.set()

    async def _write(self, acquirer: Acquirer, more: RunSet | None = None) -> None:
        runs = self._ledger.ahead().replaced_by(more or RunSet())
        topics = {topic for topic, _ in runs.places}
        offset = AcquiredOffset(
            self._ledger.sequence,
            self._options.group,
            acquirer.member_id,
            {topic: acquirer.topic_ids[topic] for topic in topics},
            runs,
        )
        assert self._path is not None
        writing = asyncio.ensure_future(
            asyncio.to_thread(write_durably, self._path, json.dumps(offset.to_json()))
        )
        try:
            await asyncio.shield(writing)
        finally:
            await asyncio.wait(
                [writing]
            )  # a thread cannot be cancelled: nobody else may write before it is done
