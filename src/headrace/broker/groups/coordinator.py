"""The shell around groups and offsets: it keeps the journal, arms timers, and hears of topics that come and go.

Theory of operation. Each group lives in one partition of `__consumer_offsets`, by the hash of its id. A change is
appended there first, then applied; whoever asked for something that must last is answered when the append is durable.
At start `load` applies every partition from its beginning; offsets of transactions that have no marker yet stay
pending until the transaction coordinator ends them.
"""

import logging
import secrets
import uuid
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.broker.errors import journal_error
from headrace.broker.groups import records
from headrace.broker.groups.classic_rebalance import ClassicLimits
from headrace.broker.groups.consumer import ConsumerGroup
from headrace.broker.groups.heartbeats import consumer_limits
from headrace.broker.groups.mending import ENTRIES_MAX, OffsetMending
from headrace.broker.groups.offsets import Transaction
from headrace.broker.groups.records import JournalEntry
from headrace.broker.groups.registry import Group, Now, Write
from headrace.broker.groups.share import ShareGroup
from headrace.broker.groups.share_groups import ShareGroups
from headrace.broker.groups.state import CoordinatorState
from headrace.broker.groups.timers import GroupTimers
from headrace.broker.journals import current_records
from headrace.broker.later import Later
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.broker.slices import Steps
from headrace.wire.batches import read_header
from headrace.wire.codec import MalformedMessage
from headrace.wire.enums import GroupState, GroupType
from headrace.wire.errors import KafkaError
from headrace.wire.ids import partition_for
from headrace.wire.records import Record, read_marker, read_records

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Topic
    from headrace.log.partition_log import PartitionLog

logger = logging.getLogger("headrace.groups")

OFFSETS_TOPIC = "__consumer_offsets"
RETENTION_COST = 500
"""Groups whose offsets are looked at in one turn of the loop."""
JOURNAL_COST = 25
"""A write to the journal counts for so many."""


