"""A streaming query as Spark runs it: its calls of the source in their order, its tasks, its logs, its sink.

`Lineage` is what a query leaves behind whatever happens to its processes: the checkpoint and the sink, which is
repeatable: what a micro-batch writes replaces what was written under its number before. `Run` is one life of the query:
one driver process. The user's function takes its time, returns outcomes, at times wrong ones, and decides anew when a
micro-batch is repeated.
"""

import asyncio
import json
import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from headrace.client.delivery import AcknowledgeType
from headrace.spark.errors import OutcomeError, SourceError
from headrace.spark.offset import Accepted, AcquiredOffset
from headrace.spark.options import OUTCOMES_FOLDER, SourceOptions
from headrace.spark.outcomes import Outcome
from headrace.spark.processing import OutcomeRules
from headrace.spark.reader import ShareStreamReader
from headrace.wire.errors import KafkaError
from tests.simulation.spark.log import COMMITS, OFFSETS, SparkLog, UnreadableError
from tests.simulation.spark.node import SparkNode
from tests.simulation.spark.threads import Killed, Thread, current
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.spark.world import SparkWorld

ACCEPT, RELEASE, REJECT = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE, AcknowledgeType.REJECT
DOOMED_MS = 1_000_000_000
TRIES_MAX = 4
"""Of a task."""
DEFAULT, ONCE, AVAILABLE_NOW = "default", "once", "available now"
Spot = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(frozen=True, slots=True)
class Row:
    topic: str
    partition: int
    offset: int
    delivery_count: int
    value: bytes

    @property
    def spot(self) -> Spot:
        return self.topic, self.partition, self.offset


@dataclass
class MicroBatch:
    """What one micro-batch has left in the sink."""

    rows: dict[bytes, Row]
    outcomes: dict[bytes, AcknowledgeType]
    accepted: set[bytes]
    """Those that were accepted before they were processed (handoff): a release comes too late for them."""
    ran_at: int
    """By the model's count (`Spark.moment`)."""
    is_committed: bool = False

    def effects(self) -> list[bytes]:
        """The records that it has dealt with: all but those it has given back."""
        return [
            value for value in self.rows if self.outcomes.get(value) is not RELEASE or value in self.accepted
        ]


