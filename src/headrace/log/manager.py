"""A data directory: its lock, its logs, group commit, and how it is left behind for the next start.

Theory of operation. After a clean stop the file `clean-shutdown` says what every log holds, and the next start reads
that one file. It is removed before anything else is done, so any other end leaves none: then every log is recovered
as it is opened, and the leader epoch (one for all partitions) goes up by one.

The loop's thread owns everything here. `sync` and the `run` of background work are for workers.
"""

import contextlib
import errno
import json
import logging
import threading
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

from headrace.log.background import Work
from headrace.log.compaction import Compaction, Plan, plan
from headrace.log.config import LogConfig
from headrace.log.disk import Disk, replace_file
from headrace.log.files import read_topic_id
from headrace.log.layout import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    DELETED_DIRECTORY,
    FORMAT_VERSION,
    META,
    RECOVERY_POINTS,
    START_OFFSETS,
    STRAY_DIRECTORY,
    Partition,
    Unreadable,
    encode_offsets,
    encode_properties,
    parse_directory_name,
    parse_offsets,
    parse_properties,
)
from headrace.log.partition_log import PartitionLog
from headrace.log.recovery import open_clean, recover, summary_of
from headrace.log.retention import drop_expired
from headrace.log.store import Store
from headrace.wire.batches import crc32c_of
from headrace.wire.errors import KafkaError

logger = logging.getLogger("headrace.log")

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


class UnknownFormat(Exception):
    """The data directory is of a newer version of Headrace, or its meta.properties is damaged.

    Use that version, or another directory; or put the file back from a copy.
    """


class Doomed(NamedTuple):
    """Files that are out of use."""

    due_ms: int
    remove: Callable[[], None]
    log: PartitionLog | None = None
    """Must be synced first: what it holds instead of these files."""


