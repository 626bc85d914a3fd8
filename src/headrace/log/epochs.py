"""Which leader epoch began at which offset: what clients ask after a restart to find out whether the log was cut."""

from headrace.log.disk import Disk, write_file
from headrace.log.layout import DRAFT, LEADER_EPOCHS, encode_epochs


class LeaderEpochs:
    __slots__ = ("entries", "is_changed")

    def __init__(self, entries: list[tuple[int, int]] | None = None) -> None:
        self.entries = entries or []
        """(epoch, first offset), both rising."""
        self.is_changed = False
        """Since it was last written down."""

    @property
    def latest(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def assign(self, epoch: int, offset: int) -> None:
        """The first batch of an epoch starts it; later ones change nothing."""
        if epoch > self.latest:
            self.entries.append((epoch, offset))
            self.is_changed = True

    def end_offset(self, epoch: int, *, leader_epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest known epoch up to `epoch`, and the offset where it ended; (-1, -1) for epochs to come."""
        if epoch < 0 or epoch > leader_epoch:
            return -1, -1
        if epoch == leader_epoch:
            return epoch, log_end_offset
        later = [start for entry, start in self.entries if entry > epoch]
        known = [entry for entry, _ in self.entries if entry <= epoch]
        return known[-1] if known else epoch, later[0] if later else log_end_offset

    def cut_after(self, end_offset: int) -> None:
        self._keep([(epoch, start) for epoch, start in self.entries if start < end_offset])

    def cut_before(self, start_offset: int) -> None:
        """The epoch that holds `start_offset` now begins there."""
        kept = [(epoch, start) for epoch, start in self.entries if start > start_offset]
        older = [(epoch, start_offset) for epoch, start in self.entries if start <= start_offset]
        self._keep(older[-1:] + kept)

    def _keep(self, entries: list[tuple[int, int]]) -> None:
        if entries != self.entries:
            self.entries = entries
            self.is_changed = True

    def save(self, disk: Disk, directory: str) -> list[str]:
        """They are part of what is trusted with a segment; of segments that are not, batches say them again."""
        path = f"{directory}/{LEADER_EPOCHS}"
        if self.is_changed:
            write_file(disk, path + DRAFT, encode_epochs(self.entries))
            disk.rename(path + DRAFT, path)
            self.is_changed = False
        return [path]