@dataclass
class Lineage:
    name: str
    group: str
    folder: Path
    sources: list[tuple[str, ...]]
    """The topics of each source."""
    sink: dict[int, MicroBatch] = field(default_factory=dict)
    logged: dict[Spot, tuple[int, Accepted]] = field(default_factory=dict)
    """In which micro-batch a record was logged last, and when such a one is accepted."""
    logged_at: dict[int, int] = field(default_factory=dict)
    """When each micro-batch was logged, by the model's count."""
    blind: set[tuple[str, int]] = field(default_factory=set)
    """Partitions of which it could not read the group's state when it logged a micro-batch, and has said so: it cannot
    detect a reset there."""
    is_retired: bool = False
    """Spark cannot read its checkpoint any more, or nobody wants it."""
    forgiven: set[Spot] = field(default_factory=set)
    """Records that were lost with a note that somebody has removed."""
    at_risk: set[Spot] = field(default_factory=set)
    """Records of the micro-batch that the notes were about when all of them were removed: it may go on without them
    if it has said so."""
    removed: dict[Path, bytes] = field(default_factory=dict)
    """Entries of the offset log that somebody has removed, and puts back when the query refuses to go on."""
    is_doomed: bool = False
    """Its next life that commits a micro-batch with outcomes, or a part of one, is killed at that moment, and files of
    its checkpoint are removed."""
    isolated: set[Spot] = field(default_factory=set)
    """Records that a micro-batch fails on by themselves: it goes on without them."""
    has_twin: bool = False
    """There is a copy of its checkpoint, so another reader may have the same member id."""
    is_note_lost: bool = False
    always_letters: bool = True
    """Every life of it had a dead-letter topic."""
    has_lost_data: bool = False
    """Kafka has lost records of one of its micro-batches: from now on it goes on without them."""
    options: dict[str, str] = field(default_factory=dict)
    """What its last life was given, but for what follows from the rest."""
    past_sources: list[list[tuple[str, ...]]] = field(default_factory=list)
    wanted_sources: list[list[tuple[str, ...]]] = field(default_factory=list)
    """It has said that it needs the sources that it had."""
    refusals: int = 0
    """How often it has said so."""
    wants_letters: bool = True
    needs_letters: bool = False
    """It has said that it needs a dead-letter topic."""
    runs: "list[Run]" = field(default_factory=list)

    @property
    def notes(self) -> Path:
        return self.folder / OUTCOMES_FOLDER

    @property
    def run(self) -> "Run | None":
        """The life that goes on; one that only closes does not count."""
        return next((run for run in self.runs if not run.is_over and not run.is_stopping), None)

    def copied(self, name: str, folder: Path) -> "Lineage":
        sink = {
            number: MicroBatch(
                dict(one.rows), dict(one.outcomes), set(one.accepted), one.ran_at, one.is_committed
            )
            for number, one in self.sink.items()
        }
        return Lineage(
            name,
            self.group,
            folder,
            list(self.sources),
            sink,
            dict(self.logged),
            dict(self.logged_at),
            set(self.blind),
            forgiven=set(self.forgiven),
            at_risk=set(self.at_risk),
            removed={folder / path.relative_to(self.folder): data for path, data in self.removed.items()},
            isolated=set(self.isolated),
            has_twin=True,
            is_note_lost=self.is_note_lost,
            always_letters=self.always_letters,
            has_lost_data=self.has_lost_data,
            options=dict(self.options),
            past_sources=list(self.past_sources),
            wants_letters=self.wants_letters,
        )


@dataclass(frozen=True)
class Habits:
    """What one life of a query is like."""

    trigger: str = DEFAULT
    has_watermark: bool = False
    """Micro-batches without data follow."""
    moods: tuple[AcknowledgeType, ...] = ()
    """Outcomes other than ACCEPT that the function returns."""
    effort: float = 0.0
    """How often it takes long."""
    is_rash: bool = False
    """At times it returns outcomes that cannot be carried out."""
    kept_batches: int = 100
    """spark.sql.streaming.minBatchesToRetain"""


