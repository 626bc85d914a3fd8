"""What a member holds, over all brokers: the buffer of arrivals, locks and their ends, acknowledgements and answers.

Theory of operation. `arrive` takes a range in, `take` hands it out, `sweep` turns decisions into acknowledgements that
wait in the session of their broker, `settle` has the last word on each. Three things can end a range otherwise: its
lock runs out (`look_at_locks`), its connection or leader goes (`lose_all`, `lose`), or the broker delivers it again,
which says that the lock was over (`_lose_overlap`). Each end is told once: what was acknowledged in `settled`, what
was not in `lost`. What was never handed out is told to nobody.

Locks: whatever waits in the buffer, and with auto.renew what the application works on, is renewed when half of its lock
has passed. What cannot be renewed and was never handed out is released in time; what was handed out is lost.

`lock` guards the marks and the buffer, nothing else: the sync consumer takes and marks records on the application's
thread. Methods that say so take it; all others must be called with it.
"""

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.client.core.acknowledgements import LATE_TYPE, Ack, Commit, Key, Lost, Settled
from headrace.client.core.acquired import LATE, OPEN, RELEASE, RENEW, Acquired
from headrace.client.core.session import Sent, Session
from headrace.client.errors import error_for
from headrace.client.settings import ShareSettings
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.share_fetch_response import PartitionData


@dataclass(frozen=True, slots=True)
class Arrival:
    """What one answer brought of one partition: the records' bytes, and which offsets in them are ours."""

    topic: str
    partition: int
    topic_id: bytes
    acquired: Sequence[Acquired]
    records: bytes
    """Whole record batches; there may be more in them than was acquired."""

    @property
    def count(self) -> int:
        return sum(one.count for one in self.acquired)


