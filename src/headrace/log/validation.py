"""What a produced batch must be before it may enter a log, judged from its header where that is enough.

Records are opened only for a rule that cannot do without: keys in compacted topics, timestamps that may be too old.
"""

from headrace.log.config import FOREVER_MS, LogConfig
from headrace.log.producers import Origin
from headrace.wire.batches import NO_TIMESTAMP, BatchHeader, Compression, require_intact, split
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import read_records

Checked = list[tuple[int, BatchHeader]]
"""Positions and headers of batches."""

COMPRESSION_OF = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
LOG_APPEND_TIME = "LogAppendTime"


class InvalidRecords(KafkaError):
    """Some records of a batch are at fault, so the whole batch is refused. Names them by their index."""

    def __init__(self, code: ErrorCode, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, record_errors[0][1])
        self.record_errors = record_errors


def check_batches(data: bytes, config: LogConfig, *, now_ms: int, origin: Origin) -> Checked:
    checked = list(split(data))
    if not checked:
        raise KafkaError(ErrorCode.INVALID_RECORD, "There is no record batch in the request.")
    for position, header in checked:
        if header.size > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"A record batch of {header.size} bytes is larger than the topic's max.message.bytes, "
                f"{config.max_message_bytes}.",
            )
        require_intact(data, position, header)
        _check_counts(header)
        if origin is Origin.CLIENT:
            _check_client_rules(header)
        if config.message_timestamp_type != LOG_APPEND_TIME:
            _check_time(data[position : position + header.size], header, config, now_ms)
        if _must_open(config, origin):
            _check_records(data[position : position + header.size], config, now_ms)
    return checked


def _check_counts(header: BatchHeader) -> None:
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"A record batch of {header.record_count} records whose last offset delta is "
            f"{header.last_offset_delta}.",
        )
    if header.compression > Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {header.compression}."
        )


def _check_client_rules(header: BatchHeader) -> None:
    problem = None
    if header.base_offset:
        problem = f"The base offset of a produced batch must be 0, not {header.base_offset}."
    elif header.is_control:
        problem = "Clients may not write control records."
    elif header.has_producer and (header.base_sequence < 0 or header.producer_epoch < 0):
        problem = (
            f"Producer {header.producer_id} sent epoch {header.producer_epoch}, "
            f"sequence {header.base_sequence}."
        )
    elif header.is_transactional and not header.has_producer:
        problem = "A transactional batch must name its producer."
    if problem:
        raise KafkaError(ErrorCode.INVALID_RECORD, problem)


def _check_time(batch: bytes, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.is_log_append_time:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "A producer may not set the timestamp type to LogAppendTime."
        )
    newest_ms = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > newest_ms:
        # The header is enough to refuse the batch; the records are opened to say which of them it was.
        too_new = [
            (index, f"Timestamp {record.timestamp} is after {newest_ms}, the newest that is accepted.")
            for index, record in enumerate(read_records(batch))
            if record.timestamp > newest_ms
        ]
        raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, too_new or [(0, "The batch claims a later time.")])


def _must_open(config: LogConfig, origin: Origin) -> bool:
    if origin is not Origin.CLIENT:
        return False
    checks_age = (
        config.message_timestamp_before_max_ms < FOREVER_MS
        and config.message_timestamp_type != LOG_APPEND_TIME
    )
    return checks_age or "compact" in config.cleanup_policy


def _check_records(batch: bytes, config: LogConfig, now_ms: int) -> None:
    records = read_records(batch)
    if "compact" in config.cleanup_policy:
        keyless = [index for index, record in enumerate(records) if record.key is None]
        if keyless:
            why = "A compacted topic cannot take a record without a key."
            raise InvalidRecords(ErrorCode.INVALID_RECORD, [(index, why) for index in keyless])
    if config.message_timestamp_type != LOG_APPEND_TIME:
        oldest_ms = now_ms - config.message_timestamp_before_max_ms
        too_old = [
            (index, f"Timestamp {record.timestamp} is before {oldest_ms}, the oldest that is accepted.")
            for index, record in enumerate(records)
            if NO_TIMESTAMP < record.timestamp < oldest_ms
        ]
        if too_old:
            raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, too_old)
