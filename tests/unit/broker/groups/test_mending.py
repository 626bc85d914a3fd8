"""Goal: after any crash no committed offset points past what exists while new records take its place, and none reaches
a later topic of the same name. Method: a whole core on a disk that loses what was not synced."""

from pathlib import Path
from typing import Any

import pytest

from headrace.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from headrace.wire.messages.delete_groups_request import DeleteGroupsRequest
from headrace.wire.messages.end_txn_request import EndTxnRequest
from headrace.wire.messages.init_producer_id_request import InitProducerIdRequest
from headrace.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.wire.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.records import NewRecord, build_batch
from tests.unit.broker.groups.share_world import ShareWorld
from tests.unit.log.logs import delete_records

EXPIRES_IN_MS = 1_000_000
WITH_RETENTION_TIME = 3
"""OffsetCommit v2-v4 carry a retention time; their records have no room for a topic id."""


def produce_unsynced(world: ShareWorld, count: int, topic: str = "t") -> None:
    """As with acks=1."""
    now_ms = world.clock.wall_ms()
    records = [NewRecord(None, b"x", timestamp=now_ms) for _ in range(count)]
    world.core.topics.require(topic, 0).log.append(build_batch(records), now_ms=now_ms)


def commit(world: ShareWorld, offset: int, *, version: int = 8, **fields: Any) -> None:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    response = world.ask(OffsetCommitRequest(group_id="g", topics=[topic], **fields), version)
    assert response.topics[0].partitions[0].error_code == 0


def committed(world: ShareWorld) -> int:
    topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
    group = OffsetFetchRequestGroup(group_id="g", topics=[topic])
    response = world.ask(OffsetFetchRequest(groups=[group]), 8)
    return int(response.groups[0].topics[0].partitions[0].committed_offset)


class Transaction:
    def __init__(self, world: ShareWorld) -> None:
        self.world = world
        request = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=60_000)
        self.producer = world.ask(request, 4)

    @property
    def _fields(self) -> dict[str, Any]:
        return {
            "transactional_id": "x",
            "producer_id": self.producer.producer_id,
            "producer_epoch": self.producer.producer_epoch,
        }

    def commit_offset(self, offset: int) -> None:
        assert self.world.ask(AddOffsetsToTxnRequest(group_id="g", **self._fields), 3).error_code == 0
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        topic = TxnOffsetCommitRequestTopic(name="t", partitions=[partition])
        response = self.world.ask(TxnOffsetCommitRequest(group_id="g", topics=[topic], **self._fields), 3)
        assert response.topics[0].partitions[0].error_code == 0

    def end(self, *, commit: bool = True) -> None:
        assert self.world.ask(EndTxnRequest(committed=commit, **self._fields), 3).error_code == 0


@pytest.fixture
def topic(world: ShareWorld) -> bytes:
    return world.new_topic("t")


def test_an_offset_beyond_what_a_power_cut_has_left_goes_back_to_the_logs_end(
    world: ShareWorld, topic: bytes
) -> None:
    world.write("t", 3)
    produce_unsynced(world, 7)
    commit(world, 10)
    world.power_cycle()
    assert committed(world) == 3


def test_a_corrected_offset_survives_the_next_power_cut_with_new_records_in_place(
    world: ShareWorld, topic: bytes
) -> None:
    produce_unsynced(world, 10)
    commit(world, 10)
    world.power_cycle()
    world.write("t", 20)
    world.power_cycle()
    assert committed(world) == 0


def test_offsets_are_kept_when_the_process_is_killed_and_nothing_synced(tmp_path: Path) -> None:
    world = ShareWorld(tmp_path, **{"headrace.flush": "os"})
    world.new_topic("t")
    produce_unsynced(world, 10)
    commit(world, 10)
    world.kill()
    assert committed(world) == 10
    world.close()


def test_with_flush_os_an_offset_that_outlives_its_records_is_corrected(tmp_path: Path) -> None:
    """The kernel may write the journal back and not the records."""
    world = ShareWorld(tmp_path, **{"headrace.flush": "os"})
    world.new_topic("t")
    produce_unsynced(world, 10)
    commit(world, 10)
    offsets = world.core.topics.get("__consumer_offsets")
    assert offsets is not None
    world.core.logs.sync([partition.log for partition in offsets.partitions])
    world.power_cycle()
    assert committed(world) == 0
    world.close()


def test_an_offset_that_someone_set_beyond_the_end_stays_over_a_clean_stop(
    world: ShareWorld, topic: bytes
) -> None:
    commit(world, 100)
    world.core.close()
    world.start()
    assert committed(world) == 100


def test_an_offset_below_the_logs_start_stays(world: ShareWorld, topic: bytes) -> None:
    world.write("t", 10)
    commit(world, 2)
    delete_records(world.core.topics.require("t", 0).log, 5)
    world.power_cycle()
    assert committed(world) == 2


