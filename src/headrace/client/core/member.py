"""A member of a share group, without its sockets: what to send to whom, given answers, failures, and the time.

Theory of operation. Something drives a `MemberCore`: it passes on what users do (`subscribe`, `ask`, `take`), what
brokers answer (`answered`, `failed`, `heartbeat_answered`, `heartbeat_failed`, `learn`) and that time has passed
(`tick`), and after each of these sends what `sends` gives. `deadline_ms` says when to call again at the latest. What
comes of it is collected in `holdings.settled`, `holdings.lost`, `hints` and `errors`, for the driver to take away.

Four parts work below it: `Membership` (the group's coordinator), one `Session` for each broker (epochs, the request
in flight), `Placement` (who leads what) and `Holdings` (what is acquired, and what becomes of it). What this file adds
is policy:

- When to fetch, and how much (`_fetch_limits`). A poll that waits asks every idle broker, no longer than it waits
  itself. An application that polls quickly gets the next records fetched while it works on the last ones, but only
  from brokers that had more to give and with no wait, so that no fetch stands in the way of an acknowledgement. In
  record_limit mode one broker is asked at a time, in turn, and never ahead.
- Acknowledgements ride on the next fetch, or go by themselves when there is none to send.
- A refusal of one acquisition must not fail the others of its partition, which the broker refuses together: they are
  sent again, each alone. The broker changes nothing when it refuses, so nothing is acknowledged twice.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.client.core.acknowledgements import Ack, Key, by_partition
from headrace.client.core.acquired import RENEW, Acquired
from headrace.client.core.backoff import Backoff
from headrace.client.core.holdings import Arrival, Holdings
from headrace.client.core.membership import Membership, State
from headrace.client.core.placement import Placement, TopicView
from headrace.client.core.session import CLOSING, FetchLimits, Sent, Session, ShareRequest
from headrace.client.errors import error_for
from headrace.client.settings import AcquireMode, ShareSettings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_acknowledge_response import ShareAcknowledgeResponse
from headrace.wire.messages.share_fetch_response import PartitionData, ShareFetchResponse
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

E = ErrorCode
RECORD_LIMIT = 1
QUICK_POLL_MS = 500
"""An application that comes back sooner than this gets its next records ahead of time."""
TURN_WAIT_MS = 100
"""How long one of several brokers may hold a fetch back when they are asked in turn."""
HELD_WAIT_MS = 20
"""How long a fetch ahead may wait while records are held, which may be acknowledged at any time."""
NOTHING = FetchLimits(0, 0, 0, 0, 0, 0)
"""Opens a session and fetches nothing."""

SESSION_GONE = {E.SHARE_SESSION_NOT_FOUND}
SESSION_CONFUSED = {E.INVALID_SHARE_SESSION_EPOCH, E.SHARE_SESSION_LIMIT_REACHED}
MOVED = {E.NOT_LEADER_OR_FOLLOWER, E.FENCED_LEADER_EPOCH}
LOCKS_GONE = MOVED | {E.UNKNOWN_TOPIC_OR_PARTITION, E.UNKNOWN_TOPIC_ID}
ASK_METADATA = LOCKS_GONE | {
    E.LEADER_NOT_AVAILABLE,
    E.REPLICA_NOT_AVAILABLE,
    E.INCONSISTENT_TOPIC_ID,
    E.KAFKA_STORAGE_ERROR,
    E.OFFSET_NOT_AVAILABLE,
}
PASS_OVER = {E.UNKNOWN_SERVER_ERROR, E.UNKNOWN_LEADER_EPOCH}
LATER = {E.COORDINATOR_NOT_AVAILABLE, E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR}
"""A refused acknowledgement that may be sent again: the broker could not write it down, and has undone it."""
CONFUSIONS_MAX = 5
"""So many refusals of a session's epoch, over default.api.timeout.ms, are not our own doing."""
ONE_OF_THEM = {E.INVALID_RECORD_STATE, E.INVALID_REQUEST}
"""A refusal that may be the fault of one acquisition among several."""


class Hint(NamedTuple):
    """A broker's word on who leads a partition now."""

    topic_id: bytes
    partition: int
    leader_id: int
    leader_epoch: int
    endpoints: Sequence[Any]


