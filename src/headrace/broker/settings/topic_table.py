"""Settings of a topic: the names, defaults and ranges of Kafka 4.3. Each falls back on its broker setting."""

import re
from collections.abc import Callable
from typing import Any

from headrace.base.settings import LONG_MAX, Value
from headrace.base.settings import ConfigType as Type
from headrace.broker.settings.setting import Scope, ScopedSetting, Synonym, row

HOUR_MS = 3_600_000
MINUTE_MS = 60_000
DAY_MS = 24 * HOUR_MS


def gzip_level(value: Value) -> str | None:
    if value == -1 or (isinstance(value, int) and 1 <= value <= 9):
        return None
    return "Value must be between 1 and 9 or equal to -1"


def _throttled_replicas(name: str) -> Callable[[Value], str | None]:
    def check(value: Value) -> str | None:
        items = value if isinstance(value, tuple) else ()
        if not items or items == ("*",) or all(_PAIR.fullmatch(item) for item in items):
            return None
        return (
            f"{name} must be the literal '*' or a list of replicas in the following format: "
            "[partitionId]:[brokerId],[partitionId]:[brokerId],..."
        )

    return check


_PAIR = re.compile(r"[0-9]+:[0-9]+")


def _topic(
    name: str, kind: Type, default: Value | None, doc: str, *synonyms: Synonym | str, **rest: Any
) -> ScopedSetting:
    checks = {"check": _CHECKS.get(name), "allowed_text": _ALLOWED.get(name, "")}
    return row(Scope.TOPIC, name, kind, default, doc, *synonyms, is_dynamic=True, **checks, **rest)


_CHECKS = {
    "compression.gzip.level": gzip_level,
    "leader.replication.throttled.replicas": _throttled_replicas("leader.replication.throttled.replicas"),
    "follower.replication.throttled.replicas": _throttled_replicas("follower.replication.throttled.replicas"),
}
_ALLOWED = {
    "cleanup.policy": "any of compact, delete; empty keeps everything",
    "compression.gzip.level": "1 to 9, or -1",
    "leader.replication.throttled.replicas": "* or a list of partition:broker pairs",
    "follower.replication.throttled.replicas": "* or a list of partition:broker pairs",
}
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