def test_a_pending_offset_beyond_the_end_is_corrected_inside_its_transaction(
    world: ShareWorld, topic: bytes
) -> None:
    world.write("t", 3)
    produce_unsynced(world, 7)
    transaction = Transaction(world)
    transaction.commit_offset(10)
    world.power_cycle()
    world.write("t", 20)
    transaction.end()
    assert committed(world) == 3
    world.power_cycle()
    assert committed(world) == 3


def test_a_pending_offset_that_was_corrected_is_dropped_if_its_transaction_aborts(
    world: ShareWorld, topic: bytes
) -> None:
    world.write("t", 3)
    commit(world, 1)
    produce_unsynced(world, 7)
    transaction = Transaction(world)
    transaction.commit_offset(10)
    world.power_cycle()
    transaction.end(commit=False)
    assert committed(world) == 1


def test_a_completed_transactions_offset_beyond_the_end_is_corrected(world: ShareWorld, topic: bytes) -> None:
    produce_unsynced(world, 10)
    transaction = Transaction(world)
    transaction.commit_offset(10)
    transaction.end()
    world.power_cycle()
    assert committed(world) == 0


def test_correcting_a_commit_does_not_let_it_win_over_a_pending_one_that_came_later(
    world: ShareWorld, topic: bytes
) -> None:
    world.write("t", 5)
    produce_unsynced(world, 5)
    commit(world, 10)
    transaction = Transaction(world)
    transaction.commit_offset(4)
    world.power_cycle()
    assert committed(world) == 5
    transaction.end()
    assert committed(world) == 4


def test_correcting_a_pending_offset_does_not_let_it_win_over_a_commit_that_came_later(
    world: ShareWorld, topic: bytes
) -> None:
    world.write("t", 5)
    produce_unsynced(world, 5)
    transaction = Transaction(world)
    transaction.commit_offset(10)
    commit(world, 2)
    world.power_cycle()
    transaction.end()
    assert committed(world) == 2


def recreate(world: ShareWorld) -> None:
    """While the disk is busy: the tombstones of the first topic's offsets are written and not synced yet."""
    world.runner.is_held = True
    world.core.topics.delete("t")
    world.new_topic("t")
    world.power_cycle()
    world.write("t", 20)


def test_an_offset_does_not_reach_the_next_topic_of_that_name_if_its_tombstone_is_lost(
    world: ShareWorld, topic: bytes
) -> None:
    world.write("t", 10)
    commit(world, 10)
    recreate(world)
    assert committed(world) == -1


def test_an_offset_with_its_own_expiry_does_not_reach_the_next_topic_of_that_name(
    world: ShareWorld, topic: bytes
) -> None:
    world.write("t", 10)
    commit(world, 10, version=WITH_RETENTION_TIME, retention_time_ms=EXPIRES_IN_MS)
    recreate(world)
    assert committed(world) == -1


@pytest.mark.parametrize("is_ended", [True, False], ids=["completed", "open"])
def test_a_transactions_offset_does_not_reach_the_next_topic_of_that_name(
    world: ShareWorld, topic: bytes, is_ended: bool
) -> None:
    world.write("t", 10)
    transaction = Transaction(world)
    transaction.commit_offset(10)
    if is_ended:
        transaction.end()
    recreate(world)
    if not is_ended:
        transaction.end()
    assert committed(world) == -1


def test_offsets_of_a_topic_that_is_gone_are_removed_at_start(world: ShareWorld, topic: bytes) -> None:
    world.write("t", 10)
    commit(world, 10)
    world.runner.is_held = True
    world.core.topics.delete("t")
    world.power_cycle()
    assert [*world.core.groups.state.offsets.of_group("g")] == []
    world.check_replay()


def test_a_group_and_a_topic_with_more_offsets_than_fit_in_one_batch_are_deleted(world: ShareWorld) -> None:
    name, count = "t" * 249, 4_000
    world.new_topic(name, count)
    for first in range(0, count, 1_000):
        partitions = [
            OffsetCommitRequestPartition(partition_index=index, committed_offset=1)
            for index in range(first, first + 1_000)
        ]
        for group in ("g", "h"):
            topic = OffsetCommitRequestTopic(name=name, partitions=partitions)
            response = world.ask(OffsetCommitRequest(group_id=group, topics=[topic]), 8)
            assert {one.error_code for one in response.topics[0].partitions} == {0}
    assert world.ask(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code == 0
    world.core.topics.delete(name)
    world.power_cycle()
    assert [*world.core.groups.state.offsets.of_group("g")] == []
    assert [*world.core.groups.state.offsets.of_group("h")] == []
