"""The settle rules under any order of deliveries, lost locks, lost answers, commits and crashes.

The machine plays the broker (records, locks, acknowledgements that arrive or do not), another member of the group, and
Spark (an offset log, a commit log, an outcome log; kill -9 at any moment). What it holds true: a record that we
settled at the broker is in a logged micro-batch, and settled as was decided there; a record is in two micro-batches
only if it was released between them, or the group was reset; and in the end every record is settled.
"""

import json
import random
from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.client.delivery import AcknowledgeType
from headrace.spark.dividing import Division
from headrace.spark.offset import AcquiredOffset, StateId
from headrace.spark.runs import Run, RunSet
from headrace.spark.settle import Acknowledge, BatchLimits, Ledger, OwnLog
from headrace.wire.ids import TopicAndPartition

RECORDS = 8
WALKS, STEPS = 400, 60
PLACE: TopicAndPartition = ("orders", 0)
ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
OUTCOMES = st.dictionaries(
    st.integers(0, RECORDS - 1), st.sampled_from([ACCEPT, RELEASE, REJECT]), max_size=4
)


@dataclass
class Record:
    """As the broker knows it."""

    delivery_count: int = 0
    lock: int | None = None
    """Which lock holds it: a number per delivery."""
    settled_by: str | None = None
    settled_as: AcknowledgeType | None = None


@dataclass(frozen=True)
class Sent:
    """An acknowledgement on its way, with the locks it is about."""

    outcome: AcknowledgeType
    locks: dict[int, int | None]
    life: int


