"""A random walk over the log alone: LogManager and PartitionLog on a simulated disk, driven by one seed.

One life is a few dozen steps and two or three restarts: appends (plain, idempotent with retries, transactional with
markers), DeleteRecords, retention, compaction, rolls, topics deleted and made again under their name, a full disk at
any operation. Whatever a worker does (a sync, a compaction, the removal of files) is interrupted at disk operations,
and what the loop's thread may do meanwhile is done there. A process ends by a clean stop, by kill -9 or by a power cut
that loses what was not synced, tears it, or writes it back out of order; between steps or at any disk operation.

The model knows what was promised and checks it while a process runs and after each start:
- what was synced survives a power cut and what was written survives kill -9: once, in order, at its offset;
- start and end never go back, a saved start is kept;
- nothing of a deleted topic is in its successor;
- committed readers see what was committed, up to the last stable offset, and nothing that was aborted;
- a batch that is sent again is known as a repetition, whatever retention and restarts have taken since;
- a compacted log has the newest record of each key.

    python -m tests.simulation.log_walk FIRST LAST     runs the seeds from FIRST to before LAST
"""

import errno
import logging
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.log.config import LogConfig
from headrace.log.disk import PowerLost
from headrace.log.manager import LogManager
from headrace.log.memory_disk import CREATE, MAKE_DIRECTORY, RENAME, SYNCS, TRUNCATE, WRITE, MemoryDisk
from headrace.log.partition_log import Appended, PartitionLog
from headrace.wire.batches import read_header
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import read_records
from tests.unit.log.logs import NOW, batch, values_of

NAMES = ("a", "b", "c")
KEYS = ("k0", "k1", "k2", "k3")
BATCHES_KEPT = 5
MINUTE = 60_000
REFUSABLE = frozenset({WRITE, CREATE, MAKE_DIRECTORY, TRUNCATE, RENAME})


class Broken(AssertionError):
    """A promise was broken."""


class _Stopped(Exception):
    """A worker's failure ends the process: see `background.Work`."""


def require(is_kept: object, text: str) -> None:
    if not is_kept:
        raise Broken(text)


class Event(NamedTuple):
    """One batch of the log, or a marker."""

    base: int
    values: tuple[tuple[str, str | None], ...]
    """Keys and values; none for a marker."""
    producer: tuple[int, int, int] | None = None
    """Id, epoch, base sequence."""
    is_transactional: bool = False
    commit: bool | None = None
    """Of a marker."""
    data: bytes = b""

    @property
    def last(self) -> int:
        return self.base + max(1, len(self.values)) - 1

    def __repr__(self) -> str:
        what = "data" if self.commit is None else "commit" if self.commit else "abort"
        return f"{what} {self.base}-{self.last} of {self.producer}"


@dataclass
class ProducerModel:
    epoch: int
    batches: list[Event] = field(default_factory=list)
    open_at: int = -1

    @property
    def next_sequence(self) -> int:
        if not self.batches:
            return 0
        assert self.batches[-1].producer is not None
        return self.batches[-1].producer[2] + len(self.batches[-1].values)


class State:
    """What follows from the events of a log."""

    def __init__(self, events: list[Event]) -> None:
        self.producers: dict[int, ProducerModel] = {}
        self.undecided: dict[int, list[Event]] = {}
        self.aborted: set[int] = set()
        """Base offsets of batches."""
        for event in events:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        if event.producer is None:
            return
        producer_id, epoch, _ = event.producer
        known = self.producers.get(producer_id)
        if known is None or known.epoch != epoch:
            known = self.producers[producer_id] = ProducerModel(epoch, open_at=known.open_at if known else -1)
        if event.commit is None:
            known.batches = [*known.batches[1 - BATCHES_KEPT :], event]
            if event.is_transactional:
                self.undecided.setdefault(producer_id, []).append(event)
                if known.open_at < 0:
                    known.open_at = event.base
            return
        ended = self.undecided.pop(producer_id, [])
        known.open_at = -1
        if not event.commit:
            self.aborted |= {one.base for one in ended}

    def stable_offset(self, start: int, end: int) -> int:
        opened = [producer.open_at for producer in self.producers.values() if producer.open_at >= 0]
        return max(min(opened), start) if opened else end


