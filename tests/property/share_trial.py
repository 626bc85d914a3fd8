"""A share-partition on trial: one engine, one naive model, one log, and everything that can happen to them.

Each operation draws what it needs from a `Random`, so that both Hypothesis (which can shrink it) and long seeded walks
can drive it. The checks are the invariants in docs/concepts/share-semantics.md; I7 and I10 belong to the broker and
to the sessions.
"""

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from headrace.share.changes import AckBatch, AnyChange, Span, StateBatch, ended_holds
from headrace.share.errors import ShareError
from headrace.share.holds import HoldEnd, PastHold
from headrace.share.limits import Limits
from headrace.share.merge import merge
from headrace.share.modes import AcquireMode
from headrace.share.partition import SharePartition
from headrace.share.states import RecordState as S
from headrace.wire.share_history import PastPartition
from headrace.wire.share_holds import encode_holds, encode_member
from headrace.wire.share_replay import ReplayedState
from headrace.wire.share_state import Snapshot, Update
from tests.property.share_model import SETTLED, Cell, Model

MEMBERS = ("m1", "m2", "m3")
TYPES = (0, 1, 1, 2, 2, 2, 3, 4)


Held = dict[int, tuple[str, int, int]]
"""Member, since when, and delivery count, by offset."""
NAMES = {member: encode_member(member, f"client of {member}", "/10.0.0.1") for member in MEMBERS}


class Past:
    """What was held when, as the engine knew it at that time; and what the journal says of it in the end."""

    def __init__(self, first: Snapshot) -> None:
        self.entries: list[tuple[int, Snapshot | Update]] = [(0, first)]
        self.moments: dict[int, Held] = {}
        self.lost: set[tuple[int, tuple[str, int, int]]] = set()
        """Holds that ended unwritten: their records were below the log's start, or the broker died."""
        self.ended: dict[int, tuple[tuple[str, int, int], int]] = {}
        """The last hold of each offset that ended in writing, and when."""

    def note(self, now_ms: int, model: Model) -> None:
        self.moments[now_ms] = {
            offset: (cell.holder, cell.since_ms, cell.count)
            for offset, cell in model.cells.items()
            if cell.holder is not None and cell.since_ms is not None
        }
        # One that was lost may have been acquired again in the same millisecond.
        self.lost -= set(self.moments[now_ms].items())

    def lose(self, held: Held) -> None:
        self.lost |= set(held.items())

    def end(self, held: Held, now_ms: int) -> None:
        self.ended |= {offset: (one, now_ms) for offset, one in held.items()}

    def check(self, current: Held, now_ms: int) -> None:
        live = [
            PastHold(offset, offset, count, member, "", "", since_ms)
            for offset, (member, since_ms, count) in current.items()
        ]
        for at_ms, held in self.moments.items():
            past = self._replayed(at_ms, live)
            found = {
                offset: (run.holder, run.past.acquired_at, run.delivery_count)
                for run in past.runs()
                if run.state is S.ACQUIRED and run.past is not None
                for offset in range(run.first, run.last + 1)
            }
            assert found == {offset: one for offset, one in held.items() if (offset, one) not in self.lost}
        for run in self._replayed(now_ms, live).runs():
            for offset in range(run.first, run.last + 1):
                known = self.ended.get(offset)
                if run.state is S.ACQUIRED:
                    continue
                if known is None or known[0][2] != run.delivery_count:
                    assert run.past is None
                else:
                    assert run.past is not None
                    assert known == (
                        (run.past.member_id, run.past.acquired_at, run.delivery_count),
                        run.past.ended_at,
                    )

    def _replayed(self, at_ms: int, live: Sequence[PastHold]) -> PastPartition:
        past = PastPartition(at_ms)
        past.add_held(live)
        for timestamp, body in self.entries:
            past.add(timestamp, body)
        return past


