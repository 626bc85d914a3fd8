"""Settings of the broker: Kafka 4.3's names, defaults and ranges for all that it understands, and our own.

A setting is dynamic here when Kafka lets it be altered on a running broker and the change takes effect here
at once.
"""

from typing import Any

from headrace.base.settings import INT_MAX, LONG_MAX, Value
from headrace.base.settings import ConfigType as Type
from headrace.broker.settings.setting import Scope, ScopedSetting, row
from headrace.broker.settings.topic_table import (
    COMPRESSION_TYPES,
    DAY_MS,
    HOUR_MS,
    TIMESTAMP_TYPES,
    gzip_level,
)

_CHECKS = {
    "compression.gzip.level": gzip_level,
}
_ALLOWED = {
    "log.cleanup.policy": "any of compact, delete; empty keeps everything",
    "compression.gzip.level": "1 to 9, or -1",
    "listeners": "a list of NAME://HOST:PORT",
    "advertised.listeners": "a list of NAME://HOST:PORT",
}
_ONE_NODE = " Headrace is one node, so it can only be 1."


def _broker(name: str, kind: Type, default: Value | None, doc: str, **rest: Any) -> ScopedSetting:
    checks = {"check": _CHECKS.get(name), "allowed_text": _ALLOWED.get(name, "")}
    return row(Scope.BROKER, name, kind, default, doc, **checks, **rest)


_HEADRACE = (
    _broker(
        "headrace.flush", Type.STRING, "fsync",
        "When a record with acks=all is acknowledged: `fsync` when it is on disk (group commit), `os` when the "
        "operating system has it, as in Kafka. With `os`, a power failure of a single node can lose records.",
        choices=("fsync", "os"),
    ),
    _broker(
        "headrace.disk.reserve.bytes", Type.LONG, 4 * 1024 * 1024,
        "Space in the data directory that is reserved, and released when the disk is full, so that DeleteRecords, "
        "DeleteTopics and retention can free space; 0 for none.",
        minimum=0, maximum=1 << 30,
    ),
    _broker(
        "headrace.unread.response.bytes", Type.INT, 96 << 20,
        "Memory for responses that clients do not read, for all connections together. A fetch response takes at most "
        "half of what is left of it, but at least one record batch. At twice as much, the client that leaves most "
        "unread is cut off.",
        minimum=0,
    ),
    _broker(
        "headrace.request.elements.max", Type.INT, 100_000,
        "How many elements the lists of a request may have: topics, partitions, groups, ACLs, all together. For "
        "requests that the broker handles in one piece, such as CreateAcls and TxnOffsetCommit, a tenth of it. The "
        "connection of a client that sends more is closed. A fetch session or share session has at most as many "
        "partitions.",
        minimum=1000,
    ),
)  # fmt: skip

_NETWORK = (
    _broker("node.id", Type.INT, 1, "The ID of this broker.", minimum=0),
    _broker("broker.rack", Type.STRING, None, "The rack of this broker, for clients."),
    _broker(
        "listeners", Type.LIST, ("PLAINTEXT://:9092",),
        "Where the broker listens: NAME://HOST:PORT, one or more. The name is a security protocol (PLAINTEXT, SSL, "
        "SASL_PLAINTEXT, SASL_SSL), or one of `listener.security.protocol.map`. `--listen` on the command line sets "
        "it.",
    ),
    _broker(
        "advertised.listeners", Type.LIST, None,
        "The addresses that clients connect to, if they differ from those of the listeners (behind a proxy, in a "
        "container).",
    ),
    _broker(
        "log.dirs", Type.LIST, None, "The data directory (one). `--data` on the command line sets it.",
    ),
    _broker(
        "socket.request.max.bytes", Type.INT, 100 << 20,
        "Largest request. A connection that announces more is closed.", minimum=1,
    ),
    _broker(
        "socket.listen.backlog.size", Type.INT, 50, "Connections that may wait to be accepted.",
        minimum=1,
    ),
    _broker(
        "max.connections", Type.INT, INT_MAX,
        "The maximum number of open connections. Connections above the limit are closed.",
        minimum=0, is_dynamic=True,
    ),
    _broker(
        "max.connections.per.ip", Type.INT, INT_MAX, "The maximum number of open connections from one address.",
        minimum=0, is_dynamic=True,
    ),
    _broker(
        "max.connection.creation.rate", Type.INT, INT_MAX,
        "New connections per second. Connections above the limit wait; when socket.listen.backlog.size of them "
        "wait, others are closed.",
        minimum=0, is_dynamic=True,
    ),
    _broker(
        "connections.max.idle.ms", Type.LONG, 600_000,
        "Connections that send no request for this long are closed.",
    ),
)  # fmt: skip

