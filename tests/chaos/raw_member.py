"""A share consumer on the bare protocol, which knows exactly what it was given, by which life of the broker, and when.

It works in every way the protocol has: accepts, releases, rejects, renews, lets locks run out, closes its session with
answers or without, drops the connection in the middle. What it does next is drawn from a seeded generator.
"""

import random
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.wire.batches import split
from headrace.wire.records import read_records
from tests.chaos.history import ACCEPT, REJECT, RELEASE, RENEW, Answer, Delivery, History
from tests.conformance.wire_client import WireClient

LEAVE, OPEN, CLOSE = -1, 0, -1
BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
PAUSE_S = 0.02
Held = dict[tuple[int, int], Delivery]


class Disconnected(ConnectionError):
    """The broker is gone, most likely killed."""


class Link(WireClient):
    """A connection to one life of the broker."""

    def receive_frame(self) -> bytes:
        frame = super().receive_frame()
        if frame is None:
            raise Disconnected
        return frame


class RawSession:
    """One connection, one share session; over when the broker dies.

    In the history it has a name of its own, `raw-1.7`; to the broker it is the member `raw-1` that comes again.
    """

    def __init__(self, history: History, address: str, name: str, *, group: str, topic: str) -> None:
        self._history = history
        self._group = group
        self.name = name
        self._member_id = name.partition(".")[0]
        self.held: Held = {}
        self._link = Link(address, client_id=name, timeout_s=30)
        try:
            (found,) = self._link.ask("metadata", 12, topics=[{"name": topic}]).topics
            self._topic_id = found.topic_id
            self._partitions = [partition.partition_index for partition in found.partitions]
            self.life = int(found.partitions[0].leader_epoch)
            self._beat(0, [topic])
        except BaseException:
            self._link.close()
            raise
        self._epoch = OPEN

    def _beat(self, epoch: int, topics: Sequence[str] | None = None) -> None:
        response = self._link.ask(
            "share_group_heartbeat",
            1,
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            subscribed_topic_names=topics,
        )
        assert response.error_code == 0, response

    def fetch(
        self, answers: Mapping[tuple[int, int], int], *, max_records: int, mode: int, wait_ms: int = 300
    ) -> list[Delivery]:
        """Sends answers along and takes what it is given."""
        noted = self._note(answers)
        asked_at = time.monotonic()
        wanted = self._topics(answers, list(self._partitions) if self._epoch == OPEN else [])
        response = self._link.ask(
            "share_fetch",
            2,
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            max_records=max_records,
            batch_size=max_records,
            share_acquire_mode=mode,
            topics=wanted,
        )
        received_at = time.monotonic()
        assert response.error_code == 0, response
        self._epoch += 1
        partitions = [partition for topic in response.responses for partition in topic.partitions]
        errors = {partition.partition_index: partition.acknowledge_error_code for partition in partitions}
        self._confirm(noted, errors, received_at)
        return [
            delivery for partition in partitions for delivery in self._take(partition, asked_at, received_at)
        ]

    def _take(self, partition: Any, asked_at: float, received_at: float) -> list[Delivery]:
        assert partition.error_code == 0, partition
        if not partition.acquired_records:
            return []
        data = bytes(partition.records)
        values = {
            record.offset: record.value or b""
            for position, header in split(data)
            for record in read_records(data[position : position + header.size])
        }
        taken = [
            Delivery(
                (partition.partition_index, offset),
                values[offset],
                self.name,
                acquired.delivery_count,
                received_at,
                asked_at,
                self.life,
            )
            for acquired in partition.acquired_records
            for offset in range(acquired.first_offset, acquired.last_offset + 1)
        ]
        self._history.deliveries.extend(taken)
        self.held.update({delivery.place: delivery for delivery in taken})
        return taken

    def acknowledge(self, answers: Mapping[tuple[int, int], int], *, closes: bool = False) -> None:
        noted = self._note(answers)
        if closes:
            self._history.gone.setdefault(self.name, time.monotonic())
        response = self._link.ask(
            "share_acknowledge",
            2,
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=CLOSE if closes else self._epoch,
            is_renew_ack=any(kind == RENEW for kind in answers.values()),
            topics=self._topics(answers, []),
        )
        received_at = time.monotonic()
        assert response.error_code == 0, response
        self._epoch += 1
        errors = {
            partition.partition_index: partition.error_code
            for topic in response.responses
            for partition in topic.partitions
        }
        self._confirm(noted, errors, received_at)

    def leave(self, answers: Mapping[tuple[int, int], int]) -> None:
        """As a client that ends well."""
        if self._epoch != OPEN:
            self.acknowledge(answers, closes=True)
        self._beat(LEAVE)
        self.drop()

    def drop(self) -> None:
        """As a client that dies."""
        self._history.gone.setdefault(self.name, time.monotonic())
        self._link.close()

    def _note(self, answers: Mapping[tuple[int, int], int]) -> list[Answer]:
        now = time.monotonic()
        noted = []
        for place, kind in answers.items():
            held = self.held[place] if kind == RENEW else self.held.pop(place)
            noted.append(Answer(place, kind, self.name, held.count, now, self.life))
        self._history.answers.extend(noted)
        return noted

    def _confirm(self, noted: Sequence[Answer], errors: Mapping[int, int], now: float) -> None:
        for answer in noted:
            if errors.get(answer.place[0]) == 0:
                answer.confirmed_at = now
            elif answer.kind == RENEW:
                self.held.pop(answer.place, None)

    def _topics(self, answers: Mapping[tuple[int, int], int], also: Sequence[int]) -> list[dict[str, Any]]:
        batches: dict[int, list[dict[str, Any]]] = {index: [] for index in also}
        for index, offset in sorted(answers):
            own = batches.setdefault(index, [])
            if own and own[-1]["last_offset"] + 1 == offset:
                own[-1]["last_offset"] = offset
            else:
                own.append({"first_offset": offset, "last_offset": offset, "acknowledge_types": []})
            own[-1]["acknowledge_types"].append(answers[index, offset])
        return [
            {
                "topic_id": self._topic_id,
                "partitions": [
                    {"partition_index": index, "acknowledgement_batches": found}
                    for index, found in batches.items()
                ],
            }
        ]


