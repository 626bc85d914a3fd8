"""Acquiring: every example that was observed on Apache Kafka 4.3.1 (docs/concepts/share-semantics.md).

Method: a Desk reads its log to the end from where the partition says; what a fetch acquires is (first, last, count).
"""

import pytest

from headrace.share.changes import StateBatch
from headrace.share.modes import AcquireMode
from headrace.share.partition import SharePartition
from headrace.share.states import RecordState as S
from tests.unit.share.desk import ACCEPT, GAP, RELEASE, Desk, batches_of

STRICT = AcquireMode.RECORD_LIMIT


def test_batch_size_cuts_at_record_batches_and_the_limit_rounds_up() -> None:  # scenario 24
    assert Desk(batches_of(5, 4)).fetch(records_max=6, batch_size=2) == [(0, 4, 1), (5, 9, 1)]
    assert Desk(batches_of(5, 4)).fetch(records_max=6, batch_size=100) == [(0, 9, 1)]


def test_record_limit_hands_out_what_was_asked_for_and_the_rest_next_time() -> None:  # scenario 25
    desk = Desk(batches_of(5, 3))
    assert desk.fetch(records_max=6, mode=STRICT) == [(0, 5, 1)]
    assert desk.partition.next_fetch_offset() == 6
    assert desk.states()[6] == (S.AVAILABLE, 0)
    assert desk.fetch(records_max=6, mode=STRICT) == [(6, 9, 1), (10, 11, 1)]
    assert desk.fetch(records_max=6, mode=STRICT) == [(12, 14, 1)]
    assert desk.fetch(records_max=6, mode=STRICT) == []


def test_one_partition_may_eat_the_whole_budget() -> None:  # scenario 26
    first, second = SharePartition(0), SharePartition(0)
    budget, acquired = 6, []
    for partition in (first, second):
        acquisition = partition.acquire(
            "m1",
            batch_size=6,
            records_max=budget,
            fetch_offset=0,
            batches=batches_of(5, 2),
            limits=Desk([]).limits,
            now_ms=0,
        )
        budget -= acquisition.record_count
        acquired.append(acquisition.record_count)
    assert acquired == [10, 0]


def test_nothing_is_acquired_for_a_budget_of_nothing_or_from_an_empty_read() -> None:  # scenario 27
    desk = Desk(batches_of(5, 1))
    assert desk.fetch(records_max=0) == []
    desk.log = []
    assert desk.fetch() == []
    assert desk.partition.snapshot() == SharePartition(0).snapshot()


def test_what_was_read_below_the_start_is_not_acquired() -> None:
    desk = Desk([(0, 4)], partition=SharePartition(5))
    acquisition = desk.partition.acquire(
        "m1", batch_size=9, records_max=9, fetch_offset=0, batches=[(0, 4)], limits=desk.limits, now_ms=0
    )
    assert acquisition == ([], [])


def test_the_window_is_bounded_but_for_the_record_batch_that_fills_it() -> None:  # scenario 30
    desk = Desk(batches_of(7, 40), window_max=100)
    assert desk.fetch() == [(0, 104, 1)]
    assert desk.fetch() == []
    desk.acknowledge((0, 6, ACCEPT))
    assert desk.fetch() == [(105, 111, 1)]
    desk.acknowledge((50, 56, ACCEPT))
    assert desk.fetch() == []
    desk.acknowledge((60, 62, RELEASE))
    assert desk.partition.can_acquire(desk.limits)
    assert desk.fetch() == [(60, 62, 2)]
    assert desk.partition.window_size == 105


def test_a_full_window_is_refused_even_if_the_caller_did_not_ask() -> None:
    desk = Desk(batches_of(7, 40), window_max=100)
    desk.fetch()
    acquisition = desk.partition.acquire(
        "m2",
        batch_size=9,
        records_max=9,
        fetch_offset=105,
        batches=batches_of(7, 2, 105),
        limits=desk.limits,
        now_ms=0,
    )
    assert acquisition == ([], [])


def test_released_records_come_before_new_ones_as_entries_of_their_own() -> None:
    desk = Desk(batches_of(5, 4))
    assert desk.fetch(records_max=10, batch_size=5) == [(0, 4, 1), (5, 9, 1)]
    desk.acknowledge((0, 9, RELEASE))
    assert desk.fetch(batch_size=500) == [(0, 4, 2), (5, 9, 2), (10, 19, 1)]


