"""A share-partition with a log beside it, for tests that read like a transcript: fetch, acknowledge, let time pass."""

from collections.abc import Sequence
from dataclasses import replace

from headrace.share.changes import GAP_TYPE, AckBatch, AcknowledgeType, AnyChange, Span, StateWrite
from headrace.share.limits import Limits
from headrace.share.modes import AcquireMode
from headrace.share.partition import SharePartition
from headrace.share.states import RecordState

GAP, ACCEPT, RELEASE, REJECT, RENEW = ([answer] for answer in (GAP_TYPE, *AcknowledgeType))


def batches_of(size: int, count: int, first: int = 0) -> list[Span]:
    return [(begin, begin + size - 1) for begin in range(first, first + size * count, size)]


class Desk:
    def __init__(self, log: Sequence[Span], *, partition: SharePartition | None = None, **limits: int | bool):
        self.log = list(log)
        self.partition = partition if partition is not None else SharePartition(0)
        self.limits = replace(Limits(), **limits)
        self.aborted: list[Span] = []
        self.now_ms = 0
        self.writes: list[StateWrite] = []

    def fetch(
        self,
        member: str = "m1",
        *,
        records_max: int = 500,
        batch_size: int = 500,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
    ) -> list[tuple[int, int, int]]:
        """Reads to the end of the log from where the partition says, and acquires."""
        if not self.partition.can_acquire(self.limits):
            return []
        offset = self.partition.next_fetch_offset()
        acquisition = self.partition.acquire(
            member,
            mode=mode,
            batch_size=batch_size,
            records_max=records_max,
            fetch_offset=offset,
            batches=[batch for batch in self.log if batch[1] >= offset],
            limits=self.limits,
            aborted=self.aborted,
            now_ms=self.now_ms,
        )
        self.apply(acquisition.changes)
        return [tuple(entry) for entry in acquisition.acquired]

    def acknowledge(
        self, *batches: tuple[int, int, Sequence[int]], member: str = "m1", allows_renew: bool = False
    ) -> None:
        changes = self.partition.acknowledge(
            member,
            [AckBatch(first, last, list(types)) for first, last, types in batches],
            limits=self.limits,
            allows_renew=allows_renew,
            now_ms=self.now_ms,
        )
        self.apply(changes)

    def close(self, member: str) -> None:
        self.apply(self.partition.release_member(member, limits=self.limits))

    def wait(self, wait_ms: int) -> None:
        self.now_ms += wait_ms
        self.apply(self.partition.expire(self.now_ms, limits=self.limits))

    def apply(self, changes: Sequence[AnyChange]) -> bool:
        write = self.partition.write_for(changes)
        if write is not None:
            self.writes.append(write)
        return self.partition.apply(changes)

    def states(self) -> dict[int, tuple[RecordState, int]]:
        """State and delivery count by offset."""
        return {
            offset: (entry.state, entry.delivery_count)
            for entry in self.partition.snapshot().ranges
            for offset in range(entry.first, entry.last + 1)
        }

    def written(self) -> list[tuple[int, int, list[tuple[int, int, int, int]]]]:
        """Start offset, complete count and batches of each write."""
        return [
            (start, count, [tuple(map(int, batch)) for batch in batches])
            for start, count, batches in self.writes
        ]