class RawMember(threading.Thread):
    """Lives through every kill, with a new connection each time."""

    def __init__(self, name: str, history: History, address: str, seed: int, **where: str) -> None:
        super().__init__(name=name, daemon=True)
        self._history = history
        self._address = address
        self._where = where
        self._choose = random.Random(seed)
        self._stopping = threading.Event()
        self._connections = 0
        self.failure: BaseException | None = None

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        while not self._stopping.is_set():
            self._connections += 1
            name = f"{self.name}.{self._connections}"
            try:
                session = RawSession(self._history, self._address, name, **self._where)
                try:
                    self._work(session)
                finally:
                    session.drop()
            except OSError:
                self._stopping.wait(PAUSE_S)
            except BaseException as error:
                self.failure = error
                raise

    def _work(self, session: RawSession) -> None:
        """Until it has had enough of this connection."""
        choose = self._choose
        answers: dict[tuple[int, int], int] = {}
        for _ in range(choose.randrange(5, 60)):
            if self._stopping.is_set():
                break
            mode = choose.choice([BATCH_OPTIMIZED, BATCH_OPTIMIZED, RECORD_LIMIT])
            session.fetch(answers, max_records=choose.choice([1, 10, 50, 200]), mode=mode)
            answers = self._decide(session)
            if choose.random() < 0.2:
                self._renew(session, answers)
            if choose.random() < 0.1:
                self._stopping.wait(choose.uniform(0, 0.3))
            if answers and choose.random() < 0.5:
                session.acknowledge(answers)
                answers = {}
        if choose.random() < 0.5:
            session.leave(answers)

    def _decide(self, session: RawSession) -> dict[tuple[int, int], int]:
        """Most are accepted; some are forgotten, and held until their lock runs out."""
        answers = {}
        for place, delivery in list(session.held.items()):
            kind = self._verdict(delivery)
            if kind is None:
                del session.held[place]
            else:
                answers[place] = kind
        return answers

    def _verdict(self, delivery: Delivery) -> int | None:
        if delivery.value.startswith(b"poison"):
            return RELEASE
        (kind,) = self._choose.choices([ACCEPT, RELEASE, REJECT, None], [80, 12, 5, 3])
        return kind

    def _renew(self, session: RawSession, answers: dict[tuple[int, int], int]) -> None:
        """Some of what it is about to answer for, together with answers for others."""
        some = [place for place in answers if self._choose.random() < 0.3]
        if some:
            session.acknowledge(dict.fromkeys(some, RENEW))
            for place in some:
                if place not in session.held:
                    answers.pop(place)


def work_off(history: History, address: str, name: str, *, until: float, lag: Any, **where: str) -> None:
    """Accepts all that is left, for as long as anything is; `lag` tells whether."""
    session = RawSession(history, address, name, **where)
    answers: dict[tuple[int, int], int] = {}
    while answers or lag():
        assert time.monotonic() < until, f"not all records could be worked off: {lag()} are left"
        session.fetch(answers, max_records=500, mode=BATCH_OPTIMIZED, wait_ms=100)
        answers = dict.fromkeys(session.held, ACCEPT)
    session.leave({})
