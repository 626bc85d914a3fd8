"""The broker's mind: everything it knows, and one function that answers a request.

Theory of operation. One thread. `handle` finds the handler of an API, calls it, and returns its response or a `Later`
of it. Handlers change what is here and append to logs; none of them waits. What must wait is parked (`parked`), timed
(`timers`) or handed to the group commit (`durable`). The server (server.py) is the only part that knows sockets: after
each thing it did it calls `settle`, and comes back at `deadline_ms`.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from headrace.broker import elements
from headrace.broker.backups import Backups
from headrace.broker.call import Call, CloseConnection
from headrace.broker.clock import Clock, StampingClock
from headrace.broker.features import FinalizedFeatures
from headrace.broker.fetch_sessions import FetchSessions
from headrace.broker.group_commit import GroupCommit, sync_each
from headrace.broker.groups.coordinator import GroupCoordinator
from headrace.broker.handlers import error_response, handler_of
from headrace.broker.housekeeping import Housekeeping
from headrace.broker.journals import Journals
from headrace.broker.later import Later
from headrace.broker.metrics import Counter, MetricsRegistry
from headrace.broker.outgoing import Outgoing
from headrace.broker.parked import Parked
from headrace.broker.pieces import LargeAnswers, Pieces, cut_of
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.broker.progress import Progress
from headrace.broker.request_metrics import RequestMetrics
from headrace.broker.runner import OneAtATime, Runner
from headrace.broker.security.acls import AccessControl
from headrace.broker.security.needs import authorized
from headrace.broker.security.users import Users
from headrace.broker.settings import Settings
from headrace.broker.share.dead_letters import DeadLetters
from headrace.broker.share.leader import ShareLeader
from headrace.broker.share.state_store import ShareStateStore
from headrace.broker.slices import Slices
from headrace.broker.timers import Timers
from headrace.broker.topics import Partition, Topics
from headrace.broker.transactions.coordinator import TransactionCoordinator
from headrace.log.disk import Disk
from headrace.log.durable import Durable
from headrace.log.errors import cure_of
from headrace.log.manager import LogManager
from headrace.log.metadata import MetadataStore
from headrace.log.producers import AppendOrigin
from headrace.wire.batches import NO_PRODUCER_ID
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.message import Message
from headrace.wire.records import NewRecord, build_batch

logger = logging.getLogger("headrace.broker")

LOUD_INTERVAL_MS = 5000
FETCH_SESSIONS = ("max.incremental.fetch.session.cache.slots", elements.SETTING)
"""How many there may be, and how many partitions one may have."""
NOWHERE = ("", 0)
"""The address before the broker listens."""
CHANGE_METADATA = frozenset({19, 20, 22, 30, 31, 33, 37, 44, 51, 57})
"""CreateTopics, DeleteTopics, InitProducerId, CreateAcls, DeleteAcls, AlterConfigs, CreatePartitions,
IncrementalAlterConfigs, AlterUserScramCredentials, UpdateFeatures: what they did, or found done already, survives a
power cut when they are answered."""
FAILURES = {
    0: "FailedProduceRequestsPerSec",
    1: "FailedFetchRequestsPerSec",
    78: "FailedShareFetchRequestsPerSec",
    79: "FailedShareAcknowledgementRequestsPerSec",
}
"""Requests refused as a whole, by API key; the names are Kafka's (BrokerTopicMetrics)."""


