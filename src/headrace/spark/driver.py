"""The driver's half of the source: answers Spark's calls. Made when the first one comes, never pickled.

Theory of operation (the order of Spark's calls is in docs/concepts/spark-guarantees.md).

    latest(start)      Spark has committed the micro-batch that ends at `start`: settle it, then plan the next one
    log(end)           Spark's offset log holds the micro-batch that ends at `end`: with handoff, accept it now
    commit(end)        comes when the next micro-batch is in the offset log, before its `log`; never with asynchronous
                       progress tracking, and for the last one; the same step as in `latest`, if that was not done.
                       If this source has nothing in the next micro-batch, another one of the query has
    (a look)           where the checkpoint is known, its commit log is looked at while the micro-batch runs: the next
                       call may come a long time after the commit
    close()            gives back what no micro-batch has; may never be called

After a restart the first call brings the offset that the ledger recovers from, and the member id to take back: by
`latest` a committed one, by `log` one that Spark replays.
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import IO, Any, TypeVar
from uuid import NAMESPACE_URL, uuid4, uuid5

from headrace.base.settings import INT_MAX
from headrace.client.background import BackgroundLoop
from headrace.client.delivery import AcknowledgeType
from headrace.client.member import now_ms
from headrace.spark.acquirer import MORE_PART, MORE_S, MORE_S_MAX, Acquirer
from headrace.spark.ahead import Ahead
from headrace.spark.checkpoint import (
    CURE,
    LogSync,
    claim,
    commit_of,
    require_committed,
    require_logged,
    require_own,
)
from headrace.spark.errors import CheckpointError, OutcomeError
from headrace.spark.isolation import Isolation
from headrace.spark.locations import Location, ObjectPath
from headrace.spark.matching import match
from headrace.spark.offset import Accepted, AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.outcomes import EXHAUSTED, Outcome, OutcomeLog, to_runs
from headrace.spark.settle import BatchLimits, BatchStage, Ledger
from headrace.wire.ids import uuid_text

logger = logging.getLogger("headrace.spark")
T = TypeVar("T")
COMMIT_POLL_S = 0.1
"""How often Spark's commit log is read while a micro-batch runs."""
STORE_POLL_S = 1.0
"""And in an object store, where each read is a request that costs."""


