"""How far each group has read: committed offsets, and those of open transactions that wait for their marker.

Theory of operation. Everything here comes from the journal: `apply` takes an OffsetCommit record, `end_transaction` a
transaction's marker. Offsets committed inside a transaction stay pending, by the producer and the journal partition
that holds them, until the marker in that partition commits or aborts them. A plain commit made after the pending one
outlives it, as in Kafka: each commit remembers its place in the journal's order.

Deciding is separate: `tombstones`, `expired` and `corrections` say what to write and change nothing.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple

from headrace.broker.groups import records
from headrace.broker.groups.records import JournalEntry
from headrace.wire.ids import TopicAndPartition
from headrace.wire.message import ZERO_UUID
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetAndMetadata:
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    committed_ms: int = 0
    expires_ms: int = -1
    """Set by clients that speak OffsetCommit v2-v4 and ask for a retention of their own; -1 otherwise."""
    topic_id: bytes = ZERO_UUID

    def as_record(self) -> OffsetCommitValue:
        """The version of the record that has an expiry has neither a leader epoch nor a topic id."""
        has_expiry = self.expires_ms != -1
        return OffsetCommitValue(
            offset=self.offset,
            leader_epoch=-1 if has_expiry else self.leader_epoch,
            metadata=self.metadata,
            commit_timestamp=self.committed_ms,
            expire_timestamp=self.expires_ms,
            topic_id=ZERO_UUID if has_expiry else self.topic_id,
        )

    @classmethod
    def from_record(cls, value: OffsetCommitValue) -> "OffsetAndMetadata":
        return cls(
            offset=value.offset,
            leader_epoch=value.leader_epoch,
            metadata=value.metadata,
            committed_ms=value.commit_timestamp,
            expires_ms=value.expire_timestamp,
            topic_id=value.topic_id,
        )

    def is_of(self, topic_id: bytes) -> bool:
        """False when both ids are known and differ: the topic was deleted and made again under its name."""
        return ZERO_UUID in (self.topic_id, topic_id) or self.topic_id == topic_id


Transaction = tuple[int, int]
"""The journal partition and the producer id."""
_Place = tuple[int, OffsetAndMetadata]
_Topics = dict[str, dict[int, _Place]]


class Correction(NamedTuple):
    """A record that puts a group's offset right; in a transaction if it replaces a pending one."""

    entry: JournalEntry
    transaction: Transaction | None = None


