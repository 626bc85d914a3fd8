"""A data directory: its lock, its logs, group commit, and how it is left behind for the next start.

Theory of operation. After a clean stop the file `clean-shutdown` says what every log holds, and the next start reads
that one file. It is removed before anything else is done, so any other end leaves none: then every log is recovered
as it is opened, and the leader epoch (one for all partitions) goes up by one.

The loop's thread owns everything here. `sync` and the `run` of background work are for workers.
"""

import contextlib
import json
import logging
from collections import deque
from collections.abc import Callable, Collection, Container, Generator, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

from headrace.base.properties import parse_properties
from headrace.log.background import Pace, Work
from headrace.log.checkpoint import Checkpoint
from headrace.log.compaction import Compaction, Plan, plan
from headrace.log.config import LogConfig
from headrace.log.disk import Disk, replace_file
from headrace.log.durable import Durable
from headrace.log.errors import REFUSALS, cure_of
from headrace.log.files import holds_records, read_topic_id
from headrace.log.layout import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    DELETED_DIRECTORY,
    FORMAT_VERSION,
    INCOMPLETE,
    LOG,
    META,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    SEGMENT_FILES,
    START_OFFSETS,
    STRAY_DIRECTORY,
    Key,
    Partition,
    Unreadable,
    directory_name,
    encode_properties,
    file_name,
    is_by_name,
    parse_directory_name,
    parse_file_name,
    parse_offsets,
    parse_partition_metadata,
)
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import open_clean, recover, summary_of
from headrace.log.retention import drop_expired
from headrace.log.segment import Segment
from headrace.log.store import Store
from headrace.log.trust import UNKNOWN
from headrace.wire.batches import crc32c_of
from headrace.wire.errors import KafkaError

logger = logging.getLogger("headrace.log")
T = TypeVar("T")

CLOSING = "sync closed segments"
DROPPED_MAX = 20
"""Segments that one log loses in one go."""
DROP_COST = 25
"""What a step of background work may cost is counted in logs that are looked at (see `Pace`). Retention may have to
start a new segment, with about ten operations on the disk: that costs as much as so many logs."""
INDEX_COST = 5
BYTES_PER_COST = 1 << 20
"""How old a segment is may have to be read from its indexes: what that costs grows with the segment."""
PRODUCERS_PER_COST = 50
SEGMENTS_PER_COST = 10
"""A look at so many of a log costs as much as a look at one log."""


class UnknownFormat(Exception):
    """The data directory is of a newer version of Headrace, or its meta.properties is damaged.

    Use that version, or another directory; or put the file back from a copy.
    """


class PendingRemoval(NamedTuple):
    """Files that are out of use: a directory that was discarded, or a segment that a log has dropped."""

    due_ms: int
    directory: str = ""
    log: PartitionLog | None = None
    segment: Segment | None = None


