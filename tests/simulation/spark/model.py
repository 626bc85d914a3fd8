"""The promises of the Spark source, from the broker's engine to the sink and back.

1. Nothing is accepted or rejected at the broker that the query could still lose: with `commit` a committed micro-batch
   has it, with `handoff` one that is logged and synced, and what is accepted ahead is in the source's own log, synced.
   What a micro-batch has released is not accepted.
2. Tasks read exactly the records of their micro-batch, however often they run.
3. In the end every record is in the effect of exactly one committed micro-batch of a query, unless it was released
   (then again), the broker has given it up after its last delivery, or another member of the group has dealt with it.
   No query has one twice. Where a group was reset, this counts from the reset on: what was processed before comes and
   is processed again, once.
4. What was rejected is in the dead-letter topic, where there is one. So is a record that the function always fails on,
   if the query isolates it, and no other record.
5. A query that ends with an error has a reason: a broker that is away, or what somebody did to its checkpoint, its
   options or its outcomes. In the end, when nothing fails any more and somebody has done what the error says, it goes
   on.
"""

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.share.changes import AnyChange, Change
from headrace.share.partition import SharePartition
from headrace.share.states import Cause
from headrace.spark.dividing import Division
from headrace.spark.errors import CheckpointError, DataLossError, OutcomeError
from headrace.spark.offset import AcquiredOffset
from headrace.spark.runs import RunSet
from headrace.wire.share_state import ShareKey
from tests.simulation.actors.admins import Admin
from tests.simulation.models.logs import LogModel, Logs
from tests.simulation.path.model import ACCEPT, END_MS, GAP, NAMES, REJECT, Acquisition, Path, PathShare
from tests.simulation.spark.log import COMMITS, OFFSETS, SparkLog, UnreadableError
from tests.simulation.spark.query import (
    PASSING,
    RELEASE,
    BadRecordError,
    Habits,
    Lineage,
    Row,
    Run,
    Spot,
)
from tests.simulation.spark.query import REJECT as REJECTED
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.spark.world import SparkWorld

SOURCES = ("alpha", "beta")
"""The topics of queries. Dead letters have the third."""
Place = tuple[str, int]
"""Topic and partition."""
GIVEN_UP = (Cause.EXHAUST, Cause.EXHAUST_TO_DEAD_LETTERS, Cause.TRIM)
DRAIN_MS = 300_000
STARTS_MAX = 12
REFUSALS_MAX = 4
Key = tuple[str, Spot]
"""Group and record."""


@dataclass
class Wish:
    """What an administrator wants to do with a group that has no members."""

    group: str
    is_delete: bool


@dataclass(frozen=True, slots=True)
class Reset:
    """The state of a group began anew in one partition."""

    at: int
    start: int
    """The first record that is to be delivered; -1: it is decided later."""
    is_meant: bool
    """By an administrator. Else a power cut of the broker has taken the first state, before anybody saw it there."""


class SparkShare(PathShare):
    """The broker's promises, and what it gives up by itself."""

    def __init__(self, world: "SparkWorld") -> None:
        super().__init__(world)
        self._generations: dict[ShareKey, int | None] = {}
        """Of those that are being set anew, before that."""

    def initializing(self, key: ShareKey) -> None:
        super().initializing(key)
        self._generations[key] = self.generation(*key)

    def initialized(self, key: ShareKey) -> None:
        super().initialized(key)
        if self.generation(*key) != self._generations.pop(key):
            self.world.spark.begins_anew(key, self.journal.stored[key].start)  # type: ignore[attr-defined]

    def _forget_dropped(self) -> None:
        self.world.spark.deleted |= self.journal.dropped  # type: ignore[attr-defined]
        super()._forget_dropped()

    def applying(self, engine: SharePartition, changes: Sequence[AnyChange]) -> None:
        super().applying(engine, changes)
        shadow = self.shadows.get(id(engine))
        for change in changes:
            if shadow is not None and isinstance(change, Change) and change.cause in GIVEN_UP:
                topic = shadow.loaded.partition.topic.name
                for offset in range(change.first, change.last + 1):
                    spot = topic, shadow.key.partition, offset
                    self.world.spark.given_up.add((shadow.key.group_id, spot))  # type: ignore[attr-defined]


