"""The settings of one partition's log. Named and defaulted as Kafka's topic settings, dots as underscores."""

from dataclasses import dataclass, field

FOREVER_MS = 2**63 - 1
LOG_APPEND_TIME = "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    segment_bytes: int = 1024 * 1024 * 1024
    segment_ms: int = 7 * 24 * 3600 * 1000
    retention_ms: int = 7 * 24 * 3600 * 1000
    """-1: for ever."""
    retention_bytes: int = -1
    """-1: no limit."""
    max_message_bytes: int = 1_048_588
    message_timestamp_type: str = "CreateTime"
    """Or LogAppendTime."""
    message_timestamp_before_max_ms: int = FOREVER_MS
    message_timestamp_after_max_ms: int = 3600 * 1000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    """Of "delete" and "compact"."""
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER_MS
    min_cleanable_dirty_ratio: float = 0.5
    file_delete_delay_ms: int = 60 * 1000
    index_interval_bytes: int = 4096
    segment_index_bytes: int = 10 * 1024 * 1024
    compression_type: str = "producer"
    """Or uncompressed, gzip, snappy, lz4, zstd: what batches are packed with, whatever the producer chose."""
    producer_expiration_ms: int = 24 * 3600 * 1000
    """producer.id.expiration.ms: an idle producer's sequence is forgotten after this long."""

    has_append_time: bool = field(init=False, repr=False, compare=False)
    """Records get the time of their append."""
    checks_records: bool = field(init=False, repr=False, compare=False)
    """Every record of a client is looked at: for its key in a compacted topic, or for its age."""
    opens_records: bool = field(init=False, repr=False, compare=False)
    """The batches of a client are opened before they enter the log, to check their records or to recompress them."""

    def __post_init__(self) -> None:
        has_append_time = self.message_timestamp_type == LOG_APPEND_TIME
        checks_age = self.message_timestamp_before_max_ms < FOREVER_MS and not has_append_time
        checks_records = checks_age or "compact" in self.cleanup_policy
        object.__setattr__(self, "has_append_time", has_append_time)
        object.__setattr__(self, "checks_records", checks_records)
        object.__setattr__(self, "opens_records", checks_records or self.compression_type != "producer")
