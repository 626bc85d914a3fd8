"""Transactional producers, with either version of the protocol: records and offsets, committed, aborted, or left
open.
"""

from typing import TYPE_CHECKING

from headrace.wire.errors import ErrorCode
from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.records import build_batch
from tests.simulation.actor import Ask, Life
from tests.simulation.actors.producers import ALL, CODECS, Batch, Producer, error_of
from tests.simulation.models.groups import Commit, Place
from tests.simulation.models.transactions import TIMEOUT_MS_MAX, TransactionModel, Wish
from tests.simulation.network import Pending
from tests.simulation.scenario import TOPICS

if TYPE_CHECKING:
    from tests.simulation.world import World

RETRIES_MAX = 8
AGAIN = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE}
)


class TransactionalProducer(Producer):
    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self.is_second = world.rng.random() < 0.6
        """Whether it speaks transaction.version 2."""
        self.version = world.rng.choice((12, 13)) if self.is_second else world.rng.choice((9, 11))
        self.transactional_id = f"t-{name}"
        self.group_id = f"g-{name}"
        self.timeout_ms = world.rng.choice((5_000, TIMEOUT_MS_MAX))
        self.producer_id = self.epoch = -1
        self.sequences: dict[tuple[bytes, int], int] = {}
        self.topic_ids: dict[str, bytes] = {}

    def live(self) -> Life:
        while True:
            if self.producer_id < 0:
                yield from self.begin()
                continue
            yield from self.one_transaction()

    def begin(self) -> Ask:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        response = yield from self.ask(request, 4)
        if response is not None and response.error_code == ErrorCode.NONE:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
            self.topic_ids.clear()

    def one_transaction(self) -> Ask:
        transaction = TransactionModel(self.transactional_id)
        is_sound = True
        for _ in range(self.rng.choice((1, 2, 3, 3))):
            batch = self.next_batch()
            if batch is None:
                break
            self.transactions.sent(transaction, batch.values)
            is_sound = yield from self.send(batch, transaction)
            if not is_sound:
                break
        if self.producer_id < 0:
            return
        offsets: list[tuple[Place, Commit]] = []
        self.groups.pending[self.name] = offsets
        if is_sound and self.rng.random() < 0.4:
            is_sound = yield from self.send_offsets(offsets)
        chance = self.rng.random()
        if not is_sound or chance < 0.1:
            self.producer_id = -1  # starts over, as after its own crash: the open transaction is aborted
            return
        yield from self.end(transaction, commit=chance < 0.75, offsets=offsets)

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
            is_transactional=True,
        )
        values = [record.value for record in records if record.value is not None]
        return Batch(*place, values, data, len(records))

    def send(self, batch: Batch, transaction: TransactionModel) -> Ask:
        """True when it was appended."""
        if not self.is_second and not (yield from self.add_partition(batch)):
            return False
        for _ in range(RETRIES_MAX):
            pending = self.produce(batch, ALL, self.transactional_id, told=transaction.acknowledged)
            self.world.transmit(self._link)
            yield pending
            if pending.is_lost:
                continue
            code = error_of(pending)
            if code == ErrorCode.NONE:
                return True
            if code not in AGAIN and code != ErrorCode.NOT_ENOUGH_REPLICAS:
                return False
        return False

    def add_partition(self, batch: Batch) -> Ask:
        topic = AddPartitionsToTxnTopic(name=batch.topic, partitions=[batch.partition])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[topic],
        )
        for _ in range(RETRIES_MAX):
            response = yield from self.ask(request, 3)
            if response is None:
                continue
            code = response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            if code == ErrorCode.NONE:
                return True
            if code not in AGAIN:
                return False
        return False

    def send_offsets(self, offsets: list[tuple[Place, Commit]]) -> Ask:
        if not self.is_second:
            request = AddOffsetsToTxnRequest(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=self.group_id,
            )
            response = yield from self.ask(request, 3)
            if response is None or response.error_code != ErrorCode.NONE:
                return False
        topic = self.rng.choice(TOPICS)
        topic_id = self.logs.topics.get(topic)
        model = self.logs.logs.get((topic_id, 0)) if topic_id is not None else None
        if model is None:
            return True
        offset = self.rng.randint(0, model.end)
        commit = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
                )
            ],
        )

        def answered(pending: Pending) -> None:
            is_taken = pending.response.topics[0].partitions[0].error_code == ErrorCode.NONE
            if is_taken and self.logs.topics.get(topic) == topic_id:
                offsets.append(((self.group_id, topic, 0), Commit(0, offset)))

        response = yield from self.ask(commit, 5 if self.is_second else 3, answered=answered)
        return response is not None and response.topics[0].partitions[0].error_code == ErrorCode.NONE

    def end(self, transaction: TransactionModel, *, commit: bool, offsets: list[tuple[Place, Commit]]) -> Ask:
        transaction.wish = Wish.COMMIT if commit else Wish.ABORT
        sent = self.groups.sent_end(offsets) if commit else []
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commit,
        )

        def answered(pending: Pending) -> None:
            if pending.response.error_code == ErrorCode.NONE:
                self.transactions.told(transaction, Wish.COMMITTED if commit else Wish.ABORTED)
                for place, one in sent:
                    self.groups.told(place, one)

        for _ in range(RETRIES_MAX):
            response = yield from self.ask(request, 5 if self.is_second else 3, answered=answered)
            if response is None:
                if self.rng.random() < 0.3:
                    break  # dies before it can ask again: what becomes of the transaction, it never knows
                continue
            code = response.error_code
            if code == ErrorCode.NONE:
                if self.is_second:
                    self.producer_id, self.epoch = response.producer_id, response.producer_epoch
                    self.sequences.clear()
                    self.topic_ids.clear()
                return
            if code not in AGAIN:
                break
        for _, one in sent:
            self.groups.lost(one)
        self.producer_id = -1