class Spark(Path):
    world: "SparkWorld"

    def __init__(self, world: "SparkWorld") -> None:
        super().__init__(world)
        self.lineages: list[Lineage] = []
        self.given_up: set[Key] = set()
        self.settled: dict[Key, int] = {}
        """Records that the broker has done with, by an answer."""
        self.answerers: dict[Key, list[Lineage]] = {}
        """Whose answer that was."""
        self.elsewhere: set[Key] = set()
        """Those that a member has answered that is no query."""
        self.owners: dict[str, list[Lineage]] = {}
        """Whose a member id is: of several, where a checkpoint was copied."""
        self.wish: Wish | None = None
        """Queries of this group wait until it is done."""
        self.alters: str | None = None
        """The group whose offsets are being set."""
        self.deleted: set[ShareKey] = set()
        """State that an administrator has deleted."""
        self.begun: set[ShareKey] = set()
        self.resets: dict[tuple[str, Place], list[Reset]] = {}
        """By group and partition."""
        self._moments = 0

    def moment(self) -> int:
        """Counts what is to be compared by time."""
        self._moments += 1
        return self._moments

    # Groups that begin anew

    def begins_anew(self, key: ShareKey, start: int) -> None:
        topic = self.logs.name_of(key.topic_id)
        is_meant = key in self.deleted or self.alters == key.group_id
        is_first = key not in self.begun
        self.begun.add(key)
        if topic not in SOURCES or (is_first and not is_meant):
            return
        self.deleted.discard(key)
        place = topic, key.partition
        self.resets.setdefault((key.group_id, place), []).append(Reset(self.moment(), start, is_meant))
        if not is_meant:
            return
        self.world.trail.note(f"{key.group_id} begins anew in {topic}-{key.partition}")

        def is_there(one: Key) -> bool:
            return one[0] == key.group_id and one[1][:2] == place

        for known in (self.settled, self.answerers):
            for one in [one for one in known if is_there(one)]:
                del known[one]  # type: ignore[attr-defined]
        for kept in (self.given_up, self.elsewhere):
            kept -= {one for one in kept if is_there(one)}
        for lineage in self.lineages:
            if lineage.group == key.group_id:
                lineage.isolated = {spot for spot in lineage.isolated if spot[:2] != place}
        for held in [held for held in self.world.share.held if held[0] == key]:
            del self.world.share.held[held]

    def _last_reset(self, group: str, spot: Spot, *, is_meant: bool) -> int:
        """When; -1 for never."""
        resets = self.resets.get((group, spot[:2]), ())
        return max((one.at for one in resets if one.is_meant or not is_meant), default=-1)

    @property
    def logs(self) -> Logs:
        return self.world.model(Logs)

    def log_of(self, topic: str, partition: int) -> LogModel | None:
        topic_id = self.logs.topics.get(topic)
        return None if topic_id is None else self.logs.logs.get((topic_id, partition))

    def value_of(self, spot: Spot) -> bytes | None:
        model = self.log_of(*spot[:2])
        entry = None if model is None else model.entries.get(spot[2])
        return None if entry is None else entry.value

    # 1. The broker takes an answer

    def took(self, one: Acquisition, effect: int) -> None:
        one.effects.append(effect)
        self.world.stats.events[NAMES[effect]] += 1
        if effect not in (GAP, ACCEPT, REJECT) or one.topic not in SOURCES:
            return
        spot = one.topic, one.key.partition, one.offset
        key = one.key.group_id, spot
        self.settled[key] = effect
        self.note_members()
        owners = self.answerers[key] = self.owners.get(one.member, [])
        if not owners:
            self.elsewhere.add(key)
        elif not any(self._may_settle(lineage, spot, effect) for lineage in owners):
            raise Violation(
                f"spark: {NAMES[effect]} what the query may lose",
                f"{one!r}: {[(lineage.name, lineage.logged.get(spot)) for lineage in owners]}",
            )

    def note_members(self) -> None:
        for lineage in self.lineages:
            for run in lineage.runs:
                for reader in run.readers:
                    acquirer = None if reader._driver is None else reader._driver._acquirer
                    if acquirer is not None:
                        owners = self.owners.setdefault(acquirer.member_id, [])
                        if lineage not in owners:
                            owners.append(lineage)

    def _may_settle(self, lineage: Lineage, spot: Spot, effect: int) -> bool:
        value = self.value_of(spot)
        done = [
            (number, batch)
            for number, batch in lineage.sink.items()
            if value is not None and value in batch.rows and self._is_committed(lineage, number)
        ]
        for number, batch in done:
            assert value is not None
            is_rejected = value in batch.outcomes and value not in batch.accepted
            is_meant = is_rejected == (effect == REJECT)
            if is_meant and self._is_safe(lineage, number, spot):
                return True
        if self._is_forgiven(lineage, spot):
            return True
        if effect != ACCEPT:
            return spot in lineage.isolated
        logged = lineage.logged.get(spot)
        is_handed_off = logged is not None and bool(logged[1]) and self._is_safe(lineage, logged[0], spot)
        return is_handed_off or self._is_ahead(lineage, spot)

    @staticmethod
    def _is_committed(lineage: Lineage, number: int) -> bool:
        return lineage.sink[number].is_committed or (lineage.folder / COMMITS / str(number)).exists()

    def _is_safe(self, lineage: Lineage, number: int, spot: Spot) -> bool:
        """The offset log's entry is on the disk; an older one has served."""
        path = lineage.folder / OFFSETS / str(number)
        if not path.exists() or lineage.logged.get(spot, (number,))[0] != number:
            return True
        found = self.world.files.safe(path)
        return found is not None and found == path.read_bytes()

    def _is_ahead(self, lineage: Lineage, spot: Spot) -> bool:
        for path in sorted(lineage.notes.glob("ahead-*.json")) if lineage.notes.is_dir() else ():
            found = self.world.files.safe(path)
            if found and spot in _spots_ahead(found):
                return True
        return False

    # 2. Tasks

    def read(self, run: Run, offset: AcquiredOffset, rows: set[Row]) -> None:
        self.note_members()  # one that is stopped settles what it has read when it has no driver any more
        wanted = self._given(run.lineage, offset)
        got = {row.spot: row for row in rows}
        missing = {spot for spot in wanted - got.keys() if self.value_of(spot) is not None}
        if missing or got.keys() - wanted or len(got) != len(rows):
            raise Violation(
                "spark: a task reads other records",
                f"{run.lineage.name}: missing {missing}, too many {got.keys() - wanted}",
            )

    def _given(self, lineage: Lineage, offset: AcquiredOffset) -> set[Spot]:
        """Of a micro-batch that was divided, what a note says that is safe from a power cut."""
        found = self.world.files.safe(lineage.notes / f"division-{offset.member}.json")
        division = Division.from_json(json.loads(found)) if found else None
        if division is None or not division.is_of(offset):
            return _spots(offset)
        self.world.stats.events["divided"] += division.given != offset.batch
        for (topic, partition), run in division.rejected:
            spot = topic, partition, run.first
            value = self.value_of(spot)
            if run.size > 1 or (
                value is not None and not self.world.is_bad(value) and not self.world.is_calm
            ):
                raise Violation("spark: a good record is isolated", f"{lineage.name} {spot}")
            lineage.isolated.add(spot)
        return _spots_of(division.given)

    # 5. Ends

    def failed(self, run: Run, error: Exception) -> None:
        lineage, text = run.lineage, str(error)
        self.world.stats.events[f"ended by {type(error).__name__}"] += 1
        if self._is_reasonable(run, error):
            return
        self.world.report(Violation("spark: fails without a reason", f"{lineage.name}: {error!r} {text}"))

    def _is_reasonable(self, run: Run, error: Exception) -> bool:
        lineage, text = run.lineage, str(error)
        match error:
            case BadRecordError():
                return True
            case UnreadableError():
                self._mend(lineage, error)
                return True
            case DataLossError():
                lineage.has_lost_data = True
                return self._has_lost(lineage)
            case OutcomeError():
                if "deadLetterTopic" in text and "does not exist" not in text:
                    lineage.needs_letters = True
                    return True
                return run.is_rash or "does not exist" in text
            case CheckpointError():
                if "is missing" in text:
                    lineage.has_lost_data = True
                    return lineage.is_note_lost
                if "as committed, and Spark runs it" in text and lineage.removed:
                    self._put_back(lineage)
                    return True
                if "as committed, and Spark runs it" in text and run.misses_offsets:
                    return True
                if "as committed, and Spark runs it" in text:
                    log = run.log
                    newest, committed = log.newest(OFFSETS), log.newest(COMMITS)
                    assert newest is not None
                    assert committed is not None
                    self._mend(lineage, UnreadableError(log.folder / COMMITS / str(committed)))
                    return committed > newest
                if "has the same member ID" in text:
                    return lineage.has_twin
                if "Another reader has used" in text:
                    return len(lineage.runs) > 1 or lineage.has_twin
                if "no longer has that source" in text:
                    self._left_behind(lineage)
                    return len(lineage.past_sources) > 1
                return False
        return isinstance(error, PASSING)

    def _left_behind(self, lineage: Lineage) -> None:
        """Somebody tries the topics that it had. Where several of them have left records, that is of no use."""
        lineage.refusals += 1
        lineage.wanted_sources = [one for one in lineage.past_sources if one != lineage.sources]
        if lineage.refusals > REFUSALS_MAX:
            self.world.stats.events["left behind"] += 1
            lineage.has_lost_data = True
            self._forgive_notes(lineage)

    def _forgive_notes(self, lineage: Lineage) -> None:
        """Nobody will work off what it has accepted ahead."""
        for path in sorted(lineage.notes.glob("ahead-*.json")):
            lineage.forgiven |= _spots_ahead(path.read_bytes())

    def _has_lost(self, lineage: Lineage) -> bool:
        """Kafka's log really does not hold a record that the query has logged."""
        return any(self.value_of(spot) is None for spot in lineage.logged)

    def _put_back(self, lineage: Lineage) -> None:
        for run in lineage.runs:
            run.misses_offsets = True  # what has begun may have read the log by now, and fail later
        for path, data in lineage.removed.items():
            path.write_bytes(data)
        lineage.removed.clear()
        self.world.files.sync_all(lineage.folder)

    def lose_offsets(self, lineage: Lineage) -> None:
        """The newest entries of Spark's offset log, whose commits stay."""
        log = SparkLog(lineage.folder)
        newest = log.newest(OFFSETS)
        if not newest or newest != log.newest(COMMITS) or lineage.removed:
            return
        count = self.world.chance.randint(1, min(3, newest))
        for number in range(newest - count + 1, newest + 1):
            entry = lineage.folder / OFFSETS / str(number)
            for path in (entry, entry.with_name(f".{entry.name}.crc")):
                if path.exists():
                    lineage.removed[path] = path.read_bytes()
                    path.unlink()

    def _mend(self, lineage: Lineage, error: UnreadableError) -> None:
        """Somebody removes what a power cut has left of the newest entry. With an older one that is of no use."""
        if lineage.removed:
            self._put_back(lineage)
            return
        log = lineage.runs[-1].log
        path = error.path
        if path.exists() and log.newest(path.parent.name) == int(path.name):
            log.forget(path)
            if path.parent.name == OFFSETS:
                log.forget(path.parent.parent / COMMITS / path.name)
        else:
            self.world.stats.events["checkpoints lost"] += 1
            lineage.is_retired = True
            self._forgive_notes(lineage)

    def lose_notes(self, lineage: Lineage) -> None:
        """Files that the source makes anew, or without which it refuses to go on."""
        newest = lineage.runs[-1].log.newest(OFFSETS) if lineage.runs else None
        is_ahead = False
        if newest is not None:
            texts = (lineage.folder / OFFSETS / str(newest)).read_text().splitlines()[2:]
            is_ahead = any('"a":"ahead"' in text for text in texts)
            if texts and all('"n":1' in text for text in texts) and self.world.chance.random() < 0.5:
                self._lose_all_notes(lineage, texts)
                return
        # Before the first offset, which names its member, a reader finds what it has taken ahead by its claim. One that
        # has lost it refuses the next micro-batch, and here there may be none.
        is_claim_needed = newest is None and any(lineage.notes.glob("ahead-*.json"))
        removable = ("source-",) if is_claim_needed else (".reader-", "source-")
        for path in sorted(lineage.notes.iterdir()):
            if path.name.startswith(removable) and self.world.rng.random() < 0.5:
                self.world.trail.note(f"{lineage.name} loses {path.name}")
                lineage.is_note_lost = lineage.is_note_lost or path.name.startswith("source-")
                path.unlink()
            if path.name.startswith("ahead-") and path.suffix == ".json" and is_ahead:
                lineage.is_note_lost = True
                lineage.forgiven |= _spots_ahead(path.read_bytes())
                path.unlink()

    def _lose_all_notes(self, lineage: Lineage, texts: list[str]) -> None:
        """The query refuses to go on, unless it was told to go on without data that is lost."""
        self.world.trail.note(f"{lineage.name} loses its notes")
        self._forgive_notes(lineage)
        lineage.is_note_lost = True
        for text in texts:
            lineage.at_risk |= _spots(AcquiredOffset.from_json(json.loads(text)))
        shutil.rmtree(lineage.notes)

    @staticmethod
    def _is_forgiven(lineage: Lineage, spot: Spot) -> bool:
        return spot in lineage.forgiven or (lineage.has_lost_data and spot in lineage.at_risk)

    # 3 and 4. In the end

    def at_end(self) -> None:
        world = self.world
        for wire in world.wires:
            if wire.is_hanging:
                wire.cut()
        for node in world.nodes:
            node.go_on()
        for lineage in self.lineages:
            for run in lineage.runs:
                run.stop()
        if self.wish is not None and not world.wait_for(self._is_wish_done, END_MS):
            raise Violation("spark: a group cannot be reset", f"{self.wish}")
        if not world.wait_for(lambda: not world.nodes, END_MS):
            raise Violation("spark: a query does not end", f"{[node.name for node in world.nodes]}")
        for lineage in self.lineages:
            self._finish(lineage)
        for group in sorted({lineage.group for lineage in self.lineages}):
            fresh = world.new_lineage(group, [SOURCES])
            self._finish(fresh)
            if fresh.is_retired:
                raise Violation("spark: a new query cannot run", f"{group}")
            self._check_group(group)

    def _is_wish_done(self) -> bool:
        for actor in self.world.actors:
            if isinstance(actor, Admin) and actor.is_ready:
                actor.step()
        self.world.settle()
        return self.wish is None

    def _finish(self, lineage: Lineage) -> None:
        """It comes back, in calm, as often as it takes, and takes everything that there is."""
        world = self.world
        for _ in range(STARTS_MAX):
            if lineage.is_retired:
                return
            if lineage.wanted_sources:
                lineage.sources = lineage.wanted_sources.pop()
            elif len(lineage.sources) == 1:
                lineage.sources = [SOURCES]
            run = world.start_run(lineage, Habits())
            is_all = any(topics == SOURCES for topics in lineage.sources) or len(lineage.sources) > 1
            is_done = is_all and world.wait_for(
                lambda run=run: run.is_over or self._is_drained(lineage.group), DRAIN_MS
            )
            world.wait_for(lambda run=run: run.is_over or self._is_quiet(run), 60_000)
            run.stop()
            if not world.wait_for(lambda: not world.nodes, END_MS):
                raise Violation("spark: a query does not end", f"{[node.name for node in world.nodes]}")
            world.raise_reported()
            if run.error is None and is_done:
                return
            if run.error is None and is_all:
                left = self._left(lineage.group)[:5]
                states = [f"{spot} {self._state(lineage.group, spot)}" for spot in left]
                raise Violation("spark: never drained", f"{lineage.name} of {lineage.group}: {states}")
        raise Violation("spark: cannot go on", f"{lineage.name}: {lineage.runs[-1].error!r}")

    def _is_quiet(self, run: Run) -> bool:
        """It has found nothing to do, and all that it has taken is in a committed micro-batch."""
        if run.idle < 2:
            return False
        drivers = [reader._driver for reader in run.readers]
        return all(
            driver is not None and driver._ledger.is_settled and not any(driver._ledger.own_log()[1:])
            for driver in drivers
        )

    def records(self) -> list[tuple[Spot, bytes]]:
        return [
            ((model.topic, model.partition, offset), entry.value)
            for model in self.logs.logs.values()
            if model.topic in SOURCES
            for offset, entry in model.entries.items()
            if entry.value is not None
        ]

    def _left(self, group: str) -> list[Spot]:
        return [
            spot
            for spot, _ in self.records()
            if (group, spot) not in self.settled
            and (group, spot) not in self.given_up
            and not self._is_passed(group, spot)
        ]

    def _is_passed(self, group: str, spot: Spot) -> bool:
        """Another member was there before the first query of the group: for it, the group began at `latest`.

        Or an administrator has reset the group to a later record.
        """
        if self._is_before_reset(group, spot):
            return True
        if not self.world.has_sharers or any(
            key.group_id == group and (self.logs.name_of(key.topic_id), key.partition, offset) == spot
            for key, offset in self.world.share.held
        ):
            return False
        return any(
            shadow.key.group_id == group and shadow.start > spot[2]
            for shadow in self.world.share.shadows.values()
            if (shadow.loaded.partition.topic.name, shadow.key.partition) == spot[:2]
        )

    def _is_before_reset(self, group: str, spot: Spot) -> bool:
        meant = [one for one in self.resets.get((group, spot[:2]), ()) if one.is_meant]
        return bool(meant) and spot[2] < meant[-1].start

    def _state(self, group: str, spot: Spot) -> str:
        for shadow in self.world.share.shadows.values():
            key = shadow.key
            if (key.group_id, key.partition, shadow.loaded.partition.topic.name) == (group, spot[1], spot[0]):
                return f"start {shadow.start}, {shadow.offsets.get(spot[2])}"
        return "not loaded"

    def _is_drained(self, group: str) -> bool:
        return not self._left(group)

    def _check_group(self, group: str) -> None:
        lineages = [lineage for lineage in self.lineages if lineage.group == group]
        where: dict[bytes, list[tuple[Lineage, int]]] = {}
        for lineage in lineages:
            for number, batch in lineage.sink.items():
                for value in batch.effects():
                    where.setdefault(value, []).append((lineage, number))
        for spot, value in self.records():
            found = where.get(value, [])
            since = self._last_reset(group, spot, is_meant=True)
            found = [(lineage, number) for lineage, number in found if lineage.sink[number].ran_at > since]
            names = [(lineage.name, number) for lineage, number in found]
            until = self._last_reset(group, spot, is_meant=False)
            new = [lineage.name for lineage, number in found if lineage.logged_at[number] > until]
            if len(set(new)) < len(new):
                raise Violation("spark: processed twice", f"{group} {spot}: {names}")
            if not found:
                self._check_missing(group, spot, value, lineages)
            for lineage, number in found:
                if spot in lineage.isolated and not self._is_forgiven(lineage, spot):
                    raise Violation("spark: isolated, and processed", f"{group} {spot}: {names}")
                self._check_letter(group, spot, value, lineage, number)

    def _check_missing(self, group: str, spot: Spot, value: bytes, lineages: list[Lineage]) -> None:
        key = group, spot
        is_exhausted = self.settled.get(key) == REJECT and any(
            batch.outcomes.get(value) is RELEASE for lineage in lineages for batch in lineage.sink.values()
        )
        if (
            key in self.elsewhere
            or key in self.given_up
            or self._is_passed(group, spot)
            or is_exhausted
            or any(self._is_forgiven(lineage, spot) for lineage in lineages)
            or (self.resets.get((group, spot[:2])) and any(spot[:2] in lineage.blind for lineage in lineages))
            or any(spot in lineage.isolated and lineage.is_retired for lineage in lineages)
        ):
            return
        if any(spot in lineage.isolated for lineage in lineages):
            if (group, *spot) not in self.letters:
                raise Violation("spark: isolated without a dead letter", f"{group} {spot}")
            return
        logged = [(lineage.name, lineage.logged.get(spot)) for lineage in lineages]
        raise Violation("spark: lost", f"{group} {spot}, answer {self.settled.get(key)}: {logged}")

    def _check_letter(self, group: str, spot: Spot, value: bytes, lineage: Lineage, number: int) -> None:
        batch = lineage.sink[number]
        outcome = batch.outcomes.get(value)
        if outcome is None or not batch.is_committed or (group, spot) in self.elsewhere:
            return
        if self._is_forgiven(lineage, spot):
            return
        if not lineage.always_letters and value not in batch.accepted:
            is_own = self.answerers.get((group, spot)) == [
                lineage
            ]  # else another one had it when the lock was lost
            if outcome is REJECTED and self.settled.get((group, spot)) != REJECT and is_own:
                raise Violation("spark: rejected, and accepted", f"{group} {spot} by {lineage.name} {number}")
            return
        if (group, *spot) not in self.letters:
            raise Violation("spark: no dead letter", f"{group} {spot}: {outcome} by {lineage.name} {number}")


def _spots(offset: AcquiredOffset) -> set[Spot]:
    return _spots_of(offset.batch)


def _spots_ahead(note: bytes) -> set[Spot]:
    found = AcquiredOffset.from_json(json.loads(note))
    return _spots_of(found.batch) | _spots_of(found.later)


def _spots_of(runs: RunSet) -> set[Spot]:
    return {
        (topic, partition, at) for (topic, partition), run in runs for at in range(run.first, run.last + 1)
    }
