"""What both share consumers do between the member and the application: hand out deliveries, and mind the rules.

Theory of operation. The member fills a buffer of arrivals on the event loop. A poll takes from it on the thread of
the application: `begin` first runs callbacks and closes the books on what was handed out before (implicit: accept it;
explicit: insist that it is acknowledged), then `take` decodes arrivals into deliveries. Where a range stands is known
to the core alone; here are only the deliveries that were made of it.

A poll may be broken off anywhere: Ctrl+C, or any exception from a signal handler. A record counts as seen only when
`poll` has returned it, so records go through three rooms, and each step from one to the next is a single assignment:

    the core's buffer --decode--> `_rest` --deserialize--> `_last` --poll returns--> `seen`

What is in `_last` and not seen is returned by the next poll. Until it is seen it is neither accepted by an implicit
poll nor missed by an explicit one.

A record that cannot be deserialized, or a batch that cannot be read, must not hide the good records before it: what
lies behind it stays in `_rest`, the poll returns what came before, and the next poll raises. That record is answered
when the poll after that begins, so that the application can say otherwise until then.

A poll for rows (`take_batch`) has one room, `_batch`: the batch is there from the moment it is decoded, and is seen
when `batch_seen` is that same batch.

`lock` is around every call of the core: the member's loop and the application may be on two threads.
"""

import logging
import math
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from types import FrameType
from typing import Any
from weakref import WeakSet

from headrace.client.arguments import delay_seconds
from headrace.client.batches import (
    DeliveryBatch,
    Taken,
    parts_of,
    take_rows,
    unanswered,
    without_lost,
)
from headrace.client.core.acknowledgements import Lost, Settled
from headrace.client.core.hands import HANDED
from headrace.client.core.holdings import Arrival
from headrace.client.core.member import MemberCore
from headrace.client.core.ranges import AcquiredRange, RangeState
from headrace.client.decoding import Damaged, Gap, Opened, Readable, Rows, decode
from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.deserializing import Deserializer, RecordDeserializer
from headrace.client.errors import (
    IllegalStateError,
    UnsupportedVersionError,
    error_for,
)
from headrace.client.settings import AcknowledgementMode, ShareSettings
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("headrace.client")
CommitCallback = Callable[[dict[TopicPartition, set[int]], KafkaError | None], None]
LostCallback = Callable[[Sequence[Delivery], KafkaError], None]

ALL_HANDED = RangeState.HANDED
ACCEPT, RENEW = AcknowledgeType.ACCEPT, AcknowledgeType.RENEW
UNACKNOWLEDGED = "All records must be acknowledged in explicit acknowledgement mode."
IMPLICIT = "Implicit acknowledgement of delivery is being used."
NOT_IN_FLIGHT = "The record cannot be acknowledged."
ROWS_NOT_IN_FLIGHT = (
    "Some of these rows cannot be acknowledged: their answers are on the way. None of them has been answered."
)
UNSEEN_DELIVERIES = (
    "Records of an earlier poll or iteration have not been returned yet, and cannot become rows; "
    "call poll() until it has returned them, or use either poll() or batches()."
)
NO_DESERIALIZERS = (
    "batches() gives keys and values as bytes and calls no deserializer; make the consumer without "
    "key_deserializer and value_deserializer."
)
NOT_SUBSCRIBED = "The consumer is not subscribed to any topics; call subscribe first."
CLOSED = "The consumer is closed and has released all records that were not acknowledged."
FORKED = (
    "This delivery belongs to the process that was forked: an answer given here would never reach the broker. "
    "Answer it there, when this process has done its work; or make a consumer of its own in this process."
)
IN_CALLBACK = "The consumer must not be used inside its acknowledgement commit callback."


class _Piece:
    """Records of one acquisition, of which the first `ready` are deserialized."""

    __slots__ = ("acquired", "ready", "records")

    def __init__(self, acquired: AcquiredRange, records: list[Delivery], ready: int = 0) -> None:
        self.acquired = acquired
        self.records = records
        self.ready = ready


