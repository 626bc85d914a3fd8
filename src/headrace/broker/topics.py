"""The topics the broker has: names and ids, their partitions with their logs, their settings.

Theory of operation. The metadata store says which topics exist; this registry mirrors it in memory and joins
each partition with its log. A start opens every log there is; a new partition's log is opened when it is first
used, so that a topic of a thousand partitions is made at once. What changes metadata survives the end of the process
when the method returns, and a power cut once `BrokerCore.durable` resolves; answers wait for that. Whoever cares
(coordinators, parked requests) listens to `on_changed` and `on_deleted`.

A deletion is in four steps: the metadata store has it and the topic is not found any more (`on_hidden`); it is durable;
whatever follows from it is done (`on_deleted`) and the directories are renamed; the store forgets it. A power cut
before the second step leaves the topic as it was, with its records and all that groups know of it. Its name is taken
until the directories are out of the way and what the listeners of `on_deleted` have written is durable.
"""

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from headrace.broker.clock import Clock
from headrace.broker.later import Later, resolved
from headrace.broker.progress import Progress
from headrace.broker.settings import BY_NAME, Scope, SettingError, Settings
from headrace.broker.slices import Slices, Steps
from headrace.log.config import LogConfig
from headrace.log.durable import Durable
from headrace.log.files import read_topic_id
from headrace.log.layout import directory_name, parse_directory_name
from headrace.log.manager import LogManager
from headrace.log.metadata import MetadataStore, StoredTopic, new_uuid
from headrace.log.partition_log import PartitionLog
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("headrace.topics")

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
SHARE_GROUP_STATE = "__share_group_state"
INTERNAL = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})

NAME_LENGTH_MAX = 249
PARTITIONS_MAX = 100_000
"""Of one topic. A request for more is a slip of the hand; each partition costs memory and an index entry."""
JOURNAL_TOMBSTONES_MS = 60 * 60 * 1000
PARTITIONS_PER_STEP = 200
"""Whose directories are renamed in one turn of the loop."""
TOPIC_COST = 20
"""A topic counts for so many: every group and transaction hears that it is gone."""
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


class Partition:
    __slots__ = ("_log", "_open", "index", "topic")

    def __init__(self, topic: "Topic", index: int, open_log: Callable[["Partition"], PartitionLog]) -> None:
        self.topic = topic
        self.index = index
        self._open = open_log
        self._log: PartitionLog | None = None

    @property
    def log(self) -> PartitionLog:
        return self._log or self.open()

    def open(self) -> PartitionLog:
        if self._log is None:
            self._log = self._open(self)
        return self._log

    def hide(self) -> None:
        """Its topic is deleted: nothing is read from it or written to it any more."""
        if self._log is not None:
            self._log.is_deleted = True

    @property
    def opened_log(self) -> PartitionLog | None:
        """The log if it has been used since the start."""
        return self._log

    def __repr__(self) -> str:
        return f"Partition({self.topic.name}-{self.index})"


class Topic:
    __slots__ = ("configs", "id", "is_internal", "name", "partitions")

    def __init__(self, name: str, topic_id: bytes, configs: Mapping[str, str]) -> None:
        self.name = name
        self.id = topic_id
        self.configs = dict(configs)
        self.partitions: list[Partition] = []
        self.is_internal = name in INTERNAL

    def __repr__(self) -> str:
        return f"Topic({self.name}, {len(self.partitions)} partitions)"


Listener = Callable[[Topic], None]
DeletionListener = Callable[[Topic], Iterable[PartitionLog] | None]


class _Deletion:
    """Topics that are being deleted together: what is left to do, and what must be durable before it is over."""

    def __init__(self, topics: Sequence[Topic]) -> None:
        self.topics = topics
        self.steps: Steps = iter(())
        self.changed: list[PartitionLog] = []
        self.done: Later[None] = Later()


class NewTopic(NamedTuple):
    """A topic to be made, checked before."""

    name: str
    partitions: int
    configs: Mapping[str, str]


