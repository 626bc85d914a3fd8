"""ShareFetch (78), v1-v2: opens, extends and closes a share session, takes acknowledgements, returns records.

The response waits until MinBytes can be acquired or MaxWaitMs have passed. v2 adds the acquire mode (KIP-1206) and
RENEW (KIP-1222). Refused as a whole: no group or member id 42, unknown session 122, wrong epoch 123,
acknowledgements in the request that opens a session 42, too many sessions 133.

`acquire_only` is ours, a tagged field that Kafka passes over: the member gets the ranges, and instead of their records
how many bytes these have.
"""

import contextlib
from collections.abc import Collection
from time import perf_counter_ns
from typing import TYPE_CHECKING

from headrace.broker.call import Call
from headrace.broker.errors import engine_error
from headrace.broker.later import Later, resolved
from headrace.broker.parked import ParkedRequest
from headrace.broker.security.acls import unreadable
from headrace.broker.share.leader import PARTITIONS_PER_STEP, Results
from headrace.broker.share.loaded import PASSED_OVER, LoadedPartition
from headrace.broker.share.requests import Acks, acks_of, identify, take_denied
from headrace.broker.share.responses import ShareFetchResult
from headrace.broker.slices import Steps
from headrace.broker.timers import Timer
from headrace.share.errors import SessionLimitReached, ShareError
from headrace.share.modes import AcquireMode
from headrace.share.session import CLOSE_EPOCH, OPEN_EPOCH, ShareSession
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.ids import TopicIdPartition
from headrace.wire.messages.share_fetch_request import ShareFetchRequest
from headrace.wire.messages.share_fetch_response import ShareFetchResponse

if TYPE_CHECKING:
    from headrace.broker.core import BrokerCore

VERSIONS = (1, 2)
TAKES_MANY = True


def handle(
    core: "BrokerCore", request: ShareFetchRequest, call: Call
) -> ShareFetchResponse | Later[ShareFetchResponse]:
    core.share_leader.fetches.value += 1
    core.features.require_share_groups()
    group_id, member_id = identify(request.group_id, request.member_id)
    _check(request)
    acks = acks_of(request)
    try:
        session = _session(core, request, group_id, member_id, acks, call)
    except SessionLimitReached as error:
        return _refuse_later(core, request.max_wait_ms, str(error))
    fetch = _ShareFetch(core, request, session, _acquire_mode(request), call)
    if core.access is not None:
        fetch.leave_out(unreadable(core, call, [place[0] for place in (*session.partitions, *acks)]), acks)
    core.slices.run(fetch.run(acks), fetch.fail)
    return fetch.later.now()


def _check(request: ShareFetchRequest) -> None:
    """Before the session is touched: its epoch is not consumed by a request that makes no sense."""
    if request.is_renew_ack and (
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    ):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "a request with renewals cannot fetch records: MaxBytes, MinBytes, MaxRecords and MaxWaitMs must be 0",
        )


def _acquire_mode(request: ShareFetchRequest) -> AcquireMode:
    """Asked for after the session: as in Kafka, a request with a mode that does not exist uses up its epoch."""
    try:
        return AcquireMode(request.share_acquire_mode)
    except ValueError:
        known = ", ".join(f"{mode.value} {mode.name.lower()}" for mode in AcquireMode)
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"unknown share acquire mode {request.share_acquire_mode}; expected one of {known}",
        ) from None


def _partitions_of(request: ShareFetchRequest) -> list[TopicIdPartition]:
    """librdkafka may name a topic more than once; together they are one list."""
    return [
        (topic.topic_id, partition.partition_index)
        for topic in request.topics
        for partition in topic.partitions
    ]