_TOPICS = (
    _broker(
        "auto.create.topics.enable", Type.BOOLEAN, True,
        "Whether a topic is created when a client requests its metadata and allows that.",
    ),
    _broker("num.partitions", Type.INT, 1, "Partitions of a topic created without a number.", minimum=1),
    _broker(
        "default.replication.factor", Type.INT, 1,
        "Replicas of a topic created without a number." + _ONE_NODE,
        minimum=1, maximum=1,
    ),
    _broker("delete.topic.enable", Type.BOOLEAN, True, "Whether topics may be deleted."),
    _broker(
        "min.insync.replicas", Type.INT, 1,
        "Replicas that must have a batch before acks=all is acknowledged. On one node, there is one replica.",
        minimum=1, is_dynamic=True, has_effect=False,
    ),
    _broker(
        "unclean.leader.election.enable", Type.BOOLEAN, False,
        "Whether a replica that lags may lead. One node has no other replica.",
        is_dynamic=True, has_effect=False,
    ),
    _broker(
        "message.max.bytes", Type.INT, 1048588, "The largest batch that a topic accepts, in bytes as stored.",
        minimum=0, is_dynamic=True,
    ),
    _broker(
        "compression.type", Type.STRING, "producer",
        "How batches are stored. `producer` keeps what the producer sent.",
        choices=COMPRESSION_TYPES, is_dynamic=True,
    ),
    _broker(
        "compression.gzip.level", Type.INT, -1,
        "The gzip level if the broker compresses. Headrace uses the library's default.",
        is_dynamic=True, has_effect=False,
    ),
    _broker(
        "compression.lz4.level", Type.INT, 9,
        "The lz4 level if the broker compresses. Headrace uses the library's default.",
        minimum=1, maximum=17, is_dynamic=True, has_effect=False,
    ),
    _broker(
        "compression.zstd.level", Type.INT, 3,
        "The zstd level if the broker compresses. Headrace uses the library's default.",
        minimum=-131072, maximum=22, is_dynamic=True, has_effect=False,
    ),
    _broker(
        "fetch.max.bytes", Type.INT, 55 << 20,
        "The maximum size of a fetch response, whatever the request allows.",
        minimum=1024,
    ),
    _broker(
        "max.incremental.fetch.session.cache.slots", Type.INT, 1000,
        "The maximum number of fetch sessions. A client without one sends all its partitions each time.",
        minimum=0,
    ),
    _broker(
        "max.request.partition.size.limit", Type.INT, 2000,
        "The maximum number of partitions in a DescribeTopicPartitions response.", minimum=1,
    ),
)  # fmt: skip