def test_in_flight_batches_are_taken_whole_even_when_they_exceed_the_limit() -> None:
    desk = Desk(batches_of(20, 2))
    desk.fetch(batch_size=20)
    desk.acknowledge((0, 39, RELEASE))
    assert desk.fetch(records_max=5) == [(0, 19, 2)]


def test_record_limit_splits_in_flight_batches() -> None:
    desk = Desk(batches_of(20, 2))
    desk.fetch(batch_size=20)
    desk.acknowledge((0, 3, RELEASE), (6, 39, RELEASE))
    assert desk.fetch(records_max=5, mode=STRICT) == [(0, 3, 2), (6, 6, 2)]
    assert desk.fetch(records_max=20, mode=STRICT) == [(7, 19, 2), (20, 26, 2)]


def test_offsets_with_different_delivery_counts_are_separate_entries() -> None:
    desk = Desk([(0, 9)])
    desk.fetch()
    desk.acknowledge((0, 4, RELEASE))
    desk.fetch()
    desk.acknowledge((0, 9, RELEASE))
    assert desk.fetch() == [(0, 4, 3), (5, 9, 2)]


def test_only_what_was_read_is_acquired_of_a_batch_that_is_longer() -> None:
    desk = Desk([(0, 9), (10, 19)])
    desk.fetch(batch_size=20)
    desk.acknowledge((0, 19, RELEASE))
    desk.log = [(0, 9)]
    assert desk.fetch() == [(0, 9, 2)]
    assert desk.partition.next_fetch_offset() == 10


def test_a_hole_before_the_first_record_moves_the_start_there() -> None:
    desk = Desk([(8, 11)], partition=SharePartition(5))
    assert desk.fetch() == [(8, 11, 1)]
    assert (desk.partition.start_offset, desk.partition.end_offset) == (8, 11)


def test_holes_between_reads_never_enter_the_window_and_holes_inside_a_read_do() -> None:
    desk = Desk([(0, 4)])
    desk.fetch()
    desk.log = [(10, 14), (20, 24)]
    assert desk.fetch() == [(10, 24, 1)]
    assert sorted(desk.states()) == [*range(5), *range(10, 25)]
    desk.acknowledge((0, 4, ACCEPT))
    assert desk.partition.start_offset == 10


def test_a_read_that_begins_inside_a_record_batch_acquires_from_the_start_on() -> None:
    desk = Desk([(0, 9)], partition=SharePartition(4))
    assert desk.fetch() == [(4, 9, 1)]


