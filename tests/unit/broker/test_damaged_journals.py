"""A damaged partition of an internal topic: the broker starts, refuses what that partition held, serves all else."""

from pathlib import Path

import pytest

from headrace.broker.call import Call
from headrace.broker.later import Later
from headrace.log.memory_disk import MemoryDisk
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.errors import ErrorCode
from headrace.wire.ids import partition_for
from headrace.wire.message import Message
from headrace.wire.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from headrace.wire.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.describe_groups_request import DescribeGroupsRequest
from headrace.wire.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from headrace.wire.messages.describe_transactions_request import DescribeTransactionsRequest
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.find_coordinator_request import FindCoordinatorRequest
from headrace.wire.messages.heartbeat_request import HeartbeatRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from headrace.wire.records import NewRecord, build_batch
from headrace.wire.share_state import STATE_TOPIC
from tests.unit.broker.share.bench import Bench, Member

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
UNAVAILABLE = ErrorCode.COORDINATOR_NOT_AVAILABLE


class Desk(Bench):
    def __init__(self, folder: Path) -> None:
        settings = {
            "offsets.topic.num.partitions": 3,
            "transaction.state.log.num.partitions": 3,
            "share.coordinator.state.topic.num.partitions": 3,
        }
        super().__init__(MemoryDisk(is_simulated=True), folder / "metadata.sqlite", None, **settings)

    def ask(self, request: Message, version: int) -> Message:
        answer = self.core.handle(request, Call(api_version=version, connection_id=1))
        self.core.settle()
        if isinstance(answer, Later):
            assert answer.is_done
            answer = answer.value
        assert answer is not None
        return answer

    def commit(self, group_id: str, offset: int = 0) -> int:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topics = [OffsetCommitRequestTopic(name="orders", partitions=[partition])]
        answer = self.ask(
            OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, topics=topics), 8
        )
        return int(answer.topics[0].partitions[0].error_code)  # type: ignore[attr-defined]

    def damage(self, topic: str, key: str, *, clean: bool) -> None:
        """Flips a bit in the middle of the partition that holds a key, while the broker is down."""
        index = partition_for(key, 3)
        path = f"{topic}-{index}/{0:020d}.log"
        if clean:
            self.core.close()
        else:
            self.core.metadata.close()
            self.disk.restart()
        file = self.disk.open(path)
        at = file.size() // 2
        file.write(at, bytes([file.read(at, 1)[0] ^ 1]))
        self.core = self._open()


def other(key: str) -> str:
    """A name that is kept in another partition."""
    return next(name for name in map(str, range(100)) if partition_for(name, 3) != partition_for(key, 3))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    topic = desk.core.topics.create("orders", partitions=1, configs={})
    desk.produce(topic, 50)
    desk.core.logs.sync([topic.partitions[0].log])
    return desk


@pytest.fixture(params=[True, False], ids=["after a clean stop", "after kill -9"])
def clean(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def errors_in(answer: object) -> set[int]:
    """All error codes of a response, however deep."""
    if isinstance(answer, list | tuple):
        return {code for each in answer for code in errors_in(each)}
    if not isinstance(answer, Message):
        return set()
    found: set[int] = set()
    for name in answer.__slots__:
        value = getattr(answer, name)
        found |= {int(value)} if name == "error_code" else errors_in(value)
    return found


GROUP_REQUESTS = [
    (
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        ),
        9,
    ),
    (HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 4),
    (OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 9),
    (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1), 1),
    (ConsumerGroupDescribeRequest(group_ids=["g"]), 1),
    (ShareGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=1), 1),
    (DescribeGroupsRequest(groups=["g"]), 5),
    (DescribeGroupsRequest(groups=["g"]), 6),
    (DeleteGroupsRequest(groups_names=["g"]), 2),
    (FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4),
    (FindCoordinatorRequest(key_type=0, key="g"), 3),
    (
        DescribeShareGroupOffsetsRequest(
            groups=[DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=None)]
        ),
        1,
    ),
]