_LOG = (
    _broker(
        "log.cleanup.policy", Type.LIST, ("delete",), "Default of a topic's cleanup.policy.",
        choices=("compact", "delete"), is_dynamic=True,
    ),
    _broker(
        "log.segment.bytes", Type.INT, 1 << 30, "Default of a topic's segment.bytes.",
        minimum=1 << 20, is_dynamic=True,
    ),
    _broker(
        "log.roll.ms", Type.LONG, None, "Default of a topic's segment.ms; overrides log.roll.hours.",
        is_dynamic=True,
    ),
    _broker("log.roll.hours", Type.INT, 168, "Default of a topic's segment.ms, in hours.", minimum=1),
    _broker(
        "log.roll.jitter.ms", Type.LONG, None,
        "Default of a topic's segment.jitter.ms; overrides log.roll.jitter.hours.",
        is_dynamic=True, has_effect=False,
    ),
    _broker(
        "log.roll.jitter.hours", Type.INT, 0, "Default of a topic's segment.jitter.ms, in hours.",
        minimum=0, has_effect=False,
    ),
    _broker(
        "log.retention.ms", Type.LONG, None,
        "Default of a topic's retention.ms; overrides log.retention.minutes and log.retention.hours. -1: never.",
        is_dynamic=True,
    ),
    _broker(
        "log.retention.minutes", Type.INT, None,
        "Default of a topic's retention.ms, in minutes; overrides log.retention.hours.",
    ),
    _broker("log.retention.hours", Type.INT, 168, "Default of a topic's retention.ms, in hours."),
    _broker(
        "log.retention.bytes", Type.LONG, -1,
        "Default of a topic's retention.bytes. -1: no limit.", is_dynamic=True,
    ),
    _broker(
        "log.retention.check.interval.ms", Type.LONG, 300_000,
        "How often the broker looks for old segments of topics that are not compacted.", minimum=1,
    ),
    _broker(
        "log.segment.delete.delay.ms", Type.LONG, 60_000, "Default of a topic's file.delete.delay.ms.",
        minimum=0, is_dynamic=True,
    ),
    _broker(
        "log.index.interval.bytes", Type.INT, 4096, "Default of a topic's index.interval.bytes.",
        minimum=0, is_dynamic=True,
    ),
    _broker(
        "log.index.size.max.bytes", Type.INT, 10 << 20, "Default of a topic's segment.index.bytes.",
        minimum=4, is_dynamic=True,
    ),
    _broker(
        "log.message.timestamp.type", Type.STRING, "CreateTime",
        "Default of a topic's message.timestamp.type.",
        choices=TIMESTAMP_TYPES, is_dynamic=True,
    ),
    _broker(
        "log.message.timestamp.before.max.ms", Type.LONG, LONG_MAX,
        "Default of a topic's message.timestamp.before.max.ms.", minimum=0, is_dynamic=True,
    ),
    _broker(
        "log.message.timestamp.after.max.ms", Type.LONG, HOUR_MS,
        "Default of a topic's message.timestamp.after.max.ms.", minimum=0, is_dynamic=True,
    ),
    _broker(
        "log.cleaner.backoff.ms", Type.LONG, 15_000,
        "How often the broker looks for logs to compact, and for old segments of compacted topics.",
        minimum=0, is_dynamic=True,
    ),
    _broker(
        "log.cleaner.min.cleanable.ratio", Type.DOUBLE, 0.5,
        "Default of a topic's min.cleanable.dirty.ratio.",
        minimum=0, maximum=1, is_dynamic=True,
    ),
    _broker(
        "log.cleaner.min.compaction.lag.ms", Type.LONG, 0, "Default of a topic's min.compaction.lag.ms.",
        minimum=0, is_dynamic=True,
    ),
    _broker(
        "log.cleaner.max.compaction.lag.ms", Type.LONG, LONG_MAX,
        "Default of a topic's max.compaction.lag.ms.",
        minimum=1, is_dynamic=True,
    ),
    _broker(
        "log.cleaner.delete.retention.ms", Type.LONG, DAY_MS, "Default of a topic's delete.retention.ms.",
        minimum=0, is_dynamic=True,
    ),
    _broker(
        "log.preallocate", Type.BOOLEAN, False,
        "Default of a topic's preallocate.", is_dynamic=True, has_effect=False,
    ),
    _broker(
        "log.flush.interval.messages", Type.LONG, LONG_MAX, "Default of a topic's flush.messages.",
        minimum=1, is_dynamic=True, has_effect=False,
    ),
    _broker(
        "log.flush.interval.ms", Type.LONG, None,
        "Default of a topic's flush.ms.", is_dynamic=True, has_effect=False,
    ),
    _broker(
        "log.flush.scheduler.interval.ms", Type.LONG, LONG_MAX,
        "Default of a topic's flush.ms, after the one above.",
        has_effect=False,
    ),
    _broker(
        "log.local.retention.bytes", Type.LONG, -2, "Default of a topic's local.retention.bytes.",
        minimum=-2, is_dynamic=True, has_effect=False,
    ),
    _broker(
        "log.local.retention.ms", Type.LONG, -2, "Default of a topic's local.retention.ms.",
        minimum=-2, is_dynamic=True, has_effect=False,
    ),
)  # fmt: skip

_OFFSETS = (
    _broker(
        "offsets.topic.num.partitions", Type.INT, 50,
        "Partitions of `__consumer_offsets`. Fixed once the topic exists.", minimum=1,
    ),
    _broker(
        "offsets.topic.replication.factor", Type.SHORT, 1, "Replicas of `__consumer_offsets`." + _ONE_NODE,
        minimum=1, maximum=1,
    ),
    _broker(
        "offsets.topic.segment.bytes", Type.INT, 100 << 20, "Segment size of `__consumer_offsets`.",
        minimum=1 << 20,
    ),
    _broker("offset.metadata.max.bytes", Type.INT, 4096, "The maximum size of the metadata of a committed offset."),
    _broker(
        "offsets.retention.minutes", Type.INT, 10080,
        "How long an empty group's committed offsets are kept.", minimum=1,
    ),
    _broker(
        "offsets.retention.check.interval.ms", Type.LONG, 600_000,
        "How often the broker looks for expired offsets and groups.", minimum=1,
    ),
)  # fmt: skip

