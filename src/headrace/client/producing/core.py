"""What a producer sends next: the pure part, without sockets, threads, clock or chance of its own.

Theory of operation. `put` takes a record, or a run of values, and finds its partition, or keeps it until the topic's
partitions are known (`learn`, `topic_failed`). `plan` says which batches may be sent now and to which broker; the
driver calls `take` for a broker that it has a connection to and sends what it gets as one request: at most one batch
for each partition.
Then `answered`, `lost` or `not_sent` says how that went. What became of records is in `pop_outcomes`, exactly once
for each. `deadline_ms` is when `plan` must be called again if nothing else happens.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.base.backoff import backoff
from headrace.client.errors import error_for, is_retriable
from headrace.client.producing.batch import Entry, Identity, ProducerBatch, ValueRun, run_cost
from headrace.client.producing.partitioner import StickyChoice, partition_of_key
from headrace.client.producing.queue import PartitionQueue, SendOutcome
from headrace.client.settings import ProducerSettings
from headrace.wire.errors import ErrorCode, KafkaError

TOPIC_WAIT_MS = 5_000
"""How long a topic that the brokers do not know may take to be there: they may be creating it."""
INFINITE_MS = float("inf")
MOVED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""Errors after which the metadata are fetched anew."""


class Result(NamedTuple):
    """What a broker said of one batch."""

    code: int
    message: str | None = None
    base_offset: int = -1


class _WaitingEntry(NamedTuple):
    entry: Entry | ValueRun
    generation: int
    since_ms: float


class _Topic:
    """`queues` is empty until the topic's partitions are known; then it has all of them, in order."""

    def __init__(self, choice: StickyChoice) -> None:
        self.choice = choice
        self.topic_id = b""
        self.queues: list[PartitionQueue] = []
        self.count = 0
        """How many partitions the topic has now: fewer than `queues` if it was made anew with fewer."""
        self.usable: list[int] = []
        """Partitions that have a leader, or all of them if none has."""
        self.waiting: deque[_WaitingEntry] = deque()
        self.missing_since_ms: float | None = None
        self.last_error: KafkaError | None = None