def test_only_the_groups_of_a_damaged_partition_are_refused(
    desk: Desk, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for offset in range(10):
        assert desk.commit("g", offset) == 0
        assert desk.commit(other("g"), offset) == 0
    desk.damage(OFFSETS, "g", clean=clean)
    assert f"{OFFSETS}-{partition_for('g', 3)} is damaged at offset" in caplog.text
    assert "headrace log repair" in caplog.text
    for request, version in GROUP_REQUESTS:
        assert UNAVAILABLE in errors_in(desk.ask(request, version)), type(request).__name__
    assert desk.commit("g") == UNAVAILABLE
    assert desk.commit(other("g")) == 0
    topic = desk.core.topics.get("orders")
    assert topic is not None
    desk.produce(topic, 1)
    desk.core.close()


def test_who_asks_for_the_coordinator_is_told_the_cure(desk: Desk) -> None:
    for offset in range(10):
        desk.commit("g", offset)
    desk.damage(OFFSETS, "g", clean=False)
    answer = desk.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["g", other("g")]), 4)
    refused, found = answer.coordinators  # type: ignore[attr-defined]
    assert refused.error_code == UNAVAILABLE
    assert "headrace log repair" in refused.error_message
    assert found.error_code == 0


def test_only_the_transactional_ids_of_a_damaged_partition_are_refused(desk: Desk, clean: bool) -> None:
    identities = {}
    for name in ("tx", other("tx")):
        for _ in range(8):
            answer = desk.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
            identities[name] = (answer.producer_id, answer.producer_epoch)  # type: ignore[attr-defined]
    desk.damage(TRANSACTIONS, "tx", clean=clean)
    for request, version in (
        (InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4),
        (EndTxnRequest(transactional_id="tx", producer_id=1, producer_epoch=1, committed=True), 4),
        (DescribeTransactionsRequest(transactional_ids=["tx"]), 0),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=["tx"]), 4),
    ):
        assert UNAVAILABLE in errors_in(desk.ask(request, version)), type(request).__name__
    answer = desk.ask(InitProducerIdRequest(transactional_id=other("tx"), transaction_timeout_ms=60_000), 4)
    assert errors_in(answer) == {0}


def test_an_open_transaction_is_not_aborted_while_its_decision_cannot_be_read(desk: Desk) -> None:
    for _ in range(8):
        answer = desk.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4)
    producer_id, epoch = answer.producer_id, answer.producer_epoch  # type: ignore[attr-defined]
    batch = build_batch(
        [NewRecord(None, b"v", (), 1)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch)])]
    produced = desk.ask(ProduceRequest(acks=-1, transactional_id="tx", topic_data=data), 12)
    assert errors_in(produced) == {0}
    desk.damage(TRANSACTIONS, "tx", clean=False)
    topic = desk.core.topics.get("orders")
    assert topic is not None
    assert topic.partitions[0].log.stable_offset == 50
    assert len([*topic.partitions[0].log.reader.batches()]) == 11
    batch = build_batch(
        [NewRecord(None, b"v", (), 1)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=1,
        is_transactional=True,
    )
    data = [TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=batch)])]
    refused = desk.ask(ProduceRequest(acks=-1, transactional_id="tx", topic_data=data), 12)
    assert errors_in(refused) == {ErrorCode.NOT_ENOUGH_REPLICAS}  # Kafka's word: producers try again


def test_only_the_share_partitions_of_a_damaged_partition_are_refused(desk: Desk, clean: bool) -> None:
    topic = desk.topic("shared", partitions=4)
    for index in range(4):
        desk.produce(topic, 30, index=index)
    desk.core.logs.sync([partition.log for partition in topic.partitions])
    store = desk.core.share_state
    keys = sorted(store.keys())
    damaged = [key for key in keys if partition_for(key.text, 3) == partition_for(keys[0].text, 3)]
    assert len(damaged) < 4
    for key in keys:
        for offset in range(8):
            batch = StateBatch(offset, offset, RecordState.ACKNOWLEDGED, 1)
            store.write(
                key, state_epoch=1, leader_epoch=0, start_offset=0, complete_count=offset, batches=[batch]
            )
    desk.damage(STATE_TOPIC, keys[0].text, clean=clean)
    for key in keys:
        expected = UNAVAILABLE if key in damaged else 0
        asked = DescribeShareGroupOffsetsRequestTopic(topic_name="shared", partitions=[key.partition])
        group = DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=[asked])
        answer = desk.ask(DescribeShareGroupOffsetsRequest(groups=[group]), 1)
        assert max(errors_in(answer)) == expected
        fetched = Member(desk, f"n{key.partition}").fetch(topic, indexes=[key.partition])
        assert (ErrorCode.KAFKA_STORAGE_ERROR in errors_in(fetched)) == (key in damaged)
