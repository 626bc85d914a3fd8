"""The share-partition leader: sessions, acknowledgements, who gets which records, and who has to wait.

Theory of operation. A share session is the set of partitions a member fetches from; ShareFetch and ShareAcknowledge of
one member share its epoch. A share-partition is loaded from its stored state when a session first fetches from it and
unloaded when its group has no session left here. A fetch tries the session's partitions in turn, beginning at another
one each time; one that finds nothing waits in the line of each of its share-partitions, for new records and for what
comes back or frees room. Nobody asks the group coordinator: sessions work for any member id.
"""

import contextlib
import logging
from collections import Counter
from collections.abc import Container, Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.later import Later, resolved
from headrace.broker.metrics import Histogram
from headrace.broker.parked import Line, ParkedRequest
from headrace.broker.share.loaded import LoadedPartition, Stale
from headrace.broker.share.requests import Acks, acks_of, acquire_mode, check_fetch, identify, partitions_of
from headrace.broker.share.responses import FetchAnswer, acknowledge_response
from headrace.broker.slices import Steps
from headrace.broker.timers import Timer
from headrace.share.changes import AckBatch
from headrace.share.errors import (
    InvalidRequest,
    InvalidSessionEpoch,
    SessionLimitReached,
    SessionNotFound,
    ShareError,
)
from headrace.share.modes import AcquireMode
from headrace.share.session import CLOSE_EPOCH, ShareSession, ShareSessions
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from headrace.wire.share_state import ShareKey

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore
    from headrace.broker.topics import Partition, Topic

logger = logging.getLogger("headrace.share")

SESSION_ERRORS: dict[type[ShareError], ErrorCode] = {
    SessionNotFound: ErrorCode.SHARE_SESSION_NOT_FOUND,
    InvalidSessionEpoch: ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    InvalidRequest: ErrorCode.INVALID_REQUEST,
}
TopicPartition = tuple[bytes, int]
PARTITIONS_PER_STEP = 100
"""Share-partitions that are loaded, acquired from, acknowledged, given back or unloaded in one turn of the loop."""
Results = dict[TopicPartition, KafkaError | None]


