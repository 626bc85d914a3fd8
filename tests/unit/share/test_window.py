"""The window: how the start moves, what `apply` tells, and recovery from persisted state.

The rules are under "The window" in docs/concepts/share-semantics.md.
"""

import pytest

from headrace.share.changes import AckBatch, StateBatch
from headrace.share.errors import CorruptState
from headrace.share.partition import SharePartition
from headrace.share.states import RecordState as S
from tests.unit.share.desk import ACCEPT, RELEASE, Desk, batches_of


def recover(start_offset: int, *batches: tuple[int, int, int, int]) -> SharePartition:
    return SharePartition.recover(start_offset, [StateBatch(*batch) for batch in batches])


def test_the_start_moves_over_settled_records_only() -> None:
    desk = Desk(batches_of(5, 2))
    desk.fetch(batch_size=5)
    desk.acknowledge((2, 3, ACCEPT), (6, 9, ACCEPT))
    assert desk.partition.start_offset == 0
    desk.acknowledge((0, 1, ACCEPT))
    assert desk.partition.start_offset == 4
    desk.acknowledge((4, 4, RELEASE))
    assert desk.partition.start_offset == 4
    desk.fetch()
    desk.acknowledge((4, 5, ACCEPT))
    assert (desk.partition.start_offset, desk.partition.end_offset) == (10, 10)


def test_an_empty_window_begins_and_ends_at_the_next_offset() -> None:
    desk = Desk([(0, 9)])
    partition = desk.partition
    assert (partition.start_offset, partition.end_offset, partition.window_size) == (0, 0, 0)
    desk.fetch()
    assert (partition.start_offset, partition.end_offset, partition.window_size) == (0, 9, 10)
    desk.acknowledge((0, 9, ACCEPT))
    assert (partition.start_offset, partition.end_offset, partition.window_size) == (10, 10, 0)


def test_applying_tells_whether_a_parked_fetch_may_be_served() -> None:
    desk = Desk(batches_of(5, 2))
    limits = desk.limits

    def answered(first: int, last: int, types: list[int]) -> bool:
        batch = AckBatch(first, last, types)
        return desk.apply(desk.partition.acknowledge("m1", [batch], limits=limits, now_ms=0))

    desk.fetch()
    assert not answered(3, 4, ACCEPT)
    assert answered(7, 8, RELEASE)
    assert answered(0, 2, ACCEPT)
    assert not desk.apply([])


def test_counting_what_is_complete() -> None:
    desk = Desk([(0, 9)])
    desk.fetch()
    desk.acknowledge((5, 6, ACCEPT), (8, 8, [0]))
    assert desk.partition.delivery_complete_count == 3
    desk.acknowledge((0, 4, ACCEPT))
    assert (desk.partition.start_offset, desk.partition.delivery_complete_count) == (7, 1)


class TestWrites:
    def test_the_write_that_settles_the_prefix_still_carries_the_old_start(self) -> None:  # "The window"
        desk = Desk([(0, 9)])
        desk.fetch()
        desk.acknowledge((0, 9, ACCEPT))
        assert desk.written() == [(0, 10, [(0, 9, 2, 1)])]

    def test_ahead_of_the_decision_it_carries_the_start_to_come(self) -> None:
        desk = Desk(batches_of(5, 3))
        desk.fetch(batch_size=5)
        desk.acknowledge((2, 7, ACCEPT), (9, 9, ACCEPT))
        answer = [AckBatch(0, 1, ACCEPT), AckBatch(12, 12, ACCEPT)]
        changes = desk.partition.acknowledge("m1", answer, limits=desk.limits, now_ms=0)
        behind = desk.partition.write_for(changes)
        ahead = desk.partition.write_for(changes, is_ahead=True)
        assert (behind, ahead) == (
            (0, 10, [(0, 1, S.ACKNOWLEDGED, 1), (12, 12, S.ACKNOWLEDGED, 1)]),
            (8, 2, [(12, 12, S.ACKNOWLEDGED, 1)]),
        )
        desk.apply(changes)
        assert (desk.partition.start_offset, desk.partition.delivery_complete_count) == (8, 2)

    def test_ahead_when_everything_is_settled(self) -> None:
        desk = Desk([(0, 4)])
        desk.fetch()
        changes = desk.partition.acknowledge(
            "m1", [AckBatch(0, 4, [3, 1, 1, 0, 1])], limits=desk.limits, now_ms=0
        )
        assert desk.partition.write_for(changes, is_ahead=True) == (5, 0, [])

    def test_ahead_it_jumps_holes_but_not_what_is_unread(self) -> None:
        desk = Desk(batches_of(5, 1))
        desk.fetch()
        desk.log = [(10, 14)]
        desk.fetch()
        changes = desk.partition.acknowledge("m1", [AckBatch(0, 4, ACCEPT)], limits=desk.limits, now_ms=0)
        write = desk.partition.write_for(changes, is_ahead=True)
        assert write is not None
        assert write.start_offset == 10
        partition = recover(0, (0, 1, 0, 1), (6, 9, 2, 1))
        desk = Desk([(0, 1)], partition=partition)
        desk.fetch()
        changes = partition.acknowledge("m1", [AckBatch(0, 1, ACCEPT)], limits=desk.limits, now_ms=0)
        write = partition.write_for(changes, is_ahead=True)
        assert write is not None
        assert write[:2] == (2, 4)

    def test_acquiring_writes_nothing(self) -> None:
        desk = Desk([(0, 9)])
        desk.fetch()
        assert desk.writes == []