class ProducerCore:
    """`random_below(n)` gives a number from 0 to n - 1, `fraction()` one from 0 to 1."""

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        random_below: Callable[[int], int],
        fraction: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._random_below = random_below
        self._fraction = fraction
        self._topics: dict[str, _Topic] = {}
        self._busy: dict[PartitionQueue, None] = {}
        """Partitions with records that are not acknowledged."""
        self._stale: set[str] = set()
        self._identity: Identity | None = None
        self._wants_identity = settings.is_idempotent
        self._requests: dict[int, int] = {}
        """How many are in flight, by broker."""
        self._outcomes: list[SendOutcome] = []
        self._generation = 0
        self._outstanding: dict[int, int] = {}
        """Records without an outcome, by how many flushes had been asked for when they were put."""
        self._registers = False
        self._failure: KafkaError | None = None

    # What the application does

    def put(self, entry: Entry | ValueRun, now_ms: float) -> None:
        generation = self._generation
        count = len(entry.values) if type(entry) is ValueRun else 1
        self._outstanding[generation] = self._outstanding.get(generation, 0) + count
        topic = self._topics.get(entry.topic)
        if topic is None:
            size_max = min(self._settings.batch_size, self._settings.max_request_size)
            topic = self._topics[entry.topic] = _Topic(StickyChoice(size_max, self._random_below))
        if topic.queues and not topic.waiting:
            self._place(topic, entry, generation, now_ms)
        else:
            topic.waiting.append(_WaitingEntry(entry, generation, now_ms))
            self._stale.add(entry.topic)

    def flush(self) -> int:
        """Stops waiting for more records. The number is for `is_flushed`."""
        self._generation += 1
        return self._generation - 1

    def is_flushed(self, number: int) -> bool:
        """Whether every record that was put before that flush has an outcome."""
        return not self._outstanding or min(self._outstanding) > number

    def abandon(self, error: KafkaError) -> None:
        """Fails every record that is not in flight."""
        for topic in self._topics.values():
            self._fail_waiting(topic, error)
        for queue in self._busy:
            queue.abandon(error)

    # What becomes of it

    @property
    def is_idle(self) -> bool:
        return not self._outstanding

    @property
    def has_requests(self) -> bool:
        return any(self._requests.values())

    def pop_outcomes(self) -> list[SendOutcome]:
        if not self._outcomes:
            return []
        outcomes, self._outcomes[:] = list(self._outcomes), ()
        for outcome in outcomes:
            for generation, count in outcome.generations.items():
                left = self._outstanding[generation] - count
                if left:
                    self._outstanding[generation] = left
                else:
                    del self._outstanding[generation]
        return outcomes

    # The cluster

    def topic_names(self) -> list[str]:
        return list(self._topics)

    def topic_id(self, name: str) -> bytes:
        return self._topics[name].topic_id

    def wants_metadata(self) -> frozenset[str]:
        """Topics whose partitions or leaders are not known, or may have moved."""
        return frozenset(self._stale)

    def learn(self, name: str, topic_id: bytes, leaders: Mapping[int, int], now_ms: float) -> None:
        """The partitions of a topic and their leaders, -1 for none."""
        topic = self._topics.get(name)
        if topic is None or not leaders:
            return
        self._stale.discard(name)
        topic.missing_since_ms = topic.last_error = None
        if topic.topic_id not in (b"", topic_id):
            for queue in topic.queues:
                queue.recreated()
        topic.topic_id = topic_id
        for index in range(len(topic.queues), max(leaders) + 1):
            topic.queues.append(PartitionQueue(name, index, self._settings, self._outcomes))
        for queue in topic.queues:
            queue.leader_id = leaders.get(queue.index, -1)
            if queue.leader_id < 0 and queue in self._busy:
                self._stale.add(name)
        topic.count = count = max(leaders) + 1
        usable = [index for index in range(count) if leaders.get(index, -1) >= 0]
        topic.usable = usable or list(range(count))
        waiting, topic.waiting = topic.waiting, deque()
        for entry, generation, _ in waiting:
            self._place(topic, entry, generation, now_ms)

    def topic_failed(self, name: str, error: KafkaError, now_ms: float) -> None:
        """The brokers have no partitions for a topic, and say why."""
        topic = self._topics.get(name)
        if topic is None:
            self._stale.discard(name)
            return
        topic.last_error = error
        for queue in topic.queues:
            queue.note(error)
        is_missing = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_missing and topic.missing_since_ms is None:
            topic.missing_since_ms = now_ms
        if not is_retriable(error.code) or (
            is_missing and now_ms - (topic.missing_since_ms or 0.0) >= TOPIC_WAIT_MS
        ):
            self._fail_waiting(topic, error)
            topic.missing_since_ms = None
        if not topic.waiting and not any(queue in self._busy for queue in topic.queues):
            self._stale.discard(name)

    def unreachable(self, node_id: int, error: KafkaError) -> None:
        """No connection could be made to a broker."""
        for queue in self._busy:
            if queue.leader_id == node_id:
                queue.note(error)
                queue.leader_id = -1
                self._stale.add(queue.topic)

    @property
    def wants_identity(self) -> bool:
        """A new producer id is needed before more can be sent."""
        return self._wants_identity and bool(self._busy)

    @property
    def identity(self) -> Identity | None:
        return self._identity

    def identified(self, identity: Identity) -> None:
        self._identity = identity
        self._wants_identity = False

    # Transactions

    def register_partitions(self, is_needed: bool) -> None:
        """Whether a partition may be sent to only after `registered` (transactions of before version 2)."""
        self._registers = is_needed

    def unregistered(self) -> list[PartitionQueue]:
        if not self._registers:
            return []
        return [queue for queue in self._busy if not queue.is_in_transaction]

    def registered(self, queues: Iterable[PartitionQueue]) -> None:
        for queue in queues:
            queue.is_in_transaction = True

    def has_transaction(self) -> bool:
        """Whether the open transaction has records, so that the coordinator knows of it."""
        return any(queue.is_in_transaction for topic in self._topics.values() for queue in topic.queues)

    def pop_failure(self) -> KafkaError | None:
        """Why the open transaction cannot be committed, if so."""
        failure, self._failure = self._failure, None
        return failure

    def next_transaction(self, identity: Identity) -> None:
        """The last one has ended, and its records have their outcome."""
        self._identity = identity
        self._wants_identity = False
        for topic in self._topics.values():
            for queue in topic.queues:
                queue.is_in_transaction = False
                queue.replace_identity(identity)

    # What to send

    def plan(self, now_ms: float) -> dict[int, list[PartitionQueue]]:
        """The partitions that have a batch to be sent now, by broker."""
        ready: dict[int, list[PartitionQueue]] = {}
        limit = self._settings.max_in_flight_requests_per_connection
        for queue in list(self._busy):
            if queue.is_idle:
                del self._busy[queue]
                continue
            expires_ms = queue.expires_ms()
            if expires_ms is not None and expires_ms <= now_ms:
                queue.expire(now_ms)
                if queue.is_idle:
                    del self._busy[queue]
                    continue
            if not self._may_send(queue):
                continue
            ready_ms = queue.ready_ms(self._generation - 1)
            if ready_ms is None or ready_ms > now_ms:
                continue
            if queue.leader_id < 0:
                self._stale.add(queue.topic)
            elif self._requests.get(queue.leader_id, 0) < limit:
                ready.setdefault(queue.leader_id, []).append(queue)
        self._expire_waiting(now_ms)
        return ready

    def take(self, node_id: int, ready: list[PartitionQueue]) -> list[ProducerBatch]:
        """The batches for one request to a broker that `plan` has named. They are in flight now."""
        batches: list[ProducerBatch] = []
        room = self._settings.max_request_size
        for queue in ready:
            if batches and room <= 0:
                break
            batch = queue.take()
            queue.is_in_transaction = bool(self._settings.transactional_id)
            room -= batch.size
            batches.append(batch)
            self._busy[queue] = self._busy.pop(queue)  # the next request begins with another partition
        self._requests[node_id] = self._requests.get(node_id, 0) + 1
        return batches

    def answered(
        self,
        node_id: int,
        batches: Iterable[ProducerBatch],
        results: Mapping[tuple[str, int], Result],
        now_ms: float,
    ) -> None:
        """A response. A batch that it does not name counts as lost."""
        self._requests[node_id] -= 1
        for batch in batches:
            queue = self._queue_of(batch)
            result = results.get((batch.topic, batch.partition))
            if result is None:
                error = error_for(ErrorCode.NETWORK_EXCEPTION, "the response lacks it", about=queue.about)
                queue.lost(batch, error, self._retry_ms(queue, now_ms))
            elif result.code:
                error = error_for(result.code, result.message, about=queue.about)
                if error.code in MOVED:
                    self._stale.add(batch.topic)
                queue.refused(batch, error, self._retry_ms(queue, now_ms))
            else:
                queue.acknowledged(batch, result.base_offset)
            self._check(queue, batch)

    def lost(self, node_id: int, batches: Iterable[ProducerBatch], error: KafkaError, now_ms: float) -> None:
        """The request was sent, and no response will come."""
        self._requests[node_id] -= 1
        for batch in batches:
            queue = self._queue_of(batch)
            self._stale.add(batch.topic)
            queue.lost(batch, error, self._retry_ms(queue, now_ms))
            self._check(queue, batch)

    def not_sent(
        self, node_id: int, batches: Iterable[ProducerBatch], error: KafkaError, now_ms: float
    ) -> None:
        """The request could not be written."""
        self._requests[node_id] -= 1
        for batch in batches:
            queue = self._queue_of(batch)
            queue.not_sent(batch, error, self._retry_ms(queue, now_ms))
            self._check(queue, batch)

    def deadline_ms(self, now_ms: float) -> float | None:
        """When `plan` is to be called next, if nothing else happens before."""
        soonest = INFINITE_MS
        for queue in self._busy:
            expires_ms = queue.expires_ms()
            if expires_ms is not None and now_ms < expires_ms < soonest:
                soonest = expires_ms
            if queue.has_waiting and queue.leader_id >= 0 and self._may_send(queue):
                ready_ms = queue.ready_ms(self._generation - 1)
                if ready_ms is not None and now_ms < ready_ms < soonest:
                    soonest = ready_ms
        for topic in self._topics.values():
            if topic.waiting:
                until_ms = topic.waiting[0].since_ms + self._settings.max_block_ms
                if now_ms < until_ms < soonest:
                    soonest = until_ms
        return None if soonest == INFINITE_MS else soonest

    def _may_send(self, queue: PartitionQueue) -> bool:
        if self._registers and not queue.is_in_transaction:
            return False
        if self._settings.transactional_id and queue.is_broken:
            return False
        if not queue.renumber(self._identity):
            self._wants_identity = True
            return False
        return True

    def _place(self, topic: _Topic, entry: Entry | ValueRun, generation: int, now_ms: float) -> None:
        if isinstance(entry, ValueRun):
            self._place_run(topic, entry, generation, now_ms)
            return
        index = entry.partition
        if index is None:
            if entry.key is not None:
                index = partition_of_key(entry.key, topic.count)
            else:
                index = self._choose(topic, entry.cost)
        elif index >= topic.count:
            text = f"the topic has no partition {index}, only 0 to {topic.count - 1}"
            about = f"topic {entry.topic!r}"
            self._fail(entry, generation, error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text, about=about))
            return
        queue = topic.queues[index]
        queue.put(entry, generation, now_ms)
        self._busy[queue] = None

    def _place_run(self, topic: _Topic, run: ValueRun, generation: int, now_ms: float) -> None:
        """Batch by batch; after each, the partition may be another."""
        start = 0
        while start < len(run.values):
            queue = topic.queues[self._choose(topic, 0)]
            taken = queue.put_some(run, start, generation, now_ms)
            topic.choice.add(run_cost(run.values[start : start + taken]))
            self._busy[queue] = None
            start += taken

    def _choose(self, topic: _Topic, size: int) -> int:
        """The partition for a record without a key."""
        current = topic.choice.current
        has_left = not (0 <= current < len(topic.queues) and topic.queues[current].has_open_batch)
        return topic.choice.choose(topic.usable, size, has_left=has_left)

    def _fail_waiting(self, topic: _Topic, error: KafkaError) -> None:
        waiting, topic.waiting = topic.waiting, deque()
        for entry, generation, _ in waiting:
            self._fail(entry, generation, error)

    def _fail(self, entry: Entry | ValueRun, generation: int, error: KafkaError) -> None:
        count = len(entry.values) if isinstance(entry, ValueRun) else 1
        generations = {generation: count}
        self._outcomes.append(SendOutcome(entry.topic, -1, [entry.token], entry.cost, generations, -1, error))

    def _expire_waiting(self, now_ms: float) -> None:
        oldest = now_ms - self._settings.max_block_ms
        for name, topic in self._topics.items():
            if not topic.waiting:
                continue
            while topic.waiting and topic.waiting[0].since_ms <= oldest:
                entry, generation, _ = topic.waiting.popleft()
                why = f"; the last error: {topic.last_error.text}" if topic.last_error is not None else ""
                text = f"its partitions were not known within max.block.ms={self._settings.max_block_ms}{why}"
                self._fail(
                    entry, generation, error_for(ErrorCode.REQUEST_TIMED_OUT, text, about=f"topic {name!r}")
                )

    def _retry_ms(self, queue: PartitionQueue, now_ms: float) -> float:
        settings = self._settings
        first_ms, most_ms = settings.retry_backoff_ms, settings.retry_backoff_max_ms
        return now_ms + backoff(first_ms, most_ms, queue.next_failure(), self._fraction())

    def _check(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """A transaction that lost a record, or the order of them, can only be aborted."""
        if self._settings.transactional_id and queue.is_broken and self._failure is None:
            self._failure = batch.last_error

    def _queue_of(self, batch: ProducerBatch) -> PartitionQueue:
        return self._topics[batch.topic].queues[batch.partition]
