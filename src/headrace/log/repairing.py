"""Repairs a data directory: takes out what `checking` has found, keeps it, and leaves the rest to the next start.

Theory of operation. Of a segment the damaged bytes are taken out, and an empty batch with the offsets that were in them
takes their place: no offset is ever used twice, none is missing, and every good batch stays. Everything else that is
damaged can be made again from the batches. So it is set aside, and with it the clean-shutdown file and the recovery
points: a start without them checks every batch and makes indexes, snapshots and epochs anew. Each file goes to the
quarantine as it was before it is changed.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.log.checking import Cure, Cut, Finding, Report
from headrace.log.disk import OsDisk, parent_of, replace_file, sync_file, write_file
from headrace.log.layout import (
    CLEAN_SHUTDOWN,
    INDEXES,
    LOG,
    RECOVERY_POINTS,
    encode_partition_metadata,
)
from headrace.wire.batches import HEADER_SIZE, MAGIC, NO_PRODUCER_ID, NO_SEQUENCE, BatchHeader, read_header
from headrace.wire.records import empty_batch

QUARANTINE = "quarantine"


@dataclass(frozen=True, slots=True)
class Loss:
    """What a repair takes out of a partition."""

    partition: str
    first_offset: int
    last_offset: int
    bytes: int
    path: str

    @property
    def offsets(self) -> int:
        return self.last_offset - self.first_offset + 1


def losses(report: Report) -> list[Loss]:
    return [
        Loss(
            finding.partition or "",
            finding.cut.first_offset,
            finding.cut.next_offset - 1,
            finding.cut.end - finding.cut.start,
            finding.path,
        )
        for finding in report.findings
        if finding.cut is not None and finding.cut.next_offset > finding.cut.first_offset
    ]


def repair(disk: OsDisk, report: Report, *, quarantine: str) -> bool:
    """Does what the findings need; whether there was anything to do.

    Without the metadata nobody knows whose records these are: then nothing is touched. The disk must be locked by the
    caller; safe to repeat after a crash.
    """
    damages = [finding for finding in report.damages if finding.cure is not Cure.BACKUP]
    if not damages or not report.has_metadata:
        return False
    # First of all: whatever happens from here on, the next start checks everything.
    for name in (CLEAN_SHUTDOWN, RECOVERY_POINTS):
        _set_aside(disk, name, quarantine)
    by_path: dict[str, list[Finding]] = defaultdict(list)
    for finding in damages:
        by_path[finding.path].append(finding)
    for path, findings in by_path.items():
        cuts = [finding.cut for finding in findings if finding.cut is not None]
        if cuts:
            _cut(disk, path, cuts, quarantine)
        else:
            _set_aside(disk, path, quarantine)
        if findings[0].cure is Cure.NAME_OWNER:
            disk.make_directory(parent_of(path))
            replace_file(disk, path, encode_partition_metadata(report.topic_ids[findings[0].partition or ""]))
    for directory in sorted({parent_of(path) for path in by_path}):
        disk.sync_directory(directory)
    disk.sync_directory()
    return True


def _cut(disk: OsDisk, path: str, cuts: Sequence[Cut], quarantine: str) -> None:
    data = b""
    if disk.exists(path):
        data = disk.read(path)
        _keep(disk, path, data, quarantine)
    kept = bytearray()
    at, epoch = 0, _first_epoch(data)
    for cut in sorted(cuts):
        kept += data[at : cut.start]
        epoch = _last_epoch(data, at, cut.start, epoch)
        if cut.next_offset > cut.first_offset:
            kept += _filler(cut, epoch)
        at = cut.end
    kept += data[at:]
    for suffix in INDEXES:
        _set_aside(disk, path.removesuffix(LOG) + suffix, quarantine)
    replace_file(disk, path, kept)


def _filler(cut: Cut, epoch: int) -> bytes:
    return empty_batch(
        BatchHeader(
            base_offset=cut.first_offset,
            length=0,
            leader_epoch=epoch,
            magic=MAGIC,
            crc=0,
            attributes=0,
            last_offset_delta=cut.next_offset - cut.first_offset - 1,
            base_timestamp=-1,
            max_timestamp=-1,
            producer_id=NO_PRODUCER_ID,
            producer_epoch=-1,
            base_sequence=NO_SEQUENCE,
            record_count=0,
        )
    )


def _first_epoch(data: bytes) -> int:
    """For a cut at the very beginning, where the header may be damaged: then 0, which is before all others."""
    if len(data) < HEADER_SIZE:
        return 0
    epoch = read_header(data).leader_epoch
    return epoch if 0 <= epoch < 2**20 else 0


def _last_epoch(data: bytes, start: int, end: int, before: int) -> int:
    """The leader epoch of the last good batch before a cut."""
    while end - start >= HEADER_SIZE:
        header = read_header(data, start)
        before = header.leader_epoch
        start += header.size
    return before


def _set_aside(disk: OsDisk, path: str, quarantine: str) -> None:
    if not disk.exists(path):
        return
    if (Path(disk.name) / path).is_dir():
        target = f"{quarantine}/{path}"
        disk.make_directory(parent_of(target))
        disk.rename(path, target)
        disk.sync_directory(parent_of(target))
    else:
        _keep(disk, path, disk.read(path), quarantine)
        disk.remove(path)
    disk.sync_directory(parent_of(path))


def _keep(disk: OsDisk, path: str, data: bytes, quarantine: str) -> None:
    """A copy as it was, safe before anything is changed."""
    target = f"{quarantine}/{path}"
    disk.make_directory(parent_of(target))
    if not disk.exists(target):  # of an earlier try: that one is the original
        write_file(disk, target, data)
        sync_file(disk, target)
        disk.sync_directory(parent_of(target))
        disk.sync_directory(quarantine)
        disk.sync_directory()
