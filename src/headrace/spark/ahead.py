"""Taking ahead: a log of our own beside Spark's, so that records can be accepted before a micro-batch has them.

Theory of operation. Kafka lets a member hold locks on so many records of a partition (2,000 by default), and with
`handoff` a record is accepted when Spark's offset log holds it. So a micro-batch is never larger than the window. With
`maxRecordsAhead` records are accepted as soon as a note durably holds them, while the micro-batch before them still
runs; micro-batches are planned from what is in the note. It is small and replaced whole (`ahead_notes.py`): an offset
as Spark logs them, with the runs that are accepted and that Spark's log does not hold yet ("b": of the micro-batch that
is planned; "l": of none). After a crash those are taken from it that the last logged offset does not have, and it is
written anew before anything is planned. A reader has the note for itself.

Without `maxRecordsAhead` a reader begins with this when the window bounds a query that could do more: when a
micro-batch had a good part of the window and took less than half of AHEAD_S (or, with Trigger.ProcessingTime, of the
time between two triggers). It then accepts ahead what the query processes in that time. So a query that is slow, or
has little to do, keeps nothing from the other members of its group. It begins after a micro-batch because then Spark's
log has the member id, which names the note.
"""

import asyncio
import logging

from headrace.spark.acquirer import Acquirer
from headrace.spark.ahead_notes import AheadNotes, left_behind, notes_of
from headrace.spark.checkpoint import ahead_path
from headrace.spark.errors import CheckpointError
from headrace.spark.locations import Location
from headrace.spark.offset import Accepted, AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.runs import RunSet
from headrace.spark.settle import BatchLimits, Ledger, OwnLog, same_delivery

logger = logging.getLogger("headrace.spark")
AHEAD_S = 5.0
AHEAD_MIN = 5_000
AHEAD_MAX = 1_000_000
WINDOW_PARTS = 2
"""The window bounds a micro-batch that has this part of it, or more."""