class Trial:
    def __init__(self, random: Random) -> None:
        self.limits = Limits(
            delivery_limit=random.randint(2, 6),
            window_max=random.randint(4, 40),
            lock_ms=10,
            dead_letters=random.random() < 0.5,
            renew_enabled=random.random() < 0.8,
        )
        self.now_ms = 0
        self.log: list[Span] = []
        self.aborted: list[Span] = []
        self.log_start, self.log_end, self.longest = 0, 0, 1
        start = random.randint(0, 3)
        self.partition, self.model = SharePartition(start), Model(start, start)
        self.state, self.writes = ReplayedState(0, 0, 0, start, 0, 0, 0, ()), list[StateBatch]()
        self.past = Past(Snapshot(0, 0, 0, start, 0, 0, 0, ()))
        self.origin: tuple[int, Sequence[StateBatch]] = (start, ())
        self.journal: list[Sequence[AnyChange]] = []
        self.start_before = start
        self.window_recovered = 0
        self.deliveries: Counter[int] = Counter()
        self.settled: set[int] = set()
        for _ in range(6):
            self.produce(random)

    def produce(self, random: Random) -> None:
        first = self.log_end + random.choice((0, 0, 0, 0, 1, 5))
        span = (first, first + random.randint(0, 11))
        self.log.append(span)
        self.log_end, self.longest = span[1] + 1, max(self.longest, span[1] - span[0] + 1)
        if random.random() < 0.15:
            self.aborted.append(span)

    def fetch(self, random: Random) -> None:
        if not self.partition.can_acquire(self.limits):
            assert self.partition.window_size >= self.limits.window_max
            return
        offset = self.partition.next_fetch_offset()
        if offset < self.log_start:
            self.archive_before_log_start()
            return
        member = random.choice(MEMBERS)
        arguments = {
            "mode": random.choice(list(AcquireMode)),
            "batch_size": random.choice((0, 1, 5, 500)),
            "records_max": random.choice((0, 1, 3, 7, 20, 500)),
            "fetch_offset": offset,
            "batches": [batch for batch in self.log if batch[1] >= offset][: random.randint(1, 6)],
            "limits": self.limits,
            "aborted": self.aborted,
            "now_ms": self.now_ms,
        }
        acquisition = self.partition.acquire(member, **arguments)
        expected = self.model.acquire(member, **arguments)
        assert [tuple(entry) for entry in acquisition.acquired] == expected
        self.decide(acquisition.changes)
        acquired = [offset for first, last, _ in expected for offset in range(first, last + 1)]
        assert not self.settled & set(acquired)  # I5
        self.deliveries.update(acquired)
        assert all(self.deliveries[offset] <= self.limits.delivery_limit for offset in acquired)  # I3

    def answer(self, random: Random) -> None:
        """A member answers for some of what it holds."""
        if not self.partition.holders:
            return
        member = random.choice(sorted(self.partition.holders))
        held = [view for view in self.partition.snapshot().ranges if view.holder == member]
        batches = []
        for view in sorted(random.sample(held, min(len(held), random.randint(1, 3)))):
            first = random.choice((view.first, random.randint(view.first, view.last)))
            last = random.choice((view.last, random.randint(first, view.last)))
            count = random.choice((1, last - first + 1))
            batches.append(AckBatch(first, last, [random.choice(TYPES) for _ in range(count)]))
        self.acknowledge(member, batches, allows_renew=True)

    def answer_anything(self, random: Random) -> None:
        """Somewhere near the start of the window, whoever holds what; mostly refused."""
        batches = []
        for _ in range(random.randint(1, 2)):
            first = self.partition.start_offset + random.randint(-6, 25)
            last = first + random.randint(-1, 8)
            count = random.choice((1, 1, 1, last - first + 1, 2))
            types = (*TYPES, 5) if random.random() < 0.1 else TYPES
            batches.append(AckBatch(first, last, [random.choice(types) for _ in range(count)]))
        if random.random() < 0.7:
            batches.sort()
        self.acknowledge(random.choice(MEMBERS), batches, allows_renew=random.random() < 0.8)

    def acknowledge(self, member: str, batches: list[AckBatch], *, allows_renew: bool) -> None:
        arguments = {"limits": self.limits, "allows_renew": allows_renew, "now_ms": self.now_ms}
        try:
            changes = self.partition.acknowledge(member, batches, **arguments)
        except ShareError as error:
            with pytest.raises(type(error)):
                self.model.acknowledge(member, batches, **arguments)
            return
        self.model.acknowledge(member, batches, **arguments)
        self.decide(changes)

    def wait(self, random: Random) -> None:
        self.past.note(self.now_ms, self.model)
        self.now_ms += random.randint(1, 12)
        self.decide(self.partition.expire(self.now_ms, limits=self.limits), HoldEnd.EXPIRED)
        self.model.end_holds(self.limits, now_ms=self.now_ms)

    def close(self, random: Random) -> None:
        member = random.choice(MEMBERS)
        self.decide(self.partition.release_member(member, limits=self.limits), HoldEnd.CLOSED)
        self.model.end_holds(self.limits, member=member)

    def copy_dead_letters(self, random: Random) -> None:
        for letter in self.partition.archiving():
            first = random.randint(letter.first, letter.last)
            self.decide(self.partition.dead_lettered(first, letter.last))
            self.model.dead_lettered(first, letter.last)

    def compact(self, random: Random) -> None:
        if len(self.log) > 2:
            self.log.remove(random.choice(self.log[:-1]))

    def trim(self, random: Random) -> None:
        """The log begins later, perhaps inside a record batch; noticed at once or by the next fetch."""
        self.log_start = min(self.log_end, self.log_start + random.randint(0, 15))
        self.log = [batch for batch in self.log if batch[1] >= self.log_start]
        if random.random() < 0.5:
            self.archive_before_log_start()

    def archive_before_log_start(self) -> None:
        self.decide(self.partition.archive_before(self.log_start))
        self.model.archive_before(self.log_start)

    def restart(self, random: Random) -> None:
        """The broker dies; what was written lives on. Before the first write it begins where it began."""
        self.past.lose(self.held())
        start, batches = self.state.start_offset, list(self.state.merged())
        self.partition = SharePartition.recover(start, batches)
        model = Model(start, start, persisted=self.model.persisted)
        if model.persisted:
            model.next = max(model.persisted) + 1
            model.unread = set(range(start, model.next)) - model.persisted.keys()
        for batch in batches:
            for offset in range(batch.first, batch.last + 1):
                model.cells[offset] = Cell(*model.persisted[offset], (batch.first, batch.last))  # I2
        model.advance()
        self.model = model
        self.origin, self.journal = (start, batches), []
        self.start_before = start
        self.window_recovered = self.partition.window_size
        self.deliveries = Counter({offset: count for offset, (_, count) in model.persisted.items()})
        self.settled = {offset for offset, (state, _) in model.persisted.items() if state in SETTLED}

    def held(self) -> Held:
        return {
            offset: (view.hold.member, view.hold.since_ms, view.delivery_count)
            for view in self.partition.snapshot().ranges
            if view.hold is not None
            for offset in range(view.first, view.last + 1)
        }

    def decide(self, changes: Sequence[AnyChange], given_back: HoldEnd = HoldEnd.RELEASED) -> None:
        """Journals, then applies, as the broker does."""
        write = self.partition.write_for(changes)
        ahead = self.partition.write_for(changes, is_ahead=True)
        held, written = self.held(), set[int]()
        if write is not None:
            holds = encode_holds(ended_holds(changes, given_back), NAMES.__getitem__, 0)
            update = Update(0, 0, write.start_offset, 0, write.batches, holds)
            self.state.apply(update)
            self.writes += write.batches
            self.past.entries.append((self.now_ms, self._as_snapshot(update)))
            written = {offset for one in write.batches for offset in range(one.first, one.last + 1)}
        self.journal.append(changes)
        self.partition.apply(changes)
        after = self.held()
        ended = {offset: one for offset, one in held.items() if after.get(offset) != one}
        self.past.end({offset: one for offset, one in ended.items() if offset in written}, self.now_ms)
        self.past.lose({offset: one for offset, one in ended.items() if offset not in written})
        if ahead is not None:
            assert ahead[:2] == (self.partition.start_offset, self.partition.delivery_complete_count)

    def _as_snapshot(self, update: Update) -> Update | Snapshot:
        """Every few updates a snapshot takes the place of one."""
        if len(self.past.entries) % 7:
            return update
        return Snapshot(0, 0, 0, update.start_offset, 0, 0, 0, list(self.state.merged()), update.holds)

    def check(self) -> None:
        self._check_every_offset()
        self._check_invariants()
        self._check_what_is_persisted()
        if len(self.journal) % 8 == 0:
            self.check_replay()

    def _check_every_offset(self) -> None:
        snapshot, model = self.partition.snapshot(), self.model
        assert (snapshot.start_offset, snapshot.next_offset) == (model.start, model.next)
        assert self.partition.next_fetch_offset() == model.next_fetch_offset()
        assert self.partition.deadline_ms() == model.deadline_ms()
        assert snapshot.gap_offset == min(model.unread, default=None)
        cells = {}
        for view in snapshot.ranges:
            batch = None if view.state in SETTLED else view.batch
            for offset in range(view.first, view.last + 1):
                assert offset not in cells  # I1
                cells[offset] = (view.state, view.delivery_count, batch, view.hold, view.deadline_ms)
        assert cells == {
            offset: (c.state, c.count, None if c.state in SETTLED else c.batch, c.hold, c.deadline_ms)
            for offset, c in model.cells.items()
        }

    def _check_invariants(self) -> None:
        partition, snapshot = self.partition, self.partition.snapshot()
        assert partition.start_offset >= self.start_before  # I4
        self.start_before = partition.start_offset
        in_window = [offset for offset in self.model.cells if offset >= partition.start_offset]
        # I6, but for holes: they were no cells before a restart and are read again, and found missing, after it.
        assert len(in_window) <= max(self.limits.window_max + self.longest - 1, self.window_recovered)
        for view in snapshot.ranges:
            assert (
                (view.state is S.ACQUIRED) == (view.holder is not None) == (view.deadline_ms is not None)
            )  # I8
            assert view.last >= partition.start_offset or view.state in (S.ACQUIRED, S.ARCHIVING)
        assert partition.delivery_complete_count == self.model.settled_count  # I9
        backlog = max(self.log_end, snapshot.next_offset) - partition.start_offset
        assert backlog >= partition.delivery_complete_count  # I9: no lag below 0
        self.settled |= {offset for offset, cell in self.model.cells.items() if cell.state in SETTLED}

    def _check_what_is_persisted(self) -> None:
        batches, start = list(self.state.merged()), self.state.start_offset
        assert (
            batches == merge(self.writes, start_offset=start) == merge(self.writes[::-1], start_offset=start)
        )  # I11
        kept = {o: (b.state, b.delivery_count) for b in batches for o in range(b.first, b.last + 1)}
        assert kept == self.model.persisted

    def check_replay(self) -> None:
        """What was journalled rebuilds the engine, one decision at a time and all at once."""
        step_by_step, at_once = SharePartition.recover(*self.origin), SharePartition.recover(*self.origin)
        for changes in self.journal:
            step_by_step.apply(changes)
        at_once.apply([change for changes in self.journal for change in changes])
        assert step_by_step.snapshot() == at_once.snapshot() == self.partition.snapshot()

    def end(self) -> None:
        """I12: with everyone gone, what is not settled is available to the next."""
        self.check_replay()
        self.past.check(self.held(), self.now_ms)
        self.partition.apply(self.partition.expire(self.now_ms + 100, limits=self.limits))
        assert self.partition.deadline_ms() is None
        assert self.partition.holders == []
        left = {view.state for view in self.partition.snapshot().ranges}
        assert left <= {S.AVAILABLE, S.ARCHIVING, *SETTLED}
