"""What the logs of one data directory share."""

import threading
from collections.abc import Callable, Mapping

from headrace.log.disk import Disk
from headrace.log.layout import Partition
from headrace.log.segment import OpenFiles

SaveStartOffsets = Callable[[Mapping[Partition, int]], None]


class Store:
    __slots__ = ("disk", "guard", "leader_epoch", "open_files", "save_start_offsets", "unsynced_root")

    def __init__(self, disk: Disk, *, leader_epoch: int, save_start_offsets: SaveStartOffsets) -> None:
        self.disk = disk
        self.open_files = OpenFiles()
        self.leader_epoch = leader_epoch
        self.guard = threading.Lock()
        """Over the lists of what is unsynced; held for moments only."""
        self.save_start_offsets = save_start_offsets
        self.unsynced_root = False
        """A log's directory was made, or may have been, since the data directory was last synced."""
