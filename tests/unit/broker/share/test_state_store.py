"""The share coordinator on a real core: which records it writes, what it refuses, and that a load brings back the same.

The records are read back from the log, as a restart reads them.
"""

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker import journals
from headrace.broker.runner import Runner
from headrace.broker.share import pruning
from headrace.broker.share.state_store import ShareStateStore, StoredState
from headrace.broker.topics import Topic
from headrace.log.memory_disk import MemoryDisk
from headrace.share.changes import StateBatch
from headrace.share.states import RecordState
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.records import NewRecord, build_batch, read_records
from headrace.wire.share_replay import ReplayedState, replay
from headrace.wire.share_state import (
    STATE_TOPIC,
    ShareKey,
    Snapshot,
    Update,
    decode,
)
from tests.unit.broker.share.bench import ACCEPT, Bench, Member, WhenTold

AVAILABLE, ACKNOWLEDGED, ARCHIVED = RecordState.AVAILABLE, RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
TOPIC_ID = bytes(range(16))


class Entry(NamedTuple):
    offset: int
    key: ShareKey
    body: Snapshot | Update | None


class Desk(Bench):
    """A bench with one topic, whose share-partitions are the test's to initialize, and everything in one log."""

    def __init__(
        self,
        *,
        per_snapshot: int = 500,
        partitions: int = 3,
        disk: MemoryDisk | None = None,
        metadata: Path | None = None,
        state_partitions: int = 1,
        runner: Runner | None = None,
        **more: object,
    ) -> None:
        settings: dict[str, object] = {
            "share.coordinator.snapshot.update.records.per.snapshot": per_snapshot,
            "share.coordinator.state.topic.num.partitions": state_partitions,
            "headrace.share.state.history.ms": 0,
            **more,
        }
        super().__init__(disk, metadata, runner, **settings)
        self.orders = self.core.topics.create("orders", partitions=partitions, configs={})

    @property
    def store(self) -> ShareStateStore:
        return self.core.share_state

    def key(self, partition: int = 0) -> ShareKey:
        return ShareKey("g", self.orders.id, partition)

    def initialize(self, partition: int = 0, *, epoch: int = 1, start: int = 0) -> None:
        self.store.initialize(self.key(partition), state_epoch=epoch, start_offset=start)

    def write(
        self,
        *batches: StateBatch,
        partition: int = 0,
        epoch: int = 1,
        leader: int = 0,
        start: int = -1,
        complete: int = 0,
        may_be_late: bool = False,
    ) -> None:
        self.store.write(
            self.key(partition),
            state_epoch=epoch,
            leader_epoch=leader,
            start_offset=start,
            complete_count=complete,
            batches=batches,
            may_be_late=may_be_late,
        )

    def state(self, partition: int = 0) -> StoredState:
        return self.store.read(self.key(partition), -1)

    def entries(self) -> list[Entry]:
        topic = self.core.topics.get(STATE_TOPIC)
        return list(_entries(topic)) if topic is not None else []

    def kinds(self) -> list[str]:
        return ["tombstone" if one.body is None else type(one.body).__name__ for one in self.entries()]


def _entries(topic: Topic) -> Iterator[Entry]:
    for partition in topic.partitions:
        log = partition.log
        for batch in log.reader.batches():
            for record in read_records(batch):
                if record.offset >= log.start_offset:
                    decoded = decode(record.key or b"", record.value)
                    assert decoded is not None
                    yield Entry(record.offset, *decoded)


def settled(first: int, last: int, state: RecordState = ACKNOWLEDGED, count: int = 1) -> StateBatch:
    return StateBatch(first, last, state, count)


