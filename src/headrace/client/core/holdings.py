"""What a member holds, over all brokers. The one owner of every acquired range, from its arrival to its end.

Theory of operation. `arrive` takes a range in; what the application does with it is in `hands.py`, and `answered` has
the ranges with answers. `send_answers` turns answers into acknowledgements that wait for their broker in its lane
(`lanes.py`), from which the next request takes them; `settle` has the last word on each. What may follow what is the
table in `ranges.py`. Three things can end a range otherwise: its lock runs out (`locks.py`), its connection or leader
goes (`lose_broker`, `lose_partition`), or the broker delivers it again, which says that the lock was over. Each end is
told once: what was acknowledged as `Settled`, what was not as `Lost`. What was never handed out is told to nobody.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from headrace.base.ranges import Ranged
from headrace.client.core.acknowledgements import LATE_TYPE, Ack, Commit, Key, Lost, Settled
from headrace.client.core.lanes import BrokerLane
from headrace.client.core.ranges import UNSENT, AcquiredRange, RangeCause, RangeState, Span
from headrace.client.core.usual import UsualFetch
from headrace.client.errors import error_for
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_fetch_response import PartitionData

S, C = RangeState, RangeCause
BUFFERED, LATE, RENEW = S.BUFFERED, S.LATE, S.RENEW  # reading an enum's member takes longer than a global
SEND, CONFIRM, REFUSE = C.SEND, C.CONFIRM, C.REFUSE


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


class Holdings:
    """See the module."""

    def __init__(self) -> None:
        self._lock_ms: int | None = None
        self.lanes: defaultdict[int, BrokerLane] = defaultdict(BrokerLane)
        """By broker."""
        self.answered: dict[AcquiredRange, None] = {}
        """Ranges with answers that are not sent."""
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
    def has_news(self) -> bool:
        """`told` has something to tell."""
        return bool(self._settled or self._lost)

    def told(self) -> tuple[list[Settled], list[Lost]]:
        """What was settled and lost since the last call."""
        settled, self._settled = self._settled, []
        lost, self._lost = self._lost, []
        return settled, lost

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
    ) -> Arrival | None:
        """Takes in what a fetch has acquired of a partition. None: nothing that is still locked.

        The locks count from `sent_ms`, when the request was sent: the broker cannot have started them earlier. What is
        over by that count was perhaps delivered to another member meanwhile, and is dropped.
        """
        topic_id, partition = key
        self._lock_ms = lock_ms or self._lock_ms
        lane = self.lanes[node_id]
        ranges = []
        if not lane.is_idle or key in lane.held:
            self._lose_overlaps(lane, key, data)
        if now_ms >= sent_ms + lock_ms:
            return None
        for one in data.acquired_records:
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
        if not ranges:
            return None
        lane.hold(key, ranges)
        lane.due(sent_ms + lock_ms // 2)
        arrival = Arrival(topic, partition, topic_id, ranges, data.records or b"", data.acquired_bytes)
        self._outstanding += arrival.count
        return arrival

    def arrive_one(
        self, node_id: int, response: UsualFetch, *, topic: str, sent_ms: int, now_ms: int
    ) -> Arrival | None:
        """`arrive` for one range, which most often meets no older ranges of its partition."""
        lane = self.lanes[node_id]
        lock_ms, topic_id, partition, first, last, delivery_count, records = response
        key = topic_id, partition
        until_ms = sent_ms + lock_ms
        if key in lane.held or now_ms >= until_ms or not lane.is_idle:
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
        lane.held[key] = {acquired: None}
        lane.due(sent_ms + lock_ms // 2)
        self._outstanding += last - first + 1
        return Arrival(topic, partition, topic_id, [acquired], records)

    def _lose_overlaps(self, lane: BrokerLane, key: Key, data: PartitionData) -> None:
        """The broker has given us these offsets again, so our older locks on them had ended."""
        arrived = sorted(Span(one.first_offset, one.last_offset, BUFFERED) for one in data.acquired_records)
        for acquired, shared in lane.overlaps(key, arrived):
            self._lose(acquired, _redelivered(acquired), shared)
        # What waits to be sent for an old lock would be taken for an acknowledgement of the new one.
        for ack in lane.take_overlapping(key, arrived):
            self.settle(ack, _redelivered(ack.acquired))

    def lose_ended(self, acquired: AcquiredRange, *, now_ms: int) -> None:
        """Its lock has ended: it is lost, as far as no part of it was renewed since."""
        self._lose(acquired, _expired(acquired), acquired.expire(now_ms))
        if acquired.lock_until_ms > now_ms:
            self.check_by(acquired, acquired.lock_until_ms)

    def check_by(self, acquired: AcquiredRange, due_ms: int) -> None:
        """The locks of its broker have to be checked then, or before."""
        self.lanes[acquired.node_id].due(due_ms)

    def release_delayed(self) -> None:
        """What is to be released later is released now."""
        for lane in self.lanes.values():
            for acquired in list(lane.acquired()):
                if acquired.fall_due():
                    self.answered[acquired] = None

    def release_unlisted(self, node_id: int, listed: Collection[Key]) -> None:
        """Gives back what is not answered and is in partitions which the session has forgotten."""
        for acquired in list(self.lanes[node_id].acquired()):
            if (acquired.topic_id, acquired.partition) not in listed:
                self.give_back(acquired)

    def give_back(self, acquired: AcquiredRange) -> None:
        """Nobody will answer what is left of it: it goes back to the group."""
        acquired.apply(C.GIVE_BACK)
        self.send_some(acquired)

    # To the brokers

    def send_answers(self) -> list[Settled]:
        """Everything answered so far is to go with the next requests; returns what is too late for that."""
        if not self.answered:
            return []
        known = len(self._settled)
        answered = list(self.answered)
        self.answered.clear()
        for acquired in answered:
            self.send_some(acquired)
        return self._settled[known:]

    def send_some(self, acquired: AcquiredRange, parts: Sequence[Ranged] | None = None) -> list[Ack]:
        """The answers for all offsets of a range, or for some, are to go with the next request."""
        lane = self.lanes[acquired.node_id]
        acks = []
        for span in acquired.apply(SEND) if parts is None else acquired.apply_to(SEND, parts):
            if span.state == LATE:
                self._settled.append(Settled(acquired, span.first, span.last, LATE_TYPE, _too_late(acquired)))
                continue
            acks.append(Ack(acquired, span.first, span.last, span.state, self._number))
            self._number += 1
            if span.state != RENEW:
                self._outstanding -= span.size
        if acks:
            lane.cut_renewals(acquired, acks)
            lane.waiting += acks
        lane.forget_finished(acquired)
        return acks

    def send_again(self, ack: Ack, error: KafkaError, *, now_ms: int) -> None:
        """Refused without effect: it may be sent again as long as the lock lives."""
        acquired = ack.acquired
        lane = self.lanes[acquired.node_id]
        if now_ms >= acquired.lock_until_ms:
            self.settle(ack, error)
        elif not ack.is_own:
            lane.waiting.append(ack)
        else:  # but for what was answered while the renewal was on its way
            lane.renew(
                ack._replace(first=span.first, last=span.last)
                for span in acquired.spans(ack.first, ack.last, of=UNSENT)
            )

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
        self.lanes[acquired.node_id].forget_finished(acquired)

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
        lane = self.lanes[acquired.node_id]
        own = [ack for ack in acks if ack.is_own]
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
            following = self.send_some(acquired)  # answered while the renewal was on its way
            for commit in self._commits:
                commit.follow(asked, following)
            self._tell_commits(asked, error)
        lane.forget_finished(acquired)

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
        self.settle_all(self.lanes[node_id].take_waiting(), error)

    def fail_renewals(self, node_id: int, error: KafkaError) -> None:
        """The renewals that wait are not sent any more."""
        lane = self.lanes[node_id]
        acks = lane.take_waiting()
        lane.waiting = [ack for ack in acks if not ack.is_renewal]
        self.settle_all([ack for ack in acks if ack.is_renewal], error)

    def commit(self, late: Iterable[Settled] = ()) -> Commit:
        """Waits for the responses to everything sent so far; `late` is what `send_answers` has returned."""
        commit = Commit(ack for lane in self.lanes.values() for ack in (*lane.waiting, *lane.in_flight))
        for one in late:
            commit.add(one.acquired, one.error)
        if not commit.is_done:
            self._commits.append(commit)
        return commit

    # Locks

    def release_due(self, acquired: AcquiredRange, now_ms: int) -> None:
        """Sends what was to be released by now, and none of the other answers."""
        due = [span for span in acquired.fall_due(now_ms) if span.state == S.DELAYED]
        if due:
            self.send_some(acquired, due)

    def release_now(self, acquired: AcquiredRange, parts: Sequence[Ranged]) -> None:
        """What was to be released later cannot be kept."""
        due = acquired.apply_to(C.FALL_DUE, parts)
        if due:
            self.send_some(acquired, due)

    def _extend(
        self,
        lane: BrokerLane,
        acquired: AcquiredRange,
        sent_ms: int | None,
        parts: Sequence[Ranged],
    ) -> None:
        if sent_ms is not None:
            acquired.lock_ms = self._lock_ms or acquired.lock_ms
            until_ms = sent_ms + acquired.lock_ms
            acquired.extend(until_ms, parts)
            lane.due(until_ms - acquired.lock_ms // 2)

    def _not_renewed(self, acquired: AcquiredRange, acks: Sequence[Ack], error: KafkaError) -> None:
        if error.code is ErrorCode.INVALID_RECORD_STATE:
            # Renewing may be switched off for the group. Then the lock is still ours, and releasing it is right.
            if acquired.taken_ms is None:
                self.give_back(acquired)
                return
            self.release_now(acquired, acks)
        self._lose(acquired, error, acks)

    def note_lock_ms(self, lock_ms: int) -> None:
        """How long locks last, as a response says; 0 where it does not."""
        self._lock_ms = lock_ms or self._lock_ms

    # Ends

    def lose_broker(self, node_id: int, error: KafkaError) -> None:
        """Every lock of a broker is gone, and what is on its way to it has no response."""
        lane = self.lanes[node_id]
        for acquired in list(lane.acquired()):
            self._lose(acquired, error)
        lane.due_ms = None
        self.settle_all(lane.responded(), error)
        self.fail_waiting(node_id, error)

    def lose_partition(self, node_id: int, key: Key, error: KafkaError) -> None:
        for acquired in list(self.lanes[node_id].held.get(key, ())):
            self._lose(acquired, error)

    def end_session(self, node_id: int) -> None:
        """The session is closed, which has released what was held in it."""
        self.lanes[node_id].held.clear()

    def _lose(
        self, acquired: AcquiredRange, error: KafkaError, parts: Sequence[Ranged] | None = None
    ) -> None:
        for span in acquired.apply(C.LOSE) if parts is None else acquired.apply_to(C.LOSE, parts):
            self._outstanding -= span.size
            if span.state == S.HANDED:
                self._lost.append(Lost(acquired, span.first, span.last, error))
        if acquired.has(LATE):
            self.answered[acquired] = None
        self.lanes[acquired.node_id].forget_finished(acquired)


def _lock_lost(acquired: AcquiredRange, why: str) -> KafkaError:
    about = f"partition {acquired.topic}-{acquired.partition}"
    return error_for(ErrorCode.INVALID_RECORD_STATE, why, about=about)


def _expired(acquired: AcquiredRange) -> KafkaError:
    return _lock_lost(acquired, f"The lock has ended after {acquired.lock_ms} ms without an acknowledgement")


def _redelivered(acquired: AcquiredRange) -> KafkaError:
    return _lock_lost(acquired, "The lock had ended: the broker has delivered the record again")


def _too_late(acquired: AcquiredRange) -> KafkaError:
    return _lock_lost(acquired, "The lock was lost before the acknowledgement was made or sent")