class Driver:
    """One running query's source. All methods are called by Spark's one thread."""

    def __init__(self, options: SourceOptions, *, drain: bool = False) -> None:
        """`drain` is Trigger.AvailableNow: go as far as the topics reach when the first call comes, and no further."""
        self._options = options
        self._loop = BackgroundLoop("kafka-share")
        self._ledger = Ledger(options.acknowledge)
        self._acquirer: Acquirer | None = None
        self._outcomes: OutcomeLog | None = None
        self._ahead = Ahead(options, self._ledger)
        self._isolation = Isolation(options.batch_failures_max, self._ledger)
        self._taking: asyncio.Task[None] | None = None
        self._settling = asyncio.Lock()
        self._commit_watch: asyncio.Task[None] | None = None
        """Waits for Spark's commit of the micro-batch that runs."""
        self._claim: IO[str] | None = None
        """Keeps the member id for this process."""
        self._drains = drain
        self._is_drained = False
        self._last_count = 0
        """How many records the last micro-batch had."""
        self._asked_ms = 0
        """When Spark asked for records last."""
        self._logged_ms: int | None = None
        """When Spark had logged the micro-batch that runs."""
        self._took_ms: int | None = None
        """From then to its commit, for the last one, until Spark asks again."""
        self._log_file: Location | None = None
        """The entry of Spark's offset log that holds the ledger's micro-batch, where the checkpoint is known."""
        self._log_sync = LogSync()
        self._syncing = asyncio.Lock()
        self._early_sync: asyncio.Task[None] | None = None
        """Syncs the offset log while the micro-batch runs, so that nobody waits for that when it is committed."""
        self._are_others_busy = False
        """Spark made a micro-batch after this source had nothing for it: another source of the query had."""
        self._was_asked = False
        """Spark has asked for records, and so it will ask every other source before it asks this one again."""

    def latest(
        self, start: Mapping[str, Any], records_max: int | None, bytes_max: int | None = None
    ) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself when there are no records."""
        given = self._read(start)
        acquirer = self._open(given)
        if given.sequence != self._ledger.sequence:
            planned = self._ledger.offset if self._ledger.stage is BatchStage.PLANNED else None
            if planned is not None and given.sequence == self._ledger.sequence - 1:
                return planned.to_json()  # asked again for what was given: the same records, still locked
            raise CheckpointError(
                f"Spark asks for records after offset {given.sequence}, but the last offset that it got is "
                f"{self._ledger.sequence}. Restart the query from its checkpoint."
            )
        if not self._ledger.is_settled:
            if self._options.checkpoint_path is not None:
                self._log_file = require_committed(self._options.checkpoint_path, start)
            self._run(self._settle(acquirer))
        if self._is_drained:
            return dict(start)
        if self._was_asked:
            self._ahead.require_all_opened()
        self._was_asked = True
        self._run(self._measure_pace(acquirer))
        if self._ahead.is_due and self._options.outcomes_path is not None:
            self._ahead.begin(self._options.outcomes_path, given)
            self._run(self._begin_to_take(acquirer))
        wanted = min((count for count in (records_max, self._last_count) if count), default=None)
        # Spark asks one source after the other: one that waits while another has records holds them up.
        wait_s = 0.0 if self._are_others_busy else self._options.wait_ms / 1000
        self._are_others_busy = False
        offset = None
        # What is left of a divided micro-batch needs no lock: the broker is asked for more when that is done.
        while offset is None and (
            self._ledger.later or self._run(acquirer.wait(BatchLimits(ends=acquirer.ends), wait_s, wanted))
        ):  # what came may have been lost by now, with a connection
            offset = self._run(self._plan(acquirer, self._limits(acquirer, records_max, bytes_max)))
        if offset is None:
            if self._drains:
                # Leaves before Spark knows that this is the end: whoever waits for the query finds all settled.
                self._is_drained = True
                self._run(acquirer.close(is_drained=True))
            return dict(start)
        self._last_count = offset.batch.record_count
        return offset.to_json()

    @property
    def bytes_per_record(self) -> float:
        """About what the records had that came last, 0 before any."""
        return 0.0 if self._acquirer is None else self._acquirer.bytes_per_record

    def log(self, end: Mapping[str, Any]) -> AcquiredOffset:
        """Spark's offset log durably holds `end`. Returns what to run. May come several times for one micro-batch."""
        offset = self._read(end)
        acquirer = self._open(offset)
        if offset.sequence != self._ledger.sequence:
            raise CheckpointError(
                f"Spark runs the micro-batch of offset {offset.sequence}, but {self._ledger.sequence} was given to it "
                "last. Restart the query from its checkpoint."
            )
        if not self._ledger.is_handed_off:
            checkpoint, is_new = self._options.checkpoint_path, self._ledger.stage is BatchStage.PLANNED
            self._log_file = None if checkpoint is None else require_logged(checkpoint, end)
            if checkpoint is None and is_new and self._ledger.told_committed < offset.sequence - 1:
                logger.warning("Spark runs a micro-batch before it has committed the last one. %s", CURE)
            if is_new:
                self._ahead.require_all_opened()
            if self._outcomes is not None and self._log_file is not None:
                if is_new:
                    self._outcomes.clear_failures()
                else:
                    self._isolation.divide(offset, self._log_file, self._outcomes)
                # What they said is in this offset by now; the outcomes of its own micro-batch are still to come.
                self._outcomes.clear()
            self._run(self._hand_off(acquirer))
        division = self._ledger.division
        return offset if division is None else replace(offset, batch=division.given)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing that `latest` would not do."""
        offset = self._read(end)
        acquirer = self._open(offset)
        self._ledger.told_committed = offset.sequence
        if offset.sequence == self._ledger.sequence:
            self._are_others_busy = True
            self._run(self._settle(acquirer))

    def report(self) -> dict[str, Any] | None:
        """For StreamingQueryProgress: numbers at hand, nothing is asked."""
        acquirer, ledger = self._acquirer, self._ledger
        if acquirer is None:
            return None
        counts = acquirer.counts
        return {
            "lag": acquirer.group.lag,
            "held": ledger.fresh.record_count + ledger.held.record_count,
            "ahead": ledger.taken.record_count,
            "unconfirmed": ledger.processed.record_count,
            "delivered": counts.delivered,
            "redelivered": counts.redelivered,
            "confirmed": counts.confirmed,
            "refused": counts.refused,
            "lost": counts.lost,
            "released": counts.released,
            "rejected": counts.rejected,
            "member": acquirer.member_id,
        }

    def close(self) -> None:
        """Settles what Spark has committed (its last micro-batch, with Trigger.Once), releases the rest, leaves."""
        acquirer, self._acquirer = self._acquirer, None
        try:
            if acquirer is not None:
                with contextlib.suppress(Exception):
                    self._settle_if_committed(acquirer)
                self._run(self._close(acquirer))
        finally:
            self._loop.close()
            if self._claim is not None:
                self._claim.close()
            self._ahead.close()

    async def _close(self, acquirer: Acquirer) -> None:
        if self._commit_watch is not None:
            self._commit_watch.cancel()
        self._ahead.stop(acquirer)
        tasks = [task for task in (self._commit_watch, self._taking, self._early_sync) if task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await acquirer.close()

    def _open(self, offset: AcquiredOffset) -> Acquirer:
        """The first call of all brings what an earlier life has processed, and joins the group."""
        if self._acquirer is not None:
            self._acquirer.raise_error()
            return self._acquirer
        folder = self._options.outcomes_path
        if offset.sequence:
            self._ledger.recover(offset)
        elif self._options.checkpoint_path is not None:
            require_own(self._options.checkpoint_path, offset.to_json())
        if folder is None:
            logger.warning(
                "readStream has no checkpointLocation, so a commit is learned of by the next trigger only: the last "
                "micro-batch of a query that is stopped may go to other members, too; and Spark's logs are not synced "
                "to disk before records are accepted, so a power cut may lose some. Give readStream the "
                "checkpointLocation of writeStream."
            )
        member_id = offset.member or self._first_member_id()
        topic_ids = dict(offset.topic_ids)
        if folder is not None and member_id is not None:
            note = self._ahead.open(folder, member_id, offset)
            if note is not None:
                _require_group(note, self._options.group)
                topic_ids = self._ahead.recover(offset, note)
            self._outcomes = OutcomeLog(folder, reader=member_id)
            if offset.has_notes:
                self._outcomes.require(fails_on_data_loss=self._options.fails_on_data_loss)
            self._outcomes.describe(self._options.acknowledge, self._options.dead_letter_topic)
            self._isolation.recover(offset, self._outcomes)
        elif offset.has_notes or offset.accepted is Accepted.AHEAD:
            raise CheckpointError(
                "The source's notes about the last micro-batch are in the query's checkpoint: which of its records "
                "were released, rejected, not run yet (maxBatchFailures) or accepted ahead (maxRecordsAhead). Give "
                "readStream the checkpointLocation, as before. The other options may be left out."
            )
        self._acquirer = self._run(self._start(offset, member_id, topic_ids))
        return self._acquirer

    async def _start(
        self, offset: AcquiredOffset, member_id: str | None, topic_ids: Mapping[str, str]
    ) -> Acquirer:
        acquirer = Acquirer(self._options, self._ledger, member_id=member_id)
        acquirer.topic_ids.update(topic_ids)
        try:
            await acquirer.start(is_new=not offset.sequence, states=offset.states)
            await self._ahead.write_anew(acquirer)
            if self._drains:
                await acquirer.drain()
            if self._ledger.takes_ahead:
                await self._begin_to_take(acquirer)
        except BaseException:
            await acquirer.close()
            raise
        return acquirer

    async def _measure_pace(self, acquirer: Acquirer) -> None:
        """How fast the query is decides how much is accepted ahead of it, and how long it waits for more."""
        asked_ms, self._asked_ms = self._asked_ms, now_ms()
        if self._took_ms is not None:
            took_ms, self._took_ms = self._took_ms, None
            acquirer.more_s = min(max(MORE_S, MORE_PART * took_ms / 1000), MORE_S_MAX)
            self._ahead.ran(self._last_count, took_ms, self._asked_ms - asked_ms, acquirer.group.window)

    async def _begin_to_take(self, acquirer: Acquirer) -> None:
        self._taking = asyncio.create_task(self._take_ahead(acquirer))

    async def _take_ahead(self, acquirer: Acquirer) -> None:
        try:
            await self._ahead.run(acquirer, BatchLimits(ends=acquirer.ends))
        except Exception as error:
            acquirer.fail(error)

    def _first_member_id(self) -> str | None:
        """For a query that has no offset yet: the same whenever it starts from the same checkpoint.

        If it dies before its first offset, it need not wait until the group has noticed. Where one query has several
        such sources, each has a number of its own.
        """
        folder = self._options.outcomes_path
        if folder is None:
            return None
        name = uuid5(NAMESPACE_URL, f"{self._options.group} {','.join(sorted(self._options.topics))}").hex
        self._claim, member_id = claim(folder, name, is_alone=self._ledger.takes_ahead)
        return member_id or uuid_text(uuid4().bytes)

    async def _settle(self, acquirer: Acquirer) -> None:
        """Carries out what was decided of the micro-batch that Spark has committed, once."""
        async with self._settling:
            if self._ledger.is_settled:
                return
            await self._sync_log()
            if self._log_file is not None and self._outcomes is not None and self._outcomes.is_used():
                await asyncio.to_thread(self._log_sync.sync, commit_of(self._log_file))
            outcomes = to_runs(await self._carry_out(acquirer))
            acquirer.acknowledge(self._ledger.settle(outcomes))
            acquirer.counts.released += outcomes.of_outcome(AcknowledgeType.RELEASE).record_count
            acquirer.counts.rejected += outcomes.of_outcome(AcknowledgeType.REJECT).record_count
            if self._logged_ms is not None:
                self._took_ms, self._logged_ms = now_ms() - self._logged_ms, None

    async def _sync_log(self) -> None:
        """What Spark has logged is safe from a power cut, before its records are accepted."""
        async with self._syncing:
            if self._log_file is not None:
                await asyncio.to_thread(self._log_sync.sync, self._log_file)

    async def _sync_log_early(self) -> None:
        try:
            await self._sync_log()
        except Exception as error:
            logger.debug("It will be retried before records are accepted: %s", error)

    async def _carry_out(self, acquirer: Acquirer) -> list[Outcome]:
        """Copies what was rejected, and returns all outcomes but ACCEPT."""
        log, sequence, topic = self._outcomes, self._ledger.sequence, self._options.dead_letter_topic
        if log is None:
            return []
        kept = log.kept(sequence, self._ledger.planned)
        outcomes, is_copied = (self._decided(acquirer.group.delivery_limit), False) if kept is None else kept
        if self._ledger.accepted:
            outcomes = [_without_release(each, topic) for each in outcomes]
        division = self._ledger.division
        if division is not None and division.rejected and topic is None:
            raise OutcomeError(
                "A record that its micro-batch fails on was rejected by maxBatchFailures, and is not copied yet: set "
                f"deadLetterTopic again, and start the query. {division.reason}"
            )
        if outcomes and not is_copied:
            if topic is not None:
                await acquirer.copy_rejected(outcomes, topic)
            log.keep(sequence, self._ledger.planned, outcomes, is_copied=topic is not None)
        return outcomes

    def _decided(self, delivery_limit: int | None) -> list[Outcome]:
        """The outcomes that are about this micro-batch. A release after which the broker would give up is a reject."""
        if self._outcomes is None:
            return []
        # A micro-batch that is replayed may have records of a topic that is not subscribed to any more.
        topics = {*self._options.topics, *(topic for topic, _ in self._ledger.planned.places)}
        own = [each for each in self._outcomes.read() if each.topic in topics]
        division = self._ledger.division
        meant, ignored = match(own, self._ledger.planned if division is None else division.given)
        if ignored:
            logger.warning(
                "Outcomes of %d records say nothing about this micro-batch (another partition, offset or "
                "deliveryCount) and are ignored: those records are accepted. Keep topic, partition, offset and "
                "deliveryCount as they came.",
                ignored.record_count,
            )
        rejected = [] if division is None else division.outcomes()
        return [*(_final(each, delivery_limit) for each in meant), *rejected]

    async def _settle_when_committed(self, acquirer: Acquirer, batch: Location, sequence: int) -> None:
        """`batch` is the micro-batch's file in Spark's commit log."""
        pause_s = STORE_POLL_S if isinstance(batch, ObjectPath) else COMMIT_POLL_S
        while not await asyncio.to_thread(_is_there, batch):  # noqa: ASYNC110 (Spark tells nobody)
            await asyncio.sleep(pause_s)
        if self._ledger.sequence == sequence:
            try:
                await self._settle(acquirer)
            except Exception as error:
                logger.debug("It will be retried by the next trigger: %s", error)

    def _settle_if_committed(self, acquirer: Acquirer) -> None:
        log_file = self._log_file if self._ledger.stage is BatchStage.LOGGED else None
        if log_file is not None and commit_of(log_file).exists():
            self._run(self._settle(acquirer))

    async def _hand_off(self, acquirer: Acquirer) -> None:
        if self._ledger.stage is BatchStage.PLANNED:
            self._logged_ms = now_ms()
        if self._ledger.accepted:
            await self._sync_log()
        else:
            self._early_sync = asyncio.create_task(self._sync_log_early())
        acquirer.acknowledge(self._ledger.hand_off())
        await self._ahead.write_anew(acquirer)
        if self._commit_watch is not None:
            self._commit_watch.cancel()
        if self._log_file is not None:
            watch = self._settle_when_committed(acquirer, commit_of(self._log_file), self._ledger.sequence)
            self._commit_watch = asyncio.create_task(watch)

    async def _plan(self, acquirer: Acquirer, limits: BatchLimits) -> AcquiredOffset | None:
        while acquirer.has_forgotten:  # no offset is newer than the note
            acquirer.has_forgotten = False
            await self._ahead.write_anew(acquirer)
        acquirer.let_go_of_ended_locks()
        batch = self._ledger.plan(limits)
        if batch is None:
            return None
        later = self._ledger.later
        places = sorted({*batch.places, *self._ledger.processed.places, *later.places})
        topic_ids = {topic: acquirer.topic_ids[topic] for topic, _ in places}
        states = await acquirer.group.states(places)
        offset = self._ledger.offset = AcquiredOffset(
            self._ledger.sequence,
            self._options.group,
            acquirer.member_id,
            topic_ids,
            batch,
            self._ledger.processed.only(places),  # of these states
            states,
            self._ledger.accepted,
            has_notes=self._outcomes is not None,
            later=later,
        )
        return offset

    def _limits(self, acquirer: Acquirer, records_max: int | None, bytes_max: int | None) -> BatchLimits:
        for size in (bytes_max, self._options.bytes_per_trigger):
            if size is not None and acquirer.bytes_per_record:
                by_size = max(1, int(size / acquirer.bytes_per_record))
                records_max = by_size if records_max is None else min(records_max, by_size)
        return BatchLimits(records_max, self._options.runs_per_trigger, acquirer.ends)

    def _read(self, found: Mapping[str, Any]) -> AcquiredOffset:
        offset = AcquiredOffset.from_json(found)
        _require_group(offset, self._options.group)
        return offset

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine)


def _require_group(offset: AcquiredOffset, group: str) -> None:
    if offset.group != group:
        raise CheckpointError(
            f"The checkpoint belongs to share group {offset.group!r}, but kafka.group.id is "
            f"{group!r}. Records that one group has processed say nothing about another: give this "
            "query a checkpointLocation of its own, or its old group."
        )


def _is_there(batch: Location) -> bool:
    try:
        return batch.exists()
    except CheckpointError as error:  # the next trigger looks, too, and tells
        logger.debug("%s", error)
        return False


def _final(outcome: Outcome, delivery_limit: int | None) -> Outcome:
    if outcome.type is AcknowledgeType.RELEASE and outcome.delivery_count >= (delivery_limit or INT_MAX):
        reason = f"{EXHAUSTED} {outcome.reason}"
        return outcome._replace(type=AcknowledgeType.REJECT, reason=reason)
    return outcome


def _without_release(outcome: Outcome, dead_letter_topic: str | None) -> Outcome:
    """For a record that is accepted already: it cannot be given back, but copied."""
    if outcome.type is AcknowledgeType.RELEASE:
        outcome = outcome._replace(
            type=AcknowledgeType.REJECT, reason=f"released when it was accepted already. {outcome.reason}"
        )
    if dead_letter_topic is None:
        raise OutcomeError(
            f"{outcome.topic}-{outcome.partition}@{outcome.first} was accepted before it was processed (handoff), so "
            "it can only be copied to a dead-letter topic: set deadLetterTopic and start the query again. "
            f"{outcome.reason}"
        )
    return outcome
