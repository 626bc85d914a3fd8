"""Names and small text files of a data directory, as Apache Kafka lays it out.

```
meta.properties                       format version, unclean starts so far
clean-shutdown                        only after a clean stop: what every log held (a checksum, then JSON)
log-start-offset-checkpoint           start offsets that DeleteRecords or retention moved
recovery-point-offset-checkpoint      below these offsets recovery checks nothing
cleaner-offset-checkpoint             below these offsets the log is compacted
reserve                               room that is given up when the disk is full
<topic>-<partition>/
    partition.metadata                topic id
    leader-epoch-checkpoint           first offset of each leader epoch
    <base offset>.log                 record batches
    <base offset>.index .timeindex .txnindex
    <offset>.snapshot                 producers as they were at this offset
```
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

from headrace.wire.batches import crc32c_of

FORMAT_VERSION = 2
"""Of the data directory as a whole. A broker reads this version and the one before.

1: checkpoints are keyed by topic name. 2: by topic id.
"""

META = "meta.properties"
INCOMPLETE = b"# An unfinished backup: remove this directory.\nheadrace.format=unfinished-backup\n"
"""What meta.properties says until a backup is whole."""
CLEAN_SHUTDOWN = "clean-shutdown"
START_OFFSETS = "log-start-offset-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
MERGED = ".merged"
DRAFT = ".tmp"
DELETED_DIRECTORY = "-delete"
STRAY_DIRECTORY = "-stray"

INDEXES = (INDEX, TIME_INDEX, TRANSACTION_INDEX)
SEGMENT_FILES = (LOG, *INDEXES)

_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_SEGMENT_NAME = re.compile(r"\d{20}")
_DIRECTORY_NAME = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d+)")

Partition = tuple[str, int]
Key = tuple[bytes, int]
"""Topic id and partition: what a checkpoint's entry is about."""


class Unreadable(ValueError):
    """A checkpoint file that is torn or of another format. What it held is found again from the log."""


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_directory_name(name: str) -> Partition | None:
    match = _DIRECTORY_NAME.fullmatch(name)
    return (match["topic"], int(match["partition"])) if match else None


def file_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def parse_file_name(name: str) -> tuple[int, str] | None:
    """Offset and suffix of a file of a segment."""
    offset, dot, suffix = name.partition(".")
    return (int(offset), dot + suffix) if dot and _SEGMENT_NAME.fullmatch(offset) else None


def range_name(base_offset: int, end_offset: int, suffix: str) -> str:
    """Of a compacted segment, for which all segments from `base_offset` to before `end_offset` make way.

    SWAP: the segment itself, whole and synced, before it has its name. MERGED: an empty file that is there before the
    segment gets its name, and until nothing is left of those it stands for.
    """
    return f"{base_offset:020d}.{end_offset:020d}{suffix}"


def parse_range_name(name: str) -> tuple[int, int] | None:
    """The two offsets."""
    base, _, rest = name.partition(".")
    end, _, suffix = rest.partition(".")
    is_range = (
        "." + suffix in (SWAP, MERGED) and _SEGMENT_NAME.fullmatch(base) and _SEGMENT_NAME.fullmatch(end)
    )
    return (int(base), int(end)) if is_range else None


def encode_checkpoint(offsets: Mapping[Key, int]) -> bytes:
    """As Kafka's checkpoint of partitions (version, count, one line each), by topic id and with a checksum."""
    lines = [f"{id_text(key[0])} {key[1]} {offset}" for key, offset in sorted(offsets.items())]
    content = "\n".join(["1", str(len(lines)), *lines, ""]).encode()
    return content + f"crc {crc32c_of(content):08x}\n".encode()


def parse_checkpoint(data: bytes) -> dict[Key, int]:
    content, _, crc = data.rpartition(b"crc ")
    if crc != f"{crc32c_of(content):08x}\n".encode():
        raise Unreadable("its checksum does not match")
    try:
        return {
            (parse_id(topic_id), int(partition)): int(offset)
            for topic_id, partition, offset in map(str.split, content.decode().splitlines()[2:])
        }
    except ValueError as error:
        raise Unreadable(str(error)) from None


def is_by_name(data: bytes) -> bool:
    """Whether a checkpoint is of format 1."""
    return data.startswith(b"0\n")


def parse_offsets(data: bytes) -> dict[Partition, int]:
    """A checkpoint of format 1, which is Kafka's."""
    return {
        (topic, int(partition)): int(offset)
        for topic, partition, offset in _parse_checkpoint(data, columns=3)
    }


def encode_epochs(epochs: list[tuple[int, int]]) -> bytes:
    lines = [f"{epoch} {start_offset}" for epoch, start_offset in epochs]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def parse_epochs(data: bytes) -> list[tuple[int, int]]:
    return [(int(epoch), int(start_offset)) for epoch, start_offset in _parse_checkpoint(data, columns=2)]


def _parse_checkpoint(data: bytes, *, columns: int) -> list[list[str]]:
    try:
        version, count, *lines = data.decode().splitlines()
        rows = [line.split() for line in lines]
        is_whole = version == "0" and len(rows) == int(count) and data.endswith(b"\n")
        if not is_whole or any(len(row) != columns for row in rows):
            raise ValueError("the checkpoint is incomplete")
        for row in rows:
            int(row[-1]), int(row[-2])
    except ValueError as error:
        raise Unreadable(str(error)) from None
    return rows


def id_text(topic_id: bytes) -> str:
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def parse_id(text: str) -> bytes:
    return urlsafe_b64decode(text + "==")


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {id_text(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes | None:
    """The topic id, or None where the file is torn."""
    for line in data.decode(errors="replace").splitlines():
        name, _, value = line.partition(": ")
        if name == "topic_id" and _TOPIC_ID.fullmatch(value):
            return parse_id(value)
    return None


def encode_properties(properties: Mapping[str, object]) -> bytes:
    return "".join(f"{name}={value}\n" for name, value in sorted(properties.items())).encode()