class TestRecords:
    def test_a_record_that_cannot_be_read_does_not_keep_the_broker_from_starting(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        desk = Desk(metadata=tmp_path / "metadata.sqlite")
        desk.initialize(start=4)
        (partition,) = desk.core.topics.internal(STATE_TOPIC).partitions
        now_ms = desk.clock.wall_ms()
        for key in (b"", b"\x00\x00junk"):
            partition.log.append(build_batch([NewRecord(key, b"?", (), now_ms)]), now_ms=now_ms)
        desk.restart()
        assert desk.state().start_offset == 4
        assert "cannot be read" in caplog.text


class TestInitialize:
    def test_the_first_snapshot_has_epoch_0_and_no_leader(self) -> None:
        desk = Desk()
        desk.initialize(epoch=5, start=12)
        (entry,) = desk.entries()
        assert entry.key == desk.key()
        assert isinstance(entry.body, Snapshot)
        now_ms = entry.body.create_timestamp
        assert entry.body == Snapshot(0, 5, 0, 12, 0, now_ms, now_ms, [])

    def test_how_many_are_settled_is_unknown_until_the_start_is(self) -> None:
        desk = Desk()
        desk.initialize(start=-1)
        assert desk.state().complete_count == -1
        desk.initialize(start=0)
        assert desk.state().complete_count == 0

    def test_beginning_anew_forgets_what_was_there(self) -> None:
        desk = Desk()
        desk.initialize(epoch=1)
        desk.write(settled(0, 9), leader=4, start=3)
        desk.initialize(epoch=2, start=0)
        state = desk.state()
        assert (state.snapshot_epoch, state.state_epoch, state.leader_epoch) == (1, 2, 0)
        assert (state.start_offset, list(state.merged())) == (0, [])

    def test_an_older_state_epoch_is_fenced(self) -> None:
        desk = Desk()
        desk.initialize(epoch=3)
        desk.initialize(epoch=3, start=1)
        with pytest.raises(KafkaError) as refused:
            desk.initialize(epoch=2)
        assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH
        assert desk.kinds() == ["Snapshot", "Snapshot"]


class TestWrite:
    def test_an_update_says_what_changed_and_which_snapshot_it_belongs_to(self) -> None:
        desk = Desk()
        desk.initialize(epoch=1)
        desk.initialize(epoch=1)
        desk.write(settled(0, 2), settled(3, 3, AVAILABLE), leader=2, start=0, complete=3)
        assert desk.entries()[-1].body == Update(1, 2, 0, 3, [settled(0, 2), settled(3, 3, AVAILABLE)])

    @pytest.mark.parametrize("per_snapshot", [0, 500])
    @pytest.mark.parametrize(
        ("start", "complete", "expected"),
        [(20, 1, (20, 1)), (10, 1, (10, 5)), (10, 7, (10, 7)), (4, 9, (10, 5)), (-1, 6, (10, 6))],
        ids=["later", "same, fewer", "same, more", "overtaken", "start unknown"],
    )
    def test_a_write_that_was_overtaken_does_not_move_the_start_back(
        self, per_snapshot: int, start: int, complete: int, expected: tuple[int, int]
    ) -> None:
        desk = Desk(per_snapshot=per_snapshot)
        desk.initialize()
        desk.write(settled(12, 14), start=10, complete=5)
        desk.write(settled(4, 5), settled(22, 22), start=start, complete=complete, may_be_late=True)
        state = desk.state()
        assert (state.start_offset, state.complete_count) == expected
        assert all(batch.first >= state.start_offset for batch in state.merged())
        assert state.merged()[-1] == settled(22, 22)

    @pytest.mark.parametrize("per_snapshot", [0, 500])
    def test_the_leader_may_move_the_start_back_and_count_less(self, per_snapshot: int) -> None:
        desk = Desk(per_snapshot=per_snapshot)
        desk.initialize()
        desk.write(start=10, complete=5)
        for start, complete in ((10, 2), (4, 0)):
            desk.write(start=start, complete=complete)
            assert (desk.state().start_offset, desk.state().complete_count) == (start, complete)

    def test_so_many_updates_are_followed_by_a_snapshot(self) -> None:
        desk = Desk(per_snapshot=2)
        desk.initialize()
        created_ms = desk.state().create_timestamp
        for offset in range(6):
            desk.clock.advance(1)
            desk.write(settled(offset, offset), complete=offset + 1)
        assert desk.kinds() == [
            "Snapshot",
            "Update",
            "Update",
            "Snapshot",
            "Update",
            "Update",
            "Snapshot",
        ]
        second, third = (desk.entries()[index].body for index in (3, 6))
        assert isinstance(second, Snapshot)
        assert isinstance(third, Snapshot)
        assert (second.snapshot_epoch, second.batches, second.complete_count) == (1, [settled(0, 2)], 3)
        assert (third.snapshot_epoch, third.batches, third.complete_count) == (2, [settled(0, 5)], 6)
        assert third.create_timestamp == created_ms
        assert third.write_timestamp >= created_ms + 6000

    def test_with_none_between_them_every_write_is_a_snapshot(self) -> None:
        desk = Desk(per_snapshot=0)
        desk.initialize()
        desk.write(settled(0, 0))
        desk.write(settled(1, 1))
        assert desk.kinds() == ["Snapshot"] * 3

    def test_each_share_partition_counts_its_own_updates(self) -> None:
        desk = Desk(per_snapshot=1)
        for partition in (0, 1):
            desk.initialize(partition)
            desk.write(settled(0, 0), partition=partition)
        assert desk.kinds() == ["Snapshot", "Update"] * 2

    def test_where_writes_overlap_more_deliveries_win_and_then_the_higher_state(self) -> None:
        desk = Desk()
        desk.initialize()
        desk.write(settled(0, 9, AVAILABLE, 1))
        desk.write(settled(2, 3, ACKNOWLEDGED, 1), settled(5, 5, AVAILABLE, 2), settled(7, 7, ARCHIVED, 1))
        desk.write(settled(5, 7, AVAILABLE, 1), start=1)
        assert desk.state().merged() == [
            settled(1, 1, AVAILABLE, 1),
            settled(2, 3),
            settled(4, 4, AVAILABLE, 1),
            settled(5, 5, AVAILABLE, 2),
            settled(6, 6, AVAILABLE, 1),
            settled(7, 7, ARCHIVED, 1),
            settled(8, 9, AVAILABLE, 1),
        ]

    def test_what_is_minus_one_stays_as_it_is(self) -> None:
        desk = Desk()
        desk.initialize(start=5)
        desk.write(leader=3, start=7)
        desk.write(settled(8, 8), leader=-1, epoch=-1, start=-1)
        state = desk.state()
        assert (state.start_offset, state.leader_epoch, state.state_epoch) == (7, 3, 1)

    @pytest.mark.parametrize(
        ("fields", "code"),
        [
            ({"leader": 3}, ErrorCode.FENCED_LEADER_EPOCH),
            ({"leader": 4, "epoch": 1}, ErrorCode.FENCED_STATE_EPOCH),
            ({"leader": 3, "epoch": 1}, ErrorCode.FENCED_LEADER_EPOCH),
            ({"partition": 1}, ErrorCode.INVALID_REQUEST),
            ({"partition": 3}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ],
    )
    def test_what_is_outdated_or_unknown_is_refused(self, fields: dict[str, int], code: ErrorCode) -> None:
        desk = Desk()
        desk.initialize(epoch=2)
        desk.write(leader=4, epoch=2)
        before = desk.entries()
        with pytest.raises(KafkaError) as refused:
            desk.write(settled(0, 0), **{"leader": 9, "epoch": 2, **fields})
        assert refused.value.code is code
        assert desk.entries() == before

    def test_a_share_partition_without_state_cannot_be_written_or_read(self) -> None:
        desk = Desk()
        with pytest.raises(KafkaError, match="Write operation on uninitialized share partition not allowed"):
            desk.write()
        with pytest.raises(KafkaError, match="Read operation on uninitialized share partition not allowed"):
            desk.store.read(desk.key(), 0)

    @pytest.mark.parametrize("per_snapshot", [0, 1, 500])
    def test_a_write_that_the_disk_refuses_changes_nothing(
        self, per_snapshot: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = MemoryDisk(is_simulated=True)
        desk = Desk(per_snapshot=per_snapshot, disk=disk, metadata=tmp_path / "metadata.sqlite")
        desk.initialize()
        desk.write(settled(0, 0), start=0, complete=1)
        before, kinds = _view(desk.state()), desk.kinds()
        disk.fail_at(1, OSError(errno.ENOSPC, "no space left"))
        with pytest.raises(KafkaError) as refused:
            desk.write(settled(1, 1), leader=5, start=1, complete=9)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert _view(desk.state()) == before
        assert desk.kinds() == kinds
        desk.write(settled(2, 2), start=0, complete=2)
        assert desk.state().merged() == [settled(0, 0), settled(2, 2)]
        live = _view(desk.state())
        desk.restart()
        assert _view(desk.state()) == live

    def test_state_that_does_not_fit_in_a_snapshot_stays_in_updates(self, tmp_path: Path) -> None:
        desk = Desk(per_snapshot=2, metadata=tmp_path / "metadata.sqlite")
        desk.initialize()
        desk.core.topics.set_configs(STATE_TOPIC, {"max.message.bytes": "1000"})
        written = []
        for offset in range(0, 200, 20):
            spots = [settled(spot, spot) for spot in range(offset, offset + 20, 2)]
            desk.write(*spots, start=0)
            written += spots
        assert desk.kinds()[-1] == "Update"
        assert list(desk.state().merged()) == written
        desk.restart()
        assert list(desk.state().merged()) == written
        desk.write(start=190)
        assert desk.kinds()[-1] == "Snapshot"
        assert list(desk.state().merged()) == written[-5:]


class TestRead:
    def test_a_new_leader_is_written_down_and_fences_the_one_before(self) -> None:
        desk = Desk()
        desk.initialize()
        desk.write(settled(0, 0), leader=1, complete=1)
        assert desk.store.read(desk.key(), 2).leader_epoch == 2
        assert desk.entries()[-1].body == Update(0, 2, -1, 1, [])
        with pytest.raises(KafkaError) as refused:
            desk.store.read(desk.key(), 1)
        assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
        with pytest.raises(KafkaError) as refused:
            desk.write(settled(1, 1), leader=1)
        assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH

    def test_reading_as_the_same_leader_or_as_none_writes_nothing(self) -> None:
        desk = Desk()
        desk.initialize()
        desk.write(settled(0, 0), leader=1)
        kinds = desk.kinds()
        desk.store.read(desk.key(), 1)
        desk.store.read(desk.key(), -1)
        assert desk.kinds() == kinds


class TestDelete:
    def test_deleting_writes_a_tombstone_once(self) -> None:
        desk = Desk()
        desk.initialize()
        assert desk.store.delete(desk.key()) is not None
        assert desk.store.delete(desk.key()) is None
        assert desk.kinds() == ["Snapshot", "tombstone"]
        with pytest.raises(KafkaError, match="uninitialized"):
            desk.store.read(desk.key(), 0)

    def test_a_deleted_share_partition_begins_with_snapshot_epoch_0_again(self) -> None:
        desk = Desk()
        desk.initialize(epoch=7)
        desk.store.delete(desk.key())
        desk.initialize(epoch=1)
        assert (desk.state().snapshot_epoch, desk.state().state_epoch) == (0, 1)

    def test_the_state_of_a_deleted_topic_goes_with_it(self) -> None:
        desk = Desk()
        desk.initialize(0)
        desk.initialize(1)
        desk.core.topics.delete("orders")
        assert list(desk.store.keys()) == []
        assert desk.kinds() == ["Snapshot", "Snapshot", "tombstone", "tombstone"]

    def test_a_crash_between_the_topic_and_its_state_leaves_nothing_behind(self, tmp_path: Path) -> None:
        desk = Desk(metadata=tmp_path / "metadata.sqlite", disk=MemoryDisk(is_simulated=True))
        desk.initialize(0)
        desk.core.topics.on_deleted.clear()
        desk.core.topics.delete("orders")
        desk.restart(clean=False)
        assert list(desk.store.keys()) == []
        assert desk.kinds() == ["Snapshot", "tombstone"]


class TestLostRecords:
    """Power failed, and the state of records was synced while the records were not."""

    def lose(self, desk: Desk, *, end: int) -> None:
        """Starts again with a log that ends there."""
        desk.core.logs.close(clean=False)
        desk.core.metadata.close()
        path = "orders-0/00000000000000000000.log"
        file = desk.disk.open(path)
        file.truncate(file.size() * end // 20)
        desk.core = desk._open()
        (desk.orders,) = [topic for topic in desk.core.topics if topic.name == "orders"]
        assert desk.orders.partitions[0].log.end_offset == end

    @pytest.fixture
    def desk(self, tmp_path: Path) -> Desk:
        desk = Desk(metadata=tmp_path / "metadata.sqlite", disk=MemoryDisk(is_simulated=True), partitions=1)
        desk.core.settings.replace_group("g", {"share.auto.offset.reset": "earliest"})
        desk.initialize(start=-1)
        desk.produce(desk.orders, 20, per_batch=1)
        return desk

    def test_records_that_are_written_at_the_same_offsets_again_are_delivered(self, desk: Desk) -> None:
        member = Member(desk, "a")
        assert member.take(desk.orders, batch_size=1)[-1] == (19, 19, 1)
        assert member.settle(desk.orders, (0, 3, ACCEPT), (10, 19, ACCEPT)) == 0
        self.lose(desk, end=12)
        desk.produce(desk.orders, 3, per_batch=1)
        assert Member(desk, "b").take(desk.orders) == [(4, 9, 1), (12, 14, 1)]
        state = desk.store.read(desk.key(), -1)
        assert state.complete_count == 6

    def test_so_are_they_where_the_start_had_passed_them(self, desk: Desk) -> None:
        member = Member(desk, "a")
        member.take(desk.orders)
        assert member.settle(desk.orders, (0, 17, ACCEPT)) == 0
        assert member.settle(desk.orders, (18, 18, ACCEPT)) == 0
        assert desk.state().start_offset == 18
        self.lose(desk, end=12)
        desk.produce(desk.orders, 3, per_batch=1)
        assert Member(desk, "b").take(desk.orders) == [(12, 14, 1)]

    def test_that_is_safe_before_anybody_produces(self, desk: Desk) -> None:
        member = Member(desk, "a")
        member.take(desk.orders)
        member.settle(desk.orders, (0, 19, ACCEPT))
        self.lose(desk, end=12)
        desk.disk.power_cycle()
        desk.core.metadata.close()
        desk.core = desk._open()
        assert desk.store.read(desk.key(), -1).last_offset() < 12

    def test_nothing_is_cut_where_nothing_is_lost(self, desk: Desk) -> None:
        member = Member(desk, "a")
        member.take(desk.orders)
        member.settle(desk.orders, (0, 19, ACCEPT))
        kinds = desk.kinds()
        desk.restart(clean=False)
        assert desk.kinds() == kinds


class TestPrune:
    def test_what_a_newer_snapshot_holds_is_deleted(self) -> None:
        desk = Desk(per_snapshot=2)
        desk.initialize()
        for offset in range(4):
            desk.write(settled(offset, offset))
        desk.store.prune()
        assert desk.kinds() == ["Snapshot", "Update"]

    def test_history_is_kept_for_its_time(self) -> None:
        desk = Desk(per_snapshot=2, **{"headrace.share.state.history.ms": 60_000})
        desk.initialize()
        for offset in range(4):
            desk.write(settled(offset, offset))
        desk.store.prune()
        assert len(desk.kinds()) == 5
        desk.advance(61)
        desk.write(settled(4, 4))
        desk.store.prune()
        assert len(desk.kinds()) <= 4

    def test_history_goes_when_its_time_is_over_though_nobody_writes(self) -> None:
        desk = Desk(per_snapshot=2, **{"headrace.share.state.history.ms": 60_000})
        desk.initialize()
        for offset in range(4):
            desk.write(settled(offset, offset))
        desk.store.prune()
        assert len(desk.kinds()) == 5
        desk.advance(61)
        desk.store.prune()
        assert desk.kinds() == ["Snapshot", "Update"]

    def test_history_that_cannot_be_read_is_pruned(self, caplog: pytest.LogCaptureFixture) -> None:
        desk = Desk(per_snapshot=2, **{"headrace.share.state.history.ms": 60_000})
        desk.initialize()
        for offset in range(4):
            desk.write(settled(offset, offset))
        (partition,) = desk.core.topics.internal(STATE_TOPIC).partitions
        segment = partition.log.segments[0]
        segment.file().write(8, bytes(4))  # the length of the first batch
        desk.advance(30)
        desk.store.prune()
        assert "is not kept" in caplog.text
        assert partition.log.start_offset == 3

    def test_a_share_partition_that_is_seldom_written_does_not_hold_up_the_others(self) -> None:
        desk = Desk(per_snapshot=10)
        desk.initialize(0)
        desk.initialize(1)
        for offset in range(40):
            desk.write(settled(offset, offset), partition=1)
        desk.write(settled(0, 0), partition=0)
        desk.store.prune()
        assert len(desk.entries()) < 15
        assert desk.state(0).merged() == [settled(0, 0)]

    def test_one_that_nobody_writes_to_is_renewed_so_that_the_others_can_be_pruned(self) -> None:
        desk = Desk(per_snapshot=1)
        desk.initialize(0)
        desk.initialize(1)
        desk.write(settled(0, 3, ARCHIVED, 2), partition=0, start=0, complete=4)
        desk.store.prune()
        for offset in range(4):
            desk.write(settled(offset, offset), partition=1)
        cold = desk.state(0)
        desk.clock.advance(60)
        desk.store.prune()
        renewed = desk.entries()[-1].body
        assert isinstance(renewed, Snapshot)
        assert renewed.snapshot_epoch == cold.snapshot_epoch + 1
        assert renewed.write_timestamp > renewed.create_timestamp == cold.create_timestamp
        assert renewed.batches == [settled(0, 3, ARCHIVED, 2)]
        assert renewed.complete_count == 4
        assert desk.kinds() == ["Snapshot", "Snapshot"]

    def test_where_nobody_writes_nothing_is_renewed(self) -> None:
        desk = Desk()
        desk.initialize(0)
        desk.initialize(1)
        desk.store.prune()
        desk.store.prune()
        desk.store.prune()
        assert desk.kinds() == ["Snapshot", "Snapshot"]

    def test_of_share_partitions_that_are_all_deleted_nothing_stays(self) -> None:
        desk = Desk()
        desk.initialize()
        desk.write(settled(0, 0))
        desk.store.delete(desk.key())
        desk.store.prune()
        assert desk.kinds() == []

    def test_it_comes_round_by_itself(self) -> None:
        desk = Desk(per_snapshot=0)
        desk.initialize()
        desk.write(settled(0, 0))
        desk.advance(299)
        assert len(desk.entries()) == 2
        desk.advance(2)
        assert len(desk.entries()) == 1

    def test_a_full_disk_prunes_nothing_and_loses_nothing(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        disk = MemoryDisk(is_simulated=True)
        desk = Desk(per_snapshot=1, disk=disk, metadata=tmp_path / "metadata.sqlite")
        desk.initialize(0)
        desk.initialize(1)
        desk.store.prune()
        for offset in range(5):
            desk.write(settled(offset, offset), partition=1)
        disk.fail_at(1, OSError(errno.ENOSPC, "no space left"))
        desk.store.prune()
        assert "is not pruned" in caplog.text
        live = [_view(desk.state(partition)) for partition in (0, 1)]
        desk.restart()
        assert [_view(desk.state(partition)) for partition in (0, 1)] == live

    def test_a_thousand_snapshots_are_renewed_a_few_in_each_turn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pruning, "RENEWALS_MAX", 1)
        desk = Desk(per_snapshot=1)
        for index in range(3):
            desk.initialize(index)
        for offset in range(12):
            desk.write(settled(offset, offset), partition=2)
        desk.store.prune()
        assert len(desk.entries()) == 15 + 1
        desk.advance(0.002)
        assert len(desk.entries()) == 15 + 2
        desk.advance(0.002)
        assert len(desk.entries()) == 3

    def test_syncs_and_the_new_start_are_left_to_a_worker(self, tmp_path: Path) -> None:
        worker = WhenTold()
        disk = MemoryDisk(is_simulated=True)
        settings = {"headrace.flush": "os"}
        desk = Desk(per_snapshot=0, disk=disk, metadata=tmp_path / "m.sqlite", runner=worker, **settings)
        desk.initialize()
        desk.write(settled(0, 0))
        operations = disk.operations
        desk.store.prune()
        assert disk.operations == operations
        assert len(desk.entries()) == 2
        worker.run_all()
        assert len(desk.entries()) == 1

    def test_many_records_are_pruned_before_the_interval_has_passed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(pruning, "SLACK_RECORDS", 50)
        monkeypatch.setattr(journals, "LOOK_EVERY_BYTES", 500)
        desk = Desk(per_snapshot=10)
        desk.initialize()
        for offset in range(1000):
            desk.write(settled(offset, offset))
            desk.core.settle()
            assert len(desk.entries()) < 100

    def test_a_clean_stop_prunes(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(pruning, "STOP_SLACK_RECORDS", 10)
        disk = MemoryDisk(is_simulated=True)
        desk = Desk(per_snapshot=10, disk=disk, metadata=tmp_path / "metadata.sqlite")
        desk.initialize()
        for offset in range(100):
            desk.write(settled(offset, offset))
        live = _view(desk.state())
        desk.core.close()
        desk.core = desk._open()
        assert len(desk.entries()) < 12
        assert _view(desk.state()) == live


View = tuple[object, ...]


def _view(state: ReplayedState) -> View:
    return (
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.complete_count,
        state.create_timestamp,
        state.write_timestamp,
        tuple(state.merged()),
        *((state.partition, state.snapshot_at, state.update_count) if isinstance(state, StoredState) else ()),
    )


def _views(store: ShareStateStore) -> dict[ShareKey, View]:
    states = {key: store.get(key) for key in list(store.keys())}
    return {key: _view(state) for key, state in states.items() if state is not None}


REFUSALS = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH, ErrorCode.INVALID_REQUEST})
BATCHES = st.builds(
    lambda first, length, state, count: StateBatch(first, first + length, state, count),
    st.integers(0, 30),
    st.integers(0, 6),
    st.sampled_from([AVAILABLE, ACKNOWLEDGED, RecordState.ARCHIVING, ARCHIVED]),
    st.integers(1, 4),
)
PARTITION = st.integers(0, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("initialize"), PARTITION, st.integers(0, 3), st.integers(-1, 10)),
        st.tuples(
            st.just("write"),
            PARTITION,
            st.integers(-1, 4),
            st.integers(-1, 20),
            st.lists(BATCHES, max_size=3),
        ),
        st.tuples(st.just("read"), PARTITION, st.integers(-1, 4)),
        st.tuples(st.just("delete"), PARTITION),
        st.tuples(st.just("prune")),
    ),
    max_size=40,
)


@given(STEPS, st.integers(0, 4), st.integers(1, 2))
def test_a_load_brings_back_what_is_live_after_any_sequence(
    steps: Sequence[tuple[object, ...]], per_snapshot: int, state_partitions: int
) -> None:
    desk = Desk(per_snapshot=per_snapshot, state_partitions=state_partitions)
    for step in steps:
        take_if_allowed(desk, step)
    again = ShareStateStore(desk.core)
    again.load()
    assert _views(again) == _views(desk.store)
    assert _read_along(desk) == {key: view[:8] for key, view in _views(desk.store).items()}
    desk.core.metadata.close()


def _read_along(desk: Desk) -> dict[ShareKey, View]:
    """What a client makes of the topic's records."""
    states: dict[ShareKey, ReplayedState | None] = {}
    for entry in desk.entries():
        states[entry.key] = replay(states.get(entry.key), entry.body, ReplayedState.of)
    return {key: _view(state)[:8] for key, state in states.items() if state is not None}


def take_if_allowed(desk: Desk, step: tuple[object, ...]) -> None:
    """A step that is refused must have changed nothing."""
    before = _views(desk.store)
    try:
        take(desk, *step)
    except KafkaError as error:
        assert error.code in REFUSALS  # noqa: PT017
        assert _views(desk.store) == before


def take(desk: Desk, name: object, partition: Any = 0, *rest: object) -> None:
    match name, *rest:
        case "initialize", int(epoch), int(start):
            desk.initialize(partition, epoch=epoch, start=start)
        case "write", int(leader), int(start), list(batches):
            desk.write(*batches, partition=partition, epoch=-1, leader=leader, start=start)
        case "read", int(leader):
            desk.store.read(desk.key(partition), leader)
        case ("delete",):
            desk.store.delete(desk.key(partition))
        case ("prune",):
            desk.store.prune()
        case _:
            raise AssertionError(name)


@given(STEPS, st.integers(0, 4))
def test_pruning_keeps_exactly_what_a_load_needs(
    steps: Sequence[tuple[object, ...]], per_snapshot: int
) -> None:
    desk = Desk(per_snapshot=per_snapshot)
    for step in steps:
        take_if_allowed(desk, step)
    desk.store.prune()
    entries = desk.entries()
    snapshots = {entry.key: entry.offset for entry in entries if not isinstance(entry.body, Update)}
    if not entries:
        assert list(desk.store.keys()) == []
    else:
        assert entries[0].offset == snapshots[entries[0].key]
        assert entries[0].body is not None
    desk.core.metadata.close()