class ShareLeader:
    def __init__(self, core: "BrokerCore") -> None:
        self._core = core
        self._loaded: dict[ShareKey, LoadedPartition] = {}
        self._by_group: dict[str, dict[ShareKey, LoadedPartition]] = {}
        self._by_topic: dict[bytes, dict[ShareKey, LoadedPartition]] = {}
        self.sessions = ShareSessions(core.settings.int("group.share.max.share.sessions"))
        self._left: dict[str, set[str]] = {}
        """Groups whose members closed their sessions properly, by the connection they had opened them on."""
        self.handed: Counter[tuple[str, str]] = Counter()
        """Records given to each (group, member) that has a session; `answered` likewise. For views."""
        self.answered: Counter[tuple[str, str]] = Counter()
        self._histograms: dict[str, tuple[Histogram, Histogram]] = {}
        core.on_disconnect.append(self._disconnected)
        core.topics.on_deleted.append(self._note_topic_deleted)
        core.settings.on_changed.append(lambda: self._wake(list(self._loaded.values())))
        core.settings.on_group_changed.append(lambda group_id: self._wake(self.loaded(group_id)))
        self._fetches = core.metrics.counter("TotalShareFetchRequestsPerSec")
        self._acknowledgements = core.metrics.counter("TotalShareAcknowledgementRequestsPerSec")
        core.metrics.gauge("ShareSessionsCount", lambda: len(self.sessions))
        core.metrics.gauge("SharePartitionsCount", lambda: len(self._loaded))

    def fetch(self, request: ShareFetchRequest, call: Call) -> ShareFetchResponse | Later[ShareFetchResponse]:
        self._fetches.value += 1
        group_id, member_id = identify(request.group_id, request.member_id)
        check_fetch(request)
        acks = acks_of(request)
        answer = FetchAnswer(self._core, group_id)
        try:
            session = self._session_of_fetch(request, group_id, member_id, acks, call)
        except SessionLimitReached as error:
            return self._refuse_later(request.max_wait_ms, str(error))
        fetch = _ShareFetch(self, request, session, answer, acquire_mode(request))

        def steps() -> Steps:
            results: Results = {}
            yield from self._acknowledge(
                group_id, member_id, acks, results, allows_renew=request.is_renew_ack
            )
            answer.acknowledged(results)
            if request.share_session_epoch == CLOSE_EPOCH:
                self._close(session)
                fetch.respond()
            elif request.is_renew_ack or request.max_records <= 0 or request.max_bytes <= 0:
                fetch.respond()
            else:
                yield from fetch.run()

        self._core.slices.run(steps(), fetch.fail)
        return fetch.later.now()

    def acknowledge(
        self, request: ShareAcknowledgeRequest, call: Call
    ) -> ShareAcknowledgeResponse | Later[ShareAcknowledgeResponse]:
        self._acknowledgements.value += 1
        group_id, member_id = identify(request.group_id, request.member_id)
        try:
            session = self.sessions.acknowledge(group_id, member_id, request.share_session_epoch)
        except tuple(SESSION_ERRORS) as error:
            raise KafkaError(SESSION_ERRORS[type(error)], str(error)) from error
        acks = acks_of(request)
        later: Later[ShareAcknowledgeResponse] = Later()

        def steps() -> Steps:
            results: Results = {}
            yield from self._acknowledge(
                group_id, member_id, acks, results, allows_renew=request.is_renew_ack
            )
            if request.share_session_epoch == CLOSE_EPOCH:
                self._close(session)
            later.resolve(acknowledge_response(self._core, group_id, results))

        self._core.slices.run(steps(), later.fail)
        return later.now()

    def _session_of_fetch(
        self, request: ShareFetchRequest, group_id: str, member_id: str, acks: Acks, call: Call
    ) -> ShareSession:
        forgotten = [
            (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
        ]
        try:
            return self.sessions.fetch(
                group_id,
                member_id,
                request.share_session_epoch,
                connection_id=str(call.connection_id),
                added=partitions_of(request),
                forgotten=forgotten,
                has_acknowledgements=bool(acks),
            )
        except tuple(SESSION_ERRORS) as error:
            raise KafkaError(SESSION_ERRORS[type(error)], str(error)) from error

    def _refuse_later(self, wait_ms: int, message: str) -> Later[ShareFetchResponse]:
        """Held back for the time it would have waited, so that a client without a session does not hammer."""
        refusal = ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_LIMIT_REACHED, error_message=message)
        if wait_ms <= 0:
            return resolved(refusal)
        later: Later[ShareFetchResponse] = Later()
        deadline_ms = self._core.clock.monotonic_ms() + wait_ms
        later.on_abandon = self._core.timers.at(deadline_ms, lambda: later.resolve(refusal)).cancel
        return later

    def _acknowledge(
        self, group_id: str, member_id: str, acks: Acks, results: Results, *, allows_renew: bool
    ) -> Steps:
        for place, batches in acks.items():
            if results and len(results) % PARTITIONS_PER_STEP == 0:
                yield
            try:
                self._acknowledge_one(group_id, member_id, place, batches, allows_renew=allows_renew)
                results[place] = None
            except KafkaError as error:
                results[place] = error

    def _acknowledge_one(
        self,
        group_id: str,
        member_id: str,
        place: TopicPartition,
        batches: Sequence[AckBatch],
        *,
        allows_renew: bool,
    ) -> None:
        partition = self.find(place)
        loaded = self._loaded.get(ShareKey(group_id, *place))
        if loaded is None or loaded.partition is not partition:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not batches:
            return
        try:
            loaded.acknowledge(member_id, batches, allows_renew=allows_renew)
        except Stale as stale:
            self._unload(loaded)
            raise stale.error from stale
        self.answered[group_id, member_id] += sum(last - first + 1 for first, last, _ in batches)

    def find(self, place: TopicPartition) -> "Partition":
        topic = self._core.topics.by_id(place[0])
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        if not 0 <= place[1] < len(topic.partitions):
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic.partitions[place[1]]

    def load(self, group_id: str, place: TopicPartition) -> LoadedPartition:
        key = ShareKey(group_id, *place)
        loaded = self._loaded.get(key)
        if loaded is not None and (loaded.is_fenced or self._core.topics.by_id(place[0]) is None):
            self._unload(loaded)
            loaded = None
        if loaded is None:
            started_ms = self._core.clock.monotonic_ms()
            loaded = LoadedPartition(self._core, key, self.find(place))
            for index in self._indexes(key):
                index[key] = loaded
            self._core.metrics.observe("PartitionLoadTimeMs", self._core.clock.monotonic_ms() - started_ms)
            labels = {"group": group_id, "topic": loaded.partition.topic.name, "partition": place[1]}
            self._core.metrics.gauge("InFlightMessageCount", lambda: loaded.engine.window_size, **labels)
            self._core.metrics.gauge("InFlightBatchCount", lambda: loaded.engine.range_count, **labels)
        return loaded

    def is_loaded(self, group_id: str, place: TopicPartition) -> bool:
        return ShareKey(group_id, *place) in self._loaded

    def line(self, group_id: str, place: TopicPartition) -> Line:
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

    def _indexes(self, key: ShareKey) -> tuple[dict[ShareKey, LoadedPartition], ...]:
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
        """How many of its partitions a fetch got records from, and how long it took to acquire them."""
        histograms = self._histograms.get(group_id)
        if histograms is None:
            histograms = self._histograms[group_id] = (
                self._core.metrics.histogram("RequestTopicPartitionsFetchRatio", group=group_id),
                self._core.metrics.histogram("TopicPartitionsAcquireTimeMs", group=group_id),
            )
        histograms[0].observe(percent)
        histograms[1].observe(spent_ms)

    def note_unwritten(self, loaded: LoadedPartition, error: Exception) -> None:
        logger.warning("%s: locks ended but their record was not written: %s", loaded.key, error)
        if isinstance(error, Stale):
            self._unload(loaded)

    def _close(self, session: ShareSession) -> None:
        """Gives back all the member holds, also in partitions it has forgotten.

        Of many share-partitions a few a turn; whoever comes to one before its turn finds the records given back.
        """
        self.sessions.remove(session)
        for counts in (self.handed, self.answered):
            del counts[session.group_id, session.member_id]  # a Counter does not mind if it is not there
        self._left.setdefault(session.connection_id, set()).add(session.group_id)
        held = [
            loaded for loaded in self.loaded(session.group_id) if session.member_id in loaded.engine.holders
        ]
        for loaded in held:
            loaded.leave(session.member_id)
        self._core.slices.run(self._release(held))

    @staticmethod
    def _release(held: Sequence[LoadedPartition]) -> Steps:
        for count, loaded in enumerate(held, 1):
            loaded.release_left()
            if count % PARTITIONS_PER_STEP == 0:
                yield

    def _disconnected(self, connection_id: int) -> None:
        for session in self.sessions.disconnected(str(connection_id)):
            self._close(session)
            self._core.metrics.count("ShareSessionEvictionsPerSec")
        for group_id in self._left.pop(str(connection_id), ()):
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

    @property
    def core(self) -> "BrokerCore":
        return self._core


