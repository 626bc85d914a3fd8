"""A member of a share group, without its sockets: events in, commands out.

Theory of operation. Something drives a `MemberCore`: it passes on what the application does (`subscribe`, `poll_began`,
`poll_waits`, `take`, `answer`), what brokers respond (`responded`, `failed`, `heartbeat_responded`, `heartbeat_failed`,
`learn`) and after each of these carries out what `commands` gives, which also is how time passes. `deadline_ms` says
when to call it again at the latest. There is no lock and no clock in here: whoever uses several threads takes a lock
around every call, and times are milliseconds of any clock that does not go back.

Six parts work below it: `Membership` (the group's coordinator), one `BrokerSession` for each broker (epochs, the
request in flight), `Placement` (who leads what), `Holdings` (what is acquired, and what becomes of it), `Hands` (what
the application does with it) and `LockKeeper` (what becomes of it as time passes).
What this file adds is policy:

- When to fetch, and how much (`_fetch_limits`). A poll that waits asks every idle broker, no longer than it waits
  itself. An application that polls quickly gets the next records fetched while it works on the last ones, but only
  from brokers that had more to give and with no wait, so that no fetch stands in the way of an acknowledgement. In
  record_limit mode one broker is asked at a time, in turn, and never ahead.
- Acknowledgements ride on the next fetch, or go by themselves when there is none to send. A fetch that would wait for
  long does not wait then: the broker responds to both at once.
- A response's acknowledgements are settled before its records arrive: a refused one that is to be sent again must give
  way to a new delivery of its record.
- The usual responses (`core/usual.py`) go a shorter way to the same state: see `_responded_usually`.
- A refusal of one acquisition must not fail the others of its partition, which the broker refuses together: they are
  sent again, each alone. The broker changes nothing when it refuses, so nothing is acknowledged twice.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from headrace.base.backoff import Jitter, RetryBackoff
from headrace.client.core.acknowledgements import Ack, Commit, Key, Lost, Settled, by_partition
from headrace.client.core.hands import Hands
from headrace.client.core.holdings import Arrival, Holdings
from headrace.client.core.locks import LockKeeper
from headrace.client.core.membership import Membership, MembershipState
from headrace.client.core.placement import Placement, TopicView
from headrace.client.core.ranges import AcquiredRange
from headrace.client.core.session import LAST_WAIT_MS, BrokerSession, FetchLimits, Sent, ShareRequest
from headrace.client.core.usual import UsualAcknowledge, UsualFetch
from headrace.client.errors import error_for
from headrace.client.settings import ShareSettings
from headrace.share.modes import AcquireMode
from headrace.wire.error_groups import COORDINATOR_PASSING, LEADER_MOVED, UNKNOWN_TOPIC
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
CHECK_TOPICS_MS = 1_000
"""A subscribed topic of which no partition was assigned for this long is looked up: it may not exist."""
NEVER_MS = 1 << 62
NO_NEWS: tuple[Sequence[Settled], Sequence[Lost]] = (), ()
NO_TOPICS: Collection[str] = ()
NOTHING = FetchLimits(0, 0, 0, 0, 0, 0)
"""Opens a session and fetches nothing."""

SESSION_GONE = {E.SHARE_SESSION_NOT_FOUND}
EPOCH_ERRORS = {E.INVALID_SHARE_SESSION_EPOCH, E.SHARE_SESSION_LIMIT_REACHED}
LOCKS_GONE = LEADER_MOVED | UNKNOWN_TOPIC
ASK_METADATA = LOCKS_GONE | {
    E.LEADER_NOT_AVAILABLE,
    E.REPLICA_NOT_AVAILABLE,
    E.INCONSISTENT_TOPIC_ID,
    E.KAFKA_STORAGE_ERROR,
    E.OFFSET_NOT_AVAILABLE,
}
PASS_OVER = {E.UNKNOWN_SERVER_ERROR, E.UNKNOWN_LEADER_EPOCH}
EPOCH_ERRORS_MAX = 5
"""So many refusals of a session's epoch, over default.api.timeout.ms, are not our own doing."""
ONE_OF_THEM = {E.INVALID_RECORD_STATE, E.INVALID_REQUEST}
"""A refusal that may be the fault of one acquisition among several."""


ShareResponse = ShareFetchResponse | ShareAcknowledgeResponse | UsualFetch | UsualAcknowledge
FINE: tuple[int, str | None] = 0, None


class LeaderHint(NamedTuple):
    """A broker's word on who leads a partition now."""

    topic_id: bytes
    partition: int
    leader_id: int
    leader_epoch: int
    endpoints: Sequence[Any]


