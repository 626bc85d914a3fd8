"""What a produced batch must be before it may enter a log, judged from its header where that is enough.

Records are opened only for a rule that cannot do without: keys in compacted topics, timestamps that may be too old.
A few kilobytes may unpack to gigabytes, or hold a million records, and the event loop must not wait for that: `prepare`
does at once what is small, and raises `TooMuch` where it would take long. Whoever gets that calls it on another thread,
with `at_leisure`. There is a bound there too, `OPENED_BYTES_MAX` or the topic's `max.message.bytes` if that is more.
"""

from collections.abc import Iterator

from headrace.log.config import LogConfig
from headrace.log.producers import AppendOrigin
from headrace.wire.batches import (
    COMPRESSION_MASK,
    CONTROL,
    FRAME_SIZE,
    LOG_APPEND_TIME,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    Compression,
    require_intact,
    split,
)
from headrace.wire.compression import TooLarge
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import read_chunks, recompress, unpack

Checked = list[tuple[int, BatchHeader]]
"""Positions and headers of batches."""
Prepared = tuple[bytes, Checked]
"""Batches that may enter the log, packed as the topic wants them."""

COMPRESSION_OF = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
LAST_CODEC = int(Compression.ZSTD)
OPENED_BYTES_MAX = 32 << 20
AT_ONCE_BYTES_MAX = 1 << 20
AT_ONCE_RECORDS_MAX = 5_000


class InvalidRecords(KafkaError):
    """Some records of a batch are at fault, so the whole batch is refused. Names them by their index."""

    def __init__(self, code: ErrorCode, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(code, record_errors[0][1])
        self.record_errors = record_errors


class TooMuch(Exception):
    """Opening these records would hold up whoever waits for it."""


def prepare(
    data: bytes, config: LogConfig, *, now_ms: int, origin: AppendOrigin, at_leisure: bool = False
) -> Prepared:
    """Judges the batches and packs them by the topic's codec. KafkaError, or TooMuch unless `at_leisure`."""
    checked = check_batches(data, config, now_ms=now_ms, origin=origin, at_leisure=at_leisure)
    if config.compression_type == "producer":
        return data, checked
    codec = COMPRESSION_OF[config.compression_type]
    if not at_leisure and any(
        header.compression != codec and header.size > AT_ONCE_BYTES_MAX for _, header in checked
    ):
        raise TooMuch
    limit = _limit(config, at_leisure)
    try:
        batches = [
            recompress(data[position : position + header.size], codec, limit=limit)
            for position, header in checked
        ]
    except TooLarge as error:
        raise _too_large(error, at_leisure) from None
    data = b"".join(batches)
    return data, list(split(data))


def _limit(config: LogConfig, at_leisure: bool) -> int:
    return max(OPENED_BYTES_MAX, config.max_message_bytes) if at_leisure else AT_ONCE_BYTES_MAX


def _too_large(error: TooLarge, at_leisure: bool) -> Exception:
    if not at_leisure:
        return TooMuch()
    return KafkaError(
        ErrorCode.MESSAGE_TOO_LARGE, f"{error.message} This topic opens what it takes; send smaller batches."
    )


def check_batches(
    data: bytes, config: LogConfig, *, now_ms: int, origin: AppendOrigin, at_leisure: bool = True
) -> Checked:
    checked = list(split(data))
    if not checked:
        raise KafkaError(ErrorCode.INVALID_RECORD, "There is no record batch in the request.")
    is_client = origin is AppendOrigin.CLIENT
    for position, header in checked:
        if header.length + FRAME_SIZE > config.max_message_bytes:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"A record batch of {header.size} bytes is larger than the topic's max.message.bytes, "
                f"{config.max_message_bytes}.",
            )
        require_intact(data, position, header)
        _check_counts(header)
        if is_client:
            _check_client_rules(header)
        if not config.has_append_time:
            _check_time(data, position, header, config, now_ms)
        if is_client and config.checks_records:
            if not at_leisure and header.record_count > AT_ONCE_RECORDS_MAX:
                raise TooMuch
            try:
                plain = unpack(data[position : position + header.size], limit=_limit(config, at_leisure))
            except TooLarge as error:
                raise _too_large(error, at_leisure) from None
            _check_records(plain, config, now_ms)
    return checked


def _check_counts(header: BatchHeader) -> None:
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"A record batch of {header.record_count} records whose last offset delta is "
            f"{header.last_offset_delta}.",
        )
    if header.attributes & COMPRESSION_MASK > LAST_CODEC:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {header.compression}."
        )


def _check_client_rules(header: BatchHeader) -> None:
    problem = None
    if header.base_offset:
        problem = f"The base offset of a produced batch must be 0, not {header.base_offset}."
    elif header.attributes & CONTROL:
        problem = "Clients may not write control records."
    elif header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        problem = (
            f"Producer {header.producer_id} sent epoch {header.producer_epoch}, "
            f"sequence {header.base_sequence}."
        )
    elif header.attributes & TRANSACTIONAL and header.producer_id < 0:
        problem = "A transactional batch must name its producer."
    if problem:
        raise KafkaError(ErrorCode.INVALID_RECORD, problem)


def _check_time(data: bytes, position: int, header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if header.attributes & LOG_APPEND_TIME:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP, "A producer may not set the timestamp type to LogAppendTime."
        )
    newest_ms = now_ms + config.message_timestamp_after_max_ms
    if header.max_timestamp > newest_ms:
        # The header is enough to refuse the batch; the records are opened to say which of them it was.
        raise InvalidRecords(
            ErrorCode.INVALID_TIMESTAMP,
            _too_new(data[position : position + header.size], header, newest_ms)
            or [(0, "The batch's timestamp is too far in the future.")],
        )


def _too_new(batch: bytes, header: BatchHeader, newest_ms: int) -> list[tuple[int, str]]:
    if header.record_count > AT_ONCE_RECORDS_MAX:
        return []
    try:
        plain = unpack(batch, limit=AT_ONCE_BYTES_MAX)
    except TooLarge:
        return []
    why = f"is after {newest_ms}, the newest that is accepted."
    return [
        (index, f"Timestamp {timestamp} {why}")
        for index, _, timestamp in _facts(plain)
        if timestamp > newest_ms
    ]


def _facts(batch: bytes) -> Iterator[tuple[int, bool, int]]:
    """Of each record: its index, whether it has a key, its timestamp."""
    index = 0
    for chunk in read_chunks(batch):
        for record in chunk:
            yield index, record.key is not None, record.timestamp
            index += 1


def _check_records(batch: bytes, config: LogConfig, now_ms: int) -> None:
    needs_keys = "compact" in config.cleanup_policy
    oldest_ms = now_ms - config.message_timestamp_before_max_ms
    has_age = not config.has_append_time
    keyless: list[tuple[int, str]] = []
    too_old: list[tuple[int, str]] = []
    for index, has_key, timestamp in _facts(batch):
        if needs_keys and not has_key:
            keyless.append((index, "A compacted topic cannot take a record without a key."))
        elif has_age and NO_TIMESTAMP < timestamp < oldest_ms:
            why = f"Timestamp {timestamp} is before {oldest_ms}, the oldest that is accepted."
            too_old.append((index, why))
    if keyless:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, keyless)
    if too_old:
        raise InvalidRecords(ErrorCode.INVALID_TIMESTAMP, too_old)