class Run:
    """One life of a query."""

    def __init__(
        self, world: "SparkWorld", lineage: Lineage, options: Sequence[dict[str, str]], habits: Habits
    ) -> None:
        self.world = world
        self.lineage = lineage
        self.habits = habits
        self.options = list(options)
        self.error: Exception | None = None
        self.is_over = False
        self.is_stopping = False
        self.is_doomed = False
        """It is killed with the end of this step."""
        self.is_rash = False
        """The function has just returned an outcome that is to be refused."""
        self.batch = -1
        self.is_part = False
        """Of its micro-batch, less than the offset has was run."""
        self.misses_offsets = False
        """It began when entries of the offset log were missing, which are there again."""
        self.idle = 0
        """How often it has found nothing to do."""
        self.readers: list[ShareStreamReader] = []
        self.log = SparkLog(lineage.folder)
        self.node = world.add_node("driver")
        self.executor: SparkNode | None = None
        lineage.runs.append(self)
        self.thread = Thread(self.node, self._main)
        self.thread.on_end = self._ended

    @property
    def rng(self) -> Random:
        return self.world.rng

    def note(self, text: str) -> None:
        self.world.trail.note(f"{self.lineage.name} {text}")

    def stop(self) -> None:
        """`query.stop()`: Spark's own thread ends where it is, the reader's process gets SIGTERM."""
        if not self.is_over and not self.is_stopping:
            self.is_stopping = True
            self.note("is stopped")
            self.thread.interrupt(SystemExit(0))

    def kill(self) -> None:
        self.note("is killed")
        self.node.die()

    def _ended(self, thread: Thread) -> None:
        self.is_over = True
        error = thread.error
        if isinstance(error, Exception):
            self.error = error
            what = f" {error}" if isinstance(error, UnreadableError) else ""
            self.note(f"ends with {type(error).__name__}{what}")
            self.world.spark.failed(self, error)
        self.node.end()
        if self.executor is not None:
            self.executor.end()

    # Spark's own thread

    def _main(self) -> None:
        try:
            self.log.begin()
            self.readers = [ShareStreamReader(SourceOptions.parse(one)) for one in self.options]
            self._execute()
        except SystemExit:
            pass
        finally:
            if not self.node.is_dead:
                self.is_stopping = True
                for reader in self.readers:
                    reader.stop()

    def _execute(self) -> None:
        limits: list[Any] = []
        for reader in self.readers:
            if self.habits.trigger == AVAILABLE_NOW:
                reader.prepareForTriggerAvailableNow()
            limits.append(reader.getDefaultReadLimit())
        batch, start, end = self._recover()
        is_first = True
        while True:
            if end is None:
                end = self._construct(batch, start, limits)
                if end is None:
                    self.idle += 1
                    if self.habits.trigger != DEFAULT:
                        return
                    self._sleep(0.1)
                    continue
            self.batch = batch
            self._run_batch(batch, start, end)
            if self.log.has_commit(batch):
                # A power cut has taken the last offsets and left their commit, so Spark has run an earlier one again.
                raise UnreadableError(self.log.folder / COMMITS / str(self.log.newest(COMMITS)))
            self.log.write_commit(batch)
            self._committed(batch)
            batch, start, end = batch + 1, end, None
            if self.habits.trigger == ONCE and not is_first:
                return
            is_first = False

    def _recover(self) -> tuple[int, list[str] | None, list[str] | None]:
        """The number of the next micro-batch, where it starts, and where it ends if it is logged already."""
        newest = self.log.newest(OFFSETS)
        committed = self.log.newest(COMMITS)
        if committed is not None and newest is None:
            raise UnreadableError(self.log.folder / COMMITS / str(committed))
        if newest is None:
            return 0, None, None
        end = self.log.read_offsets(newest)
        start = self.log.read_offsets(newest - 1) if newest else None
        if self.log.has_commit(newest) and committed == newest:
            return newest + 1, end, None
        self.note(f"repeats {newest}")
        return newest, start, end

    def _construct(self, batch: int, start: list[str] | None, limits: list[Any]) -> list[str] | None:
        end = []
        for number, reader in enumerate(self.readers):
            text = _text(reader.initialOffset()) if start is None else start[number]
            end.append(_text(reader.latestOffset(json.loads(text), limits[number])))
            reader.reportLatestOffset()
        is_new = start is None or end != start
        if start is None and end == [_text(reader.initialOffset()) for reader in self.readers]:
            is_new = self.rng.random() < 0.5  # a first micro-batch may be empty
        if not is_new:
            last = self.lineage.sink.get(batch - 1)
            is_due = last is not None and last.rows and self.habits.has_watermark
            if not is_due:
                return None
            self.world.stats.events["batches without data"] += 1
        self.log.write_offsets(batch, end)
        self._logged(batch, start, end)
        if batch:
            before = self.log.read_offsets(batch - 1)
            for reader, text in zip(self.readers, before, strict=True):
                reader.commit(json.loads(text))
            self.log.purge(batch - self.habits.kept_batches)
        return end

    def _logged(self, batch: int, start: list[str] | None, end: list[str]) -> None:
        self.note(f"logs {batch}")
        self.lineage.logged_at[batch] = self.world.spark.moment()
        for number, text in enumerate(end):
            if start is None or text != start[number]:
                offset = AcquiredOffset.from_json(json.loads(text))
                self.lineage.blind |= set(offset.batch.places) - offset.states.keys()
                for (topic, partition), run in offset.batch:
                    for at in range(run.first, run.last + 1):
                        self.lineage.logged[topic, partition, at] = batch, offset.accepted

    def _run_batch(self, batch: int, start: list[str] | None, end: list[str]) -> None:
        rows: dict[bytes, Row] = {}
        accepted: set[bytes] = set()
        self.is_part = False
        self.lineage.logged_at.setdefault(batch, self.world.spark.moment())  # it was killed as it logged it
        for number, reader in enumerate(self.readers):
            begin = _text(reader.initialOffset()) if start is None else start[number]
            if begin == end[number] and (start is not None or self.rng.random() < 0.5):
                continue
            tasks = reader.partitions(json.loads(begin), json.loads(end[number]))
            if self.rng.random() < 0.05:
                tasks = reader.partitions(json.loads(begin), json.loads(end[number]))
            found = self._read(reader, tasks)
            offset = AcquiredOffset.from_json(json.loads(end[number]))
            self.is_part = self.is_part or len(found) < offset.batch.record_count
            self.world.spark.read(self, offset, found)
            if self.rng.random() < 0.1 and self._read(reader, tasks) != found:
                raise Violation("spark: a second read brings others", f"{self.lineage.name} {batch}")
            rows |= {row.value: row for row in sorted(found, key=lambda row: row.spot)}
            if offset.accepted:
                accepted |= {row.value for row in found}
        self._work()
        if any(map(self.world.is_bad, rows)):
            self._fail(batch)
        last = self.lineage.sink.get(batch - 1)
        outcomes = self._decide(rows, last)
        self.lineage.sink[batch] = MicroBatch(rows, outcomes, accepted, self.world.spark.moment())
        self._record(batch, rows, outcomes, last)
        self.world.stats.events["rows"] += len(rows)

    def _fail(self, batch: int) -> None:
        """As `process` does it when the user's function fails, which has begun to replace what was in the sink."""
        self.lineage.sink[batch] = MicroBatch({}, {}, set(), self.world.spark.moment())
        OutcomeRules(self.lineage.notes).fail(batch, "a bad record")
        self.world.stats.events["failed on a record"] += 1
        raise BadRecordError

    def _work(self) -> None:
        """The user's own work takes its time, at times longer than a lock."""
        if self.rng.random() < self.habits.effort:
            self._sleep(self.rng.choice((0.01, 0.3, 0.9, 1.2, 4.9)))

    def _decide(self, rows: dict[bytes, Row], last: MicroBatch | None) -> dict[bytes, AcknowledgeType]:
        if self.world.is_calm or not self.habits.moods:
            return {}
        return {value: self.rng.choice(self.habits.moods) for value in rows if self.rng.random() < 0.3}

    def _record(
        self,
        batch: int,
        rows: dict[bytes, Row],
        outcomes: dict[bytes, AcknowledgeType],
        last: MicroBatch | None,
    ) -> None:
        """As `process` does it around the user's function."""
        said = [_outcome(rows[value], type) for value, type in outcomes.items()]
        self.is_rash = False
        late: list[Row] = []
        chance = 0.2 if rows else 0.8
        if self.habits.is_rash and last is not None and not self.world.is_calm and self.rng.random() < chance:
            late = [row for value, row in last.rows.items() if value not in rows]
            said += [_outcome(row, REJECT) for row in late[:2]]
        self.is_rash = bool(late) or bool(said)
        rules = OutcomeRules(self.lineage.notes)
        rules.record(batch, said)
        self.is_rash = False
        if late:
            raise Violation(
                "spark: a late outcome is taken",
                f"{self.lineage.name}: micro-batch {batch} says what becomes of {late[0]}, of {batch - 1}",
            )

    def _committed(self, batch: int) -> None:
        self.note(f"commits {batch}")
        done = self.lineage.sink[batch]
        done.is_committed = True
        self.world.stats.events["micro-batches"] += 1
        is_open = done.outcomes or self.is_part
        if self.lineage.is_doomed and is_open and not self.world.is_calm and not self.is_stopping:
            self.lineage.is_doomed, self.is_doomed = False, True
            self.node.stop(DOOMED_MS, stands_still=False)

    def _sleep(self, seconds: float) -> None:
        thread = current()
        assert thread is not None
        thread.sleep(seconds)

    # Tasks

    def _read(self, reader: ShareStreamReader, tasks: Sequence[Any]) -> set[Row]:
        found: set[Row] = set()
        for attempt in self._attempts(reader, tasks):
            found |= attempt
        return found

    def _attempts(self, reader: ShareStreamReader, tasks: Sequence[Any]) -> list[set[Row]]:
        """All tasks at once. One that fails is repeated, one that is slow may have a copy."""
        copy = pickle.dumps(reader)
        results: list[set[Row] | None] = [None] * len(tasks)
        tries: Counter[int] = Counter()
        changed = asyncio.Event()
        failures: list[BaseException] = []

        def ended(number: int, thread: Thread) -> None:
            if self.node.is_dead:
                return
            if thread.error is None and not self.world.has_reported:
                results[number] = results[number] or thread.value
            elif results[number] is None:
                failures.append(thread.error or Killed())
                if tries[number] < TRIES_MAX:
                    self.world.stats.events["tasks repeated"] += 1
                    self.node.loop.call_soon(begin, number)
            self.node.loop.call_soon(changed.set)

        def begin(number: int) -> None:
            if self.is_stopping:
                return
            tries[number] += 1
            thread = Thread(self._executor(), lambda: _task(copy, tasks[number]))
            thread.on_end = lambda thread: ended(number, thread)

        for number in range(len(tasks)):
            begin(number)
            if self.rng.random() < 0.05:
                self.world.stats.events["tasks copied"] += 1
                begin(number)
        while any(one is None for one in results):
            failed = [
                number for number, one in enumerate(results) if one is None and tries[number] >= TRIES_MAX
            ]
            if failed and len(failures) >= TRIES_MAX:
                raise _as_error(failures[-1])
            changed.clear()
            self._wait(changed.wait())
        return [one for one in results if one is not None]

    def _wait(self, awaitable: Any) -> Any:
        thread = current()
        assert thread is not None
        return thread.wait(awaitable)

    def _executor(self) -> SparkNode:
        if self.executor is None or self.executor.is_dead:
            self.executor = self.world.add_node("executor")
        return self.executor


