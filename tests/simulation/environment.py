"""What of this Python process is replaced before a broker is simulated in it. For good: simulations have processes
of their own.

Ids and random numbers come from the seed; locks and thread pools are simulated ones; journals have small
segments, so that they roll, are compacted and pruned within a short life; buffers and windows of share-partitions are
small, so that they are full at times; appends are shown to the models.
"""

import dataclasses
import logging
import random
import secrets
import threading
import traceback
import uuid
from collections.abc import Callable
from typing import Any

import headrace.broker.connection as connection_module
import headrace.broker.handlers.share_fetch as share_fetch_module
import headrace.broker.server as server_module
import headrace.broker.share.loaded as share_loaded_module
import headrace.broker.topics as topics_module
import headrace.log.metadata as metadata_module
from headrace.log.partition_log import Appended, PartitionLog
from headrace.share.limits import Limits
from headrace.wire.records import load_reader
from tests.simulation.disk import SimulatedDisk
from tests.simulation.metadata import MetadataDisk, SimulatedSqlite, SimulatedWriteAheadLog
from tests.simulation.tasks import SimulatedLock, SimulatedPool
from tests.simulation.violation import Violation

WINDOW_DIVISOR = 10
"""Of share.partition.max.record.locks, whose least value is more than a short life delivers."""
_ids = random.Random(0)
_watchers: "list[AppendWatcher]" = []
_is_installed = False
journal_segment_bytes = 1 << 20
"""Of the internal topics that are made from now on."""


class AppendWatcher:
    """Is told of what enters the logs, before and after."""

    def appending(self, log: PartitionLog, data: bytes) -> None: ...
    def appended(self, log: PartitionLog, data: bytes, appended: Appended) -> None: ...
    def refused(self, log: PartitionLog, data: bytes) -> None: ...
    def marking(self, log: PartitionLog, producer_id: int, commit: bool) -> None: ...
    def marked(self, log: PartitionLog, producer_id: int, commit: bool, appended: Appended) -> None: ...


class _Errors(logging.Handler):
    """An error with a traceback in the broker's log is one that nobody has thought of."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            text = "".join(traceback.format_exception(record.exc_info[1]))
            raise Violation("internal error", f"{record.getMessage()}: {text}")


class _Threading:
    """Stands for the module `threading` in the broker's modules."""

    Lock = SimulatedLock

    def __getattr__(self, name: str) -> Any:
        return getattr(threading, name)


def install() -> None:
    """Once in a process, after the broker's modules have been imported."""
    global _is_installed
    if _is_installed:
        return
    _is_installed = True
    import sys

    for name in ("headrace", "headrace.log"):
        logging.getLogger(name).setLevel(logging.ERROR)
    logging.getLogger("headrace").propagate = False
    logging.getLogger("headrace").addHandler(_Errors())
    load_reader()
    shim = _Threading()
    for name, module in list(sys.modules.items()):
        if name.startswith("headrace.") and getattr(module, "threading", None) is threading:
            module.threading = shim  # type: ignore[attr-defined]
    server_module.ThreadPoolExecutor = SimulatedPool  # type: ignore[assignment,misc]
    uuid.uuid4 = lambda: uuid.UUID(int=_ids.getrandbits(128), version=4)
    secrets.token_urlsafe = lambda nbytes=None: f"{_ids.getrandbits(131):022x}"[:22]
    share_fetch_module.perf_counter_ns = lambda: 0
    share_loaded_module.Limits = _small_limits  # type: ignore[assignment,misc]
    connection_module.WAITING_BYTES_MAX = 4 * 1024
    connection_module.OUTGOING_BYTES_MAX = 2 * 1024
    _shrink_journals()
    _watch_appends()


def begin(seed: int, disk: SimulatedDisk, metadata_disk: MetadataDisk, watcher: AppendWatcher) -> None:
    """A new life: everything random follows from its seed."""
    _ids.seed(seed)
    random.seed(seed)
    metadata_module.sqlite3 = SimulatedSqlite(disk, metadata_disk)  # type: ignore[assignment]
    metadata_module.WriteAheadLog = lambda _: SimulatedWriteAheadLog(disk, metadata_disk)  # type: ignore[assignment,misc]
    _watchers[:] = [watcher]


def _small_limits(**given: Any) -> Limits:
    limits = Limits(**given)
    return dataclasses.replace(limits, window_max=limits.window_max // WINDOW_DIVISOR)


def _shrink_journals() -> None:
    original = topics_module.internal_shape

    def small(name: str, settings: Any) -> tuple[int, dict[str, str]]:
        partitions, configs = original(name, settings)
        return partitions, configs | {"internal.segment.bytes": str(journal_segment_bytes)}

    topics_module.internal_shape = small


def _watch_appends() -> None:
    append: Callable[..., Appended] = PartitionLog.append
    append_marker: Callable[..., Appended] = PartitionLog.append_marker

    def watched_append(self: PartitionLog, data: bytes, **options: Any) -> Appended:
        watcher = _watchers[0]
        if self.topic in topics_module.INTERNAL and len(data) > self.config.segment_bytes:
            # Only here is a journal's segment smaller than a record of it can be.
            self.config = dataclasses.replace(self.config, segment_bytes=len(data))
        watcher.appending(self, data)
        try:
            appended = append(self, data, **options)
        except Exception:
            watcher.refused(self, data)
            raise
        watcher.appended(self, data, appended)
        return appended

    def watched_marker(self: PartitionLog, *, producer_id: int, commit: bool, **options: Any) -> Appended:
        watcher = _watchers[0]
        watcher.marking(self, producer_id, commit)
        appended = append_marker(self, producer_id=producer_id, commit=commit, **options)
        watcher.marked(self, producer_id, commit, appended)
        return appended

    PartitionLog.append = watched_append  # type: ignore[method-assign]
    PartitionLog.append_marker = watched_marker  # type: ignore[method-assign,assignment]
