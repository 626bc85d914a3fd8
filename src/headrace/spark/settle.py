"""The settle rules: what becomes of every acquired record, as a pure state machine. No I/O, no clock, no threads.

Theory of operation. The `Ledger` knows, for the records that concern this query now:

    fresh       we hold the lock, no micro-batch has them yet
    planned     they are in the offset that `plan` gave to Spark last; Spark may have logged it, run it, committed it
    held        the locks that we hold on planned records (a lock may be lost, and the record may come again)
    taken       accepted ahead (option maxRecordsAhead): a log of our own holds them, no micro-batch has them yet
    later       of a micro-batch that was divided (`dividing.py`): they are in its offset, and later ones will have them
    processed   the journal: a committed (or, with handoff, logged) micro-batch holds them, so they have had or will
                have their effect, and the broker has not confirmed that it will not deliver them again

and turns each event into acknowledgements to send. Two rules carry the guarantees:

1. ACCEPT or REJECT is sent only for a record of the journal. So nothing is lost: whatever Spark has not made durable
   is redelivered when its lock ends.
2. A record leaves the journal only when the broker has confirmed that it is settled: by an acknowledgement's answer, by
   the share-partition's start offset having passed it, or by persisted state. A record of the journal that comes
   again is acknowledged again and not processed again. So nothing is processed twice by one query.

With `commit`, planned records enter the journal when Spark has committed the micro-batch (`settle`). With `handoff`,
when Spark's offset log durably holds it (`hand_off`): from then on Spark replays it from there, whatever becomes of
the locks. Records that are taken ahead enter it when our own log durably holds them (`taken_over`); micro-batches are
then planned from those. A RELEASE gives the record back unprocessed: it never enters the journal, and if its lock was
lost it has been given back already.

Which of these holds for a micro-batch (`accepted`) is decided when it is planned, and is part of its offset. The mode
of the query decides about the next one only: a query may come back in the other mode, and what it decided about the
last micro-batch of its earlier life still counts.

A micro-batch that fails again and again is divided: only a part of `planned` is run and settled, and the rest moves to
`later`. It needs no lock, as a replay does not: the next micro-batches are planned from it before anything else, and
are accepted in the way of the one that was divided.

`fresh` and `held` describe locks and are lost with the process; `planned`, `later`, `processed` and `accepted` are in
the offset, so `recover` gets them back; `taken` is in our own log (`OwnLog`), for `recover_taken`.

A group that is reset, or deleted and made again, delivers records as if for the first time, so an offset and a delivery
count do not tell one delivery from another for good. What was processed before does not count any more then (`reset`);
and nothing is compared by the delivery count with what was logged earlier: our own log says which of its records were
planned for which micro-batch.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, NamedTuple

from headrace.client.delivery import AcknowledgeType
from headrace.spark.offset import Accepted, AcquiredOffset
from headrace.spark.runs import Run, RunSet
from headrace.wire.ids import TopicAndPartition

if TYPE_CHECKING:
    from headrace.spark.dividing import Division

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT


class Acknowledge(StrEnum):
    """When records are acknowledged: option `acknowledge`."""

    COMMIT = "commit"
    HANDOFF = "handoff"


class BatchStage(Enum):
    """Where the last micro-batch stands, as far as this life of the reader has seen it."""

    PLANNED = "Spark was given its offset"
    RECOVERED = "Spark's offset log had it when this life began"
    LOGGED = "Spark's offset log holds it; with handoff, its records are accepted"
    SETTLED = "Spark has committed it, and what was decided of its records is carried out"


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """How much one micro-batch may hold."""

    records_max: int | None = None
    runs_max: int | None = None
    ends: Mapping[TopicAndPartition, int] | None = None
    """Only records before these offsets, by partition; None for no such limit."""


class OwnLog(NamedTuple):
    """What our own log of records that are accepted ahead has to hold."""

    sequence: int
    """Of the micro-batch that was planned last when it was written."""
    planned: RunSet
    """The records of that one, if they were accepted ahead and Spark's log did not hold it."""
    taken: RunSet
    """Those that no micro-batch had."""


