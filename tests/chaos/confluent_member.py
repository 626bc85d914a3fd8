"""librdkafka's share consumer as a member, in its two modes. It says less than the bare protocol: not which life of the
broker a record came from. When its queue has been empty we know at least that what comes later was acquired later.
"""

import random
import threading
import time
from typing import Any

from confluent_kafka import (
    AcknowledgeType,
    IllegalStateException,
    KafkaException,
    ShareConsumer,
    TopicPartition,
)

from tests.chaos.history import ACCEPT, REJECT, RELEASE, Answer, Delivery, History, Place

IN_FLIGHT_S = 1.0
"""How old a response may be that had not arrived when the queue was empty."""
PAUSE_S = 0.02


class ConfluentMember(threading.Thread):
    def __init__(
        self, name: str, history: History, address: str, seed: int, *, group: str, topic: str, explicit: bool
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._history = history
        self._choose = random.Random(seed)
        self._stopping = threading.Event()
        self._is_explicit = explicit
        self._asked_at: float | None = None
        self._unconfirmed: dict[Place, Answer] = {}
        self._ambiguous: set[Place] = set()
        """Records that came again before the answer for them was confirmed: a confirmation does not say of which."""
        self.failure: BaseException | None = None
        self._consumer = ShareConsumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "client.id": name,
                "share.acknowledgement.mode": "explicit" if explicit else "implicit",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 200,
                "socket.timeout.ms": 5000,
                "max.poll.records": 100,
                "log_level": 0,
            }
        )
        self._consumer.set_acknowledgement_commit_callback(self._confirmed)
        self._consumer.subscribe([topic])

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._poll()
            self._consumer.close()
        except BaseException as error:
            self.failure = error
            raise

    def _poll(self) -> None:
        try:
            messages = list(self._consumer.poll(0.2))
        except KafkaException:
            self._stopping.wait(PAUSE_S)
            return
        received_at = time.monotonic()
        if not messages:
            self._asked_at = received_at - IN_FLIGHT_S
            return
        for message in messages:
            if message.error() is None:
                self._take(message, received_at)
            elif self._is_explicit:
                self._answer(message, RELEASE)
        if self._choose.random() < 0.3:
            self._commit()

    def _take(self, message: Any, received_at: float) -> None:
        place = int(message.partition()), int(message.offset())
        count = int(message.delivery_count())
        value = bytes(message.value() or b"")
        self._history.deliveries.append(Delivery(place, value, self.name, count, received_at, self._asked_at))
        kind = ACCEPT
        if self._is_explicit:
            (kind,) = self._choose.choices([ACCEPT, RELEASE, REJECT], [85, 12, 3])
            if value.startswith(b"poison"):
                kind = RELEASE
            if not self._answer(message, kind):
                return
        answer = Answer(place, kind, self.name, count, received_at)
        self._history.answers.append(answer)
        if self._unconfirmed.pop(place, None) is not None:
            self._ambiguous.add(place)
        if place not in self._ambiguous:
            self._unconfirmed[place] = answer

    def _answer(self, message: Any, kind: int) -> bool:
        """False when the client has given the record up in the meantime."""
        try:
            self._consumer.acknowledge(message, AcknowledgeType(kind))
        except IllegalStateException:
            return False
        return True

    def _commit(self) -> None:
        try:
            self._consumer.commit_sync(2.0)
        except KafkaException:
            self._stopping.wait(PAUSE_S)

    def _confirmed(self, offsets: dict[TopicPartition, set[int]], error: KafkaException | None) -> None:
        now = time.monotonic()
        for partition, found in offsets.items():
            for offset in found:
                answer = self._unconfirmed.pop((partition.partition, offset), None)
                if answer is not None and error is None:
                    answer.confirmed_at = now