class BrokerCore:
    def __init__(
        self,
        settings: Settings,
        *,
        disk: Disk,
        metadata_path: Path | None,
        clock: Clock,
        runner: Runner,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self.settings = settings
        self.clock = StampingClock(clock)
        self.expiry_clock = self.clock.expiry
        self.progress = Progress(self.clock)
        self.timers = Timers()
        self.parked = Parked()
        self.slices = Slices()
        self.outgoing = Outgoing(settings.get_int("headrace.unread.response.bytes"))
        self.large_answers = LargeAnswers()
        self.metrics = MetricsRegistry()
        self.metrics.gauge("PurgatorySize", lambda: len(self.parked))
        self.request_metrics = RequestMetrics(self.metrics)
        self._fetched: dict[str, Counter] = {}
        self._produced: dict[str, tuple[Counter, Counter]] = {}
        self.addresses: dict[str, tuple[str, int]] = {}
        """What clients are told to connect to, by the listener's name."""
        self.node_id = settings.get_int("node.id")
        rack = settings.value("broker.rack")
        self.rack = str(rack) if rack is not None else None
        self.failure: Exception | None = None
        self._on_failure = on_failure
        self._loud_again_ms = 0
        reserve_bytes = 0 if disk.is_volatile else settings.get_int("headrace.disk.reserve.bytes")
        self.logs = LogManager(disk, now_ms=self.clock.wall_ms(), reserve_bytes=reserve_bytes)
        try:
            self.metadata = MetadataStore(metadata_path or ":memory:")
            try:
                self._load(runner)
            except BaseException:
                self.metadata.close()
                raise
        except BaseException:
            # The next start must find the directory unlocked, and as clean as this one has found it.
            with contextlib.suppress(OSError):
                self.logs.close(clean=self.logs.was_clean and self.failure is None)
            raise

    def _load(self, runner: Runner) -> None:
        settings, clock, disk = self.settings, self.clock, self.logs.disk
        settings.attach(self.metadata)
        self.access = (
            AccessControl(self.metadata, settings) if settings.get_str("authorizer.class.name") else None
        )
        """None: everybody may do everything."""
        self.cluster_id = self.metadata.cluster_id
        self.features = FinalizedFeatures(self.metadata)
        self.users = Users(self.metadata)
        self.group_commit = GroupCommit(
            sync_each,
            None if disk.is_volatile else runner.run,
            self.fail,
            waits=settings.get_str("headrace.flush") == "fsync",
            now_ms=clock.monotonic_ms,
            synced=self.metrics.histogram("LogFlushRateAndTimeMs").observe,
        )
        self._runner = runner
        self.opening = OneAtATime(runner.run)
        self._is_checkpointing = False
        self.metadata.on_commit = self._checkpoint_if_due
        self.topics = Topics(
            self.metadata,
            self.logs,
            settings,
            clock,
            durable=self.durable,
            slices=self.slices,
            progress=self.progress,
        )
        self.topics.on_changed.append(self._wake_topic)
        self.topics.on_hidden.append(self._wake_topic)
        self.topics.on_deleted.append(self._forget_topic)
        if not self.logs.was_clean:
            self.topics.recover()
        self.fetch_sessions = FetchSessions(*map(settings.get_int, FETCH_SESSIONS))
        self.on_disconnect: list[Callable[[int], None]] = []
        self.journals = Journals(self)
        self.share_state = ShareStateStore(self)
        self.share_state.load()
        self.dead_letters = DeadLetters(self)
        self.share_leader = ShareLeader(self)
        self.groups = GroupCoordinator(self)
        self.transactions = TransactionCoordinator(self)
        self.groups.load()
        self.transactions.load()
        self.housekeeping = Housekeeping(self, runner)
        self.backups = Backups(self)

    def address_of(self, listener: str) -> tuple[str, int]:
        """Host and port that clients of a listener are told."""
        return self.addresses.get(listener, NOWHERE)

    def handle(self, request: Message, call: Call) -> Message | Later[Message] | None:
        """The response, a Later of it, or None where the client asked for no answer (produce with acks=0)."""
        handler = handler_of(request.API_KEY)
        self.request_metrics.arrived(request.API_KEY)
        cuts = getattr(handler, "CUTS", None)
        cut = cut_of(cuts, request, call.api_version) if cuts is not None else None
        if cut is not None:
            return Pieces(self, request, call, cut, lambda piece: self._answer(handler, piece, call)).run()
        result = self._answer(handler, request, call)
        if request.API_KEY in CHANGE_METADATA and result is not None:
            return self._durable_changes(result)
        return result

    def _answer(self, handler: Any, request: Message, call: Call) -> Message | Later[Message] | None:
        try:
            if self.access is None:
                result: Message | Later[Message] | None = handler.handle(self, request, call)
                return result
            return authorized(self, self.access, request, call, lambda left: handler.handle(self, left, call))
        except CloseConnection:
            raise
        except Exception as error:
            return self.failed(request, call, error)

    def _durable_changes(self, result: Message | Later[Message]) -> Message | Later[Message]:
        """The response, once the metadata that it speaks of would survive a power cut."""
        if isinstance(result, Message):
            return self.durable(()).map(lambda _: result) if self.metadata.is_dirty else result
        answer: Later[Message] = Later()
        answer.is_exclusive = result.is_exclusive
        answer.on_abandon = result.abandon
        result.on_shared = answer.share

        def answered(response: Message) -> None:
            if self.metadata.is_dirty:
                self.durable(()).then(lambda _: answer.resolve(response), answer.fail)
            else:
                answer.resolve(response)

        result.then(answered, answer.fail)
        return answer

    def count_produced(self, topic: str, records: int, size: int) -> None:
        counters = self._produced.get(topic)
        if counters is None:
            counters = self._produced[topic] = (
                self.metrics.counter("MessagesInPerSec", topic=topic),
                self.metrics.counter("BytesInPerSec", topic=topic),
            )
        counters[0].value += records
        counters[1].value += size

    def count_fetched(self, topic: str, size: int) -> None:
        counter = self._fetched.get(topic)
        if counter is None:
            counter = self._fetched[topic] = self.metrics.counter("BytesOutPerSec", topic=topic)
        counter.value += size

    def _forget_topic(self, topic: Any) -> None:
        self._fetched.pop(topic.name, None)
        self._produced.pop(topic.name, None)
        self.metrics.forget(topic=topic.name)

    def failed(self, request: Message, call: Call, error: Exception) -> Message:
        """The answer to a request that failed as a whole; raises CloseConnection where there is none."""
        if isinstance(error, CloseConnection):
            raise error
        if request.API_KEY in FAILURES:
            self.metrics.count(FAILURES[request.API_KEY])
        code, text = ErrorCode.UNKNOWN_SERVER_ERROR, None
        if isinstance(error, KafkaError):
            code, text = error.code, error.message
        else:
            logger.error("%s v%d failed", type(request).__name__, call.api_version, exc_info=error)
        return error_response(request, code, text, call)

    def durable(self, things: Iterable[Durable]) -> Later[None]:
        """Resolves once all that these logs (or other things) hold now would survive a power cut.

        So would all changes of the metadata so far: whoever acknowledges a record says that its topic is there.
        """
        return self.group_commit.durable([self.metadata, *things] if self.metadata.is_dirty else things)

    def opened(self, work: Callable[[], None]) -> Later[None]:
        """Resolves when a worker has opened a batch; one at a time, so that memory has the bound of one of them."""
        later: Later[None] = Later()
        self.opening.run(work, lambda error: later.resolve(None) if error is None else later.fail(error))
        return later

    def run_slow(self, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        """Work that would hold up the loop, on the slow thread; `done` is called here."""
        self._runner.run_slow(work, done)

    def _checkpoint_if_due(self) -> None:
        if self._is_checkpointing or not self.metadata.wants_checkpoint:
            return

        def done(error: Exception | None) -> None:
            self._is_checkpointing = False
            if error is not None:
                logger.warning("the metadata's write-ahead log stays as it is: %s", error)

        self._is_checkpointing = True
        self._runner.run_slow(self.metadata.checkpoint, done)

    def saved(self, things: Iterable[Durable]) -> Later[None]:
        """`durable` whatever `headrace.flush` says; fails with a KafkaError where a full disk has no room for it."""
        return self.group_commit.saved([self.metadata, *things] if self.metadata.is_dirty else things)

    def appended(self, partition: Partition) -> None:
        """Tells parked requests that the partition has grown, or that its stable offset has moved."""
        self.parked.touch(partition)

    def append_internal(
        self,
        topic_name: str,
        partition: int,
        records: Sequence[tuple[bytes | None, bytes | None]],
        *,
        producer: ProducerIdAndEpoch | None = None,
    ) -> Later[None]:
        """Appends one batch to an internal topic: there for every reader at once, durable when the Later resolves."""
        self.require_working()
        now_ms = self.clock.wall_ms()
        target = self.topics.internal(topic_name).partitions[partition]
        batch = build_batch(
            [NewRecord(key, value, timestamp=now_ms) for key, value in records],
            producer_id=producer.id if producer else NO_PRODUCER_ID,
            producer_epoch=producer.epoch if producer else -1,
            is_transactional=producer is not None,
        )
        try:
            target.log.append(batch, now_ms=now_ms, origin=AppendOrigin.COORDINATOR)
        except KafkaError as error:
            self.note_refused_write(error)
            raise
        self.journals.note_append(len(batch))
        self.appended(target)
        return self.durable([target.log])

    def allocate_producer_ids(self, count: int) -> range:
        return self.metadata.allocate_producer_ids(count)

    def fail(self, error: Exception) -> None:
        """The disk cannot be trusted any more: refuse every write from now on, and stop."""
        if self.failure is None:
            self.failure = error
            logger.critical(
                "disk failure, stopping: %s. No acknowledged record is lost. Free space on the disk or repair it.",
                error,
            )
            self._on_failure(error)

    def note_refused_write(self, error: KafkaError) -> None:
        """A full disk refuses appends one by one and loses nothing: we go on, and say so loudly, but not for each."""
        now_ms = self.clock.monotonic_ms()
        if error.code is ErrorCode.KAFKA_STORAGE_ERROR and now_ms >= self._loud_again_ms:
            self._loud_again_ms = now_ms + LOUD_INTERVAL_MS
            logger.error(
                "writes are refused: %s %s; reads continue.", error.message, cure_of(error.__cause__)
            )

    def require_working(self) -> None:
        if self.failure is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the broker is stopping after a disk failure: {self.failure}"
            )

    def deadline_ms(self) -> int | None:
        """When to call `settle` again: at once while there is more to do than fitted in one turn."""
        if self.slices.is_pending or self.parked.is_pending:
            return self.clock.monotonic_ms()
        return self.timers.deadline_ms()

    def is_due(self) -> bool:
        """Whether `settle` has something to do now."""
        deadline_ms = self.timers.deadline_ms()
        is_timer_due = deadline_ms is not None and deadline_ms <= self.clock.monotonic_ms()
        return is_timer_due or self.slices.is_pending or self.parked.is_pending

    def settle(self) -> None:
        """Runs what has become due: timers, a step of longer work, and requests woken by appends."""
        self.timers.run_due(self.clock.monotonic_ms())
        self.slices.step()
        self.parked.run_woken()

    def wind_down(self) -> None:
        """Before the worker threads are waited for: long work ends early."""
        self.backups.stop()
        self.housekeeping.stop()
        self.logs.cancel_compaction()

    def close(self) -> None:
        """Leaves everything to the next start. OSError: the end is not clean, and nothing synced is lost."""
        self.wind_down()
        is_clean = False
        try:
            if self.failure is None:
                self.journals.compact_before_stop()
                is_clean = True
        finally:
            try:
                self.logs.close(clean=is_clean)
            finally:
                self.metadata.close()

    def _wake_topic(self, topic: Any) -> None:
        for partition in topic.partitions:
            self.parked.touch(partition)