class LogManager:
    def __init__(self, disk: Disk, *, now_ms: int, reserve_bytes: int = 0) -> None:
        self.disk = disk
        disk.lock()
        try:
            self._open(now_ms, reserve_bytes)
        except BaseException:
            disk.unlock()
            raise

    def _open(self, now_ms: int, reserve_bytes: int) -> None:
        disk = self.disk
        self.logs: dict[Partition, PartitionLog] = {}
        self._now_ms = now_ms
        self._doomed: list[PendingRemoval] = []
        self._compactions: dict[PartitionLog, Compaction] = {}
        """Those under way."""
        self._stuck: set[Key] = set()
        """Logs whose housekeeping failed last time: it is said once."""
        self._doubtful: set[Key] = set()
        """Logs whose start offset may be that of another topic: see `_migrate`."""
        names = set(disk.list())
        known_epoch, version = self._read_meta() if META in names else (0, FORMAT_VERSION)
        summaries = self._read_summaries() if CLEAN_SHUTDOWN in names else None
        is_new = META not in names and not any(parse_directory_name(name) for name in names)
        self.was_clean = is_new or summaries is not None
        self._summaries = summaries or {}
        leader_epoch = known_epoch + (not self.was_clean)
        self.store = Store(disk, leader_epoch=leader_epoch, reserve_bytes=reserve_bytes)
        self.store.reserve.make()
        if CLEAN_SHUTDOWN in names:
            disk.remove(CLEAN_SHUTDOWN)
            disk.sync_directory()
        if not self.was_clean or is_new or version < FORMAT_VERSION:
            self._write_meta(leader_epoch)
        self._load_checkpoints(names, is_new=is_new)
        for name in sorted(names):
            if name.endswith(DELETED_DIRECTORY):
                self._doomed.append(PendingRemoval(now_ms, name))

    @property
    def root(self) -> Durable:
        """The data directory: safe names of the partitions' directories."""
        return self.store.root

    @property
    def start_offsets(self) -> Durable:
        """What `PartitionLog.trim` has moved."""
        return self.store.start_offsets

    def with_room(self, attempt: Callable[[], T]) -> T:
        """Does what frees space: on a full disk the reserve is given up for it."""
        return self.store.reserve.with_room(attempt)

    def _load_checkpoints(self, names: Collection[str], *, is_new: bool) -> None:
        store = self.store
        found = {
            name: self.disk.read(name) if name in names else None
            for name in (RECOVERY_POINTS, START_OFFSETS, CLEANER_OFFSETS)
        }
        by_name = {name: data for name, data in found.items() if data is not None and is_by_name(data)}
        for checkpoint, name in (
            (store.recovery_points, RECOVERY_POINTS),
            (store.start_offsets, START_OFFSETS),
            (store.cleaner_offsets, CLEANER_OFFSETS),
        ):
            if name in by_name:
                self._migrate(checkpoint, name, by_name)
            elif not is_new:
                checkpoint.load(found[name])
        if is_new:
            store.recovery_points.replace_all({})
            store.recovery_points.sync()  # so that a missing file means a lost one
        elif store.recovery_points.is_lost:
            self._distrust_all(names)

    def _distrust_all(self, names: Iterable[str]) -> None:
        """The recovery points are lost. The next file must say so of every log, not only of those opened before it."""
        for name in names:
            partition = parse_directory_name(name)
            topic_id = read_topic_id(self.disk, name) if partition is not None else None
            if partition is not None and topic_id is not None:
                self.store.recovery_points.put((topic_id, partition[1]), UNKNOWN)

    def _migrate(self, checkpoint: Checkpoint, name: str, files: Mapping[str, bytes]) -> None:
        """From topic names to topic ids: those that the directories of these names have now.

        Unless the last stop was clean, an entry may be of a topic that was deleted and made again.
        """
        try:
            offsets = parse_offsets(files[name])
            compacted = parse_offsets(files[CLEANER_OFFSETS]) if CLEANER_OFFSETS in files else {}
        except Unreadable as error:
            logger.warning("%s in %s cannot be read: %s", name, self.disk.name, error)
            checkpoint.is_lost = True
            return
        entries: dict[Key, int] = {}
        for partition, offset in offsets.items():
            directory = directory_name(*partition)
            topic_id = read_topic_id(self.disk, directory)
            if topic_id is None:
                continue
            key = (topic_id, partition[1])
            if name == RECOVERY_POINTS:
                offset = self._as_base(directory, offset, is_compacted=partition in compacted)
            elif name == START_OFFSETS and not self.was_clean:
                self._doubtful.add(key)
            if offset:
                entries[key] = offset
        checkpoint.replace_all(entries)
        checkpoint.sync()

    def _as_base(self, directory: str, point: int, *, is_compacted: bool) -> int:
        """The last segment that starts before an offset, as far as everything is synced up to there.

        One that starts just there may have been started since, with the files of the one before not yet synced; but
        a segment that may have been compacted must not be checked.
        """
        bases = [
            parsed[0]
            for parsed in map(parse_file_name, self.disk.list(directory))
            if parsed and parsed[1] == LOG
        ]
        return max((base for base in bases if base < point or (base == point and is_compacted)), default=0)

    def _read_meta(self) -> tuple[int, int]:
        """The leader epoch of the last start, and the directory's format."""
        data = self.disk.read(META)
        if data == INCOMPLETE:
            raise UnknownFormat(
                f"{self.disk.name} is an incomplete backup; remove it, and use a complete one"
            )
        try:
            properties = parse_properties(data.decode())
            version = int(properties["headrace.format"])
            if version > FORMAT_VERSION:
                raise UnknownFormat(
                    f"The data directory {self.disk.name} has format {version}; "
                    f"this version of Headrace reads up to {FORMAT_VERSION}. "
                    "Use the newer version, or another directory."
                )
            return int(properties["leader.epoch"]), version
        except (KeyError, ValueError) as error:
            raise UnknownFormat(f"{META} in {self.disk.name} cannot be read: {error}") from None

    def _write_meta(self, leader_epoch: int) -> None:
        properties = {"version": 1, "headrace.format": FORMAT_VERSION, "leader.epoch": leader_epoch}
        replace_file(self.disk, META, encode_properties(properties))

    def _read_summaries(self) -> dict[str, Any] | None:
        crc, _, content = self.disk.read(CLEAN_SHUTDOWN).partition(b"\n")
        if crc != _crc_line(content):
            logger.warning("%s in %s cannot be read; the logs are recovered", CLEAN_SHUTDOWN, self.disk.name)
            return None
        return dict(json.loads(content)["logs"])

    def open_log(self, topic: str, partition: int, config: LogConfig, topic_id: bytes) -> PartitionLog:
        """The log of a partition, as it is on disk; nothing is made for one that was never written."""
        key = (topic, partition)
        log = self.logs.get(key)
        if log is None:
            log = PartitionLog(self.store, topic, partition, config, topic_id)
            if self._is_on_disk(log):
                log = self._load(log)
                self._follow_epoch(log.epochs.latest)
            else:
                # A power cut may have taken records that were deleted before they were ever synced. And where a
                # trusted log has lost its directory, no offset below its recovery point is used again: what is
                # written there would be trusted without having been synced.
                start_offset = self.store.start_offsets.get(log.key) or 0
                log.start_offset = log.end_offset = max(start_offset, log.trust.saved)
                if log.end_offset > start_offset:
                    logger.error(
                        "%s: offsets %d to %d are gone: the disk lost the directory, or it was removed",
                        log.name,
                        start_offset,
                        log.end_offset - 1,
                    )
            self.logs[key] = log
        return log

    def _follow_epoch(self, epoch: int) -> None:
        """Epochs never go back, not even after meta.properties was lost."""
        if epoch > self.store.leader_epoch:
            self.store.leader_epoch = epoch + 1
            self._write_meta(epoch + 1)

    def _is_on_disk(self, log: PartitionLog) -> bool:
        """A directory of the same name may be left from a deleted topic."""
        summary = self._summaries.get(log.name)
        found: bytes | None
        if summary is not None:
            found = bytes.fromhex(summary["topic_id"])
        elif self.disk.exists(log.name):
            found = read_topic_id(self.disk, log.name)
            if found is None and not holds_records(self.disk, log.name):
                return True
        else:
            return False
        if found == log.topic_id:
            return True
        # Whose it is, is synced with the first record: records that nobody owns were promised to nobody.
        self._set_aside(log.name, found or b"")
        self.store.root.note_changed()
        return False

    def _load(self, log: PartitionLog) -> PartitionLog:
        """From the summary of a clean stop if there is one and it holds, else by recovery."""
        summary = self._summaries.pop(log.name, None)
        if summary is not None:
            with contextlib.suppress(Unreadable, LookupError, TypeError, ValueError, FileNotFoundError):
                open_clean(log, summary, now_ms=self._now_ms)
                return log
            logger.warning("%s was changed since it was closed; it is recovered", log.name)
            log = log.blank()
        recovery_point = log.trust.saved if log.trust.is_known else None
        try:
            self._recover(log, recovery_point)
        except KafkaError as error:
            logger.warning("%s: %s; all of it is checked", log.name, error.message)
            log.files.close()
            log = log.blank()
            self._recover(log, None)
        return log

    def _recover(self, log: PartitionLog, recovery_point: int | None) -> None:
        recover(
            log,
            recovery_point=recovery_point,
            start_offset=self.store.start_offsets.get(log.key) or 0,
            now_ms=self._now_ms,
            may_start_over=log.key not in self._doubtful,
        )

    def sync(self, logs: Iterable[PartitionLog]) -> None:
        """Returns when all that these logs hold now would survive a power cut. From a worker; raises OSError."""
        rest: dict[Durable, None] = {}
        for log in logs:
            rest |= dict.fromkeys(log.sync())
        for thing in rest:
            thing.sync()

    def save_start_offsets(self, coming: Mapping[PartitionLog, int]) -> None:
        """Those that these logs are about to have. From a worker; KafkaError if there is no room for them."""
        for log, offset in coming.items():
            self.store.start_offsets.put(log.key, offset)
        self.store.start_offsets.sync()

    def _checkpoints(self) -> tuple[Checkpoint, ...]:
        return self.store.start_offsets, self.store.recovery_points, self.store.cleaner_offsets

    def claim(self, topic: str, partition: int, config: LogConfig, topic_id: bytes) -> None:
        """For `delete_topic`: takes a directory as this log's without reading it, because nobody else will."""
        log = PartitionLog(self.store, topic, partition, config, topic_id)
        self._summaries.pop(log.name, None)
        self.logs.setdefault((topic, partition), log)

    def delete_topic(
        self, topic: str, *, now_ms: int, partitions: int | range | None = None, sync: bool = True
    ) -> None:
        """Takes the topic's logs out of use at once; their files go after `file.delete.delay.ms`.

        Who knows the number of partitions saves the search for them, and may delete some after others. Without `sync`
        the caller has to sync `root` before it forgets the topic.
        """
        if partitions is None:
            keys = [key for key in self.logs if key[0] == topic]
        else:
            indexes = range(partitions) if isinstance(partitions, int) else partitions
            keys = [(topic, index) for index in indexes if (topic, index) in self.logs]
        logs = [self.logs.pop(key) for key in keys]
        for checkpoint in self._checkpoints():
            checkpoint.forget([log.key for log in logs])
        for log in logs:
            log.is_deleted = log.is_discarded = True
            log.files.close()
        for log in logs:
            if self.disk.exists(log.name):
                self._discard_directory(log, log.topic_id, now_ms + log.config.file_delete_delay_ms)
        self.store.root.note_changed()
        if sync:
            self.store.root.sync()

    def _discard_directory(self, log: PartitionLog, topic_id: bytes, due_ms: int) -> None:
        """By a name that no other topic's directory can have, and that fits in 255 bytes."""
        name = f"{log.topic[:180]}-{log.partition}.{topic_id.hex()}{DELETED_DIRECTORY}"
        self.disk.rename(log.name, name)
        self._doomed.append(PendingRemoval(due_ms, name))

    def set_aside_strays(
        self,
        topic_ids: Container[bytes],
        partitions: Mapping[bytes, int] | None = None,
        *,
        unexpected: Container[str] = (),
    ) -> list[str]:
        """Renames directories that nobody knows, as after lost metadata; never deletes them.

        They are of unknown topics, or, where it is said how many partitions each topic has, beyond these: a power cut
        may undo that a topic has grown, and the next partition of that number begins anew. `unexpected` are
        directories that no known topic can have: one of them that does not say whose it is would otherwise be taken
        for the directory of the next topic of that name.
        """
        strays: dict[str, bytes] = {}
        beyond: dict[str, Key] = {}
        for name in self.disk.list():
            partition = parse_directory_name(name)
            topic_id = read_topic_id(self.disk, name) if partition is not None else None
            if partition is None:
                continue
            if topic_id is None:
                if name in unexpected:
                    strays[name] = b""
            elif topic_id not in topic_ids:
                strays[name] = topic_id
            elif partitions is not None and partition[1] >= partitions.get(topic_id, 0):
                beyond[name] = (topic_id, partition[1])
        strays |= {name: key[0] for name, key in beyond.items() if self._is_forgotten(key)}
        for name, topic_id in strays.items():
            self._set_aside(name, topic_id)
        if strays:
            self.store.root.note_changed()
        if beyond:
            self.store.root.sync()
        return list(strays)

    def _is_forgotten(self, key: Key) -> bool:
        """What the checkpoints say of this partition must not be said of the next one of its number."""
        try:
            for checkpoint in self._checkpoints():
                checkpoint.drop([key])
                checkpoint.sync()
        except KafkaError as error:
            logger.error("%s", error.message)
        return not any(key in checkpoint.saved for checkpoint in self._checkpoints())

    def _set_aside(self, directory: str, topic_id: bytes) -> None:
        name = f"{directory[:190]}.{topic_id.hex()}"
        taken = sum(other.startswith(name) for other in self.disk.list())
        name += f".{taken}{STRAY_DIRECTORY}" if taken else STRAY_DIRECTORY
        self.disk.rename(directory, name)
        self._summaries.pop(directory, None)
        logger.warning("%s belongs to an unknown topic; it is renamed to %s", directory, name)

    def expire(self, now_ms: int, *, is_compacted: bool) -> Iterator[None]:
        """Retention, of the logs that are (or are not) compacted: takes old and surplus segments out of them.

        In steps of bounded cost. It ends early when a backup begins: the next round goes on. A log that is being
        compacted keeps what it has until that is done.
        """
        pace = Pace()
        for log in list(self.logs.values()):
            if self.store.is_held:
                return
            if ("compact" in log.config.cleanup_policy) is not is_compacted:
                if pace.spend(1):
                    yield
                continue
            if pace.spend(1 + _reading_cost(log)):
                yield
            while self._may_expire(log):
                dropped = self._expire(log, now_ms)
                if not dropped:
                    break
                if pace.spend(DROP_COST + len(dropped) + _reading_cost(log)):
                    yield

    def _may_expire(self, log: PartitionLog) -> bool:
        is_free = not log.is_deleted and log not in self._compactions
        return bool(log.segments) and is_free and not self.store.is_held

    def _expire(self, log: PartitionLog, now_ms: int) -> list[Segment]:
        dropped = self._attempt(
            log,
            "old segments stay",
            lambda: self.store.reserve.with_room(
                partial(drop_expired, log, now_ms=now_ms, at_most=DROPPED_MAX)
            ),
        )
        due_ms = now_ms + log.config.file_delete_delay_ms
        self._doomed += [PendingRemoval(due_ms, log=log, segment=segment) for segment in dropped or ()]
        return dropped or []

    def forget_idle_producers(self, now_ms: int) -> Iterator[None]:
        """In steps of bounded cost."""
        pace = Pace()
        for log in list(self.logs.values()):
            producers = log.producer_states
            if pace.spend(1 + len(producers.entries) // PRODUCERS_PER_COST):
                yield
            producers.forget_idle(now_ms=now_ms, expiration_ms=log.config.producer_expiration_ms)

    def closing_and_compaction(self, now_ms: int) -> Generator[None, None, list[Work]]:
        """The sync of segments that have closed, and the next compaction; looked for in steps of bounded cost."""
        pace = Pace()
        rolled: list[PartitionLog] = []
        due: list[tuple[int, PartitionLog]] = []
        for log in list(self.logs.values()):
            if pace.spend(1):
                yield
            if log.is_deleted or len(log.segments) < 2:
                continue
            if log.has_rolled:
                rolled.append(log)
            if "compact" in log.config.cleanup_policy and not self._compactions:
                chosen = self._plan(log, now_ms)
                if chosen is not None and chosen.is_due:
                    due.append((chosen.dirty_bytes, log))
                if pace.spend(len(log.segments) // SEGMENTS_PER_COST):
                    yield
        works = [Work(CLOSING, partial(self.sync, rolled), is_short=True)] if rolled else []
        compaction = self._first_compaction(due, now_ms)
        return [*works, compaction] if compaction is not None else works

    def _first_compaction(self, due: list[tuple[int, PartitionLog]], now_ms: int) -> Work | None:
        """One at a time, for the log with most to gain."""
        if not due or self._compactions:
            return None
        _, log = max(due, key=lambda candidate: candidate[0])
        chosen = self._plan(log, now_ms)  # now: segments may have gone since it was found due
        return self._compact(log, chosen, now_ms) if chosen is not None and chosen.is_due else None

    def removal(self, now_ms: int) -> Work | None:
        """Of files whose time has come; what dropped segments are replaced with is saved before."""
        due = [doomed for doomed in self._doomed if doomed.due_ms <= now_ms]
        if not due and self.store.start_offsets.is_saved and self.store.cleaner_offsets.is_saved:
            return None
        self._doomed = [doomed for doomed in self._doomed if doomed.due_ms > now_ms]
        return self._removal(due)

    def refill(self) -> Work | None:
        """Of the reserve, where it was given up."""
        if not self.store.reserve.is_out:
            return None
        return Work("make the reserve again", self.store.reserve.make, is_short=True)

    def background_work(self, now_ms: int) -> list[Work]:
        """All that is due, looked for in one go: for tests and tools."""
        for is_compacted in (False, True):
            deque(self.expire(now_ms, is_compacted=is_compacted), 0)
        found = _whole(self.closing_and_compaction(now_ms))
        works = [self.removal(now_ms), self.refill(), *found]
        return sorted([work for work in works if work is not None], key=lambda work: work.what != CLOSING)

    def run_background_work(self, now_ms: int) -> None:
        """All of it at once, on this thread: for tests and tools."""
        for work in self.background_work(now_ms):
            work.run()
            work.finish()

    def _attempt(self, log: PartitionLog, what: str, work: Callable[[], T]) -> T | None:
        """One log that cannot be read or written must not keep the others from what is due."""
        try:
            result = work()
        except (OSError, KafkaError) as error:
            if log.key not in self._stuck:
                self._stuck.add(log.key)
                logger.error("%s: %s for now: %s", log.name, what, error)
            return None
        self._stuck.discard(log.key)
        return result

    def _removal(self, due: list[PendingRemoval]) -> Work:
        """A full disk has no room for the offsets either: then the files stay, and it is tried again."""
        left: list[PendingRemoval] = []

        def run() -> None:
            try:
                self._save_offsets()
            except KafkaError as error:
                cure = cure_of(error.__cause__)
                logger.error("old files stay for now: %s %s.", error.message, cure)
                left.extend(due)
                return
            left.extend(self._remove(due))

        def finish() -> None:
            self._doomed += left

        return Work("remove old files", run, finish, is_short=True)

    def _save_offsets(self) -> None:
        self.store.start_offsets.sync()
        self.store.cleaner_offsets.sync()

    def _remove(self, doomed: Iterable[PendingRemoval]) -> list[PendingRemoval]:
        """Once the offsets are saved. What replaces the files must be safe, too, before they go. What is left to do."""
        left = []
        dropped: dict[PartitionLog, list[PendingRemoval]] = {}
        for one in doomed:
            if one.directory:
                try:
                    self.disk.remove_directory(one.directory)
                except OSError as error:
                    if error.errno not in REFUSALS:
                        raise
                    left.append(one)
            elif one.log is not None and not one.log.is_deleted:  # else its directory goes as a whole
                dropped.setdefault(one.log, []).append(one)
        self.sync(dropped)
        for log, ones in dropped.items():
            try:
                self._remove_segments(log, ones)
            except OSError as error:
                if error.errno not in REFUSALS:
                    raise
                left += ones
        return left

    def _remove_segments(self, log: PartitionLog, doomed: Iterable[PendingRemoval]) -> None:
        """From the log's own directory: one of its name may by now be another topic's."""
        try:
            folder = self.disk.open_folder(log.name)
        except FileNotFoundError:
            return
        try:
            if parse_partition_metadata(folder.read(PARTITION_METADATA)) != log.topic_id:
                return
            for one in doomed:
                assert one.segment is not None
                for suffix in SEGMENT_FILES:
                    folder.remove(file_name(one.segment.base_offset, suffix))
        except FileNotFoundError:
            return  # it does not say whose it is: then it is not this log's
        finally:
            folder.close()

    def compaction_of(self, log: PartitionLog, now_ms: int) -> Work | None:
        """Of what is closed and synced, whatever its share of the log; None if that is nothing, or under way."""
        if log in self._compactions or log.damage is not None or log.is_deleted:
            return None
        chosen = self._plan(log, now_ms)
        return self._compact(log, chosen, now_ms) if chosen is not None and chosen.dirty_bytes else None

    def clean_and_dirty_bytes(self, log: PartitionLog) -> tuple[int, int]:
        """How much of a log is compacted, and how much came after that."""
        cleaned_to = self._cleaned_to(log)
        clean = sum(segment.size for segment in log.segments if log.end_after(segment) <= cleaned_to)
        return clean, log.size - clean

    def _cleaned_to(self, log: PartitionLog) -> int:
        return self.store.cleaner_offsets.get(log.key) or 0

    def _plan(self, log: PartitionLog, now_ms: int) -> Plan | None:
        return self._attempt(
            log, "it is not compacted", partial(plan, log, cleaned_to=self._cleaned_to(log), now_ms=now_ms)
        )

    def _compact(self, log: PartitionLog, chosen: Plan, now_ms: int) -> Work | None:
        compaction = self._attempt(
            log, "it is not compacted", partial(Compaction, log, chosen, now_ms=now_ms)
        )
        if compaction is None:
            return None
        self._compactions[log] = compaction
        return Work(
            f"compact {log.name}",
            compaction.run,
            partial(self._finish_compaction, compaction),
            partial(self._finishing, compaction),
        )

    def _finish_compaction(self, compaction: Compaction) -> None:
        for _ in self._finishing(compaction):
            pass

    def _finishing(self, compaction: Compaction) -> Iterator[None]:
        log = compaction.log
        try:
            yield from compaction.finishing()
        except Exception:
            self._compactions.pop(log, None)
            raise
        if self._compactions.pop(log, None) is not None and not log.is_deleted:
            self.store.cleaner_offsets.put(log.key, compaction.cleaned_to)

    def cancel_compaction(self) -> None:
        """The broker is stopping: compactions under way end soon, and `close` leaves nothing of them behind."""
        for compaction in self._compactions.values():
            compaction.cancel()

    def abandon_compactions(self) -> None:
        """After the worker threads have ended: nothing is left of what they had not finished."""
        self.cancel_compaction()
        for compaction in list(self._compactions.values()):
            self._finish_compaction(compaction)

    def close(self, *, clean: bool = True) -> None:
        """Leaves the directory to the next start. OSError: nothing synced is lost, but the end is not clean."""
        try:
            if clean:
                self._leave_cleanly()
        except KafkaError as error:  # a checkpoint that a full disk has refused
            raise error.__cause__ or OSError(error.message) from error
        finally:
            for log in self.logs.values():
                log.files.close()
            self.disk.unlock()

    @staticmethod
    def _is_saved(log: PartitionLog) -> bool:
        """False for a log that the next start must recover."""
        if log.damage is not None:
            return False
        try:
            log.files.leave_indexes()
        except (KafkaError, FileNotFoundError) as error:
            logger.warning("%s cannot be closed cleanly: %s", log.name, error)
            return False
        return True

    def prepare_to_close(self) -> list[PartitionLog]:
        """What `close` will have to sync. Whoever has threads syncs these logs before, many at a time."""
        for log in self.logs.values():
            if log.segments:
                self._is_saved(log)
        return [log for log in self.logs.values() if not log.is_synced]

    def _leave_cleanly(self) -> None:
        self.abandon_compactions()
        logs = [log for log in self.logs.values() if log.segments and self._is_saved(log)]
        self.sync([log for log in self.logs.values() if not log.is_synced])
        self.store.root.sync()
        for log in logs:
            log.files.forget_snapshots(log.trust.saved)
        self.store.recovery_points.sync()
        self._save_offsets()
        self._remove(self._doomed)
        summaries = self._summaries | {log.name: summary_of(log) for log in logs}
        content = json.dumps({"logs": summaries}, separators=(",", ":")).encode()
        data = _crc_line(content) + b"\n" + content
        self.store.reserve.with_room(partial(replace_file, self.disk, CLEAN_SHUTDOWN, data))


def _reading_cost(log: PartitionLog) -> int:
    """Of learning how old the log's first segment is."""
    if not log.segments or log.segments[0].is_dated:
        return 0
    return INDEX_COST + log.segments[0].size // BYTES_PER_COST


def _whole(steps: Generator[None, None, T]) -> T:
    """What the generator returns at its end."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def _crc_line(content: bytes) -> bytes:
    return f"{crc32c_of(content):08x}".encode()
