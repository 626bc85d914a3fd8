"""A backup of a running broker: housekeeping holds still, a cut is taken between two turns, a worker copies it.

See `headrace.log.backup` for what makes the copy consistent. The worker copies in slices, so that other slow work gets
its turns. Whatever goes wrong is told to whoever asked; the broker goes on.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.log.backup import Copying, check_target, take_cut
from headrace.log.disk import OsDisk

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

logger = logging.getLogger("headrace.broker")


class BackupResult(NamedTuple):
    partitions: int
    bytes: int


class Backups:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._running: Backup | None = None

    def start(
        self,
        target: Path,
        *,
        progress: Callable[[int, int], None],
        done: Callable[[BackupResult | Exception], None],
    ) -> "Backup":
        """ValueError if none can be made there now. `done` is called once, on the loop."""
        disk = self._core.logs.disk
        if not isinstance(disk, OsDisk):
            raise ValueError("this broker keeps everything in memory: there is nothing to copy")
        if self._running is not None:
            raise ValueError("another backup is running; wait until it has ended")
        check_target(target, Path(disk.name))

        def ended(result: BackupResult | Exception) -> None:
            self._running = None
            self._core.housekeeping.release()
            done(result)

        backup = self._running = Backup(self._core, disk, target, progress, ended)
        self._core.housekeeping.hold(backup.begin)
        return backup

    def stop(self) -> None:
        if self._running is not None:
            self._running.cancel("the broker is stopping")


class Backup:
    def __init__(
        self,
        core: "BrokerCore",
        disk: OsDisk,
        target: Path,
        progress: Callable[[int, int], None],
        done: Callable[[BackupResult | Exception], None],
    ) -> None:
        self._core = core
        self._disk = disk
        self._target = target
        self._progress = progress
        self._done = done
        self._copying: Copying | None = None
        self._given_up: str | None = None

    def begin(self) -> None:
        """Between two turns of the loop: what is written from now on is not in the copy."""
        try:
            cut = take_cut(self._core.logs, self._core.metadata.copied())
        except Exception as error:
            self._done(error)
            return
        self._partitions, self._size = len(cut.logs), cut.size
        self._copying = Copying(self._disk, cut, self._target)
        self._copying.given_up = self._given_up
        self._go_on()

    def cancel(self, why: str) -> None:
        self._given_up = why
        if self._copying is not None:
            self._copying.given_up = why

    def _go_on(self) -> None:
        assert self._copying is not None
        self._core.run_slow(self._copying.run_slice, self._sliced)

    def _sliced(self, error: Exception | None) -> None:
        copying = self._copying
        assert copying is not None
        if error is not None:
            logger.warning("the backup to %s failed: %s", self._target, error)
            self._done(error)
        elif copying.is_done:
            logger.info("backed up %d partitions to %s", self._partitions, self._target)
            self._done(BackupResult(self._partitions, copying.copied))
        else:
            self._progress(copying.copied, self._size)
            self._go_on()
