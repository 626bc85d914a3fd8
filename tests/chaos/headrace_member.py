"""Our own share consumers as members: with asyncio and without, in every way they have of acknowledging.

They know when a record was asked for: the request in flight is looked at when its answer brings records. They are
strict with the client: whatever happens to the brokers, `poll` must not raise, and in explicit mode every answer that a
record was given must be confirmed or refused exactly once by the time the consumer is closed.
"""

import asyncio
import contextlib
import random
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Any

from headrace.client.aio import AsyncShareConsumer
from headrace.client.core.acknowledgements import Settled
from headrace.client.core.usual import UsualFetch
from headrace.client.delivery import AcknowledgeType
from headrace.client.delivery import Delivery as Given
from headrace.client.sync import ShareConsumer
from headrace.share.changes import GAP_TYPE
from headrace.wire.errors import KafkaError
from headrace.wire.messages.share_fetch_response import ShareFetchResponse
from tests.chaos.history import ACCEPT, REJECT, RELEASE, RENEW, Answer, Delivery, History, Place

POLL_S = 0.2
HELD_MAX = 30
COMMIT_S = 5.0


class Way(Enum):
    IMPLICIT = "implicit"
    EXPLICIT = "explicit"
    """Accepts, releases, rejects and renews by hand; all before the next poll."""
    HELD = "held"
    """Holds some records over many polls, with automatic renewal, and ends them in any order."""


def settings_of(way: Way) -> dict[str, Any]:
    if way is Way.IMPLICIT:
        return {"share_acknowledgement_mode": "implicit", "max_poll_records": 40}
    if way is Way.EXPLICIT:
        return {"share_acknowledgement_mode": "explicit", "max_poll_records": 40}
    return {
        "share_acknowledgement_mode": "explicit",
        "max_unacknowledged": HELD_MAX,
        "auto_renew": True,
    }


class Book:
    """What one member was given and what it has answered, for the history."""

    def __init__(self, name: str, history: History, seed: int, way: Way) -> None:
        self.name = name
        self.choose = random.Random(seed)
        self.confirmed = 0
        self.complaints: list[str] = []
        self._history = history
        self._way = way
        self._asked_at: dict[tuple[int, int, int, int], float] = {}
        """By broker, partition, offset and delivery count."""
        self._unanswered: dict[Place, deque[Answer]] = {}
        self._renewing: dict[int, Given] = {}
        self._held: list[Given] = []
        self._seen_lost: dict[int, Given] = {}
        self._told_lost: dict[int, Given] = {}

    def watch(self, consumer: ShareConsumer | AsyncShareConsumer) -> None:
        """Notes when the request was sent that brought an acquisition, and each answer to an acknowledgement.

        The consumer's callback would not do: it tells offsets alone, not which of several answers is meant.
        """
        core, consumption = consumer._member.core, consumer._consumption
        responded, settled = core.responded, consumption.settled

        def note_and_pass_on(node_id: int, response: Any, *, now_ms: int) -> None:
            in_flight = core.sessions[node_id].in_flight
            sent_at = (now_ms if in_flight is None else in_flight.sent_ms) / 1000
            message = response.as_message() if isinstance(response, UsualFetch) else response
            if isinstance(message, ShareFetchResponse):
                for one in (one for topic in message.responses for one in topic.partitions):
                    for range_ in one.acquired_records:
                        for offset in range(range_.first_offset, range_.last_offset + 1):
                            known_by = node_id, one.partition_index, offset, range_.delivery_count
                            self._asked_at[known_by] = sent_at
            responded(node_id, response, now_ms=now_ms)

        def note_settled(answers: Sequence[Settled]) -> None:
            self._settled(answers)
            settled(answers)

        core.responded = note_and_pass_on  # type: ignore[method-assign]
        consumer._member.listen(note_settled, consumption.lost)

    def take(self, given: list[Given]) -> None:
        """Notes deliveries, and answers them as this member does."""
        for one in given:
            if id(one) in self._renewing:  # it comes back once it is renewed, and is no new delivery
                del self._renewing[id(one)]
            else:
                self._note(one)
            if self._way is Way.IMPLICIT:
                self._noted_answer(one, ACCEPT, replaces=True)
            elif self._way is Way.EXPLICIT:
                self._answer(one, self._verdict(one))
            else:
                self._held.append(one)
        if self._way is Way.HELD:
            count = sum(not one.is_lost for one in self._held)
            if count > HELD_MAX:
                self.complaints.append(f"{count} records held, which is more than max.unacknowledged")
            self.choose.shuffle(self._held)
            for _ in range(self.choose.randrange(len(self._held) + 1)):
                one = self._held.pop()
                self._answer(one, self._verdict(one))

    def lost(self, given: Sequence[Given], error: KafkaError) -> None:
        """The consumer's `on_lost`."""
        for one in given:
            if id(one) in self._told_lost or not one.is_lost:
                self.complaints.append(f"told once more, or wrongly, to be lost: {one}, {error}")
            self._told_lost[id(one)] = one

    def end(self) -> None:
        """Before the consumer is closed."""
        for one in self._held:
            self._answer(one, self._verdict(one))
        self._held = []
        self._history.gone.setdefault(self.name, time.monotonic())

    def ended(self) -> None:
        """After it was closed."""
        if self._way is not Way.IMPLICIT:
            left = [answer for answers in self._unanswered.values() for answer in answers]
            self.complaints += [f"never answered: {answer}" for answer in left]
        silently = [one for key, one in self._seen_lost.items() if key not in self._told_lost]
        self.complaints += [f"lost in silence: {one}" for one in silently]

    def _settled(self, answers: Sequence[Settled]) -> None:
        now = time.monotonic()
        for settled in answers:
            if settled.type == GAP_TYPE or settled.acquired.taken_ms is None:
                continue  # no answer of ours: the consumer gives back what it has not handed out
            for offset in range(settled.first, settled.last + 1):
                place = settled.acquired.partition, offset
                waiting = self._unanswered.get(place)
                if waiting:
                    answer = waiting.popleft()
                    if settled.error is None:
                        answer.confirmed_at = now
                        self.confirmed += 1
                elif self._way is not Way.IMPLICIT:
                    self.complaints.append(f"answered once more: {place}, {settled}")

    def _note(self, one: Given) -> None:
        self._history.deliveries.append(
            Delivery(
                (one.partition, one.offset),
                bytes(one.value),
                self.name,
                one.delivery_count,
                time.monotonic(),
                self._asked_at[one._acquired.node_id, one.partition, one.offset, one.delivery_count],
            )
        )

    def _verdict(self, one: Given) -> int:
        if bytes(one.value).startswith(b"poison"):
            return RELEASE
        (kind,) = self.choose.choices([ACCEPT, RELEASE, REJECT, RENEW], [80, 10, 5, 5])
        return ACCEPT if kind == RENEW and self._way is Way.HELD else kind

    def _answer(self, one: Given, kind: int) -> None:
        if kind == RENEW:
            self._renewing[id(one)] = one
        if one.is_lost:
            self._seen_lost[id(one)] = one
        self._noted_answer(one, kind)
        one._grant.keeper.acknowledge(one, AcknowledgeType(kind))

    def _noted_answer(self, one: Given, kind: int, *, replaces: bool = False) -> None:
        place = one.partition, one.offset
        answer = Answer(place, kind, self.name, one.delivery_count, time.monotonic())
        self._history.answers.append(answer)
        waiting = self._unanswered.setdefault(place, deque())
        if replaces:  # an implicit accept of a record that was lost is never sent
            waiting.clear()
        waiting.append(answer)