def before(ends: Mapping[TopicAndPartition, int]) -> RunSet:
    """All offsets before the ends."""
    return RunSet.of((place, Run(0, end - 1, 0)) for place, end in ends.items() if end > 0)


class Ledger:
    """What is held, planned and owed. Where a method returns a RunSet, it is what to acknowledge, by outcome."""

    def __init__(self, mode: Acknowledge, *, sequence: int = 0) -> None:
        self.mode = mode
        self.sequence = sequence
        """Of the offset that was planned or recovered last."""
        self.stage = BatchStage.SETTLED
        """And where its micro-batch stands."""
        self.offset: AcquiredOffset | None = None
        """That offset as Spark has it, until the next one is planned."""
        self.told_committed = 0
        """The sequence of the offset that Spark called `commit` with last."""
        self.takes_ahead = False
        """Micro-batches are planned from what was taken ahead only."""
        self.accepted = Accepted.WHEN_COMMITTED
        """When the records of the planned micro-batch are accepted."""
        self.taken = RunSet()
        self.taking = RunSet()
        """The locks on what is being written to our own log."""
        self.fresh = RunSet()
        self.planned = RunSet()
        self.division: Division | None = None
        """What is run of the micro-batch, where it was divided."""
        self.later = RunSet()
        self.later_max = 0
        """How many of those the next micro-batch may have."""
        self.held = RunSet()
        self.processed = RunSet()
        self._reset: frozenset[TopicAndPartition] = frozenset()
        """Where the group was reset after the micro-batch was logged."""

    @property
    def is_settled(self) -> bool:
        return self.stage is BatchStage.SETTLED

    @property
    def is_handed_off(self) -> bool:
        return self.stage in (BatchStage.LOGGED, BatchStage.SETTLED)

    def recover(self, offset: AcquiredOffset) -> None:
        """Takes over a logged offset after a restart. What is held already stays held, for whom it concerns."""
        holding = self.fresh.replaced_by(self.held)
        self.sequence, self.offset, self.stage = offset.sequence, offset, BatchStage.RECOVERED
        # Spark's log holds what was accepted ahead, so our own need not any more.
        self.accepted = Accepted.WHEN_LOGGED if offset.accepted else Accepted.WHEN_COMMITTED
        self.planned, self.later, self.processed = offset.batch, offset.later, offset.processed
        self.fresh = self.held = RunSet()
        self.division, self._reset = None, frozenset()
        self._sort(holding)

    def acquired(self, runs: RunSet) -> RunSet:
        """The broker delivered these to us, with locks."""
        return self._sort(runs)

    def lost(self, runs: RunSet) -> None:
        """Our locks on these ended, or were never there: somebody will get them again."""
        self.fresh = self.fresh.minus(runs)
        self.held = self.held.minus(runs)
        self.taking = self.taking.minus(runs)

    def plan(self, limits: BatchLimits) -> RunSet | None:
        """The records of the next micro-batch, or None when there are none. Only after the last one was settled."""
        assert self.is_settled, "the last micro-batch is not settled"
        records_max = limits.records_max
        if self.later:
            records_max = min(records_max or self.later_max, self.later_max)
        taken = self.waiting(limits).take(records_max=records_max, runs_max=limits.runs_max)
        if not taken:
            return None
        self.sequence, self.offset, self.stage = self.sequence + 1, None, BatchStage.PLANNED
        self.planned = taken
        self._reset = frozenset()
        if self.later:
            self.accepted = Accepted.WHEN_LOGGED if self.accepted else Accepted.WHEN_COMMITTED
            self.held = self.fresh.within(taken)
            self.fresh, self.later = self.fresh.minus(taken), self.later.minus(taken)
        elif self._plans_from_taken:
            self.accepted = Accepted.AHEAD
            self.held = RunSet()
            self.taken = self.taken.minus(taken)
        else:
            is_handoff = self.mode is Acknowledge.HANDOFF
            self.accepted = Accepted.WHEN_LOGGED if is_handoff else Accepted.WHEN_COMMITTED
            self.held = taken
            self.fresh = self.fresh.minus(taken)
        return taken

    def waiting(self, limits: BatchLimits) -> RunSet:
        """The records that a micro-batch may have, however many."""
        if self.later:
            return self.later
        return _limited(self.taken if self._plans_from_taken else self.fresh, limits)

    @property
    def _plans_from_taken(self) -> bool:
        return self.takes_ahead or bool(self.taken)

    @property
    def deferred(self) -> RunSet:
        """The part of `planned` that will be in `later` when the micro-batch is settled."""
        return RunSet() if self.division is None else self.planned.minus(self.division.kept)

    # taking ahead

    def is_taking(self, limits: BatchLimits) -> bool:
        """Whether records are on their way into our own log."""
        return self.takes_ahead and bool(self.taking or _limited(self.fresh, limits))

    def begin_taking(self, limits: BatchLimits) -> RunSet:
        """Fresh records to write to our own log; `taken_over` or `not_taken` comes next."""
        fresh = self.fresh.minus(self.later)
        runs = _limited(fresh, limits).take(records_max=limits.records_max, runs_max=limits.runs_max)
        self.fresh, self.taking = self.fresh.minus(runs), runs
        return runs

    def taken_over(self, runs: RunSet) -> RunSet:
        """Our own log durably holds them: from now on they are ours, whatever becomes of the locks."""
        owed = self.taking.replaced_by(self.fresh.within(runs))
        self.fresh, self.taking = self.fresh.minus(runs), RunSet()
        self.taken = self.taken.replaced_by(runs)
        self.processed = self.processed.replaced_by(runs)
        return owed

    def not_taken(self) -> None:
        self.fresh, self.taking = self.fresh.replaced_by(self.taking), RunSet()

    def own_log(self, more: RunSet | None = None) -> OwnLog:
        """What our own log has to hold: what is taken (and `more`), and what Spark has not logged yet."""
        is_unlogged = self.accepted is Accepted.AHEAD and not self.is_handed_off
        taken = self.taken if more is None else self.taken.replaced_by(more)
        return OwnLog(self.sequence, self.planned if is_unlogged else RunSet(), taken)

    def recover_taken(self, found: OwnLog) -> None:
        """What our own log held, but for what Spark's log holds; after `recover`.

        Before anything is planned, our own log must be written anew: it names what was planned for a micro-batch that
        Spark has not logged, and another one may get that sequence now.
        """
        taken = found.taken
        if found.sequence > self.sequence:
            taken = taken.replaced_by(found.planned)
        elif (
            found.sequence < self.sequence
            and self.offset is not None
            and self.offset.accepted is Accepted.AHEAD
        ):
            taken = taken.minus(self.planned)  # it was planned from these
        self.taken = taken
        self.processed = self.processed.replaced_by(taken)

    def hand_off(self, *, is_run: bool = True) -> RunSet:
        """Spark's offset log durably holds the planned micro-batch. `is_run`: it will be run, or run again."""
        if self.is_handed_off:
            return RunSet()
        if is_run:
            self._reset = frozenset()  # what has its effect after a reset need not have it again
        self.stage = BatchStage.LOGGED
        return self._process(self.planned) if self.accepted is Accepted.WHEN_LOGGED else RunSet()

    def settle(self, outcomes: RunSet) -> RunSet:
        """Spark has committed the planned micro-batch. `outcomes` are those that differ from ACCEPT.

        An outcome counts for a record only if it is about the delivery that was processed.
        """
        if self.is_settled:
            return RunSet()
        deferred = self.deferred
        done = self.planned.minus(deferred)
        if self.accepted:
            owed = self.hand_off(is_run=False)
        else:
            decided = _decide(done, outcomes)
            returned = decided.of_outcome(RELEASE)
            owed = self._process(decided.minus(returned))
            held = self.held.within(returned)
            released = same_delivery(held, returned)
            owed = owed.replaced_by(released.with_outcome(RELEASE))
            self.fresh = self.fresh.replaced_by(held.minus(released)).replaced_by(self.held.within(deferred))
        self.stage = BatchStage.SETTLED
        self.later_max = max(1, done.record_count if deferred else 2 * done.record_count)
        self.later = self.later.replaced_by(deferred)
        self.planned = self.held = RunSet()
        self.division, self._reset = None, frozenset()
        return owed

    def reset(self, places: Collection[TopicAndPartition]) -> None:
        """The group begins anew there: what was processed is delivered again, and then it is processed again.

        Not what is still to be processed: if that comes again, it is processed once.
        """
        to_come = self.taken
        if self.stage is BatchStage.PLANNED:
            to_come = to_come.replaced_by(self.planned)
        elif not self.is_settled:
            self._reset |= frozenset(places)
        elsewhere = [place for place in self.processed.places if place not in places]
        self.processed = self.processed.only(elsewhere).replaced_by(self.processed.within(to_come))
        for name in ("fresh", "held"):  # the locks ended with the old state
            kept: RunSet = getattr(self, name)
            setattr(self, name, kept.only(place for place in kept.places if place not in places))

    def confirmed(self, runs: RunSet) -> None:
        """The broker has settled these for good: accepted, rejected, or passed by the start offset."""
        self.processed = self.processed.minus(runs)

    def passed(self, place: TopicAndPartition, start_offset: int) -> None:
        """The share-partition starts at `start_offset` now: nothing before it will be delivered again."""
        self.confirmed(self.processed.below(place, start_offset))

    def forget(self, topic: str) -> None:
        """The topic was deleted and made again: what was known of its records is about others."""
        for name in ("fresh", "planned", "later", "held", "processed", "taken", "taking"):
            kept: RunSet = getattr(self, name)
            setattr(self, name, kept.only(place for place in kept.places if place[0] != topic))

    def _sort(self, runs: RunSet) -> RunSet:
        """Puts newly held records where they belong; returns those that were processed before."""
        again = self.processed.replaced_by(self.taken).within(runs)
        rest = runs.minus(again)
        planned = rest.within(self.planned.minus(self._outdated)) if not self.is_settled else RunSet()
        self.held = self.held.replaced_by(planned)
        self.fresh = self.fresh.minus(again).replaced_by(rest.minus(planned))
        return again

    def _process(self, runs: RunSet) -> RunSet:
        """Into the journal; returns what can be acknowledged at once, because we hold it."""
        self.processed = self.processed.replaced_by(runs.minus(self._outdated))
        owed = runs.within(self.held)
        self.held = self.held.minus(owed)
        return owed

    @property
    def _outdated(self) -> RunSet:
        """Of the planned micro-batch, what was run before the group was reset."""
        return self.planned.only(self._reset).minus(self.deferred)


def _limited(runs: RunSet, limits: BatchLimits) -> RunSet:
    return runs if limits.ends is None else runs.within(before(limits.ends))


def _decide(planned: RunSet, outcomes: RunSet) -> RunSet:
    """The planned runs with their outcomes."""
    return planned.replaced_by(same_delivery(outcomes, planned))


def same_delivery(runs: RunSet, other: RunSet) -> RunSet:
    """Those of `runs` that `other` has with the same delivery count."""
    counts: dict[int, list[tuple[TopicAndPartition, Run]]] = {}
    for place, run in other:
        counts.setdefault(run.delivery_count, []).append((place, run))
    kept = [
        (place, run)
        for delivery_count, alike in counts.items()
        for place, run in runs.within(RunSet.of(alike))
        if run.delivery_count == delivery_count
    ]
    return RunSet.of(kept)
