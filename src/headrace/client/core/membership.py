"""Being a member of a share group: when to send which heartbeat, and what its answer means.

Theory of operation. `next_request` says what to send to the group's coordinator now, if anything; one heartbeat is in
flight at a time, and each is answered by `answered` or `failed`. Between them lies a small machine:

    OUT --subscribe--> JOINING --answer--> MEMBER --110, 25, 69--> JOINING
    MEMBER --unsubscribe, close, silent app--> LEAVING --answer or failure--> OUT
    any --30, 42, 81, 35; JOINING --69--> FAILED

A member that joins a new group is told of no partitions at first: the coordinator hands them out a little later, and
only in answer to a heartbeat. So the first heartbeats of a member without partitions come quickly, then ever slower
until they reach the group's own interval. An application that does not poll for max.poll.interval.ms is taken for
stuck: its member leaves, and joins again when the application polls again.
"""

from collections.abc import Collection
from enum import Enum

from headrace.base.backoff import RetryBackoff
from headrace.client.errors import AuthenticationError, error_for
from headrace.wire.error_groups import COORDINATOR_MOVED
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
FIRST_INTERVAL_MS = 50
"""How soon the first heartbeat after the join comes, while there are no partitions."""
INTERVAL_MS = 5_000
"""Until the coordinator has said another one."""

FENCED = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
"""The coordinator does not know this member as it is, or its group: it joins anew, and is told then if it cannot."""
FATAL = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.GROUP_ID_NOT_FOUND,
    ErrorCode.UNSUPPORTED_VERSION,
}
MAY_CHANGE = {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_MAX_SIZE_REACHED}
"""Fatal errors that others can cure: the member joins again when the application, told of it, polls again."""


class MembershipState(Enum):
    OUT = "out"
    JOINING = "joining"
    MEMBER = "member"
    LEAVING = "leaving"
    FAILED = "failed"


Assignment = dict[bytes, tuple[int, ...]]
"""Partitions by topic id."""