class TestRecovery:
    def test_only_what_was_released_is_delivered_again(self) -> None:  # scenario 53
        desk = Desk([(5, 7)], partition=recover(5, (5, 5, 2, 1), (6, 6, 0, 1), (7, 7, 2, 1)))
        assert desk.partition.start_offset == 6
        assert desk.fetch() == [(6, 6, 2)]
        desk.acknowledge((6, 6, ACCEPT))
        assert desk.partition.start_offset == 8

    def test_records_that_were_acquired_once_are_delivered_with_a_count_of_one(self) -> None:  # scenario 54
        desk = Desk([(0, 9)], partition=recover(0))
        assert desk.fetch() == [(0, 9, 1)]

    def test_without_batches_the_window_is_empty(self) -> None:
        assert recover(7).snapshot() == SharePartition(7).snapshot()

    def test_settled_records_are_counted_and_passed(self) -> None:
        partition = recover(0, (0, 4, 2, 1), (5, 6, 0, 2), (7, 9, 4, 1))
        assert (partition.start_offset, partition.end_offset) == (5, 9)
        assert partition.delivery_complete_count == 3
        assert partition.next_fetch_offset() == 5
        assert recover(0, (0, 4, 2, 1)).snapshot() == SharePartition(5).snapshot()

    def test_dead_letters_that_were_pending_are_pending_again(self) -> None:
        partition = recover(0, (0, 1, 3, 5), (2, 4, 2, 1))
        assert partition.archiving() == [StateBatch(0, 1, S.ARCHIVING, 5)]
        assert partition.start_offset == 0

    @pytest.mark.parametrize(
        "batches",
        [
            [(4, 9, 2, 1)],
            [(9, 8, 2, 1)],
            [(5, 9, 1, 1)],
            [(5, 9, 7, 1)],
            [(5, 9, 2, 1), (9, 12, 2, 1)],
            [(10, 12, 2, 1), (5, 9, 2, 1)],
        ],
    )
    def test_state_that_cannot_have_been_written_is_refused(
        self, batches: list[tuple[int, int, int, int]]
    ) -> None:
        with pytest.raises(CorruptState):
            recover(5, *batches)


def test_a_snapshot_shows_who_holds_what() -> None:
    desk = Desk([(0, 4), (5, 9)])
    desk.fetch("m1", records_max=5)
    desk.fetch("m2", records_max=5)
    desk.acknowledge((7, 7, ACCEPT), member="m2")
    snapshot = desk.partition.snapshot()
    assert [
        (view.first, view.last, view.state, view.holder, view.deadline_ms, view.batch)
        for view in snapshot.ranges
    ] == [
        (0, 4, S.ACQUIRED, "m1", 30_000, (0, 4)),
        (5, 6, S.ACQUIRED, "m2", 30_000, (5, 9)),
        (7, 7, S.ACKNOWLEDGED, None, None, (5, 9)),
        (8, 9, S.ACQUIRED, "m2", 30_000, (5, 9)),
    ]
    assert snapshot.records == (0, 9, 1, 0, 0)
    assert desk.partition.count_of(S.ACQUIRED) == 9
    assert desk.partition.range_count == 4