class Holdings:
    """See the module."""

    def __init__(self, settings: ShareSettings, sessions: Mapping[int, Session]) -> None:
        self.lock = threading.Lock()
        self.buffer: deque[Arrival] = deque()
        self.buffered = 0
        self.outstanding = 0
        """Offsets acquired and not acknowledged, in the buffer or taken."""
        self.settled: list[Settled] = []
        self.lost: list[Lost] = []
        self.lock_ms: int | None = None
        """How long the group's locks last, as brokers last said."""
        self.auto_renew = settings.auto_renew
        """To be switched off where the group is known to refuse it: a refused renewal costs the lock."""
        self._settings = settings
        self._sessions = sessions
        self._number = 0
        self._commits: list[Commit] = []

    def arrive(
        self,
        session: Session,
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
        ranges = []
        for one in data.acquired_records:
            self._lose_overlap(session, key, one.first_offset, one.last_offset)
            if now_ms >= sent_ms + lock_ms:
                continue
            acquired = Acquired(
                topic,
                partition,
                first=one.first_offset,
                last=one.last_offset,
                delivery_count=one.delivery_count,
                topic_id=topic_id,
                node_id=session.node_id,
                lock_ms=lock_ms,
                lock_until_ms=sent_ms + lock_ms,
            )
            ranges.append(acquired)
        if not ranges:
            return 0
        session.held.setdefault(key, []).extend(ranges)
        arrival = Arrival(topic, partition, topic_id, ranges, data.records or b"")
        self.outstanding += arrival.count
        self._buffer(arrival, 1)
        self.buffer.append(arrival)
        self._due(session, sent_ms + lock_ms // 2)
        return arrival.count

    def take(self, records_max: int, *, now_ms: int) -> list[Arrival]:
        """Arrivals of so many records or a few more, in order; at least one if there is one."""
        taken: list[Arrival] = []
        count = 0
        while self.buffer and count < records_max:
            arrival = self.buffer.popleft()
            self._buffer(arrival, -1)
            ours = [acquired for acquired in arrival.acquired if acquired.open_count]
            if not ours:
                continue
            for acquired in ours:
                acquired.taken_ms = now_ms
                count += acquired.count
            if len(ours) < len(arrival.acquired):
                arrival = Arrival(arrival.topic, arrival.partition, arrival.topic_id, ours, arrival.records)
            taken.append(arrival)
        return taken

    def give_back(self, arrivals: Iterable[Arrival]) -> None:
        """Undoes `take`: the application has not seen them. Takes the lock."""
        with self.lock:
            for arrival in reversed(list(arrivals)):
                self.buffer.appendleft(arrival)
                self._buffer(arrival, 1)
                for acquired in arrival.acquired:
                    acquired.taken_ms = None

    def restore(self, arrivals: Sequence[Arrival]) -> None:
        """The buffer as it was: a `take` was broken off in the middle (Ctrl+C)."""
        self.buffer = deque(arrivals)
        self.buffered = 0
        for session in self._sessions.values():
            session.buffered = 0
        for arrival in arrivals:
            self._buffer(arrival, 1)
            for acquired in arrival.acquired:
                acquired.taken_ms = None

    def release_buffer(self, but: Collection[str] = ()) -> None:
        """Nobody will take what waits, except what is of the topics `but`: it goes back to the group."""
        waiting, self.buffer = self.buffer, deque()
        for arrival in waiting:
            if arrival.topic in but:
                self.buffer.append(arrival)
                continue
            self._buffer(arrival, -1)
            for acquired in arrival.acquired:
                self.release(acquired)

    def release(self, acquired: Acquired) -> None:
        """Gives back what nobody has decided about."""
        acquired.choose_open(RELEASE)
        self._sweep(acquired)

    def _buffer(self, arrival: Arrival, change: int) -> None:
        for acquired in arrival.acquired:
            self.buffered += change * acquired.count
            self._sessions[acquired.node_id].buffered += change * acquired.count

    def sweep(self, ranges: Iterable[Acquired]) -> list[Settled]:
        """Everything decided about these goes to the brokers; returns what is too late for that. Takes the lock."""
        known = len(self.settled)
        with self.lock:
            for acquired in ranges:
                self._sweep(acquired)
        return self.settled[known:]

    def commit(self, late: Iterable[Settled] = ()) -> Commit:
        """Waits for the answers to everything swept so far; `late` is what the sweep has returned."""
        outstanding = [
            ack
            for session in self._sessions.values()
            for ack in (*session.pending, *(session.in_flight.acks if session.in_flight else ()))
        ]
        commit = Commit(outstanding, self._number)
        for one in late:
            commit.add(one.acquired, one.error)
        if not commit.is_done:
            self._commits.append(commit)
        return commit

    def _sweep(self, acquired: Acquired) -> None:
        session = self._sessions[acquired.node_id]
        for span in acquired.sweep():
            if span.mark == LATE:
                self.settled.append(Settled(acquired, span.first, span.last, LATE_TYPE, _too_late(acquired)))
                continue
            if acquired.renewing:
                self._cut_renewal(session, acquired, span.first, span.last)
            session.pending.append(Ack(acquired, span.first, span.last, span.mark, self._number))
            self._number += 1
            if span.mark != RENEW:
                self.outstanding -= span.last - span.first + 1
        if acquired.is_finished:
            session.forget(acquired)

    def _cut_renewal(self, session: Session, acquired: Acquired, first: int, last: int) -> None:
        """What is answered now is not renewed too: two answers for one offset make the broker refuse the request."""
        kept: list[Ack] = []
        for ack in session.pending:
            if not ack.is_own or ack.acquired is not acquired or ack.last < first or ack.first > last:
                kept.append(ack)
                continue
            if ack.first < first:
                kept.append(ack._replace(last=first - 1))
            if ack.last > last:
                kept.append(ack._replace(first=last + 1))
        session.pending = kept
        sent = session.in_flight.acks if session.in_flight is not None else ()
        acquired.renewing = any(ack.is_own and ack.acquired is acquired for ack in (*kept, *sent))

    def again(self, session: Session, ack: Ack, error: KafkaError, *, now_ms: int) -> None:
        """Refused without effect: it may be sent again as long as the lock lives."""
        if now_ms >= ack.acquired.lock_until_ms:
            self.settle(ack, error)
        else:
            session.pending.append(ack)

    def settle(self, ack: Ack, error: KafkaError | None, sent: Sent | None = None) -> None:
        """The last word on an acknowledgement."""
        acquired, first, last = ack.acquired, ack.first, ack.last
        if ack.is_own:
            acquired.renewing = False
            if error is None:
                self._extend(acquired, sent)
            else:
                self._not_renewed(ack, error)
            return
        if ack.mark != RENEW:
            acquired.finish(first, last)
        elif error is None:
            acquired.renewed(first, last)
            self._extend(acquired, sent, first, last)
        else:
            self.outstanding -= acquired.not_renewed(first, last)
            self.lost.append(Lost(acquired, first, last, error))
        self.settled.append(Settled(acquired, first, last, ack.type, error))
        self._commits = [commit for commit in self._commits if not self._tell(commit, ack, error)]
        if acquired.is_finished:
            self._sessions[acquired.node_id].forget(acquired)

    def _tell(self, commit: Commit, ack: Ack, error: KafkaError | None) -> bool:
        commit.answered(ack, error)
        return commit.is_done

    def fail_pending(self, session: Session, error: KafkaError) -> None:
        acks, session.pending = session.pending, []
        for ack in acks:
            self.settle(ack, error)

    def look_at_locks(self, *, is_out: bool, now_ms: int) -> None:
        """Renews, releases and loses whatever is due. `is_out`: the member has left, so nothing is kept ready."""
        for session in self._sessions.values():
            if session.next_due_ms is not None and now_ms >= session.next_due_ms:
                session.next_due_ms = None
                for acquired in list(session.acquired()):
                    self._look_at(session, acquired, is_out, now_ms)

    def _look_at(self, session: Session, acquired: Acquired, is_out: bool, now_ms: int) -> None:
        until_ms, lock_ms = acquired.lock_until_ms, acquired.lock_ms
        if now_ms >= until_ms:
            for first, last in acquired.expired(now_ms):
                self.lose(acquired, _expired(acquired), first, last)
            if acquired.lock_until_ms > now_ms:
                self._due(session, acquired.lock_until_ms)
            return
        held = acquired.held()
        if not held:
            return
        if acquired.renewing or not self._may_renew(session, acquired, is_out, now_ms):
            release_ms = until_ms - lock_ms // 10
            if acquired.taken_ms is not None or acquired.renewing:
                self._due(session, until_ms)
            elif now_ms >= release_ms:
                self.release(acquired)
            else:
                self._due(session, release_ms)
        elif now_ms >= until_ms - lock_ms // 2 - lock_ms // 8:
            acquired.renewing = True
            for span in held:
                session.pending.append(Ack(acquired, span.first, span.last, RENEW, self._number, is_own=True))
            self._due(session, until_ms)
        else:
            self._due(session, until_ms - lock_ms // 2)

    def _may_renew(self, session: Session, acquired: Acquired, is_out: bool, now_ms: int) -> bool:
        if session.is_old or not session.is_open:
            return False
        if acquired.taken_ms is None:
            return not is_out
        return self.auto_renew and now_ms < acquired.taken_ms + self._settings.auto_renew_max_ms

    def _extend(
        self, acquired: Acquired, sent: Sent | None, first: int | None = None, last: int | None = None
    ) -> None:
        if sent is not None:
            acquired.lock_ms = self.lock_ms or acquired.lock_ms
            acquired.extend(sent.sent_ms + acquired.lock_ms, first, last)
            self._due(self._sessions[acquired.node_id], acquired.lock_until_ms - acquired.lock_ms // 2)

    def _not_renewed(self, ack: Ack, error: KafkaError) -> None:
        acquired = ack.acquired
        if acquired.taken_ms is None and error.code is ErrorCode.INVALID_RECORD_STATE:
            # Renewing may be switched off for the group. Then the lock is still ours, and releasing it is right.
            self.release(acquired)
        else:
            self.lose(acquired, error, ack.first, ack.last)

    def lose(
        self, acquired: Acquired, error: KafkaError, first: int | None = None, last: int | None = None
    ) -> None:
        for span in acquired.lose(first, last):
            self.outstanding -= span.last - span.first + 1
            if span.mark == OPEN and acquired.taken_ms is not None:
                self.lost.append(Lost(acquired, span.first, span.last, error))
        if acquired.is_finished:
            self._sessions[acquired.node_id].forget(acquired)

    def lose_all(self, session: Session, error: KafkaError) -> None:
        for acquired in list(session.acquired()):
            self.lose(acquired, error)
        session.next_due_ms = None

    def _lose_overlap(self, session: Session, key: Key, first: int, last: int) -> None:
        """The broker has given us these offsets again, so our older lock on them had ended."""
        for acquired in [one for one in session.held.get(key, ()) if one.first <= last and first <= one.last]:
            low, high = max(first, acquired.first), min(last, acquired.last)
            self.lose(acquired, _redelivered(acquired), low, high)
        # What waits to be sent for the old lock would be taken for an answer to the new one.
        for ack in [one for one in session.pending if one.key == key]:
            if ack.first <= last and first <= ack.last:
                session.pending.remove(ack)
                self.settle(ack, _redelivered(ack.acquired))

    def _due(self, session: Session, due_ms: int) -> None:
        if session.next_due_ms is None or due_ms < session.next_due_ms:
            session.next_due_ms = due_ms


def _lock_lost(acquired: Acquired, why: str) -> KafkaError:
    about = f"partition {acquired.topic}-{acquired.partition}"
    return error_for(ErrorCode.INVALID_RECORD_STATE, why, about=about)


def _expired(acquired: Acquired) -> KafkaError:
    return _lock_lost(acquired, f"The lock has ended after {acquired.lock_ms} ms without an acknowledgement")


def _redelivered(acquired: Acquired) -> KafkaError:
    return _lock_lost(acquired, "The lock had ended: the broker has delivered the record again")


def _too_late(acquired: Acquired) -> KafkaError:
    return _lock_lost(acquired, "The lock was lost before the acknowledgement was made or sent")
