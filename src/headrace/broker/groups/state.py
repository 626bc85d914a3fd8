"""Everything that the journal rebuilds: all groups and all offsets. `apply` is the only way in, live and at start."""

from headrace.broker.groups import consumer, share_records
from headrace.broker.groups.classic import ClassicGroup
from headrace.broker.groups.classic_rebalance import ClassicLimits
from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.offsets import OffsetStore, Transaction
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Registry
from headrace.broker.groups.share import ShareGroup
from headrace.broker.groups.subscriptions import TopicsView
from headrace.wire.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from headrace.wire.messages.group_metadata_key import GroupMetadataKey
from headrace.wire.messages.group_metadata_value import GroupMetadataValue
from headrace.wire.messages.offset_commit_key import OffsetCommitKey
from headrace.wire.messages.offset_commit_value import OffsetCommitValue
from headrace.wire.messages.share_group_metadata_key import ShareGroupMetadataKey


class CoordinatorState:
    def __init__(self, topics: TopicsView, classic_limits: ClassicLimits) -> None:
        self.topics = topics
        self.classic_limits = classic_limits
        self.registry = Registry()
        self.offsets = OffsetStore()

    def apply(self, entry: JournalEntry, transaction: Transaction | None = None) -> None:
        key, value = entry.key, entry.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            if value is not None and self.registry.get(key.group) is None:
                self.registry.put(ClassicGroup(key.group, self.classic_limits))
            self.offsets.apply(key, value, transaction)
        elif isinstance(key, GroupMetadataKey):
            if value is None:
                self.registry.remove(key.group)
            else:
                assert isinstance(value, GroupMetadataValue)
                self.registry.put(ClassicGroup.from_record(key.group, value, self.classic_limits))
        elif isinstance(key, consumer.KEYS):
            self._apply_to_consumer_group(key.group_id, entry)
        elif isinstance(key, share_records.KEYS):
            self._apply_to_share_group(key.group_id, entry)

    def _apply_to_consumer_group(self, group_id: str, entry: JournalEntry) -> None:
        group = self.registry.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if entry.value is None:
                return
            # An offset commit that came first may have made a simple group: it gives way.
            group = ConsumerGroup(group_id, self.topics)
            self.registry.put(group)
        if entry.value is None and isinstance(entry.key, ConsumerGroupMetadataKey):
            self.registry.remove(group_id)
        else:
            group.apply(entry.key, entry.value)

    def _apply_to_share_group(self, group_id: str, entry: JournalEntry) -> None:
        group = self.registry.get(group_id)
        if not isinstance(group, ShareGroup):
            if entry.value is None:
                return
            group = ShareGroup(group_id, self.topics)
            self.registry.put(group)
        if entry.value is None and isinstance(entry.key, ShareGroupMetadataKey):
            self.registry.remove(group_id)
        else:
            group.apply(entry.key, entry.value)

    def snapshot(self) -> object:
        """For comparison of a replayed journal with the state that wrote it."""
        groups = {group.group_id: (group.type, group.snapshot()) for group in self.registry}
        return groups, self.offsets.snapshot()
