"""What a member holds, over all brokers. The one owner of every acquired range, from its arrival to its end.

Theory of operation. `arrive` takes a range in; `take` gives it to a poll, and `hand_out` says that the application gets
it; `answer` is what the application says of it. `send_answers` turns answers into acknowledgements that wait for their
broker, `send` puts them into a request, `settle` has the last word on each. What may follow what is the table in
`ranges.py`. Three things can end a range otherwise: its lock runs out (`check_locks`), its connection or leader goes
(`lose_broker`, `lose_partition`), or the broker delivers it again, which says that the lock was over. Each end is told
once: what was acknowledged as `Settled`, what was not as `Lost`. What was never handed out is told to nobody.

Locks: what waits in the buffer, and with auto.renew what the application works on, is renewed when half of its lock has
passed. What cannot be renewed and was never handed out is released in time; what was handed out is lost. A record that
waits behind an application which does not poll for half a lock goes back to the group for others to take, once: a
record that was delivered before is renewed, so that waiting in buffers never uses up its deliveries. What is to be
released later is renewed until then; where that is not possible it is released in time, before its lock ends.

A poll can be broken off anywhere by an exception from a signal handler. `take` therefore notes what it takes before
anything changes, and a `take` that finds such a note puts it back: `put_back` may itself be broken off and repeated.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress, count, islice
from operator import attrgetter

from headrace.base.ranges import Ranged, minus
from headrace.client.core.acknowledgements import LATE_TYPE, Ack, Commit, Key, Lost, Settled
from headrace.client.core.ranges import (
    DELAYED,
    REFUSED,
    RENEWALS,
    STRICT,
    UNSENT,
    AcquiredRange,
    RangeCause,
    RangeState,
    Span,
)
from headrace.client.core.session import BrokerSession
from headrace.client.core.usual import UsualFetch
from headrace.client.errors import error_for
from headrace.client.settings import ShareSettings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_fetch_response import PartitionData

S, C = RangeState, RangeCause
HANDED = bytes([S.HANDED])
_first = attrgetter("first")
BUFFERED, LATE, RENEW = S.BUFFERED, S.LATE, S.RENEW  # reading an enum's member takes longer than a global
TAKE, HAND_OUT, SEND, CONFIRM, REFUSE = C.TAKE, C.HAND_OUT, C.SEND, C.CONFIRM, C.REFUSE


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """What one response brought of one partition: the records' bytes, and which offsets in them are ours."""

    topic: str
    partition: int
    topic_id: bytes
    acquired: Sequence[AcquiredRange]
    records: bytes
    """Whole record batches; there may be more in them than was acquired."""
    left_out: int = 0
    """The size of those that the broker has not sent, to a member that wants none."""

    @property
    def size(self) -> int:
        return len(self.records) + self.left_out

    @property
    def count(self) -> int:
        return sum(one.count for one in self.acquired)


class _Lane:
    """What is held of one broker."""

    __slots__ = ("due_ms", "held", "in_flight", "waiting")

    def __init__(self) -> None:
        self.held: dict[Key, list[AcquiredRange]] = {}
        self.waiting: list[Ack] = []
        """For the next request."""
        self.in_flight: list[Ack] = []
        self.due_ms: int | None = None
        """When its locks have to be checked."""

    def acquired(self) -> Iterable[AcquiredRange]:
        for ranges in self.held.values():
            yield from ranges