class BadRecordError(Exception):
    """The user's function has failed on a record."""


class TaskFailedError(Exception):
    """An executor was lost too often."""


def _as_error(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else TaskFailedError("executors were lost")


def _task(reader: bytes, partition: Any) -> set[Row]:
    """In an executor's Python worker, which is kept for the next task."""
    thread: Any = current()
    node = thread.node
    thread.worker = node.workers.pop() if node.workers else None
    try:
        found = set()
        for batch in pickle.loads(reader).read(partition):
            columns = batch.to_pydict()
            names = ("topic", "partition", "offset", "deliveryCount", "value")
            found |= {Row(*values) for values in zip(*(columns[name] for name in names), strict=True)}
        return found
    finally:
        if thread.worker is not None and not node.is_dead:
            node.workers.append(thread.worker)


def _outcome(row: Row, type: AcknowledgeType) -> Outcome:
    return Outcome(row.topic, row.partition, row.offset, row.offset, row.delivery_count, type, "because")


def _text(offset: dict[str, Any]) -> str:
    return json.dumps(offset, separators=(",", ":"))


PASSING: tuple[type[Exception], ...] = (KafkaError, OSError, TimeoutError, TaskFailedError)
"""What a query may end with because of a broker that is away."""
REASONED: tuple[type[Exception], ...] = (SourceError, UnreadableError, OutcomeError)
"""What needs a reason, which the model knows."""
Cure = Callable[[Run, Exception], bool]
