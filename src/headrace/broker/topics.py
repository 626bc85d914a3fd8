"""The topics the broker has: names and ids, their partitions with their logs, their settings.

Theory of operation. The metadata store says which topics exist; this registry mirrors it in memory and joins
each partition with its log. A start opens every log there is; a new partition's log is opened when it is first
used, so that a topic of a thousand partitions is made at once. What changes metadata is durable when the method
returns. Whoever cares (coordinators, parked requests) listens to `on_changed` and `on_deleted`.
"""

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from headrace.broker.clock import Clock
from headrace.broker.settings import BY_NAME, Scope, SettingError, Settings
from headrace.log.config import LogConfig
from headrace.log.layout import directory_name, parse_directory_name
from headrace.log.manager import LogManager
from headrace.log.metadata import MetadataStore, TopicRow, new_uuid
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


class Topics:
    def __init__(self, metadata: MetadataStore, logs: LogManager, settings: Settings, clock: Clock) -> None:
        self._metadata = metadata
        self._logs = logs
        self._settings = settings
        self._clock = clock
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self.on_changed: list[Listener] = []
        """A topic was created, or got more partitions."""
        self.on_deleted: list[Listener] = []
        self.on_configured: list[Listener] = []
        settings.on_changed.append(self._reconfigure_all)
        for row in metadata.deleted_topics():
            logger.info("finishing the deletion of topic %s", row.name)
            self._remove_left_over(row)
        rows = metadata.topics()
        self._set_aside_strays(rows)
        for row in rows:
            for partition in self._register(row).partitions:
                # Retention and compaction work on open logs; without a directory this costs one look at the disk.
                _ = partition.log

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def __iter__(self) -> Iterator[Topic]:
        """All topics in the order of their names."""
        return iter([self._by_name[name] for name in sorted(self._by_name)])

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

    def check_free(self, name: str) -> None:
        """Refuses a name that a new topic cannot have."""
        check_name(name)
        if name in self._by_name:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        colliding = self._colliding(name)
        if colliding is not None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {colliding}"
            )

    def create(self, name: str, *, partitions: int, configs: Mapping[str, str]) -> Topic:
        """A new topic, durable when this returns."""
        self.check_free(name)
        self.check_configs(configs)
        check_partitions(partitions)
        row = TopicRow(name, new_uuid(), partitions, dict(configs))
        self._finish_deletions(name)
        self._metadata.add_topic(row)
        topic = self._register(row)
        logger.info("created topic %s with %d partitions", name, partitions)
        self._tell(self.on_changed, topic)
        return topic

    def internal(self, name: str) -> Topic:
        """One of the broker's own topics, created on first use."""
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        partitions, configs = internal_shape(name, self._settings)
        return self.create(name, partitions=partitions, configs=configs)

    def delete(self, name: str) -> None:
        topic = self._require_topic(name)
        self._metadata.delete_topic(name)
        del self._by_name[name]
        del self._by_id[topic.id]
        try:
            self._remove_directories(topic.id, name)
        except OSError as error:
            logger.error("topic %s is deleted, but its files could not be removed yet: %s", name, error)
        logger.info("deleted topic %s", name)
        self._tell(self.on_deleted, topic)

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
        """More partitions, durable when this returns."""
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
            refusal = self._settings.refusal_of_name(Scope.TOPIC, name)
            if refusal is not None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, refusal)
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
        if "." not in name and "_" not in name:
            return None
        unified = name.replace(".", "_")
        return next(
            (other for other in self._by_name if other != name and other.replace(".", "_") == unified), None
        )

    def _register(self, row: TopicRow) -> Topic:
        topic = Topic(row.name, row.id, row.configs)
        self._by_name[row.name] = topic
        self._by_id[row.id] = topic
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

    def _finish_deletions(self, name: str) -> None:
        """Directories of a deleted topic that could not be removed before must not pass to the new one."""
        for row in self._metadata.deleted_topics():
            if row.name == name:
                try:
                    self._remove_left_over(row)
                except OSError as error:
                    raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _remove_left_over(self, row: TopicRow) -> None:
        for index in range(row.partitions):
            self._logs.open_log(row.name, index, self._settings.log_config({}), row.id)
        self._remove_directories(row.id, row.name)

    def _remove_directories(self, topic_id: bytes, name: str) -> None:
        self._logs.delete_topic(name, now_ms=self._clock.wall_ms())
        self._metadata.forget_deleted(topic_id)

    def _set_aside_strays(self, rows: list[TopicRow]) -> None:
        """Looks into directories only where there is one that no topic can have: reading all would slow the start."""
        expected = {directory_name(row.name, index) for row in rows for index in range(row.partitions)}
        found = {name for name in self._logs.disk.list() if parse_directory_name(name) is not None}
        if found - expected:
            self._logs.set_aside_strays({row.id for row in rows})

    @staticmethod
    def _tell(listeners: list[Listener], topic: Topic) -> None:
        """The change is made: a listener's trouble must not keep it from the others."""
        for listener in listeners:
            try:
                listener(topic)
            except Exception:
                logger.exception("what follows from a change of topic %s is not all done", topic.name)


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
        return settings.int("offsets.topic.num.partitions"), {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.int("offsets.topic.segment.bytes")),
        }
    if name == TRANSACTION_STATE:
        return settings.int("transaction.state.log.num.partitions"), {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(settings.int("transaction.state.log.min.isr")),
            "segment.bytes": str(settings.int("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        }
    if name == SHARE_GROUP_STATE:
        return settings.int("share.coordinator.state.topic.num.partitions"), {
            "cleanup.policy": "delete",
            "compression.type": "producer",
            "min.insync.replicas": str(settings.int("share.coordinator.state.topic.min.isr")),
            "retention.ms": "-1",
            "segment.bytes": str(settings.int("share.coordinator.state.topic.segment.bytes")),
        }
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is not an internal topic")