TOPIC_SETTINGS: tuple[ScopedSetting, ...] = (
    _topic(
        "cleanup.policy", Type.LIST, ("delete",),
        "What happens to old records: `delete` drops whole segments past the retention, `compact` keeps the "
        "newest record of each key. Both may be given.",
        "log.cleanup.policy", choices=("compact", "delete"),
    ),
    _topic(
        "compression.type", Type.STRING, "producer",
        "How batches are stored. `producer` keeps what the producer sent.",
        "compression.type", choices=COMPRESSION_TYPES,
    ),
    _topic(
        "compression.gzip.level", Type.INT, -1,
        "The gzip level if the broker compresses. Headrace uses the library's default.",
        "compression.gzip.level", has_effect=False,
    ),
    _topic(
        "compression.lz4.level", Type.INT, 9,
        "The lz4 level if the broker compresses. Headrace uses the library's default.",
        "compression.lz4.level", minimum=1, maximum=17, has_effect=False,
    ),
    _topic(
        "compression.zstd.level", Type.INT, 3,
        "The zstd level if the broker compresses. Headrace uses the library's default.",
        "compression.zstd.level", minimum=-131072, maximum=22, has_effect=False,
    ),
    _topic(
        "delete.retention.ms", Type.LONG, DAY_MS,
        "How long a compacted topic keeps tombstones, so that a reader from the start sees the deletions.",
        "log.cleaner.delete.retention.ms", minimum=0,
    ),
    _topic(
        "errors.deadletterqueue.group.enable", Type.BOOLEAN, False,
        "Whether share groups may use this topic as their dead-letter queue.",
    ),
    _topic(
        "file.delete.delay.ms", Type.LONG, MINUTE_MS,
        "How long files of removed segments stay on disk after they left the log.",
        "log.segment.delete.delay.ms", minimum=0,
    ),
    _topic(
        "flush.messages", Type.LONG, LONG_MAX,
        "Kafka: fsync after this number of records. In Headrace, `headrace.flush` decides.",
        "log.flush.interval.messages", minimum=1, has_effect=False,
    ),
    _topic(
        "flush.ms", Type.LONG, LONG_MAX,
        "Kafka: fsync after this time. In Headrace, `headrace.flush` decides.",
        "log.flush.interval.ms", "log.flush.scheduler.interval.ms", minimum=0, has_effect=False,
    ),
    _topic(
        "follower.replication.throttled.replicas", Type.LIST, (),
        "Which followers are slowed down while they copy. One node has no followers.", has_effect=False,
    ),
    _topic(
        "index.interval.bytes", Type.INT, 4096,
        "The distance between two entries of the offset index, in bytes of the log.",
        "log.index.interval.bytes", minimum=0,
    ),
    _topic(
        "internal.segment.bytes", Type.INT, None, "Overrides segment.bytes below its minimum, for tests.",
        minimum=1, is_internal=True,
    ),
    _topic(
        "leader.replication.throttled.replicas", Type.LIST, (),
        "Which leaders are slowed down while followers copy. One node has no followers.", has_effect=False,
    ),
    _topic(
        "local.retention.bytes", Type.LONG, -2,
        "Local part of a tiered topic. There is no tiered storage here.",
        "log.local.retention.bytes", minimum=-2, has_effect=False,
    ),
    _topic(
        "local.retention.ms", Type.LONG, -2, "Local part of a tiered topic. There is no tiered storage here.",
        "log.local.retention.ms", minimum=-2, has_effect=False,
    ),
    _topic(
        "max.compaction.lag.ms", Type.LONG, LONG_MAX,
        "The maximum time before a record is compacted, even if the log is clean.",
        "log.cleaner.max.compaction.lag.ms", minimum=1,
    ),
    _topic(
        "max.message.bytes", Type.INT, 1048588, "The largest batch that the topic accepts, in bytes as stored.",
        "message.max.bytes", minimum=0,
    ),
    _topic(
        "message.timestamp.after.max.ms", Type.LONG, HOUR_MS,
        "How far a record's own timestamp may lie in the future; beyond it the batch is refused.",
        "log.message.timestamp.after.max.ms", minimum=0,
    ),
    _topic(
        "message.timestamp.before.max.ms", Type.LONG, LONG_MAX,
        "How far a record's own timestamp may lie in the past; beyond it the batch is refused.",
        "log.message.timestamp.before.max.ms", minimum=0,
    ),
    _topic(
        "message.timestamp.type", Type.STRING, "CreateTime",
        "Whose clock stamps records: the producer's (CreateTime) or the broker's (LogAppendTime).",
        "log.message.timestamp.type", choices=TIMESTAMP_TYPES,
    ),
    _topic(
        "min.cleanable.dirty.ratio", Type.DOUBLE, 0.5,
        "A log is compacted when at least this part of it has not been compacted yet.",
        "log.cleaner.min.cleanable.ratio", minimum=0, maximum=1,
    ),
    _topic(
        "min.compaction.lag.ms", Type.LONG, 0, "The minimum time before a record is compacted.",
        "log.cleaner.min.compaction.lag.ms", minimum=0,
    ),
    _topic(
        "min.insync.replicas", Type.INT, 1,
        "Replicas that must have a batch before acks=all is acknowledged. On one node, there is one replica.",
        "min.insync.replicas", minimum=1, has_effect=False,
    ),
    _topic(
        "preallocate", Type.BOOLEAN, False, "Kafka's way of reserving a segment's space on disk in advance.",
        "log.preallocate", has_effect=False,
    ),
    _topic(
        "remote.log.copy.disable", Type.BOOLEAN, False, "Tiered storage, which is not supported.",
        has_effect=False,
    ),
    _topic(
        "remote.log.delete.on.disable", Type.BOOLEAN, False, "Tiered storage, which is not supported.",
        has_effect=False,
    ),
    _topic(
        "remote.storage.enable", Type.BOOLEAN, False,
        "Tiered storage, which is not supported: true is refused.",
        has_effect=False,
    ),
    _topic(
        "retention.bytes", Type.LONG, -1,
        "A partition that is larger loses its oldest segments (policy `delete`). -1: no limit.",
        "log.retention.bytes",
    ),
    _topic(
        "retention.ms", Type.LONG, 7 * DAY_MS,
        "Segments whose newest record is older are dropped (policy `delete`). -1: never.",
        "log.retention.ms",
        Synonym("log.retention.minutes", MINUTE_MS),
        Synonym("log.retention.hours", HOUR_MS),
        minimum=-1,
    ),
    _topic(
        "segment.bytes", Type.INT, 1 << 30,
        "A segment that would grow beyond this is closed and the next begun.",
        "log.segment.bytes", minimum=1 << 20,
    ),
    _topic(
        "segment.index.bytes", Type.INT, 10 << 20, "Largest size of a segment's index.",
        "log.index.size.max.bytes", minimum=4,
    ),
    _topic(
        "segment.jitter.ms", Type.LONG, 0,
        "Kafka's random delay of segment rolls, made for thousands of partitions.",
        "log.roll.jitter.ms", Synonym("log.roll.jitter.hours", HOUR_MS), minimum=0, has_effect=False,
    ),
    _topic(
        "segment.ms", Type.LONG, 7 * DAY_MS, "A segment older than this is closed at the next append.",
        "log.roll.ms", Synonym("log.roll.hours", HOUR_MS), minimum=1,
    ),
    _topic(
        "unclean.leader.election.enable", Type.BOOLEAN, False,
        "Whether a replica that lags may lead. One node has no other replica.",
        "unclean.leader.election.enable", has_effect=False,
    ),
)  # fmt: skip