class LogManager:
    def __init__(self, disk: Disk, *, now_ms: int) -> None:
        self.disk = disk
        disk.lock()
        try:
            self._open(now_ms)
        except BaseException:
            disk.unlock()
            raise

    def _open(self, now_ms: int) -> None:
        disk = self.disk
        self.logs: dict[Partition, PartitionLog] = {}
        self._now_ms = now_ms
        self._sync_guard = threading.Lock()
        self._checkpoint_guard = threading.Lock()
        self._doomed: list[Doomed] = []
        self._are_offsets_stale = False
        self._compactions: dict[PartitionLog, Compaction] = {}
        """Those under way."""
        names = set(disk.list())
        known_epoch = self._read_meta() if META in names else 0
        summaries = self._read_summaries() if CLEAN_SHUTDOWN in names else None
        is_new = META not in names and not any(parse_directory_name(name) for name in names)
        self.was_clean = is_new or summaries is not None
        self._summaries = summaries or {}
        self._start_offsets = self._read_offsets(START_OFFSETS) or {}
        self._cleaner_offsets = self._read_offsets(CLEANER_OFFSETS) or {}
        self._recovery_points = {} if is_new else self._read_offsets(RECOVERY_POINTS)
        if CLEAN_SHUTDOWN in names:
            disk.remove(CLEAN_SHUTDOWN)
            disk.sync_directory()
        leader_epoch = known_epoch + (not self.was_clean)
        if is_new:
            replace_file(disk, RECOVERY_POINTS, encode_offsets({}))
        if not self.was_clean or is_new:
            self._write_meta(leader_epoch)
        self.store = Store(disk, leader_epoch=leader_epoch, save_start_offsets=self.save_start_offsets)
        for name in sorted(names):
            if name.endswith(DELETED_DIRECTORY):
                self._doomed.append(Doomed(now_ms, partial(disk.remove_directory, name)))

    def _read_meta(self) -> int:
        """The leader epoch of the last start."""
        try:
            properties = parse_properties(self.disk.read(META))
            version = int(properties["headrace.format"])
            if version > FORMAT_VERSION:
                raise UnknownFormat(
                    f"The data directory {self.disk.name} has format {version}; "
                    f"this version of Headrace reads up to {FORMAT_VERSION}. "
                    "Use the newer version, or another directory."
                )
            return int(properties["leader.epoch"])
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

    def _read_offsets(self, name: str) -> dict[Partition, int] | None:
        try:
            return parse_offsets(self.disk.read(name))
        except FileNotFoundError:
            return None
        except Unreadable as error:
            logger.warning("%s in %s cannot be read: %s", name, self.disk.name, error)
            return None

    def open_log(self, topic: str, partition: int, config: LogConfig, topic_id: bytes) -> PartitionLog:
        """The log of a partition, as it is on disk; nothing is made for one that was never written."""
        key = (topic, partition)
        log = self.logs.get(key)
        if log is None:
            log = PartitionLog(self.store, topic, partition, config, topic_id)
            if self._is_on_disk(log):
                log = self._load(log)
                self._follow_epoch(log.epochs.latest)
            self.logs[key] = log
        return log

    def _follow_epoch(self, epoch: int) -> None:
        """Epochs never go back, not even after meta.properties was lost."""
        if epoch > self.store.leader_epoch:
            self.store.leader_epoch = epoch + 1
            self._write_meta(epoch + 1)

    def _is_on_disk(self, log: PartitionLog) -> bool:
        """A directory of the same name may be left from a deleted topic."""
        summary = self._summaries.get(log.directory)
        if summary is not None:
            found = bytes.fromhex(summary["topic_id"])
        elif self.disk.exists(log.directory):
            found = read_topic_id(self.disk, log.directory) or log.topic_id
        else:
            return False
        if found == log.topic_id:
            return True
        self._set_aside(log.directory, found)
        self.disk.sync_directory()
        return False

    def _load(self, log: PartitionLog) -> PartitionLog:
        """From the summary of a clean stop if there is one and it holds, else by recovery."""
        summary = self._summaries.pop(log.directory, None)
        if summary is not None:
            with contextlib.suppress(Unreadable, LookupError, TypeError, ValueError, FileNotFoundError):
                open_clean(log, summary, now_ms=self._now_ms)
                return log
            logger.warning("%s is not as it was left; it is recovered", log.name)
            log = log.blank()
        key = (log.topic, log.partition)
        recovery_point = None if self._recovery_points is None else self._recovery_points.get(key, 0)
        start_offset = self._start_offsets.get(key, 0)
        try:
            recover(log, recovery_point=recovery_point, start_offset=start_offset, now_ms=self._now_ms)
        except KafkaError as error:
            logger.warning("%s: %s; all of it is checked", log.name, error.message)
            log.close()
            log = log.blank()
            recover(log, recovery_point=None, start_offset=start_offset, now_ms=self._now_ms)
        return log

    def sync(self, logs: Iterable[PartitionLog]) -> None:
        """Returns when all that these logs hold now would survive a power cut. From a worker; raises OSError."""
        with self._sync_guard:
            has_rolled = False
            for log in logs:
                log.sync()
                has_rolled |= log.has_rolled
            with self.store.guard:
                is_root_unsynced, self.store.unsynced_root = self.store.unsynced_root, False
            if is_root_unsynced:
                self.disk.sync_directory()
            if has_rolled:
                self.save_recovery_points()

    def save_recovery_points(self) -> None:
        """Recovery trusts what is below them. Nothing in a new segment is durable before they cover the old one."""
        with self._checkpoint_guard:
            logs = [(key, log) for key, log in list(self.logs.items()) if log.segments]
            points = (self._recovery_points or {}) | {key: log.recovery_point for key, log in logs}
            replace_file(self.disk, RECOVERY_POINTS, encode_offsets(points))
            self._recovery_points = points
            for key, log in logs:
                log.saved_recovery_point = points[key]

    def save_start_offsets(self, changed: Mapping[Partition, int] | None = None) -> None:
        """Those that the logs have, and `changed` ones that they are about to have."""
        with self._checkpoint_guard:
            current = {key: log.start_offset for key, log in list(self.logs.items()) if log.start_offset}
            offsets = self._start_offsets | current | dict(changed or {})
            replace_file(self.disk, START_OFFSETS, encode_offsets(offsets))
            self._start_offsets = offsets

    def _save_cleaner_offsets(self) -> None:
        with self._checkpoint_guard:
            replace_file(self.disk, CLEANER_OFFSETS, encode_offsets(self._cleaner_offsets))

    def delete_topic(
        self, topic: str, *, now_ms: int, partitions: int | None = None, sync: bool = True
    ) -> None:
        """Takes the topic's logs out of use at once; their files go after `file.delete.delay.ms`.

        Who knows the number of partitions saves the search for them. Without `sync` the caller has to sync the
        directory before it forgets the topic.
        """
        if partitions is None:
            keys = [key for key in self.logs if key[0] == topic]
        else:
            keys = [(topic, index) for index in range(partitions) if (topic, index) in self.logs]
        for key in keys:
            log = self.logs.pop(key)
            log.is_deleted = True
            log.close()
            with self._checkpoint_guard:
                for offsets in (self._start_offsets, self._cleaner_offsets, self._recovery_points or {}):
                    offsets.pop(key, None)
            if self.disk.exists(log.directory):
                self._discard_directory(log, log.topic_id, now_ms + log.config.file_delete_delay_ms)
        if sync:
            self.disk.sync_directory()

    def _discard_directory(self, log: PartitionLog, topic_id: bytes, due_ms: int) -> None:
        """By a name that no other topic's directory can have, and that fits in 255 bytes."""
        name = f"{log.topic[:180]}-{log.partition}.{topic_id.hex()}{DELETED_DIRECTORY}"
        self.disk.rename(log.directory, name)
        self._doomed.append(Doomed(due_ms, partial(self.disk.remove_directory, name)))

    def set_aside_strays(self, topic_ids: Container[bytes]) -> list[str]:
        """Renames directories of topics that nobody knows, as after lost metadata; never deletes them."""
        strays = []
        for name in self.disk.list():
            if parse_directory_name(name) is None:
                continue
            topic_id = read_topic_id(self.disk, name)
            if topic_id is not None and topic_id not in topic_ids:
                self._set_aside(name, topic_id)
                strays.append(name)
        if strays:
            self.disk.sync_directory()
        return strays

    def _set_aside(self, directory: str, topic_id: bytes) -> None:
        name = f"{directory[:190]}.{topic_id.hex()}"
        taken = sum(other.startswith(name) for other in self.disk.list())
        name += f".{taken}{STRAY_DIRECTORY}" if taken else STRAY_DIRECTORY
        self.disk.rename(directory, name)
        self._summaries.pop(directory, None)
        logger.warning("%s holds records of a topic that is not known; it is now %s", directory, name)

    def background_work(self, now_ms: int) -> list[Work]:
        """Retention, removal of old files, compaction: what is due now. To be called every few seconds."""
        rolled = []
        for log in self.logs.values():
            if log.segments:
                self._expire(log, now_ms)
                if log.has_rolled:
                    rolled.append(log)
        works = []
        if rolled:
            works.append(Work("sync closed segments", partial(self.sync, rolled)))
        due = [doomed for doomed in self._doomed if doomed.due_ms <= now_ms]
        if due or self._are_offsets_stale:
            self._doomed = [doomed for doomed in self._doomed if doomed.due_ms > now_ms]
            self._are_offsets_stale = False
            works.append(self._removal(due))
        compaction = self._next_compaction(now_ms)
        if compaction is not None:
            works.append(compaction)
        return works

    def run_background_work(self, now_ms: int) -> None:
        """All of it at once, on this thread: for tests and tools."""
        for work in self.background_work(now_ms):
            work.run()
            work.finish()

    def _expire(self, log: PartitionLog, now_ms: int) -> None:
        log.producer_states.forget_idle(now_ms=now_ms, expiration_ms=log.config.producer_expiration_ms)
        try:
            dropped = drop_expired(log, now_ms=now_ms)
        except OSError as error:
            logger.warning("%s: old segments stay for now: %s", log.name, error)
            return
        if dropped:
            self._are_offsets_stale = True
        due_ms = now_ms + log.config.file_delete_delay_ms
        self._doomed += [Doomed(due_ms, segment.remove_files, log) for segment in dropped]

    def _removal(self, due: list[Doomed]) -> Work:
        """A full disk has no room for the offsets either: then the files stay, and it is tried again."""
        left: list[Doomed] = []

        def run() -> None:
            try:
                self._save_offsets()
            except OSError as error:
                if error.errno not in FULL:
                    raise
                logger.error("old files stay for now: %s. Free space on the disk.", error)
                left.extend(due)
                return
            self._remove(due)

        def finish() -> None:
            if left:
                self._doomed += left
                self._are_offsets_stale = True

        return Work("remove old files", run, finish)

    def _save_offsets(self) -> None:
        self.save_start_offsets()
        self._save_cleaner_offsets()

    def _remove(self, doomed: Iterable[Doomed]) -> None:
        """Once the offsets are saved. What replaces the files must be safe, too, before they go."""
        doomed = list(doomed)
        self.sync({id(one.log): one.log for one in doomed if one.log and not one.log.is_deleted}.values())
        for one in doomed:
            one.remove()

    def _next_compaction(self, now_ms: int) -> Work | None:
        """One at a time, for the log with most to gain."""
        if self._compactions:
            return None
        due = []
        for log in self.logs.values():
            if "compact" in log.config.cleanup_policy and len(log.segments) > 1:
                chosen = plan(log, cleaned_to=self._cleaned_to(log), now_ms=now_ms)
                if chosen.is_due:
                    due.append((chosen.dirty_bytes, log, chosen))
        if not due:
            return None
        _, log, chosen = max(due, key=lambda candidate: candidate[0])
        return self._compact(log, chosen, now_ms)

    def compaction_of(self, log: PartitionLog, now_ms: int) -> Work | None:
        """Of what is closed and synced, whatever its share of the log; None if that is nothing, or under way."""
        if log in self._compactions or log.damage is not None or log.is_deleted:
            return None
        chosen = plan(log, cleaned_to=self._cleaned_to(log), now_ms=now_ms)
        return self._compact(log, chosen, now_ms) if chosen.dirty_bytes else None

    def clean_and_dirty_bytes(self, log: PartitionLog) -> tuple[int, int]:
        """How much of a log is compacted, and how much came after that."""
        cleaned_to = self._cleaned_to(log)
        clean = sum(segment.size for segment in log.segments if log.end_after(segment) <= cleaned_to)
        return clean, log.size - clean

    def _cleaned_to(self, log: PartitionLog) -> int:
        return self._cleaner_offsets.get((log.topic, log.partition), 0)

    def _compact(self, log: PartitionLog, chosen: Plan, now_ms: int) -> Work:
        compaction = self._compactions[log] = Compaction(log, chosen, now_ms=now_ms)
        return Work(f"compact {log.name}", compaction.run, partial(self._finish_compaction, compaction))

    def _finish_compaction(self, compaction: Compaction) -> None:
        log = compaction.log
        self._compactions.pop(log, None)
        compaction.finish()
        if not log.is_deleted:
            self._cleaner_offsets[log.topic, log.partition] = compaction.cleaned_to
            self._are_offsets_stale = True

    def cancel_compaction(self) -> None:
        """The broker is stopping: compactions under way end soon and leave nothing behind."""
        for compaction in self._compactions.values():
            compaction.cancel()
        self._compactions.clear()

    def close(self, *, clean: bool = True) -> None:
        """Leaves the directory to the next start. OSError: nothing synced is lost, but the end is not clean."""
        try:
            if clean:
                self._leave_cleanly()
        finally:
            for log in self.logs.values():
                log.close()
            self.disk.unlock()

    @staticmethod
    def _is_saved(log: PartitionLog) -> bool:
        """False for a log that the next start must recover."""
        if log.damage is not None:
            return False
        try:
            log.save_for_restart()
        except (KafkaError, FileNotFoundError) as error:
            logger.warning("%s cannot be closed cleanly: %s", log.name, error)
            return False
        return True

    def _leave_cleanly(self) -> None:
        self.cancel_compaction()
        logs = [log for log in self.logs.values() if log.segments and self._is_saved(log)]
        self.sync(self.logs.values())
        for log in logs:
            log.forget_old_snapshots()
        self.save_recovery_points()
        self._save_offsets()
        self._remove(self._doomed)
        summaries = self._summaries | {log.directory: summary_of(log) for log in logs}
        content = json.dumps({"logs": summaries}, separators=(",", ":")).encode()
        replace_file(self.disk, CLEAN_SHUTDOWN, _crc_line(content) + b"\n" + content)


def _crc_line(content: bytes) -> bytes:
    return f"{crc32c_of(content):08x}".encode()