class Holdings:
    """See the module. `is_ahead`: whoever takes the records keeps up by itself (Spark), so none of them is hoarded."""

    def __init__(
        self, settings: ShareSettings, sessions: Mapping[int, BrokerSession], *, is_ahead: bool = False
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._is_ahead = is_ahead
        self._auto_renew = settings.auto_renew
        self._lock_ms: int | None = None
        self._lanes: defaultdict[int, _Lane] = defaultdict(_Lane)
        self._buffer: deque[Arrival] = deque()
        self._taken: Sequence[Arrival] = ()
        """What the poll in progress has taken."""
        self._answered: dict[AcquiredRange, None] = {}
        """Ranges with answers that are not sent."""
        self._answered_last: AcquiredRange | None = None
        self._renewed_by_hand: dict[AcquiredRange, None] = {}
        """Ranges that may have renewals of the application under way."""
        self._outstanding = 0
        self._number = 0
        self._commits: list[Commit] = []
        self._settled: list[Settled] = []
        self._lost: list[Lost] = []

    # Facts

    @property
    def lock_ms(self) -> int | None:
        """How long the group's locks last, as brokers last said."""
        return self._lock_ms

    @property
    def outstanding(self) -> int:
        """Offsets acquired and not acknowledged, in the buffer or taken."""
        return self._outstanding

    @property
    def buffered(self) -> int:
        """Offsets that have arrived and that no poll has taken."""
        return sum(arrival.count for arrival in self._buffer)

    @property
    def has_news(self) -> bool:
        """`told` has something to tell."""
        return bool(self._settled or self._lost)

    @property
    def has_arrivals(self) -> bool:
        return bool(self._buffer or self._taken)

    @property
    def has_taken(self) -> bool:
        """A poll has taken arrivals, and has not said `decoded`."""
        return bool(self._taken)

    @property
    def has_answers(self) -> bool:
        """There are answers that are not on their way yet."""
        return bool(self._answered)

    @property
    def is_renewing(self) -> bool:
        """The application has renewed records, and the brokers have not responded to all of it."""
        if not self._renewed_by_hand:
            return False
        for acquired in list(self._renewed_by_hand):
            if acquired.count_of(RENEWALS):
                return True
            self._renewed_by_hand.pop(acquired, None)
        return False

    def is_buffered(self, node_id: int) -> bool:
        arrivals = (*self._buffer, *self._taken)
        return any(one.node_id == node_id for arrival in arrivals for one in arrival.acquired[:1])

    def held(self, node_id: int) -> list[AcquiredRange]:
        """Ranges of a broker that are not finished."""
        return list(self._lanes[node_id].acquired())

    def waiting(self, node_id: int) -> Sequence[Ack]:
        """What waits to be acknowledged with the next request to a broker."""
        return tuple(self._lanes[node_id].waiting)

    def in_flight(self, node_id: int) -> Sequence[Ack]:
        """What the request in flight to a broker acknowledges."""
        return tuple(self._lanes[node_id].in_flight)

    def is_waiting(self, node_id: int) -> bool:
        return bool(self._lanes[node_id].waiting)

    def has_renewals(self, node_id: int) -> bool:
        waiting = self._lanes[node_id].waiting
        return bool(waiting) and any(ack.state == RENEW for ack in waiting)

    def due_ms(self, node_id: int) -> int | None:
        """When the locks of a broker's ranges have to be checked."""
        return self._lanes[node_id].due_ms

    def told(self) -> tuple[list[Settled], list[Lost]]:
        """What was settled and lost since the last call."""
        settled, self._settled = self._settled, []
        lost, self._lost = self._lost, []
        return settled, lost

    def configure(self, *, auto_renew: bool | None = None) -> None:
        """`auto_renew` is to be switched off where the group refuses renewals: a refused one costs the lock."""
        if auto_renew is not None:
            self._auto_renew = auto_renew

    # In

    def arrive(
        self,
        node_id: int,
        key: Key,
        data: PartitionData,
        *,
        topic: str,
        lock_ms: int,
        sent_ms: int,
        now_ms: int,
    ) -> int:
        """Takes in what a fetch has acquired of a partition; returns how many offsets that is.

        The locks count from `sent_ms`, when the request was sent: the broker cannot have started them earlier. What is
        over by that count was perhaps delivered to another member meanwhile, and is dropped.
        """
        topic_id, partition = key
        self._lock_ms = lock_ms or self._lock_ms
        lane = self._lanes[node_id]
        ranges = []
        count = 0
        has_older = bool(lane.waiting) or key in lane.held
        for one in data.acquired_records:
            if has_older:
                self._lose_overlap(lane, key, one.first_offset, one.last_offset)
            if now_ms >= sent_ms + lock_ms:
                continue
            acquired = AcquiredRange(
                topic,
                partition,
                first=one.first_offset,
                last=one.last_offset,
                delivery_count=one.delivery_count,
                topic_id=topic_id,
                node_id=node_id,
                lock_ms=lock_ms,
                lock_until_ms=sent_ms + lock_ms,
            )
            ranges.append(acquired)
            count += one.last_offset - one.first_offset + 1
        if not ranges:
            return 0
        lane.held.setdefault(key, []).extend(ranges)
        arrival = Arrival(topic, partition, topic_id, ranges, data.records or b"", data.acquired_bytes)
        self._outstanding += count
        if self._buffer:
            for dead in [one for one in self._buffer if not any(each.has(BUFFERED) for each in one.acquired)]:
                self._buffer.remove(dead)  # lost while it waited: its bytes are of no use any more
        self._buffer.append(arrival)
        self._due(lane, sent_ms + lock_ms // 2)
        return count

    def arrive_one(self, node_id: int, response: UsualFetch, *, topic: str, sent_ms: int, now_ms: int) -> int:
        """`arrive` for one range, which most often meets neither older ranges of its partition nor a full buffer."""
        lane = self._lanes[node_id]
        lock_ms, topic_id, partition, first, last, delivery_count, records = response
        key = topic_id, partition
        until_ms = sent_ms + lock_ms
        if self._buffer or lane.waiting or key in lane.held or now_ms >= until_ms:
            data = response.as_message().responses[0].partitions[0]
            return self.arrive(
                node_id, key, data, topic=topic, lock_ms=lock_ms, sent_ms=sent_ms, now_ms=now_ms
            )
        acquired = AcquiredRange(
            topic,
            partition,
            first=first,
            last=last,
            delivery_count=delivery_count,
            topic_id=topic_id,
            node_id=node_id,
            lock_ms=lock_ms,
            lock_until_ms=until_ms,
        )
        lane.held[key] = [acquired]
        count = last - first + 1
        self._outstanding += count
        self._buffer.append(Arrival(topic, partition, topic_id, [acquired], records))
        self._due(lane, sent_ms + lock_ms // 2)
        return count

    def _lose_overlap(self, lane: _Lane, key: Key, first: int, last: int) -> None:
        """The broker has given us these offsets again, so our older lock on them had ended."""
        for acquired in [one for one in lane.held.get(key, ()) if one.first <= last and first <= one.last]:
            low, high = max(first, acquired.first), min(last, acquired.last)
            self._lose(acquired, _redelivered(acquired), [Span(low, high, BUFFERED)])
        # What waits to be sent for the old lock would be taken for an acknowledgement of the new one.
        for ack in [one for one in lane.waiting if one.key == key]:
            if ack.first <= last and first <= ack.last:
                lane.waiting.remove(ack)
                self.settle(ack, _redelivered(ack.acquired))

    # The application's side

    def take(self, records_max: int, *, now_ms: int) -> list[Arrival]:
        """Arrivals of so many records or a few more, in order; at least one if there is one.

        They are the poll's until `decoded`; the next `take` puts back what was not.
        """
        if self._taken:
            self.put_back()
        count = 0
        picked: list[Arrival] = []
        taken: list[Arrival] = []
        for arrival in self._buffer:
            if count >= records_max:
                break
            picked.append(arrival)
            ours = [one for one in arrival.acquired if one.has(BUFFERED) and now_ms < one.lock_until_ms]
            if not ours:
                continue  # lost, or its lock has ended unnoticed
            for one in ours:
                count += one.count
            if len(ours) < len(arrival.acquired):
                arrival = replace(arrival, acquired=ours)
            taken.append(arrival)
        self._taken = picked
        for arrival in taken:
            for one in arrival.acquired:
                one.apply(TAKE)
                one.taken_ms = now_ms
        for _ in picked:
            self._buffer.popleft()
        if not taken:
            self._taken = ()  # nothing of what was picked is ours any more: nobody will call `decoded`
        return taken

    def put_back(self) -> None:
        """The poll that took these was broken off: the application has seen none of them."""
        for arrival in reversed(self._taken):
            if not any(arrival is one for one in islice(self._buffer, len(self._taken))):
                self._buffer.appendleft(arrival)
            for acquired in arrival.acquired:
                acquired.apply(C.PUT_BACK)
                acquired.taken_ms = None
        self._taken = ()

    def decoded(self) -> None:
        """Whoever took the arrivals has what is in them, and needs them no more."""
        self._taken = ()

    def miss(self, acquired: AcquiredRange, first: int, last: int) -> None:
        """There are no records at these offsets."""
        self._note_answer(acquired)
        acquired.apply(C.MISS, first, last)

    def hand_out(self, acquired: AcquiredRange, first: int | None = None, last: int | None = None) -> None:
        """The application gets these, as far as they have not been lost meanwhile."""
        acquired.apply(HAND_OUT, first, last)

    def lose_ended(self, acquired: AcquiredRange, *, now_ms: int) -> None:
        """Before something of a range is handed out: its lock may have ended unnoticed, and then it is lost."""
        if now_ms >= acquired.lock_until_ms:
            self._lose_ended(self._lanes[acquired.node_id], acquired, now_ms)

    def answer(self, acquired: AcquiredRange, offset: int, type: int) -> bool:
        """The application's answer (an acknowledge type); False when it may not give it (any more).

        This is done for each record, so it is short: the table is looked into right here.
        """
        if acquired is not self._answered_last:
            self._note_answer(acquired)
        states = acquired._states
        if states is None:
            states = acquired.spread()
        index = offset - acquired.first
        new = STRICT[type][states[index]]
        if new == REFUSED:
            return False
        states[index] = new
        return True

    def renew(self, acquired: AcquiredRange, offset: int) -> bool:
        """The application wants the lock of an offset to start anew."""
        self._renewed_by_hand[acquired] = None
        return self.answer(acquired, offset, S.RENEW)

    def release_later(self, acquired: AcquiredRange, offset: int, due_ms: int) -> bool:
        """The application's answer: the offset is released at that time, and kept locked until then."""
        self._note_answer(acquired)
        if not acquired.delay(offset, due_ms):
            return False
        half_ms = acquired.lock_until_ms_of(offset) - acquired.lock_ms // 2
        self._due(self._lanes[acquired.node_id], min(due_ms, half_ms))
        return True

    def release_delayed(self) -> None:
        """What is to be released later is released now."""
        for lane in self._lanes.values():
            for acquired in list(lane.acquired()):
                if acquired.fall_due():
                    self._note_answer(acquired)

    def answer_all(self, acquired: AcquiredRange, first: int, last: int, type: int) -> bool:
        """The same for a range of offsets; nothing changes unless all of them may."""
        self._note_answer(acquired)
        return acquired.answer_all(first, last, type)

    def answer_some(self, parts: Sequence[tuple[AcquiredRange, int, bytes]], type: int) -> bool:
        """The same for single offsets of several ranges: those from an offset on whose byte in a mask is not 0."""
        changes: list[tuple[AcquiredRange, int, bytes]] = []
        for acquired, first, mask in parts:
            states = acquired.answer_some(first, mask, type)
            if states is None:
                return False
            changes.append((acquired, first, states))
        for acquired, first, states in changes:
            self._note_answer(acquired)
            acquired.replace(first, states)
        return True

    def release_some_later(self, parts: Sequence[tuple[AcquiredRange, int, bytes]], due_ms: int) -> bool:
        """`release_later` for the same."""
        if not self.answer_some(parts, C.DELAY):
            return False
        for acquired, first, mask in parts:
            acquired.fall_due_at(due_ms, compress(count(first), mask))
            half_ms = acquired.lock_until_ms - acquired.lock_ms // 2
            self._due(self._lanes[acquired.node_id], min(due_ms, half_ms))
        return True

    def answer_handed(self, acquired: AcquiredRange, first: int, last: int, type: int) -> None:
        """The same for what the application has of these and has not answered, or what it has lost."""
        self._note_answer(acquired)
        if first == acquired.first and last == acquired.last and acquired.answer_whole(type):
            return
        for span in list(acquired.spans(first, last, of=bytes([S.HANDED, S.LOST]))):
            acquired.apply(C(type), span.first, span.last)

    def _note_answer(self, acquired: AcquiredRange) -> None:
        self._answered[acquired] = None
        self._answered_last = acquired

    def release_buffer(self, but: Collection[str] = ()) -> None:
        """Nobody will take what waits, except what is of the topics `but`: it goes back to the group."""
        waiting, self._buffer = self._buffer, deque()
        for arrival in waiting:
            if arrival.topic in but:
                self._buffer.append(arrival)
                continue
            for acquired in arrival.acquired:
                self.give_back(acquired)

    def release_unlisted(self, node_id: int, listed: Collection[Key]) -> None:
        """Gives back what is not answered and is in partitions which the session has forgotten."""
        for acquired in self.held(node_id):
            if (acquired.topic_id, acquired.partition) not in listed:
                self.give_back(acquired)

    def give_back(self, acquired: AcquiredRange) -> None:
        """Nobody will answer what is left of it: it goes back to the group."""
        acquired.apply(C.GIVE_BACK)
        self._send_answers(acquired)

    # To the brokers

    def send_answers(self) -> list[Settled]:
        """Everything answered so far is to go with the next requests; returns what is too late for that."""
        if not self._answered:
            return []
        known = len(self._settled)
        answered, self._answered, self._answered_last = self._answered, {}, None
        for acquired in answered:
            self._send_answers(acquired)
        return self._settled[known:]

    def _send_answers(self, acquired: AcquiredRange, parts: Sequence[Ranged] | None = None) -> list[Ack]:
        """Those for all offsets, or for some."""
        lane = self._lanes[acquired.node_id]
        acks = []
        for span in acquired.apply(SEND) if parts is None else acquired.apply_to(SEND, parts):
            if span.state == LATE:
                self._settled.append(Settled(acquired, span.first, span.last, LATE_TYPE, _too_late(acquired)))
                continue
            acks.append(Ack(acquired, span.first, span.last, span.state, self._number))
            self._number += 1
            if span.state != RENEW:
                self._outstanding -= span.size
        if acks and acquired.is_renewing:
            self._cut_renewals(lane, acquired, acks)
        lane.waiting += acks
        self._forget_finished(lane, acquired)
        return acks

    def _cut_renewals(self, lane: _Lane, acquired: AcquiredRange, acks: Sequence[Ack]) -> None:
        """What is acknowledged now is not renewed too: two types for one offset make the broker refuse the request."""
        own = [ack for ack in lane.waiting if ack.is_own and ack.acquired is acquired]
        if own:
            own.sort(key=_first)
            others = [ack for ack in lane.waiting if not ack.is_own or ack.acquired is not acquired]
            lane.waiting = [*others, *minus(own, acks)]
            acquired.is_renewing = self._has_own(lane, acquired)

    def _has_own(self, lane: _Lane, acquired: AcquiredRange) -> bool:
        return any(ack.is_own and ack.acquired is acquired for ack in (*lane.waiting, *lane.in_flight))

    def send(self, node_id: int) -> list[Ack]:
        """What the next request to a broker acknowledges: all that waits, but of a partition whose acknowledgements
        were refused only one acquisition at a time."""
        lane = self._lanes[node_id]
        assert not lane.in_flight, "two requests in flight to one broker"
        if not lane.waiting or not any(ack.is_alone for ack in lane.waiting):
            lane.in_flight, lane.waiting = lane.waiting, []
            return lane.in_flight
        alone: dict[Key, AcquiredRange] = {}
        for ack in lane.waiting:
            if ack.is_alone:
                alone.setdefault(ack.key, ack.acquired)
        waiting, lane.waiting = lane.waiting, []
        for ack in waiting:
            is_next = alone.get(ack.key, ack.acquired) is ack.acquired
            (lane.in_flight if is_next else lane.waiting).append(ack)
        return lane.in_flight

    def responded(self, node_id: int) -> list[Ack]:
        """The request in flight is over: what it carried, for `settle` or `send_again`."""
        lane = self._lanes[node_id]
        acks, lane.in_flight = lane.in_flight, []
        return acks

    def send_again(self, ack: Ack, error: KafkaError, *, now_ms: int) -> None:
        """Refused without effect: it may be sent again as long as the lock lives."""
        acquired = ack.acquired
        lane = self._lanes[acquired.node_id]
        if now_ms >= acquired.lock_until_ms:
            self.settle(ack, error)
        elif not ack.is_own:
            lane.waiting.append(ack)
        else:  # but for what was answered while the renewal was on its way
            again = [
                ack._replace(first=span.first, last=span.last)
                for span in acquired.spans(ack.first, ack.last, of=UNSENT)
            ]
            lane.waiting += again
            acquired.is_renewing = bool(again) or self._has_own(lane, acquired)

    def settle(self, ack: Ack, error: KafkaError | None, *, sent_ms: int | None = None) -> None:
        """The last word on an acknowledgement; `sent_ms` is when a confirmed renewal was sent."""
        if ack.is_renewal:
            self._settle_renewals(ack.acquired, [ack], error, sent_ms)
            return
        acquired, first, last = ack.acquired, ack.first, ack.last
        acquired.apply(CONFIRM if error is None else REFUSE, first, last)
        self._settled.append(Settled(acquired, first, last, ack.type, error))
        if self._commits:
            self._tell_commits((ack,), error)
        self._forget_finished(self._lanes[acquired.node_id], acquired)

    def settle_all(
        self, acks: Iterable[Ack], error: KafkaError | None, *, sent_ms: int | None = None
    ) -> None:
        """`settle` for several. Their number may be that of the records, so those of a range are settled together."""
        renewals: defaultdict[AcquiredRange, list[Ack]] = defaultdict(list)
        for ack in acks:
            if ack.is_renewal:
                renewals[ack.acquired].append(ack)
            else:
                self.settle(ack, error)
        for acquired, ours in renewals.items():
            self._settle_renewals(acquired, ours, error, sent_ms)

    def _settle_renewals(
        self, acquired: AcquiredRange, acks: Sequence[Ack], error: KafkaError | None, sent_ms: int | None
    ) -> None:
        lane = self._lanes[acquired.node_id]
        own = [ack for ack in acks if ack.is_own]
        if own:
            acquired.is_renewing = self._has_own(lane, acquired)
        asked = [ack for ack in acks if not ack.is_own] if own else acks
        changed = acquired.apply_to(CONFIRM if error is None else REFUSE, asked)
        self._settled += [Settled(acquired, ack.first, ack.last, ack.type, error) for ack in asked]
        if error is None:
            self._extend(lane, acquired, sent_ms, acks)
        else:
            if own:
                self._not_renewed(acquired, own, error)
            self._lose_renewed(acquired, changed, error)
        if asked:
            following = self._send_answers(acquired)  # answered while the renewal was on its way
            for commit in self._commits:
                commit.follow(asked, following)
            self._tell_commits(asked, error)
        self._forget_finished(lane, acquired)

    def _tell_commits(self, acks: Sequence[Ack], error: KafkaError | None) -> None:
        for commit in self._commits:
            for ack in acks:
                commit.settle(ack, error)
        self._commits = [commit for commit in self._commits if not commit.is_done]

    def _lose_renewed(self, acquired: AcquiredRange, changed: Iterable[Span], error: KafkaError) -> None:
        for span in changed:
            self._outstanding -= span.size
            if span.state == S.RENEWING:
                self._lost.append(Lost(acquired, span.first, span.last, error))

    def fail_waiting(self, node_id: int, error: KafkaError) -> None:
        lane = self._lanes[node_id]
        acks, lane.waiting = lane.waiting, []
        self.settle_all(acks, error)

    def fail_renewals(self, node_id: int, error: KafkaError) -> None:
        """The renewals that wait are not sent any more."""
        lane = self._lanes[node_id]
        acks, lane.waiting = lane.waiting, []
        lane.waiting = [ack for ack in acks if not ack.is_renewal]
        self.settle_all([ack for ack in acks if ack.is_renewal], error)

    def commit(self, late: Iterable[Settled] = ()) -> Commit:
        """Waits for the responses to everything sent so far; `late` is what `send_answers` has returned."""
        commit = Commit(ack for lane in self._lanes.values() for ack in (*lane.waiting, *lane.in_flight))
        for one in late:
            commit.add(one.acquired, one.error)
        if not commit.is_done:
            self._commits.append(commit)
        return commit

    # Locks

    def check_locks(self, *, is_out: bool, polled_ms: int | None, now_ms: int) -> None:
        """Renews, releases and loses whatever is due.

        `is_out`: the member has left, so nothing is kept ready. `polled_ms`: when the application last polled.
        """
        for node_id, lane in self._lanes.items():
            if lane.due_ms is not None and now_ms >= lane.due_ms:
                lane.due_ms = None
                session = self._sessions[node_id]
                can_renew = session.is_open and not session.is_old
                for acquired in list(lane.acquired()):
                    is_idle = polled_ms is None or now_ms - polled_ms >= acquired.lock_ms // 2
                    self._check_lock(lane, acquired, can_renew, is_out, is_idle, now_ms)

    def _check_lock(
        self, lane: _Lane, acquired: AcquiredRange, can_renew: bool, is_out: bool, is_idle: bool, now_ms: int
    ) -> None:
        if now_ms >= acquired.lock_until_ms:
            self._lose_ended(lane, acquired, now_ms)
            if now_ms >= acquired.lock_until_ms:
                return
        self._release_due(lane, acquired, now_ms)
        until_ms, lock_ms = acquired.lock_until_ms, acquired.lock_ms
        held = list(acquired.spans(of=UNSENT))
        if not held:
            return
        is_hoarded = not self._is_ahead and acquired.is_all(S.BUFFERED) and acquired.delivery_count == 1
        half_ms = until_ms - lock_ms // 2
        if acquired.is_renewing or not (can_renew and self._may_renew(acquired, is_out, now_ms)):
            release_ms = until_ms - lock_ms // 10
            if acquired.taken_ms is not None or acquired.is_renewing:
                self._due(lane, until_ms)
            elif now_ms >= release_ms:
                self.give_back(acquired)
            else:
                self._due(lane, release_ms)
        elif now_ms < half_ms - lock_ms // 8:
            self._due(lane, half_ms)
        elif is_hoarded and is_idle:
            self.give_back(acquired)
        else:
            acquired.is_renewing = True
            for span in held:
                lane.waiting.append(Ack(acquired, span.first, span.last, S.RENEW, self._number, is_own=True))
            self._due(lane, until_ms)
        if acquired.has(S.DELAYED):
            self._keep_delayed(lane, acquired, can_renew, now_ms)

    def _release_due(self, lane: _Lane, acquired: AcquiredRange, now_ms: int) -> None:
        """Sends what was to be released by now, and none of the other answers."""
        due = [span for span in acquired.fall_due(now_ms) if span.state == S.DELAYED]
        if due:
            self._send_answers(acquired, due)
        due_ms = acquired.next_due_ms
        if due_ms is not None:
            self._due(lane, due_ms)

    def _keep_delayed(self, lane: _Lane, acquired: AcquiredRange, can_renew: bool, now_ms: int) -> None:
        """What is to be released later keeps its lock, whatever becomes of its neighbors."""
        lock_ms, is_renewing = acquired.lock_ms, acquired.is_renewing
        over: list[Ranged] = []
        for lock in acquired.locks(of=DELAYED):
            first, last, until_ms = lock
            renew_ms, release_ms = until_ms - lock_ms // 2, until_ms - lock_ms // 10
            if is_renewing:
                self._due(lane, until_ms)
            elif not can_renew and now_ms >= release_ms:
                over.append(lock)
            elif not can_renew:
                self._due(lane, release_ms)
            elif now_ms < renew_ms - lock_ms // 8:
                self._due(lane, renew_ms)
            else:
                acquired.is_renewing = True
                lane.waiting.append(Ack(acquired, first, last, S.RENEW, self._number, is_own=True))
                self._due(lane, until_ms)
        self._release_now(acquired, over)

    def _release_now(self, acquired: AcquiredRange, parts: Sequence[Ranged]) -> None:
        """What was to be released later cannot be kept."""
        due = acquired.apply_to(C.FALL_DUE, parts)
        if due:
            self._send_answers(acquired, due)

    def _lose_ended(self, lane: _Lane, acquired: AcquiredRange, now_ms: int) -> None:
        self._lose(acquired, _expired(acquired), acquired.expire(now_ms))
        if acquired.lock_until_ms > now_ms:
            self._due(lane, acquired.lock_until_ms)

    def _may_renew(self, acquired: AcquiredRange, is_out: bool, now_ms: int) -> bool:
        if acquired.taken_ms is None:
            return not is_out
        return self._auto_renew and now_ms < acquired.taken_ms + self._settings.auto_renew_max_ms

    def _extend(
        self,
        lane: _Lane,
        acquired: AcquiredRange,
        sent_ms: int | None,
        parts: Sequence[Ranged],
    ) -> None:
        if sent_ms is not None:
            acquired.lock_ms = self._lock_ms or acquired.lock_ms
            until_ms = sent_ms + acquired.lock_ms
            acquired.extend(until_ms, parts)
            self._due(lane, until_ms - acquired.lock_ms // 2)

    def _not_renewed(self, acquired: AcquiredRange, acks: Sequence[Ack], error: KafkaError) -> None:
        if error.code is ErrorCode.INVALID_RECORD_STATE:
            # Renewing may be switched off for the group. Then the lock is still ours, and releasing it is right.
            if acquired.taken_ms is None:
                self.give_back(acquired)
                return
            self._release_now(acquired, acks)
        self._lose(acquired, error, acks)

    def note_lock_ms(self, lock_ms: int) -> None:
        """How long locks last, as a response says; 0 where it does not."""
        self._lock_ms = lock_ms or self._lock_ms

    # Ends

    def lose_broker(self, node_id: int, error: KafkaError) -> None:
        """Every lock of a broker is gone, and what is on its way to it has no response."""
        lane = self._lanes[node_id]
        for acquired in list(lane.acquired()):
            self._lose(acquired, error)
        lane.due_ms = None
        self.settle_all(self.responded(node_id), error)
        self.fail_waiting(node_id, error)

    def lose_partition(self, node_id: int, key: Key, error: KafkaError) -> None:
        for acquired in list(self._lanes[node_id].held.get(key, ())):
            self._lose(acquired, error)

    def end_session(self, node_id: int) -> None:
        """The session is closed, which has released what was held in it."""
        self._lanes[node_id].held.clear()

    def _lose(
        self, acquired: AcquiredRange, error: KafkaError, parts: Sequence[Ranged] | None = None
    ) -> None:
        for span in acquired.apply(C.LOSE) if parts is None else acquired.apply_to(C.LOSE, parts):
            self._outstanding -= span.size
            if span.state == S.HANDED:
                self._lost.append(Lost(acquired, span.first, span.last, error))
        if acquired.has(LATE):
            self._note_answer(acquired)
        self._forget_finished(self._lanes[acquired.node_id], acquired)

    def _forget_finished(self, lane: _Lane, acquired: AcquiredRange) -> None:
        if not acquired.is_finished:
            return
        key = (acquired.topic_id, acquired.partition)
        ranges = lane.held.get(key)
        if ranges is not None and acquired in ranges:
            ranges.remove(acquired)
            if not ranges:
                del lane.held[key]

    def _due(self, lane: _Lane, due_ms: int) -> None:
        if lane.due_ms is None or due_ms < lane.due_ms:
            lane.due_ms = due_ms


def _lock_lost(acquired: AcquiredRange, why: str) -> KafkaError:
    about = f"partition {acquired.topic}-{acquired.partition}"
    return error_for(ErrorCode.INVALID_RECORD_STATE, why, about=about)


def _expired(acquired: AcquiredRange) -> KafkaError:
    return _lock_lost(acquired, f"The lock has ended after {acquired.lock_ms} ms without an acknowledgement")


def _redelivered(acquired: AcquiredRange) -> KafkaError:
    return _lock_lost(acquired, "The lock had ended: the broker has delivered the record again")


def _too_late(acquired: AcquiredRange) -> KafkaError:
    return _lock_lost(acquired, "The lock was lost before the acknowledgement was made or sent")