class _ShareFetch:
    """One ShareFetch on its way to its answer."""

    def __init__(
        self,
        leader: ShareLeader,
        request: ShareFetchRequest,
        session: ShareSession,
        answer: FetchAnswer,
        mode: AcquireMode,
    ) -> None:
        self._leader = leader
        self._core = leader.core
        self._request = request
        self._session = session
        self._answer = answer
        self._places = session.rotated(request.share_session_epoch)
        self._mode = mode
        self.later: Later[ShareFetchResponse] = Later()
        self.later.on_abandon = self._abandon
        self._parked: ParkedRequest | None = None
        self._timer: Timer | None = None
        self._is_acquiring = False
        self._is_missed = False
        """It was woken while it was acquiring."""
        self._is_last_look = False
        self._is_abandoned = False

    def run(self) -> Steps:
        if self._request.max_wait_ms <= 0:
            yield from self._acquire()
            self.respond()
            return
        yield from self._load()
        yield from self._acquire(min_bytes=max(1, self._request.min_bytes))
        if not self._places or self._answer.has_news:
            self.respond()
        elif not self._is_abandoned:
            self._park()

    def respond(self) -> None:
        self._leave()
        self.later.settle(lambda: self._answer.response(self._session))

    def _load(self) -> Steps:
        """What is not loaded yet, a few a turn. Where it fails it fails again, for whoever tells."""
        loaded = 0
        for place in self._places:
            if self._leader.is_loaded(self._session.group_id, place):
                continue
            with contextlib.suppress(KafkaError):
                self._leader.load(self._session.group_id, place)
            loaded += 1
            if loaded % PARTITIONS_PER_STEP == 0:
                yield

    def _readable(self, place: TopicPartition, limit: int) -> tuple[LoadedPartition, int] | None:
        """How much could be read there, up to `limit`; None where it has failed, which is that partition's trouble.

        If one byte of a single partition is enough, `acquire` finds out by itself.
        """
        try:
            loaded = self._leader.load(self._session.group_id, place)
            is_enough = limit == 1 and len(self._places) == 1
            return loaded, 1 if is_enough else loaded.readable_bytes(limit)
        except KafkaError as error:
            self._answer.failed(place, error)
            return None

    def _acquire(self, *, min_bytes: int = 0) -> Steps:
        """What there is for the member, a few share-partitions a turn; nothing if that is less than `min_bytes`."""
        request = self._request
        began_ns = perf_counter_ns()
        served = found_bytes = 0
        records_left = request.max_records
        ready: list[tuple[TopicPartition, LoadedPartition]] = []
        for count, place in enumerate(self._places):
            if count and count % PARTITIONS_PER_STEP == 0:
                yield
            found = self._readable(place, max(1, min_bytes - found_bytes))
            if found is not None and found[1]:
                ready.append((place, found[0]))
                found_bytes += found[1]
        if found_bytes < min_bytes:
            return
        max_bytes = min(
            request.max_bytes, self._core.settings.int("fetch.max.bytes"), self._core.outgoing.allowance()
        )
        is_one_turn = len(self._places) <= PARTITIONS_PER_STEP
        for count, (place, loaded) in enumerate(ready):
            if count and count % PARTITIONS_PER_STEP == 0:
                yield
            if records_left <= 0 or not self._is_wanted:
                break
            try:
                if not is_one_turn:  # it may have been unloaded since
                    loaded = self._leader.load(self._session.group_id, place)
                before = loaded.engine.next_fetch_offset()
                handed = loaded.acquire(
                    self._session.member_id,
                    mode=self._mode,
                    batch_size=request.batch_size,
                    records_max=records_left,
                    max_bytes=max(1, max_bytes // len(ready)),
                )
            except KafkaError as error:
                self._answer.failed(place, error)
                continue
            if handed is not None:
                served += 1
                records_left -= handed.record_count
                self._leader.handed[self._session.group_id, self._session.member_id] += handed.record_count
                self._answer.handed(place, handed.without_records() if request.acquire_only else handed)
                self._session.served(place)
            elif loaded.engine.next_fetch_offset() != before:
                self._answer.passed_over(place)
        spent_ms = (perf_counter_ns() - began_ns) / 1_000_000
        percent = 100 * served / len(self._places) if self._places else 0.0
        self._leader.note_fetch(self._session.group_id, percent, spent_ms)

    @property
    def _is_wanted(self) -> bool:
        """Between two turns the client may have gone: whatever it acquired then would be nobody's."""
        session = self._session
        is_current = self._leader.sessions.get(session.group_id, session.member_id) is session
        return is_current and not self._is_abandoned

    def _park(self) -> None:
        lines = [self._leader.line(self._session.group_id, place) for place in self._places]
        self._parked = self._core.parked.park((), self._woken, lines)
        deadline_ms = self._core.clock.monotonic_ms() + self._request.max_wait_ms
        self._timer = self._core.timers.at(deadline_ms, self._last_look)

    def _woken(self) -> None:
        if self._is_acquiring:
            self._is_missed = True
        else:
            self._look()

    def _last_look(self) -> None:
        self._is_last_look = True
        self._woken()

    def _look(self) -> None:
        """It keeps its place in the lines until it has got something."""
        self._is_acquiring = True
        self._core.slices.run(self._try(), self.fail)

    def _try(self) -> Steps:
        yield from self._acquire(min_bytes=0 if self._is_last_look else max(1, self._request.min_bytes))
        self._is_acquiring = False
        if self._is_last_look:
            self._core.metrics.count("ExpiresPerSec")
        if self._is_last_look or self._answer.has_news:
            self.respond()
        elif self._is_missed and not self._is_abandoned:
            self._is_missed = False
            self._look()

    def fail(self, error: Exception) -> None:
        self._leave()
        self.later.fail(error)

    def _leave(self) -> None:
        """Nothing refers back to it from now on: it needs no garbage collection to go."""
        self.later.on_abandon = None
        if self._timer is not None:
            self._timer.cancel()
        if self._parked is not None:
            self._core.parked.remove(self._parked)

    def _abandon(self) -> None:
        self._is_abandoned = True
        self._leave()