class SettleMachine(RuleBasedStateMachine):
    @initialize(mode=st.sampled_from(Acknowledge), takes_ahead=st.booleans())
    def begin(self, mode: Acknowledge, takes_ahead: bool) -> None:
        self.mode = mode
        self.takes_ahead = takes_ahead and mode is Acknowledge.HANDOFF
        self.own = OwnLog(0, RunSet(), RunSet())
        """The log of what was accepted ahead."""
        self.state = 0
        """The group's state: a reset begins another one."""
        self.logged_before = 0
        """How many micro-batches were logged before the last reset."""
        self.records = [Record() for _ in range(RECORDS)]
        self.locks = 0
        self.mine: set[int] = set()
        """Numbers of the locks that belong to our member, whichever of its lives took them."""
        self.sent: list[Sent] = []
        self.life = 0
        self.log: list[dict[str, object]] = []
        self.committed = 0
        self.outcomes: dict[int, AcknowledgeType] = {}
        """Of the micro-batch that was run last: durable before its commit."""
        self.history: dict[int, list[tuple[int, AcknowledgeType]]] = {offset: [] for offset in range(RECORDS)}
        """For each record: the micro-batches that hold it, and what was decided of it there."""
        self.deferred: set[int] = set()
        """Of the micro-batch that was logged last: what is not run, because it was divided. Durable before it runs."""
        self.ledger = self.new_ledger()

    # the broker

    @rule(offsets=st.sets(st.integers(0, RECORDS - 1), min_size=1))
    def deliver(self, offsets: set[int]) -> None:
        given = [offset for offset in sorted(offsets) if self.is_available(offset)]
        runs = []
        for offset in given:
            record = self.records[offset]
            record.delivery_count += 1
            record.lock = self.locks = self.locks + 1
            self.mine.add(record.lock)
            runs.append((PLACE, Run(offset, offset, record.delivery_count)))
        self.send(self.ledger.acquired(RunSet.of(runs)))

    @rule(offset=st.integers(0, RECORDS - 1), is_noticed=st.booleans())
    def expire(self, offset: int, is_noticed: bool) -> None:
        if self.records[offset].lock is not None:
            self.records[offset].lock = None
        if is_noticed:
            self.ledger.lost(RunSet.of([(PLACE, Run(offset, offset, 0))]))

    @rule(offset=st.integers(0, RECORDS - 1), is_accepted=st.booleans())
    def another_member_takes_it(self, offset: int, is_accepted: bool) -> None:
        if self.is_available(offset):
            self.records[offset].delivery_count += 1
            if is_accepted:
                self.records[offset].settled_by = "another"

    @rule(index=st.integers(0, 5), arrives=st.booleans(), is_answered=st.booleans())
    def acknowledgement(self, index: int, arrives: bool, is_answered: bool) -> None:
        if index >= len(self.sent):
            return
        sent = self.sent.pop(index)
        is_good = arrives and self.apply(sent)
        if is_good and is_answered and sent.life == self.life and sent.outcome is not RELEASE:
            self.ledger.confirmed(RunSet.of((PLACE, Run(offset, offset, 0)) for offset in sent.locks))

    @rule()
    def start_offset_is_read(self) -> None:
        self.ledger.passed(PLACE, self.start_offset())

    @rule(start=st.integers(0, RECORDS - 1), is_running=st.booleans())
    def the_group_is_reset(self, start: int, is_running: bool) -> None:
        """While the query is stopped, or while the group takes the reader for dead, which goes on then.

        What was processed counts no more; only what is in a micro-batch that Spark repeats has its effect later.
        """
        self.state += 1
        self.logged_before = len(self.log)
        for offset, record in enumerate(self.records):
            self.records[offset] = Record(settled_by="nobody" if offset < start else None)
            if record.lock is not None:
                self.mine.discard(record.lock)
            entries = self.history[offset]
            is_repeated = not is_running and bool(entries) and entries[-1][0] > self.committed
            self.history[offset] = entries[-1:] if is_repeated else []
        if is_running:
            self.notice_reset()
        else:
            self.crash()

    def notice_reset(self) -> None:
        self.ledger.reset([PLACE])

    # Spark

    @precondition(lambda self: self.committed == len(self.log))
    @rule(
        records_max=st.integers(1, RECORDS),
        is_logged=st.booleans(),
        is_in_own_log=st.booleans(),
        begins_ahead=st.booleans(),
    )
    def trigger(
        self, records_max: int, is_logged: bool, is_in_own_log: bool, begins_ahead: bool = False
    ) -> None:
        """latestOffset(start), and if there is data the offset log and partitions()."""
        if self.ledger.sequence != len(self.log):
            self.recover()
        self.send(self.ledger.settle(self.logged_outcomes()))
        if begins_ahead and self.log and self.mode is Acknowledge.HANDOFF:
            self.takes_ahead = self.ledger.takes_ahead = True  # as where no option says when
        batch = self.ledger.plan(BatchLimits(records_max=records_max))
        if batch is None:
            return
        if is_in_own_log:
            self.own = self.ledger.own_log()  # as when more is taken in this moment
        if not is_logged:
            self.crash()
            return
        offset = AcquiredOffset(
            self.ledger.sequence,
            "g",
            batch=batch,
            processed=self.ledger.processed,
            states={PLACE: StateId(self.state)},
            accepted=self.ledger.accepted,
            later=self.ledger.later,
        )
        self.deferred = set()
        self.log.append(json.loads(json.dumps(offset.to_json())))
        self.note_logged()
        self.send(self.ledger.hand_off())
        if is_in_own_log:
            self.own = self.ledger.own_log()
        else:
            self.crash()

    @precondition(lambda self: self.takes_ahead)
    @rule(records_max=st.integers(1, RECORDS), is_written=st.booleans(), is_accepted=st.booleans())
    def take_ahead(self, records_max: int, is_written: bool, is_accepted: bool) -> None:
        """The reader writes what it holds to its own log, and then accepts it."""
        runs = self.ledger.begin_taking(BatchLimits(records_max=records_max))
        if not runs:
            return
        if is_written:
            self.own = self.ledger.own_log(runs)
        if not (is_written and is_accepted):
            self.crash()
            return
        self.send(self.ledger.taken_over(runs))

    @precondition(lambda self: self.committed < len(self.log))
    @rule(chosen=OUTCOMES)
    def the_micro_batch_writes_outcomes(self, chosen: dict[int, AcknowledgeType]) -> None:
        if not self.last().accepted:
            self.outcomes = chosen

    @precondition(lambda self: self.committed < len(self.log))
    @rule()
    def the_micro_batch_commits(self) -> None:
        self.committed = len(self.log)
        for offset, entries in self.history.items():
            if not entries or entries[-1][0] != self.committed:
                assert offset not in self.deferred or self.committed <= self.logged_before
            elif offset in self.deferred:
                entries.pop()
            else:
                entries[-1] = (self.committed, self.outcomes.get(offset, ACCEPT))

    @rule(mode=st.sampled_from(Acknowledge), takes_ahead=st.booleans())
    def comes_back_in_another_mode(self, mode: Acknowledge, takes_ahead: bool) -> None:
        self.mode = mode
        self.takes_ahead = takes_ahead and mode is Acknowledge.HANDOFF
        self.crash()

    @precondition(lambda self: self.committed < len(self.log))
    @rule(chosen=st.sets(st.integers(0, RECORDS - 1)))
    def the_micro_batch_fails_and_is_divided(self, chosen: set[int]) -> None:
        """The next life runs a part of it."""
        batch = {at for _, run in self.last().batch for at in range(run.first, run.last + 1)}
        if chosen & (batch - self.deferred):
            self.deferred = batch - (chosen & (batch - self.deferred))
        self.crash()

    @rule()
    def crash(self) -> None:
        """The reader dies. If a logged micro-batch is not committed, Spark replays it before anything else."""
        self.life += 1
        self.ledger = self.new_ledger()
        is_replayed = self.committed < len(self.log)
        if self.log and (is_replayed or self.takes_ahead or self.is_ahead()):
            self.recover()
        self.ledger.recover_taken(self.own)
        self.own = self.ledger.own_log()
        if is_replayed:
            self.outcomes = {}
            self.note_logged()
            self.send(self.ledger.hand_off())
            self.own = self.ledger.own_log()

    # what must hold

    @invariant()
    def nothing_is_lost(self) -> None:
        for offset, record in enumerate(getattr(self, "records", ())):
            if record.settled_by == "ours":
                entries = self.history[offset]
                own = self.own.planned.replaced_by(self.own.taken)
                is_in_own = bool(own.within(RunSet.of([(PLACE, Run(offset, offset, 0))])))
                if is_in_own and (not entries or entries[-1][1] is RELEASE):
                    continue  # accepted ahead, perhaps when it came again
                if not entries and offset in self.later():
                    assert self.last().accepted, f"{offset} was settled before it is run"
                    continue
                assert entries, f"{offset} was settled and never logged"
                assert entries[-1][0] <= self.committed or self.last().accepted
                assert record.settled_as is entries[-1][1], (
                    f"{offset} was settled as {record.settled_as}, not {entries}"
                )

    @invariant()
    def nothing_is_processed_twice(self) -> None:
        for offset, entries in getattr(self, "history", {}).items():
            for number, outcome in entries[:-1]:
                if number <= self.logged_before:
                    continue  # repeated after a reset, which the life after that does not know
                assert outcome is RELEASE, f"{offset} is in micro-batches {entries}"

    def teardown(self) -> None:
        """When all goes well from here on, every record is settled and the journal is empty."""
        if not hasattr(self, "records"):
            return
        for _ in range(3 * RECORDS):
            while self.sent:
                self.acknowledgement(0, True, True)
            is_done = all(record.settled_by for record in self.records) and not self.ledger.taken
            is_done = is_done and not self.later()
            if is_done and self.committed == len(self.log):
                break
            for offset in range(RECORDS):
                self.expire(offset, True)
            self.deliver(set(range(RECORDS)))
            if self.committed < len(self.log):
                self.outcomes = {}
                self.the_micro_batch_commits()
            if self.takes_ahead:
                self.take_ahead(RECORDS, True, True)
            self.trigger(RECORDS, True, True)
            self.nothing_is_lost()
            self.nothing_is_processed_twice()
        self.nothing_is_lost()
        assert all(record.settled_by for record in self.records)
        ours = [at for at, record in enumerate(self.records) if record.settled_by == "ours"]
        assert all(self.history[at] for at in ours), "what was accepted ahead has its micro-batch"
        assert all(self.history[at][-1][1] is not RELEASE for at in ours), "and that counts what came again"
        self.start_offset_is_read()
        assert not self.ledger.processed

    # helpers

    def note_logged(self) -> None:
        """What is logged last is run from now on."""
        for _, run in self.last().batch:
            for at in range(run.first, run.last + 1):
                entries = self.history[at]
                if not entries or entries[-1][0] != len(self.log):
                    entries.append((len(self.log), ACCEPT))

    def is_ahead(self) -> bool:
        return bool(self.own.planned or self.own.taken)

    def recover(self) -> None:
        self.ledger.recover(self.last())
        if self.last().states[PLACE] != StateId(self.state):
            self.notice_reset()
        if self.deferred:
            kept = self.last().batch.minus(RunSet.of((PLACE, Run(at, at, 0)) for at in self.deferred))
            self.ledger.division = Division(self.ledger.sequence, self.ledger.planned, kept)

    def later(self) -> set[int]:
        """What the checkpoint says is in micro-batches to come, because one was divided."""
        if not self.log:
            return set()
        named = {at for _, run in self.last().later for at in range(run.first, run.last + 1)}
        return named | (self.deferred if self.committed == len(self.log) else set())

    def new_ledger(self) -> Ledger:
        ledger = Ledger(self.mode)
        ledger.takes_ahead = self.takes_ahead
        return ledger

    def is_available(self, offset: int) -> bool:
        return self.records[offset].lock is None and self.records[offset].settled_by is None

    def start_offset(self) -> int:
        return next((at for at, record in enumerate(self.records) if not record.settled_by), RECORDS)

    def last(self) -> AcquiredOffset:
        return AcquiredOffset.from_json(self.log[-1])

    def logged_outcomes(self) -> RunSet:
        if not self.log:
            return RunSet()
        return RunSet.of(
            (PLACE, Run(at, at, run.delivery_count, self.outcomes[at]))
            for _, run in self.last().batch
            for at in range(run.first, run.last + 1)
            if at in self.outcomes and at not in self.deferred
        )

    def send(self, owed: RunSet) -> None:
        for _, run in owed:
            locks = {at: self.records[at].lock for at in range(run.first, run.last + 1)}
            self.sent.append(Sent(run.outcome, locks, self.life))

    def apply(self, sent: Sent) -> bool:
        """All or nothing, as the broker does it."""
        held = [
            self.records[at].lock == lock and lock in self.mine and not self.records[at].settled_by
            for at, lock in sent.locks.items()
        ]
        if not all(held):
            return False
        for at in sent.locks:
            self.records[at].lock = None
            if sent.outcome is not RELEASE:
                self.records[at].settled_by, self.records[at].settled_as = "ours", sent.outcome
        return True


SettleMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestSettle = SettleMachine.TestCase


@pytest.mark.parametrize("mode", ["commit", "handoff", "ahead", "mixed"])
def test_long_walks_keep_the_promises(mode: str) -> None:
    """The same machine, with more happening in each of its lives than Hypothesis likes to try."""
    for seed in range(WALKS):
        walk(random.Random(seed), mode)


def walk(chance: random.Random, mode: str) -> None:
    machine = SettleMachine()
    takes_ahead = mode == "ahead"
    machine.begin(Acknowledge.COMMIT if mode == "commit" else Acknowledge.HANDOFF, takes_ahead)

    def likely() -> bool:
        return chance.random() < 0.9

    for _ in range(STEPS):
        some = {offset for offset in range(RECORDS) if chance.random() < 0.5} or {0}
        weights = (8, 8, 8, 4, 6, 8, 1, 2, 1, 1, 1 if mode == "mixed" else 0, 2, 1)
        step = chance.choices(range(13), weights)[0]
        if step == 0:
            machine.deliver(some)
        elif step == 1 and machine.takes_ahead:
            machine.take_ahead(chance.randint(1, RECORDS), likely(), likely())
        elif step == 2 and machine.committed == len(machine.log):
            begins_ahead = mode == "mixed" and not likely()
            machine.trigger(chance.randint(1, RECORDS), likely(), likely(), begins_ahead)
        elif step == 3 and machine.committed < len(machine.log):
            chosen = chance.sample(range(RECORDS), 3)
            machine.the_micro_batch_writes_outcomes(
                {offset: chance.choice((ACCEPT, RELEASE, REJECT)) for offset in chosen}
            )
        elif step == 4 and machine.committed < len(machine.log):
            machine.the_micro_batch_commits()
        elif step == 5:
            machine.acknowledgement(chance.randint(0, 3), likely(), likely())
        elif step == 6:
            machine.crash()
        elif step == 7:
            machine.expire(chance.randrange(RECORDS), chance.random() < 0.5)
        elif step == 8:
            machine.another_member_takes_it(chance.randrange(RECORDS), chance.random() < 0.5)
        elif step == 9:
            machine.start_offset_is_read()
        elif step == 10:
            machine.comes_back_in_another_mode(chance.choice(list(Acknowledge)), chance.random() < 0.5)
        elif step == 11 and machine.committed < len(machine.log):
            machine.the_micro_batch_fails_and_is_divided(some)
        elif step == 12 and likely():
            machine.the_group_is_reset(chance.choice((0, 0, RECORDS // 2)), chance.random() < 0.5)
        machine.nothing_is_lost()
        machine.nothing_is_processed_twice()
    machine.teardown()
