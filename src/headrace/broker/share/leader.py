"""The share-partition leader: sessions, acknowledgements, and the share-partitions that are loaded.

Theory of operation. A share session is the set of partitions a member fetches from; ShareFetch and ShareAcknowledge of
one member share its epoch. A share-partition is loaded from its stored state when a session first fetches from it and
unloaded when its group has no session left here. Nobody asks the group coordinator: sessions work for any member id.
"""

import logging
from collections import Counter
from collections.abc import Container, MutableMapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.elements import SETTING
from headrace.broker.metrics import Histogram
from headrace.broker.parked import Line
from headrace.broker.share.loaded import LoadedPartition, Stale
from headrace.broker.share.names import MemberNames
from headrace.broker.share.requests import Acks
from headrace.broker.share.wall_time import WallTime
from headrace.broker.slices import Steps
from headrace.share.changes import AckBatch
from headrace.share.session import ShareSession, ShareSessions
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicIdPartition
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Partition, Topic

logger = logging.getLogger("headrace.share")

PARTITIONS_PER_STEP = 100
"""Share-partitions that are loaded, acquired from, acknowledged, given back or unloaded in one turn of the loop."""
Results = dict[TopicIdPartition, KafkaError | None]


class ShareLeader:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._loaded: dict[tuple[str, bytes, int], LoadedPartition] = {}
        """By share key."""
        self._by_group: dict[str, dict[ShareKey, LoadedPartition]] = {}
        self._by_topic: dict[bytes, dict[ShareKey, LoadedPartition]] = {}
        self.sessions = ShareSessions(
            core.settings.get_int("group.share.max.share.sessions"), core.settings.get_int(SETTING)
        )
        self._left: dict[str, set[str]] = {}
        """Groups whose members closed their sessions properly, by the connection they had opened them on."""
        self.handed: Counter[tuple[str, str]] = Counter()
        """Records given to each (group, member) that has a session; `answered` likewise. For views."""
        self.answered: Counter[tuple[str, str]] = Counter()
        self.names = MemberNames(self.sessions)
        self.wall_time = WallTime(core.clock)
        self._histograms: dict[str, tuple[Histogram, Histogram]] = {}
        core.on_disconnect.append(self._disconnected)
        core.topics.on_deleted.append(self._note_topic_deleted)
        core.features.on_changed.append(self._note_features)
        core.settings.on_changed.append(lambda: self._wake(list(self._loaded.values())))
        core.settings.on_group_changed.append(lambda group_id: self._wake(self.loaded(group_id)))
        self.fetches = core.metrics.counter("TotalShareFetchRequestsPerSec")
        self.acknowledgements = core.metrics.counter("TotalShareAcknowledgementRequestsPerSec")
        core.metrics.gauge("ShareSessionsCount", lambda: len(self.sessions))
        core.metrics.gauge("SharePartitionsCount", lambda: len(self._loaded))

    def acknowledge(
        self, session: ShareSession, acks: Acks, results: Results, *, allows_renew: bool
    ) -> Steps:
        """Fills `results`: None for a partition whose acknowledgements were accepted, or why they were not."""
        for place, batches in acks.items():
            if results and len(results) % PARTITIONS_PER_STEP == 0:
                yield
            try:
                self._acknowledge_one(session, place, batches, allows_renew=allows_renew)
                results[place] = None
            except KafkaError as error:
                results[place] = error

    def _acknowledge_one(
        self,
        session: ShareSession,
        place: TopicIdPartition,
        batches: Sequence[AckBatch],
        *,
        allows_renew: bool,
    ) -> None:
        partition = self.find(place)
        loaded = self._loaded.get((session.group_id, *place))
        if loaded is None or loaded.partition is not partition:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not batches:
            return
        try:
            loaded.acknowledge(session.member_id, batches, allows_renew=allows_renew)
        except Stale as stale:
            self._unload(loaded)
            raise stale.error from stale
        for first, last, _ in batches:
            self.answered[session.group_id, session.member_id] += last - first + 1

    def find(self, place: TopicIdPartition) -> "Partition":
        topic = self._core.topics.by_id(place[0])
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if not 0 <= place[1] < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[place[1]]

    def load(self, group_id: str, place: TopicIdPartition) -> LoadedPartition:
        loaded = self._loaded.get((group_id, *place))
        if loaded is not None:
            if not loaded.is_fenced and self._core.topics.by_id(place[0]) is not None:
                return loaded
            self._unload(loaded)
        return self._load(ShareKey(group_id, *place))

    def _load(self, key: ShareKey) -> LoadedPartition:
        metrics, started_ms = self._core.metrics, self._core.clock.monotonic_ms()
        loaded = LoadedPartition(self._core, key, self.find((key.topic_id, key.partition)))
        for index in self._indexes(key):
            index[key] = loaded
        metrics.observe("PartitionLoadTimeMs", self._core.clock.monotonic_ms() - started_ms)
        labels = {"group": key.group_id, "topic": loaded.partition.topic.name, "partition": key.partition}
        metrics.gauge("InFlightMessageCount", lambda: loaded.engine.window_size, **labels)
        metrics.gauge("InFlightBatchCount", lambda: loaded.engine.range_count, **labels)
        metrics.gauge("headrace_share_partition_window_limit", lambda: loaded.limits().window_max, **labels)
        return loaded

    def is_loaded(self, group_id: str, place: TopicIdPartition) -> bool:
        return (group_id, *place) in self._loaded

    def line(self, group_id: str, place: TopicIdPartition) -> Line:
        """Where members wait for records of a share-partition: new ones, and those that others give back."""
        key = ShareKey(group_id, *place)
        triggers: list[object] = [key]
        topic = self._core.topics.by_id(place[0])
        if topic is not None and 0 <= place[1] < len(topic.partitions):
            triggers.append(topic.partitions[place[1]])
        return self._core.parked.line(key, triggers, lambda: self.load(group_id, place).readable_bytes(1) > 0)

    def loaded(self, group_id: str) -> list[LoadedPartition]:
        """The group's share-partitions that are being served, for views."""
        return list(self._by_group.get(group_id, {}).values())

    def loaded_everywhere(self) -> list[LoadedPartition]:
        """The share-partitions of all groups that are being served."""
        return list(self._loaded.values())

    def serving(self, key: ShareKey) -> LoadedPartition | None:
        """One share-partition, if it is being served, for views."""
        return self._loaded.get(key)

    def _indexes(self, key: ShareKey) -> tuple[MutableMapping[Any, LoadedPartition], ...]:
        """Every dictionary a loaded share-partition is in."""
        return (
            self._loaded,
            self._by_group.setdefault(key.group_id, {}),
            self._by_topic.setdefault(key.topic_id, {}),
        )

    def _wake(self, changed: Sequence[LoadedPartition]) -> None:
        """A wider window or another isolation level can make records readable that were there before."""
        self._core.slices.run(self._touch(changed))

    def _touch(self, changed: Sequence[LoadedPartition]) -> Steps:
        for count, loaded in enumerate(changed, 1):
            self._core.parked.touch(loaded.key)
            if count % PARTITIONS_PER_STEP == 0:
                yield

    def note_fetch(self, group_id: str, percent: float, spent_ms: float) -> None:
        """How many of its partitions a fetch got records from, and how long it took to acquire them.

        Only of groups that are served here: anybody may name a group, and what is noted stays until it is deleted.
        """
        if group_id not in self._by_group:
            return
        histograms = self._histograms.get(group_id)
        if histograms is None:
            histograms = self._histograms[group_id] = (
                self._core.metrics.histogram("RequestTopicPartitionsFetchRatio", group=group_id),
                self._core.metrics.histogram("TopicPartitionsAcquireTimeMs", group=group_id),
            )
        histograms[0].observe(percent)
        histograms[1].observe(spent_ms)

    def _note_features(self) -> None:
        """Whether there are dead letters depends on them."""
        for loaded in self._loaded.values():
            loaded.forget_limits()

    def note_unwritten(self, loaded: LoadedPartition, error: Exception) -> None:
        logger.warning("%s: locks ended but their record was not written: %s", loaded.key, error)
        if isinstance(error, Stale):
            self._unload(loaded)

    def close(self, session: ShareSession) -> None:
        """Gives back all the member holds, also in partitions it has forgotten.

        Unless the session has ended while its last request was handled: its connection was closed, or the member has
        opened another one, and what it holds now is that one's.
        """
        if self.sessions.get(session.group_id, session.member_id) is session:
            self.sessions.remove(session)
            self._left.setdefault(session.connection_id, set()).add(session.group_id)
            self._give_back(session)

    def _give_back(self, session: ShareSession) -> None:
        """Of many share-partitions a few a turn; whoever comes to one before its turn finds the records given back."""
        for counts in (self.handed, self.answered):
            del counts[session.group_id, session.member_id]  # a Counter does not mind if it is not there
        held = [
            loaded for loaded in self.loaded(session.group_id) if session.member_id in loaded.engine.holders
        ]
        for loaded in held:
            loaded.leave(session.member_id)
        self._core.slices.run(_release(held, session, self.names))

    def _disconnected(self, connection_id: int) -> None:
        left = self._left.pop(str(connection_id), set())
        for session in self.sessions.disconnected(str(connection_id)):
            self._give_back(session)
            left.add(session.group_id)
            self._core.metrics.count("ShareSessionEvictionsPerSec")
        for group_id in left:
            self._core.slices.run(self._unload_idle(group_id))

    def _unload_idle(self, group_id: str) -> Steps:
        for count, loaded in enumerate(self.loaded(group_id), 1):
            self.unload_if_idle(loaded)
            if count % PARTITIONS_PER_STEP == 0:
                yield

    def unload_if_idle(self, loaded: LoadedPartition) -> None:
        """Unless it was unloaded before, has dead letters on their way, or somebody fetches from its group."""
        if self._loaded.get(loaded.key) is not loaded:
            return
        loaded.release_left()
        is_used = self.sessions.has_group(loaded.key.group_id) or loaded.is_copying
        if not is_used and self._loaded.get(loaded.key) is loaded:
            self._unload(loaded)

    def forget_group(self, group_id: str) -> None:
        """The group is deleted: unloads what it has loaded; what is stored is not touched."""
        for loaded in self.loaded(group_id):
            self._unload(loaded)
        self._histograms.pop(group_id, None)
        self._core.metrics.forget(group=group_id)

    def forget_partitions(self, group_id: str, topic_id: bytes) -> None:
        for loaded in self.loaded(group_id):
            if loaded.key.topic_id == topic_id:
                self._unload(loaded)

    def fence_partitions(self, group_id: str, topic_id: bytes, indexes: Container[int] | None = None) -> None:
        """The stored state was set anew: who still holds records of the old is told so, and fetches load the new.

        Of the partitions given, or of all that the topic has.
        """
        for loaded in self.loaded(group_id):
            key = loaded.key
            if key.topic_id == topic_id and (indexes is None or key.partition in indexes):
                loaded.is_fenced = True
                self._core.parked.touch(key)

    def _unload(self, loaded: LoadedPartition) -> None:
        loaded.close()
        self._drop(loaded)
        self._core.metrics.forget(
            group=loaded.key.group_id, topic=loaded.partition.topic.name, partition=loaded.key.partition
        )
        self._core.parked.touch(loaded.key)

    def _drop(self, loaded: LoadedPartition) -> None:
        key = loaded.key
        if self._loaded.get(key) is not loaded:
            return
        for index in self._indexes(key):
            del index[key]
        if not self._by_group[key.group_id]:
            del self._by_group[key.group_id]
        if not self._by_topic[key.topic_id]:
            del self._by_topic[key.topic_id]

    def _note_topic_deleted(self, topic: "Topic") -> None:
        """Nobody finds them by their topic's id any more. Their metrics went with the topic's name."""
        self._core.slices.run(self._unload_deleted(list(self._by_topic.get(topic.id, {}).values())))

    def _unload_deleted(self, unloading: Sequence[LoadedPartition]) -> Steps:
        for count, loaded in enumerate(unloading, 1):
            loaded.close()
            self._drop(loaded)
            self._core.parked.touch(loaded.key)
            if count % PARTITIONS_PER_STEP == 0:
                yield


def _release(held: Sequence[LoadedPartition], session: ShareSession, names: MemberNames) -> Steps:
    for count, loaded in enumerate(held, 1):
        loaded.release_left()
        if count % PARTITIONS_PER_STEP == 0:
            yield
    names.released(session)
