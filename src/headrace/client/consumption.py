"""What both share consumers do between the member and the application: hand out deliveries, and mind the rules.

Theory of operation. The member fills a buffer of arrivals on the event loop. A poll takes from it on the thread of
the application: `begin` first raises what has failed, runs callbacks and closes the books on what was handed out
before (implicit: accept it; explicit: insist that it is acknowledged), then `take` decodes arrivals into deliveries.
Which acquisitions have something to tell the broker is collected in `_touched`, for the member to sweep.

A record that cannot be deserialised, or a batch that is damaged, must not hide the good records before it: what lies
behind it waits in `_rest`, the poll returns what came before, and the next poll raises. Offsets in `_rest` are not
handed out yet: they are neither accepted by an implicit poll nor missed by an explicit one.

One lock, the core's, guards the marks and everything here that both threads touch.
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple
from weakref import WeakSet

from headrace.client.core.acknowledgements import LATE_TYPE, Lost, Settled
from headrace.client.core.acquired import ACCEPT, OPEN, RENEW, Acquired
from headrace.client.core.decoding import Damaged, Opened, Readable, decode
from headrace.client.core.holdings import Arrival
from headrace.client.core.member import MemberCore
from headrace.client.delivery import AcknowledgeType, Delivery, TopicPartition
from headrace.client.errors import (
    IllegalStateError,
    RecordDeserializationError,
    UnsupportedVersionError,
    error_for,
)
from headrace.client.settings import AcknowledgementMode, ShareSettings
from headrace.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger("headrace.client")
Deserializer = Callable[[bytes], Any]
CommitCallback = Callable[[dict[TopicPartition, set[int]], KafkaError | None], None]
LostCallback = Callable[[Sequence[Delivery], KafkaError], None]

UNACKNOWLEDGED = "All records must be acknowledged in explicit acknowledgement mode."
IMPLICIT = "Implicit acknowledgement of delivery is being used."
NOT_IN_FLIGHT = "The record cannot be acknowledged."
NOT_SUBSCRIBED = "The consumer is not subscribed to any topics; call subscribe first."
CLOSED = "The consumer is closed: it has given back what was not acknowledged."
FORKED = (
    "This delivery belongs to the process that was forked: an answer given here would never reach the broker. "
    "Answer it there, when this process has done its work; or make a consumer of its own in this process."
)
IN_CALLBACK = "The consumer must not be used inside its acknowledgement commit callback."


class _Failed(NamedTuple):
    """Offsets in the place of which a poll raises; `mark` becomes their acknowledgement then."""

    acquired: Acquired
    first: int
    last: int
    mark: int
    error: Exception


class Consumption:
    """The application's side of one consumer. `keeper` of every acquisition it has handed out."""

    def __init__(
        self,
        core: MemberCore,
        settings: ShareSettings,
        *,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        on_deserialization_error: AcknowledgeType = AcknowledgeType.RELEASE,
        on_lost: LostCallback | None = None,
    ) -> None:
        if on_deserialization_error == AcknowledgeType.RENEW:
            raise ValueError("on_deserialization_error=RENEW; choose ACCEPT, RELEASE or REJECT")
        self.callback: CommitCallback | None = None
        self.on_touched: Callable[[], None] | None = None
        """Called, under the lock, when there is something to sweep. For records that are held over several polls."""
        self.is_closed = False
        self._is_barred = settings.share_acknowledgement_mode is AcknowledgementMode.IMPLICIT
        """Answers are refused: implicit mode, in a callback, or closed. One look for `acknowledge`."""
        self.unseen: deque[Delivery] = deque()
        """Deliveries that the application has not seen: an iteration was left, or a poll was interrupted."""
        self._core = core
        self._lock = core.holdings.lock
        self._settings = settings
        self._is_implicit = settings.share_acknowledgement_mode is AcknowledgementMode.IMPLICIT
        self._is_held_over = settings.max_unacknowledged > 0
        """Records may stay unacknowledged over polls, so a poll asks nothing of them and returns none again."""
        self._key_deserializer = key_deserializer
        self._value_deserializer = value_deserializer
        self._on_deserialization_error = on_deserialization_error
        self._on_lost = on_lost
        self._handed: dict[Acquired, list[Delivery]] = {}
        """Acquisitions of which deliveries are in the application's hands."""
        self._touched: dict[Acquired, None] = {}
        """Acquisitions with something to be swept."""
        self._touched_last: Acquired | None = None
        self._is_told = False
        """`on_touched` was called for what is in `_touched`."""
        self._opened = Opened()
        self._rest: deque[Readable | _Failed] = deque()
        self._resting: dict[Acquired, int] = {}
        """How many offsets of an acquisition are in `_rest`."""
        self._renewing = 0
        """Records that must be renewed or lost before a poll returns others (Java's rule)."""
        self._renewed: list[Delivery] = []
        self._finished: deque[Settled] = deque()
        """Answers that the callback has not been told."""
        self._is_in_callback = False
        self._is_lost_early = False
        """Records were lost after they had been taken and before they were handed out."""
        self._is_forked = False
        """This is a copy, in a child process; the original is in the parent."""
        _all.add(self)

    # The application's thread

    def begin(self) -> None:
        """What comes first in every poll: callbacks, then the books on what was handed out before."""
        self.run_callbacks()
        if self._is_implicit:
            self.accept_handed()
        elif not self._is_held_over:
            with self._lock:
                renewed = Counter(one._acquired for one in self._open_renewed())
                for acquired in self._handed:
                    if acquired.open_count > self._resting.get(acquired, 0) + renewed[acquired]:
                        raise IllegalStateError(UNACKNOWLEDGED)

    def accept_handed(self) -> None:
        """Implicit mode: everything handed out so far is accepted."""
        if not self._is_implicit or not self._handed:
            return
        unseen = set(map(id, self.unseen))
        kept: dict[Acquired, list[Delivery]] = {}
        with self._lock:
            for acquired, deliveries in self._handed.items():
                self._touched[acquired] = None
                left = [one for one in deliveries if id(one) in unseen] if unseen else []
                if not left and acquired not in self._resting:
                    acquired.answer_open(ACCEPT)
                    continue
                kept[acquired] = left
                for delivery in deliveries:
                    if id(delivery) not in unseen and acquired.mark_of(delivery.offset) == OPEN:
                        acquired.choose(delivery.offset, ACCEPT)
            self._handed = kept

    @property
    def is_touched(self) -> bool:
        return bool(self._touched)

    def touched(self) -> list[Acquired]:
        """Acquisitions with something to sweep; asked once, they are the caller's to pass on."""
        if not self._touched:
            return []
        with self._lock:
            touched, self._touched = self._touched, {}
            self._touched_last = None
            self._is_told = False
        return list(touched)

    @property
    def is_ready(self) -> bool:
        """Whether `take` may have something."""
        if self._renewed:
            return True
        return not self._renewing and bool(self._rest or self._core.holdings.buffer)

    def take(self, *, now_ms: int) -> list[Delivery]:
        """The next deliveries, or none; raises what stands in their place."""
        handed = self._take(now_ms)
        with self._lock:
            if not handed or not self._is_lost_early:
                return handed
            self._is_lost_early = bool(self._rest)
            for one in handed:
                if one._acquired.is_finished:
                    self._handed.pop(one._acquired, None)
            return [one for one in handed if not one.is_lost]  # nobody has been told of their loss

    def _take(self, now_ms: int) -> list[Delivery]:
        if self._renewed or self._renewing:
            with self._lock:
                renewed, self._renewed = self._open_renewed(), []
            if renewed or self._renewing:
                return renewed
        if self._rest:
            return self._take_rest()
        records_max = self._settings.max_poll_records
        records_max = min(records_max, self._core.records_wanted or records_max)
        arrivals = self._core.take(records_max, now_ms=now_ms)
        if not arrivals:
            return []
        try:
            pieces = self._decode(arrivals)
            is_plain = self._key_deserializer is None and self._value_deserializer is None
            if is_plain and all(isinstance(piece, Readable) for piece in pieces):
                return self._hand_out(pieces)
            self._rest.extend(pieces)
        except BaseException:
            for arrival in arrivals:
                for acquired in arrival.acquired:
                    self._handed.pop(acquired, None)
            self._core.holdings.give_back(arrivals)  # Ctrl+C: the application has not seen them
            raise
        for piece in self._rest:
            self._resting[piece.acquired] = self._resting.get(piece.acquired, 0) + _size(piece)
        return self._take_rest()

    def acknowledge(self, delivery: Delivery, type: int = ACCEPT) -> None:
        """`Delivery`'s methods end here, and the consumers' `acknowledge`."""
        if self._is_barred or not ACCEPT <= type <= RENEW:
            self._refuse(type)
        acquired = delivery._acquired
        with self._lock:
            marks = acquired.marks
            if marks is not None and type != RENEW and acquired is self._touched_last:
                # The common case by far, short: one more of a range, to be swept later.
                index = delivery.offset - acquired.first
                if marks[index] < RENEW:
                    marks[index] = type
                    return
            self._choose(acquired, delivery.offset, type, delivery)

    def acknowledge_offset(
        self, topic: str, partition: int, offset: int, type: AcknowledgeType = AcknowledgeType.ACCEPT
    ) -> None:
        """By name: also for a record that a poll has raised for, in implicit mode too."""
        with self._lock:
            for acquired, deliveries in self._handed.items():
                if acquired.topic != topic or acquired.partition != partition or offset not in acquired:
                    continue
                found = next((one for one in deliveries if one.offset == offset), None)
                if self._is_implicit and (found is not None or acquired.mark_of(offset) == OPEN):
                    raise IllegalStateError(IMPLICIT)
                self._choose(acquired, offset, type, found)
                return
        raise IllegalStateError(NOT_IN_FLIGHT)

    def run_callbacks(self) -> None:
        """Tells the callback what has been answered, on the application's thread."""
        if not self._finished:
            return
        with self._lock:
            finished, self._finished = self._finished, deque()
        if self.callback is None:
            return
        told: dict[tuple[TopicPartition, KafkaError | None], set[int]] = {}
        for one in finished:
            partition = TopicPartition(one.acquired.topic, one.acquired.partition)
            told.setdefault((partition, one.error), set()).update(range(one.first, one.last + 1))
        self._is_in_callback = self._is_barred = True
        try:
            for (partition, error), offsets in told.items():
                try:
                    self.callback({partition: offsets}, error)
                except Exception:
                    logger.exception("the acknowledgement commit callback has failed")
        finally:
            self._is_in_callback = False
            self._is_barred = self._is_implicit or self.is_closed or self._is_forked

    def close(self) -> None:
        """Nothing can be answered any more."""
        self.is_closed = self._is_barred = True

    def forked(self) -> None:
        """Nothing can be answered from here. Not asked for at each answer: that would cost as much as the answer."""
        self._is_forked = self._is_barred = True

    def refuse_in_callback(self) -> None:
        if self._is_in_callback:
            raise IllegalStateError(IN_CALLBACK)

    def _refuse(self, type: int) -> None:
        self.refuse_in_callback()
        if not ACCEPT <= type <= RENEW:
            raise ValueError(f"{type!r} is no answer to a delivery; use AcknowledgeType")
        if self._is_forked:
            raise IllegalStateError(FORKED)
        raise IllegalStateError(IMPLICIT if self._is_implicit else CLOSED)

    # The member's thread

    def settled(self, answers: Sequence[Settled]) -> None:
        """The brokers have answered, or will not."""
        with self._lock:
            for one in answers:
                if one.type in (RENEW, LATE_TYPE):
                    self._renewal_ended(one)
                if one.acquired.is_finished:
                    self._handed.pop(one.acquired, None)
            if self.callback is not None:
                self._finished.extend(answers)

    def lost(self, losses: Sequence[Lost]) -> None:
        """Locks are gone. Tells `on_lost`, on the member's thread: the application may be busy with these."""
        told: dict[KafkaError, list[Delivery]] = {}
        with self._lock:
            for one in losses:
                deliveries = self._handed.get(one.acquired, ())
                ours = [each for each in deliveries if one.first <= each.offset <= one.last]
                told.setdefault(one.error, []).extend(ours)
                self._is_lost_early |= len(ours) <= one.last - one.first
            for one in losses:  # not before all are found: one acquisition may be lost in several pieces
                if one.acquired.is_finished and not self._is_implicit:
                    self._handed.pop(one.acquired, None)
        if self._on_lost is None:
            return
        for error, found in told.items():
            if found:
                try:
                    self._on_lost(found, error)
                except Exception:
                    logger.exception("on_lost has failed")

    # Below

    def _choose(self, acquired: Acquired, offset: int, type: int, delivery: Delivery | None) -> None:
        if type == RENEW:
            self._require_renew(acquired)
        was = acquired.mark_of(offset)
        if not acquired.choose(offset, type):
            raise IllegalStateError(NOT_IN_FLIGHT)
        self._touch(acquired)
        now = acquired.mark_of(offset)
        if delivery is not None and now != was and RENEW in (now, was) and not self._is_held_over:
            self._count_renewal(acquired, delivery, is_more=now == RENEW)

    def _open_renewed(self) -> list[Delivery]:
        """Renewed, to be returned by the next poll, and neither acknowledged nor lost in the meantime."""
        return [one for one in self._renewed if one._acquired.mark_of(one.offset) == OPEN]

    def _require_renew(self, acquired: Acquired) -> None:
        if self._core.sessions[acquired.node_id].is_old:
            error = error_for(
                ErrorCode.UNSUPPORTED_VERSION,
                "RENEW needs ShareAcknowledge v2",
                about=f"broker {acquired.node_id}",
            )
            assert isinstance(error, UnsupportedVersionError)
            raise error

    def _touch(self, acquired: Acquired) -> None:
        self._touched[acquired] = None
        self._touched_last = acquired
        if self.on_touched is not None and not self._is_told:
            self._is_told = True
            self.on_touched()

    def _count_renewal(self, acquired: Acquired, delivery: Delivery, *, is_more: bool) -> None:
        others = [one for one in acquired.renewals or () if one is not delivery]
        acquired.renewals = [*others, delivery] if is_more else others
        self._renewing += 1 if is_more else -1
        self._core.is_paused = self._renewing > 0

    def _renewal_ended(self, answer: Settled) -> None:
        acquired = answer.acquired
        if not acquired.renewals:
            return
        ended: list[Delivery] = []
        others: list[Delivery] = []
        for one in acquired.renewals:
            (ended if answer.first <= one.offset <= answer.last else others).append(one)
        acquired.renewals = others
        self._renewing -= len(ended)
        self._core.is_paused = self._renewing > 0
        if answer.error is None:
            self._renewed += ended

    def _decode(self, arrivals: Collection[Arrival]) -> list[Readable | _Failed]:
        pieces: list[Readable | _Failed] = []
        for arrival in arrivals:
            for piece in decode(arrival, check_crcs=self._settings.check_crcs, opened=self._opened):
                if isinstance(piece, Damaged):
                    pieces.append(_Failed(piece.acquired, piece.first, piece.last, piece.mark, piece.error))
                else:
                    pieces.append(piece)
            for acquired in arrival.acquired:
                acquired.keeper = self
                if acquired.marks is not None or acquired.uniform != OPEN:
                    self._touched[acquired] = None
        return pieces

    def _hand_out(self, pieces: Sequence[Readable | _Failed]) -> list[Delivery]:
        """The common case: every record as it is."""
        if len(pieces) == 1 and isinstance(pieces[0], Readable):
            acquired, deliveries = pieces[0]
            self._handed[acquired] = deliveries
            return list(deliveries)
        handed: list[Delivery] = []
        for piece in pieces:
            assert isinstance(piece, Readable)
            self._handed.setdefault(piece.acquired, []).extend(piece.records)
            handed += piece.records
        return handed

    def _take_rest(self) -> list[Delivery]:
        """Deliveries up to the next one that fails; raises for that one when it is the first."""
        handed: list[Delivery] = []
        while self._rest:
            piece = self._rest[0]
            if isinstance(piece, _Failed):
                if not handed:
                    self._raise_failed()
                return handed
            self._rest.popleft()
            try:
                self._deserialize(piece, handed)
            except BaseException:  # Ctrl+C in a deserializer: the application has not seen these
                self.unseen.extend(handed)
                raise
        return handed

    def _deserialize(self, piece: Readable, handed: list[Delivery]) -> None:
        acquired, records = piece
        deliveries = self._handed.setdefault(acquired, [])
        for index, delivery in enumerate(records):
            try:
                key = _through(self._key_deserializer, delivery.key)
                value = _through(self._value_deserializer, delivery.value)
            except Exception as error:
                behind = records[index + 1 :]
                if behind:
                    self._rest.appendleft(Readable(acquired, behind))
                self._rest.appendleft(self._undeserializable(delivery, error))
                return
            except BaseException:
                self._rest.appendleft(Readable(acquired, records[index:]))
                raise
            delivery.key, delivery.value = key, value
            deliveries.append(delivery)
            handed.append(delivery)
            self._rested(acquired, 1)

    def _undeserializable(self, delivery: Delivery, error: Exception) -> _Failed:
        raised = RecordDeserializationError(
            f"cannot deserialize the record at {delivery.topic}-{delivery.partition}, offset {delivery.offset}: "
            f"{type(error).__name__}: {error}. It is answered with {self._on_deserialization_error.name}; "
            "acknowledge_offset may say otherwise before the next poll.",
            delivery,
        )
        raised.__cause__ = error
        mark = self._on_deserialization_error
        return _Failed(delivery._acquired, delivery.offset, delivery.offset, mark, raised)

    def _raise_failed(self) -> None:
        failed = self._rest.popleft()
        assert isinstance(failed, _Failed)
        with self._lock:
            self._handed.setdefault(failed.acquired, [])
            self._touched[failed.acquired] = None
            for offset in range(failed.first, failed.last + 1):
                failed.acquired.choose(offset, failed.mark)
        self._rested(failed.acquired, failed.last - failed.first + 1)
        raise failed.error

    def _rested(self, acquired: Acquired, count: int) -> None:
        left = self._resting.get(acquired, 0) - count
        if left > 0:
            self._resting[acquired] = left
        else:
            self._resting.pop(acquired, None)


_all: WeakSet[Consumption] = WeakSet()
"""Every one of this process, for the moment after a fork."""


def _forked() -> None:
    for each in list(_all):
        each.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _through(deserializer: Deserializer | None, data: bytes | None) -> Any:
    """No bytes stay None: there is nothing to deserialise."""
    return data if deserializer is None or data is None else deserializer(data)


def _size(piece: Readable | _Failed | Damaged) -> int:
    return len(piece.records) if isinstance(piece, Readable) else piece.last - piece.first + 1