class Topics:
    def __init__(
        self,
        metadata: MetadataStore,
        logs: LogManager,
        settings: Settings,
        clock: Clock,
        *,
        durable: Callable[[Iterable[Durable]], Later[None]] = lambda _: resolved(None),
        slices: Slices | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`durable` resolves when the things it is given and all changes of the metadata survive a power cut."""
        self._durable = durable
        self._slices = slices or Slices()
        self._metadata = metadata
        self._logs = logs
        self._settings = settings
        self._clock = clock
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self._by_unified: dict[str, str] = {}
        """Names by what they are in metrics, where dots and underscores are the same."""
        self._in_order: list[Topic] | None = None
        self._deleting: dict[str, _Deletion] = {}
        """Deleted topics whose names are not free yet."""
        self._left_over: dict[str, StoredTopic] = {}
        """Deleted topics whose directories could not be moved."""
        self.on_hidden: list[Listener] = []
        """A topic is not found any more; a power cut may still bring it back."""
        self.on_changed: list[Listener] = []
        """A topic was created, or got more partitions."""
        self.on_deleted: list[DeletionListener] = []
        """A topic is gone for good. What a listener returns must be durable before the name is free."""
        self.on_configured: list[Listener] = []
        settings.on_changed.append(self._reconfigure_all)
        rows = metadata.topics()
        names = {row.name for row in rows}
        for row in metadata.deleted_topics():
            logger.info("finishing the deletion of topic %s", row.name)
            self._move_left_over(row, is_name_in_use=row.name in names, sync=True)
            metadata.forget_deleted(row.id)
        self._set_aside_strays(rows)
        progress = progress or Progress(clock)
        logs.store.note_progress = progress.note
        total, opened = sum(row.partitions for row in rows), 0
        what = "opening the logs" if logs.was_clean else "checking the logs after an unclean stop"
        for row in rows:
            for partition in self._register(row).partitions:
                # Retention and compaction work on open logs; without a directory this costs one look at the disk.
                _ = partition.log
                opened += 1
                progress.note(what, opened, "partitions", of=total)

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def __iter__(self) -> Iterator[Topic]:
        """All topics in the order of their names."""
        if self._in_order is None:
            self._in_order = [self._by_name[name] for name in sorted(self._by_name)]
        return iter(self._in_order)

    def __len__(self) -> int:
        return len(self._by_name)

    def recover(self) -> None:
        """Opens every log now: after an unclean end each is checked before anybody is served."""
        for topic in self:
            for partition in topic.partitions:
                partition.open()

    def require(self, name: str, partition: int) -> Partition:
        topic = self._by_name.get(name)
        if topic is None or not 0 <= partition < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[partition]

    def check_free(self, name: str, among: Mapping[str, str] | None = None) -> None:
        """Refuses a name that a new topic cannot have; `among`: names of others that are made with it, by `unified`."""
        check_name(name)
        if name in self._by_name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if self.is_being_deleted(name):
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
        colliding = (among or {}).get(unified(name)) or self._colliding(name)
        if colliding is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding}"
            )

    def create(self, name: str, *, partitions: int, configs: Mapping[str, str]) -> Topic:
        """A new topic. If one of that name is being deleted, that is finished first, even if it takes a sync."""
        self._finish_now(name)
        self.check_free(name)
        self.check_configs(configs)
        check_partitions(partitions)
        return self.create_all([NewTopic(name, partitions, configs)])[0]

    def create_all(self, wanted: Sequence[NewTopic]) -> list[Topic]:
        """New topics, which were checked before, in one transaction: all of them, or KafkaError and none."""
        for one in wanted:
            self._finish_deletion(one.name)
        rows = [StoredTopic(one.name, new_uuid(), one.partitions, dict(one.configs)) for one in wanted]
        with self._metadata.transaction():
            for row in rows:
                self._metadata.add_topic(row)
        topics = [self._register(row) for row in rows]
        for topic in topics:
            logger.info("created topic %s with %d partitions", topic.name, len(topic.partitions))
            self._tell(self.on_changed, topic)
        return topics

    def internal(self, name: str) -> Topic:
        """One of the broker's own topics, created on first use."""
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        partitions, configs = internal_shape(name, self._settings)
        return self.create(name, partitions=partitions, configs=configs)

    def delete(self, name: str) -> Later[None]:
        """The topic is not found any more when this returns. Resolves when it is gone for good and its name is free."""
        return self.delete_all([name])

    def delete_all(self, names: Collection[str]) -> Later[None]:
        """The same for several topics, in one transaction: all of them, or KafkaError and none."""
        topics = [self._require_topic(name) for name in names]

        def note() -> None:
            with self._metadata.transaction():
                for topic in topics:
                    self._metadata.delete_topic(topic.name)

        self._logs.with_room(note)
        deletion = _Deletion(topics)
        deletion.steps = self._finish(deletion)
        for topic in topics:
            self._hide(topic)
            self._deleting[topic.name] = deletion
        self._durable(()).then(lambda _: self._slices.run(deletion.steps, deletion.done.fail))
        return deletion.done

    def is_being_deleted(self, name: str) -> bool:
        """The topic is not found any more, but its name is not free yet."""
        return name in self._deleting

    def _finish_now(self, name: str) -> None:
        deletion = self._deleting.get(name)
        if deletion is None:
            return
        try:
            self._metadata.sync()
            for _ in deletion.steps:
                pass
            self._logs.sync(deletion.changed)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._free(deletion)

    def _hide(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.id]
        self._in_order = None
        if self._by_unified.get(unified(topic.name)) == topic.name:
            del self._by_unified[unified(topic.name)]
        for partition in topic.partitions:
            partition.hide()
        logger.info("deleted topic %s", topic.name)
        self._tell(self.on_hidden, topic)

    def _finish(self, deletion: "_Deletion") -> Steps:
        """What is left to do once the deletion is durable."""
        moved: list[bytes] = []
        partitions = 0
        for topic in deletion.topics:
            is_large = len(topic.partitions) > PARTITIONS_PER_STEP
            for listener in self.on_deleted:
                deletion.changed += self._tell([listener], topic)
                if is_large:
                    yield
            try:
                for begin in range(0, len(topic.partitions), PARTITIONS_PER_STEP):
                    if begin:
                        yield
                    some = range(begin, min(begin + PARTITIONS_PER_STEP, len(topic.partitions)))
                    self._logs.delete_topic(
                        topic.name, now_ms=self._clock.wall_ms(), partitions=some, sync=False
                    )
                moved.append(topic.id)
            except OSError as error:
                logger.error(
                    "topic %s is deleted, but its files could not be removed yet: %s", topic.name, error
                )
                self._left_over[topic.name] = StoredTopic(topic.name, topic.id, len(topic.partitions))
            partitions += TOPIC_COST + len(topic.partitions)
            if partitions >= PARTITIONS_PER_STEP:
                partitions = 0
                yield
        self._durable([self._logs.root]).then(lambda _: self._forget_deleted(moved))
        self._durable(deletion.changed).then(lambda _: self._free(deletion))

    def _free(self, deletion: "_Deletion") -> None:
        for topic in deletion.topics:
            if self._deleting.get(topic.name) is deletion:
                del self._deleting[topic.name]
        deletion.done.resolve(None)

    def _forget_deleted(self, topic_ids: Sequence[bytes]) -> None:
        """Not before the directories have their new names for good. What cannot be written now, the next start does."""
        try:
            self._metadata.forget_deleted(*topic_ids)
        except KafkaError as error:
            logger.warning("the records of deleted topics cannot be removed yet: %s", error)

    def check_growth(self, name: str, total: int) -> None:
        """Refuses a number of partitions that a topic cannot grow to."""
        topic = self._require_topic(name)
        if topic.is_internal:
            # Groups and transactions find their partition by the number of partitions.
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, f"Topic {name} is internal; its partitions are fixed."
            )
        current = len(topic.partitions)
        if total == current:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
        if total < current:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {name} currently has {current} partition(s); {total} would not be an increase.",
            )
        check_partitions(total)

    def add_partitions(self, name: str, total: int) -> None:
        """More partitions."""
        self.check_growth(name, total)
        topic = self._require_topic(name)
        self._metadata.set_partitions(name, total)
        self._add(topic, total)
        self._tell(self.on_changed, topic)

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replaces the topic's overrides, for its open logs at once."""
        topic = self._require_topic(name)
        self.check_configs(configs)
        self._metadata.set_configs("topic", name, configs)
        topic.configs = dict(configs)
        self._reconfigure(topic)
        self._tell(self.on_configured, topic)

    def check_configs(self, configs: Mapping[str, str]) -> None:
        """Raises INVALID_CONFIG with Kafka's text when a topic cannot have these overrides."""
        table = BY_NAME[Scope.TOPIC]
        for name, text in configs.items():
            if name not in table:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            try:
                table[name].parse(text)
            except SettingError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from None
        _check_together(self._settings, configs)

    def _require_topic(self, name: str) -> Topic:
        topic = self._by_name.get(name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic

    def _colliding(self, name: str) -> str | None:
        """An existing topic that differs only in dots and underscores: metrics could not tell them apart."""
        other = self._by_unified.get(unified(name))
        return other if other != name else None

    def _register(self, row: StoredTopic) -> Topic:
        topic = Topic(row.name, row.id, row.configs)
        self._by_name[row.name] = topic
        self._by_id[row.id] = topic
        self._by_unified.setdefault(unified(row.name), row.name)
        self._in_order = None
        self._add(topic, row.partitions)
        return topic

    def _add(self, topic: Topic, total: int) -> None:
        for index in range(len(topic.partitions), total):
            topic.partitions.append(Partition(topic, index, self._open))

    def _open(self, partition: Partition) -> PartitionLog:
        topic = partition.topic
        return self._logs.open_log(topic.name, partition.index, self._log_config(topic), topic.id)

    def _log_config(self, topic: Topic) -> LogConfig:
        config = self._settings.log_config(topic.configs)
        if topic.is_internal and "delete.retention.ms" not in topic.configs:
            # Coordinators read their journal from its beginning: a tombstone is of use to nobody for long.
            retention_ms = min(config.delete_retention_ms, JOURNAL_TOMBSTONES_MS)
            config = replace(config, delete_retention_ms=retention_ms)
        return config

    def _reconfigure(self, topic: Topic) -> None:
        config = self._log_config(topic)
        for partition in topic.partitions:
            if partition.opened_log is not None:
                partition.opened_log.config = config

    def _reconfigure_all(self) -> None:
        for topic in self._by_name.values():
            self._reconfigure(topic)

    def _finish_deletion(self, name: str) -> None:
        """Directories of a deleted topic that could not be moved before must not pass to the new one."""
        row = self._left_over.get(name)
        if row is None:
            return
        try:
            self._move_left_over(row, is_name_in_use=False, sync=False)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        del self._left_over[name]
        self._durable([self._logs.root]).then(lambda _: self._forget_deleted([row.id]))

    def _move_left_over(self, row: StoredTopic, *, is_name_in_use: bool, sync: bool) -> None:
        """A directory of the same name may belong to a topic that was made since: its id tells them apart."""
        for index in range(row.partitions):
            directory = directory_name(row.name, index)
            if self._logs.disk.exists(directory):
                found = read_topic_id(self._logs.disk, directory)
                if found == row.id or (found is None and not is_name_in_use):
                    self._logs.claim(row.name, index, self._settings.log_config({}), row.id)
        self._logs.delete_topic(row.name, now_ms=self._clock.wall_ms(), partitions=row.partitions, sync=sync)

    def _set_aside_strays(self, rows: list[StoredTopic]) -> None:
        """Looks into directories only where there is one that no topic can have: reading all would slow the start."""
        expected = {directory_name(row.name, index) for row in rows for index in range(row.partitions)}
        found = {name for name in self._logs.disk.list() if parse_directory_name(name) is not None}
        unexpected = found - expected
        if unexpected:
            partitions = {row.id: row.partitions for row in rows}
            self._logs.set_aside_strays(partitions, partitions, unexpected=unexpected)

    @staticmethod
    def _tell(listeners: Sequence[DeletionListener], topic: Topic) -> list[PartitionLog]:
        """The change is made: a listener's trouble must not keep it from the others. What they want durable."""
        changed: list[PartitionLog] = []
        for listener in listeners:
            try:
                changed += listener(topic) or ()
            except Exception:
                logger.exception("some follow-up actions of a change to topic %s failed", topic.name)
        return changed


def unified(name: str) -> str:
    """Topics whose names differ only in dots and underscores could not be told apart in metrics."""
    return name.replace(".", "_")


def check_name(name: str) -> None:
    """Kafka's rules for topic names, with its texts."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        reason = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")


def check_partitions(partitions: int) -> None:
    if partitions < 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    if partitions > PARTITIONS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions {partitions} is more than a topic may have: {PARTITIONS_MAX}.",
        )


def _check_together(settings: Settings, configs: Mapping[str, str]) -> None:
    """What no setting can say alone."""
    if configs.get("remote.storage.enable", "").strip().lower() == "true":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage.",
        )
    config = settings.log_config(configs)
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})",
        )


def internal_shape(name: str, settings: Settings) -> tuple[int, dict[str, str]]:
    """Partitions and settings of one of the broker's own topics, as Kafka makes it."""
    if name == CONSUMER_OFFSETS:
        return settings.get_int("offsets.topic.num.partitions"), {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.get_int("offsets.topic.segment.bytes")),
        }
    if name == TRANSACTION_STATE:
        return settings.get_int("transaction.state.log.num.partitions"), {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(settings.get_int("transaction.state.log.min.isr")),
            "segment.bytes": str(settings.get_int("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        }
    if name == SHARE_GROUP_STATE:
        return settings.get_int("share.coordinator.state.topic.num.partitions"), {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(settings.get_int("share.coordinator.state.topic.min.isr")),
            "retention.ms": "-1",
            "segment.bytes": str(settings.get_int("share.coordinator.state.topic.segment.bytes")),
        }
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is not an internal topic")
