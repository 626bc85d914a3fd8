"""Just enough of a BrokerCore for the group coordinator: real settings, timers, batches; topics and logs in lists."""

from collections.abc import Callable, Iterator, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from headrace.broker.call import Call
from headrace.broker.clock import ExpiryClock
from headrace.broker.groups.coordinator import OFFSETS_TOPIC, GroupCoordinator
from headrace.broker.handlers import error_response
from headrace.broker.journals import Journals
from headrace.broker.later import Later
from headrace.broker.metrics import MetricsRegistry
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.broker.settings import Settings
from headrace.broker.slices import Slices
from headrace.broker.timers import Timers
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import NewRecord, build_batch, build_marker

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore


class FakeClock:
    """The wall clock is a million seconds ahead of the monotonic one, so that a mix-up shows."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.jump_ms = 0
        """By how much somebody has set the wall clock forward, or back."""

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms + 1_000_000_000 + self.jump_ms


class FakeLog:
    def __init__(self) -> None:
        self.data: list[bytes] = []

    def batches(self) -> Iterator[bytes]:
        return iter(self.data)


class FakePartition:
    def __init__(self, index: int) -> None:
        self.index = index
        self.log = FakeLog()


class FakeTopic:
    def __init__(self, name: str, topic_id: bytes, partitions: int) -> None:
        self.name = name
        self.id = topic_id
        self.partitions = [FakePartition(index) for index in range(partitions)]


class FakeTopics:
    def __init__(self) -> None:
        self._by_name: dict[str, FakeTopic] = {}
        self._made = 0
        self.on_changed: list[Callable[[Any], None]] = []
        self.on_deleted: list[Callable[[Any], None]] = []

    def get(self, name: str) -> FakeTopic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> FakeTopic | None:
        return next((topic for topic in self._by_name.values() if topic.id == topic_id), None)

    def __iter__(self) -> Iterator[FakeTopic]:
        return iter([*self._by_name.values()])

    def create(self, name: str, partitions: int = 1) -> FakeTopic:
        self._made += 1
        topic = self._by_name[name] = FakeTopic(name, self._made.to_bytes(16, "big"), partitions)
        self._tell(self.on_changed, topic)
        return topic

    def add_partitions(self, name: str, total: int) -> None:
        topic = self._by_name[name]
        topic.partitions += [FakePartition(index) for index in range(len(topic.partitions), total)]
        self._tell(self.on_changed, topic)

    def delete(self, name: str) -> None:
        self._tell(self.on_deleted, self._by_name.pop(name))

    def internal(self, name: str) -> FakeTopic:
        return self._by_name.get(name) or self.create(name, 50)

    def _tell(self, listeners: list[Callable[[Any], None]], topic: FakeTopic) -> None:
        for listener in listeners:
            listener(topic)


class FakeJournals(Journals):
    """Batches in lists have no offsets, and no damage."""

    def _sound_batches(self, partition: Any) -> list[bytes]:
        return [*partition.log.batches()]


class FakeCore:
    def __init__(self, **settings: object) -> None:
        self.access = None
        self.settings = Settings(settings)
        self.clock = FakeClock()
        self.expiry_clock = ExpiryClock(self.clock)
        self.timers = Timers()
        self.metrics = MetricsRegistry()
        self.topics = FakeTopics()
        self.slices = Slices()
        self.logs = SimpleNamespace(was_clean=True, sync=lambda logs: None)
        self.refusal: ErrorCode | None = None
        """Set: the disk refuses every append with it."""
        self.is_synced = True
        """False: appends stay without their sync until `sync`."""
        self._unsynced: list[Later[None]] = []
        self.journals = FakeJournals(cast("BrokerCore", self))
        self.groups = GroupCoordinator(cast("BrokerCore", self))
        self.groups.load()

    def append_internal(
        self,
        topic_name: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: ProducerIdAndEpoch | None = None,
    ) -> Later[None]:
        if self.refusal is not None:
            raise KafkaError(self.refusal, "as told")
        identity: dict[str, Any] = {}
        if producer is not None:
            identity = {
                "producer_id": producer.id,
                "producer_epoch": producer.epoch,
                "is_transactional": True,
            }
        batch = build_batch([NewRecord(key, value) for key, value in records], **identity)
        self.topics.internal(topic_name).partitions[partition].log.data.append(batch)
        durable: Later[None] = Later()
        self._unsynced.append(durable)
        if self.is_synced:
            self.sync()
        return durable

    def sync(self) -> None:
        unsynced, self._unsynced = self._unsynced, []
        for durable in unsynced:
            durable.resolve(None)

    def end_transaction(self, producer: ProducerIdAndEpoch, group_id: str, *, commit: bool) -> None:
        """As the transaction coordinator does it: the marker into the log, then the word to the group coordinator."""
        partition = self.groups.partition_of(group_id)
        marker = build_marker(
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            commit=commit,
            coordinator_epoch=0,
            timestamp=0,
        )
        self.topics.internal(OFFSETS_TOPIC).partitions[partition].log.data.append(marker)
        self.groups.complete_transaction(producer.id, partition, commit)

    def pass_time(self, ms: int) -> None:
        """Step by step through every deadline, as the event loop would."""
        end_ms = self.clock.now_ms + ms
        while (deadline_ms := self.timers.deadline_ms()) is not None and deadline_ms <= end_ms:
            self.clock.now_ms = max(self.clock.now_ms, deadline_ms)
            self.timers.run_due(self.clock.now_ms)
        self.clock.now_ms = end_ms

    def check_replay(self) -> None:
        """A second coordinator that reads the journal must come to the same; but for rebalances under way."""
        second = GroupCoordinator(cast("BrokerCore", self))
        second.replay()
        live, replayed = self.groups.state, second.state
        assert replayed.offsets.snapshot() == live.offsets.snapshot()
        for group in live.registry:
            twin = replayed.registry.get(group.group_id)
            assert twin is not None, group.group_id
            if group.state_name not in ("PreparingRebalance", "CompletingRebalance"):
                assert (twin.type, twin.snapshot()) == (group.type, group.snapshot())
        assert len([*replayed.registry]) == len([*live.registry])

    def handle(
        self, handler: Any, request: Any, *, version: int | None = None, client_id: str = "client"
    ) -> Any:
        """As BrokerCore does it: the response, or a Later of it, or the error response."""
        version = handler.VERSIONS[1] if version is None else version
        call = Call(api_version=version, client_id=client_id, client_host="/10.0.0.1")
        try:
            result = handler.handle(self, request, call)
        except KafkaError as error:
            return error_response(request, error.code, error.message, call)
        if isinstance(result, Later):
            return result.value if result.is_done else result
        return result