class OffsetStore:
    def __init__(self) -> None:
        self._order = count()
        self._committed: dict[str, _Topics] = {}
        self._pending: dict[Transaction, dict[str, _Topics]] = {}
        self._open: dict[str, set[Transaction]] = {}

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        place = self._committed.get(group_id, {}).get(topic, {}).get(partition)
        return place[1] if place is not None else None

    def of_group(self, group_id: str) -> Iterator[tuple[str, dict[int, OffsetAndMetadata]]]:
        """The group's committed offsets by topic."""
        for topic, partitions in self._committed.get(group_id, {}).items():
            yield topic, {partition: committed for partition, (_, committed) in partitions.items()}

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        return any(
            partition in self._pending[transaction].get(group_id, {}).get(topic, {})
            for transaction in self._open.get(group_id, ())
        )

    def apply(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, transaction: Transaction | None = None
    ) -> None:
        if value is None:
            self._remove(key.group, key.topic, key.partition)
            return
        topics = self._committed
        if transaction is not None:
            topics = self._pending.setdefault(transaction, {})
            self._open.setdefault(key.group, set()).add(transaction)
        partitions = topics.setdefault(key.group, {}).setdefault(key.topic, {})
        partitions[key.partition] = (next(self._order), OffsetAndMetadata.from_record(value))

    def _remove(self, group_id: str, topic: str, partition: int) -> None:
        _take(self._committed, group_id, topic, partition)
        for transaction in self._open.get(group_id, ()):
            _take(self._pending[transaction], group_id, topic, partition)

    def end_transaction(self, transaction: Transaction, *, commit: bool) -> None:
        pending = self._pending.pop(transaction, {})
        for group_id in [group_id for group_id, open_ones in self._open.items() if transaction in open_ones]:
            self._open[group_id].remove(transaction)
            if not self._open[group_id]:
                del self._open[group_id]
        if not commit:
            return
        for group_id, topics in pending.items():
            for topic, partitions in topics.items():
                kept = self._committed.setdefault(group_id, {}).setdefault(topic, {})
                for partition, place in partitions.items():
                    if partition not in kept or kept[partition][0] < place[0]:
                        kept[partition] = place

    def tombstones(
        self, group_id: str, *, topic: str | None = None, topic_id: bytes = ZERO_UUID
    ) -> list[JournalEntry]:
        """What to write so that the group's offsets (of one topic, or all) are gone, pending ones included."""
        stores = [
            self._committed,
            *(self._pending[transaction] for transaction in self._open.get(group_id, ())),
        ]
        found: dict[tuple[str, int], None] = {}
        for store in stores:
            for name, partitions in store.get(group_id, {}).items():
                if topic is None or name == topic:
                    found.update(
                        {(name, index): None for index, (_, one) in partitions.items() if one.is_of(topic_id)}
                    )
        return [records.offset_commit(group_id, name, index, None) for name, index in found]

    def groups_reading(self, topic: str) -> list[str]:
        """The groups that have an offset of this topic, committed or pending."""
        stores = [self._committed, *self._pending.values()]
        return sorted({group_id for store in stores for group_id, topics in store.items() if topic in topics})

    def has_unidentified(self, group_id: str, topic: str) -> bool:
        """Whether an offset of this topic was written without the topic's id: its record has no room for it."""
        stores = [self._committed, *self._pending.values()]
        return any(
            offset.topic_id == ZERO_UUID
            for store in stores
            for _, offset in store.get(group_id, {}).get(topic, {}).values()
        )

    def expired(
        self,
        group_id: str,
        *,
        wall_ms: int,
        retention_ms: int,
        since: Callable[[OffsetAndMetadata], int | None],
        is_subscribed: Callable[[str], bool],
    ) -> tuple[list[JournalEntry], bool]:
        """Tombstones for what has outlived its retention, and whether nothing of the group's offsets is left then.

        Retention counts from `since(offset)`, or not at all. Topics that the group still reads keep their offsets, and
        so does a partition with a pending one.
        """
        entries: list[JournalEntry] = []
        is_nothing_left = group_id not in self._open
        for topic, partitions in self.of_group(group_id):
            for partition, committed in partitions.items():
                since_ms = since(committed)
                deadline_ms = committed.expires_ms
                if deadline_ms == -1 and since_ms is not None:
                    deadline_ms = since_ms + retention_ms
                is_expired = since_ms is not None and wall_ms >= deadline_ms
                if (
                    is_expired
                    and not is_subscribed(topic)
                    and not self.is_pending(group_id, topic, partition)
                ):
                    entries.append(records.offset_commit(group_id, topic, partition, None))
                else:
                    is_nothing_left = False
        return entries, is_nothing_left

    def corrections(
        self, correct: Callable[[str, int, OffsetAndMetadata], OffsetAndMetadata | None]
    ) -> Iterator[tuple[str, list[Correction]]]:
        """What to write, by group, so that every offset, committed or pending, becomes what `correct` makes of it.

        `correct` returns the same object for an offset that is right, and None for one that has to go. The order of
        the commits of a partition is kept, because it decides which of them counts in the end.
        """
        pending: dict[str, dict[TopicAndPartition, list[tuple[int, OffsetAndMetadata, Transaction]]]] = {}
        for transaction, groups in self._pending.items():
            for group_id, topics in groups.items():
                for topic, partitions in topics.items():
                    for index, (order, offset) in partitions.items():
                        places = pending.setdefault(group_id, {}).setdefault((topic, index), [])
                        places.append((order, offset, transaction))
        for group_id in [*self._committed, *(group for group in pending if group not in self._committed)]:
            commits: dict[TopicAndPartition, list[tuple[int, OffsetAndMetadata, Transaction | None]]] = {
                (topic, index): [(*place, None)]
                for topic, partitions in self._committed.get(group_id, {}).items()
                for index, place in partitions.items()
            }
            for place, found in pending.get(group_id, {}).items():
                commits.setdefault(place, []).extend(found)
            needed = [
                correction
                for (topic, index), ones in commits.items()
                for correction in _corrected(group_id, topic, index, ones, correct)
            ]
            if needed:
                yield group_id, needed

    def snapshot(self) -> object:
        """Everything that a replay of the journal must bring back, for comparison."""
        pending = {
            transaction: {group_id: _plain(topics) for group_id, topics in groups.items() if topics}
            for transaction, groups in self._pending.items()
        }
        return {group_id: _plain(topics) for group_id, topics in self._committed.items()}, pending, self._open


def _corrected(
    group_id: str,
    topic: str,
    index: int,
    commits: list[tuple[int, OffsetAndMetadata, Transaction | None]],
    correct: Callable[[str, int, OffsetAndMetadata], OffsetAndMetadata | None],
) -> list[Correction]:
    """For the commits of one partition. A tombstone removes them all, so what stays is written again after it."""
    corrected = [
        (offset, correct(topic, index, offset), transaction)
        for _, offset, transaction in sorted(commits, key=lambda commit: commit[0])
    ]
    first = next((at for at, (before, after, _) in enumerate(corrected) if after is not before), None)
    if first is None:
        return []
    has_to_go = any(after is None for _, after, _ in corrected)
    kept = [
        Correction(records.offset_commit(group_id, topic, index, after.as_record()), transaction)
        for _, after, transaction in (corrected if has_to_go else corrected[first:])
        if after is not None
    ]
    tombstone = Correction(records.offset_commit(group_id, topic, index, None))
    return [tombstone, *kept] if has_to_go else kept


def _take(store: dict[str, _Topics], group_id: str, topic: str, partition: int) -> None:
    """Removes an offset, and the levels that it leaves empty."""
    topics = store.get(group_id, {})
    partitions = topics.get(topic, {})
    partitions.pop(partition, None)
    if topic in topics and not partitions:
        del topics[topic]
    if group_id in store and not topics:
        del store[group_id]


def _plain(topics: _Topics) -> dict[str, dict[int, OffsetAndMetadata]]:
    return {
        topic: {partition: committed for partition, (_, committed) in partitions.items()}
        for topic, partitions in topics.items()
    }
