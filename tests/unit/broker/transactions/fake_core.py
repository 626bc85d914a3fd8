"""A core small enough to see through: real timers and batches, logs in lists, a disk that syncs and fails when told.

What a test does to it: `advance` turns the clock and runs what is due; `hold` keeps appends from becoming durable until
`sync`; `refuse` makes the next appends fail; `crash` gives a new core that has only what was durable.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from headrace.broker.clock import ExpiryClock
from headrace.broker.groups.classic_rebalance import ClassicLimits
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Now
from headrace.broker.groups.state import CoordinatorState
from headrace.broker.journals import Journals
from headrace.broker.later import Later, resolved
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.broker.slices import Slices
from headrace.broker.timers import Timers
from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import NewRecord, build_batch

INTERNAL = ("__transaction_state", "__consumer_offsets")
START_WALL_MS = 1_700_000_000_000


class FakeClock:
    def __init__(self, elapsed_ms: int = 0) -> None:
        self.elapsed_ms = elapsed_ms

    def wall_ms(self) -> int:
        return START_WALL_MS + self.elapsed_ms

    def monotonic_ms(self) -> int:
        return 5_000 + self.elapsed_ms


class FakeSettings:
    def __init__(self) -> None:
        self.values: dict[str, int | bool] = {
            "offset.metadata.max.bytes": 4096,
            "transaction.max.timeout.ms": 900_000,
            "transactional.id.expiration.ms": 604_800_000,
            "transaction.remove.expired.transaction.cleanup.interval.ms": 3_600_000,
            "transaction.partition.verification.enable": True,
        }

    def get_int(self, name: str) -> int:
        return int(self.values[name])

    def get_bool(self, name: str) -> bool:
        return bool(self.values[name])


@dataclass(frozen=True)
class Marker:
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int


@dataclass(frozen=True)
class FakeProducer:
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start_offset: int


@dataclass(eq=False)
class FakeLog:
    """Entries are batches (journal), markers, or (producer id, epoch) of transactional data."""

    core: "FakeCore"
    leader_epoch: int = 0
    entries: list[Any] = field(default_factory=list)
    durable: int = 0
    start_offset: int = 0
    damage: str | None = None

    @property
    def producer_states(self) -> "FakeLog":
        """What is asked of them, it knows itself."""
        return self

    @property
    def end_offset(self) -> int:
        return len(self.entries)

    @property
    def makes_files(self) -> bool:
        return not self.entries

    @property
    def stable_offset(self) -> int:
        first = min((each.transaction_start_offset for each in self._open()), default=self.end_offset)
        return max(first, self.start_offset)

    def _open(self) -> list[FakeProducer]:
        return [each for each in self.views() if each.transaction_start_offset >= 0]

    def append_marker(
        self, *, producer_id: int, producer_epoch: int, commit: bool, coordinator_epoch: int, now_ms: int
    ) -> None:
        self.core.may_append()
        known = {each.producer_id: each.producer_epoch for each in self.views()}
        if producer_epoch < known.get(producer_id, -1):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        self.entries.append(Marker(producer_id, producer_epoch, commit, coordinator_epoch))

    def batches(self) -> Iterator[bytes]:
        return iter([entry for entry in self.entries if isinstance(entry, bytes)])

    def views(self) -> list[FakeProducer]:
        found: dict[int, FakeProducer] = {}
        for offset, entry in enumerate(self.entries):
            if isinstance(entry, tuple):
                before = found.get(entry[0])
                start = before.transaction_start_offset if before else -1
                found[entry[0]] = FakeProducer(*entry, 0, 0, 0, start if start >= 0 else offset)
            elif isinstance(entry, Marker):
                identity = entry.producer_id, entry.producer_epoch
                found[entry.producer_id] = FakeProducer(*identity, -1, 0, entry.coordinator_epoch, -1)
        return list(found.values())

    @property
    def markers(self) -> list[Marker]:
        return [entry for entry in self.entries if isinstance(entry, Marker)]


class FakePartition:
    def __init__(self, topic: "FakeTopic", index: int, log: FakeLog) -> None:
        self.topic = topic
        self.index = index
        self.log = self.opened_log = log


class FakeTopic:
    def __init__(self, name: str, core: "FakeCore", partitions: int) -> None:
        self.name = name
        self.id = name.encode().ljust(16, b"\0")
        self.is_internal = name in INTERNAL
        self.partitions = [FakePartition(self, index, FakeLog(core)) for index in range(partitions)]


class FakeTopics:
    def __init__(self, core: "FakeCore") -> None:
        self._core = core
        self.by_name: dict[str, FakeTopic] = {}
        self.on_deleted: list[Callable[[Any], None]] = []

    def __iter__(self) -> Iterator[FakeTopic]:
        return iter(list(self.by_name.values()))

    def get(self, name: str) -> FakeTopic | None:
        return self.by_name.get(name)

    def create(self, name: str, partitions: int) -> FakeTopic:
        return self.by_name.setdefault(name, FakeTopic(name, self._core, partitions))

    def internal(self, name: str) -> FakeTopic:
        return self.create(name, 50)

    def require(self, name: str, index: int) -> FakePartition:
        topic = self.by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[index]


class FakeGroups:
    def __init__(self, topics: FakeTopics) -> None:
        self.completed: list[tuple[int, int, bool]] = []
        self.commits: list[JournalEntry] = []
        self.state = CoordinatorState(cast(Any, topics), ClassicLimits())
        self.registry = self.state.registry

    def complete_transaction(self, producer_id: int, partition: int, commit: bool) -> None:
        self.completed.append((producer_id, partition, commit))

    def now(self) -> Now:
        return Now(0, 0)

    def journal(
        self, group_id: str, entries: Sequence[JournalEntry], *, producer: ProducerIdAndEpoch
    ) -> Later[None]:
        self.commits += entries
        return resolved(None)


class FakeLogs:
    def __init__(self, *, was_clean: bool) -> None:
        self.was_clean = was_clean

    def sync(self, logs: Iterable[FakeLog]) -> None:
        for log in logs:
            log.durable = len(log.entries)


class FakeJournals(Journals):
    """Batches in lists have no offsets, and no damage."""

    def _sound_batches(self, partition: Any) -> list[bytes]:
        return [*partition.log.batches()]


class FakeCore:
    def __init__(self, clock: FakeClock | None = None, *, was_clean: bool = True) -> None:
        self.access = None
        self.logs = FakeLogs(was_clean=was_clean)
        self.clock = clock or FakeClock()
        self.expiry_clock = ExpiryClock(self.clock)
        self.timers = Timers()
        self.slices = Slices()
        self.settings = FakeSettings()
        self.topics = FakeTopics(self)
        self.groups = FakeGroups(self.topics)
        self.woken: list[tuple[str, int]] = []
        self.next_producer_id = 0
        self.refused: list[KafkaError | None] = []
        self.appends = 0
        self.appends_max: int | None = None
        self.syncs_max: int | None = None
        self.syncs = 0
        self._held: list[tuple[list[tuple[FakeLog, int]], Later[None]]] | None = None
        self.journals = FakeJournals(self)  # type: ignore[arg-type]
        self.transactions: TransactionCoordinator = TransactionCoordinator(self)  # type: ignore[arg-type]

    def allocate_producer_ids(self, count: int) -> range:
        first, self.next_producer_id = self.next_producer_id, self.next_producer_id + count
        return range(first, first + count)

    def append_internal(
        self,
        topic_name: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: object = None,
    ) -> Later[None]:
        self.may_append()
        target = self.topics.internal(topic_name).partitions[partition]
        now_ms = self.clock.wall_ms()
        target.log.entries.append(build_batch([NewRecord(key, value, (), now_ms) for key, value in records]))
        self.appended(target)
        return self.durable([target.log])

    def durable(self, logs: Iterable[FakeLog]) -> Later[None]:
        marks = [(log, len(log.entries)) for log in logs]
        later: Later[None] = Later()
        if self._held is not None:
            self._held.append((marks, later))
        else:
            self._settle(marks, later)
        return later

    def saved(self, logs: Iterable[FakeLog]) -> Later[None]:
        return self.durable(logs)

    def _settle(self, marks: list[tuple[FakeLog, int]], later: Later[None]) -> None:
        for log, size in marks:
            log.durable = max(log.durable, size)
        later.resolve(None)

    def appended(self, partition: FakePartition) -> None:
        self.woken.append((partition.topic.name, partition.index))

    def may_append(self) -> None:
        if self.refused and (error := self.refused.pop(0)) is not None:
            raise error
        if self.appends_max is not None and self.appends >= self.appends_max:
            raise PowerLost
        self.appends += 1

    def refuse(self, *after: None, times: int = 1) -> None:
        """The next append, or the one after so many good ones, is refused by the disk."""
        self.refused += [*after, *[KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "disk full")] * times]

    def hold(self) -> None:
        self._held = []

    def sync(self) -> None:
        """One group commit: what was appended so far becomes durable; what that sets off waits for the next."""
        assert self._held is not None
        if self.syncs_max is not None and self.syncs >= self.syncs_max:
            raise PowerLost
        self.syncs += 1
        held, self._held = self._held, []
        for marks, later in held:
            self._settle(marks, later)

    def sync_all(self) -> None:
        while self._held:
            self.sync()

    def advance(self, elapsed_ms: int) -> None:
        self.clock.elapsed_ms += elapsed_ms
        self.timers.run_due(self.clock.monotonic_ms())

    def write(self, producer: tuple[int, int], topic: str, partition: int) -> None:
        """Transactional data, as the produce handler appends it."""
        log = self.topics.require(topic, partition).log
        log.entries.append((producer[0], producer[1]))
        self.durable([log])

    def markers(self, topic: str, partition: int = 0) -> list[Marker]:
        return self.topics.require(topic, partition).log.markers

    def crash(self, *, keep_data: bool = False) -> "FakeCore":
        """What the next start finds: the durable entries; with `keep_data`, all that was written to users' topics."""
        after = FakeCore(FakeClock(self.clock.elapsed_ms), was_clean=False)
        after.next_producer_id = self.next_producer_id
        for topic in self.topics:
            copy = after.topics.create(topic.name, len(topic.partitions))
            for old, new in zip(topic.partitions, copy.partitions, strict=True):
                size = len(old.log.entries) if keep_data and not topic.is_internal else old.log.durable
                new.log.entries = old.log.entries[:size]
                new.log.durable = size
                new.log.leader_epoch = old.log.leader_epoch + 1
        return after


class PowerLost(BaseException):
    """Raised by an append at the moment the power goes."""