@dataclass
class LogModel:
    name: str
    topic_id: bytes
    config: LogConfig
    events: list[Event] = field(default_factory=list)
    end: int = 0
    synced: int = 0
    """Everything below it survives a power cut."""
    start: int = 0
    saved_start: int = 0
    """The start does not go back behind this one, whatever happens."""
    coming_start: int = 0
    """A start that was asked for when the process died."""
    coming: Event | None = None
    """An append that was under way when the process died."""
    lost_from: set[int] = field(default_factory=set)
    """Producers of whom nobody knows what survived."""

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.config.cleanup_policy

    @property
    def state(self) -> State:
        return State(self.events)


class WalkDisk(MemoryDisk):
    """Lets the walk do something before an operation."""

    def __init__(self) -> None:
        super().__init__(is_simulated=True)
        self.before: Callable[[], None] | None = None

    def operation(
        self, before_failing: Callable[[], None] | None = None, *, kind: str = WRITE, is_sync: bool = False
    ) -> None:
        if self.before is not None:
            self.before()
        super().operation(before_failing, kind=kind, is_sync=is_sync)


class Life:
    def __init__(self, seed: int, *, steps: int = 40, restarts: int = 3) -> None:
        self.random = random.Random(seed)
        self.steps = steps
        self.restarts = restarts
        self.disk = WalkDisk()
        self.now_ms = NOW
        self.topics: dict[str, LogModel] = {}
        self.trail: list[str] = []
        self._ids = 0
        self._values = 0
        self._producer_id = 100
        self._epoch = -1
        self._is_busy = False
        self._is_failing = False
        self._reserve_bytes = self.random.choice([0, 0, 3000])
        self.manager: LogManager
        self.logs: dict[str, PartitionLog] = {}

    def run(self) -> None:
        self._start(was_clean=True)
        for _ in range(self.restarts):
            self._live()
        self._verify_all()

    # One process

    def _live(self) -> None:
        """Until it ends."""
        try:
            end = self._live_on()
        except PowerLost:
            self._note("dead in the middle")
            end = self.random.choice(["kill", "cut", "torn"])
        except _Stopped as stopped:
            self._note(f"stopped: {stopped}")
            self.manager.close(clean=False)
            end = self.random.choice(["kill", "kill", "cut", "torn"])
        if end == "stop":
            self._stop()
        else:
            self._die(end)

    def _live_on(self) -> str:
        rng = self.random
        death_at = rng.randint(1, 400) if rng.random() < 0.5 else 0
        if death_at:
            self.disk.fail_at(death_at)
            self._is_failing = False
        for _ in range(rng.randint(self.steps // 4, self.steps)):
            self._step(may_refuse=not death_at)
        end = rng.choice(["stop", "kill", "cut", "torn"])
        if end in ("cut", "torn") and rng.random() < 0.5:
            self._work_on_unsynced()
        self._note(f"end: {end}")
        if end != "stop":
            self.disk.stop_failing()
        return end

    def _work_on_unsynced(self) -> None:
        """Transactions end, and background work runs before their markers are synced."""
        for model in list(self.topics.values()):
            if self.topics.get(model.name) is not model:  # deleted while another one was synced
                continue
            if self.logs[model.name].segments:
                self._roll_log(model)
                self._sync_models([model])
            if self.topics.get(model.name) is model:
                for producer_id in sorted(set(model.state.undecided) - model.lost_from):
                    self._mark(model, model.state, producer_id)
        self._housekeeping()

    def _stop(self) -> None:
        models = list(self.topics.values())
        try:
            self.manager.close()
        except PowerLost:
            self._die(self.random.choice(["kill", "cut", "torn"]))
            return
        except (OSError, KafkaError) as error:
            self._note(f"not clean: {error}")
            self.disk.stop_failing()
            self._die(self.random.choice(["kill", "cut", "torn"]))
            return
        for model in models:
            model.synced, model.saved_start = model.end, model.start
        self.disk.restart()
        if self.random.random() < 0.3:
            self.disk.power_cycle(self.random)
        self._start(was_clean=True)

    def _die(self, end: str) -> None:
        self.disk.before = None
        self._is_busy = False
        for name, model in self.topics.items():
            if name in self.logs:
                model.coming_start = max(model.coming_start, self.logs[name].start_offset)
        is_all_kept = end == "kill"
        if is_all_kept:
            self.disk.restart()
        else:
            self.disk.power_cycle(self.random if end == "torn" else None)
        while self.random.random() < 0.2:  # and again while it recovers
            self.disk.fail_at(self.random.randint(1, 60))
            try:
                self._open()
            except PowerLost:
                self._note("dead while it recovers")
            survival = self.random.choice([None, self.random, self.random])
            if survival is None and self.random.random() < 0.5:
                self.disk.restart()
            else:
                self.disk.power_cycle(survival)
                is_all_kept = False
        self._start(was_clean=False, is_all_kept=is_all_kept)

    def _open(self) -> None:
        self.manager = LogManager(self.disk, now_ms=self.now_ms, reserve_bytes=self._reserve_bytes)
        self.logs = {}
        for name, model in self.topics.items():
            self.logs[name] = self.manager.open_log(name, 0, model.config, model.topic_id)

    def _start(self, *, was_clean: bool, is_all_kept: bool = True) -> None:
        self._note(f"start: {was_clean=} {is_all_kept=}")
        self._open()
        require(was_clean <= self.manager.was_clean, "a clean stop is not known as one")
        epoch = self.manager.store.leader_epoch
        require(epoch >= self._epoch, f"leader epoch {epoch} after {self._epoch}")
        self._epoch = epoch
        for name, model in self.topics.items():
            self._found(model, self.logs[name], model.end if is_all_kept else model.synced)

    # What was found after a start

    def _found(self, model: LogModel, log: PartitionLog, kept_to: int) -> None:
        where = f"{model.name} ({log})"
        require(log.damage is None, f"{where} is damaged: {log.damage}")
        limit = model.end if model.coming is None else model.coming.last + 1
        latest_start = max(model.start, model.coming_start)
        require(log.end_offset >= kept_to, f"{where}: it must have everything up to {kept_to}")
        require(
            model.saved_start <= log.start_offset <= latest_start,
            f"{where}: the start was saved as {model.saved_start} and may be {latest_start}",
        )
        has_started_over = log.end_offset > limit or (
            log.start_offset == log.end_offset and log.end_offset > kept_to
        )
        require(
            log.end_offset <= limit or log.end_offset == log.start_offset,
            f"{where}: only {limit} were written",
        )
        if model.coming is not None and log.end_offset > model.end:
            model.events.append(model.coming)
        lost = [event for event in model.events if event.last >= log.end_offset]
        if has_started_over:
            model.lost_from |= {
                event.producer[0] for event in model.events if event.producer and event.last >= model.synced
            }
        if lost:
            self._note(f"{model.name}: lost from {lost[0].base} on")
        model.events = [event for event in model.events if event.last < log.end_offset]
        model.end = log.end_offset
        model.start, model.coming, model.coming_start = log.start_offset, None, 0
        model.saved_start = max(model.saved_start, 0)
        model.synced = min(model.synced, model.end)
        self._verify(model, log)

    def _verify_all(self) -> None:
        for name, model in self.topics.items():
            self._verify(model, self.logs[name])

    def _verify(self, model: LogModel, log: PartitionLog) -> None:
        where = f"{model.name} ({log})"
        require(log.end_offset == model.end, f"{where}: the end should be {model.end}")
        require(log.start_offset >= model.start, f"{where}: the start has gone back from {model.start}")
        state = model.state
        written = {
            event.base + index: (key, value)
            for event in model.events
            if event.commit is None
            for index, (key, value) in enumerate(event.values)
        }
        found = self._read_all(log, where)
        for offset, record in found.items():
            require(offset in written, f"{where}: nobody wrote {record} at {offset}")
            require(written[offset] == record, f"{where}: {record} at {offset} instead of {written[offset]}")
        if model.is_compacted:
            self._verify_newest(model, state, found, where, log.start_offset)
        else:
            missing = [offset for offset in written if log.start_offset <= offset and offset not in found]
            require(not missing, f"{where}: {missing} are gone")
        self._verify_committed(model, state, log, where)
        self._verify_producers(model, state, log, where)

    def _read_all(self, log: PartitionLog, where: str) -> dict[int, tuple[str, str | None]]:
        found: dict[int, tuple[str, str | None]] = {}
        last = -1
        for data in log.reader.batches():
            header = read_header(data)
            require(header.base_offset > last, f"{where}: {header.base_offset} after {last}")
            last = header.last_offset
            if header.is_control or not header.record_count:
                continue
            for record in read_records(data):
                if record.offset >= log.start_offset:
                    key = record.key.decode() if record.key is not None else ""
                    found[record.offset] = (key, record.value.decode() if record.value is not None else None)
        return found

    def _verify_newest(
        self,
        model: LogModel,
        state: State,
        found: dict[int, tuple[str, str | None]],
        where: str,
        start: int,
    ) -> None:
        newest: dict[str, tuple[int, str | None]] = {}
        undecided = {event.base for events in state.undecided.values() for event in events}
        for event in model.events:
            if event.commit is not None or event.base in state.aborted or event.base in undecided:
                continue
            for index, (key, value) in enumerate(event.values):
                newest[key] = (event.base + index, value)
        for key, (offset, value) in newest.items():
            require(
                offset in found or value is None or offset < start,
                f"{where}: the newest {key}, at {offset}, is gone",
            )

    def _verify_committed(self, model: LogModel, state: State, log: PartitionLog, where: str) -> None:
        if model.lost_from:
            return
        stable = state.stable_offset(log.start_offset, log.end_offset)
        require(log.stable_offset == stable, f"{where}: last stable offset {log.stable_offset}, not {stable}")
        visible = [
            value
            for event in model.events
            if event.commit is None and event.base not in state.aborted
            for index, (_, value) in enumerate(event.values)
            if log.start_offset <= event.base + index < stable
        ]
        seen = values_of(log, committed=True, max_bytes=self.random.choice([1, 300, 100_000]))
        if model.is_compacted:
            hidden = set(seen) - set(visible)
            require(not hidden, f"{where}: committed readers see {hidden}")
        else:
            require(seen == visible, f"{where}: committed readers see {seen} instead of {visible}")

    def _verify_producers(self, model: LogModel, state: State, log: PartitionLog, where: str) -> None:
        for producer_id, producer in state.producers.items():
            if producer_id in model.lost_from:
                continue
            for event in producer.batches:
                try:
                    again = log.append(event.data, now_ms=self.now_ms)
                except KafkaError as error:
                    raise Broken(f"{where}: a repetition of {event.producer} is refused: {error}") from error
                require(
                    again.is_duplicate and again.base_offset == event.base,
                    f"{where}: {event.producer} of offset {event.base} was written again at {again.base_offset}",
                )

    # Steps

    def _step(self, *, may_refuse: bool) -> None:
        rng = self.random
        if may_refuse and rng.random() < 0.01:
            self.disk.fail_at(rng.randint(1, 6), OSError(errno.EIO, "Input/output error"), kinds=SYNCS)
            self._note("a sync will fail")
        elif may_refuse and rng.random() < 0.08:
            kinds = rng.choice([REFUSABLE, REFUSABLE, frozenset({WRITE}), frozenset({CREATE})])
            self.disk.fail_at(
                rng.randint(1, 12), OSError(errno.ENOSPC, "No space left on device"), kinds=kinds
            )
            self._is_failing = True
            self._note("the disk will be full")
        (step,) = rng.choices(
            [
                self._append, self._sync, self._delete_records, self._housekeeping, self._roll,
                self._delete_topic, self._make_topic, self._pass_time, self._save_starts, self._verify_one,
            ],
            [40, 14, 3, 12, 3, 2, 6, 2, 2, 2],
        )  # fmt: skip
        step()
        if self._is_failing and rng.random() < 0.3:
            self.disk.stop_failing()
            self._is_failing = False

    def _note(self, text: str) -> None:
        self.trail.append(text)

    def _some(self) -> LogModel | None:
        return self.topics[self.random.choice(sorted(self.topics))] if self.topics else None

    def _make_topic(self, name: str = "") -> None:
        name = name or self.random.choice(NAMES)
        if name in self.topics:
            return
        self._ids += 1
        rng = self.random
        policy = frozenset(rng.choice([{"delete"}, {"delete"}, {"compact"}, {"compact", "delete"}]))
        config = LogConfig(
            segment_bytes=rng.choice([700, 1000, 1500, 1_000_000]),
            retention_bytes=rng.choice([-1, -1, 600, 1500]) if "delete" in policy else -1,
            retention_ms=rng.choice([-1, 10 * MINUTE]) if "delete" in policy else -1,
            cleanup_policy=policy,
            file_delete_delay_ms=rng.choice([0, MINUTE]),
            index_interval_bytes=rng.choice([1, 100, 4096]),
            min_cleanable_dirty_ratio=0.0,
            delete_retention_ms=rng.choice([0, MINUTE, 100 * MINUTE]),
            producer_expiration_ms=10**15,
        )
        model = LogModel(name, self._ids.to_bytes(16), config)
        self._note(
            f"make {name} as {self._ids}: {sorted(policy)} {config.segment_bytes} {config.retention_bytes}"
        )
        try:
            log = self.manager.open_log(name, 0, config, model.topic_id)
        except OSError as error:
            require(self._is_failing, f"{name} cannot be opened: {error}")
            self._note(f"  refused: {error}")
            return
        self.topics[name] = model
        self.logs[name] = log
        require((log.start_offset, log.end_offset) == (0, 0), f"{log} is not empty and was never written")

    def _delete_topic(self) -> None:
        model = self._some()
        if model is None:
            return
        self._note(f"delete {model.name}")
        # Whoever calls this has it in the metadata, and will find it there after a crash.
        del self.topics[model.name]
        del self.logs[model.name]
        try:
            self.manager.delete_topic(model.name, now_ms=self.now_ms, sync=not self._is_busy)
        except OSError as error:
            self._note(f"  refused: {error}")
        if self.random.random() < 0.8:
            self._make_topic(model.name)

    def _append(self) -> None:
        model = self._some()
        if model is None:
            self._make_topic()
            return
        if model.config.segment_bytes > 1000 and self.random.random() < 0.5:
            for _ in range(self.random.randint(0, 4)):
                self._append_to(model)
        self._append_to(model)

    def _append_to(self, model: LogModel) -> None:
        rng, state = self.random, model.state
        known = [producer_id for producer_id in state.producers if producer_id not in model.lost_from]
        kind = rng.choices(["plain", "idempotent", "again", "transactional", "marker"], [4, 3, 2, 4, 3])[0]
        if kind == "plain" or (kind in ("again", "marker") and not known):
            self._write(model, self._records(model), None)
            return
        if kind == "again":
            batches = state.producers[rng.choice(known)].batches
            if batches:
                self._repeat(model, rng.choice(batches))
            return
        is_open = {producer_id: state.producers[producer_id].open_at >= 0 for producer_id in known}
        if kind == "marker":
            self._mark(model, state, rng.choice(known))
            return
        is_transactional = kind == "transactional"
        usable = [one for one in known if is_transactional or not is_open[one]]
        if not usable or rng.random() < 0.2:
            self._producer_id += 1
            usable = [self._producer_id]
        producer_id = rng.choice(usable)
        producer = state.producers.get(producer_id) or ProducerModel(0)
        self._write(
            model,
            self._records(model),
            (producer_id, producer.epoch, producer.next_sequence),
            is_transactional=is_transactional,
        )

    def _records(self, model: LogModel) -> tuple[tuple[str, str | None], ...]:
        rng, records = self.random, []
        for _ in range(rng.choice([1, 1, 1, 2, 5])):
            self._values += 1
            value = f"{model.topic_id.hex()[-4:]}:{self._values}" + "x" * rng.choice([0, 0, 50, 100])
            is_tombstone = model.is_compacted and rng.random() < 0.15
            records.append((rng.choice(KEYS), None if is_tombstone else value))
        return tuple(records)

    def _write(
        self,
        model: LogModel,
        values: tuple[tuple[str, str | None], ...],
        producer: tuple[int, int, int] | None,
        *,
        is_transactional: bool = False,
    ) -> None:
        log = self.logs[model.name]
        data = batch(
            *(value for _, value in values),
            keys=[key for key, _ in values],
            at=self.now_ms,
            producer=producer,
            transactional=is_transactional,
        )
        event = Event(model.end, values, producer, is_transactional, None, data)
        self._do(model, event, lambda: log.append(data, now_ms=self.now_ms))

    def _mark(self, model: LogModel, state: State, producer_id: int) -> None:
        log, commit = self.logs[model.name], self.random.random() < 0.5
        epoch = state.producers[producer_id].epoch + (self.random.random() < 0.3)
        event = Event(model.end, (), (producer_id, epoch, -1), True, commit)

        def mark() -> Appended:
            return log.append_marker(
                producer_id=producer_id,
                producer_epoch=epoch,
                commit=commit,
                coordinator_epoch=0,
                now_ms=self.now_ms,
            )

        self._do(model, event, mark)

    def _do(self, model: LogModel, event: Event, write: Callable[[], Appended]) -> None:
        model.coming = event
        self._note(
            f"{'  meanwhile ' if self._is_busy else ''}{model.name}[{event.base}] "
            f"{event.producer} {'commit' if event.commit else 'abort' if event.commit is False else len(event.values)}"
            f"{' in a transaction' if event.is_transactional and event.commit is None else ''}"
        )
        with self._loop():
            try:
                appended = write()
            except KafkaError as error:
                require(
                    error.code is ErrorCode.KAFKA_STORAGE_ERROR, f"{model.name}: {event} is refused: {error}"
                )
                is_full = self._is_failing or self.manager.store.reserve.is_out
                require(is_full, f"{model.name}: {event} is refused for no reason: {error}")
                model.coming = None
                self._note("  refused")
                require(
                    self.logs[model.name].end_offset == model.end,
                    f"{model.name}: a refused append has moved the end",
                )
                return
        model.coming = None
        require(not appended.is_duplicate, f"{model.name}: {event} is new and was taken for a repetition")
        require(
            (appended.base_offset, appended.last_offset) == (event.base, event.last),
            f"{model.name}: {event} went to {appended}",
        )
        model.events.append(event)
        model.end = event.last + 1

    def _repeat(self, model: LogModel, event: Event) -> None:
        with self._loop():
            again = self.logs[model.name].append(event.data, now_ms=self.now_ms)
        require(
            again.is_duplicate and again.base_offset == event.base,
            f"{model.name}: {event.producer} of offset {event.base} was written again at {again.base_offset}",
        )

    def _delete_records(self) -> None:
        model = self._some()
        if model is None or "delete" not in model.config.cleanup_policy:
            return
        log = self.logs[model.name]
        target = self.random.choice([model.end, self.random.randint(0, model.end)])
        self._note(f"delete records of {model.name} before {target}")
        model.coming_start = max(model.coming_start, target)
        with self._loop():
            log.trim(target)
        model.start = log.start_offset
        if not self._is_busy and self.random.random() < 0.5:
            self._save_starts()

    def _save_starts(self) -> None:
        starts = [(model, model.start) for model in self.topics.values()]
        try:
            self._work(self.manager.start_offsets.sync)
        except KafkaError:
            return
        for model, start in starts:
            model.saved_start = max(model.saved_start, start)

    def _roll(self) -> None:
        model = self._some()
        if model is not None and self.logs[model.name].segments:
            self._roll_log(model)

    def _roll_log(self, model: LogModel) -> None:
        self._note(f"roll {model.name}")
        try:
            with self._loop():
                self.logs[model.name].roll(self.now_ms)
        except OSError as error:
            self._note(f"  refused: {error}")

    def _sync(self) -> None:
        self._sync_models([model for model in self.topics.values() if self.random.random() < 0.6])

    def _sync_models(self, chosen: list[LogModel]) -> None:
        self._note(f"sync {[(model.name, model.end) for model in chosen]}")
        ends = [(model, model.end) for model in chosen]
        logs = [self.logs[model.name] for model in chosen]
        self._work(lambda: self.manager.sync(logs))
        for model, end in ends:
            model.synced = max(model.synced, end)

    def _housekeeping(self) -> None:
        self._note("housekeeping")
        with self._loop():
            works = self.manager.background_work(self.now_ms)
        self._learn_starts()
        for work in works:
            self._note(f"  {work.what}")
            self._work(work.run)
            try:
                work.finish()
            except OSError as error:
                raise _Stopped(f"{work.what}: {error}") from error
        self._learn_starts()

    def _learn_starts(self) -> None:
        for name, model in self.topics.items():
            start = self.logs[name].start_offset
            require(start >= model.start, f"{name}: the start has gone back from {model.start} to {start}")
            model.start = start

    def _pass_time(self) -> None:
        self.now_ms += self.random.choice([1, MINUTE, 11 * MINUTE])

    def _verify_one(self) -> None:
        model = self._some()
        if model is not None:
            self._verify(model, self.logs[model.name])

    # Who runs

    @contextmanager
    def _loop(self) -> Iterator[None]:
        """The loop's thread is not interrupted."""
        before, self.disk.before = self.disk.before, None
        try:
            yield
        finally:
            self.disk.before = before

    def _work(self, work: Callable[[], None]) -> None:
        """On a worker: at any disk operation the loop's thread may do something."""
        self._is_busy = True
        self.disk.before = self._interrupt
        try:
            work()
        except OSError as error:
            raise _Stopped(str(error)) from error
        finally:
            self.disk.before = None
            self._is_busy = False

    def _interrupt(self) -> None:
        if self.random.random() < 0.03 and not self._is_any_locked():
            self._sync_elsewhere()
        if self.random.random() < 0.15:
            with self._loop():
                (step,) = self.random.choices(
                    [self._append, self._roll, self._delete_records, self._delete_topic], [20, 5, 1, 1]
                )
                step()

    def _is_any_locked(self) -> bool:
        """A second worker would have to wait for the first; here it could not."""
        store = self.manager.store
        shared = (store.start_offsets, store.recovery_points, store.cleaner_offsets, store.root)
        return any(one._saving.locked() for one in shared)

    def _sync_elsewhere(self) -> None:
        """Another worker syncs a log meanwhile: its checkpoints cover what this one has not done yet."""
        free = [model for model in self.topics.values() if not self.logs[model.name].files._syncing.locked()]
        if not free:
            return
        model = self.random.choice(free)
        self._note(f"  another worker syncs {model.name}[{model.end}]")
        end = model.end
        with self._loop():
            self.manager.sync([self.logs[model.name]])
        model.synced = max(model.synced, end)


def run_seed(seed: int, *, steps: int = 40, restarts: int = 3) -> str | None:
    """None, or what is wrong and how it came to that."""
    life = Life(seed, steps=steps, restarts=restarts)
    try:
        life.run()
    except Exception as error:
        what = str(error) if isinstance(error, Broken) else traceback.format_exc()
        return f"seed {seed}: {what}\n" + "\n".join(life.trail)
    return None


def main() -> int:
    logging.disable(logging.CRITICAL)
    first, last = int(sys.argv[1]), int(sys.argv[2])
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 40
    began, failures = time.monotonic(), []
    for seed in range(first, last):
        failure = run_seed(seed, steps=steps)
        if failure is not None:
            failures.append(seed)
            print(failure[:3000] if len(failures) <= 3 else failure.splitlines()[0][:300], flush=True)
    print(
        f"{last - first} lives in {time.monotonic() - began:.0f} s, {len(failures)} broke a promise: {failures[:50]}"
    )
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
