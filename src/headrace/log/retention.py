"""Which of a log's oldest segments may go: too old, too many bytes, or wholly before the log's start offset."""

from headrace.log.partition_log import PartitionLog
from headrace.log.segment import Segment


def drop_expired(log: PartitionLog, *, now_ms: int, at_most: int) -> list[Segment]:
    """Takes some of them out of the log; there may be more. Their files are the caller's to remove.

    OSError if a new segment cannot be made.
    """
    count = max(_before_start(log), _by_time(log, now_ms), _by_size(log)) if log.segments else 0
    return log.drop_oldest(min(count, at_most), now_ms=now_ms) if count else []


def _before_start(log: PartitionLog) -> int:
    return sum(base <= log.start_offset for base in log.files.bases[1:])


def _by_time(log: PartitionLog, now_ms: int) -> int:
    if "delete" not in log.config.cleanup_policy or log.config.retention_ms < 0:
        return 0
    count = 0
    for segment in log.segments:
        if count and not segment.is_dated:
            break  # it is read the next time: a step of retention reads the indexes of one segment
        if _is_empty_active(segment) or now_ms - segment.newest_ms() <= log.config.retention_ms:
            break
        count += 1
    return count


def _by_size(log: PartitionLog) -> int:
    if "delete" not in log.config.cleanup_policy or log.config.retention_bytes < 0:
        return 0
    excess = log.size - log.config.retention_bytes
    count = 0
    for segment in log.segments:
        excess -= segment.size
        if excess < 0 or _is_empty_active(segment):
            break
        count += 1
    return count


def _is_empty_active(segment: Segment) -> bool:
    """Compaction may leave closed segments empty; those may go."""
    return not segment.is_closed and not segment.size
