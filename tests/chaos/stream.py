"""The records that members work on: numbered, at a steady pace, and read once more at the end to see what was there."""

import threading
import time
from zlib import crc32

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from tests.chaos.history import UNKNOWN, History, Produced

BEAT_S = 0.02
SETTLE_S_MAX = 60.0


class SteadyProducer(threading.Thread):
    """Numbered records at a steady pace; with `poison_every`, each so many is poison, which nobody wants to accept."""

    def __init__(
        self,
        number: int,
        history: History,
        address: str,
        *,
        topic: str,
        partitions: int,
        records_per_s: int,
        poison_every: int = 0,
    ) -> None:
        super().__init__(name=f"producer-{number}", daemon=True)
        self._history = history
        self._topic = topic
        self._partitions = partitions
        self._in_a_beat = max(1, int(records_per_s * BEAT_S))
        self._poison_every = poison_every
        self._stopping = threading.Event()
        self.failed: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "message.timeout.ms": 120_000,
                "socket.timeout.ms": 3_000,  # of a broker that hangs
                "log_level": 0,
            }
        )

    def stop(self) -> None:
        self._stopping.set()

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(BEAT_S):
            for _ in range(self._in_a_beat):
                is_poison = self._poison_every and (number + 1) % self._poison_every == 0
                text = f"{'poison' if is_poison else 'job'} {self.name} {number}"
                value = f"{text} {crc32(text.encode())}".encode()
                self._producer.produce(
                    self._topic, value, partition=number % self._partitions, on_delivery=self._delivered
                )
                number += 1
            self._producer.poll(0)
        left = self._producer.flush(SETTLE_S_MAX)
        if left:
            self.failed.append(f"{left} records were never answered")

    def _delivered(self, error: object, message: Message) -> None:
        if error is not None:
            self.failed.append(str(error))
            return
        offset = message.offset()
        # A broker that has had the batch before says so and no more; librdkafka does not know its offsets then.
        place = message.partition() or 0, UNKNOWN if offset is None or offset < 0 else offset
        self._history.produced.append(Produced(place, message.value() or b""))


def read_all(address: str, topic: str, partitions: int) -> list[Message]:
    """Every record of a topic."""
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "reader", "enable.partition.eof": True, "log_level": 0}
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    found: list[Message] = []
    ended: set[int] = set()
    deadline = time.monotonic() + SETTLE_S_MAX
    while len(ended) < partitions and time.monotonic() < deadline:
        for message in consumer.consume(1000, timeout=1.0):
            if message.error() is not None:
                ended.add(message.partition() or 0)
            else:
                found.append(message)
    consumer.close()
    assert len(ended) == partitions, f"{topic} could not be read to its end"
    return found
