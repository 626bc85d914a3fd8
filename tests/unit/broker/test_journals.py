"""The coordinators' journals stay about as small as what they hold, on a real core over a simulated disk."""

import errno
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import pytest

from headrace.broker import journals
from headrace.broker.groups import records
from headrace.broker.groups.offsets import OffsetAndMetadata
from headrace.broker.producer import ProducerIdAndEpoch
from headrace.log.memory_disk import MemoryDisk
from headrace.log.partition_log import PartitionLog
from headrace.wire.records import NewRecord, build_batch
from tests.unit.broker.share.bench import Bench, WhenTold

SLACK = 4_000
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SLACK_BYTES", SLACK)
    monkeypatch.setattr(journals, "STOP_SLACK_BYTES", 500)
    monkeypatch.setattr(journals, "LOOK_EVERY_BYTES", 500)


class Desk(Bench):
    def commit(self, group_id: str, offset: int, *, producer: ProducerIdAndEpoch | None = None) -> None:
        value = OffsetAndMetadata(offset=offset).as_record()
        entry = records.offset_commit(group_id, "orders", 0, value)
        self.core.groups.journal(group_id, [entry], producer=producer)
        self.core.settle()

    def logs(self, topic: str = OFFSETS) -> list[PartitionLog]:
        return [partition.log for partition in self.core.topics.internal(topic).partitions]

    def size(self, topic: str = OFFSETS) -> int:
        return sum(log.size for log in self.logs(topic))

    def state(self) -> object:
        return deepcopy(self.core.groups.state.snapshot())

    def reopen(self) -> None:
        self.core = self._open()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    disk = MemoryDisk(is_simulated=True)
    desk = Desk(disk, tmp_path / "metadata.sqlite", None, **{"offsets.topic.num.partitions": 4})
    topic = desk.core.topics.create("orders", partitions=1, configs={})
    topic.partitions[0].log.append(build_batch([NewRecord(None, b"v", (), 1)] * 5000), now_ms=1)
    desk.core.logs.sync([topic.partitions[0].log])
    yield desk
    desk.core.metadata.close()


def test_many_commits_of_few_groups_leave_a_small_journal(desk: Desk) -> None:
    for number in range(1000):
        desk.commit(f"group-{number % 7}", number)
        assert desk.size() < 4 * SLACK
    live = desk.state()
    desk.disk.restart()
    desk.core.metadata.close()
    desk.reopen()
    assert not desk.core.logs.was_clean
    assert desk.state() == live


def test_a_clean_stop_leaves_little_more_than_what_is_live(desk: Desk) -> None:
    for number in range(30):
        desk.commit("group", number)
    live = desk.state()
    desk.core.close()
    desk.reopen()
    assert desk.core.logs.was_clean
    assert desk.state() == live
    assert desk.size() < 500


def test_many_transactions_leave_a_small_journal(desk: Desk) -> None:
    for _ in range(300):
        desk.core.transactions.initialize("tx", timeout_ms=1000)
        desk.core.settle()
        assert desk.size(TRANSACTIONS) < 4 * SLACK
    (live,) = [(each.producer_id, each.producer_epoch) for each in desk.core.transactions]
    desk.core.close()
    desk.reopen()
    assert [(each.producer_id, each.producer_epoch) for each in desk.core.transactions] == [live]


def test_what_is_live_is_not_rewritten_for_every_few_bytes(desk: Desk) -> None:
    for number in range(400):
        desk.commit(f"group-{number}", number)
    operations = []
    for number in range(400):
        before = desk.disk.operations
        desk.commit("hot", number)
        operations.append(desk.disk.operations - before)
    usual = sorted(operations)[200]
    assert sum(cost > usual for cost in operations) < 20  # rolled, or looked at by a compaction
    assert desk.size() < 3 * 400 * 200


def test_an_open_transaction_holds_up_compaction_and_segments_do_not_multiply(desk: Desk) -> None:
    (producer_id,) = desk.core.allocate_producer_ids(1)
    desk.commit("group", 1, producer=ProducerIdAndEpoch(producer_id, 0))
    for number in range(1000):
        desk.commit("group", number)
    (log,) = [log for log in desk.logs() if log.end_offset > 1000]
    assert log.stable_offset == 0
    assert len(log.segments) < 12
    log.append_marker(producer_id=producer_id, producer_epoch=0, commit=True, coordinator_epoch=0, now_ms=1)
    desk.core.groups.complete_transaction(producer_id, log.partition, True)
    for number in range(1000, 1100):
        desk.commit("group", number)
    assert desk.size() < 4 * SLACK


def test_groups_that_came_and_went_leave_nothing_after_an_hour(desk: Desk) -> None:
    for number in range(300):
        group_id = f"group-{number}"
        desk.commit(group_id, number)
        gone = [records.offset_commit(group_id, "orders", 0, None), records.group_metadata(group_id, None)]
        desk.core.groups.journal(group_id, gone)
        desk.core.settle()
    assert desk.size() > SLACK  # their tombstones
    for _ in range(4):
        desk.advance(3601)
        for number in range(50):
            desk.commit("group", number)
    assert desk.size() < 2 * SLACK


def overgrown(folder: Path) -> tuple[Desk, WhenTold]:
    """A journal that is about to be compacted: the worker waits to be told to sync it."""
    worker = WhenTold()
    settings = {"offsets.topic.num.partitions": 1, "headrace.flush": "os"}
    desk = Desk(MemoryDisk(is_simulated=True), folder / "metadata.sqlite", worker, **settings)
    desk.core.topics.create("orders", partitions=1, configs={})
    while not worker.waiting:
        desk.commit("group", 0)
    return desk, worker


def test_the_loop_only_starts_new_segments(tmp_path: Path) -> None:
    desk, worker = overgrown(tmp_path)
    before = desk.size()
    assert before > SLACK
    worker.step()  # the sync
    worker.step()  # the compaction
    assert desk.size() < 1000
    assert not worker.waiting
    desk.core.metadata.close()


def test_a_clean_stop_in_the_middle_of_a_compaction_leaves_a_small_journal(tmp_path: Path) -> None:
    desk, worker = overgrown(tmp_path)
    worker.step()  # the sync
    assert worker.waiting  # the compaction
    for number in range(100):
        desk.commit("group", number)
    live = desk.state()
    desk.core.close()
    desk.reopen()
    assert desk.state() == live
    assert desk.size() < 1000
    desk.core.metadata.close()


def test_a_full_disk_keeps_the_journal_as_it_is(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(20):
        desk.commit("group", number)
    live = desk.state()
    for log in desk.logs():
        if log.segments:
            desk.disk.fail_at(1, OSError(errno.ENOSPC, "no space left"))
            desk.core.journals._compact([log])
    assert "cannot be compacted now" in caplog.text
    assert desk.core.failure is None
    desk.core.close()
    desk.reopen()
    assert desk.state() == live


def test_an_offsets_topic_that_an_administrator_has_made_is_used_as_it_is(tmp_path: Path) -> None:
    """As in Kafka: `__consumer_offsets` may be created by CreateTopics, with a number of partitions of one's own."""
    desk = Desk(MemoryDisk(is_simulated=True), tmp_path / "metadata.sqlite", None)
    desk.core.topics.create("orders", partitions=1, configs={})
    desk.core.topics.create(OFFSETS, partitions=3, configs={"cleanup.policy": "compact"})
    for number in range(12):
        desk.commit(f"group-{number}", 0)
    assert [log.end_offset > 0 for log in desk.logs()] == [True, True, True]
    live = desk.state()
    desk.core.close()
    desk.reopen()
    assert desk.state() == live
    desk.core.metadata.close()
