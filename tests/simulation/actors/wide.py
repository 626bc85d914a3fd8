"""Whoever asks for everything at once: requests for all partitions of a topic that has hundreds of them.

No turn of the loop may do all of such a request, nor retention of all partitions at once: `turns.py` has the budget.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from headrace.wire.batches import Compression
from headrace.wire.errors import ErrorCode
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import NewRecord, build_batch
from headrace.wire.share_state import ShareKey
from tests.simulation.actor import Ask, Life
from tests.simulation.actors.group_admins import delete_group
from tests.simulation.actors.producers import ALL, ONE, TIMEOUT_MS, Producer
from tests.simulation.models.transactions import TransactionModel, Wish
from tests.simulation.network import Pending
from tests.simulation.scenario import SHARE_GROUPS, WIDE_PARTITIONS
from tests.simulation.violation import Violation

if TYPE_CHECKING:
    from tests.simulation.world import World

GROUP, TRANSACTIONAL_ID = "wide", "t-wide"
RECORDS = (1, 1, 3)
MAX_TIMESTAMP = -3
RETRIES_MAX = 4
TOLD = 5
"""Share-partitions whose promise is followed up: the model looks through all of the journal for each."""


class Wide(Producer):
    def __init__(self, world: "World", name: str) -> None:
        super().__init__(world, name)
        self._partitions = world.rng.randint(*WIDE_PARTITIONS)

    @property
    def topic(self) -> str:
        return self.world.scenario.topics[0]

    def live(self) -> Life:
        while True:
            if self.topic not in self.logs.topics:
                yield from self.create()
                continue
            match self.rng.choices(
                ("produce", "transaction", "list", "commit", "alter", "delete groups"), (5, 3, 3, 2, 3, 2)
            )[0]:
                case "produce":
                    yield from self.produce_to_all(self.rng.choice((ALL, ONE)))
                case "transaction":
                    yield from self.transaction()
                case "list":
                    yield from self.list_offsets()
                case "commit":
                    yield from self.commit()
                case "alter":
                    yield from self.alter()
                case "delete groups":
                    yield from delete_group(self, GROUP, beside=[SHARE_GROUPS[0]])

    def indexes(self) -> range:
        topic_id = self.logs.topics.get(self.topic)
        return range(self.logs.partitions.get(topic_id, 0) if topic_id is not None else 0)

    def create(self) -> Ask:
        configs = {
            "retention.ms": self.rng.choice(("1000", "30000")),
            "file.delete.delay.ms": self.rng.choice(("0", "1000", "60000")),
        }
        topic = CreatableTopic(
            name=self.topic,
            num_partitions=self._partitions,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )

        def answered(pending: Pending) -> None:
            result = pending.response.topics[0]
            if result.error_code == ErrorCode.NONE:
                self.logs.told_created(self.topic, result.topic_id)

        yield from self.ask(CreateTopicsRequest(topics=[topic]), 7, answered=answered)

    def produce_to_all(
        self, acks: int, producer: tuple[int, int] | None = None, model: TransactionModel | None = None
    ) -> Ask:
        """True when every partition has taken its batch."""
        producer_id, epoch = producer or (-1, -1)
        values: dict[int, list[bytes]] = {}
        data = []
        codec = self.rng.choice((Compression.NONE, Compression.GZIP))
        for index in self.indexes():
            records = self.numbered(self.rng.choice(RECORDS))
            values[index] = [record.value for record in records if record.value is not None]
            if model is not None:
                self.transactions.sent(model, values[index])
            batch = build_batch(
                records,
                compression=codec,
                producer_id=producer_id,
                producer_epoch=epoch,
                base_sequence=0 if producer is not None else -1,
                is_transactional=producer is not None,
            )
            data.append(PartitionProduceData(index=index, records=batch))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=TIMEOUT_MS,
            transactional_id=TRANSACTIONAL_ID if producer is not None else None,
            topic_data=[TopicProduceData(name=self.topic, partition_data=data)],
        )
        is_taken: list[bool] = []

        def answered(pending: Pending) -> None:
            for result in pending.response.responses[0].partition_responses:
                is_taken.append(result.error_code == ErrorCode.NONE)
                if is_taken[-1]:
                    self.logs.acknowledged(values[result.index], result.index, result.base_offset, acks=acks)
                    if model is not None:
                        model.acknowledged.extend(values[result.index])

        yield from self.ask(request, 11, timeout_ms=TIMEOUT_MS, answered=answered)
        return bool(is_taken) and all(is_taken)

    def numbered(self, count: int) -> list[NewRecord]:
        now_ms = self.world.clock.wall_ms()
        return [
            NewRecord(None, f"{self.name}.{next(self._numbers)}".encode(), (), now_ms) for _ in range(count)
        ]

    def transaction(self) -> Ask:
        """In all partitions. Where something goes wrong, it is left open: its timeout ends it."""
        init = InitProducerIdRequest(transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=5_000)
        response = yield from self.ask(init, 4)
        if response is None or response.error_code != ErrorCode.NONE:
            return
        producer = (response.producer_id, response.producer_epoch)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TRANSACTIONAL_ID,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=self.topic, partitions=[*self.indexes()])],
        )
        response = yield from self.ask(request, 3)
        if response is None or any(
            one.partition_error_code
            for topic in response.results_by_topic_v3_and_below
            for one in topic.results_by_partition
        ):
            return
        model = TransactionModel(TRANSACTIONAL_ID)
        if self.rng.random() < 0.5 and not (yield from self.produce_to_all(ALL, producer, model)):
            return
        yield from self.end(producer, model, commit=self.rng.random() < 0.6)

    def end(self, producer: tuple[int, int], model: TransactionModel, *, commit: bool) -> Ask:
        model.wish = Wish.COMMIT if commit else Wish.ABORT
        request = EndTxnRequest(
            transactional_id=TRANSACTIONAL_ID,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=commit,
        )

        def answered(pending: Pending) -> None:
            if pending.response.error_code == ErrorCode.NONE:
                self.transactions.told(model, Wish.COMMITTED if commit else Wish.ABORTED)

        for _ in range(RETRIES_MAX):
            response = yield from self.ask(request, 3, answered=answered)
            if response is not None and response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                return

    def list_offsets(self) -> Ask:
        timestamp = self.rng.choice((MAX_TIMESTAMP, 0, self.world.clock.wall_ms() - 1_000))
        asked = [ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in self.indexes()]
        request = ListOffsetsRequest(topics=[ListOffsetsTopic(name=self.topic, partitions=asked)])
        yield from self.ask(request, 7, answered=self.check_offsets)

    def check_offsets(self, pending: Pending) -> None:
        """Of each partition in its place; nothing beyond the end, but where all records are deleted."""
        (topic,) = pending.response.topics
        topic_id = self.logs.topics.get(self.topic)
        if [one.partition_index for one in topic.partitions] != [
            one.partition_index for one in pending.request.topics[0].partitions
        ]:
            raise Violation("answers out of place", f"{pending.request} got {pending.response}")
        for one in topic.partitions:
            model = self.logs.logs.get((topic_id, one.partition_index)) if topic_id is not None else None
            if model is None or model.is_damaged or model.start == model.end:
                continue
            if one.offset >= model.end:
                raise Violation("found what is not there", f"{model.name}: {one.offset}, end {model.end}")

    def commit(self) -> Ask:
        indexes = self.indexes()
        sent = {index: self.groups.sent((GROUP, self.topic, index), 0) for index in indexes}
        asked = [OffsetCommitRequestPartition(partition_index=index, committed_offset=0) for index in indexes]
        request = OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name=self.topic, partitions=asked)]
        )

        def answered(pending: Pending) -> None:
            for one in pending.response.topics[0].partitions:
                place = (GROUP, self.topic, one.partition_index)
                self.groups.answered(place, sent[one.partition_index], one.error_code)

        yield from self.ask(request, 8, answered=answered)
        for commit in sent.values():
            self.groups.lost(commit)

    def alter(self) -> Ask:
        indexes = self.indexes()
        asked = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0) for index in indexes
        ]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=self.topic, partitions=asked)]
        request = AlterShareGroupOffsetsRequest(group_id=SHARE_GROUPS[0], topics=topics)
        followed = self.rng.sample(indexes, min(TOLD, len(indexes)))
        yield from self.ask(request, 0, answered=partial(self.told_altered, followed))

    def told_altered(self, followed: Sequence[int], pending: Pending) -> None:
        if pending.response.error_code != ErrorCode.NONE:
            return
        for topic in pending.response.responses:
            for one in topic.partitions:
                if one.error_code == ErrorCode.NONE and one.partition_index in followed:
                    self.share.told_fresh(ShareKey(SHARE_GROUPS[0], topic.topic_id, one.partition_index), 0)
