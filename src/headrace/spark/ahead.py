"""Taking ahead: a log of our own beside Spark's, so that records can be accepted before a micro-batch has them.

Theory of operation. Kafka lets a member hold locks on so many records of a partition (2,000 by default), and with
`handoff` a record is accepted when Spark's offset log holds it. So a micro-batch is never larger than the window. With
`maxRecordsAhead` records are accepted as soon as this file durably holds them, while the micro-batch before them still
runs; micro-batches are planned from what is in the file. It is one small file, `share-outcomes/ahead-….json`, replaced
whole: an offset as Spark logs them, with the runs that are accepted and that Spark's log does not hold yet. After a
crash those are taken from it that the last logged offset does not have. A reader has the file for itself: a new one
waits until the old one has closed.
"""

import asyncio
import json
from pathlib import Path
from typing import IO
from uuid import NAMESPACE_URL, uuid5

from headrace.spark.acquirer import Acquirer
from headrace.spark.checkpoint import lock_file
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.outcomes import write_durably
from headrace.spark.runs import RunSet
from headrace.spark.settle import Ledger, Limits

OLD_READER_S = 30.0
"""How long a new reader waits for the old one of the same query to close."""


class Ahead:
    """Moves what is acquired into our own log, then accepts it. On the acquirer's loop, but for `open` and `close`."""

    def __init__(self, options: SourceOptions, ledger: Ledger) -> None:
        folder = options.outcomes_path
        assert folder is not None
        name = uuid5(NAMESPACE_URL, f"{options.group} {','.join(options.topics)}").hex[:16]
        self._path: Path = folder / f"ahead-{name}.json"
        self._options = options
        self._ledger = ledger
        self._writing = asyncio.Lock()
        self._lock: IO[str] | None = None
        self._is_stopped = False
        ledger.takes_ahead = options.records_ahead > 0

    def open(self) -> AcquiredOffset | None:
        """What an earlier life had accepted ahead, if anything."""
        if not self._ledger.takes_ahead and not self._path.exists():
            return None
        self._lock = lock_file(self._path.with_suffix(".lock"), OLD_READER_S)
        if self._lock is None:
            raise CheckpointError(
                f"Another reader has had {self._path} for {OLD_READER_S:g} s. Stop the query that it belongs to; two "
                "sources of one query with maxRecordsAhead need different topics or groups."
            )
        if not self._path.exists():
            return None
        return AcquiredOffset.from_json(json.loads(self._path.read_text("utf-8")))

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
            if room <= 0:
                return False
            runs = self._ledger.begin_taking(Limits(room, self._options.runs_per_trigger, ends.ends))
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
        if self._lock is not None:
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
        await asyncio.to_thread(write_durably, self._path, json.dumps(offset.to_json()))
