"""A share session with one broker: its epoch, the partitions in it, and the one request in flight.

Theory of operation. A broker knows a member's session by an epoch that both count: a ShareFetch with epoch 0 opens it
and every request after that must carry the next number, so there is never more than one request in flight. A request
says only what changes: partitions to add, partitions to forget. The session dies with the connection that opened it,
and the broker then releases everything acquired in it. So whatever happens to a request decides two things:

    success                         epoch + 1; the acknowledgements in it are settled by partition
    error 123, 133                  reopen at 0; the locks live on, and the acknowledgements were not looked at
    error 122, connection lost      reopen at 0; every lock of this broker is lost, with what was on its way
    another error                   reopen at 0; the locks live on, the acknowledgements in it are taken for refused
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from headrace.base.backoff import RetryBackoff
from headrace.client.core.acknowledgements import Ack, Key, batches_of, by_partition
from headrace.wire.messages.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from headrace.wire.messages.share_fetch_request import (
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)

OPENING = 0
CLOSING = -1
EPOCH_MAX = 2**31 - 1
EARLY_MAX = 3
"""Fetches in a row that may come back empty before their time; then there is a wait before the next one."""
LAST_WAIT_MS = 5_000
"""A member that closes waits no longer than this for a fetch that its broker holds back; see `leave_behind`."""
REST_MS_MIN, REST_MS_MAX = 5, 100
"""Between fetches that do not wait and bring nothing."""

T = TypeVar("T")
ShareRequest = ShareFetchRequest | ShareAcknowledgeRequest


class FetchLimits(NamedTuple):
    """What a fetch asks for."""

    records_max: int
    batch_size: int
    bytes_min: int
    bytes_max: int
    wait_ms: int
    acquire_mode: int
    acquire_only: bool = False
    """Locks without records, from brokers that know this."""


class Sent(NamedTuple):
    """The request in flight, and what to remember until its answer."""

    request: ShareRequest
    has_acks: bool
    sent_ms: int
    listed: dict[Key, None]
    """The partitions in the session once the broker has taken the request."""
    records_max: int
    wait_ms: int


class BrokerSession:
    """One broker's side of a member."""

    def __init__(self, node_id: int, group_id: str, member_id: str, backoff: RetryBackoff) -> None:
        self.node_id = node_id
        self._epoch = OPENING
        self._listed: dict[Key, None] = {}
        self._in_flight: Sent | None = None
        self._not_before_ms = 0
        self._was_full = False
        self._opened_ms = 0
        self._asked_ms = 0
        self._rest_ms = 0
        self._rest_until_ms = 0
        self._is_old = False
        self._has_left_behind = False
        self._early = 0
        self._backoff = backoff
        self._group_id = group_id
        self._member_id = member_id

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def listed(self) -> Collection[Key]:
        """The partitions in the session."""
        return self._listed

    @property
    def in_flight(self) -> Sent | None:
        return self._in_flight

    @property
    def not_before_ms(self) -> int:
        """No request before this time: the broker has throttled us, or something failed."""
        return self._not_before_ms

    @property
    def was_full(self) -> bool:
        """The last fetch brought all it asked for: there is likely more."""
        return self._was_full

    @property
    def opened_ms(self) -> int:
        return self._opened_ms

    @property
    def asked_ms(self) -> int:
        """When the last fetch was sent that had no error for any partition."""
        return self._asked_ms

    @property
    def rest_until_ms(self) -> int:
        """The last fetch brought nothing: one that does not wait has no reason to be sent before this time."""
        return self._rest_until_ms

    @property
    def is_old(self) -> bool:
        """The broker knows neither RENEW nor record_limit (v1 of the share APIs)."""
        return self._is_old

    @property
    def has_left_behind(self) -> bool:
        """A fetch: what is sent now must not go over its connection, where it would wait behind it."""
        return self._has_left_behind

    @property
    def is_open(self) -> bool:
        return self._epoch > OPENING

    @property
    def is_fetching(self) -> bool:
        return self._in_flight is not None and self._in_flight.records_max > 0

    @property
    def is_ending(self) -> bool:
        """The request in flight is the last one."""
        return self._in_flight is not None and self._in_flight.request.share_session_epoch == CLOSING

    def connected(self, *, is_old: bool) -> None:
        """The connection that the session will live on is there."""
        self._is_old = is_old

    def fetch(
        self, wanted: Collection[Key], limits: FetchLimits, acks: Sequence[Ack], *, now_ms: int
    ) -> Sent:
        """The next ShareFetch. The one that opens the session cannot carry acknowledgements."""
        assert self.is_open or not acks
        listed = wanted if isinstance(wanted, dict) else dict.fromkeys(wanted)
        topics: Sequence[FetchTopic] = ()
        forgotten: Sequence[ForgottenTopic] = ()
        is_same = listed is self._listed or listed.keys() == self._listed.keys()
        if acks or self._epoch == OPENING or not is_same:
            topics, forgotten = _changes(self._listed if self.is_open else {}, listed, acks)
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=limits.wait_ms,
            min_bytes=limits.bytes_min,
            max_bytes=limits.bytes_max,
            max_records=limits.records_max,
            batch_size=limits.batch_size,
            share_acquire_mode=limits.acquire_mode,
            topics=topics,
            forgotten_topics_data=forgotten,
            acquire_only=limits.acquire_only,
        )
        return self._send(request, bool(acks), listed, limits.records_max, limits.wait_ms, now_ms)

    def acknowledge(self, acks: Sequence[Ack], *, now_ms: int, is_last: bool = False) -> Sent:
        """A ShareAcknowledge; the last one closes the session."""
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=CLOSING if is_last else self._epoch,
            is_renew_ack=any(ack.is_renewal for ack in acks),
            topics=_acknowledged(acks),
        )
        return self._send(request, bool(acks), self._listed, 0, 0, now_ms)

    def _send(
        self,
        request: ShareRequest,
        has_acks: bool,
        listed: dict[Key, None],
        records_max: int,
        wait_ms: int,
        now_ms: int,
    ) -> Sent:
        assert self._in_flight is None, "two requests in flight to one broker"
        self._in_flight = Sent(request, has_acks, now_ms, listed, records_max, wait_ms)
        return self._in_flight

    def accepted(self, *, now_ms: int) -> Sent:
        """The broker has responded without a top-level error."""
        if not self.is_open:
            self._opened_ms = now_ms
        sent, self._in_flight = self._in_flight, None
        assert sent is not None, "a response without a request"
        self._epoch = self._epoch % EPOCH_MAX + 1
        self._listed = sent.listed
        self._backoff.reset()
        return sent

    def leave_behind(self, until_ms: int, *, now_ms: int) -> None:
        """Before the last request: a fetch that the broker holds back for long, or past `until_ms`, is not waited for.

        The last request ends the session, which releases what the fetch has acquired by then. Headrace's broker gives
        it nothing more. Apache Kafka does (4.3), and locks the next records for a member that is gone, so a fetch that
        returns soon is waited for.
        """
        sent = self._in_flight
        if (
            sent is None
            or sent.has_acks
            or sent.sent_ms + sent.wait_ms <= min(until_ms, now_ms + LAST_WAIT_MS)
        ):
            return
        self._in_flight = None
        self._has_left_behind = True
        self._epoch = (
            self._epoch or OPENING + 1
        )  # a broker that holds back the first fetch has opened the session
        self._listed = sent.listed

    def reopen(self) -> Sent | None:
        """There is no session any more: the next request opens one. Returns what was in flight."""
        sent, self._in_flight = self._in_flight, None
        self._epoch = OPENING
        self._listed = {}
        return sent

    def back_off(self, *, now_ms: int) -> None:
        self._not_before_ms = now_ms + self._backoff.after_failure()

    def throttle(self, until_ms: int) -> None:
        self._not_before_ms = max(self._not_before_ms, until_ms)

    def went_wrong(self, *, now_ms: int) -> None:
        self._was_full = False
        self.back_off(now_ms=now_ms)

    def fetched(self, sent: Sent, records: int, *, has_errors: bool, now_ms: int) -> None:
        """Keeps count of responses that come empty before their time: a broker that does so must not be hammered."""
        if not has_errors:
            self._asked_ms = sent.sent_ms
        self._was_full = 0 < sent.records_max <= records
        if records or sent.has_acks:
            self._rest_ms = 0  # what was acknowledged makes room, on Apache Kafka a moment after its response
        if not records:
            self._rest_ms = min(REST_MS_MAX, 2 * self._rest_ms or REST_MS_MIN)
        self._rest_until_ms = 0 if records else now_ms + self._rest_ms
        if records or now_ms - sent.sent_ms >= sent.wait_ms // 2 or sent.wait_ms == 0:
            self._early = 0
            return
        self._early += 1
        if self._early > EARLY_MAX:
            self.back_off(now_ms=now_ms)