class HeadraceMember(threading.Thread):
    """One consumer at work until it is stopped; `failure` is what it should not have met with."""

    def __init__(
        self,
        name: str,
        history: History,
        address: str,
        seed: int,
        *,
        group: str,
        topic: str,
        way: Way,
        is_async: bool = False,
        pause_s: float = 0.02,
        **settings: Any,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.book = Book(name, history, seed, way)
        self.failure: BaseException | None = None
        self._settings = {
            "bootstrap_servers": address,
            "group_id": group,
            "client_id": name,
            **settings_of(way),
            **settings,
        }
        self._topic = topic
        self._is_async = is_async
        self._pause_s = pause_s
        self._stopping = threading.Event()
        self._consumer: ShareConsumer | AsyncShareConsumer | None = None

    def stop(self) -> None:
        self._stopping.set()

    def state(self) -> str:
        """Where its thread stands, and what its consumer knows: for a failure's report."""
        frame = sys._current_frames().get(self.ident or 0)
        core = None if self._consumer is None else self._consumer._member.core
        lines = [] if frame is None else traceback.format_stack(frame)
        if core is not None:
            lines += [
                f"membership {vars(core.membership)}\n",
                f"placement {vars(core.placement)}\n",
                *(f"session {vars(session)}\n" for session in core.sessions.values()),
                f"core {vars(core)}\n",
                f"holdings {vars(core._holdings)}\nhands {vars(core.hands)}\n",
            ]
        return f"{self.name}, confirmed {self.book.confirmed}:\n{''.join(lines)}"

    def run(self) -> None:
        try:
            if self._is_async:
                asyncio.run(self._work_async())
            else:
                self._work()
            self.book.ended()
            assert not self.book.complaints, self.book.complaints[:5]
        except BaseException as error:
            self.failure = error
            raise

    def _work(self) -> None:
        book = self.book
        consumer = ShareConsumer(self._settings_by_name(), on_lost=book.lost)
        book.watch(consumer)
        self._consumer = consumer
        consumer.subscribe([self._topic])
        try:
            while not self._stopping.is_set():
                book.take(consumer.poll(POLL_S))
                if book.choose.random() < 0.3:
                    with contextlib.suppress(TimeoutError):
                        consumer.commit_sync(COMMIT_S)
                self._stopping.wait(book.choose.uniform(0, self._pause_s))
            book.end()
        finally:
            consumer.close()

    async def _work_async(self) -> None:
        book = self.book
        consumer = AsyncShareConsumer(self._settings_by_name(), on_lost=book.lost)
        book.watch(consumer)
        self._consumer = consumer
        consumer.subscribe([self._topic])
        try:
            while not self._stopping.is_set():
                book.take(await consumer.poll(POLL_S))
                if book.choose.random() < 0.3:
                    with contextlib.suppress(TimeoutError):
                        await consumer.commit_sync(COMMIT_S)
                await asyncio.sleep(book.choose.uniform(0, self._pause_s))  # its work
            book.end()
        finally:
            await consumer.close()

    def _settings_by_name(self) -> dict[str, Any]:
        return {name.replace("_", "."): value for name, value in self._settings.items()}