class Send(NamedTuple):
    """A request for the broker `node_id`."""

    node_id: int
    request: ShareRequest
    is_apart: bool
    """It must not go over the connection of the session, where a fetch is held back."""


class Heartbeat(NamedTuple):
    """A request for the group's coordinator, which has to be looked up (again) first if it `is_lost`."""

    request: ShareGroupHeartbeatRequest
    is_lost: bool


class Refresh(NamedTuple):
    """New metadata is wanted of these; `learn` or `metadata_failed` follows."""

    topics: frozenset[str]
    topic_ids: Sequence[bytes]


class Commands(NamedTuple):
    """What to do now. Most of it is empty most of the time."""

    sends: Sequence[Send]
    heartbeat: Heartbeat | None
    refresh: Refresh | None
    settled: Sequence[Settled]
    """To be told to the application, as is `lost`."""
    lost: Sequence[Lost]
    hints: Sequence[LeaderHint]
    check_topics: Collection[str]
    """Subscribed topics that perhaps do not exist."""


NO_COMMANDS = Commands((), None, None, (), (), (), ())


class MemberCore:
    """See the module. `is_ahead`: fetch without being asked, up to `capacity` unsettled offsets.

    `acquire_only`: the records are of no use here, so brokers that can leave them out.
    """

    def __init__(
        self,
        settings: ShareSettings,
        member_id: str,
        *,
        jitter: Jitter,
        capacity: int = 0,
        is_ahead: bool = False,
        acquire_only: bool = False,
    ) -> None:
        self._settings = settings
        self._jitter = jitter
        self._capacity = capacity
        self._is_ahead = is_ahead
        self._acquire_only = acquire_only
        self._fetch_wait_limit_ms = settings.fetch_max_wait_ms
        """How long fetches ahead may wait at a broker. What is acknowledged meanwhile has to wait, too."""
        self._membership = Membership(
            settings.group_id,
            member_id,
            rack_id=settings.client_rack or None,
            poll_interval_ms=settings.max_poll_interval_ms,
            backoff=RetryBackoff(settings.retry_backoff_ms, settings.retry_backoff_max_ms, jitter.fraction),
        )
        self._placement = Placement(settings, jitter)
        self._sessions: dict[int, BrokerSession] = {}
        self._holdings = Holdings()
        self._hands = Hands(self._holdings)
        self._locks = LockKeeper(self._holdings, self._sessions, settings, is_ahead=is_ahead)
        self._hints: list[LeaderHint] = []
        self._errors: list[KafkaError] = []
        self._records_wanted: int | None = None
        """The poll that waits has room for so many; None: max.poll.records."""
        self._is_paused = False
        self._is_closing = False
        self._sends_answers = False
        """What is answered goes with the next commands."""
        self._asked_until_ms: int | None = None
        self._taken_ms: int | None = None
        self._is_quick = False
        self._is_awaited = False
        """A poll waits for what is in the buffer: it is as good as taken, and the next fetch need not wait for that."""
        self._check_topics_ms: int | None = None
        self._due_ms = 0
        """Nothing happens by itself before this time, unless something else happens first: see `deadline_ms`."""
        self._is_calm = False
        """Since the last `deadline_ms`, nothing has happened that changes what is due, except to locks: heartbeats and
        metadata need not be looked at before `_calm_until_ms`."""
        self._calm_until_ms = 0
        self._is_record_limited = (
            settings.share_acquire_mode is AcquireMode.RECORD_LIMIT or settings.max_unacknowledged > 0
        )
        self._turn = -1
        self._epoch_errors = self._last_epoch_error_ms = self._first_epoch_error_ms = 0

    # Facts

    @property
    def settings(self) -> ShareSettings:
        return self._settings

    @property
    def membership(self) -> Membership:
        return self._membership

    @property
    def hands(self) -> Hands:
        """What the application does with records."""
        return self._hands

    @property
    def placement(self) -> Placement:
        return self._placement

    @property
    def sessions(self) -> Mapping[int, BrokerSession]:
        return self._sessions

    @property
    def failure(self) -> KafkaError | None:
        """Why the member cannot go on."""
        return self._membership.failure

    @property
    def has_error(self) -> bool:
        """There is something for a poll to raise."""
        return bool(self._errors) or self._membership.failure is not None

    @property
    def is_record_limited(self) -> bool:
        """Strict limits on the wire. What may be held at most can only be kept that way."""
        return self._is_record_limited

    @property
    def is_paused(self) -> bool:
        """Nothing is fetched. Where renewed records come back with a poll they come first, as in Java."""
        return self._is_paused or (not self._settings.max_unacknowledged and self._hands.is_renewing)

    @property
    def is_asked(self) -> bool:
        """A poll waits."""
        return self._asked_until_ms is not None

    @property
    def is_busy(self) -> bool:
        """Every broker has a request of ours: nothing can be sent before a response comes."""
        return bool(self._sessions) and all(one.in_flight is not None for one in self._sessions.values())

    @property
    def is_closing(self) -> bool:
        return self._is_closing

    @property
    def is_closed(self) -> bool:
        return self._membership.is_out and all(map(self._has_ended, self._sessions.values()))

    @property
    def asked_ms(self) -> int:
        """When the last fetch was sent to which a broker has responded without an error; 0: there was none."""
        return max((session.asked_ms for session in self._sessions.values()), default=0)

    def _has_ended(self, session: BrokerSession) -> bool:
        return session.in_flight is None and not session.is_open

    def configure(
        self,
        *,
        capacity: int | None = None,
        is_paused: bool | None = None,
        fetch_wait_ms: int | None = None,
        auto_renew: bool | None = None,
    ) -> None:
        """`fetch_wait_ms`: how long fetches ahead may wait at a broker. See `LockKeeper.configure` for `auto_renew`."""
        self._capacity = self._capacity if capacity is None else capacity
        self._is_paused = self._is_paused if is_paused is None else is_paused
        if fetch_wait_ms is not None:
            self._fetch_wait_limit_ms = fetch_wait_ms
        self._locks.configure(auto_renew=auto_renew)

    # What the application does

    def subscribe(self, topics: Collection[str], *, now_ms: int) -> None:
        self._is_calm = False
        if not frozenset(topics) <= self._membership.topics:
            self._check_topics_ms = now_ms + CHECK_TOPICS_MS
        self._membership.subscribe(topics, now_ms=now_ms)
        self._place(now_ms)
        self._hands.put_back()
        self._hands.release_buffer(but=self._membership.topics)

    def poll_began(self, *, now_ms: int, records_wanted: int | None = None) -> None:
        """The application is alive and wants more; what it has answered so far is sent."""
        self._records_wanted = records_wanted
        if self._taken_ms is not None:
            self._is_quick = now_ms - self._taken_ms < QUICK_POLL_MS
            self._taken_ms = None
        self._polled(now_ms)
        self._sends_answers = True

    def poll_waits(self, until_ms: int, *, now_ms: int) -> None:
        """Nothing is there: the poll waits until then."""
        self._asked_until_ms = until_ms
        self._polled(now_ms)
        self._sends_answers = True

    def _polled(self, now_ms: int) -> None:
        if self._membership.polled(now_ms=now_ms):
            self._is_calm = False

    def poll_ended(self, until_ms: int) -> None:
        """The poll that waited until then waits no more; but another one may wait by now, and goes on."""
        if self._asked_until_ms == until_ms:
            self._asked_until_ms = None

    def take(self, records_max: int, *, now_ms: int) -> list[Arrival]:
        """Arrivals of so many records or a few more, in order; at least one if there is one. `decoded` must follow."""
        if not self._hands.has_arrivals:
            return []
        taken = self._hands.take(records_max, now_ms=now_ms)
        self._taken_ms = now_ms
        self._is_awaited = False
        if taken:
            # Whoever waited has got something: until it asks again, another fetch would be one ahead.
            self._asked_until_ms = None
        return taken

    def take_whole(self, records_max: int, *, now_ms: int) -> list[Arrival]:
        """`take` for who hands all of it out without a look at the records."""
        taken = self.take(records_max, now_ms=now_ms)
        for arrival in taken:
            for acquired in arrival.acquired:
                self._hands.hand_out(acquired)
        self._hands.decoded()
        return taken

    def answer_all(self, acquired: AcquiredRange, first: int, last: int, type: int) -> bool:
        """The answer for a range of offsets, which goes with the next commands; False when there was one before."""
        is_new = self._hands.answer_all(acquired, first, last, type)
        self.send_answers()
        return is_new

    def send_answers(self) -> None:
        """What is answered so far goes with the next commands."""
        self._sends_answers = True

    def commit(self) -> Commit:
        """The same, and what waits for the responses."""
        return self._holdings.commit(self._holdings.send_answers())

    def take_error(self, *, now_ms: int) -> KafkaError | None:
        """What the poll is to raise. After most errors the member goes on; one that cannot go on says so each time."""
        if self._errors:
            return self._errors.pop(0)
        failure = self.failure
        if failure is not None:
            self._is_calm = False
            self._membership.failure_was_told(now_ms=now_ms)
        return failure

    def close(self, until_ms: int, *, now_ms: int) -> None:
        """No more fetches; each session gets its last acknowledgements and ends, then the member leaves.

        Whoever calls this waits for it until `until_ms`.
        """
        self._is_closing = True
        self._is_calm = False
        self._asked_until_ms = None
        self._holdings.release_delayed()
        self._holdings.send_answers()
        for node_id, session in self._sessions.items():
            session.leave_behind(until_ms, now_ms=now_ms)
            self._holdings.fail_renewals(node_id, _closed())
            # The end of a session releases what is held in its partitions, but not in those it has forgotten.
            self._holdings.release_unlisted(node_id, session.listed)

    # Out

    def commands(self, *, now_ms: int) -> Commands:
        """What to do now."""
        is_calm = self._is_calm and now_ms < self._calm_until_ms
        if now_ms >= self._due_ms:
            self._tick(now_ms)
        holdings = self._holdings
        if self._sends_answers:
            self._sends_answers = False
            if holdings.answered:
                holdings.send_answers()
        sends: list[Send] = []
        for session in self._sessions.values():
            if session.in_flight is None and (self._is_closing or now_ms >= session.not_before_ms):
                sent = self._next_request(session, now_ms)
                if sent is not None:
                    sends.append(Send(session.node_id, sent.request, session.has_left_behind))
        heartbeat = refresh = None
        hints: Sequence[LeaderHint] = ()
        doubtful = NO_TOPICS
        if not is_calm:
            heartbeat = self._heartbeat(now_ms)
            if self._placement.wants_metadata(now_ms=now_ms):
                self._placement.metadata_asked()
                refresh = Refresh(self._membership.topics, list(self._placement.assignment))
            if self._hints:
                hints, self._hints = self._hints, []
            if self._check_topics_ms is not None and now_ms >= self._check_topics_ms:
                doubtful = self._doubtful_topics(now_ms)
        settled, lost = NO_NEWS
        if holdings.has_news:
            settled, lost = holdings.told()
        elif is_calm and not sends:
            return NO_COMMANDS
        return Commands(sends, heartbeat, refresh, settled, lost, hints, doubtful)

    def _tick(self, now_ms: int) -> None:
        if self._membership.tick(now_ms=now_ms):
            self._hands.release_buffer()
            self._place(now_ms)
        self._locks.check(
            is_out=self._membership.state is MembershipState.OUT,
            polled_ms=now_ms if self.is_asked else self._membership.polled_ms,
            now_ms=now_ms,
        )

    def _heartbeat(self, now_ms: int) -> Heartbeat | None:
        if self._is_closing and self._is_ready_to_leave():
            self._membership.subscribe((), now_ms=now_ms)
        request = self._membership.next_request(now_ms=now_ms)
        if request is None:
            return None
        return Heartbeat(request, self._membership.take_coordinator_is_lost())

    def _is_ready_to_leave(self) -> bool:
        is_in = self._membership.state in (MembershipState.MEMBER, MembershipState.JOINING)
        return is_in and all(map(self._has_ended, self._sessions.values()))

    def _doubtful_topics(self, now_ms: int) -> Collection[str]:
        self._check_topics_ms = None
        if self._membership.state is not MembershipState.MEMBER:
            self._check_topics_ms = now_ms + CHECK_TOPICS_MS
            return ()
        return self._membership.topics.difference(
            name for name in map(self._placement.name_of, self._placement.assignment) if name is not None
        )

    def _next_request(self, session: BrokerSession, now_ms: int) -> Sent | None:
        holdings, node_id = self._holdings, session.node_id
        lane = holdings.lanes[node_id]
        if self._is_closing:
            if not session.is_open:
                holdings.fail_waiting(node_id, _closed())
                return None
            return session.acknowledge(lane.send(), now_ms=now_ms, is_last=True)
        is_waiting = not lane.is_idle
        if is_waiting and session.is_open and lane.has_renewals:
            return session.acknowledge(lane.send(), now_ms=now_ms)
        wait_ms = self._fetch_wait_ms(session, now_ms)
        limits = None if wait_ms is None else self._fetch_limits(session, wait_ms, now_ms)
        if limits is not None:
            if is_waiting and session.is_open and limits.wait_ms > LAST_WAIT_MS:
                limits = limits._replace(wait_ms=0, bytes_min=0)
            self._turn = node_id
            acks = lane.send() if session.is_open else ()
            return session.fetch(self._placement.wanted[node_id], limits, acks, now_ms=now_ms)
        if not is_waiting:
            return None
        if session.is_open:
            return session.acknowledge(lane.send(), now_ms=now_ms)
        keys = self._placement.wanted.get(node_id)
        keys = keys or dict.fromkeys(ack.key for ack in lane.all_waiting())
        return session.fetch(keys, NOTHING, (), now_ms=now_ms)

    def _fetch_limits(self, session: BrokerSession, wait_ms: int, now_ms: int) -> FetchLimits | None:
        """What to fetch from a broker now, or None."""
        settings = self._settings
        if not self._placement.wanted.get(session.node_id) or self.is_paused:
            return None
        records_max = min(settings.max_poll_records, self._records_wanted or settings.max_poll_records)
        if self._capacity:
            asked = sum(one.in_flight.records_max for one in self._sessions.values() if one.in_flight)
            records_max = min(records_max, self._capacity - self._holdings.outstanding - asked)
            if records_max <= 0:
                return None
        if self._is_record_limited and not self._is_its_turn(session, now_ms):
            return None
        if self._is_record_limited and len(self._placement.wanted) > 1:
            wait_ms = min(wait_ms, TURN_WAIT_MS)
        due_ms = self._holdings.lanes[session.node_id].due_ms
        if due_ms is not None:
            wait_ms = max(0, min(wait_ms, due_ms - now_ms))
        return FetchLimits(
            records_max=records_max,
            batch_size=records_max,
            bytes_min=settings.fetch_min_bytes if wait_ms else 0,
            bytes_max=settings.fetch_max_bytes,
            wait_ms=wait_ms,
            acquire_mode=RECORD_LIMIT if self._is_record_limited else 0,
            acquire_only=self._acquire_only,
        )

    def _fetch_wait_ms(self, session: BrokerSession, now_ms: int) -> int | None:
        """How long a fetch may wait at the broker; None when there is to be none."""
        holdings = self._holdings
        if self._is_ahead:
            # A fetch that waits would keep the responses to the acknowledgements in it waiting too.
            if session.is_open and not holdings.lanes[session.node_id].is_idle:
                return 0
            limit_ms = self._fetch_wait_limit_ms
            if not limit_ms and now_ms < session.rest_until_ms:
                return None
            return min(limit_ms, HELD_WAIT_MS) if holdings.outstanding else limit_ms
        if self._asked_until_ms is not None and not self._hands.has_arrivals:
            return max(0, min(self._settings.fetch_max_wait_ms, self._asked_until_ms - now_ms))
        if not self._is_quick or not session.was_full or not session.is_open or self._is_record_limited:
            return None
        if not self._is_awaited and self._hands.is_buffered(session.node_id):
            return None
        self._is_awaited = False
        return 0

    def _is_its_turn(self, session: BrokerSession, now_ms: int) -> bool:
        if any(one.is_fetching for one in self._sessions.values()):
            return False
        wanted = self._placement.wanted
        nodes = sorted(node for node in wanted if now_ms >= self._session(node).not_before_ms)
        return session.node_id == next((node for node in nodes if node > self._turn), nodes[0])

    def deadline_ms(self, *, now_ms: int) -> int | None:
        """When `commands` wants to be called, if nothing else happens."""
        if not self._is_calm or now_ms >= self._calm_until_ms:
            self._calm_until_ms = self._next_due_ms(now_ms)
            self._is_calm = not self._is_closing
        found_ms = self._calm_until_ms
        for node_id in self._sessions:
            due_ms = self._holdings.lanes[node_id].due_ms
            if due_ms is not None and due_ms < found_ms:
                found_ms = max(due_ms, now_ms + 1)  # the latter for a response that was long on its way
        self._due_ms = found_ms
        return None if found_ms == NEVER_MS else found_ms

    def _next_due_ms(self, now_ms: int) -> int:
        """The same for all but the locks."""
        found_ms = NEVER_MS
        time_ms = self._membership.deadline_ms()
        if time_ms is not None and now_ms < time_ms:
            found_ms = time_ms
        time_ms = self._placement.metadata_due_ms
        if time_ms is not None and now_ms < time_ms < found_ms:
            found_ms = time_ms
        time_ms = self._check_topics_ms
        if time_ms is not None and now_ms < time_ms < found_ms:
            found_ms = time_ms
        for session in self._sessions.values():
            if now_ms < session.not_before_ms < found_ms:
                found_ms = session.not_before_ms
            if now_ms < session.rest_until_ms < found_ms:
                found_ms = session.rest_until_ms
        return found_ms

    def idle_ms(self, since_ms: int) -> int:
        """How long since then every broker that leads a partition of ours has been asked and had nothing for us.

        The caller knows that nothing arrived since then. 0 when there is no telling: no partition is assigned, one has
        no leader, a session is not open, or its brokers do not respond.
        """
        sessions = [self._sessions.get(node_id) for node_id in self._placement.wanted]
        if not self._placement.is_complete or None in sessions:
            return 0
        times = [
            one.asked_ms - max(since_ms, one.opened_ms) if one.is_open else 0
            for one in sessions
            if one is not None
        ]
        return max(0, min(times, default=0))

    # What the coordinator responds, what the metadata says

    def heartbeat_responded(self, response: ShareGroupHeartbeatResponse, *, now_ms: int) -> None:
        self._is_calm = False
        self._membership.answered(response, now_ms=now_ms)
        self._after_heartbeat(now_ms)

    def heartbeat_failed(self, error: KafkaError, *, now_ms: int) -> None:
        self._is_calm = False
        self._membership.failed(error, now_ms=now_ms)
        self._after_heartbeat(now_ms)

    def _after_heartbeat(self, now_ms: int) -> None:
        refusal = self._membership.take_refusal()
        if refusal is not None:
            self._raise_later(refusal)
        if self._membership.assignment != self._placement.assignment:
            self._place(now_ms)

    def learn(self, topics: Mapping[bytes, TopicView], *, now_ms: int) -> None:
        """The metadata of the topics that the assignment names, as far as there is any."""
        self._is_calm = False
        self._placement.learn(topics, now_ms=now_ms)
        self._open_sessions()

    def metadata_failed(self, *, now_ms: int) -> None:
        self._is_calm = False
        self._placement.want_metadata(now_ms=now_ms)

    def _place(self, now_ms: int) -> None:
        self._placement.assign(self._membership.assignment, now_ms=now_ms)
        self._open_sessions()

    def _open_sessions(self) -> None:
        for node_id in self._placement.wanted:
            self._session(node_id)

    def _session(self, node_id: int) -> BrokerSession:
        session = self._sessions.get(node_id)
        if session is None:
            settings = self._settings
            backoff = RetryBackoff(
                settings.retry_backoff_ms, settings.retry_backoff_max_ms, self._jitter.fraction
            )
            session = BrokerSession(node_id, settings.group_id, self._membership.member_id, backoff)
            self._sessions[node_id] = session
        return session

    # What brokers respond

    def connected(self, node_id: int, *, is_old: bool) -> None:
        """The connection for a session is there; `is_old`: to a broker without RENEW and record_limit."""
        self._sessions[node_id].connected(is_old=is_old)

    def disconnected(self, node_id: int, error: KafkaError, *, now_ms: int) -> bool:
        """A connection has ended. False when that is no news: the request in flight on it will fail."""
        session = self._sessions[node_id]
        if session.in_flight is not None or not session.is_open:
            return False
        self.failed(node_id, error, now_ms=now_ms)
        return True

    def responded(self, node_id: int, response: ShareResponse, *, now_ms: int) -> None:
        session = self._sessions[node_id]
        if isinstance(response, UsualFetch | UsualAcknowledge):
            if session.is_open and not self._is_closing:
                self._responded_usually(session, response, now_ms)
                return
            response = response.as_message()
        self._is_calm = False
        if response.error_code:
            self._refused(session, response, now_ms)
        else:
            self._accepted(session, response, now_ms)
        if response.throttle_time_ms:
            session.throttle(now_ms + response.throttle_time_ms)

    def _responded_usually(
        self, session: BrokerSession, response: UsualFetch | UsualAcknowledge, now_ms: int
    ) -> None:
        """`_accepted` for what has no errors: only locks and acknowledgements change, so what is calm stays so."""
        sent = session.accepted(now_ms=now_ms)
        holdings, lock_ms, key = self._holdings, response.lock_ms, (response.topic_id, response.partition)
        holdings.note_lock_ms(lock_ms)
        if sent.has_acks:
            self._settle_acks(session, sent, {key: FINE}, now_ms)
        if isinstance(response, UsualAcknowledge):
            return
        if self._asked_until_ms is not None and not self._hands.has_arrivals:
            self._is_awaited = True
        arrival = holdings.arrive_one(
            session.node_id,
            response,
            topic=self._placement.name_of(response.topic_id) or "",
            sent_ms=sent.sent_ms,
            now_ms=now_ms,
        )
        count = 0
        if arrival is not None:
            count = arrival.acquired[0].count
            self._hands.put(arrival)
        if not self._membership.topics:
            self._hands.release_buffer()
        if sent.records_max:
            session.fetched(sent, count, has_errors=False, now_ms=now_ms)
            if not count:
                self._is_calm = False

    def failed(self, node_id: int, error: KafkaError, *, now_ms: int) -> None:
        """No response, or the connection has ended: the broker releases what was acquired over it."""
        self._is_calm = False
        session = self._sessions[node_id]
        session.reopen()
        self._holdings.lose_broker(node_id, error)
        session.went_wrong(now_ms=now_ms)
        if error.code is E.UNSUPPORTED_VERSION:
            self._raise_later(error)
        if self._placement.wanted.get(node_id):
            self._placement.want_metadata(now_ms=now_ms)

    def _accepted(
        self, session: BrokerSession, response: ShareFetchResponse | ShareAcknowledgeResponse, now_ms: int
    ) -> None:
        if session.is_ending:
            sent = session.reopen()
            assert sent is not None
            self._holdings.end_session(session.node_id)
        else:
            sent = session.accepted(now_ms=now_ms)
        self._holdings.note_lock_ms(response.acquisition_lock_timeout_ms)
        if isinstance(response, ShareFetchResponse):
            if sent.has_acks:
                self._settle_acks(session, sent, _fetch_codes(response), now_ms)
            self._take_fetch(session, sent, response, now_ms)
            return
        codes: dict[Key, tuple[int, str | None]] = {}
        for topic in response.responses:
            for one in topic.partitions:
                codes[topic.topic_id, one.partition_index] = one.error_code, one.error_message
                if one.error_code in LEADER_MOVED:
                    self._hint(topic.topic_id, one, response.node_endpoints)
        self._settle_acks(session, sent, codes, now_ms)

    def _refused(
        self, session: BrokerSession, response: ShareFetchResponse | ShareAcknowledgeResponse, now_ms: int
    ) -> None:
        about = f"share session with broker {session.node_id}"
        error = error_for(response.error_code, response.error_message, about=about)
        code, is_last = error.code, session.is_ending
        session.reopen()
        if code in EPOCH_ERRORS and not is_last:
            if code is E.INVALID_SHARE_SESSION_EPOCH:
                self._detect_duplicate_member(session, now_ms)
            for ack in self._holdings.lanes[session.node_id].responded():
                self._send_again(ack, error, now_ms)
        elif code in SESSION_GONE or is_last:
            self._holdings.lose_broker(session.node_id, error)
        else:
            # What the broker has made of the request is unknown, also of the partitions in it: the next one opens the
            # session anew, which leaves the locks alone.
            self._holdings.settle_all(self._holdings.lanes[session.node_id].responded(), error)
            if code not in PASS_OVER:
                self._raise_later(error)
            self._placement.want_metadata(now_ms=now_ms)
        session.went_wrong(now_ms=now_ms)

    def _detect_duplicate_member(self, session: BrokerSession, now_ms: int) -> None:
        """A broker that restarts has no session. One that has ours with another epoch has heard from somebody else."""
        timeout_ms = self._settings.default_api_timeout_ms
        if now_ms - self._last_epoch_error_ms > timeout_ms:
            self._epoch_errors, self._first_epoch_error_ms = 0, now_ms
        self._epoch_errors, self._last_epoch_error_ms = self._epoch_errors + 1, now_ms
        if self._epoch_errors >= EPOCH_ERRORS_MAX and now_ms - self._first_epoch_error_ms >= timeout_ms:
            member_id, group_id = self._membership.member_id, self._settings.group_id
            text = f"another client uses member id {member_id} of group {group_id!r}"
            about = f"share session with broker {session.node_id}"
            self._raise_later(error_for(E.INVALID_SHARE_SESSION_EPOCH, text, about=about))

    def _take_fetch(
        self, session: BrokerSession, sent: Sent, response: ShareFetchResponse, now_ms: int
    ) -> None:
        records = 0
        has_errors = False
        for topic in response.responses:
            for one in topic.partitions:
                key = topic.topic_id, one.partition_index
                if one.error_code:
                    has_errors = True
                    self._partition_error(session, key, one, response, now_ms)
                elif one.acknowledge_error_code in LEADER_MOVED:
                    self._hint(topic.topic_id, one, response.node_endpoints)
                if one.acquired_records:
                    lock_ms = response.acquisition_lock_timeout_ms
                    records += self._arrive(session, key, one, lock_ms, sent.sent_ms, now_ms)
        if has_errors and not records:
            session.back_off(now_ms=now_ms)
        elif sent.records_max:
            session.fetched(sent, records, has_errors=has_errors, now_ms=now_ms)

    def _arrive(
        self, session: BrokerSession, key: Key, data: PartitionData, lock_ms: int, sent_ms: int, now_ms: int
    ) -> int:
        if self._asked_until_ms is not None and not self._hands.has_arrivals:
            self._is_awaited = True
        topic = self._placement.name_of(key[0]) or ""
        arrival = self._holdings.arrive(
            session.node_id, key, data, topic=topic, lock_ms=lock_ms, sent_ms=sent_ms, now_ms=now_ms
        )
        if arrival is not None:
            self._hands.put(arrival)
        if not self._membership.topics or self._is_closing:
            self._hands.release_buffer()
        return 0 if arrival is None else arrival.count

    def _partition_error(
        self, session: BrokerSession, key: Key, data: PartitionData, response: ShareFetchResponse, now_ms: int
    ) -> None:
        error = error_for(data.error_code, data.error_message, about=self._placement.about(key))
        code = error.code
        if code in LOCKS_GONE:
            self._holdings.lose_partition(session.node_id, key, error)
        if code in ASK_METADATA:
            if code in LEADER_MOVED:
                self._hint(key[0], data, response.node_endpoints)
            self._placement.want_metadata(now_ms=now_ms)
        elif code not in PASS_OVER:
            self._raise_later(error)

    def _raise_later(self, error: KafkaError) -> None:
        """For the next poll; what is waiting to be raised is not said twice."""
        if str(error) not in map(str, self._errors):
            self._errors.append(error)

    def _hint(self, topic_id: bytes, one: Any, endpoints: Sequence[Any]) -> None:
        leader = one.current_leader
        hint = LeaderHint(topic_id, one.partition_index, leader.leader_id, leader.leader_epoch, endpoints)
        self._hints.append(hint)

    def _settle_acks(
        self, session: BrokerSession, sent: Sent, codes: Mapping[Key, tuple[int, str | None]], now_ms: int
    ) -> None:
        acks = self._holdings.lanes[session.node_id].responded()
        if len(acks) == 1 and codes.get(acks[0].key) == FINE:
            self._holdings.settle(acks[0], None, sent_ms=sent.sent_ms)
            return
        failed: dict[Key, KafkaError] = {}
        for key in dict.fromkeys(ack.key for ack in acks):
            code, message = codes.get(key, (E.INVALID_RECORD_STATE, "The broker has not answered for it."))
            if code:
                failed[key] = error_for(code, message, about=self._placement.about(key))
                self._is_calm = False
                if code in LOCKS_GONE:
                    self._placement.want_metadata(now_ms=now_ms)
        if not failed:
            self._holdings.settle_all(acks, None, sent_ms=sent.sent_ms)
            return
        several = {
            key: any(ack.acquired is not ours[0].acquired for ack in ours)
            for key, ours in by_partition(acks).items()
        }
        for key, ours in by_partition(acks).items():
            error = failed.get(key)
            if error is None:
                self._holdings.settle_all(ours, None, sent_ms=sent.sent_ms)
            elif error.code in COORDINATOR_PASSING:
                session.back_off(now_ms=now_ms)
                for ack in ours:
                    self._send_again(ack, error, now_ms)
            elif error.code in ONE_OF_THEM and several[key] and session.is_open:
                for ack in ours:
                    self._send_again(ack._replace(is_alone=True), error, now_ms)
            else:
                self._holdings.settle_all(ours, error)
        for key, error in failed.items():
            if error.code in LOCKS_GONE:
                self._holdings.lose_partition(session.node_id, key, error)

    def _send_again(self, ack: Ack, error: KafkaError, now_ms: int) -> None:
        if self._is_closing:
            self._holdings.settle(ack, error)
        else:
            self._holdings.send_again(ack, error, now_ms=now_ms)


def _fetch_codes(response: ShareFetchResponse) -> dict[Key, tuple[int, str | None]]:
    return {
        (topic.topic_id, one.partition_index): (one.acknowledge_error_code, one.acknowledge_error_message)
        for topic in response.responses
        for one in topic.partitions
    }


def _closed() -> KafkaError:
    return error_for(ErrorCode.SHARE_SESSION_NOT_FOUND, "The share session has ended", about="this consumer")