def _changes(
    old: Mapping[Key, None], wanted: Mapping[Key, None], acks: Sequence[Ack]
) -> tuple[list[FetchTopic], list[ForgottenTopic]]:
    """What a fetch has to name: partitions new in the session, acknowledgements, and what is not wanted now."""
    acked = by_partition(acks)
    named = dict.fromkeys([*(key for key in wanted if key not in old), *acked])
    topics = [
        FetchTopic(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in _by_topic(
            (
                key,
                FetchPartition(
                    partition_index=key[1],
                    acknowledgement_batches=batches_of(acked[key]) if key in acked else (),
                ),
            )
            for key in named
        )
    ]
    # To name a partition for an acknowledgement adds it to the session; it is forgotten at once again.
    forgotten = [
        ForgottenTopic(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in _by_topic((key, key[1]) for key in {**old, **acked} if key not in wanted)
    ]
    return topics, forgotten


def _acknowledged(acks: Sequence[Ack]) -> list[AcknowledgeTopic]:
    if len(acks) == 1:  # most often
        (ack,) = acks
        topic_id, index = ack.key
        partition = AcknowledgePartition(partition_index=index, acknowledgement_batches=batches_of(acks))
        return [AcknowledgeTopic(topic_id=topic_id, partitions=[partition])]
    partitions = (
        (key, AcknowledgePartition(partition_index=key[1], acknowledgement_batches=batches_of(ranges)))
        for key, ranges in by_partition(acks).items()
    )
    return [AcknowledgeTopic(topic_id=topic_id, partitions=each) for topic_id, each in _by_topic(partitions)]


def _by_topic(entries: Iterable[tuple[Key, T]]) -> Iterable[tuple[bytes, list[T]]]:
    grouped: dict[bytes, list[T]] = {}
    for (topic_id, _), entry in entries:
        grouped.setdefault(topic_id, []).append(entry)
    return grouped.items()