class Consumption:
    """The application's side of one consumer: the keeper of every delivery it has handed out."""

    def __init__(
        self,
        core: MemberCore,
        settings: ShareSettings,
        *,
        lock: AbstractContextManager[Any],
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_deserialization_error: AcknowledgeType = AcknowledgeType.RELEASE,
        on_lost: LostCallback | None = None,
        wake: Callable[[], None] | None = None,
        look: Callable[[], None] | None = None,
    ) -> None:
        """`wake` is called when there are answers to be sent, where records may be held over several polls; `look`
        when something has to be done at a time that the member does not know of yet."""
        self.callback: CommitCallback | None = None
        self.seen = 0
        """How many deliveries of the last poll the application has seen. Whoever returns them sets it, at the last."""
        self.batch_seen: DeliveryBatch | None = None
        """The last batch that the application has seen; set like `seen`."""
        self._batch: Taken | None = None
        self._is_closed = False
        self._is_in_callback = False
        self._is_forked = False
        """This is a copy, in a child process; the original is in the parent."""
        self._core = core
        self._hands = core.hands
        self._answer = core.hands.answer
        self._lock = lock
        self._settings = settings
        self._is_implicit = settings.share_acknowledgement_mode is AcknowledgementMode.IMPLICIT
        self._is_held_over = settings.max_unacknowledged > 0
        """Records may stay unacknowledged over polls, so a poll asks nothing of them and returns none again."""
        self._wake = wake if self._is_held_over else None
        self._look = look
        self._deserializer = RecordDeserializer(
            key_deserializer, value_deserializer, on_deserialization_error
        )
        self._on_lost = on_lost
        self._opened = Opened()
        self._rest: Sequence[_Piece | Damaged] = ()
        self._last: Sequence[Delivery] = ()
        self._last_pieces: Sequence[_Piece] = ()
        self._deliveries: dict[AcquiredRange, list[list[Delivery]]] = {}
        """What was made of each range; for those who are told of a loss, and for renewed records to come back."""
        self._failed: Sequence[Damaged] = ()
        """Raised by the last poll, and not answered by the application yet."""
        self._renewed: list[Delivery] = []
        """Returned by the next poll."""
        self._finished: deque[Settled] = deque()
        self._untold: deque[tuple[TopicPartition, set[int], KafkaError | None]] = deque()
        """What the callback has not been told."""
        self._note_special()
        _all.add(self)

    def _note_special(self) -> None:
        """One look for `acknowledge`, which is called for each record. When it says so, `_require_allowed` decides."""
        self._is_barred = self._is_implicit or self._is_closed or self._is_in_callback or self._is_forked
        self._is_special = self._is_barred or self._wake is not None

    # The application's thread

    def begin(self) -> None:
        """What comes first in every poll: callbacks, then the books on what was handed out before."""
        self.run_callbacks()
        self._answer_failed()
        if self._batch is not None:
            self._book_batch()
            self._drop_unseen_batch()
        if self._is_implicit:
            self.accept_seen()
        elif not self._is_held_over:
            with self._lock:
                renewed: dict[AcquiredRange, int] = {}
                if self._renewed:
                    renewed = Counter(one._grant.acquired for one in self._open_renewed())
                for acquired in self._deliveries:
                    if acquired.count_of(HANDED) > renewed.get(acquired, 0):
                        raise IllegalStateError(UNACKNOWLEDGED)
        self._last, self.seen = (), 0

    def _answer_failed(self) -> None:
        if self._failed:
            with self._lock:
                for one in self._failed:
                    self._hands.answer_handed(one.acquired, one.first, one.last, one.type)
            self._failed = ()

    def accept_seen(self) -> None:
        """Implicit mode: every record that the application has seen is accepted."""
        if self._batch is not None:
            self._book_batch()
        if not self._is_implicit or not self._deliveries:
            return
        unseen = set(map(id, self._last[self.seen :]))
        kept: dict[AcquiredRange, list[list[Delivery]]] = {}
        failed = {one.acquired for one in self._failed}
        with self._lock:
            for acquired, lists in self._deliveries.items():
                if not unseen and acquired not in failed:
                    self._hands.answer_handed(acquired, acquired.first, acquired.last, ACCEPT)
                    continue
                for delivery in (one for each in lists for one in each if id(one) not in unseen):
                    self._hands.answer_handed(acquired, delivery.offset, delivery.offset, ACCEPT)
                left = [[one for one in each if id(one) in unseen] for each in lists]
                if any(left):
                    kept[acquired] = left
            self._deliveries = kept

    @property
    def has_unseen(self) -> bool:
        """A poll was broken off, or an iteration was left before its end."""
        return self.seen < len(self._last)

    def next_unseen(self, *, now_ms: int) -> Delivery | None:
        """For an iteration, one by one: it counts as seen now. None when all that was left has been lost."""
        delivery = self._last[self.seen]
        acquired = delivery._grant.acquired
        if now_ms >= acquired.lock_until_ms or not acquired.is_all(ALL_HANDED):
            unseen = self.take_unseen(now_ms=now_ms)
            if not unseen:
                return None
            delivery = unseen[0]
        self.seen += 1
        return delivery

    @property
    def is_ready(self) -> bool:
        """Whether `take` may have something."""
        if self._renewed or self._rest:
            return True
        return self._hands.has_arrivals and (self._is_held_over or not self._hands.is_renewing)

    def take_unseen(self, *, now_ms: int) -> list[Delivery]:
        """What the last poll should have returned, as far as it is not lost."""
        self._register(now_ms)
        self._lose_ended(self._last[self.seen :], now_ms)
        self._last, self.seen = [one for one in self._last[self.seen :] if not one.is_lost], 0
        return list(self._last)

    def take(self, *, now_ms: int, records_wanted: int | None = None) -> list[Delivery]:
        """The next deliveries, or none; raises what stands in their place."""
        if not self._is_held_over:
            renewed = self._take_renewed(now_ms)
            if renewed is not None:
                return renewed
        if not self._rest:
            records_max = self._settings.max_poll_records
            records_max = min(records_max, records_wanted or records_max)
            with self._lock:
                arrivals = self._core.take(records_max, now_ms=now_ms)
            if not arrivals:
                return []
            self._decode(arrivals)
        return self._hand_out(now_ms)

    def take_batch(self, *, now_ms: int, records_wanted: int | None = None) -> list[DeliveryBatch]:
        """The next records as rows of one batch, or none; raises what stands in their place."""
        if self._rest:
            self._hand_out(now_ms)  # what could not be read is raised
        if self._batch is None:
            records_max = self._settings.max_poll_records
            records_max = min(records_max, records_wanted or records_max)
            with self._lock:
                arrivals = self._core.take(records_max, now_ms=now_ms)
            if not arrivals:
                return []
            taken, gaps = take_rows(arrivals, self.answer_rows, check_crcs=self._settings.check_crcs)
            with self._lock:
                for gap in gaps:
                    self._hands.miss(*gap)
                self._batch = taken
        return self._hand_out_batch(self._batch, now_ms)

    def take_unseen_batch(self, *, now_ms: int) -> list[DeliveryBatch]:
        """What the last poll for rows should have returned."""
        if self.has_unseen or any(isinstance(piece, _Piece) for piece in self._rest):
            raise IllegalStateError(UNSEEN_DELIVERIES)
        if self._batch is None or self.batch_seen is self._batch.batch:
            return []
        return self._hand_out_batch(self._batch, now_ms)

    def _hand_out_batch(self, taken: Taken, now_ms: int) -> list[DeliveryBatch]:
        """May be done twice."""
        batch, has_lost = taken.batch, False
        with self._lock:
            for acquired, offsets in batch._rows:
                self._hands.lose_ended(acquired, now_ms=now_ms)
                self._hands.hand_out(acquired, offsets[0], offsets[-1])
                has_lost = has_lost or acquired.has(RangeState.LOST)
            if self._hands.has_taken:
                self._rest = taken.damaged
                self._hands.decoded()
        if has_lost:
            batch = without_lost(batch)
            self._batch = Taken(batch, ())
        if not len(batch):
            self._batch = None
            return []
        return [batch]

    def _book_batch(self) -> None:
        """A batch that the application has seen is accepted or missed with the next poll."""
        taken = self._batch
        if taken is None or self.batch_seen is not taken.batch:
            return
        with self._lock:
            for acquired, _ in taken.batch._rows:
                if not acquired.is_finished:
                    self._deliveries.setdefault(acquired, [])
        self._batch = self.batch_seen = None

    def _drop_unseen_batch(self) -> None:
        """A poll for rows was broken off, and now one for deliveries comes: the rows go back to the group."""
        if self._batch is not None:
            with self._lock:
                for acquired, _ in self._batch.batch._rows:
                    self._hands.give_back(acquired)
            self._batch = None

    def answer_rows(
        self, rows: Sequence[Rows], mask: bytes | None, type: int, after: float | timedelta
    ) -> None:
        """`DeliveryBatch`'s methods end here. No mask: whatever has no answer."""
        if self._is_barred:
            self._require_allowed(type)
        after_s = delay_seconds(after, self._settings.auto_renew_max_ms / 1000)
        hands = self._hands
        with self._lock:
            is_first = not hands.has_answers
            if mask is None and not after_s:
                is_legal = True
                for acquired, offsets in rows:
                    hands.answer_handed(acquired, offsets[0], offsets[-1], type)
            else:
                parts = parts_of(rows, unanswered(rows) if mask is None else mask)
                if after_s:
                    due_ms = math.ceil((time.monotonic() + after_s) * 1000)
                    is_legal = hands.release_some_later(parts, due_ms)
                else:
                    is_legal = hands.answer_some(parts, type)
        if not is_legal:
            raise IllegalStateError(ROWS_NOT_IN_FLIGHT)
        if after_s and self._look is not None:
            self._look()
        if is_first and self._wake is not None:
            self._wake()

    def require_plain(self) -> None:
        """Rows hold bytes."""
        if not self._deserializer.is_plain:
            raise IllegalStateError(NO_DESERIALIZERS)

    def acknowledge(self, delivery: Delivery, type: int = 1) -> None:
        """`Delivery`'s methods end here, and the consumers' `acknowledge`."""
        if self._is_special or not 0 < type < 4:
            self._acknowledge(delivery, type)
            return
        with self._lock:
            if self._answer(delivery._grant.acquired, delivery.offset, type):
                return
        raise IllegalStateError(NOT_IN_FLIGHT)

    def _acknowledge(self, delivery: Delivery, type: int) -> None:
        """The same with everything that is rare: refusals, renewals, and records that are held over polls."""
        if self._is_barred or not 1 <= type <= 4:
            self._require_allowed(type)
        acquired = delivery._grant.acquired
        with self._lock:
            is_first = not self._hands.has_answers
            self._give_answer(acquired, delivery.offset, type)
        if is_first and self._wake is not None:
            self._wake()

    def release_later(self, delivery: Delivery, after: float | timedelta) -> None:
        """The same: it is released after that time, and kept until then."""
        if self._is_barred:
            self._require_allowed(AcknowledgeType.RELEASE)
        after_s = delay_seconds(after, self._settings.auto_renew_max_ms / 1000)
        due_ms = math.ceil((time.monotonic() + after_s) * 1000)
        with self._lock:
            is_legal = self._hands.release_later(delivery._grant.acquired, delivery.offset, due_ms)
        if not is_legal:
            raise IllegalStateError(NOT_IN_FLIGHT)
        if self._look is not None:
            self._look()

    def _give_answer(self, acquired: AcquiredRange, offset: int, type: int) -> None:
        if type == RENEW:
            self._require_renew(acquired)
            is_legal = self._hands.renew(acquired, offset)
        else:
            is_legal = self._answer(acquired, offset, type)
        if not is_legal:
            raise IllegalStateError(NOT_IN_FLIGHT)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """By name: also for a record that a poll has raised for, in implicit mode too."""

        def is_there(acquired: AcquiredRange) -> bool:
            return acquired.topic == topic and acquired.partition == partition and offset in acquired

        with self._lock:
            for failed in self._failed:
                if is_there(failed.acquired) and failed.first <= offset <= failed.last:
                    self._give_answer(failed.acquired, offset, type)
                    return
            acquired = next(filter(is_there, self._deliveries), None)
        if acquired is None:
            raise IllegalStateError(NOT_IN_FLIGHT)
        if self._is_implicit:
            raise IllegalStateError(IMPLICIT)
        for delivery in self._deliveries_of(acquired, offset, offset):
            self.acknowledge(delivery, type)
            return
        raise IllegalStateError(NOT_IN_FLIGHT)

    def run_callbacks(self) -> None:
        """Tells the callback what has been settled, on the application's thread."""
        if not self._finished and not self._untold:
            return
        with (
            self._lock
        ):  # in one statement, so that nothing is told twice or never if a signal handler raises
            self._finished, self._untold = deque(), deque([*self._untold, *_by_result(self._finished)])
        if self.callback is None:
            self._untold.clear()
            return
        self._is_in_callback = True
        self._note_special()
        try:
            while self._untold:
                partition, offsets, error = self._untold.popleft()
                try:
                    self.callback({partition: offsets}, error)
                except Exception:
                    logger.exception("the acknowledgement commit callback has failed")
        finally:
            self._is_in_callback = False
            self._note_special()

    def lock_deadline(self, delivery: Delivery) -> float:
        """When its lock ends, as `time.time()` counts."""
        until_ms = delivery._acquired.lock_until_ms_of(delivery.offset)
        return time.time() + until_ms / 1000 - time.monotonic()

    def close(self) -> None:
        """Nothing can be answered any more. What a poll has raised for gets its answer."""
        self._is_closed = True
        self._note_special()
        self._answer_failed()

    def forget(self) -> None:
        """The member is gone, and with it every lock: lets go of the deliveries."""
        self._deliveries = {}
        self._batch = self.batch_seen = None
        self._rest = self._last = self._last_pieces = ()
        self._renewed = []
        self._opened = Opened()

    def forked(self) -> None:
        """Nothing can be answered from here. Not asked for at each answer: that would cost as much as the answer."""
        self._is_forked = True
        self._note_special()

    def refuse_in_callback(self) -> None:
        """On the thread of the callback. The stack decides: where a signal handler has raised, the flag may be old."""
        if not self._is_in_callback:
            return
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            if frame.f_code is Consumption.run_callbacks.__code__ and frame.f_locals.get("self") is self:
                raise IllegalStateError(IN_CALLBACK)
            frame = frame.f_back

    def _require_allowed(self, type: int) -> None:
        self.refuse_in_callback()
        if not 1 <= type <= 4:
            raise ValueError(f"the acknowledgement must be a member of AcknowledgeType, got {type!r}")
        if self._is_forked:
            raise IllegalStateError(FORKED)
        if self._is_implicit or self._is_closed:
            raise IllegalStateError(IMPLICIT if self._is_implicit else CLOSED)

    # The member's thread

    def settled(self, answers: Sequence[Settled]) -> None:
        """The brokers have responded, or will not."""
        with self._lock:
            for one in answers:
                if one.type == RENEW and one.error is None and not self._is_held_over:
                    self._renewed += [
                        each
                        for each in self._deliveries_of(one.acquired, one.first, one.last)
                        if one.acquired.state_of(each.offset) is RangeState.HANDED
                    ]
                if one.acquired.is_finished:
                    self._deliveries.pop(one.acquired, None)
            if self.callback is not None:  # what was never handed out is told to nobody
                self._finished.extend(one for one in answers if one.acquired.taken_ms is not None)

    def lost(self, losses: Sequence[Lost]) -> None:
        """Locks are gone. Tells `on_lost`, on the member's thread: the application may be busy with these.

        An exception that is meant to end more than the callback (SystemExit, KeyboardInterrupt) passes.
        """
        told: dict[KafkaError, list[Delivery]] = {}
        with self._lock:
            for one in losses:
                ours = self._deliveries_of(one.acquired, one.first, one.last)
                told.setdefault(one.error, []).extend(ours)
            for one in losses:  # not before all are found: one acquisition may be lost in several pieces
                if one.acquired.is_finished and not self._is_implicit:
                    self._deliveries.pop(one.acquired, None)
        if self._on_lost is None:
            return
        for error, found in told.items():
            if found:
                try:
                    self._on_lost(found, error)
                except Exception:
                    logger.exception("on_lost has failed")

    # Below

    def _deliveries_of(self, acquired: AcquiredRange, first: int, last: int) -> list[Delivery]:
        lists = self._deliveries.get(acquired, ())
        return [one for each in lists for one in each if first <= one.offset <= last]

    def _open_renewed(self) -> list[Delivery]:
        """Renewed, to be returned by the next poll, and neither acknowledged nor lost in the meantime."""
        return [one for one in self._renewed if one._grant.acquired.state_of(one.offset) is RangeState.HANDED]

    def _take_renewed(self, now_ms: int) -> list[Delivery] | None:
        """None: there is nothing to do with renewals, and other records may come."""
        if not self._renewed and not self._hands.is_renewing:
            return None
        with self._lock:
            self._lose_ended(self._renewed, now_ms)
            renewed = self._open_renewed()
            if not renewed and not self._hands.is_renewing:
                self._renewed = []
                return None
            self._last, self._last_pieces, self.seen, self._renewed = renewed, (), 0, []
        return renewed

    def _lose_ended(self, deliveries: Iterable[Delivery], now_ms: int) -> None:
        """What is handed out only now may have been kept for longer than its lock, which nobody has noticed yet."""
        with self._lock:
            for acquired in dict.fromkeys(one._grant.acquired for one in deliveries):
                self._hands.lose_ended(acquired, now_ms=now_ms)

    def _require_renew(self, acquired: AcquiredRange) -> None:
        if self._core.sessions[acquired.node_id].is_old:
            error = error_for(
                ErrorCode.UNSUPPORTED_VERSION,
                "RENEW needs ShareAcknowledge v2",
                about=f"broker {acquired.node_id}",
            )
            assert isinstance(error, UnsupportedVersionError)
            raise error

    def _decode(self, arrivals: Collection[Arrival]) -> None:
        pieces: list[_Piece | Damaged] = []
        gaps: list[Gap] = []
        for arrival in arrivals:
            decoded = decode(arrival, self, check_crcs=self._settings.check_crcs, opened=self._opened)
            for each in decoded.pieces:
                if isinstance(each, Readable):
                    pieces.append(_Piece(each.acquired, each.records))
                elif isinstance(each, Damaged):
                    pieces.append(each)
            gaps += decoded.gaps
        with self._lock:
            for gap in gaps:
                self._hands.miss(*gap)
            self._rest = pieces
            self._hands.decoded()
        self._opened.done()

    def _hand_out(self, now_ms: int) -> list[Delivery]:
        """Deliveries up to the next one that fails; raises for that one when it is the first."""
        if self._hands.has_taken:  # the poll that decoded these was broken off in the moment after that
            with self._lock:
                self._hands.decoded()
        pieces: list[_Piece] = []
        index = 0
        while index < len(self._rest):
            piece = self._rest[index]
            if isinstance(piece, Damaged):
                break
            if not self._deserializer.is_plain:
                self._deserialize(piece, index)  # may put a failure behind it
            pieces.append(piece)
            index += 1
        pieces = [piece for piece in pieces if piece.records]
        if not pieces:
            if index < len(self._rest):
                self._raise_failed(index)
            self._rest = ()
            return []
        deliveries = (
            list(pieces[0].records)
            if len(pieces) == 1
            else [one for piece in pieces for one in piece.records]
        )
        rest = self._rest[index:]
        self._last, self._last_pieces, self._rest, self.seen = deliveries, pieces, rest, 0
        if self._register(now_ms):
            deliveries = self._last = [one for one in deliveries if not one.is_lost]
        return deliveries

    def _register(self, now_ms: int) -> bool:
        """From now on they are the application's; True when some have been lost meanwhile. May be done twice."""
        has_lost = False
        with self._lock:
            for piece in self._last_pieces:
                acquired, records = piece.acquired, piece.records
                self._hands.lose_ended(acquired, now_ms=now_ms)
                self._hands.hand_out(acquired, records[0].offset, records[-1].offset)
                lists = self._deliveries.get(acquired)
                if lists is None:
                    self._deliveries[acquired] = [records]
                elif not any(each is records for each in lists):
                    lists.append(records)
                has_lost = has_lost or not acquired.is_all(ALL_HANDED)
            self._last_pieces = ()
        return has_lost

    def _deserialize(self, piece: _Piece, index: int) -> None:
        """All of the piece, or up to a record that fails: that one, and what is behind it, become other pieces."""
        records = piece.records
        while piece.ready < len(records):
            delivery = records[piece.ready]
            try:
                key, value = self._deserializer.deserialize(delivery)
            except MemoryError:
                raise  # which says nothing about the record
            except Exception as error:
                failed = self._deserializer.failed(delivery, error)
                before = _Piece(piece.acquired, records[: piece.ready], piece.ready)
                behind = _Piece(piece.acquired, records[piece.ready + 1 :])
                rest = [*self._rest[:index], before, failed, behind, *self._rest[index + 1 :]]
                piece.records, self._rest = before.records, rest
                return
            delivery.key, delivery.value, piece.ready = key, value, piece.ready + 1

    def _raise_failed(self, index: int) -> None:
        failed = self._rest[index]
        assert isinstance(failed, Damaged)
        with self._lock:
            self._hands.hand_out(failed.acquired, failed.first, failed.last)
        rest, all_failed = self._rest[index + 1 :], [*self._failed, failed]
        self._rest, self._failed = rest, all_failed
        raise failed.error


_all: WeakSet[Consumption] = WeakSet()
"""Every one of this process, for the moment after a fork."""


def _forked() -> None:
    for each in list(_all):
        each.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _by_result(
    finished: Collection[Settled],
) -> list[tuple[TopicPartition, set[int], KafkaError | None]]:
    """By partition and error. Results of two deliveries of one record are told one after the other."""
    told: dict[tuple[TopicPartition, KafkaError | None, int], set[int]] = {}
    for one in finished:
        partition = TopicPartition(one.acquired.topic, one.acquired.partition)
        offsets = range(one.first, one.last + 1)
        number = 0
        while not told.get((partition, one.error, number), set()).isdisjoint(offsets):
            number += 1
        told.setdefault((partition, one.error, number), set()).update(offsets)
    return [(partition, offsets, error) for (partition, error, _), offsets in told.items()]