class TestIsolationOfBadRecords:
    def released_until_gone(self, desk: Desk) -> list[list[tuple[int, int, int]]]:
        deliveries = []
        while acquired := desk.fetch():
            deliveries.append(acquired)
            desk.acknowledge(*((first, last, RELEASE) for first, last, _ in acquired))
        return deliveries

    def test_a_batch_that_is_always_released_shrinks_to_single_records(
        self,
    ) -> None:  # scenario 41
        assert self.released_until_gone(Desk([(0, 19)])) == [
            [(0, 19, 1)],
            [(0, 19, 2)],
            [(0, 19, 3)],
            [(0, 9, 4)],
            *[[(offset, offset, 5)] for offset in range(10)],
            [(10, 19, 4)],
            *[[(offset, offset, 5)] for offset in range(10, 20)],
        ]

    def test_with_a_limit_of_two_there_is_no_isolation(self) -> None:  # scenario 42
        assert self.released_until_gone(Desk([(0, 19)], delivery_limit=2)) == [[(0, 19, 1)], [(0, 19, 2)]]

    def test_a_higher_limit_halves_more_often(self) -> None:
        deliveries = self.released_until_gone(Desk([(0, 499)], delivery_limit=6))
        assert deliveries[:5] == [[(0, 499, 1)], [(0, 499, 2)], [(0, 499, 3)], [(0, 249, 4)], [(0, 124, 5)]]

    def test_a_tired_batch_is_never_joined_with_what_was_acquired_before_it(self) -> None:
        desk = Desk(batches_of(4, 3))
        for _ in range(3):
            desk.fetch(batch_size=4)
            desk.acknowledge((4, 7, RELEASE))
        desk.acknowledge((0, 3, RELEASE), (8, 11, RELEASE))
        assert desk.fetch() == [(0, 3, 2)]
        assert desk.fetch() == [(4, 5, 4)]
        assert desk.fetch() == [(6, 7, 4)]
        assert desk.fetch() == [(8, 11, 2)]

    def test_fresh_records_before_tired_ones_in_their_batch_count_toward_the_part(self) -> None:
        desk = Desk([(0, 9)])
        for _ in range(3):
            desk.fetch()
            desk.acknowledge((2, 9, RELEASE))
        desk.acknowledge((0, 1, RELEASE))
        assert desk.fetch() == [(0, 1, 2), (2, 4, 4)]

    def test_tired_records_wait_when_fresh_ones_fill_the_part_already(self) -> None:
        desk = Desk([(0, 9)])
        for _ in range(3):
            desk.fetch()
            desk.acknowledge((7, 9, RELEASE))
        desk.acknowledge((0, 6, RELEASE))
        assert desk.fetch() == [(0, 6, 2)]

    def test_a_part_may_be_all_that_is_left(self) -> None:
        desk = Desk(batches_of(20, 2))
        desk.fetch(batch_size=20)
        desk.acknowledge((0, 7, ACCEPT), (10, 19, ACCEPT))
        for _ in range(2):
            desk.acknowledge((8, 9, RELEASE))
            desk.fetch()
        desk.acknowledge((8, 9, RELEASE), (20, 39, RELEASE))
        assert desk.fetch() == [(8, 9, 4)]  # fewer than the ten it could have; and the next batch has to wait
        assert desk.fetch() == [(20, 39, 2)]

    def test_a_record_on_its_last_delivery_waits_for_a_fetch_of_its_own(self) -> None:
        desk = Desk([(0, 3)], delivery_limit=3)
        for _ in range(2):
            desk.fetch(mode=STRICT)
            desk.acknowledge((2, 2, RELEASE))
        desk.acknowledge((0, 1, RELEASE), (3, 3, RELEASE))
        assert desk.fetch() == [(0, 1, 2)]
        assert desk.fetch() == [(2, 2, 3)]
        assert desk.fetch() == [(3, 3, 2)]

    def test_record_limit_holds_inside_a_tired_batch_too(self) -> None:
        desk = Desk([(0, 19)])
        for _ in range(3):
            desk.fetch()
            desk.acknowledge((0, 19, RELEASE))
        assert desk.fetch(records_max=3, mode=STRICT) == [(0, 2, 4)]

    def test_tired_records_beyond_what_was_read_do_not_matter(self) -> None:
        desk = Desk(batches_of(5, 2))
        for _ in range(3):
            desk.fetch()
            desk.acknowledge((5, 9, RELEASE))
        desk.acknowledge((0, 4, RELEASE))
        desk.log = [(0, 4)]
        assert desk.fetch() == [(0, 4, 2)]

    def test_a_lowered_limit_delivers_once_more_and_then_archives(self) -> None:
        desk = Desk([(0, 9)])
        for _ in range(3):
            desk.fetch()
            desk.acknowledge((0, 9, RELEASE))
        desk.limits = Desk([], delivery_limit=2).limits
        assert desk.fetch() == [(0, 1, 4)]
        desk.acknowledge((0, 1, RELEASE))
        assert desk.partition.start_offset == 2