class Membership:
    """`assignment` is what this member may fetch now; it is empty outside `MEMBER`."""

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        rack_id: str | None,
        poll_interval_ms: int,
        backoff: RetryBackoff,
    ) -> None:
        self.member_id = member_id
        self.state = MembershipState.OUT
        self.member_epoch = JOIN_EPOCH
        self.assignment: Assignment = {}
        self.topics: frozenset[str] = frozenset()
        self.failure: KafkaError | None = None
        """Why this member cannot go on."""
        self.rebalances = 0
        self.joins = 0
        """How often the coordinator has taken this member in."""
        self._refusal: KafkaError | None = None
        self._coordinator_is_lost = False
        self._group_id = group_id
        self._rack_id = rack_id
        self._poll_interval_ms = poll_interval_ms
        self._backoff = backoff
        self._in_flight: ShareGroupHeartbeatRequest | None = None
        self._due_ms = 0
        self._interval_ms = INTERVAL_MS
        self._early_ms = FIRST_INTERVAL_MS
        self._told: frozenset[str] | None = None
        """The subscription as the coordinator knows it."""
        self._polled_ms: int | None = None
        self._is_stuck = False

    @property
    def is_out(self) -> bool:
        return self.state in (MembershipState.OUT, MembershipState.FAILED) and self._in_flight is None

    @property
    def polled_ms(self) -> int | None:
        """When the application last polled."""
        return self._polled_ms

    def take_refusal(self) -> KafkaError | None:
        """An error to raise once: the member goes on."""
        refusal, self._refusal = self._refusal, None
        return refusal

    def take_coordinator_is_lost(self) -> bool:
        """The coordinator must be looked up again, before the next heartbeat."""
        is_lost, self._coordinator_is_lost = self._coordinator_is_lost, False
        return is_lost

    def subscribe(self, topics: Collection[str], *, now_ms: int) -> None:
        """No topics: leave."""
        self.topics = frozenset(topics)
        if not self.topics:
            self.leave(now_ms=now_ms)
        elif self.state in (MembershipState.OUT, MembershipState.FAILED):
            self._join(now_ms)
        elif self.state is MembershipState.MEMBER and self.topics != self._told:
            self._due_ms = now_ms

    def leave(self, *, now_ms: int) -> None:
        self.assignment = {}
        if self.state is MembershipState.MEMBER or (
            self.state is MembershipState.JOINING and self._in_flight is not None
        ):
            self.state, self._due_ms = MembershipState.LEAVING, now_ms
        elif self.state is MembershipState.JOINING:
            # The coordinator may know of us from before (a rejoin), unless no heartbeat was ever answered.
            self.state = MembershipState.OUT if self._told is None else MembershipState.LEAVING
            self._due_ms = now_ms

    def polled(self, *, now_ms: int) -> bool:
        """The application is alive. True when that changes what is due: it is the first poll, or the member was out."""
        is_first, self._polled_ms = self._polled_ms is None, now_ms
        if not self._is_stuck:
            return is_first
        self._is_stuck = False
        if self.topics and self.state is MembershipState.OUT:
            self._join(now_ms)
        return True

    def failure_was_told(self, *, now_ms: int) -> None:
        """The application knows why the member cannot go on. Where that may change, it tries again after a while."""
        if self.failure is not None and self.failure.code in MAY_CHANGE and self.topics:
            self._join(now_ms)
            self._due_ms = now_ms + self._backoff.after_failure()

    def tick(self, *, now_ms: int) -> bool:
        """True when the application has not polled for too long: the member leaves, until the next poll."""
        limit_ms = self._stuck_at_ms()
        if limit_ms is None or now_ms < limit_ms:
            return False
        self._is_stuck = True
        self.leave(now_ms=now_ms)
        return True

    def _stuck_at_ms(self) -> int | None:
        if self.state not in (MembershipState.MEMBER, MembershipState.JOINING) or self._polled_ms is None:
            return None
        return self._polled_ms + self._poll_interval_ms

    def deadline_ms(self) -> int | None:
        """When `tick` or `next_request` has something to do by itself."""
        stuck_ms = self._stuck_at_ms()
        if self._in_flight is not None or self.state in (MembershipState.OUT, MembershipState.FAILED):
            return stuck_ms
        return self._due_ms if stuck_ms is None else min(self._due_ms, stuck_ms)

    def next_request(self, *, now_ms: int) -> ShareGroupHeartbeatRequest | None:
        """The heartbeat to send now, to the group's coordinator."""
        if self._in_flight is not None or now_ms < self._due_ms:
            return None
        topics: list[str] | None = None
        if self.state is MembershipState.JOINING:
            epoch, topics = JOIN_EPOCH, sorted(self.topics)
        elif self.state is MembershipState.MEMBER:
            epoch = self.member_epoch
            topics = sorted(self.topics) if self.topics != self._told else None
        elif self.state is MembershipState.LEAVING:
            epoch = LEAVE_EPOCH
        else:
            return None
        self._in_flight = ShareGroupHeartbeatRequest(
            group_id=self._group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            rack_id=self._rack_id,
            subscribed_topic_names=topics,
        )
        return self._in_flight

    def answered(self, response: ShareGroupHeartbeatResponse, *, now_ms: int) -> None:
        request, self._in_flight = self._in_flight, None
        assert request is not None
        if request.member_epoch == LEAVE_EPOCH:
            self._left(now_ms)
        elif response.error_code:
            self._refused(response, now_ms)
        else:
            self._accepted(request, response, now_ms)

    def failed(self, error: KafkaError, *, now_ms: int) -> None:
        """No answer: it is unknown whether the coordinator has seen the heartbeat, which does no harm."""
        request, self._in_flight = self._in_flight, None
        assert request is not None
        if error.code in FATAL or isinstance(error, AuthenticationError):
            self._fail(error)
        elif request.member_epoch == LEAVE_EPOCH:
            self._left(now_ms)  # the session's timeout does the rest
        else:
            self._coordinator_is_lost = True
            self._due_ms = now_ms + self._backoff.after_failure()

    def _accepted(
        self, request: ShareGroupHeartbeatRequest, response: ShareGroupHeartbeatResponse, now_ms: int
    ) -> None:
        self._backoff.reset()
        if request.subscribed_topic_names is not None:
            self._told = frozenset(request.subscribed_topic_names)
        self._interval_ms = response.heartbeat_interval_ms or self._interval_ms
        if self.state is MembershipState.LEAVING:
            self._due_ms = now_ms
            return
        self.state = MembershipState.MEMBER
        self.member_epoch = response.member_epoch
        self.joins += request.member_epoch == JOIN_EPOCH
        if response.assignment is not None:
            new = {one.topic_id: tuple(one.partitions) for one in response.assignment.topic_partitions}
            if new != self.assignment:
                self.assignment = new
                self.rebalances += 1
        wait_ms = self._interval_ms
        if not self.assignment and self._early_ms < self._interval_ms:
            wait_ms, self._early_ms = self._early_ms, 2 * self._early_ms
        self._due_ms = now_ms if self.topics != self._told else now_ms + wait_ms

    def _refused(self, response: ShareGroupHeartbeatResponse, now_ms: int) -> None:
        about = f"share group {self._group_id!r}"
        error = error_for(response.error_code, response.error_message, about=about)
        code = error.code
        if self.state is MembershipState.LEAVING:
            self._due_ms = now_ms
        elif code in FENCED and self.state is MembershipState.MEMBER:
            self._join(now_ms)
        elif code in FATAL:
            self._fail(error)
        else:
            if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._refusal = error
            self._coordinator_is_lost = code in COORDINATOR_MOVED
            self._due_ms = now_ms + self._backoff.after_failure()

    def _join(self, now_ms: int) -> None:
        self.state = MembershipState.JOINING
        self.failure = None
        self.assignment = {}
        self.member_epoch = JOIN_EPOCH
        self._early_ms = FIRST_INTERVAL_MS
        self._due_ms = now_ms

    def _left(self, now_ms: int) -> None:
        self.state = MembershipState.OUT
        self._told = None
        self.member_epoch = JOIN_EPOCH
        if self.topics and not self._is_stuck:
            self._join(now_ms)  # subscribed again while it was leaving

    def _fail(self, error: KafkaError) -> None:
        self.state = MembershipState.FAILED
        self.failure = error
        self.assignment = {}
