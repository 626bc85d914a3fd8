"""A share session with one broker: its epoch, the partitions in it, the one request in flight, and what is held there.

Theory of operation. A broker knows a member's session by an epoch that both count: a ShareFetch with epoch 0 opens it
and every request after that must carry the next number, so there is never more than one request in flight. A request
says only what changes: partitions to add, partitions to forget. The session dies with the connection that opened it,
and the broker then releases everything acquired in it. So whatever happens to a request decides two things:

    answered                        epoch + 1; the acknowledgements in it are answered for by partition
    answered 123, 133               reopen at 0; the locks live on, and the acknowledgements were not looked at
    answered 122, connection lost   reopen at 0; every lock of this broker is lost, with what was on its way
    answered another error          reopen at 0; the locks live on, the acknowledgements in it are taken for refused
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeVar

from headrace.client.core.acknowledgements import Ack, Key, batches_of, by_partition
from headrace.client.core.acquired import RENEW, Acquired
from headrace.client.core.backoff import Backoff
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


class Sent(NamedTuple):
    """The request in flight, and what to remember until its answer."""

    request: ShareRequest
    acks: list[Ack]
    sent_ms: int
    listed: dict[Key, None]
    """The partitions in the session once the broker has taken the request."""
    records_max: int
    wait_ms: int


class Session:
    """One broker's side of a member."""

    def __init__(self, node_id: int, group_id: str, member_id: str, backoff: Backoff) -> None:
        self.node_id = node_id
        self.epoch = OPENING
        self.listed: dict[Key, None] = {}
        self.in_flight: Sent | None = None
        self.pending: list[Ack] = []
        self.held: dict[Key, list[Acquired]] = {}
        self.not_before_ms = 0
        """No request before this time: the broker has throttled us, or something failed."""
        self.next_due_ms: int | None = None
        """When the locks held here have to be looked at."""
        self.was_full = False
        """The last fetch brought all it asked for: there is likely more."""
        self.opened_ms = 0
        self.asked_ms = 0
        """When the last fetch was sent that every partition has answered without an error."""
        self._rest_ms = 0
        self.rest_until_ms = 0
        """The last fetch brought nothing: one that does not wait has no reason to be sent before this time."""
        self.buffered = 0
        """Offsets that have arrived and are not taken."""
        self.is_closed = False
        self.is_old = False
        """The broker knows neither RENEW nor record_limit (v1 of the share APIs)."""
        self._early = 0
        self._backoff = backoff
        self._group_id = group_id
        self._member_id = member_id

    @property
    def is_open(self) -> bool:
        return self.epoch > OPENING

    @property
    def is_fetching(self) -> bool:
        return self.in_flight is not None and self.in_flight.records_max > 0

    def acquired(self) -> Iterable[Acquired]:
        for ranges in self.held.values():
            yield from ranges

    def fetch(self, wanted: Collection[Key], limits: FetchLimits, *, now_ms: int) -> Sent:
        """The next ShareFetch, with everything that waits to be acknowledged."""
        acks = self._sendable() if self.is_open else []
        acked = by_partition(acks)
        listed = dict.fromkeys(wanted)
        old = self.listed if self.is_open else {}
        named = dict.fromkeys([*(key for key in wanted if key not in old), *acked])
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_wait_ms=limits.wait_ms,
            min_bytes=limits.bytes_min,
            max_bytes=limits.bytes_max,
            max_records=limits.records_max,
            batch_size=limits.batch_size,
            share_acquire_mode=limits.acquire_mode,
            topics=[
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
            ],
            # To name a partition for an acknowledgement adds it to the session; it is forgotten at once again.
            forgotten_topics_data=[
                ForgottenTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in _by_topic(
                    (key, key[1]) for key in {**old, **acked} if key not in listed
                )
            ],
        )
        return self._send(request, acks, listed, limits.records_max, limits.wait_ms, now_ms)

    def acknowledge(self, *, now_ms: int, is_last: bool = False) -> Sent:
        """A ShareAcknowledge with everything that waits; the last one closes the session."""
        acks = self._sendable()
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=CLOSING if is_last else self.epoch,
            is_renew_ack=any(ack.mark == RENEW for ack in acks),
            topics=[
                AcknowledgeTopic(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in _by_topic(
                    (
                        key,
                        AcknowledgePartition(
                            partition_index=key[1], acknowledgement_batches=batches_of(ranges)
                        ),
                    )
                    for key, ranges in by_partition(acks).items()
                )
            ],
        )
        return self._send(request, acks, self.listed, 0, 0, now_ms)

    @property
    def has_renewals(self) -> bool:
        return any(ack.mark == RENEW for ack in self.pending)

    def _sendable(self) -> list[Ack]:
        """All that waits, but of a partition whose acknowledgements were refused only one acquisition at a time."""
        if not any(ack.is_alone for ack in self.pending):
            acks, self.pending = self.pending, []
            return acks
        alone: dict[Key, Acquired] = {}
        for ack in self.pending:
            if ack.is_alone:
                alone.setdefault(ack.key, ack.acquired)
        acks = [ack for ack in self.pending if alone.get(ack.key, ack.acquired) is ack.acquired]
        taken = {id(ack) for ack in acks}
        self.pending = [ack for ack in self.pending if id(ack) not in taken]
        return acks

    def _send(
        self,
        request: ShareRequest,
        acks: list[Ack],
        listed: dict[Key, None],
        records_max: int,
        wait_ms: int,
        now_ms: int,
    ) -> Sent:
        assert self.in_flight is None, "two requests in flight to one broker"
        self.in_flight = Sent(request, acks, now_ms, listed, records_max, wait_ms)
        return self.in_flight

    def accepted(self) -> Sent:
        """The broker has answered without a top-level error."""
        sent = self._answered()
        self.epoch = self.epoch % EPOCH_MAX + 1
        self.listed = sent.listed
        return sent

    def reopen(self) -> Sent | None:
        """There is no session any more: the next request opens one. Returns what was in flight."""
        sent, self.in_flight = self.in_flight, None
        self.epoch = OPENING
        self.listed = {}
        return sent

    def _answered(self) -> Sent:
        sent, self.in_flight = self.in_flight, None
        assert sent is not None, "an answer without a request"
        return sent

    def back_off(self, *, now_ms: int) -> None:
        self.not_before_ms = now_ms + self._backoff.after_failure()

    def went_well(self) -> None:
        self._backoff.reset()

    def fetched(self, sent: Sent, records: int, *, has_errors: bool, now_ms: int) -> None:
        """Keeps count of answers that come empty before their time: a broker that does so must not be hammered."""
        if not has_errors:
            self.asked_ms = sent.sent_ms
        self.was_full = 0 < sent.records_max <= records
        if records or sent.acks:
            self._rest_ms = 0  # what was acknowledged makes room, on Apache Kafka a moment after its answer
        if not records:
            self._rest_ms = min(REST_MS_MAX, 2 * self._rest_ms or REST_MS_MIN)
        self.rest_until_ms = 0 if records else now_ms + self._rest_ms
        if records or now_ms - sent.sent_ms >= sent.wait_ms // 2 or sent.wait_ms == 0:
            self._early = 0
            return
        self._early += 1
        if self._early > EARLY_MAX:
            self.back_off(now_ms=now_ms)

    def forget(self, acquired: Acquired) -> None:
        """Nothing of it is left to do."""
        key = (acquired.topic_id, acquired.partition)
        ranges = self.held.get(key)
        if ranges is not None and acquired in ranges:
            ranges.remove(acquired)
            if not ranges:
                del self.held[key]


def _by_topic(entries: Iterable[tuple[Key, T]]) -> Iterable[tuple[bytes, list[T]]]:
    grouped: dict[bytes, list[T]] = {}
    for (topic_id, _), entry in entries:
        grouped.setdefault(topic_id, []).append(entry)
    return grouped.items()