class TestTransactions:
    LOG = (
        (0, 2),
        (3, 3),
        (4, 6),
        (7, 7),
        (8, 9),
        (10, 10),
    )  # commit, its marker, abort, its marker, commit, marker

    def test_read_uncommitted_acquires_everything_with_control_records(self) -> None:  # scenario 48
        desk = Desk([*self.LOG, (11, 12)])
        assert desk.fetch() == [(0, 12, 1)]

    def test_read_committed_cuts_aborted_records_out(self) -> None:  # scenario 49
        desk = Desk(self.LOG)
        desk.aborted = [(4, 6)]
        assert desk.fetch() == [(0, 3, 1), (7, 10, 1)]
        assert desk.states()[5] == (S.ARCHIVED, 1)
        desk.log += [(11, 12), (13, 13)]  # an open transaction that was aborted in the end
        desk.aborted = [(4, 6), (11, 12)]
        assert desk.fetch() == [(13, 13, 1)]

    def test_aborted_records_are_counted_as_complete_but_never_written(
        self,
    ) -> None:  # as Kafka writes it
        desk = Desk(self.LOG)
        desk.aborted = [(4, 6)]
        desk.fetch()
        desk.acknowledge((0, 2, ACCEPT), (3, 3, GAP))
        assert desk.partition.start_offset == 7
        desk.acknowledge((7, 7, GAP), (8, 9, ACCEPT), (10, 10, GAP))
        assert desk.written() == [
            (0, 7, [(0, 2, 2, 1), (3, 3, 4, 1)]),
            (7, 4, [(7, 7, 4, 1), (8, 9, 2, 1), (10, 10, 4, 1)]),
        ]
        assert (desk.partition.start_offset, desk.partition.window_size) == (11, 0)

    def test_a_control_offset_that_was_gap_acknowledged_is_passed(self) -> None:  # scenario 50
        desk = Desk([(0, 2), (3, 3)])
        desk.fetch()
        desk.acknowledge((0, 3, [1, 1, 1, 0]))
        assert desk.partition.start_offset == 4

    def test_a_window_full_of_aborted_records_does_not_stall(self) -> None:
        desk = Desk([(0, 199), (200, 200)], window_max=100)
        desk.aborted = [(0, 199)]
        assert desk.fetch() == []
        assert desk.partition.start_offset == 200
        assert desk.fetch() == [(200, 200, 1)]

    def test_aborted_edges_fall_anywhere(self) -> None:
        desk = Desk([(0, 9), (10, 19), (20, 29)])
        desk.aborted = [(0, 4), (12, 13), (14, 14), (25, 40)]
        assert desk.fetch() == [(5, 11, 1), (15, 24, 1)]

    def test_each_entry_finds_the_aborted_records_that_are_its_own(self) -> None:
        desk = Desk(batches_of(5, 4))
        desk.aborted = [(0, 1), (6, 6), (8, 8), (19, 19)]
        assert desk.fetch(batch_size=5) == [
            (2, 4, 1),
            (5, 5, 1),
            (7, 7, 1),
            (9, 9, 1),
            (10, 14, 1),
            (15, 18, 1),
        ]

    def test_record_limit_leaves_the_rest_of_an_aborted_batch_for_the_next_fetch(self) -> None:
        desk = Desk([(0, 9), (10, 10)])
        desk.aborted = [(0, 9)]
        assert desk.fetch(records_max=4, mode=STRICT) == []
        assert desk.states()[4] == (S.AVAILABLE, 0)
        assert desk.fetch(records_max=20, mode=STRICT) == [(10, 10, 1)]


class TestCompaction:
    def test_released_records_that_the_log_lost_are_archived_and_the_start_moves(self) -> None:  # scenario 52
        desk = Desk(batches_of(5, 3))
        desk.fetch(batch_size=5)
        desk.acknowledge((0, 9, RELEASE))
        desk.log = [(10, 14)]
        assert desk.fetch() == []
        assert desk.partition.start_offset == 10
        assert [write.start_offset for write in desk.writes] == [0]  # not written: the log shows it again

    def test_only_the_lost_part_of_a_batch_is_archived(self) -> None:
        desk = Desk([(0, 4), (5, 9)])
        desk.fetch()
        desk.acknowledge((0, 9, RELEASE))
        desk.log = [(5, 9)]
        assert desk.fetch() == [(5, 9, 2)]
        assert desk.partition.start_offset == 5

    def test_records_that_somebody_holds_are_left_alone(self) -> None:
        desk = Desk([(0, 4), (5, 9)])
        desk.fetch()
        desk.acknowledge((0, 1, RELEASE))
        desk.log = [(5, 9)]
        desk.fetch()
        assert desk.states()[2] == (S.ACQUIRED, 1)
        assert desk.partition.start_offset == 2


