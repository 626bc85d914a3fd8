"""What the logs of one data directory share."""

import threading
from collections.abc import Callable

from headrace.log.checkpoint import Checkpoint, RecoveryPoints, Root
from headrace.log.disk import Disk
from headrace.log.layout import CLEANER_OFFSETS, RECOVERY_POINTS, START_OFFSETS
from headrace.log.reserve import Reserve
from headrace.log.segment import OpenFiles


class Store:
    __slots__ = (
        "cleaner_offsets",
        "disk",
        "guard",
        "is_held",
        "leader_epoch",
        "note_progress",
        "open_files",
        "recovery_points",
        "reserve",
        "root",
        "start_offsets",
    )

    def __init__(self, disk: Disk, *, leader_epoch: int = 0, reserve_bytes: int = 0) -> None:
        self.disk = disk
        self.open_files = OpenFiles()
        self.leader_epoch = leader_epoch
        self.note_progress: Callable[..., None] = lambda what, done, unit, *, of: None
        """Told while a log is recovered, which may take long: what, how much, the unit, and of how much in all."""
        self.guard = threading.Lock()
        """Over the lists of what is unsynced; held for moments only."""
        self.is_held = False
        """A backup runs: no file may go."""
        self.root = Root(disk)
        self.reserve = Reserve(disk, reserve_bytes)
        self.start_offsets = Checkpoint(disk, START_OFFSETS, self.reserve)
        self.recovery_points = RecoveryPoints(disk, RECOVERY_POINTS, self.reserve)
        self.cleaner_offsets = Checkpoint(disk, CLEANER_OFFSETS, self.reserve)