def _session(
    core: "BrokerCore", request: ShareFetchRequest, group_id: str, member_id: str, acks: Acks, call: Call
) -> ShareSession:
    forgotten = [
        (topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions
    ]
    leader = core.share_leader
    try:
        session = leader.sessions.fetch(
            group_id,
            member_id,
            request.share_session_epoch,
            connection_id=str(call.connection_id),
            added=_partitions_of(request),
            forgotten=forgotten,
            has_acknowledgements=bool(acks),
        )
    except SessionLimitReached:
        raise
    except ShareError as error:
        raise engine_error(error) from error
    if request.share_session_epoch == OPEN_EPOCH:
        leader.names.opened(session, call)
    return session


def _refuse_later(core: "BrokerCore", wait_ms: int, message: str) -> Later[ShareFetchResponse]:
    """Held back for the time it would have waited, so that a client without a session does not hammer."""
    refusal = ShareFetchResponse(error_code=ErrorCode.SHARE_SESSION_LIMIT_REACHED, error_message=message)
    if wait_ms <= 0:
        return resolved(refusal)
    later: Later[ShareFetchResponse] = Later()
    deadline_ms = core.clock.monotonic_ms() + wait_ms
    later.on_abandon = core.timers.at(deadline_ms, lambda: later.resolve(refusal)).cancel
    return later


class _ShareFetch:
    """One ShareFetch on its way to its response.

    It tries the session's partitions in turn, beginning at another one each time. One that finds nothing waits in the
    line of each of its share-partitions, for new records and for what comes back or frees room.
    """

    def __init__(
        self,
        core: "BrokerCore",
        request: ShareFetchRequest,
        session: ShareSession,
        mode: AcquireMode,
        call: Call,
    ) -> None:
        self._leader = core.share_leader
        self._core = core
        self._request = request
        self._session = session
        self._result = ShareFetchResult(core, session.group_id, call.listener)
        self._places = session.rotated(request.share_session_epoch)
        self._mode = mode
        self.later: Later[ShareFetchResponse] = Later()
        self.later.on_abandon = self._abandon
        self._parked: ParkedRequest | None = None
        self._timer: Timer | None = None
        self._is_acquiring = False
        self._is_missed = False
        """It was woken while it was acquiring."""
        self._is_timed_out = False
        self._is_abandoned = False
        self._denied: list[TopicIdPartition] = []
        self._refused: Results = {}

    def leave_out(self, denied: Collection[bytes], acks: Acks) -> None:
        """Topics that the client may not read. Decided once: a fetch that waits keeps its permission, as in Kafka."""
        if denied:
            self._denied = [place for place in self._places if place[0] in denied]
            self._places = [place for place in self._places if place[0] not in denied]
            self._refused = take_denied(acks, denied)

    def run(self, acks: Acks) -> Steps:
        request = self._request
        if acks or self._refused:
            results = self._refused
            yield from self._leader.acknowledge(
                self._session, acks, results, allows_renew=request.is_renew_ack
            )
            self._result.acknowledged(results)
        if request.share_session_epoch == CLOSE_EPOCH:
            self._leader.close(self._session)
        elif not request.is_renew_ack and request.max_records > 0 and request.max_bytes > 0:
            self._result.denied(self._denied)
            if len(self._places) > PARTITIONS_PER_STEP:
                yield from self._load()
            yield from self._acquire(0 if request.max_wait_ms <= 0 else max(1, request.min_bytes))
            if request.max_wait_ms > 0 and self._places and not self._result.has_news:
                if not self._is_abandoned:
                    self._park()
                return
        self.respond()

    def respond(self) -> None:
        self._leave()
        self.later.settle(self._respond)

    def _respond(self) -> ShareFetchResponse:
        listed = self._result.partitions(self._session)
        response = self._result.response(listed)
        for place in listed:
            self._session.listed(place, has_error=self._result.has_failed(place))
        return response

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

    def _readable(self, place: TopicIdPartition, limit: int) -> tuple[LoadedPartition, int] | None:
        """How much could be read there, up to `limit`; None where it has failed, which is that partition's trouble."""
        try:
            loaded = self._leader.load(self._session.group_id, place)
            return loaded, loaded.readable_bytes(limit)
        except KafkaError as error:
            self._result.failed(place, error)
            return None

    def _acquire(self, min_bytes: int) -> Steps:
        """What there is for the member, a few share-partitions a turn; nothing if that is less than `min_bytes`."""
        request, session = self._request, self._session
        began_ns = perf_counter_ns()
        served = found_bytes = 0
        records_left = request.max_records
        ready: list[tuple[TopicIdPartition, LoadedPartition]] = []
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
            request.max_bytes, self._core.settings.get_int("fetch.max.bytes"), self._core.outgoing.allowance()
        )
        is_one_turn = len(self._places) <= PARTITIONS_PER_STEP
        for count, (place, loaded) in enumerate(ready):
            if count and count % PARTITIONS_PER_STEP == 0:
                yield
            if records_left <= 0 or not self._is_wanted:
                break
            try:
                if not is_one_turn:  # it may have been unloaded since
                    loaded = self._leader.load(session.group_id, place)
                handed = loaded.acquire(
                    session.member_id,
                    mode=self._mode,
                    batch_size=request.batch_size,
                    records_max=records_left,
                    max_bytes=max(1, max_bytes // len(ready)),
                    wants_records=not request.acquire_only,
                )
            except KafkaError as error:
                self._result.failed(place, error)
                continue
            if handed is PASSED_OVER:
                self._result.passed_over()
            elif handed is not None:
                served += 1
                records_left -= handed.record_count
                self._leader.handed[session.group_id, session.member_id] += handed.record_count
                self._core.count_fetched(loaded.partition.topic.name, len(handed.records))
                self._result.handed(place, handed)
                session.served(place)
        spent_ms = (perf_counter_ns() - began_ns) / 1_000_000
        percent = 100 * served / len(self._places) if self._places else 0.0
        self._leader.note_fetch(session.group_id, percent, spent_ms)

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
        self._timer = self._core.timers.at(deadline_ms, self._time_out)

    def _woken(self) -> None:
        if self._is_acquiring:
            self._is_missed = True
        else:
            self._retry()

    def _time_out(self) -> None:
        self._is_timed_out = True
        self._woken()

    def _retry(self) -> None:
        """It keeps its place in the lines until it has got something."""
        self._is_acquiring = True
        self._core.slices.run(self._try(), self.fail)

    def _try(self) -> Steps:
        yield from self._acquire(0 if self._is_timed_out else max(1, self._request.min_bytes))
        self._is_acquiring = False
        if self._is_timed_out:
            self._core.metrics.count("ExpiresPerSec")
        if self._is_timed_out or self._result.has_news:
            self.respond()
        elif self._is_missed and not self._is_abandoned:
            self._is_missed = False
            self._retry()

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
