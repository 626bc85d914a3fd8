"""Producers of every kind of promise, which send again what they had no answer to."""

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from headrace.wire.batches import Compression
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import NewRecord, build_batch
from tests.simulation.actor import Actor, Ask, Life
from tests.simulation.network import Pending
from tests.simulation.scenario import PARTITIONS_MAX

if TYPE_CHECKING:
    from tests.simulation.world import World

ALL, ONE, NONE = -1, 1, 0
KEYS = (b"a", b"b", b"c")
CODECS = (Compression.NONE,) * 8 + (Compression.GZIP, Compression.LZ4)
RETRIES_MAX = 6
TAKEN_FOR_WRONG = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
TIMEOUT_MS = 30_000


class Batch(NamedTuple):
    topic: str
    topic_id: bytes
    partition: int
    values: list[bytes]
    """Of the records that are no tombstones."""
    data: bytes
    records: int


class Producer(Actor):
    def __init__(self, world: "World", name: str) -> None:
        self._numbers = count(1)
        self.version = world.rng.choice((9, 12, 13))
        super().__init__(world, name)

    def choose_partition(self) -> tuple[str, bytes, int] | None:
        """Of a topic that there is, or was a moment ago."""
        topics = self.logs.topics
        topic = self.rng.choice(self.world.scenario.topics)
        topic_id = topics.get(topic)
        if topic_id is None:
            return None
        return topic, topic_id, self.rng.randrange(self.logs.partitions.get(topic_id, PARTITIONS_MAX))

    def records(self) -> list[NewRecord]:
        rng = self.rng
        records = []
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            value = f"{self.name}.{next(self._numbers)}".encode() + b"x" * rng.choice((0, 0, 30, 200))
            timestamp = self.world.clock.wall_ms() - rng.choice((0, 0, 0, 2_000))
            records.append(NewRecord(rng.choice(KEYS), value, (), timestamp))
        if rng.random() < 0.05:
            records[-1] = records[-1]._replace(value=None)
        return records

    def request(self, batch: Batch, acks: int, transactional_id: str | None = None) -> ProduceRequest:
        data = PartitionProduceData(index=batch.partition, records=batch.data)
        topic = TopicProduceData(name=batch.topic, topic_id=batch.topic_id, partition_data=[data])
        return ProduceRequest(
            acks=acks, timeout_ms=TIMEOUT_MS, transactional_id=transactional_id, topic_data=[topic]
        )

    def produce(
        self,
        batch: Batch,
        acks: int,
        transactional_id: str | None = None,
        *,
        told: list[bytes] | None = None,
    ) -> Pending:
        """Sends it; the model hears of the answer when it arrives, and `told` gets the values if it is a good one."""
        is_quiet = acks == NONE
        request = self.request(batch, acks, transactional_id)
        pending = self.post(request, self.version, timeout_ms=TIMEOUT_MS, is_quiet=is_quiet)

        def answered(pending: Pending) -> None:
            result = pending.response.responses[0].partition_responses[0]
            if result.error_code == ErrorCode.NONE and told is not None:
                told.extend(batch.values)
            if result.error_code == ErrorCode.NONE and len(batch.values) == batch.records:
                self.logs.acknowledged(batch.values, batch.partition, result.base_offset, acks=acks)
            elif result.error_code in TAKEN_FOR_WRONG:
                self.logs.refused_retry(batch.values, batch.topic_id, result.error_code)

        pending.on_answer = answered
        return pending


def error_of(pending: Pending) -> int:
    return int(pending.response.responses[0].partition_responses[0].error_code)


class PlainProducer(Producer):
    """Without sequence numbers: a retry may be appended twice."""

    def live(self) -> Life:
        while True:
            acks = self.rng.choice((ALL, ALL, ONE, ONE, NONE))
            last = None
            for _ in range(self.rng.choice((1, 1, 1, 2, 6))):
                place = self.choose_partition()
                if place is None:
                    continue
                records = self.records()
                data = build_batch(records, compression=self.rng.choice(CODECS))
                values = [record.value for record in records if record.value is not None]
                last = self.produce(Batch(*place, values, data, len(records)), acks)
            self.world.transmit(self._link)
            yield last


class IdempotentProducer(Producer):
    """With sequence numbers: whatever it sends again is in the log at most once."""

    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[bytes, int], int] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.answered: dict[tuple[bytes, int], deque[Batch]] = {}
        """The last batches that are in the log for sure, by partition: few enough for the broker to know them."""

    def live(self) -> Life:
        while True:
            if self.producer_id < 0:
                yield from self.begin()
                continue
            batches = [batch for _ in range(self.rng.choice((1, 1, 1, 2, 3))) if (batch := self.next_batch())]
            if not batches or self.producer_id < 0:
                yield None
                continue
            yield from self.send_until_answered(batches)
            if self.producer_id >= 0 and self.answered and self.rng.random() < 0.25:
                yield from self.repeat()

    def repeat(self) -> Ask:
        """One of the last batches comes again, as from a network that has kept it: it must not be appended."""
        batch = self.rng.choice(self.rng.choice(list(self.answered.values())))
        pending = self.produce(batch, self.rng.choice((ALL, ONE)))
        self.world.transmit(self._link)
        yield pending

    def begin(self) -> Ask:
        response = yield from self.ask(InitProducerIdRequest(transactional_id=None), 4)
        if response is not None and response.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
            self.topic_ids.clear()
            self.answered.clear()

    def next_batch(self) -> Batch | None:
        place = self.choose_partition()
        if place is None:
            return None
        if self.topic_ids.setdefault(place[0], place[1]) != place[1]:
            # Made again under its name. What it sent by name may have reached either topic: it starts over.
            self.producer_id = -1
            return None
        records = self.records()
        key = (place[1], place[2])
        sequence = self.sequences.get(key, 0)
        self.sequences[key] = sequence + len(records)
        data = build_batch(
            records,
            compression=self.rng.choice(CODECS),
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        values = [record.value for record in records if record.value is not None]
        return Batch(*place, values, data, len(records))

    def send_until_answered(self, batches: list[Batch]) -> Ask:
        acks = self.rng.choice((ALL, ALL, ONE))
        for _ in range(RETRIES_MAX):
            sent = [(batch, self.produce(batch, acks)) for batch in batches]
            self.world.transmit(self._link)
            yield sent[-1][1]
            for _, pending in sent:
                if not pending.is_done:
                    yield pending
            if self.rng.random() < 0.05:
                continue  # as if all answers had been lost
            batches = [batch for batch, pending in sent if pending.is_lost]
            for batch, pending in sent:
                if not pending.is_lost and not error_of(pending):
                    known = self.answered.setdefault((batch.topic_id, batch.partition), deque(maxlen=4))
                    if batch not in known:
                        known.append(batch)
            if any(not pending.is_lost and error_of(pending) for _, pending in sent):
                break
            if not batches:
                return
        self.producer_id = -1  # it does not know what is in the log: it starts over as another one
