"""Short ways to make batches and logs, for the tests of the log."""

from collections.abc import Iterator, Sequence

from headrace.log.config import LogConfig
from headrace.log.disk import Disk
from headrace.log.manager import LogManager
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.log.reading import Read
from headrace.wire.batches import BatchHeader, split
from headrace.wire.records import NewRecord, Record, build_batch, read_marker, read_records

NOW = 1_700_000_000_000
DAY = 24 * 3600 * 1000
TOPIC_ID = bytes(range(16))


def batch(
    *values: str | None,
    keys: Sequence[str | None] | None = None,
    at: int = NOW,
    compression: int = 0,
    producer: tuple[int, int, int] | None = None,
    transactional: bool = False,
) -> bytes:
    """Records of these values; `producer` is (id, epoch, base sequence)."""
    named = keys if keys is not None else [None] * len(values)
    producer_id, producer_epoch, base_sequence = producer or (-1, -1, -1)
    return build_batch(
        [
            NewRecord(
                key.encode() if key is not None else None,
                value.encode() if value is not None else None,
                (),
                at,
            )
            for key, value in zip(named, values, strict=True)
        ],
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        is_transactional=transactional,
    )


def open_log(
    disk: Disk | None = None, *, now_ms: int = NOW, topic: str = "orders", **config: object
) -> tuple[LogManager, PartitionLog]:
    manager = LogManager(disk if disk is not None else MemoryDisk(), now_ms=now_ms)
    return manager, manager.open_log(topic, 0, LogConfig(**config), TOPIC_ID)  # type: ignore[arg-type]


def delete_records(log: PartitionLog, before: int) -> int:
    """As the broker does it: readers have the new start at once, and it is told when it is saved."""
    start_offset = log.trim(before)
    log.store.start_offsets.sync()
    return start_offset


def a_log(**config: object) -> PartitionLog:
    return open_log(**config)[1]  # type: ignore[arg-type]


def records_of(
    log: PartitionLog, offset: int | None = None, *, committed: bool = False, max_bytes: int = 1
) -> list[Record]:
    """Everything from an offset on, by reads as a consumer does them; committed ones without aborted records."""
    found: list[Record] = []
    offset = log.start_offset if offset is None else offset
    while offset < log.end_offset:
        read = log.reader.read(offset, max_bytes=max_bytes, committed=committed)
        if not read.data:
            break
        for batch_, header in _without_aborted(read):
            found += [record for record in read_records(batch_) if record.offset >= offset]
            assert header.base_offset < log.end_offset
        offset = list(split(read.data))[-1][1].next_offset
    return found


def _without_aborted(read: Read) -> Iterator[tuple[bytes, BatchHeader]]:
    """As clients do it: a producer's batches are left out from its aborted transaction's start to its marker."""
    waiting = sorted(read.aborted, key=lambda entry: entry[1])
    aborted: set[int] = set()
    for position, header in split(read.data):
        batch_ = read.data[position : position + header.size]
        while waiting and waiting[0][1] <= header.last_offset:
            aborted.add(waiting.pop(0)[0])
        if header.is_control:
            marker = read_marker(batch_) if header.record_count else None
            if marker is not None and not marker.is_commit:
                aborted.discard(header.producer_id)
        elif header.record_count and not (header.is_transactional and header.producer_id in aborted):
            yield batch_, header


def values_of(
    log: PartitionLog, offset: int | None = None, *, committed: bool = False, max_bytes: int = 1
) -> list[str | None]:
    return [
        None if record.value is None else record.value.decode()
        for record in records_of(log, offset, committed=committed, max_bytes=max_bytes)
    ]
