"""What a disk may refuse without being broken, and how a log says what it cannot do."""

import errno
from typing import TYPE_CHECKING, NamedTuple

from headrace.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from headrace.log.partition_log import PartitionLog

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
FILES_USED_UP = frozenset({errno.EMFILE, errno.ENFILE})
REFUSALS = FULL | FILES_USED_UP
"""Nothing was lost, and it may be tried again."""


class Damage(NamedTuple):
    """Bytes that are no batch although batches follow them. Nothing from `offset` on is served."""

    offset: int
    path: str
    position: int
    reason: str

    def error(self, log: "PartitionLog", code: ErrorCode) -> KafkaError:
        """Readers get CORRUPT_MESSAGE, which their users see; a storage error they would try again for ever."""
        return KafkaError(
            code,
            f"{log.name} is damaged at offset {self.offset} ({self.path}, byte {self.position}: {self.reason}) "
            "and serves nothing from there on.",
        )


def cure_of(error: BaseException | None) -> str:
    """What the reader of the log can do about a refused write."""
    if isinstance(error, OSError) and error.errno in FILES_USED_UP:
        return "Allow the broker more open files (ulimit -n, LimitNOFILE)"
    return "Free space on the disk"


def deleted(log: "PartitionLog") -> KafkaError:
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{log.name} was deleted.")


def out_of_range(log: "PartitionLog", offset: int) -> KafkaError:
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"Offset {offset} of {log.name} is outside {log.start_offset} to {log.end_offset}.",
    )


def storage_error(log: "PartitionLog", what: str, error: OSError) -> KafkaError:
    return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{log.name} in {log.store.disk.name} {what}: {error}.")
