"""The driver's half of the source: answers Spark's calls. Made when the first one comes, never pickled.

Theory of operation (the order of Spark's calls is in docs/concepts/spark-guarantees.md).

    latest(start)      Spark has committed the micro-batch that ends at `start`: settle it, then plan the next one
    log(end)           Spark's offset log holds the micro-batch that ends at `end`: with handoff, accept it now
    commit(end)        comes late, twice or never; it is the same step as in `latest`, if that was not done
    close()            gives back what no micro-batch has; may never be called

After a restart the first call brings the offset that the ledger recovers from, and the member id to take back: by
`latest` a committed one, by `log` one that Spark replays.
"""

import contextlib
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar
from uuid import NAMESPACE_URL, uuid5

from headrace.client.background import BackgroundLoop
from headrace.spark.acquirer import Acquirer
from headrace.spark.checkpoint import is_committed, require_committed
from headrace.spark.errors import CheckpointError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.options import SourceOptions
from headrace.spark.outcomes import OutcomeLog, to_runs
from headrace.spark.runs import Place, RunSet
from headrace.spark.settle import Ledger, Limits
from headrace.wire.ids import uuid_text

logger = logging.getLogger("headrace.spark")
T = TypeVar("T")


class Driver:
    """One running query's source. All methods are called by Spark's one thread."""

    def __init__(self, options: SourceOptions, *, drain: bool = False) -> None:
        """`drain` is Trigger.AvailableNow: go as far as the topics reach when the first call comes, and no further."""
        self._options = options
        self._loop = BackgroundLoop("kafka-share")
        self._ledger = Ledger(options.acknowledge)
        self._acquirer: Acquirer | None = None
        self._outcomes = None if options.outcomes_path is None else OutcomeLog(options.outcomes_path)
        self._ends: dict[Place, int] | None = None
        self._wants_ends = drain
        self._is_drained = False
        self._last_count = 0
        """How many records the last micro-batch had."""
        self._planned: dict[str, Any] | None = None
        """The offset that was given to Spark last, until Spark has logged it."""
        self._logged: dict[str, Any] | None = None
        """The offset that Spark has logged last, as far as we were told."""

    def latest(
        self, start: Mapping[str, Any], records_max: int | None, bytes_max: int | None = None
    ) -> dict[str, Any]:
        """The end of the next micro-batch; `start` itself when there are no records."""
        given = self._read(start)
        acquirer = self._open(given)
        if given.sequence != self._ledger.sequence:
            if self._planned is not None and given.sequence == self._ledger.sequence - 1:
                return self._planned  # asked again for what was given: the same records, still locked
            raise CheckpointError(
                f"Spark asks for records after offset {given.sequence}, but {self._ledger.sequence} was given to it "
                "last. Restart the query from its checkpoint."
            )
        if not self._ledger.is_settled:
            if self._options.checkpoint_path is not None:
                require_committed(self._options.checkpoint_path, start)
            self._settle(acquirer)
        if self._is_drained:
            return dict(start)
        wanted = [count for count in (records_max, self._last_count) if count]
        self._run(
            acquirer.wait(Limits(ends=self._ends), self._options.wait_ms / 1000, min(wanted, default=None))
        )
        offset = self._run(self._plan(acquirer, self._limits(acquirer, records_max, bytes_max)))
        if offset is None:
            if self._ends is not None:
                # Leaves before Spark knows that this is the end: whoever waits for the query finds all settled.
                self._is_drained = True
                self._run(acquirer.close())
            return dict(start)
        self._last_count = offset.batch.record_count
        self._planned = offset.to_json()
        return self._planned

    def log(self, end: Mapping[str, Any]) -> AcquiredOffset:
        """Spark's offset log durably holds `end`. May come several times for one micro-batch."""
        offset = self._read(end)
        acquirer = self._open(offset)
        if self._logged is None or self._logged["seq"] != offset.sequence:
            self._logged, self._planned = dict(end), None
            if self._outcomes is not None:
                # What they said is in this offset by now; the outcomes of its own micro-batch are still to come.
                self._outcomes.clear()
            if offset.sequence == self._ledger.sequence:
                self._run(self._hand_off(acquirer))
        return offset

    def commit(self, end: Mapping[str, Any]) -> None:
        """Nothing that `latest` would not do."""
        offset = self._read(end)
        acquirer = self._open(offset)
        if offset.sequence == self._ledger.sequence and not self._ledger.is_settled:
            self._settle(acquirer)

    def report(self) -> dict[str, Any] | None:
        """For StreamingQueryProgress: numbers at hand, nothing is asked."""
        acquirer, ledger = self._acquirer, self._ledger
        if acquirer is None:
            return None
        counts = acquirer.counts
        return {
            "lag": acquirer.lag,
            "held": ledger.fresh.record_count + ledger.held.record_count,
            "unconfirmed": ledger.processed.record_count,
            "delivered": counts.delivered,
            "redelivered": counts.redelivered,
            "confirmed": counts.confirmed,
            "refused": counts.refused,
            "lost": counts.lost,
            "member": acquirer.member_id,
        }

    def close(self) -> None:
        """Settles what Spark has committed (its last micro-batch, with Trigger.Once), releases the rest, leaves."""
        acquirer, self._acquirer = self._acquirer, None
        try:
            if acquirer is not None:
                with contextlib.suppress(Exception):
                    self._settle_if_committed(acquirer)
                self._run(acquirer.close())
        finally:
            self._loop.close()

    def _open(self, offset: AcquiredOffset) -> Acquirer:
        if self._acquirer is not None:
            self._acquirer.raise_error()
            return self._acquirer
        if offset.sequence:
            self._ledger.recover(offset)
        self._acquirer = self._run(self._start(offset))
        return self._acquirer

    async def _start(self, offset: AcquiredOffset) -> Acquirer:
        acquirer = Acquirer(self._options, self._ledger, member_id=offset.member or self._first_member_id())
        acquirer.topic_ids.update(offset.topic_ids)
        try:
            await acquirer.start(is_new=not offset.sequence)
            if self._wants_ends:
                self._ends = await acquirer.end_offsets()
        except BaseException:
            await acquirer.close()
            raise
        return acquirer

    def _first_member_id(self) -> str | None:
        """For a query that has no offset yet: the same whenever it starts from the same checkpoint.

        If it dies before its first offset, it need not wait until the group has noticed.
        """
        path = self._options.checkpoint_path
        if path is None:
            return None
        return uuid_text(uuid5(NAMESPACE_URL, f"{self._options.group} {path.absolute()}").bytes)

    def _settle(self, acquirer: Acquirer) -> None:
        outcomes = [] if self._outcomes is None else self._outcomes.read()
        topic = self._options.dead_letter_topic
        if topic is not None and self._outcomes is not None and outcomes and not self._outcomes.is_copied:
            self._run(acquirer.copy_rejected(outcomes, topic))
            self._outcomes.mark_copied()
        self._run(self._settle_now(acquirer, to_runs(outcomes)))

    async def _settle_now(self, acquirer: Acquirer, outcomes: RunSet) -> None:
        unknown = outcomes.minus(self._ledger.planned)
        if unknown:
            logger.warning("Outcomes of records that are not in the micro-batch are ignored: %s", unknown)
        acquirer.acknowledge(self._ledger.settle(outcomes))

    def _settle_if_committed(self, acquirer: Acquirer) -> None:
        checkpoint = self._options.checkpoint_path
        if self._ledger.is_settled or checkpoint is None or self._logged is None:
            return
        if is_committed(checkpoint, self._logged):
            self._settle(acquirer)

    async def _hand_off(self, acquirer: Acquirer) -> None:
        acquirer.acknowledge(self._ledger.hand_off())

    async def _plan(self, acquirer: Acquirer, limits: Limits) -> AcquiredOffset | None:
        acquirer.let_go_of_ended_locks()
        batch = self._ledger.plan(limits)
        if batch is None:
            return None
        processed = self._ledger.processed
        topics = {topic for topic, _ in [*batch.places, *processed.places]}
        return AcquiredOffset(
            self._ledger.sequence,
            self._options.group,
            acquirer.member_id,
            {topic: acquirer.topic_ids[topic] for topic in topics},
            batch,
            processed,
        )

    def _limits(self, acquirer: Acquirer, records_max: int | None, bytes_max: int | None) -> Limits:
        for size in (bytes_max, self._options.bytes_per_trigger):
            if size is not None and acquirer.bytes_per_record:
                by_size = max(1, int(size / acquirer.bytes_per_record))
                records_max = by_size if records_max is None else min(records_max, by_size)
        return Limits(records_max, self._options.runs_per_trigger, self._ends)

    def _read(self, found: Mapping[str, Any]) -> AcquiredOffset:
        offset = AcquiredOffset.from_json(found)
        if offset.group != self._options.group:
            raise CheckpointError(
                f"The checkpoint belongs to share group {offset.group!r}, but kafka.group.id is "
                f"{self._options.group!r}. Records that one group has processed say nothing about another: give this "
                "query a checkpointLocation of its own, or its old group."
            )
        return offset

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(coroutine)