class Out(NamedTuple):
    """A request to send; to the group's coordinator when `node_id` is None."""

    node_id: int | None
    request: ShareRequest | ShareGroupHeartbeatRequest


class MemberCore:
    """See the module. `is_ahead`: fetch without being asked, up to `capacity` unsettled offsets."""

    def __init__(
        self,
        settings: ShareSettings,
        member_id: str,
        *,
        capacity: int = 0,
        is_ahead: bool = False,
        fraction: Callable[[], float],
    ) -> None:
        self.settings = settings
        self.capacity = capacity
        self.is_ahead = is_ahead
        self.patience_ms = settings.fetch_max_wait_ms
        """How long fetches ahead may wait at a broker. What is acknowledged meanwhile has to wait, too."""
        self.membership = Membership(
            settings.group_id,
            member_id,
            rack_id=settings.client_rack or None,
            poll_interval_ms=settings.max_poll_interval_ms,
            backoff=Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, fraction),
        )
        self.placement = Placement(settings, fraction)
        self.sessions: dict[int, Session] = {}
        self.holdings = Holdings(settings, self.sessions)
        self.hints: list[Hint] = []
        self.errors: list[KafkaError] = []
        self.records_wanted: int | None = None
        """The poll that waits has room for so many; None: max.poll.records."""
        self.is_paused = False
        """Nothing is fetched: renewed records come first, as in Java."""
        self.is_closing = False
        self._fraction = fraction
        self._asked_until_ms: int | None = None
        self._taken_ms: int | None = None
        self._is_quick = False
        self._is_awaited = False
        """A poll waits for what is in the buffer: it is as good as taken, and the next fetch need not wait for that."""
        self._turn = -1
        self._confusions = self._confused_ms = self._confused_since_ms = 0

    @property
    def is_record_limited(self) -> bool:
        """Strict limits on the wire. What may be held at most can only be kept that way."""
        is_strict = self.settings.share_acquire_mode is AcquireMode.RECORD_LIMIT
        return is_strict or self.settings.max_unacknowledged > 0

    # What users do

    def subscribe(self, topics: Collection[str], *, now_ms: int) -> None:
        self.membership.subscribe(topics, now_ms=now_ms)
        self._place(now_ms)
        with self.holdings.lock:
            self.holdings.release_buffer(but=self.membership.topics)

    def ask(self, until_ms: int | None) -> None:
        """Somebody waits for records until then; None: nobody does. On any thread."""
        with self.holdings.lock:
            self._asked_until_ms = until_ms

    def stop_asking(self, until_ms: int) -> None:
        """Whoever asked until then waits no more; but another one may ask by now, and goes on."""
        with self.holdings.lock:
            if self._asked_until_ms == until_ms:
                self._asked_until_ms = None

    @property
    def is_asked(self) -> bool:
        return self._asked_until_ms is not None

    @property
    def is_busy(self) -> bool:
        """Every broker has a request of ours: nothing can be sent before an answer comes. On any thread."""
        return bool(self.sessions) and all(one.in_flight is not None for one in self.sessions.copy().values())

    def came_back(self, *, now_ms: int) -> None:
        """The application wants more. On any thread; `polled` must follow on the driver's."""
        if self._taken_ms is not None:
            self._is_quick = now_ms - self._taken_ms < QUICK_POLL_MS
            self._taken_ms = None

    def polled(self, *, now_ms: int) -> None:
        """The application is alive."""
        self.membership.polled(now_ms=now_ms)

    def take(self, records_max: int, *, now_ms: int) -> list[Arrival]:
        """Arrivals of so many records or a few more, in order; at least one if there is one. On any thread."""
        holdings = self.holdings
        if not holdings.buffer:
            return []
        with holdings.lock:
            before = tuple(holdings.buffer)
            try:
                taken = holdings.take(records_max, now_ms=now_ms)
            except BaseException:
                holdings.restore(before)
                raise
            self._taken_ms = now_ms
            self._is_awaited = False
            if taken:
                # Whoever waited has got something: until it asks again, another fetch would be one ahead.
                self._asked_until_ms = None
        return taken

    def close(self) -> None:
        """No more fetches; each session gets its last acknowledgements and ends, then the member leaves."""
        self.is_closing = True
        self._asked_until_ms = None
        with self.holdings.lock:
            for session in self.sessions.values():
                for ack in [ack for ack in session.pending if ack.mark == RENEW]:
                    session.pending.remove(ack)
                    self.holdings.settle(ack, _closed())
                # The end of a session releases what is held in its partitions, but not in those it has forgotten.
                for acquired in [one for one in session.acquired() if _key(one) not in session.listed]:
                    self.holdings.release(acquired)

    @property
    def is_closed(self) -> bool:
        return self.membership.is_out and all(map(self._has_ended, self.sessions.values()))

    def _has_ended(self, session: Session) -> bool:
        return session.in_flight is None and not session.is_open

    # What to send

    def sends(self, *, now_ms: int) -> list[Out]:
        out: list[Out] = []
        with self.holdings.lock:
            for session in self.sessions.values():
                if session.in_flight is None and (self.is_closing or now_ms >= session.not_before_ms):
                    sent = self._next_request(session, now_ms)
                    if sent is not None:
                        out.append(Out(session.node_id, sent.request))
        is_in = self.membership.state in (State.MEMBER, State.JOINING)
        if self.is_closing and is_in and all(map(self._has_ended, self.sessions.values())):
            self.membership.subscribe((), now_ms=now_ms)
        heartbeat = self.membership.next_request(now_ms=now_ms)
        if heartbeat is not None:
            out.append(Out(None, heartbeat))
        return out

    def _next_request(self, session: Session, now_ms: int) -> Sent | None:
        if self.is_closing:
            if not session.is_open:
                self.holdings.fail_pending(session, _closed())
                return None
            return session.acknowledge(now_ms=now_ms, is_last=True)
        if session.pending and session.has_renewals and session.is_open:
            return session.acknowledge(now_ms=now_ms)
        limits = self._fetch_limits(session, now_ms)
        if limits is not None:
            self._turn = session.node_id
            return session.fetch(self.placement.wanted[session.node_id], limits, now_ms=now_ms)
        if not session.pending:
            return None
        if session.is_open:
            return session.acknowledge(now_ms=now_ms)
        keys = self.placement.wanted.get(session.node_id) or dict.fromkeys(ack.key for ack in session.pending)
        return session.fetch(keys, NOTHING, now_ms=now_ms)

    def _fetch_limits(self, session: Session, now_ms: int) -> FetchLimits | None:
        """What to fetch from a broker now, or None."""
        settings = self.settings
        if not self.placement.wanted.get(session.node_id) or self.is_paused:
            return None
        records_max = min(settings.max_poll_records, self.records_wanted or settings.max_poll_records)
        if self.capacity:
            asked = sum(one.in_flight.records_max for one in self.sessions.values() if one.in_flight)
            records_max = min(records_max, self.capacity - self.holdings.outstanding - asked)
            if records_max <= 0:
                return None
        wait_ms = self._fetch_wait_ms(session, now_ms)
        if wait_ms is None:
            return None
        if self.is_record_limited and not self._is_its_turn(session, now_ms):
            return None
        if self.is_record_limited and len(self.placement.wanted) > 1:
            wait_ms = min(wait_ms, TURN_WAIT_MS)
        if session.next_due_ms is not None:
            wait_ms = max(0, min(wait_ms, session.next_due_ms - now_ms))
        return FetchLimits(
            records_max=records_max,
            batch_size=records_max,
            bytes_min=settings.fetch_min_bytes if wait_ms else 0,
            bytes_max=settings.fetch_max_bytes,
            wait_ms=wait_ms,
            acquire_mode=RECORD_LIMIT if self.is_record_limited else 0,
        )

    def _fetch_wait_ms(self, session: Session, now_ms: int) -> int | None:
        """How long a fetch may wait at the broker; None when there is to be none."""
        if self.is_ahead:
            # A fetch that waits would keep the answers to the acknowledgements in it waiting too.
            if session.pending and session.is_open:
                return 0
            if not self.patience_ms and now_ms < session.rest_until_ms:
                return None
            return min(self.patience_ms, HELD_WAIT_MS) if self.holdings.outstanding else self.patience_ms
        if self._asked_until_ms is not None and not self.holdings.buffered:
            return max(0, min(self.settings.fetch_max_wait_ms, self._asked_until_ms - now_ms))
        if session.buffered and not self._is_awaited:
            return None
        may_be_ahead = self._is_quick and session.was_full and not self.is_record_limited
        if not may_be_ahead or not session.is_open:
            return None
        self._is_awaited = False
        return 0

    def _is_its_turn(self, session: Session, now_ms: int) -> bool:
        if any(one.is_fetching for one in self.sessions.values()):
            return False
        nodes = sorted(node for node in self.placement.wanted if now_ms >= self._session(node).not_before_ms)
        return session.node_id == next((node for node in nodes if node > self._turn), nodes[0])

    def deadline_ms(self, *, now_ms: int) -> int | None:
        """When `tick` and `sends` want to be called, if nothing else happens."""
        times = [self.membership.deadline_ms(), self.placement.metadata_due_ms]
        for session in self.sessions.values():
            times += (session.not_before_ms, session.rest_until_ms)
            if session.next_due_ms is not None:
                times.append(max(session.next_due_ms, now_ms + 1))  # a late response can be due on arrival
        return min((time for time in times if time is not None and time > now_ms), default=None)

    def idle_ms(self, since_ms: int) -> int:
        """How long since then every broker that leads a partition of ours has been asked and had nothing for us.

        The caller knows that nothing arrived since then. 0 when there is no telling: no partition is assigned, one has
        no leader, a session is not open, or its brokers do not answer.
        """
        sessions = [self.sessions.get(node_id) for node_id in self.placement.wanted]
        if not self.placement.is_complete or None in sessions:
            return 0
        times = [
            one.asked_ms - max(since_ms, one.opened_ms) if one.is_open else 0
            for one in sessions
            if one is not None
        ]
        return max(0, min(times, default=0))

    # What the coordinator answers, what the metadata says

    def heartbeat_answered(self, response: ShareGroupHeartbeatResponse, *, now_ms: int) -> None:
        self.membership.answered(response, now_ms=now_ms)
        self._after_heartbeat(now_ms)

    def heartbeat_failed(self, error: KafkaError, *, now_ms: int) -> None:
        self.membership.failed(error, now_ms=now_ms)
        self._after_heartbeat(now_ms)

    def _after_heartbeat(self, now_ms: int) -> None:
        if self.membership.refusal is not None:
            self._raise_later(self.membership.refusal)
            self.membership.refusal = None
        if self.membership.assignment != self.placement.assignment:
            self._place(now_ms)

    def learn(self, topics: Mapping[bytes, TopicView], *, now_ms: int) -> None:
        """The metadata of the topics that the assignment names, as far as there is any."""
        self.placement.learn(topics, now_ms=now_ms)
        self._open_sessions()

    def _place(self, now_ms: int) -> None:
        self.placement.assign(self.membership.assignment, now_ms=now_ms)
        self._open_sessions()

    def _open_sessions(self) -> None:
        for node_id in self.placement.wanted:
            self._session(node_id)

    def _session(self, node_id: int) -> Session:
        session = self.sessions.get(node_id)
        if session is None:
            settings = self.settings
            backoff = Backoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._fraction)
            session = Session(node_id, settings.group_id, self.membership.member_id, backoff)
            self.sessions[node_id] = session
        return session

    # What brokers answer

    def answered(
        self, node_id: int, response: ShareFetchResponse | ShareAcknowledgeResponse, *, now_ms: int
    ) -> None:
        with self.holdings.lock:
            session = self.sessions[node_id]
            if response.error_code:
                self._refused(session, response, now_ms)
            else:
                self._accepted(session, response, now_ms)
            if response.throttle_time_ms:
                throttled_ms = now_ms + response.throttle_time_ms
                session.not_before_ms = max(session.not_before_ms, throttled_ms)

    def failed(self, node_id: int, error: KafkaError, *, now_ms: int) -> None:
        """No answer, or the connection has ended: the broker releases what was acquired over it."""
        with self.holdings.lock:
            session = self.sessions[node_id]
            sent = session.reopen()
            self.holdings.lose_all(session, error)
            for ack in sent.acks if sent is not None else ():
                self.holdings.settle(ack, error)
            self.holdings.fail_pending(session, error)
            session.back_off(now_ms=now_ms)
            session.was_full = False
            if error.code is E.UNSUPPORTED_VERSION:
                self._raise_later(error)
            if self.placement.wanted.get(node_id):
                self.placement.want_metadata(now_ms=now_ms)

    def _accepted(
        self, session: Session, response: ShareFetchResponse | ShareAcknowledgeResponse, now_ms: int
    ) -> None:
        if session.in_flight is not None and session.in_flight.request.share_session_epoch == CLOSING:
            sent = session.reopen()
            assert sent is not None
            session.held.clear()
        else:
            if not session.is_open:
                session.opened_ms = now_ms
            sent = session.accepted()
        session.went_well()
        self.holdings.lock_ms = response.acquisition_lock_timeout_ms or self.holdings.lock_ms
        codes: dict[Key, tuple[int, str | None]] = {}
        if isinstance(response, ShareFetchResponse):
            for topic in response.responses:
                for one in topic.partitions:
                    code = one.acknowledge_error_code, one.acknowledge_error_message
                    codes[topic.topic_id, one.partition_index] = code
        else:
            for acknowledged in response.responses:
                for each in acknowledged.partitions:
                    codes[acknowledged.topic_id, each.partition_index] = each.error_code, each.error_message
                    if each.error_code in MOVED:
                        self._hint(acknowledged.topic_id, each, response.node_endpoints)
        # First the acknowledgements: one that is to be sent again must give way to a new delivery of its record.
        self._answer_acks(session, sent, codes, now_ms)
        if isinstance(response, ShareFetchResponse):
            self._take_fetch(session, sent, response, now_ms)

    def _refused(
        self, session: Session, response: ShareFetchResponse | ShareAcknowledgeResponse, now_ms: int
    ) -> None:
        about = f"share session with broker {session.node_id}"
        error = error_for(response.error_code, response.error_message, about=about)
        code = error.code
        assert session.in_flight is not None
        is_last = session.in_flight.request.share_session_epoch == CLOSING
        if code in SESSION_CONFUSED and not is_last:
            if code is E.INVALID_SHARE_SESSION_EPOCH:
                self._look_for_double(session, now_ms)
            sent = session.reopen()
            assert sent is not None
            for ack in sent.acks:
                self._again(session, ack, error, now_ms)
        elif code in SESSION_GONE or is_last:
            sent = session.reopen()
            assert sent is not None
            self.holdings.lose_all(session, error)
            for ack in sent.acks:
                self.holdings.settle(ack, error)
            self.holdings.fail_pending(session, error)
        else:
            # What the broker has made of the request is unknown, also of the partitions in it: the next one opens the
            # session anew, which leaves the locks alone.
            sent = session.reopen()
            assert sent is not None
            for ack in sent.acks:
                self.holdings.settle(ack, error)
            if code not in PASS_OVER:
                self._raise_later(error)
            self.placement.want_metadata(now_ms=now_ms)
        session.was_full = False
        session.back_off(now_ms=now_ms)

    def _look_for_double(self, session: Session, now_ms: int) -> None:
        """A broker that restarts has no session. One that has ours with another epoch has heard from somebody else."""
        patience_ms = self.settings.default_api_timeout_ms
        if now_ms - self._confused_ms > patience_ms:
            self._confusions, self._confused_since_ms = 0, now_ms
        self._confusions, self._confused_ms = self._confusions + 1, now_ms
        if self._confusions >= CONFUSIONS_MAX and now_ms - self._confused_since_ms >= patience_ms:
            text = f"somebody else uses member id {self.membership.member_id} of group {self.settings.group_id!r}"
            about = f"share session with broker {session.node_id}"
            self._raise_later(error_for(E.INVALID_SHARE_SESSION_EPOCH, text, about=about))

    def _take_fetch(self, session: Session, sent: Sent, response: ShareFetchResponse, now_ms: int) -> None:
        records = 0
        has_errors = False
        for topic in response.responses:
            for one in topic.partitions:
                key = topic.topic_id, one.partition_index
                if one.error_code:
                    has_errors = True
                    self._partition_error(session, key, one, response, now_ms)
                elif one.acknowledge_error_code in MOVED:
                    self._hint(topic.topic_id, one, response.node_endpoints)
                if one.acquired_records:
                    records += self._arrive(
                        session, key, one, response.acquisition_lock_timeout_ms, sent.sent_ms, now_ms
                    )
        if has_errors and not records:
            session.back_off(now_ms=now_ms)
        elif sent.records_max:
            session.fetched(sent, records, has_errors=has_errors, now_ms=now_ms)

    def _arrive(
        self, session: Session, key: Key, data: PartitionData, lock_ms: int, sent_ms: int, now_ms: int
    ) -> int:
        if self._asked_until_ms is not None and not self.holdings.buffered:
            self._is_awaited = True
        topic = self.placement.name_of(key[0]) or ""
        count = self.holdings.arrive(
            session, key, data, topic=topic, lock_ms=lock_ms, sent_ms=sent_ms, now_ms=now_ms
        )
        if not self.membership.topics or self.is_closing:
            self.holdings.release_buffer()
        return count

    def _partition_error(
        self, session: Session, key: Key, data: PartitionData, response: ShareFetchResponse, now_ms: int
    ) -> None:
        error = error_for(data.error_code, data.error_message, about=self.placement.about(key))
        code = error.code
        if code in LOCKS_GONE:
            for acquired in list(session.held.get(key, ())):
                self.holdings.lose(acquired, error)
        if code in ASK_METADATA:
            if code in MOVED:
                self._hint(key[0], data, response.node_endpoints)
            self.placement.want_metadata(now_ms=now_ms)
        elif code not in PASS_OVER:
            self._raise_later(error)

    def _raise_later(self, error: KafkaError) -> None:
        """For the next poll; what is waiting to be raised is not said twice."""
        if str(error) not in map(str, self.errors):
            self.errors.append(error)

    def _hint(self, topic_id: bytes, one: Any, endpoints: Sequence[Any]) -> None:
        leader = one.current_leader
        self.hints.append(
            Hint(topic_id, one.partition_index, leader.leader_id, leader.leader_epoch, endpoints)
        )

    # What becomes of acknowledgements
    def _answer_acks(
        self, session: Session, sent: Sent, codes: Mapping[Key, tuple[int, str | None]], now_ms: int
    ) -> None:
        failed: dict[Key, KafkaError] = {}
        several = {
            key: any(ack.acquired is not acks[0].acquired for ack in acks)
            for key, acks in by_partition(sent.acks).items()
        }
        for key in several:
            code, message = codes.get(key, (E.INVALID_RECORD_STATE, "The broker has not answered for it."))
            if code:
                failed[key] = error_for(code, message, about=self.placement.about(key))
                if code in LOCKS_GONE:
                    self.placement.want_metadata(now_ms=now_ms)
        for ack in sent.acks:
            error = failed.get(ack.key)
            if error is None:
                self.holdings.settle(ack, None, sent)
            elif error.code in LATER:
                session.back_off(now_ms=now_ms)
                self._again(session, ack, error, now_ms)
            elif error.code in ONE_OF_THEM and several[ack.key] and session.is_open:
                self._again(session, ack._replace(is_alone=True), error, now_ms)
            else:
                self.holdings.settle(ack, error)
        for key, error in failed.items():
            if error.code in LOCKS_GONE:
                for acquired in list(session.held.get(key, ())):
                    self.holdings.lose(acquired, error)

    def _again(self, session: Session, ack: Ack, error: KafkaError, now_ms: int) -> None:
        if self.is_closing:
            self.holdings.settle(ack, error)
        else:
            self.holdings.again(session, ack, error, now_ms=now_ms)

    # Locks

    def tick(self, *, now_ms: int) -> None:
        """Looks at everything whose time may have come."""
        is_stuck = self.membership.tick(now_ms=now_ms)
        with self.holdings.lock:
            if is_stuck:
                self.holdings.release_buffer()
                self._place(now_ms)
            self.holdings.look_at_locks(is_out=self.membership.state is State.OUT, now_ms=now_ms)


def _key(acquired: Acquired) -> Key:
    return acquired.topic_id, acquired.partition


def _closed() -> KafkaError:
    return error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session has ended", about="this consumer")
