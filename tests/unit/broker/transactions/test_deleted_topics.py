"""Goal: a topic's deletion ends what open transactions have to do with it: a later topic of its name gets none of their
markers. Method: a whole core on a disk that loses what was not synced."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.log.partition_log import PartitionLog
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.wire.records import NewRecord, build_batch
from tests.unit.broker.groups.share_world import ShareWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ShareWorld]:
    world = ShareWorld(tmp_path)
    world.new_topic("t")
    world.new_topic("u")
    yield world
    world.close()


class Transaction:
    """Of an older client, whose epoch stays the same."""

    def __init__(self, world: ShareWorld) -> None:
        self.world = world
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        producer = world.ask(request, 4)
        self._fields: dict[str, Any] = {
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
        }

    def write(self, *topics: str) -> None:
        added = [AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in topics]
        answer = self.world.ask(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id="x",
                v3_and_below_producer_id=self._fields["producer_id"],
                v3_and_below_producer_epoch=self._fields["producer_epoch"],
                v3_and_below_topics=added,
            ),
            3,
        )
        results = [
            one for topic in answer.results_by_topic_v3_and_below for one in topic.results_by_partition
        ]
        assert [one.partition_error_code for one in results] == [0] * len(topics)
        for name in topics:
            batch = build_batch(
                [NewRecord(None, b"x", timestamp=self.world.clock.wall_ms())],
                base_sequence=0,
                is_transactional=True,
                **self._fields,
            )
            data = TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch)])
            answer = self.world.ask(ProduceRequest(acks=-1, transactional_id="x", topic_data=[data]), 9)
            assert answer.responses[0].partition_responses[0].error_code == 0

    def end(self) -> int:
        request = EndTxnRequest(transactional_id="x", committed=True, **self._fields)
        return int(self.world.ask(request, 3).error_code)


def end_offset(world: ShareWorld, topic: str) -> int:
    return world.core.topics.require(topic, 0).log.end_offset


def test_a_later_topic_of_that_name_gets_no_marker(world: ShareWorld) -> None:
    transaction = Transaction(world)
    transaction.write("t", "u")
    world.core.topics.delete("t")
    world.new_topic("t")
    assert transaction.end() == 0
    assert (end_offset(world, "t"), end_offset(world, "u")) == (0, 2)


def test_nor_after_a_power_cut(world: ShareWorld) -> None:
    transaction = Transaction(world)
    transaction.write("t", "u")
    world.core.topics.delete("t")
    world.new_topic("t")
    world.power_cycle()
    assert transaction.end() == 0
    assert (end_offset(world, "t"), end_offset(world, "u")) == (0, 2)


def test_a_deletion_that_a_crash_cut_short_is_learned_of_at_start(world: ShareWorld) -> None:
    transaction = Transaction(world)
    transaction.write("t", "u")
    world.core.topics.on_deleted.clear()
    world.core.topics.delete("t")
    world.power_cycle()
    world.new_topic("t")
    assert transaction.end() == 0
    assert (end_offset(world, "t"), end_offset(world, "u")) == (0, 2)


def test_a_transaction_in_deleted_topics_only_ends(world: ShareWorld) -> None:
    transaction = Transaction(world)
    transaction.write("t")
    world.core.topics.delete("t")
    assert transaction.end() == 0


def test_a_transaction_in_deleted_topics_only_is_aborted_after_its_time(world: ShareWorld) -> None:
    transaction = Transaction(world)
    transaction.write("t")
    world.core.topics.delete("t")
    world.pass_time(60_000)
    found = world.core.transactions.describe("x")
    assert found is not None
    assert found.state.title == "CompleteAbort"


def test_a_decided_transaction_does_not_mark_a_later_topic_after_a_power_cut(
    world: ShareWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refuses its markers for as long as the first topic is there."""

    def refuse(*_: object, **__: object) -> None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "as told")

    transaction = Transaction(world)
    transaction.write("t", "u")
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append_marker", refuse)
        assert transaction.end() == 0
    world.core.topics.delete("t")
    world.new_topic("t")
    world.power_cycle()
    assert (end_offset(world, "t"), end_offset(world, "u")) == (0, 2)