class Ahead:
    """Moves what is acquired into our own log, then accepts it. On the acquirer's loop, but for `open` and `close`."""

    def __init__(self, options: SourceOptions, ledger: Ledger) -> None:
        self._options = options
        self._ledger = ledger
        self._notes: AheadNotes | None = None
        self._member_id: str | None = None
        self._writing = asyncio.Lock()
        self._is_stopped = False
        self._is_alone = False
        """It is known that no source of this query has left records behind."""
        self._by_pace = 0
        """What to accept ahead where no option says it: 0 for none."""
        ledger.takes_ahead = bool(options.records_ahead)

    @property
    def limit(self) -> int:
        """How many records to have accepted that no micro-batch has."""
        options = self._options
        if options.records_ahead is not None:
            return options.records_ahead
        per_trigger = options.records_per_trigger
        bounds = (self._by_pace, options.records_held, None if per_trigger is None else 2 * per_trigger)
        return min(bound for bound in bounds if bound is not None)

    def ran(self, count: int, took_ms: int, between_ms: int, window: int) -> None:
        """A micro-batch of so many records took so long; `between_ms` is from its trigger to the next."""
        time_ms = max(int(1000 * AHEAD_S), between_ms)
        if WINDOW_PARTS * count >= window and 2 * took_ms <= time_ms:
            by_pace = max(self._by_pace, AHEAD_MIN, count * time_ms // max(took_ms, 1))
            self._by_pace = min(by_pace, AHEAD_MAX)

    @property
    def is_due(self) -> bool:
        """It is time to begin."""
        return self._options.takes_ahead and not self._ledger.takes_ahead and self._by_pace > 0

    def begin(self, folder: Location, logged: AcquiredOffset) -> None:
        """Spark's log holds this offset, with the reader's member id."""
        if self._notes is None:
            notes = notes_of(folder, logged.member)
            if notes.open() is not None:
                notes.close()
                raise CheckpointError(
                    f"{notes.where} was written while this query ran. Check whether the query runs twice, and start it "
                    "again."
                )
            self._notes, self._member_id = notes, logged.member
        self._ledger.takes_ahead = True
        logger.info("Records are accepted ahead of micro-batches, %d at most.", self.limit)

    def open(self, folder: Location, member_id: str, before: AcquiredOffset) -> AcquiredOffset | None:
        """What an earlier life of this reader had accepted ahead, if anything; `before` is Spark's last offset."""
        notes = notes_of(folder, member_id)
        if not self._ledger.takes_ahead and before.accepted is not Accepted.AHEAD and not notes.exists():
            return None
        self._notes, self._member_id = notes, member_id
        found = notes.open()
        if found is not None:
            return AcquiredOffset.from_json(found)
        if before.accepted is Accepted.AHEAD and self._options.fails_on_data_loss:
            self.close()
            raise CheckpointError(
                f"{ahead_path(folder, member_id)} is missing. It had the records that this query had "
                "accepted and Spark had not logged. Restore it, or set failOnDataLoss=false to continue without them."
            )
        return None

    def recover(self, offset: AcquiredOffset, note: AcquiredOffset) -> dict[str, str]:
        """Takes back what was accepted ahead. Returns the topics' ids.

        Where a topic was deleted and made again, one of the two is about the topic that is gone: the older one. A note
        has the number of the offset that was planned last when it was written.
        """
        own = _own_log_in(note, offset)
        remade = {topic for topic, id in note.topic_ids.items() if offset.topic_ids.get(topic, id) != id}
        if note.sequence < offset.sequence:
            taken = own.taken.only(place for place in own.taken.places if place[0] not in remade)
            self._ledger.recover_taken(OwnLog(own.sequence, own.planned, taken))
            return {**note.topic_ids, **offset.topic_ids}
        for topic in remade:
            self._ledger.forget(topic)
        self._ledger.recover_taken(own)
        return {**offset.topic_ids, **note.topic_ids}

    def require_all_opened(self) -> None:
        """Once, when Spark has called every source of the query: no note is left of one that it no longer has."""
        folder = self._options.outcomes_path
        if self._is_alone or folder is None:
            return
        for where, found in left_behind(folder, self._member_id):
            left = AcquiredOffset.from_json(found)
            count = left.batch.record_count + left.later.record_count
            if left.group != self._options.group or not count:
                continue
            if self._options.fails_on_data_loss:
                raise CheckpointError(
                    f"{where} has {count} records of {', '.join(sorted(left.topic_ids))} that a "
                    "source of this query accepted ahead, and the query no longer has that source. Start it with the "
                    "`subscribe` that it had, or set failOnDataLoss=false to continue without them."
                )
            logger.warning("%s is no longer used, and its records are lost.", where)
        self._is_alone = True

    def close(self) -> None:
        if self._notes is not None:
            self._notes.close()

    async def run(self, acquirer: Acquirer, ends: BatchLimits) -> None:
        """Takes what arrives, as long as there is room, until `stop`."""
        while not self._is_stopped:
            await acquirer.arrived.wait()
            acquirer.arrived.clear()
            while not self._is_stopped and await self._take(acquirer, ends):
                pass

    def stop(self, acquirer: Acquirer) -> None:
        """Not by canceling: what is being written is written, and then it is accepted."""
        self._is_stopped = True
        acquirer.arrived.set()

    async def _take(self, acquirer: Acquirer, ends: BatchLimits) -> bool:
        async with self._writing:
            room = self.limit - self._ledger.taken.record_count
            runs_room = self._options.runs_per_trigger - self._ledger.taken.run_count
            if room <= 0 or runs_room <= 0:
                return False
            runs = self._ledger.begin_taking(BatchLimits(room, runs_room, ends.ends))
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

    async def write_anew(self, acquirer: Acquirer) -> None:
        """Spark's offset log holds the planned micro-batch: our own need not any more, and has room again.

        Or what it holds is of a topic that is gone, or of an earlier life.
        """
        if self._notes is not None:
            async with self._writing:
                await self._write(acquirer)
            acquirer.arrived.set()

    async def _write(self, acquirer: Acquirer, more: RunSet | None = None) -> None:
        own = self._ledger.own_log(more)
        topics = {topic for topic, _ in (*own.planned.places, *own.taken.places)}
        offset = AcquiredOffset(
            own.sequence,
            self._options.group,
            acquirer.member_id,
            {topic: acquirer.topic_ids[topic] for topic in topics},
            own.planned,
            accepted=Accepted.AHEAD,
            later=own.taken,
        )
        assert self._notes is not None
        writing = asyncio.ensure_future(asyncio.to_thread(self._notes.write, offset.to_json()))
        try:
            await asyncio.shield(writing)
        finally:
            await asyncio.wait(
                [writing]
            )  # a thread cannot be canceled: nobody else may write before it is done


def _own_log_in(note: AcquiredOffset, logged: AcquiredOffset) -> OwnLog:
    """What a note says; `logged` is Spark's last offset.

    Earlier versions did not write down which records were planned. Those that the last offset has are told by their
    delivery count, which is the same after a reset of the group.
    """
    if note.accepted is Accepted.AHEAD:
        return OwnLog(note.sequence, note.batch, note.later)
    taken = note.batch.minus(same_delivery(note.batch, logged.batch)).minus(logged.later)
    return OwnLog(note.sequence, RunSet(), taken)