class GroupCoordinator:
    def __init__(self, core: "BrokerCore") -> None:
        self.core = core
        limits = ClassicLimits(
            size_max=core.settings.get_int("group.max.size"),
            initial_delay_ms=core.settings.get_int("group.initial.rebalance.delay.ms"),
        )
        self.state = CoordinatorState(core.topics, limits)
        self.registry = self.state.registry
        self.registry.check = partial(core.journals.require, OFFSETS_TOPIC)
        self.share = ShareGroups(self)
        self._timers = GroupTimers(self)
        self._is_retaining = False
        core.topics.on_changed.append(self._note_topic_changed)
        core.topics.on_deleted.append(self._note_topic_deleted)
        self._show_metrics()

    def now(self) -> Now:
        return Now(self.core.clock.monotonic_ms(), self.core.clock.wall_ms())

    def new_uuid(self) -> str:
        return str(uuid.uuid4())

    def new_short_id(self) -> str:
        """16 random bytes in 22 characters, as Kafka writes its ids."""
        return secrets.token_urlsafe(16)

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` that holds a group; makes the topic if it is not there yet."""
        return partition_for(group_id, len(self.core.topics.internal(OFFSETS_TOPIC).partitions))

    def load(self) -> None:
        """At start: the groups as the journal has them, and their clocks running."""
        self.replay()
        OffsetMending(self).mend()
        now = self.now()
        for group in self.registry:
            if isinstance(group, ConsumerGroup):
                group.session_ms = consumer_limits(self.core.settings, group.group_id).session_ms
            if isinstance(group, ShareGroup):
                group.session_ms = self.share.settings(group.group_id).session_ms
                self.share.mend(group)
            self.carry_out(group, group.start_clocks(now))
        self._arm_retention(now)

    def replay(self) -> None:
        for partition, batches in self.core.journals.read(OFFSETS_TOPIC):
            if any(read_header(batch).is_transactional for batch in batches):
                for batch in batches:
                    self._replay_batch(partition, batch)
            else:
                self._replay_records(partition, current_records(batches, records.is_offset_commit), None)

    def _replay_batch(self, partition: int, batch: bytes) -> None:
        header = read_header(batch)
        transaction = (partition, header.producer_id) if header.is_transactional else None
        if header.is_control:
            marker = read_marker(batch)
            if marker is not None:
                self.state.offsets.end_transaction((partition, header.producer_id), commit=marker.is_commit)
            return
        self._replay_records(partition, read_records(batch), transaction)

    def _replay_records(
        self, partition: int, read: Iterable[Record], transaction: Transaction | None
    ) -> None:
        for record in read:
            try:
                entry = records.decode(record.key or b"", record.value)
            except MalformedMessage as error:
                logger.warning(
                    "skipped record %d of %s-%d: %s", record.offset, OFFSETS_TOPIC, partition, error
                )
            else:
                if entry is not None:
                    self.state.apply(entry, transaction)

    def append(
        self,
        group_id: str,
        entries: Iterable[JournalEntry],
        *,
        producer: ProducerIdAndEpoch | None = None,
        encoded: Sequence[tuple[bytes, bytes | None]] | None = None,
    ) -> Later[None]:
        """Into the journal, nothing more. Raises KafkaError with what a client shall be told.

        `encoded` are the same entries, by whoever has encoded them before.
        """
        try:
            return self.core.append_internal(
                OFFSETS_TOPIC,
                self.partition_of(group_id),
                encoded if encoded is not None else [entry.encode() for entry in entries],
                producer=producer,
            )
        except KafkaError as error:
            raise journal_error(error) from error

    def journal(
        self,
        group_id: str,
        entries: Sequence[JournalEntry],
        *,
        producer: ProducerIdAndEpoch | None = None,
        encoded: Sequence[tuple[bytes, bytes | None]] | None = None,
    ) -> Later[None]:
        """Appends, then applies. Resolves when it is durable."""
        durable = self.append(group_id, entries, producer=producer, encoded=encoded)
        transaction = (self.partition_of(group_id), producer.id) if producer is not None else None
        for entry in entries:
            self.state.apply(entry, transaction)
        return durable

    def carry_out(self, group: Group, write: Write | None) -> bool:
        """Does what a machine has decided, and arms the group's timer. False: the journal has refused it."""
        is_done = True
        if write is not None:
            try:
                if write.written is None:
                    self.journal(group.group_id, write.entries)
                else:
                    self.append(group.group_id, write.entries)
                    write.written()
            except KafkaError as error:
                logger.warning("group %s: the journal refused a change: %s", group.group_id, error)
                write.refused(error.code)
                is_done = False
        self.watch(group)
        return is_done

    def watch(self, group: Group) -> None:
        """Arms the group's timer, unless it already fires in time."""
        self._timers.watch(group)

    def _arm_retention(self, now: Now) -> None:
        interval_ms = self.core.settings.get_int("offsets.retention.check.interval.ms")
        self.core.timers.at(now.ms + interval_ms, self._expire_offsets)

    def _expire_offsets(self) -> None:
        self._arm_retention(self.now())
        if not self._is_retaining:
            self._is_retaining = True
            self.core.slices.run(self._retention())

    def _retention(self) -> Steps:
        """Some groups in each turn of the loop."""
        retention_ms = self.core.settings.get_int("offsets.retention.minutes") * 60_000
        spent = 0
        try:
            for group in self.registry:
                if spent >= RETENTION_COST:
                    yield
                    spent = 0
                spent += 1
                # A share group has no offsets that could expire, and stays until somebody deletes it.
                if group.type is GroupType.SHARE or not self.registry.has(group):
                    continue
                entries = self._expired(group, retention_ms)
                if entries:
                    logger.info("group %s: %d records have expired", group.group_id, len(entries))
                    self._journal_quietly(group.group_id, entries)
                    spent += JOURNAL_COST + len(entries)
        finally:
            self._is_retaining = False

    def _expired(self, group: Group, retention_ms: int) -> list[JournalEntry]:
        entries, is_nothing_left = self.state.offsets.expired(
            group.group_id,
            wall_ms=self.core.expiry_clock.wall_ms(),
            retention_ms=retention_ms,
            since=group.offsets_idle_since,
            is_subscribed=group.is_subscribed_to,
        )
        return [*entries, *group.tombstones()] if is_nothing_left and group.is_empty else entries

    def _journal_quietly(self, group_id: str, entries: Sequence[JournalEntry]) -> None:
        """For what nobody waits for: it is tried again later, or put right by the next start."""
        try:
            self.journal(group_id, entries)
        except KafkaError as error:
            logger.warning("group %s: the journal refused a change: %s", group_id, error)

    def _forget_offsets(self, partition: int, entries: Sequence[JournalEntry]) -> None:
        """Of several groups of one partition of the journal at once. What is refused, the next start puts right."""
        try:
            self.core.append_internal(OFFSETS_TOPIC, partition, [entry.encode() for entry in entries])
        except KafkaError as error:
            logger.warning("the journal refused that offsets of a deleted topic are gone: %s", error)
            return
        for entry in entries:
            self.state.apply(entry)

    def _note_topic_changed(self, topic: "Topic") -> None:
        for group in self.registry:
            group.forget_topic(topic.name)

    def _note_topic_deleted(self, topic: "Topic") -> "list[PartitionLog]":
        """The journal of offsets without a topic id must be durable before a topic of that name can be made again."""
        self._note_topic_changed(topic)
        for group in self.registry:
            if isinstance(group, ShareGroup):
                self.share.forget_topic(group, topic.id)
        unidentified: dict[int, None] = {}
        tombstones: dict[int, list[JournalEntry]] = {}
        for group_id in self.state.offsets.groups_reading(topic.name):
            index = self.partition_of(group_id)
            if self.state.offsets.has_unidentified(group_id, topic.name):
                unidentified[index] = None
            entries = self.state.offsets.tombstones(group_id, topic=topic.name, topic_id=topic.id)
            tombstones.setdefault(index, []).extend(entries)
        for index, entries in tombstones.items():
            for first in range(0, len(entries), ENTRIES_MAX):
                self._forget_offsets(index, entries[first : first + ENTRIES_MAX])
        if not unidentified:
            return []
        journal = self.core.topics.internal(OFFSETS_TOPIC)
        return [journal.partitions[index].log for index in unidentified]

    def _show_metrics(self) -> None:
        def count(kind: GroupType, state: str | None = None) -> int:
            groups = [group for group in self.registry if group.type is kind]
            return len([group for group in groups if state is None or group.state_name == state])

        for kind in (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.SHARE):
            self.core.metrics.gauge("group-count", partial(count, kind), protocol=kind.value)
        for state in (GroupState.EMPTY, GroupState.STABLE, GroupState.DEAD):
            show = partial(count, GroupType.SHARE, state)
            self.core.metrics.gauge("share-group-count", show, state=state)

    def complete_transaction(self, producer_id: int, partition_of_offsets_topic: int, commit: bool) -> None:
        """The transaction's marker is in that partition of `__consumer_offsets`."""
        self.state.offsets.end_transaction((partition_of_offsets_topic, producer_id), commit=commit)