class TestGapWindows:
    def recovered(self, start: int, *batches: tuple[int, int, S, int], log: list[tuple[int, int]]) -> Desk:
        return Desk(log, partition=SharePartition.recover(start, [StateBatch(*batch) for batch in batches]))

    def test_what_was_never_answered_for_is_read_again_before_anything_new(self) -> None:
        desk = self.recovered(0, (5, 9, S.ACKNOWLEDGED, 1), (15, 19, S.AVAILABLE, 1), log=batches_of(5, 5))
        assert desk.partition.next_fetch_offset() == 0
        assert desk.fetch(batch_size=5) == [(0, 4, 1), (10, 14, 1), (15, 19, 2), (20, 24, 1)]
        assert desk.partition.next_fetch_offset() == 25

    def test_only_the_gaps_inside_a_record_batch_are_acquired(self) -> None:
        desk = self.recovered(0, (5, 9, S.ACKNOWLEDGED, 1), log=[(0, 14)])
        assert desk.fetch() == [(0, 4, 1), (10, 14, 1)]

    def test_the_start_does_not_pass_an_unread_gap(self) -> None:
        desk = self.recovered(0, (0, 4, S.ACKNOWLEDGED, 1), (15, 19, S.ACKNOWLEDGED, 1), log=batches_of(5, 4))
        assert (desk.partition.start_offset, desk.partition.next_fetch_offset()) == (5, 5)
        assert desk.fetch(records_max=5) == [(5, 9, 1)]
        desk.acknowledge((5, 9, ACCEPT))
        assert desk.partition.start_offset == 10
        assert desk.fetch() == [(10, 14, 1)]
        desk.acknowledge((10, 14, ACCEPT))
        assert desk.partition.start_offset == 20

    def test_a_gap_limit_falls_inside_a_record_batch(self) -> None:
        desk = self.recovered(0, (15, 29, S.ACKNOWLEDGED, 1), log=[(0, 29)])
        assert desk.fetch(records_max=1) == [(0, 14, 1)]

    def test_record_limit_leaves_the_rest_of_a_gap_available(self) -> None:
        desk = self.recovered(0, (15, 29, S.ACKNOWLEDGED, 1), log=[(0, 29)])
        assert desk.fetch(records_max=4, mode=STRICT) == [(0, 3, 1)]
        assert desk.fetch(records_max=4, mode=STRICT) == [(4, 7, 1)]

    @pytest.mark.parametrize(
        ("log", "acquired"),
        [
            ([(8, 11), (15, 18)], [(8, 14, 1)]),
            ([(20, 24)], [(20, 24, 1)]),
            ([(15, 18), (19, 19)], [(19, 19, 1)]),
        ],
    )
    def test_gaps_that_the_log_does_not_have_are_archived(
        self, log: list[tuple[int, int]], acquired: list[tuple[int, int, int]]
    ) -> None:
        desk = self.recovered(5, (15, 18, S.ACKNOWLEDGED, 1), log=log)
        assert desk.fetch() == acquired
        assert desk.partition.snapshot().gap_offset is None
        assert desk.partition.start_offset == acquired[0][0]

    def test_a_gap_is_closed_even_when_the_read_gives_nothing_to_acquire(self) -> None:
        desk = self.recovered(5, (15, 18, S.ACKNOWLEDGED, 1), log=[(15, 18)])
        assert desk.fetch() == []
        assert (desk.partition.start_offset, desk.partition.next_fetch_offset()) == (19, 19)

    def test_a_tired_batch_stops_the_walk_before_the_next_gap(self) -> None:
        desk = self.recovered(0, (0, 3, S.AVAILABLE, 3), (8, 9, S.ACKNOWLEDGED, 1), log=batches_of(2, 5))
        assert desk.fetch() == [(0, 1, 4)]
        assert desk.fetch() == [(2, 3, 4)]
        assert desk.fetch() == [(4, 7, 1)]

    def test_available_records_behind_a_gap_wait_for_their_turn(self) -> None:
        desk = self.recovered(0, (4, 5, S.AVAILABLE, 1), (9, 9, S.AVAILABLE, 2), log=batches_of(2, 5))
        assert desk.fetch(records_max=4) == [(0, 3, 1)]
        assert desk.fetch() == [(4, 5, 2), (6, 8, 1), (9, 9, 3)]