_GROUPS = (
    _broker(
        "group.min.session.timeout.ms", Type.INT, 6000,
        "The shortest session timeout that a classic member may request.",
    ),
    _broker(
        "group.max.session.timeout.ms", Type.INT, 1_800_000,
        "The longest session timeout that a classic member may request.",
    ),
    _broker(
        "group.initial.rebalance.delay.ms", Type.INT, 3000,
        "How long a new classic group waits for further members before its first assignment.",
    ),
    _broker("group.max.size", Type.INT, INT_MAX, "The maximum number of members of a classic group.", minimum=1),
    _broker(
        "group.consumer.session.timeout.ms", Type.INT, 45_000,
        "A consumer-group member that sends no heartbeat for this long is removed.", minimum=1,
    ),
    _broker(
        "group.consumer.min.session.timeout.ms", Type.INT, 45_000,
        "Smallest consumer.session.timeout.ms a group may set.", minimum=1,
    ),
    _broker(
        "group.consumer.max.session.timeout.ms", Type.INT, 60_000,
        "Largest consumer.session.timeout.ms a group may set.", minimum=1,
    ),
    _broker(
        "group.consumer.heartbeat.interval.ms", Type.INT, 5000,
        "The heartbeat interval of consumer-group members.", minimum=1,
    ),
    _broker(
        "group.consumer.min.heartbeat.interval.ms", Type.INT, 5000,
        "Smallest consumer.heartbeat.interval.ms a group may set.", minimum=1,
    ),
    _broker(
        "group.consumer.max.heartbeat.interval.ms", Type.INT, 15_000,
        "Largest consumer.heartbeat.interval.ms a group may set.", minimum=1,
    ),
    _broker(
        "group.consumer.assignment.interval.ms", Type.INT, 1000,
        "Shortest time between two assignments of one consumer group.", minimum=0, is_dynamic=True,
    ),
    _broker(
        "group.consumer.min.assignment.interval.ms", Type.INT, 0,
        "Smallest consumer.assignment.interval.ms a group may set.", minimum=0,
    ),
    _broker(
        "group.consumer.max.assignment.interval.ms", Type.INT, 15_000,
        "Largest consumer.assignment.interval.ms a group may set.", minimum=0,
    ),
    _broker(
        "group.consumer.max.size", Type.INT, INT_MAX, "The maximum number of members of a consumer group.",
        minimum=1,
    ),
    _broker(
        "group.consumer.assignors", Type.LIST, ("uniform", "range"),
        "The server-side assignors. The first one is used if a member names none.",
        choices=("uniform", "range"),
    ),
)  # fmt: skip

_TRANSACTIONS = (
    _broker(
        "transaction.state.log.num.partitions", Type.INT, 50,
        "Partitions of `__transaction_state`. Fixed once the topic exists.", minimum=1,
    ),
    _broker(
        "transaction.state.log.replication.factor", Type.SHORT, 1,
        "Replicas of `__transaction_state`." + _ONE_NODE,
        minimum=1, maximum=1,
    ),
    _broker(
        "transaction.state.log.min.isr", Type.INT, 1,
        "Replicas of `__transaction_state` in sync." + _ONE_NODE,
        minimum=1, maximum=1,
    ),
    _broker(
        "transaction.state.log.segment.bytes", Type.INT, 100 << 20, "Segment size of `__transaction_state`.",
        minimum=1 << 20,
    ),
    _broker(
        "transaction.max.timeout.ms", Type.INT, 900_000,
        "The longest transaction timeout that a producer may request.", minimum=1,
    ),
    _broker(
        "transactional.id.expiration.ms", Type.INT, 7 * DAY_MS,
        "How long an unused transactional ID is kept.", minimum=1,
    ),
    _broker(
        "transaction.remove.expired.transaction.cleanup.interval.ms", Type.INT, HOUR_MS,
        "How often the broker looks for expired transactional IDs.", minimum=1,
    ),
    _broker(
        "transaction.partition.verification.enable", Type.BOOLEAN, True,
        "Whether a transactional batch is refused when its partition is not part of the transaction.",
        is_dynamic=True,
    ),
    _broker(
        "producer.id.expiration.ms", Type.INT, DAY_MS,
        "How long a partition keeps the state of an idempotent producer that writes nothing.",
        minimum=1, is_dynamic=True,
    ),
    _broker(
        "producer.id.expiration.check.interval.ms", Type.INT, 600_000,
        "How often the broker checks for idle producers. Retention and compaction also run this check.", minimum=1,
    ),
)  # fmt: skip

BROKER_SETTINGS: tuple[ScopedSetting, ...] = (
    *_HEADRACE,
    *_NETWORK,
    *_TOPICS,
    *_LOG,
    *_OFFSETS,
    *_GROUPS,
    *_TRANSACTIONS,
)
